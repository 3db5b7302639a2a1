//! What the test files share.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use condenser::event::{Event, EventId, EventKind, Message, Role, Source};
use condenser_log::{Events, Log, NewSession, ReadError, RuleSet, SessionId};
use serde_json::{Map, Value, json};

pub fn message(id: &str, text: &str) -> Event {
    Event::new(id, Source::User, EventKind::Message(Message::text(Role::User, text)))
}

/// A message with a parent.
pub fn after(parent: &str, id: &str) -> Event {
    Event { parent: Some(parent.into()), ..message(id, id) }
}

pub fn messages(prefix: &str, n: usize) -> Vec<Event> {
    (0..n).map(|i| message(&format!("{prefix}{i}"), &format!("text {i} of {prefix}"))).collect()
}

pub fn session(log: &Log, name: &str) -> SessionId {
    log.create_session(NewSession {
        name: name.to_owned(),
        rules: RuleSet { name: "sound".to_owned(), version: 1 },
        meta: Map::new(),
    })
    .unwrap()
}

pub fn ids(events: Result<Events<'_>, ReadError>) -> String {
    let ids: Vec<String> = events.unwrap().map(|event| event.unwrap().id.to_string()).collect();
    ids.join(" ")
}

pub fn id(text: &str) -> EventId {
    EventId::from(text)
}

/// One event of every kind, with odd text in it.
pub fn every_kind() -> Vec<Event> {
    let odd = "quote \" backslash \\ newline \n nul \u{0} emoji 🙂 separator \u{2028}";
    let events = json!([
        {"schema": 1, "id": "s", "source": "agent", "kind": "system_prompt",
         "content": [{"type": "text", "text": odd, "cache": true}], "tools": [{"z": 1, "a": 1.5e300}]},
        {"schema": 1, "id": "m", "origin": {"record": "7", "part": 0}, "timestamp": "2026-01-01T00:00:00Z",
         "source": "user", "kind": "message", "role": "user",
         "content": [{"type": "image", "urls": ["data:image/png;base64,AAAA"]}, {"type": "other", "value": {"b": null, "a": []}}]},
        {"schema": 1, "id": "a", "source": "agent", "kind": "action", "call_id": "call 1", "tool_name": "shell",
         "arguments": "{broken", "thought": [{"type": "text", "text": odd}],
         "thinking": [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "redacted_thinking", "data": "y"}],
         "response_id": "r1", "usage": {"input_tokens": 3, "output_tokens": 0}},
        {"schema": 1, "id": "o", "source": "environment", "kind": "observation", "call_id": "call 1",
         "tool_name": "shell", "content": [{"type": "text", "text": odd}], "outcome": "error", "interim": true},
        {"schema": 1, "id": "c", "source": "environment", "kind": "condensation", "forgotten_event_ids": ["a", "o"],
         "summary": "", "summary_offset": 1, "rewrites": {"m": {"op": "clear", "text": "gone", "tokens": 2}}, "future": [1]},
        {"schema": 1, "id": "cr", "source": "user", "kind": "condensation_request", "guidance": "keep the names"},
        {"schema": 1, "id": "cf", "source": "environment", "kind": "condensation_failed", "policy": "p",
         "reason": "too small", "tokens_before": 9, "limit": 3},
        {"schema": 1, "id": "u", "source": "user", "kind": "undo", "condensation": "c"},
        {"schema": 1, "id": "p", "source": "user", "kind": "pin", "ids": ["m", "gone"]},
        {"schema": 1, "id": "up", "source": "user", "kind": "unpin", "ids": ["m"]},
        {"schema": 1, "id": "x", "source": "hook", "kind": "unknown", "foreign_kind": "future.widget",
         "payload": {"deep": [[[{"z": 1, "a": -0.0}]]]}, "foreign": {"kept": true}, "mood": "calm"}
    ]);
    let Value::Array(events) = events else { panic!("an array") };
    events.into_iter().map(|event| serde_json::from_value(event).unwrap()).collect()
}
