//! A policy that is written outside of the crate works like those within.

mod common;
#[path = "../examples/own_policy.rs"]
mod own_policy;

use ::condenser::OutcomeKind;
use common::*;
use condenser_policies::{configure, policies};
use serde_json::json;

#[test]
fn a_policy_from_outside_has_settings_and_is_a_member_of_pipelines() {
    let mut list = policies();
    list.push(own_policy::info());
    let file = json!({
        "strict": {"policy": "no-repeats", "minimum_characters": 20},
        "both": {"pipeline": ["strict", "observation-masking"]},
    });
    let configured = configure(&list, file.as_object().unwrap()).unwrap();

    let mut log = Log::script("s u c1 r1*50 c2 r2*50 c3 r3*50");
    for at in [5, 7] {
        log.events[at].kind = match log.events[3].kind.clone() {
            ::condenser::EventKind::Observation(answer) => {
                let call_id = format!("call{}", (at - 1) / 2);
                ::condenser::EventKind::Observation(::condenser::event::Observation { call_id, ..answer })
            }
            other => other,
        };
    }
    let outcome = log.condense(&*configured[1], &Scripted::default());
    let OutcomeKind::Applied(record) = outcome.result else { panic!("{outcome:?}") };
    assert_eq!(record.provenance.unwrap().policy, "both");
    assert_eq!(record.rewrites.keys().map(|id| id.as_str()).collect::<Vec<_>>(), ["e5", "e7"]);
    assert_eq!(log.request().matches("[the same as an earlier result]").count(), 2);

    let wrong = json!({"strict": {"policy": "no-repeats", "minimum_character": 20}});
    let error = configure(&list, wrong.as_object().unwrap()).err().unwrap().to_string();
    assert!(error.contains("did you mean `minimum_characters`?"), "{error}");
}
