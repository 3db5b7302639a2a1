//! Every policy on every trace: requests are valid, a second run gives the same, nothing panics.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use condenser::request::{Api, validate};
use condenser::{Condensation, Policy, Rules, Tokens};
use condenser_harness::{Prepared, Row, Settings, Subject, run_observed};
use condenser_policies::{Extractive, configure};
use condenser_traces::Trace;
use rayon::prelude::*;
use serde_json::json;

const WINDOWS: [Tokens; 3] = [Tokens(8_000), Tokens(32_000), Tokens(128_000)];
/// Broken promises shown.
const SHOWN: usize = 20;

/// All traces at hand.
pub(super) fn all() -> anyhow::Result<bool> {
    let mut paths = Vec::new();
    for folder in [crate::shared()?.join("traces"), crate::root().join("fixtures/traces")] {
        if folder.is_dir() {
            paths.extend(condenser_traces::find(&folder)?.into_iter().map(|candidate| candidate.path));
        } else {
            println!("skipped: no traces at {}", folder.display());
        }
    }
    prove(&paths)
}

/// What a policy did on all traces under one window.
#[derive(Default)]
struct Tally {
    fired: u64,
    records: u64,
    extended: u64,
    failed: u64,
    over: u64,
}

/// Proves it on these files, and prints a line for each policy and window.
pub(super) fn prove(paths: &[PathBuf]) -> anyhow::Result<bool> {
    // What is of no known format is for the readers' own tests.
    let traces: Vec<Trace> =
        paths.iter().flat_map(|path| condenser_traces::read_path(path, None).unwrap_or_default()).collect();
    anyhow::ensure!(!traces.is_empty(), "no trace that can be read");
    let mut policies: Vec<Arc<dyn Policy>> = Vec::new();
    let list = condenser_policies::policies();
    for info in &list {
        policies.push(info.build(&Default::default())?.into());
    }
    let file = json!({"masking-then-summary": {"pipeline": ["observation-masking", "llm-summarizing"]}});
    policies.extend(configure(&list, file.as_object().unwrap_or(&Default::default()))?);

    let n_done = AtomicUsize::new(0);
    let results: Vec<(Row, Vec<String>)> = traces
        .par_iter()
        .map(|trace| {
            let results = on_trace(trace, &policies);
            eprintln!("{} of {}: {}", n_done.fetch_add(1, Ordering::Relaxed) + 1, traces.len(), trace.name);
            results
        })
        .flatten()
        .collect();
    let mut tallies: BTreeMap<(usize, u64), Tally> = BTreeMap::new();
    for (row, _) in &results {
        let place = policies.iter().position(|policy| policy.name() == row.policy).unwrap_or_default();
        let tally = tallies.entry((place, row.window.unwrap_or_default())).or_default();
        tally.fired += u64::from(row.condensations > 0);
        tally.records += row.condensations;
        tally.extended += row.extended;
        tally.failed += row.failed_condensations;
        tally.over += row.over_window_steps;
    }
    println!("policy, window: traces it acted on, records, of these extended, failed tries, steps over the window");
    for ((place, window), tally) in &tallies {
        let Tally { fired, records, extended, failed, over } = tally;
        println!("{}, {}k: {fired}, {records}, {extended}, {failed}, {over}", policies[*place].name(), window / 1000);
    }
    let broken: Vec<&String> = results.iter().flat_map(|(_, broken)| broken).collect();
    for line in broken.iter().take(SHOWN) {
        println!("{line}");
    }
    println!(
        "{} traces, {} policies, {} windows, {} runs twice, {} promises broken",
        traces.len(),
        policies.len(),
        WINDOWS.len(),
        results.len(),
        broken.len()
    );
    Ok(broken.is_empty())
}

/// A row for each policy and window, with what went wrong.
fn on_trace(trace: &Trace, policies: &[Arc<dyn Policy>]) -> Vec<(Row, Vec<String>)> {
    let counter = &condenser::tokens::CharsPer4;
    let (Ok(profile), summarizer) = (condenser_models::profile("reference"), Extractive::default()) else {
        return Vec::new();
    };
    let subject = Subject { trace: &trace.name, format: trace.format, task: None, events: &trace.events };
    let prepared = Prepared::new(subject, counter, Rules::Sound);
    let runs: Vec<(Tokens, &Arc<dyn Policy>)> =
        WINDOWS.iter().flat_map(|window| policies.iter().map(move |policy| (*window, policy))).collect();
    runs.into_par_iter()
        .map(|(window, policy)| {
            let settings = Settings {
                window: Some(window),
                reserve: Tokens(4_000),
                profile: &profile,
                summarizer: &summarizer,
                seed: 0,
                recall: true,
            };
            let place = format!("{} under {} at {window}", trace.name, policy.name());
            let run = |checks: bool| {
                catch_unwind(AssertUnwindSafe(|| run(&prepared, &**policy, &settings, checks)))
                    .map_err(|_| format!("{place}: panicked"))
            };
            let (first, second) = match (run(true), run(false)) {
                (Ok(first), Ok(second)) => (first, second),
                (Err(panic), _) | (_, Err(panic)) => {
                    let row = Row { policy: policy.name().to_owned(), window: Some(window.0), ..Row::default() };
                    return (row, vec![panic]);
                }
            };
            let mut broken: Vec<String> = first.broken.iter().map(|broken| format!("{place}, {broken}")).collect();
            if first.row.invalid_requests > 0 {
                broken.push(format!("{place}: {} invalid requests", first.row.invalid_requests));
            }
            if (&first.row, first.digest, &first.sizes) != (&second.row, second.digest, &second.sizes) {
                broken.push(format!("{place}: a second run gave something else"));
            }
            (first.row, broken)
        })
        .collect()
}

struct Run {
    row: Row,
    sizes: Vec<u64>,
    /// Of all records.
    digest: u64,
    broken: Vec<String>,
}

/// One run. Requests are checked for every API after each record that can change their shape, and at the last step.
fn run(prepared: &Prepared<'_>, policy: &dyn Policy, settings: &Settings<'_>, checks: bool) -> Run {
    let mut digest = DefaultHasher::new();
    let mut broken = Vec::new();
    let n_steps = prepared.n_steps();
    let replay = run_observed(prepared, policy, settings, &mut |seen| {
        if let Some(record) = seen.record {
            (seen.step, serde_json::to_string(record).unwrap_or_default()).hash(&mut digest);
        }
        if checks && (seen.step + 1 == n_steps || seen.record.is_some_and(can_change_shape)) {
            for api in Api::ALL {
                let violations = validate(api, &seen.request.render(api));
                broken.extend(violations.first().map(|found| format!("step {} for {api}: {found}", seen.step + 1)));
            }
        }
    });
    Run { row: Row { wall_ms: 0.0, ..replay.row }, sizes: replay.steps.tokens, digest: digest.finish(), broken }
}

fn can_change_shape(record: &Condensation) -> bool {
    !record.forgotten_event_ids.is_empty() || record.summary.is_some()
}

#[cfg(test)]
mod tests {
    /// Real traces for every change: each a format, with compactions, parallel calls or thinking.
    const SAMPLE: [&str; 7] = [
        "claude-code/small-compaction-54.jsonl",
        "claude-code/agent-progress-66.jsonl",
        "openai-chat/ask-github-stored-completion.json",
        "openhands-v1/cli-followup",
        "openhands-v1/swebench-203-three-condensations.jsonl",
        "swe-agent/function-calling-from-source.traj",
        "swe-agent/thought-action-pydicom-1458.traj",
    ];

    #[test]
    fn every_policy_keeps_its_promises_on_the_fixtures() {
        let found = condenser_traces::find(&crate::root().join("fixtures/traces")).unwrap();
        let paths: Vec<_> = found.into_iter().map(|candidate| candidate.path).collect();
        assert!(super::prove(&paths).unwrap());
    }

    #[test]
    fn every_policy_keeps_its_promises_on_a_sample_of_real_traces() {
        let folder = crate::shared().unwrap().join("traces");
        if !folder.is_dir() {
            println!("skipped: no traces at {}", folder.display());
            return;
        }
        let paths: Vec<_> = SAMPLE.iter().map(|name| folder.join(name)).collect();
        assert!(paths.iter().all(|path| path.exists()));
        assert!(super::prove(&paths).unwrap());
    }
}
