//! Strict loading against what the OpenHands SDK itself accepts and refuses.

use std::fs;

use condenser_traces::openhands_v1::{LoadError, Mode, parse_event};
use serde_json::{Value, json};

use crate::common::shared;

#[test]
fn strict_loading_refuses_exactly_what_the_sdk_refuses() {
    let Some(folder) = shared("conformance/openhands") else { return };
    let mut n_refused = 0;
    for file in ["view", "append", "indices", "messages", "condense", "branch"] {
        for line in fs::read_to_string(folder.join(format!("{file}.jsonl"))).unwrap().lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            // Errors of later stages say where they were raised, or are of another class.
            let refused = case["expect"]["error"] == "ValidationError" && case["expect"].get("at").is_none();
            let loaded: Result<Vec<_>, LoadError> = case["events"]
                .as_array()
                .unwrap()
                .iter()
                .map(|event| parse_event(event.clone(), Mode::Strict))
                .collect();
            assert_eq!(loaded.is_err(), refused, "{file} {}: {:?}", case["id"], loaded.err());
            n_refused += usize::from(refused);
            for event in case["events"].as_array().unwrap() {
                assert_eq!(parse_event(event.clone(), Mode::Lenient).err(), None, "{file} {}", case["id"]);
            }
        }
    }
    assert!(n_refused >= 20, "{n_refused}");
}

#[track_caller]
fn check_refused(event: Value, error: &str) {
    assert_eq!(parse_event(event, Mode::Strict).unwrap_err().to_string(), error);
}

#[test]
fn a_refusal_names_the_kind_and_the_field() {
    check_refused(json!([]), "an event is a JSON object, and this is none");
    check_refused(json!({"id": "a"}), "unknown event kind \"\"");
    check_refused(json!({"id": "a", "kind": "WhistleEvent"}), "unknown event kind \"WhistleEvent\"");
    check_refused(json!({"id": "__root__", "kind": "PauseEvent"}), "the id `__root__` is reserved");
    check_refused(json!({"kind": "PauseEvent"}), "PauseEvent: field `id` is missing");
    check_refused(json!({"id": "a", "kind": "PauseEvent", "mood": 1}), "PauseEvent: there is no field `mood`");
    check_refused(
        json!({"id": "a", "kind": "MessageEvent", "llm_message": {"role": "user"}}),
        "MessageEvent: field `source` is missing",
    );
    check_refused(
        json!({"id": "a", "kind": "PauseEvent", "source": "moon"}),
        "PauseEvent: field `source` must be agent, user, environment or hook",
    );
    check_refused(
        json!({"id": "a", "kind": "Condensation", "llm_response_id": "r", "summary_offset": -1}),
        "Condensation: field `summary_offset` must be an integer that is not negative",
    );
}
