//! Pi sessions: a header and an entry a line.

use condenser::event::{Action, ContentBlock, Event, EventId, EventKind, Message, Outcome, Role, Usage};
use serde_json::{Map, Value, json};

use super::{Written, left_out, parsed, put_content, records, turns};
use crate::Trace;

const NAME: &str = "pi";

pub(super) fn write(trace: &Trace) -> Written {
    if trace.format == NAME {
        let values = records(&trace.events).map(stored).collect();
        return Written { values, is_lines: true, diagnostics: Vec::new() };
    }
    let mut session = Session { values: Vec::new(), parent: Value::Null, said: Vec::new() };
    let first = trace.events.first();
    let timestamp = first.and_then(|event| event.timestamp.as_deref()).unwrap_or("1970-01-01T00:00:00.000Z");
    let id = trace.session.as_deref().unwrap_or("imported");
    session.values.push(json!({"type": "session", "version": 3, "id": id, "timestamp": timestamp, "cwd": "/"}));
    let mut unsaid = Vec::new();
    for turn in turns(&trace.events) {
        if !session.add(turn) {
            unsaid.extend(turn);
        }
    }
    Written { values: session.values, is_lines: true, diagnostics: left_out(unsaid.into_iter(), NAME) }
}

/// The entry as it was stored.
fn stored(record: &[Event]) -> Value {
    let Some(first) = record.first() else { return Value::Null };
    if let EventKind::Unknown(unknown) = &first.kind {
        return unknown.payload.clone();
    }
    let mut entry = first.foreign.clone();
    entry.shift_remove("block");
    let id = first.origin.as_ref().map_or(first.id.as_str(), |origin| origin.record.as_str());
    // Entries without an id were called after their line.
    if id.strip_prefix("line-").is_none_or(|line| line.parse::<u64>().is_err()) {
        entry.insert("id".to_owned(), Value::from(id));
    }
    entry.extend(first.timestamp.as_ref().map(|timestamp| ("timestamp".to_owned(), Value::from(timestamp.as_str()))));
    match &first.kind {
        EventKind::Condensation(record) => {
            if let Some(summary) = &record.summary {
                entry.insert("summary".to_owned(), Value::from(summary.as_str()));
            }
        }
        EventKind::Message(message) if !entry.contains_key("message") => {
            if !entry.contains_key("summary") {
                put_content(&mut entry, "content", &message.content, part);
            }
        }
        _ => {
            if let Some(Value::Object(message)) = entry.get_mut("message") {
                put_message(message, record);
            }
        }
    }
    Value::Object(entry.into_map())
}

fn put_message(message: &mut Map<String, Value>, record: &[Event]) {
    let Some(first) = record.first() else { return };
    match &first.kind {
        EventKind::SystemPrompt(prompt) => put_content(message, "content", &prompt.content, part),
        EventKind::Observation(observation) => {
            put_content(message, "content", &observation.content, part);
            message.insert("toolCallId".to_owned(), Value::from(observation.call_id.as_str()));
            message.insert("toolName".to_owned(), Value::from(observation.tool_name.as_str()));
        }
        EventKind::Message(said) if said.role != Role::Assistant => {
            if !message.contains_key("command") && !message.contains_key("summary") {
                put_content(message, "content", &said.content, part);
            }
        }
        _ => {
            match record {
                [Event { kind: EventKind::Message(said), .. }] => put_content(message, "content", &said.content, part),
                _ => {
                    if !message.contains_key("content") {
                        message.insert("content".to_owned(), Value::Array(parts(record)));
                    }
                }
            }
            put_usage(message, first.usage.as_ref());
        }
    }
}

fn put_usage(message: &mut Map<String, Value>, usage: Option<&Usage>) {
    let Some(usage) = usage else { return };
    let counters = [
        ("input", usage.input_tokens),
        ("output", usage.output_tokens),
        ("cacheRead", usage.cache_read_tokens),
        ("cacheWrite", usage.cache_write_tokens),
    ];
    let stored = message.entry("usage").or_insert_with(|| Value::Object(Map::new()));
    if let Some(stored) = stored.as_object_mut() {
        stored.extend(counters.into_iter().filter_map(|(key, n)| Some((key.to_owned(), Value::from(n?)))));
    }
}

/// The blocks of an answer.
fn parts(record: &[Event]) -> Vec<Value> {
    let mut parts = Vec::new();
    for event in record {
        match &event.kind {
            EventKind::Action(Action { call_id, tool_name, arguments, thought, thinking, .. }) => {
                parts.extend(thinking.iter().chain(thought).map(part));
                let mut call = match event.foreign.get("block") {
                    Some(Value::Object(call)) => call.clone(),
                    _ => Map::new(),
                };
                call.insert("type".to_owned(), Value::from("toolCall"));
                call.insert("id".to_owned(), Value::from(call_id.as_str()));
                call.insert("name".to_owned(), Value::from(tool_name.as_str()));
                call.insert("arguments".to_owned(), parsed(arguments));
                parts.push(Value::Object(call));
            }
            EventKind::Message(message) => parts.extend(message.content.iter().map(part)),
            _ => {}
        }
    }
    parts
}

fn part(block: &ContentBlock) -> Value {
    match block {
        ContentBlock::Text { text, .. } => json!({"type": "text", "text": text}),
        ContentBlock::Thinking { thinking, signature } => {
            let mut part = json!({"type": "thinking", "thinking": thinking});
            if let Some(signature) = signature {
                part["thinkingSignature"] = Value::from(signature.as_str());
            }
            part
        }
        ContentBlock::RedactedThinking { data } => json!({"type": "redacted_thinking", "data": data}),
        ContentBlock::Image { urls, .. } => {
            let url = urls.first().map(String::as_str).unwrap_or_default();
            let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            match inline {
                Some((media, data)) => json!({"type": "image", "data": data, "mimeType": media}),
                None => json!({"type": "text", "text": format!("[image: {url}]")}),
            }
        }
        ContentBlock::Other { value } => value.clone(),
        _ => Value::Null,
    }
}

/// A session made of another format's events.
struct Session {
    values: Vec<Value>,
    parent: Value,
    /// The events so far, and the entries they are in.
    said: Vec<(EventId, String)>,
}

impl Session {
    /// Adds what a turn says; false where Pi has no words for it.
    fn add(&mut self, turn: &[Event]) -> bool {
        let Some(first) = turn.first() else { return true };
        let message = match &first.kind {
            EventKind::SystemPrompt(prompt) => {
                json!({"role": "system", "content": prompt.content.iter().map(part).collect::<Vec<_>>()})
            }
            EventKind::Observation(observation) => json!({
                "role": "toolResult", "toolCallId": observation.call_id, "toolName": observation.tool_name,
                "content": observation.content.iter().map(part).collect::<Vec<_>>(),
                "isError": observation.outcome != Outcome::Ok,
            }),
            EventKind::Message(Message { role, content, .. }) if *role != Role::Assistant => {
                json!({"role": "user", "content": content.iter().map(part).collect::<Vec<_>>()})
            }
            EventKind::Message(_) | EventKind::Action(_) => {
                let calls = turn.iter().any(|event| matches!(event.kind, EventKind::Action(_)));
                let model = first.usage.as_ref().and_then(|usage| usage.model.as_deref()).unwrap_or("unknown");
                let mut message = Map::from_iter([
                    ("role".to_owned(), Value::from("assistant")),
                    ("content".to_owned(), Value::Array(parts(turn))),
                    ("api".to_owned(), Value::from("unknown")),
                    ("provider".to_owned(), Value::from("unknown")),
                    ("model".to_owned(), Value::from(model)),
                    ("stopReason".to_owned(), Value::from(if calls { "toolUse" } else { "stop" })),
                ]);
                put_usage(&mut message, first.usage.as_ref());
                Value::Object(message)
            }
            EventKind::Condensation(record) if record.summary.is_some() && record.rewrites.is_empty() => {
                // Pi keeps everything from one entry on: the one after the last that is forgotten.
                let is_forgotten = |(id, _): &&(EventId, String)| record.forgotten_event_ids.contains(id);
                let n_later = self.said.iter().rev().take_while(|said| !is_forgotten(said)).count();
                let kept = self.said.get(self.said.len() - n_later).map_or("", |(_, entry)| entry.as_str());
                let entry = json!({
                    "type": "compaction", "summary": record.summary, "firstKeptEntryId": kept, "tokensBefore": 0,
                });
                self.push(turn, entry);
                return true;
            }
            _ => return false,
        };
        self.push(turn, json!({"type": "message", "message": message}));
        true
    }

    fn push(&mut self, turn: &[Event], mut entry: Value) {
        let Some(event) = turn.first() else { return };
        let id = event.id.as_str();
        entry["id"] = Value::from(id);
        entry["parentId"] = std::mem::replace(&mut self.parent, Value::from(id));
        entry["timestamp"] = Value::from(event.timestamp.as_deref().unwrap_or("1970-01-01T00:00:00.000Z"));
        self.said.extend(turn.iter().map(|event| (event.id.clone(), id.to_owned())));
        self.values.push(entry);
    }
}
