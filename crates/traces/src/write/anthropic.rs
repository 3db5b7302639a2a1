//! Anthropic messages: a list, or a request with what surrounds it.

use condenser::event::{Action, ContentBlock, Event, EventKind, Role};
use condenser::request::Api;
use serde_json::{Map, Value, json};

use super::{Written, is_aside, left_out, parsed, put_content, records, request};
use crate::Trace;

const NAME: &str = "anthropic";

pub(super) fn write(trace: &Trace) -> Written {
    let (value, diagnostics) = match trace.format == NAME {
        true => (stored(&trace.events), Vec::new()),
        false => (request(trace, Api::Anthropic), left_out(trace.events.iter().filter(is_aside), NAME)),
    };
    Written { values: vec![value], is_lines: false, diagnostics }
}

/// The messages as they were stored.
fn stored(events: &[Event]) -> Value {
    let mut file: Option<Map<String, Value>> = None;
    let mut messages = Vec::new();
    for record in records(events) {
        let Some(first) = record.first() else { continue };
        match &first.kind {
            EventKind::Unknown(unknown) if unknown.foreign_kind == "file" => {
                file = unknown.payload.as_object().cloned();
            }
            EventKind::Unknown(unknown) => messages.push(unknown.payload.clone()),
            EventKind::SystemPrompt(prompt) => {
                let file = file.get_or_insert_default();
                let mut foreign = first.foreign.clone();
                put_content(&mut foreign, "system", &prompt.content, part);
                file.extend(foreign.into_map());
                if !prompt.tools.is_empty() {
                    file.insert("tools".to_owned(), Value::from(prompt.tools.as_slice()));
                }
            }
            _ => messages.push(message(record)),
        }
    }
    match file {
        Some(mut file) => {
            // An answer has an id and counts, and stood beside the messages.
            let is_answer = |message: &mut Value| message.get("usage").is_some() && message["role"] == "assistant";
            if !file.contains_key("response")
                && let Some(mut answer) = messages.pop_if(is_answer)
            {
                answer["type"] = Value::from("message");
                file.insert("response".to_owned(), answer);
            }
            file.insert("messages".to_owned(), Value::Array(messages));
            Value::Object(file)
        }
        None => Value::Array(messages),
    }
}

fn message(record: &[Event]) -> Value {
    let Some(first) = record.first() else { return Value::Null };
    let mut message = first.foreign.clone();
    message.shift_remove("block");
    let is_answer = match &first.kind {
        EventKind::Action(_) => true,
        EventKind::Message(message) => message.role == Role::Assistant,
        _ => false,
    };
    message.insert("role".to_owned(), Value::from(if is_answer { "assistant" } else { "user" }));
    match record {
        [Event { kind: EventKind::Message(said), .. }] => put_content(&mut message, "content", &said.content, part),
        _ => drop(message.entry("content").or_insert_with(|| Value::Array(parts(record)))),
    }
    Value::Object(message.into_map())
}

fn parts(record: &[Event]) -> Vec<Value> {
    let mut parts = Vec::new();
    for event in record {
        let mut block = match event.foreign.get("block") {
            Some(Value::Object(block)) => block.clone(),
            _ => Map::new(),
        };
        match &event.kind {
            EventKind::Action(Action { call_id, tool_name, arguments, thought, thinking, .. }) => {
                parts.extend(thinking.iter().chain(thought).map(part));
                let shape = block.shift_remove("input_shape");
                block.insert("type".to_owned(), Value::from("tool_use"));
                block.insert("id".to_owned(), Value::from(call_id.as_str()));
                block.insert("name".to_owned(), Value::from(tool_name.as_str()));
                match shape.as_ref().and_then(Value::as_str) {
                    Some("absent") => {}
                    Some("string") => drop(block.insert("input".to_owned(), Value::from(arguments.as_str()))),
                    _ => drop(block.entry("input").or_insert_with(|| parsed(arguments))),
                }
                parts.push(Value::Object(block));
            }
            EventKind::Observation(observation) => {
                block.insert("type".to_owned(), Value::from("tool_result"));
                block.insert("tool_use_id".to_owned(), Value::from(observation.call_id.as_str()));
                put_content(&mut block, "content", &observation.content, part);
                parts.push(Value::Object(block));
            }
            EventKind::Message(message) => parts.extend(message.content.iter().map(part)),
            _ => {}
        }
    }
    parts
}

fn part(block: &ContentBlock) -> Value {
    let mut part = match block {
        ContentBlock::Text { text, .. } => json!({"type": "text", "text": text}),
        ContentBlock::Thinking { thinking, signature: None } => json!({"type": "thinking", "thinking": thinking}),
        ContentBlock::Thinking { thinking, signature } => {
            json!({"type": "thinking", "thinking": thinking, "signature": signature})
        }
        ContentBlock::RedactedThinking { data } => json!({"type": "redacted_thinking", "data": data}),
        ContentBlock::Image { urls, .. } => {
            let url = urls.first().map(String::as_str).unwrap_or_default();
            match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
                Some((media, data)) => {
                    json!({"type": "image", "source": {"type": "base64", "media_type": media, "data": data}})
                }
                None => json!({"type": "image", "source": {"type": "url", "url": url}}),
            }
        }
        ContentBlock::Other { value } => value.clone(),
        _ => Value::Null,
    };
    if let ContentBlock::Text { cache: true, .. } | ContentBlock::Image { cache: true, .. } = block {
        part["cache_control"] = json!({"type": "ephemeral"});
    }
    part
}
