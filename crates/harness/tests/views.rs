//! What a saved run keeps of views is what the requests showed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::Path;

use condenser::policy::Policy;
use condenser::profile::ModelProfile;
use condenser::request::Shown;
use condenser::tokens::{CharsPer4, Tokens};
use condenser::view::Rules;
use condenser_harness::{
    ForgetAll, Prepared, Replay, Seen, Settings, Subject, replayed, run, run_observed, run_oracle_observed,
    run_recorded_observed,
};
use condenser_policies::{Extractive, RecentEvents, policies};
use serde_json::Map;

/// The texts that a request shows, entry by entry, and whether each is as stored.
fn shown(seen: &Seen<'_>) -> Vec<(bool, String)> {
    let mut entries: Vec<usize> =
        seen.request.turns.iter().flat_map(|turn| &turn.parts).filter_map(|part| part.entry).collect();
    entries.sort_unstable();
    entries.dedup();
    let entries = entries.into_iter().map(|entry| seen.view.get(entry).unwrap());
    entries
        .map(|entry| {
            let text = Shown::of(entry, seen.bodies).unwrap().text();
            (!entry.is_summary() && entry.rewrite().is_none(), text.chars().take(2_000).collect())
        })
        .collect()
}

#[test]
fn kept_views_are_what_every_request_showed() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces"));
    let profile = ModelProfile {
        name: "test".into(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: None,
        cache: None,
    };
    let summarizer = Extractive::default();
    let mut n_records = 0;
    for name in ["kvlog-recovery.claude-code.jsonl", "ledger-currencies.openhands.jsonl", "next-run.traj"] {
        let traces = condenser_traces::read_path(&folder.join(name), None).unwrap();
        let events = &traces[0].events;
        let prepared =
            Prepared::new(Subject { trace: name, format: "f", task: None, events }, &CharsPer4, Rules::Sound)
                .keep_views();
        let settings = Settings {
            window: Some(Tokens(8_000)),
            reserve: Tokens(1_000),
            profile: &profile,
            summarizer: &summarizer,
            seed: 0,
            recall: true,
        };
        let texts: Vec<String> =
            replayed(events).iter().map(|event| condenser::request::text_of(&event.kind)).collect();
        let mut check = |replay: &Replay, expected: &[Vec<(bool, String)>]| {
            let views = replay.views.as_ref().unwrap();
            let found: Vec<Vec<(bool, String)>> = views
                .shown()
                .map(|entries| {
                    let entry = |entry: i32| match usize::try_from(entry) {
                        Ok(event) => (true, texts[event].chars().take(2_000).collect()),
                        Err(_) => (false, views.texts[(-1 - entry) as usize].text.clone()),
                    };
                    entries.into_iter().map(entry).collect()
                })
                .collect();
            assert!(found == expected, "{name} under {}", replay.row.policy);
            assert_eq!(views.records.iter().map(|record| record.step).collect::<Vec<_>>(), replay.steps.records);
            n_records += views.records.len();
        };
        let built: Vec<Box<dyn Policy>> = policies().iter().map(|info| info.build(&Map::new()).unwrap()).collect();
        for policy in built.iter().map(|policy| &**policy as &dyn Policy).chain([&ForgetAll as &dyn Policy]) {
            let mut expected = Vec::new();
            let replay = run_observed(&prepared, policy, &settings, &mut |seen| expected.push(shown(seen)));
            check(&replay, &expected);
        }
        let mut expected = Vec::new();
        let replay = run_recorded_observed(&prepared, &settings, &mut |seen| expected.push(shown(seen)));
        check(&replay, &expected);
        expected.clear();
        let matched = run(&prepared, &RecentEvents::default(), &settings);
        let replay = run_oracle_observed(&prepared, &matched, &settings, &mut |seen| expected.push(shown(seen)));
        check(&replay, &expected);
    }
    assert!(n_records > 100, "{n_records}");
}
