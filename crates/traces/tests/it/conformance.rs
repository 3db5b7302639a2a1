//! Strict loading against what the OpenHands SDK itself accepts and refuses.

use std::fs;

use condenser::EventKind;
use condenser_traces::openhands_v1::{LoadError, Mode, parse_event};
use serde_json::{Value, json};

use crate::common::{outline, read_one, shared};

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
fn loading_refuses_the_reserved_id_negative_offsets_unknown_fields_and_kinds_and_missing_fields_by_name() {
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

#[test]
fn loading_accepts_plain_or_no_content_and_missing_fields_with_defaults() {
    let message = |content: Value| {
        let mut message = json!({"id": "a", "kind": "MessageEvent", "source": "user", "llm_message": {"role": "user"}});
        if !content.is_null() {
            message["llm_message"]["content"] = content;
        }
        parse_event(message, Mode::Strict).unwrap().kind
    };
    let texts = |kind: EventKind| match kind {
        EventKind::Message(message) => {
            message.content.iter().filter_map(|block| block.as_text().map(str::to_owned)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(texts(message(json!("plain"))), ["plain"]);
    assert_eq!(texts(message(Value::Null)), [""; 0]);
    assert_eq!(texts(message(json!([{"text": "no type"}]))), [""; 0], "kept, and not shown as text");
    let request = parse_event(json!({"id": "a", "kind": "CondensationRequest"}), Mode::Strict).unwrap();
    assert_eq!(request.kind.name(), "condensation_request");
    let record = parse_event(json!({"id": "a", "kind": "Condensation", "llm_response_id": "r"}), Mode::Strict).unwrap();
    assert!(matches!(record.kind, EventKind::Condensation(record) if record.forgotten_event_ids.is_empty()));
}

#[test]
fn loading_a_forgotten_list_writes_it_sorted_and_without_duplicates() {
    let stored =
        json!({"id": "a", "kind": "Condensation", "llm_response_id": "r", "forgotten_event_ids": ["c", "b", "c"]});
    let EventKind::Condensation(record) = parse_event(stored, Mode::Strict).unwrap().kind else { panic!() };
    assert_eq!(serde_json::to_value(record).unwrap()["forgotten_event_ids"], json!(["b", "c"]));
}

#[test]
fn loading_two_events_with_one_id_gives_the_second_an_id_of_its_own_and_says_so() {
    let line = |text: &str| json!({"id": "a", "kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": text}});
    let trace = read_one(format!("{}\n{}\n", line("one"), line("two")));
    assert_eq!(outline(&trace).len(), 2);
    assert_ne!(trace.events[0].id, trace.events[1].id);
    assert_eq!(trace.diagnostics.len(), 1, "{:?}", trace.diagnostics);
}
