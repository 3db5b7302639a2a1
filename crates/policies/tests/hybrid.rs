//! `hybrid` as a log grows.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::collections::HashMap;

use ::condenser::*;
use common::*;
use condenser_policies::{Hybrid, HybridSettings, ObservationMasking};

/// Runs a policy before each request of a log that grows by calls. The outcomes that applied.
fn live(policy: &dyn Policy, window: u64, n_calls: usize) -> (Log, Vec<Condensation>) {
    let mut log = Log::script("s u");
    log.window = Some(window);
    let mut records = Vec::new();
    let mut masked: HashMap<EventId, String> = HashMap::new();
    for n in 0..n_calls {
        log.add(&format!("c{n}"));
        log.add(&format!("r{n}*80"));
        if let OutcomeKind::Applied(record) = log.condense(policy, &Scripted::default()).result {
            records.push(*record);
        }
        log.with_state(|state| {
            for entry in state.view.iter().filter(|entry| entry.rewrite().is_some()) {
                let text = state.shown(entry.index()).unwrap().text();
                let before = masked.insert(entry.id().clone(), text.clone());
                assert!(before.is_none_or(|before| before == text), "a mask is put on once");
            }
        });
    }
    (log, records)
}

#[test]
fn one_pass_is_one_record_and_passes_are_rare() {
    let (log, records) = live(&Hybrid::default(), 4_000, 100);
    let (_, masks) = live(&ObservationMasking::default(), 4_000, 100);
    assert!(log.tokens() <= Tokens(4_000 * 4 / 5) + Tokens(200), "{}", log.tokens());
    assert!(!records.is_empty() && records.len() * 4 < masks.len(), "{} and {}", records.len(), masks.len());
    let is_summary = |record: &&Condensation| record.summary.is_some();
    let n_summaries = records.iter().filter(is_summary).count();
    assert!(n_summaries > 0 && n_summaries < records.len(), "{n_summaries} of {}", records.len());
    let first = records.first().unwrap();
    assert!(first.summary.is_none() && !first.rewrites.is_empty(), "masks come first");
    for record in &records {
        let provenance = record.provenance.as_deref().unwrap();
        assert_eq!((provenance.reasons.as_slice(), provenance.fallbacks.len()), (&["tokens".to_owned()][..], 0));
        let after = provenance.tokens_after.unwrap();
        assert!(after <= 2_000, "each brings it down to half of the limit: {after}");
    }
}

#[test]
fn the_prefix_changes_at_one_place_and_all_before_it_stays() {
    let settings = HybridSettings { keep_first: 4, attention_window: 4, polling: 1, ..HybridSettings::default() };
    let mut log = Log::script("s u c1 r1*200 c2 r2*200 c3 r3*200 c4 r4*200 c5 r5*200");
    log.window = Some(1_600);
    let before = log.request();
    let OutcomeKind::Applied(record) = log.condense(&Hybrid::new(settings), &Scripted::default()).result else {
        unreachable!("it is over its trigger")
    };
    assert!(record.summary.is_some() && record.rewrites.len() == 1, "{record:?}");
    let after = log.request();
    let same = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    assert_eq!(Some(same), before.find("answer 3."), "up to the first result that is masked");
    assert_eq!(log.condense(&Hybrid::new(settings), &Scripted::default()).result, OutcomeKind::NothingToDo);
}
