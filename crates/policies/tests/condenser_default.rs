//! `condenser-default` as a log grows.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod common;

use ::condenser::*;
use common::*;
use condenser_policies::CondenserDefault;

#[test]
fn a_request_that_fits_is_left_alone_and_one_that_does_not_is_halved_at_once() {
    let mut log = Log::script("s u");
    log.window = Some(4_000);
    let mut n_records = 0;
    for n in 0..120 {
        log.add(&format!("c{n}"));
        log.add(&format!("r{n}*80"));
        let before = log.tokens();
        if let OutcomeKind::Applied(_) = log.condense(&CondenserDefault::default(), &Scripted::default()).result {
            n_records += 1;
            assert!(before > Tokens(3_200), "it acted at {before} tokens");
            // Half of the limit, and the line.
            assert!(log.tokens() <= Tokens(2_300), "{} tokens are left", log.tokens());
        }
    }
    // 120 steps of about 120 tokens; each record makes room for about ten.
    assert!((5..=14).contains(&n_records), "{n_records} records");
    let line = log.summary().unwrap();
    assert!(line.starts_with('[') && line.contains(" earlier events left out, among them: [event e"), "{line}");
}

#[test]
fn later_words_of_the_user_stay_and_long_ones_leave() {
    let mut log = Log::script("s u c1 r1*100 u u*600 c2 r2*100 c3 r3*100 u c4 r4*100");
    log.window = Some(1_600);
    let outcome = log.condense(&CondenserDefault::default(), &Scripted::default());
    assert!(matches!(outcome.result, OutcomeKind::Applied(_)), "{}", outcome.explain());
    let shown = log.shown();
    let shown: Vec<&str> = shown.split(' ').collect();
    for (id, stays) in [("0", true), ("1", true), ("4", true), ("5", false), ("10", true), ("12", true), ("2", false)] {
        assert_eq!(shown.contains(&id), stays, "{id} of {shown:?}");
    }
}
