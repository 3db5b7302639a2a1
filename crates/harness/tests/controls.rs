//! Controls get the verdicts that they must, on real traces.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests")]

use std::path::PathBuf;

use condenser::header::EventHeader as _;
use condenser::policy::Policy;
use condenser::profile::ModelProfile;
use condenser::tokens::{CharsPer4, Tokens};
use condenser::view::Rules;
use condenser_harness::{ForgetAll, Prepared, RandomForgetting, Replay, Row, Settings, Subject, run, run_oracle};
use condenser_policies::{Extractive, policies};
use condenser_traces::{Reader, Trace, find};
use serde_json::Map;

/// Traces whose files are larger are left to the comparison itself.
const MAX_BYTES: u64 = 700_000;

fn traces() -> Vec<Trace> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let shared = std::env::var_os("CONDENSER_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let mut folders = vec![root.join("fixtures/traces")];
    match shared.join("traces") {
        folder if folder.is_dir() => folders.push(folder),
        _ => println!("skipped: the recorded traces are not here"),
    }
    let candidates = folders.iter().flat_map(|folder| find(folder).unwrap());
    let small = candidates.filter(|it| it.path.metadata().is_ok_and(|data| data.is_dir() || data.len() < MAX_BYTES));
    small.filter_map(|it| Reader::open(&it.path, None).ok()?.into_traces().ok()).flatten().collect()
}

fn policy(name: &str) -> Box<dyn Policy> {
    policies().into_iter().find(|info| info.name == name).unwrap().build(&Map::new()).unwrap()
}

fn profile() -> ModelProfile {
    ModelProfile {
        name: "none".to_owned(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: None,
        cache: None,
    }
}

/// Calls `check` with each trace, whether there is thinking in it, and settings with a small window.
fn each(mut check: impl FnMut(&Prepared<'_>, bool, &Settings<'_>)) {
    let (profile, summarizer) = (profile(), Extractive::default());
    for trace in traces() {
        let subject = Subject { trace: &trace.name, format: trace.format, task: None, events: &trace.events };
        let prepared = Prepared::new(subject, &CharsPer4, Rules::Sound);
        let has_thinking = trace.events.iter().any(|event| event.has_thinking());
        // The system prompts of some recorded agents alone are larger than the smallest of these.
        let windows =
            if trace.name.contains("fixtures/traces") { &[2_000, 8_000, 32_000][..] } else { &[8_000, 32_000] };
        for &window in windows {
            let (window, reserve) = (Some(Tokens(window)), Tokens(window / 8));
            let settings =
                Settings { window, reserve, profile: &profile, summarizer: &summarizer, seed: 0, recall: true };
            check(&prepared, has_thinking, &settings);
        }
    }
}

#[test]
fn the_oracle_shows_at_least_what_whole_event_policies_show_at_their_sizes() {
    let (mut n_compared, mut n_above) = (0, 0);
    each(|prepared, _, settings| {
        let least = run(prepared, &ForgetAll, settings);
        let mut check = |matched: &Replay| {
            let oracle = run_oracle(prepared, matched, settings);
            let name = format!("{}, {}, {:?}", oracle.row.trace, matched.row.policy, settings.window);
            assert_eq!(oracle.row.evidence_total, matched.row.evidence_total, "{name}");
            let uses = prepared.facts().uses;
            let statuses = oracle.steps.uses.chars().zip(matched.steps.uses.chars()).zip(&uses);
            let worse: Vec<_> = statuses
                .filter(|((ours, theirs), _)| *ours != 'v' && *theirs == 'v')
                .map(|(_, found)| (found, matched.steps.tokens[found.step as usize]))
                .collect();
            assert!(
                oracle.row.evidence_in_view >= matched.row.evidence_in_view,
                "{name}: {} of {}: {worse:#?}",
                oracle.row.evidence_in_view,
                matched.row.evidence_in_view
            );
            assert_eq!(oracle.row.invalid_requests, 0, "{name}");
            for (step, tokens) in oracle.steps.tokens.iter().enumerate() {
                let most = matched.steps.tokens[step].max(least.steps.tokens[step]);
                assert!(*tokens <= most, "{name}, step {step}: {tokens} of {most}");
            }
            n_compared += 1;
            n_above += usize::from(oracle.row.evidence_in_view > matched.row.evidence_in_view);
        };
        for name in ["recent-events", "amortized-forgetting", "conversation-window"] {
            let matched = run(prepared, &*policy(name), settings);
            check(&matched);
            check(&run(prepared, &RandomForgetting::matching(prepared, &matched, 1), settings));
        }
        check(&least);
    });
    assert!(n_above * 10 > n_compared, "{n_above} of {n_compared} comparisons leave the oracle anything to gain");
}

#[test]
fn none_keeps_everything_and_forget_all_keeps_only_the_newest_step() {
    each(|prepared, has_thinking, settings| {
        let none = run(prepared, &*policy("none"), settings).row;
        assert_eq!(none.evidence_in_view, none.evidence_total, "{}", none.trace);
        assert_eq!((none.condensations, none.rereads_exposed), (0, 0), "{}", none.trace);
        let least = run(prepared, &ForgetAll, settings).row;
        // A loop that began with thinking stays as long as its newest step does.
        if !has_thinking {
            assert_eq!(least.evidence_far_in_view, 0, "{}", least.trace);
        }
        for policy in policies().iter().filter(|info| ["hybrid", "craft", "observation-masking"].contains(&info.name)) {
            let row = run(prepared, &*policy.build(&Map::new()).unwrap(), settings).row;
            let parts = [row.evidence_in_view, row.evidence_in_summary, row.evidence_recoverable, row.evidence_lost];
            assert_eq!(parts.iter().sum::<u64>(), none.evidence_total, "{}: {}", row.trace, row.policy);
            assert_eq!(Row { self_carried: 0, ..row.clone() }.evidence_total, none.evidence_total);
            assert_eq!(row.self_carried, none.self_carried, "{}: {}", row.trace, row.policy);
        }
    });
}
