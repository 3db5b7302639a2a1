//! What comparing takes, against importing a trace and counting its tokens once: as whole commands, by the clock, and
//! inside of one process, by the time on the processor.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use condenser::profile::ModelProfile;
use condenser::request::text_of;
use condenser::{Policy, Rules, Tokens};
use condenser_harness::{Prepared, Settings, Subject, run};
use condenser_policies::{Extractive, PolicyKind, policies};
use condenser_traces::{Reader, Trace};
use serde_json::Map;

use super::tokens::on_processor;

/// A command that compares may take so many times as long as one that imports and counts.
const MOST: f64 = 3.0;
/// Each time is the median of so many.
const RUNS: usize = 5;
/// The same of commands, after one that is not counted.
const COMMANDS: usize = 9;
/// Each run inside of one process is repeated for so long.
const LEAST: Duration = Duration::from_millis(200);

/// Prints a line for the native policies together and for each port by itself. Whether all are within the bound.
pub(crate) fn command(paths: &[PathBuf]) -> anyhow::Result<bool> {
    let path = match paths {
        [path] => path.clone(),
        [] => {
            crate::shared().context("the recorded traces are not here; name one")?.join("traces/pi/large-session.jsonl")
        }
        _ => bail!("one trace is measured at a time"),
    };
    let counter = condenser_models::tokenizer("o200k")?;
    // The vocabulary is unpacked once.
    counter.count("warm");
    let import = || -> anyhow::Result<Trace> {
        Reader::open(&path, None)?.into_traces()?.into_iter().next().context("the file holds no trace")
    };
    let trace = import()?;
    let (floor, _) = median(|| {
        let trace = import()?;
        Ok(trace.events.iter().map(|event| counter.count(&text_of(&event.kind))).sum::<Tokens>())
    })?;
    let subject = Subject { trace: &trace.name, format: trace.format, task: None, events: &trace.events };
    let profile = ModelProfile {
        name: "none".to_owned(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: None,
        cache: None,
    };
    let summarizer = Extractive::default();
    let settings = Settings {
        window: Some(Tokens(32_000)),
        reserve: Tokens(4_000),
        profile: &profile,
        summarizer: &summarizer,
        seed: 0,
        recall: true,
    };
    let steps = Prepared::new(subject, counter, Rules::Sound).n_steps();
    let least = command_time(&path, &["traces", "stats", "--tokenizer", "o200k"])?;
    println!("{}: {steps} steps; times of importing it and counting its tokens once", trace.name);
    println!("{:28} {:>18} {:>24}", "", "command, clock", "in process, processor");
    let row = |name: &str, command: Duration, inside: Duration| {
        let ratio = |it: Duration, base: Duration| it.as_secs_f64() / base.as_secs_f64();
        let (command_s, inside_s) = (command.as_secs_f64(), inside.as_secs_f64());
        println!(
            "{name:28} {command_s:8.3} s {:>7.2} {inside_s:14.3} s {:>7.2}",
            ratio(command, least),
            ratio(inside, floor)
        );
        ratio(command, least) <= MOST
    };
    let mut is_fast = row("import and count", least, floor);
    let mut check = |name: &str, policies: &[Box<dyn Policy>]| -> anyhow::Result<()> {
        // Importing belongs to a comparison.
        let (taken, _) = median(|| {
            let trace = import()?;
            let subject = Subject { events: &trace.events, ..subject };
            let prepared = Prepared::new(subject, counter, Rules::Sound);
            Ok(policies.iter().map(|policy| run(&prepared, &**policy, &settings).row.input_tokens).sum::<u64>())
        })?;
        let names: Vec<&str> = policies.iter().map(|policy| policy.name()).collect();
        let command = command_time(&path, &["compare", "--window", "32k", "--policy", &names.join(",")])?;
        is_fast &= row(name, command, taken);
        Ok(())
    };
    let build = |kind: Option<PolicyKind>| {
        let wanted = policies().into_iter().filter(move |info| kind.is_none_or(|kind| info.kind == kind));
        wanted.map(|info| (info.name, info.kind, info.build(&Map::new()))).collect::<Vec<_>>()
    };
    let natives =
        build(Some(PolicyKind::Native)).into_iter().map(|(_, _, policy)| policy).collect::<Result<Vec<_>, _>>()?;
    check(&format!("{} native policies", natives.len()), &natives)?;
    for (name, kind, policy) in build(None) {
        if kind != PolicyKind::Native {
            check(name, &[policy?])?;
        }
    }
    Ok(is_fast)
}

/// The median time by the clock of the command that was built beside this one, with as many threads as it takes.
fn command_time(trace: &Path, arguments: &[&str]) -> anyhow::Result<Duration> {
    let binary = std::env::current_exe()?.with_file_name("condenser");
    let mut times = Vec::new();
    for _ in 0..=COMMANDS {
        let started = Instant::now();
        let status = Command::new(&binary).args(arguments).arg(trace).stdout(Stdio::null()).status();
        let status = status.with_context(|| {
            format!("{} does not run; `cargo build --release -p condenser-cli` makes it", binary.display())
        })?;
        ensure!(status.success(), "condenser {} ends with {status}", arguments.join(" "));
        times.push(started.elapsed());
    }
    times.remove(0);
    times.sort();
    Ok(times[COMMANDS / 2])
}

/// The median of several times on the processor, and what the last run gave.
fn median<T>(mut run: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<(Duration, T)> {
    let mut times = Vec::new();
    let mut last = None;
    for _ in 0..RUNS {
        let before = (Instant::now(), on_processor());
        let mut n = 0;
        // The system counts in steps of some milliseconds.
        times.push(loop {
            last = Some(run()?);
            n += 1;
            let taken = match (before.1, on_processor()) {
                (Some(before), Some(now)) => now - before,
                _ => before.0.elapsed(),
            };
            if taken >= LEAST {
                break taken / n;
            }
        });
    }
    times.sort();
    Ok((times[RUNS / 2], last.context("nothing was run")?))
}
