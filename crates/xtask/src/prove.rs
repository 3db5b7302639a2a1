//! `cargo xtask prove NAME`: proofs that are too heavy for every change.

mod cache;
mod harness;
mod log_memory;
mod mutants;
mod policies;
mod tokens;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, bail};
use condenser::request::Api;
use condenser::{Rules, Tokens};
use condenser_harness::{Prepared, Settings, Subject, run_observed};
use condenser_policies::Extractive;
use condenser_traces::Trace;
use rayon::prelude::*;

/// How often a writer is killed, over all sync points.
const KILLS: usize = 210;

/// The policies whose requests are checked.
const POLICIES: [&str; 4] = ["none", "observation-masking", "folding", "llm-summarizing"];

/// Runs a proof. Whether it holds.
pub(crate) fn command(name: &str, paths: &[PathBuf]) -> anyhow::Result<bool> {
    match name {
        "requests" => requests(),
        "policies" if paths.is_empty() => policies::all(),
        "policies" => policies::prove(paths),
        "kill" => kill(),
        "memory" => log_memory::command(),
        "sqlx" => sqlx(),
        "sdk" => sdk(paths),
        "cache" => cache::command(),
        "tokens" => tokens::command(),
        "harness" => harness::command(paths),
        "mutants" => mutants::command(),
        _ => bail!(
            "unknown proof {name:?}; there are: requests, policies, kill, memory, sqlx, sdk, cache, tokens, harness, \
             mutants"
        ),
    }
}

/// Kills a process that appends to a log, at random moments around three sync points.
fn kill() -> anyhow::Result<bool> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "test",
        "--quiet",
        "--package",
        "condenser-log",
        "--test",
        "processes",
        "--",
        "--exact",
        "--nocapture",
    ]);
    cargo.arg("a_killed_writer_leaves_every_acknowledged_event_and_a_log_that_goes_on");
    cargo.env("CONDENSER_KILLS", KILLS.to_string());
    let is_ok = cargo.current_dir(crate::root()).status()?.success();
    println!("{KILLS} kills, {}", if is_ok { "nothing lost" } else { "see above" });
    Ok(is_ok)
}

/// Builds and runs a program that uses the log and sqlx on one SQLite.
fn sqlx() -> anyhow::Result<bool> {
    let root = crate::root();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--locked", "--manifest-path"]).arg(root.join("crates/log/consumer/Cargo.toml"));
    Ok(cargo.arg("--target-dir").arg(root.join("target/consumer")).status()?.success())
}

/// Writes every trace of another format as OpenHands events, and lets the SDK open what was written.
fn sdk(paths: &[PathBuf]) -> anyhow::Result<bool> {
    let [python] = paths else { bail!("say which Python has openhands-sdk 1.58.2: cargo xtask prove sdk PYTHON") };
    let folder = tempfile::tempdir()?;
    let mut files = Vec::new();
    for trace in all_traces()?.into_iter().filter(|trace| !trace.format.starts_with("openhands-v1")) {
        let file = folder.path().join(format!("{}.jsonl", trace.name.replace(['/', '#'], "-")));
        let written = condenser_traces::write(&[trace], "openhands-v1")?;
        let lines: Vec<String> = written.values.iter().map(|value| format!("{value}\n")).collect();
        std::fs::write(&file, lines.concat())?;
        files.push(file);
    }
    let mut peer = Command::new(python);
    peer.arg(crate::root().join("benches/peers/openhands_open.py")).args(&files);
    peer.env("OPENHANDS_SUPPRESS_BANNER", "1").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    Ok(peer.status()?.success() && !files.is_empty())
}

/// The traces at hand: recorded ones, and those of this repository.
fn all_traces() -> anyhow::Result<Vec<Trace>> {
    let mut traces = Vec::new();
    for folder in [crate::shared()?.join("traces"), crate::root().join("fixtures/traces")] {
        if !folder.is_dir() {
            println!("skipped: no traces at {}", folder.display());
            continue;
        }
        for candidate in condenser_traces::find(&folder)? {
            // What is of no known format is for the readers' own tests.
            traces.extend(condenser_traces::read_path(&candidate.path, None).unwrap_or_default());
        }
    }
    Ok(traces)
}

/// Checks every request of every step of every readable trace, under four policies and for all APIs.
pub(crate) fn requests() -> anyhow::Result<bool> {
    let counter = condenser_models::tokenizer("chars/4")?;
    let profile = condenser_models::profile("reference")?;
    let summarizer = Extractive::default();
    let settings = Settings {
        window: Some(Tokens(32_000)),
        reserve: Tokens(4_000),
        profile: &profile,
        summarizer: &summarizer,
        seed: 0,
        recall: true,
    };
    let traces = all_traces()?;
    let policies = POLICIES.map(|name| condenser_policies::by_name(name).with_context(|| format!("no policy {name}")));
    let policies = policies.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let (n_requests, violations) = traces
        .par_iter()
        .map(|trace| {
            let (mut n_requests, mut found) = (0, Vec::new());
            let subject = Subject { trace: &trace.name, format: trace.format, task: None, events: &trace.events };
            let prepared = Prepared::new(subject, counter, Rules::Sound);
            for policy in &policies {
                run_observed(&prepared, &**policy, &settings, &mut |seen| {
                    for api in Api::ALL {
                        n_requests += 1;
                        let violations = condenser::request::validate(api, &seen.request.render(api));
                        found.extend(violations.first().map(|violation| {
                            let step = seen.step + 1;
                            format!("{} step {step} under {} for {api}: {violation}", trace.name, policy.name())
                        }));
                    }
                });
            }
            (n_requests, found)
        })
        .reduce(Default::default, |(n, mut all), (more, found): (u64, Vec<String>)| {
            all.extend(found);
            (n + more, all)
        });
    for violation in &violations {
        println!("{violation}");
    }
    println!("{} traces, {n_requests} requests, {} invalid", traces.len(), violations.len());
    Ok(violations.is_empty() && n_requests > 0)
}
