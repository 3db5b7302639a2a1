//! OpenHands events: one JSON object a line, or benchmark rows.

use std::collections::HashMap;

use condenser::condenser::digest;
use condenser::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Outcome, Role, Source};
use condenser::request::ToolSchema;
use serde_json::{Map, Value, json};

use super::{WriteError, Written, left_out, put_content};
use crate::{Diagnostic, Trace};

const NAME: &str = "openhands-v1";

pub(super) fn write(traces: &[Trace]) -> Result<Written, WriteError> {
    let mut diagnostics = Vec::new();
    let values = match traces {
        [trace] if trace.format == NAME && row(&trace.events).is_none() => trace.events.iter().map(stored).collect(),
        [trace] if trace.format != NAME => {
            let (values, unsaid) = made(&trace.events);
            diagnostics = left_out(unsaid.into_iter(), NAME);
            let n_others = trace.events.iter().filter(|event| !is_store_id(event.id.as_str())).count();
            if n_others > 0 {
                let what = "ids are none that the SDK's store takes; each gave way to one made from it";
                diagnostics.push(Diagnostic::new("ids", format!("{n_others} {what}")));
            }
            values
        }
        traces if traces.iter().all(|trace| trace.format == NAME) => {
            traces.iter().filter_map(|trace| row(&trace.events)).collect()
        }
        _ => return Err(WriteError::OneTrace { format: NAME, n: traces.len() }),
    };
    Ok(Written { values, is_lines: true, diagnostics })
}

/// The benchmark row that a trace came from.
fn row(events: &[Event]) -> Option<Value> {
    let (first, mut rest) = events.split_first()?;
    let EventKind::Unknown(unknown) = &first.kind else { return None };
    let mut row = unknown.payload.as_object().filter(|_| unknown.foreign_kind == "row")?.clone();
    if let Some((Event { kind: EventKind::Message(message), origin: Some(origin), .. }, history)) = rest.split_first()
        && origin.record == "instruction"
    {
        row.insert("instruction".to_owned(), Value::from(super::text_of(&message.content)));
        rest = history;
    }
    row.insert("history".to_owned(), rest.iter().map(stored).collect());
    Some(Value::Object(row))
}

/// An event as it was stored.
fn stored(event: &Event) -> Value {
    let mut map = event.foreign.clone();
    let mut text = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            map.insert(key.to_owned(), Value::from(value));
        }
    };
    text("id", Some(event.origin.as_ref().map_or(event.id.as_str(), |origin| origin.record.as_str())));
    text("timestamp", event.timestamp.as_deref());
    text("parent_id", event.parent.as_ref().map(condenser::EventId::as_str));
    map.entry("source").or_insert_with(|| source(event.source));
    match &event.kind {
        EventKind::SystemPrompt(prompt) => {
            put_content(&mut map, "system_prompt", &prompt.content, part);
            put_content(&mut map, "dynamic_context", &prompt.dynamic_context, part);
            map.insert("tools".to_owned(), Value::from(prompt.tools.as_slice()));
        }
        EventKind::Message(message) if map.get("kind").is_some_and(|kind| kind == "CondensationSummaryEvent") => {
            map.insert("summary".to_owned(), Value::from(super::text_of(&message.content)));
        }
        EventKind::Message(message) => put_message(&mut map, message),
        EventKind::Action(action) => put_action(&mut map, action),
        EventKind::Observation(observation) => put_observation(&mut map, observation),
        EventKind::Condensation(record) => {
            let stored = map.shift_remove("forgotten_summary_id");
            let mut ids: Vec<Value> = record.forgotten_event_ids.iter().map(|id| Value::from(id.as_str())).collect();
            if let Some(stored) = stored {
                // It named the summary by an id that no event has.
                let named = ids.iter().position(|id| id.as_str().is_some_and(|id| id.ends_with("-summary")));
                if let Some(named) = named.and_then(|named| ids.get_mut(named)) {
                    *named = stored;
                }
            }
            map.insert("forgotten_event_ids".to_owned(), Value::Array(ids));
            let summary = record.summary.as_deref().map(Value::from);
            map.extend(summary.map(|summary| ("summary".to_owned(), summary)));
            map.extend(record.summary_offset.map(|offset| ("summary_offset".to_owned(), Value::from(offset))));
            let response = record.llm_response_id.as_deref().map(Value::from);
            map.extend(response.map(|response| ("llm_response_id".to_owned(), response)));
        }
        EventKind::Unknown(unknown) => {
            if let Value::Object(payload) = &unknown.payload {
                map.extend(payload.clone());
            }
        }
        _ => {}
    }
    Value::Object(map.into_map())
}

fn source(source: Source) -> Value {
    serde_json::to_value(source).unwrap_or_default()
}

fn put_message(map: &mut Map<String, Value>, message: &Message) {
    let mut inner = match map.shift_remove("llm_message") {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    };
    let (thinking, said): (Vec<_>, Vec<_>) = message.content.iter().cloned().partition(ContentBlock::is_thinking);
    inner.insert("role".to_owned(), serde_json::to_value(message.role).unwrap_or_default());
    put_content(&mut inner, "thinking_blocks", &thinking, part);
    put_content(&mut inner, "content", &said, part);
    let texts =
        [("name", &message.name), ("tool_call_id", &message.call_id), ("reasoning_content", &message.reasoning)];
    inner.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::from(text.as_deref()?)))));
    if let Some(calls) = &message.tool_calls {
        let rests = match inner.shift_remove("tool_calls") {
            Some(Value::Array(rests)) => rests,
            _ => Vec::new(),
        };
        let calls = calls.iter().enumerate().map(|(at, call)| {
            let rest = rests.get(at).and_then(Value::as_object).cloned().unwrap_or_default();
            put_call(rest, &call.id, &call.name, &call.arguments)
        });
        inner.insert("tool_calls".to_owned(), calls.collect());
    }
    map.insert("llm_message".to_owned(), Value::Object(inner));
    let response = message.response_id.as_deref().map(Value::from);
    map.extend(response.map(|response| ("llm_response_id".to_owned(), response)));
    put_content(map, "extended_content", &message.extended_content, part);
}

/// A call as it was stored, flat or with its function inside.
fn put_call(mut call: Map<String, Value>, id: &str, name: &str, arguments: &str) -> Value {
    call.entry("id").or_insert_with(|| Value::from(id));
    let inner = match call.get_mut("function") {
        Some(Value::Object(function)) => function,
        _ => &mut call,
    };
    inner.entry("name").or_insert_with(|| Value::from(name));
    inner.entry("arguments").or_insert_with(|| Value::from(arguments));
    Value::Object(call)
}

fn put_action(map: &mut Map<String, Value>, action: &Action) {
    put_content(map, "thought", &action.thought, part);
    put_content(map, "thinking_blocks", &action.thinking, part);
    let is_absent = map.shift_remove("tool_call_shape").is_some();
    if !is_absent {
        let rest = match map.shift_remove("tool_call") {
            Some(Value::Object(call)) => call,
            _ => Map::new(),
        };
        let call = put_call(rest, &action.call_id, &action.tool_name, &action.arguments);
        map.insert("tool_call".to_owned(), call);
    }
    let texts = [
        ("tool_call_id", Some(action.call_id.as_str())),
        ("tool_name", Some(action.tool_name.as_str())),
        ("reasoning_content", action.reasoning.as_deref()),
        ("llm_response_id", action.response_id.as_deref()),
    ];
    map.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), Value::from(text?)))));
}

fn put_observation(map: &mut Map<String, Value>, observation: &Observation) {
    map.insert("tool_call_id".to_owned(), Value::from(observation.call_id.as_str()));
    map.insert("tool_name".to_owned(), Value::from(observation.tool_name.as_str()));
    put_content(map, "extended_content", &observation.extended_content, part);
    let said = Value::from(super::text_of(&observation.content));
    let is_raw = map.shift_remove("content_from_message").is_some();
    match map.get("kind").and_then(Value::as_str) {
        Some("AgentErrorEvent") => drop(map.insert("error".to_owned(), said)),
        Some("UserRejectObservation") => drop(map.insert("rejection_reason".to_owned(), said)),
        _ if is_raw => {}
        _ => {
            let inner = map.entry("observation").or_insert_with(|| json!({}));
            let Some(inner) = inner.as_object_mut() else { return };
            match inner.shift_remove("content_from") {
                Some(Value::Array(fields)) => {
                    for (field, block) in fields.iter().zip(&observation.content) {
                        if let (Some(field), Some(text)) = (field.as_str(), block.as_text()) {
                            inner.insert(field.to_owned(), Value::from(text));
                        }
                    }
                }
                _ => put_content(inner, "content", &observation.content, part),
            }
        }
    }
}

fn part(block: &ContentBlock) -> Value {
    match block {
        ContentBlock::Text { text, cache } => json!({"type": "text", "text": text, "cache_prompt": cache}),
        ContentBlock::Image { urls, cache } => json!({"type": "image", "image_urls": urls, "cache_prompt": cache}),
        ContentBlock::Thinking { thinking, signature } => {
            json!({"type": "thinking", "thinking": thinking, "signature": signature})
        }
        ContentBlock::RedactedThinking { data } => json!({"type": "redacted_thinking", "data": data}),
        ContentBlock::Other { value } => value.clone(),
        _ => Value::Null,
    }
}

/// The events of another format in the shapes that the SDK accepts, and those it has no words for.
fn made(events: &[Event]) -> (Vec<Value>, Vec<&Event>) {
    let mut actions: HashMap<&str, String> = HashMap::new();
    let (mut values, mut unsaid) = (Vec::new(), Vec::new());
    for event in events {
        let id = store_id(event.id.as_str());
        let (mut map, from) = match &event.kind {
            EventKind::SystemPrompt(prompt) => {
                let text = said(&super::text_of(&prompt.content));
                let tools: Vec<Value> = prompt.tools.iter().map(tool).collect();
                (json!({"kind": "SystemPromptEvent", "system_prompt": text, "tools": tools}), Source::Agent)
            }
            EventKind::Message(message) => {
                let role = if message.role == Role::Assistant { "assistant" } else { "user" };
                let (thinking, rest): (Vec<_>, Vec<_>) = message.content.iter().partition(|block| block.is_thinking());
                let mut inner = json!({"role": role, "content": parts(&rest), "thinking_blocks": parts(&thinking)});
                if let Some(reasoning) = &message.reasoning {
                    inner["reasoning_content"] = Value::from(reasoning.as_str());
                }
                let mut map = json!({"kind": "MessageEvent", "llm_message": inner});
                if let Some(response) = &message.response_id {
                    map["llm_response_id"] = Value::from(response.as_str());
                }
                // The SDK takes the source for the speaker.
                (map, if role == "assistant" { Source::Agent } else { Source::User })
            }
            EventKind::Action(action) => {
                actions.insert(&action.call_id, id.clone());
                let thought: Vec<Value> = action.thought.iter().filter_map(ContentBlock::as_text).map(said).collect();
                let mut map = json!({
                    "kind": "ActionEvent", "thought": thought, "action": null,
                    "thinking_blocks": parts(&action.thinking.iter().collect::<Vec<_>>()),
                    "tool_name": action.tool_name, "tool_call_id": action.call_id,
                    "tool_call": {"id": action.call_id, "name": action.tool_name, "arguments": action.arguments,
                        "origin": "completion"},
                    "llm_response_id": action.response_id.as_deref().unwrap_or(&id),
                });
                if let Some(reasoning) = &action.reasoning {
                    map["reasoning_content"] = Value::from(reasoning.as_str());
                }
                (map, Source::Agent)
            }
            EventKind::Observation(observation) => {
                let Some(action) = actions.get(observation.call_id.as_str()) else {
                    unsaid.push(event);
                    continue;
                };
                let mut map = json!({"tool_name": observation.tool_name, "tool_call_id": observation.call_id, "action_id": action});
                if observation.outcome == Outcome::Rejected {
                    map["kind"] = Value::from("UserRejectObservation");
                    map["rejection_reason"] = Value::from(super::text_of(&observation.content));
                } else {
                    map["kind"] = Value::from("ObservationEvent");
                    map["observation"] = json!({
                        "kind": "MCPToolObservation", "tool_name": observation.tool_name,
                        "content": parts(&observation.content.iter().collect::<Vec<_>>()),
                        "is_error": observation.outcome == Outcome::Error,
                    });
                }
                (map, Source::Environment)
            }
            EventKind::Condensation(record) if record.rewrites.is_empty() => {
                let forgotten: Vec<String> =
                    record.forgotten_event_ids.iter().map(|id| store_id(id.as_str())).collect();
                let mut map = json!({
                    "kind": "Condensation", "forgotten_event_ids": forgotten,
                    "llm_response_id": record.llm_response_id.as_deref().unwrap_or(&id),
                });
                if let Some((summary, offset)) = record.shown_summary() {
                    (map["summary"], map["summary_offset"]) = (Value::from(summary), Value::from(offset));
                }
                (map, Source::Environment)
            }
            EventKind::CondensationRequest(_) => (json!({"kind": "CondensationRequest"}), Source::Environment),
            _ => {
                unsaid.push(event);
                continue;
            }
        };
        map["id"] = Value::from(id);
        map["timestamp"] = Value::from(event.timestamp.as_deref().unwrap_or("1970-01-01T00:00:00"));
        map["source"] = source(from);
        values.push(map);
    }
    (values, unsaid)
}

/// The SDK names a file after each event and finds only names of these characters again.
fn is_store_id(id: &str) -> bool {
    id.len() >= 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// The id, or one made from it that the SDK's store takes. A summary's keeps naming its condensation.
fn store_id(id: &str) -> String {
    if is_store_id(id) {
        return id.to_owned();
    }
    if let Some(condensation) = id.strip_suffix("-summary") {
        return format!("{}-summary", store_id(condensation));
    }
    let hash = digest([id]);
    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)].map(|(start, end)| &hash[start..end]);
    parts.join("-")
}

/// A tool that the SDK did not make itself: of its kinds, the one for tools that are known by their schema alone.
fn tool(schema: &Value) -> Value {
    let ToolSchema { name, description, parameters } = ToolSchema::of(schema);
    let parameters = parameters.cloned().unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    let description = description.unwrap_or_default();
    json!({
        "kind": "MCPToolDefinition", "description": description,
        "action_type": "MCPToolAction", "observation_type": "MCPToolObservation",
        "mcp_tool": {"name": name, "description": description, "inputSchema": parameters},
    })
}

fn said(text: &str) -> Value {
    part(&ContentBlock::text(text))
}

/// Blocks that the SDK has a type for; any other becomes text.
fn parts(blocks: &[&ContentBlock]) -> Vec<Value> {
    let to_part = |block: &&ContentBlock| match block {
        ContentBlock::Other { value } => said(&value.to_string()),
        block => part(block),
    };
    blocks.iter().map(to_part).collect()
}
