//! Headers read from the text of OpenHands events.

use std::fs;
use std::path::Path;

use condenser::{EventHeader, Names};
use condenser_traces::openhands_v1::{Mode, StoredEvent, parse_event};
use serde_json::{Value, json};

use crate::common::shared;

/// The header read from text is the header of the whole event.
fn check(text: &str) -> bool {
    let whole = serde_json::from_str(text).ok().and_then(|value: Value| parse_event(value, Mode::Lenient).ok());
    let stored = StoredEvent::read(text).ok();
    let (Some(whole), Some(stored)) = (&whole, &stored) else {
        assert_eq!(whole.is_some(), stored.is_some(), "{text}");
        return false;
    };
    let (mut names, mut twin) = (Names::default(), Names::default());
    assert_eq!(format!("{:?}", names.header(stored)), format!("{:?}", twin.header(whole)), "{text}");
    assert_eq!((stored.id(), stored.call_id()), (whole.id(), whole.call_id()), "{text}");
    assert_eq!(stored.response_id(), whole.response_id(), "{text}");
    assert_eq!(stored.condensation(), whole.condensation(), "{text}");
    assert_eq!(stored.event(Mode::Lenient).ok().as_ref(), Some(whole), "{text}");
    true
}

#[test]
fn a_header_from_text_is_that_of_the_whole_event_in_usual_and_odd_shapes() {
    let kinds = [
        "SystemPromptEvent",
        "MessageEvent",
        "ActionEvent",
        "ObservationEvent",
        "UserRejectObservation",
        "AgentErrorEvent",
        "Condensation",
        "CondensationRequest",
        "CondensationSummaryEvent",
        "PauseEvent",
        "NewEvent",
    ];
    let odd = [json!(null), json!("text"), json!("\u{e9}\n"), json!(7), json!(-1), json!([]), json!(["a"]), json!({})];
    let fields = [
        "id",
        "tool_call_id",
        "llm_response_id",
        "thinking_blocks",
        "tool_call",
        "llm_message",
        "forgotten_event_ids",
        "summary",
        "summary_offset",
    ];
    let mut read = 0;
    for kind in kinds {
        let usual = json!({
            "id": "e", "kind": kind, "tool_call_id": "c", "llm_response_id": "r", "tool_call": {"id": "d"},
            "thinking_blocks": [{"type": "thinking", "thinking": "t"}], "llm_message": {"role": "user", "content": []},
            "forgotten_event_ids": ["a", "b\"", "a"], "summary": "s\n", "summary_offset": 3,
        });
        assert!(check(&usual.to_string()));
        for field in fields {
            for value in &odd {
                let mut event = usual.clone();
                event[field] = value.clone();
                read += usize::from(check(&event.to_string()));
            }
            let mut event = usual.clone();
            event.as_object_mut().unwrap().remove(field);
            read += usize::from(check(&event.to_string()));
        }
    }
    assert!(read > 800, "{read}");
    for text in ["", "{", "[]", "7", r#"{"id":"a","id":"b","kind":"PauseEvent"}"#, r#"{"kind":"PauseEvent"}"#] {
        check(text);
    }
}

#[test]
fn a_header_from_text_is_that_of_the_whole_event_in_recorded_files() {
    let folders =
        [Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces")), shared("traces/openhands-v1")];
    let mut lines = 0;
    for folder in folders.into_iter().flatten() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let files = if path.is_dir() {
                fs::read_dir(path.join("events")).into_iter().flatten().map(|file| file.unwrap().path()).collect()
            } else {
                vec![path]
            };
            for file in
                files.iter().filter(|file| file.extension().is_some_and(|name| name == "jsonl" || name == "json"))
            {
                let text = fs::read_to_string(file).unwrap();
                let whole = serde_json::from_str::<Value>(&text).is_ok();
                let texts: Vec<&str> = if whole { vec![&text] } else { text.lines().collect() };
                lines += texts.into_iter().filter(|text| check(text)).count();
            }
        }
    }
    assert!(lines > 0);
}
