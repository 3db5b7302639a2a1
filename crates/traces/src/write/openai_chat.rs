//! Chat messages: a list; with what surrounded them, a log; several conversations, a row a line.

use condenser::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Role, Unknown};
use condenser::request::Api;
use serde_json::{Map, Value, json};

use super::{Written, is_aside, left_out, put_content, records, request};
use crate::Trace;

const NAME: &str = "openai-chat";

pub(super) fn write(traces: &[Trace]) -> Written {
    let mut diagnostics = Vec::new();
    let mut values: Vec<Value> = traces
        .iter()
        .map(|trace| match trace.format == NAME {
            true => stored(&trace.events),
            false => {
                diagnostics.extend(left_out(trace.events.iter().filter(is_aside), NAME));
                request(trace, Api::OpenAiChat)
            }
        })
        .collect();
    if traces.len() > 1 {
        for value in &mut values {
            if value.is_array() {
                *value = json!({"messages": value.take()});
            }
        }
    }
    Written { values, is_lines: traces.len() != 1, diagnostics }
}

/// The conversation as it was stored.
fn stored(events: &[Event]) -> Value {
    let (lead, rest) = match events.split_first() {
        Some((Event { kind: EventKind::Unknown(row), foreign, .. }, rest)) if row.foreign_kind == "row" => {
            (Some((row, foreign)), rest)
        }
        _ => (None, events),
    };
    let mut tools: &[Value] = &[];
    let mut messages = Vec::new();
    for record in records(rest) {
        if let [Event { kind: EventKind::SystemPrompt(prompt), .. }] = record {
            tools = &prompt.tools;
            // The tools alone are no message.
            if record[0].origin.as_ref().is_some_and(|origin| origin.record == "tools") {
                continue;
            }
        }
        messages.push(message(record));
    }
    let Some((Unknown { payload, .. }, shape)) = lead else { return Value::Array(messages) };
    let mut row = payload.as_object().cloned().unwrap_or_default();
    let text = |key: &str| shape.get(key).and_then(Value::as_str);
    if text("answer").is_some()
        && let Some(answer) = messages.pop()
    {
        put_answer(&mut row, answer);
    }
    let encode = |value: Value, shape_key: &str| match text(shape_key) {
        Some("string") => Value::from(value.to_string()),
        _ => value,
    };
    if let Some(key) = text("tools_key") {
        row.insert(key.to_owned(), encode(Value::from(tools), "tools_shape"));
    }
    row.insert(text("messages_key").unwrap_or("messages").to_owned(), encode(Value::Array(messages), "messages_shape"));
    Value::Object(row)
}

fn put_answer(row: &mut Map<String, Value>, answer: Value) -> Option<()> {
    let response = match row.get_mut("response") {
        Some(Value::Object(response)) => response,
        _ => row,
    };
    let choice = response.get_mut("choices")?.as_array_mut()?.first_mut()?.as_object_mut()?;
    choice.insert("message".to_owned(), answer);
    Some(())
}

fn message(record: &[Event]) -> Value {
    let Some(first) = record.first() else { return Value::Null };
    let mut map = first.foreign.clone();
    let role = match &first.kind {
        EventKind::SystemPrompt(prompt) => {
            put(&mut map, &prompt.content);
            "system"
        }
        EventKind::Message(message) => {
            put(&mut map, &message.content);
            let Message { role, name, reasoning, .. } = message;
            map.extend(name.as_ref().map(|name| ("name".to_owned(), Value::from(name.as_str()))));
            put_reasoning(&mut map, reasoning.as_deref());
            match role {
                Role::Assistant => "assistant",
                Role::System => "system",
                _ => "user",
            }
        }
        EventKind::Action(action) => {
            put(&mut map, &action.thought);
            put_reasoning(&mut map, action.reasoning.as_deref());
            put_calls(&mut map, record);
            "assistant"
        }
        EventKind::Observation(observation) => {
            put_result(&mut map, observation);
            "tool"
        }
        EventKind::Unknown(unknown) => return unknown.payload.clone(),
        _ => return Value::Null,
    };
    map.entry("role").or_insert_with(|| Value::from(role));
    Value::Object(map.into_map())
}

/// Content is text as a rule.
fn put(map: &mut Map<String, Value>, blocks: &[ContentBlock]) {
    let is_list = map.shift_remove("content_shape").is_some();
    let said: Vec<ContentBlock> = blocks.iter().filter(|block| !block.is_thinking()).cloned().collect();
    if is_list {
        let key = if map.get("content").is_some_and(Value::is_null) { "content_parts" } else { "content" };
        put_content(map, key, &said, part);
    } else if let [ContentBlock::Text { text, .. }] = said.as_slice() {
        map.entry("content").or_insert_with(|| Value::from(text.as_str()));
    }
}

fn put_reasoning(map: &mut Map<String, Value>, reasoning: Option<&str>) {
    let key = map.shift_remove("reasoning_key");
    let key = key.as_ref().and_then(Value::as_str).unwrap_or("reasoning_content");
    map.extend(reasoning.map(|reasoning| (key.to_owned(), Value::from(reasoning))));
}

fn put_calls(map: &mut Map<String, Value>, record: &[Event]) {
    let mut calls = Vec::new();
    for event in record {
        let EventKind::Action(Action { call_id, tool_name, arguments, .. }) = &event.kind else { continue };
        let mut call = match event.foreign.get("tool_call") {
            Some(Value::Object(call)) => call.clone(),
            _ => Map::new(),
        };
        if !event.foreign.contains_key("made_up_call_id") {
            call.insert("id".to_owned(), Value::from(call_id.as_str()));
        }
        let function = match call.get_mut("function") {
            Some(Value::Object(function)) => function,
            _ => &mut call,
        };
        function.entry("name").or_insert_with(|| Value::from(tool_name.as_str()));
        function.entry("arguments").or_insert_with(|| Value::from(arguments.as_str()));
        calls.push(Value::Object(call));
    }
    map.shift_remove("tool_call");
    map.shift_remove("made_up_call_id");
    match map.shift_remove("call_shape") {
        Some(_) => {
            let function = calls.pop().and_then(|mut call| call.as_object_mut()?.shift_remove("function"));
            map.insert("function_call".to_owned(), function.unwrap_or_default());
        }
        None => drop(map.insert("tool_calls".to_owned(), Value::Array(calls))),
    }
}

fn put_result(map: &mut Map<String, Value>, observation: &Observation) {
    put(map, &observation.content);
    if map.shift_remove("made_up_call_id").is_none() {
        map.insert("tool_call_id".to_owned(), Value::from(observation.call_id.as_str()));
    }
    if map.shift_remove("name_from_call").is_none() {
        map.insert("name".to_owned(), Value::from(observation.tool_name.as_str()));
    }
}

fn part(block: &ContentBlock) -> Value {
    let mut part = match block {
        ContentBlock::Text { text, .. } => json!({"type": "text", "text": text}),
        ContentBlock::Image { urls, .. } => json!({"type": "image_url", "image_url": {"url": urls.first()}}),
        ContentBlock::Other { value } => value.clone(),
        _ => Value::Null,
    };
    if let ContentBlock::Text { cache: true, .. } | ContentBlock::Image { cache: true, .. } = block {
        part["cache_control"] = json!({"type": "ephemeral"});
    }
    part
}
