//! `cargo xtask record-fixtures`: runs scripted sessions for real and writes them as traces.
//!
//! The agent's words and calls are data (`scenarios/*.txt`); what the calls answer is whatever the commands print.
//! Ids and times are seeded and durations, build hashes and paths are normalised, so that recording again with the
//! same tools gives the same bytes.

mod clock;
mod scenario;
mod workshop;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use clock::Clock;
use scenario::{Call, Fate, Op, Scenario, Step};
use workshop::{Answer, Workshop};

const SCENARIOS: &[(&str, &str)] = &[
    ("ledger-currencies", include_str!("scenarios/ledger-currencies.txt")),
    ("slug-transliteration", include_str!("scenarios/slug-transliteration.txt")),
    ("tally-csv", include_str!("scenarios/tally-csv.txt")),
    ("next-run", include_str!("scenarios/next-run.txt")),
    ("kvlog-recovery", include_str!("scenarios/kvlog-recovery.txt")),
    ("wrap-columns", include_str!("scenarios/wrap-columns.txt")),
];

/// A scenario after it has run.
#[derive(Debug)]
struct Trace {
    scenario: Scenario,
    entries: Vec<Entry>,
    /// `git diff` against the start, where the program is a git repository.
    diff: String,
    clock: Clock,
}

/// One entry of a trace, with its time in microseconds.
#[derive(Debug)]
enum Entry {
    User { at: u64, text: String },
    Bang { at: u64, command: String, answer: Answer },
    Turn { at: u64, think: Option<String>, say: Option<String>, calls: Vec<Played> },
    Compact { at: u64, keep_first: usize, keep_last: usize, summary: String },
}

/// A call and what became of it.
#[derive(Debug)]
struct Played {
    at: u64,
    op: Op,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    Answered(Answer),
    Rejected(String),
    Open,
}

/// Files by their path under `fixtures/traces`.
type Files = BTreeMap<PathBuf, String>;

/// Records all scenarios, or those named, and writes them, or only compares them with what is there: false if they differ.
pub(crate) fn command(check: bool, names: &[String]) -> Result<bool> {
    if let Some(name) = names.iter().find(|name| !SCENARIOS.iter().any(|(known, _)| *known == name.as_str())) {
        let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
        bail!("no scenario `{name}`; there are {}", known.join(", "));
    }
    let chosen: Vec<(&str, &str)> = SCENARIOS
        .iter()
        .copied()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|wanted| wanted.as_str() == *name))
        .collect();
    let folder = crate::root().join("fixtures/traces");
    let mut equal = true;
    // The commands mostly wait for compilers, so the scenarios run side by side.
    let recorded: Vec<Result<(usize, Files)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = chosen.iter().map(|(_, text)| scope.spawn(|| recording(text))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("the recording panicked"))).collect()
    });
    for ((name, _), result) in chosen.into_iter().zip(recorded) {
        let (events, files) = result.with_context(|| format!("scenario {name}"))?;
        if check {
            match first_difference(&folder, name, &files)? {
                None => println!("{name}: same"),
                Some(difference) => {
                    println!("{name}: {difference}");
                    equal = false;
                    break;
                }
            }
        } else {
            replace(&folder, name, &files)?;
            let bytes: usize = files.values().map(String::len).sum();
            println!("{name}: {events} events, {bytes} bytes");
        }
    }
    Ok(equal)
}

/// Runs a scenario and renders its trace.
fn recording(text: &str) -> Result<(usize, Files)> {
    let trace = record(text)?;
    Ok((trace.n_events(), write::files(trace)?))
}

/// Runs a scenario.
fn record(text: &str) -> Result<Trace> {
    let mut scenario = Scenario::parse(text)?;
    let mut clock = Clock::new(&scenario.name, scenario.start);
    let workshop = Workshop::new(&scenario.program, &scenario.files)?;
    for command in &scenario.setup {
        workshop.prepare(command, clock.micros())?;
    }
    let mut entries = Vec::new();
    for step in std::mem::take(&mut scenario.steps) {
        entries.push(match step {
            Step::User(text) => {
                clock.pass(20_000, 140_000);
                Entry::User { at: clock.micros(), text }
            }
            Step::Bang(command) => {
                clock.pass(8_000, 30_000);
                let answer = workshop.run(&command, clock.micros())?;
                Entry::Bang { at: clock.micros(), command, answer }
            }
            Step::Compact { keep_first, keep_last, summary } => {
                clock.pass(6_000, 15_000);
                Entry::Compact { at: clock.micros(), keep_first, keep_last, summary }
            }
            Step::Turn(turn) => {
                clock.pass(2_500, 14_000);
                let at = clock.micros();
                let calls: Result<Vec<Played>> =
                    turn.calls.into_iter().map(|call| play(&workshop, &mut clock, call)).collect();
                Entry::Turn { at, think: turn.think, say: turn.say, calls: calls? }
            }
        });
    }
    let diff = if scenario.format == "swe-agent" {
        workshop.prepare("git add -A && git diff --cached", clock.micros())?
    } else {
        String::new()
    };
    Ok(Trace { scenario, entries, diff, clock })
}

fn play(workshop: &Workshop, clock: &mut Clock, call: Call) -> Result<Played> {
    let outcome = match call.fate {
        Fate::Open => Outcome::Open,
        Fate::Rejected(reason) => Outcome::Rejected(reason),
        Fate::Carried => Outcome::Answered(workshop.perform(&call.op, clock.micros())?),
    };
    clock.pass(40, 1_800);
    Ok(Played { at: clock.micros(), op: call.op, outcome })
}

impl Trace {
    /// Events in the sense of the core crate: system prompt, messages, calls, results, compactions.
    fn n_events(&self) -> usize {
        let of_entry = |entry: &Entry| match entry {
            Entry::User { .. } | Entry::Bang { .. } | Entry::Compact { .. } => 1,
            Entry::Turn { calls, .. } if calls.is_empty() => 1,
            Entry::Turn { calls, .. } => {
                calls.iter().map(|call| if matches!(call.outcome, Outcome::Open) { 1 } else { 2 }).sum()
            }
        };
        usize::from(!self.scenario.system.is_empty()) + self.entries.iter().map(of_entry).sum::<usize>()
    }
}

/// What stands under `folder` for this fixture: a file `<name>.<ext>` or a folder `<name>`.
fn existing(folder: &Path, name: &str) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(current) = open.pop() {
        if !current.exists() {
            continue;
        }
        for entry in fs::read_dir(&current)? {
            let path = entry?.path();
            let local = path.strip_prefix(folder)?.to_path_buf();
            let stem = local.iter().next().and_then(|first| first.to_str()).and_then(|first| first.split('.').next());
            if stem == Some(name) {
                if path.is_dir() {
                    open.push(path);
                } else {
                    found.insert(local);
                }
            }
        }
    }
    Ok(found)
}

fn replace(folder: &Path, name: &str, files: &Files) -> Result<()> {
    for path in existing(folder, name)? {
        if !files.contains_key(&path) {
            fs::remove_file(folder.join(path))?;
        }
    }
    for (path, text) in files {
        let target = folder.join(path);
        fs::create_dir_all(target.parent().unwrap_or(folder))?;
        fs::write(&target, text).with_context(|| format!("cannot write {}", target.display()))?;
    }
    Ok(())
}

fn first_difference(folder: &Path, name: &str, files: &Files) -> Result<Option<String>> {
    if let Some(path) = existing(folder, name)?.iter().find(|path| !files.contains_key(*path)) {
        return Ok(Some(format!("{} is not recorded any more", path.display())));
    }
    for (path, new) in files {
        let Ok(old) = fs::read_to_string(folder.join(path)) else {
            return Ok(Some(format!("{} is missing", path.display())));
        };
        if old != *new {
            return Ok(Some(describe(path, &old, new)));
        }
    }
    Ok(None)
}

/// Names the first line that differs, with what surrounds the first differing character.
fn describe(path: &Path, old: &str, new: &str) -> String {
    let n_equal = old.lines().zip(new.lines()).take_while(|(old, new)| old == new).count();
    let (old, new) = (old.lines().nth(n_equal).unwrap_or(""), new.lines().nth(n_equal).unwrap_or(""));
    let column = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
    let around = |line: &str| -> String { line.chars().skip(column.saturating_sub(30)).take(100).collect() };
    format!(
        "{}:{}:{}\n  committed: {}\n  recorded:  {}",
        path.display(),
        n_equal + 1,
        column + 1,
        around(old),
        around(new)
    )
}

#[cfg(test)]
mod tests {
    use condenser::event::EventKind;

    use super::*;

    #[test]
    fn every_scenario_parses_and_carries_its_own_name() {
        for (name, text) in SCENARIOS {
            assert_eq!(Scenario::parse(text).unwrap().name, *name);
        }
    }

    /// Reads a committed fixture, unless this version has no reader for its format.
    #[track_caller]
    fn check(path: &str, format: &str, n_least: usize, n_open: usize) {
        if condenser_traces::format(format).is_err() {
            println!("skipped {path}: no reader for {format}");
            return;
        }
        let path = crate::root().join("fixtures/traces").join(path);
        let traces = condenser_traces::read_path(&path, None).unwrap();
        let [trace] = traces.as_slice() else { panic!("{} traces", traces.len()) };
        assert_eq!((trace.format, trace.diagnostics.as_slice()), (format, [].as_slice()));
        let mut open = BTreeSet::new();
        let mut n_shown = 0;
        for event in &trace.events {
            n_shown += usize::from(event.kind.is_shown());
            match &event.kind {
                EventKind::Action(action) => assert!(open.insert(action.call_id.clone()), "{}", action.call_id),
                EventKind::Observation(seen) => assert!(open.remove(&seen.call_id), "{}", seen.call_id),
                _ => {}
            }
        }
        assert!(n_shown >= n_least, "{n_shown} events");
        assert_eq!(open.len(), n_open, "unanswered calls");
    }

    #[test]
    fn the_fixtures_are_read_without_complaint_and_only_last_calls_are_unanswered() {
        check("ledger-currencies.openhands.jsonl", "openhands-v1", 250, 0);
        check("slug-transliteration", "openhands-v1", 40, 1);
        check("tally-csv.pi.jsonl", "pi", 40, 0);
        check("next-run.traj", "swe-agent", 40, 0);
        check("kvlog-recovery.claude-code.jsonl", "claude-code", 40, 1);
        check("wrap-columns.chat.json", "openai-chat", 40, 0);
    }

    #[test]
    fn a_difference_is_described_by_its_place() {
        let text = describe(Path::new("a.jsonl"), "same\nleft", "same\nlest");
        assert_eq!(text, "a.jsonl:2:3\n  committed: left\n  recorded:  lest");
    }
}
