//! ATIF trajectories: one object with steps, or a list of such.

use condenser::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Role, Usage};
use serde_json::{Map, Value, json};

use super::{Written, left_out, parsed, put_content, records, text_of};
use crate::{Diagnostic, Trace};

const NAME: &str = "atif";

pub(super) fn write(traces: &[Trace]) -> Written {
    let mut diagnostics = Vec::new();
    let mut values: Vec<Value> = traces
        .iter()
        .map(|trace| match trace.format == NAME {
            true => stored(&trace.events),
            false => made(trace, &mut diagnostics),
        })
        .collect();
    if values.len() != 1 {
        values = vec![Value::Array(values)];
    }
    Written { values, is_lines: false, diagnostics }
}

/// The trajectory as it was stored.
fn stored(events: &[Event]) -> Value {
    let mut file = Map::new();
    let mut tools: &[Value] = &[];
    let mut steps = Vec::new();
    for record in records(events) {
        let Some(first) = record.first() else { continue };
        match &first.kind {
            EventKind::Unknown(unknown) if unknown.foreign_kind == "file" => {
                file = unknown.payload.as_object().cloned().unwrap_or_default();
                continue;
            }
            EventKind::SystemPrompt(prompt) if !prompt.tools.is_empty() => tools = &prompt.tools,
            _ => {}
        }
        if first.origin.as_ref().is_none_or(|origin| origin.record != "tools") {
            steps.push(step(record));
        }
    }
    if let (false, Some(Value::Object(agent))) = (tools.is_empty(), file.get_mut("agent")) {
        agent.insert("tool_definitions".to_owned(), Value::from(tools));
    }
    file.insert("steps".to_owned(), Value::Array(steps));
    Value::Object(file)
}

fn step(record: &[Event]) -> Value {
    let Some(first) = record.first() else { return Value::Null };
    let mut step = first.foreign.clone();
    step.shift_remove("call");
    let source = match &first.kind {
        EventKind::Unknown(unknown) if unknown.foreign_kind == "step" => return unknown.payload.clone(),
        EventKind::Action(action) => {
            put_answer(&mut step, &action.thought, action.reasoning.as_deref());
            "agent"
        }
        EventKind::Message(Message { role: Role::Assistant, content, reasoning, .. }) => {
            put_answer(&mut step, content, reasoning.as_deref());
            "agent"
        }
        EventKind::Message(Message { role, content, .. }) => {
            put_content(&mut step, "message", content, part);
            if *role == Role::System { "system" } else { "user" }
        }
        EventKind::SystemPrompt(prompt) => {
            put_content(&mut step, "message", &prompt.content, part);
            "system"
        }
        _ => "system",
    };
    step.insert("source".to_owned(), Value::from(source));
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for (at, event) in record.iter().enumerate() {
        match &event.kind {
            EventKind::Action(Action { call_id, tool_name, arguments, .. }) => {
                let mut call = object(event, "call");
                let shape = call.shift_remove("arguments_shape");
                call.insert("tool_call_id".to_owned(), Value::from(call_id.as_str()));
                call.insert("function_name".to_owned(), Value::from(tool_name.as_str()));
                match shape.as_ref().and_then(Value::as_str) {
                    Some("absent") => {}
                    Some("string") => drop(call.insert("arguments".to_owned(), Value::from(arguments.as_str()))),
                    _ => drop(call.entry("arguments").or_insert_with(|| parsed(arguments))),
                }
                calls.push(Value::Object(call));
            }
            EventKind::Observation(Observation { call_id, content, .. }) => {
                let mut result = object(event, "result");
                if !event.foreign.contains_key("call_from_position") {
                    result.insert("source_call_id".to_owned(), Value::from(call_id.as_str()));
                }
                put_content(&mut result, "content", content, part);
                results.push(Value::Object(result));
            }
            EventKind::Message(message) if at > 0 => {
                let mut result = object(event, "result");
                put_content(&mut result, "content", &message.content, part);
                results.push(Value::Object(result));
            }
            EventKind::Unknown(_) => results.push(Value::Object(object(event, "result"))),
            _ => {}
        }
    }
    if !calls.is_empty() {
        step.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    if !results.is_empty() {
        let observation = step.entry("observation").or_insert_with(|| json!({}));
        observation["results"] = Value::Array(results);
    }
    Value::Object(step.into_map())
}

fn object(event: &Event, key: &str) -> Map<String, Value> {
    event.foreign.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn put_answer(step: &mut Map<String, Value>, said: &[ContentBlock], reasoning: Option<&str>) {
    put_content(step, "message", said, part);
    step.extend(reasoning.map(|reasoning| ("reasoning_content".to_owned(), Value::from(reasoning))));
}

fn part(block: &ContentBlock) -> Value {
    match block {
        ContentBlock::Image { urls, .. } => json!({"type": "image", "source": {"path": urls.first()}}),
        ContentBlock::Other { value } => value.clone(),
        block => json!({"type": "text", "text": block.as_text().unwrap_or_default()}),
    }
}

/// A trajectory made of another format's events: a step an answer, with its results.
fn made(trace: &Trace, diagnostics: &mut Vec<Diagnostic>) -> Value {
    let mut steps: Vec<Value> = Vec::new();
    let mut tools: &[Value] = &[];
    let mut model = None;
    let mut unsaid = Vec::new();
    for turn in super::turns(&trace.events) {
        let Some(first) = turn.first() else { continue };
        let mut step = match &first.kind {
            EventKind::SystemPrompt(prompt) => {
                tools = &prompt.tools;
                json!({"source": "system", "message": text_of(&prompt.content)})
            }
            EventKind::Message(message) if message.role != Role::Assistant => {
                let source = if message.role == Role::System { "system" } else { "user" };
                json!({"source": source, "message": text_of(&message.content)})
            }
            EventKind::Action(_) | EventKind::Message(_) => answer(turn),
            EventKind::Observation(observation) => {
                let result = json!({"source_call_id": observation.call_id, "content": text_of(&observation.content)});
                let is_call = |step: &Value| {
                    let calls = step["tool_calls"].as_array();
                    calls.into_iter().flatten().any(|call| call["tool_call_id"] == observation.call_id.as_str())
                };
                match steps.iter_mut().rev().find(|step| is_call(step)) {
                    Some(step) => match step["observation"]["results"].as_array_mut() {
                        Some(results) => results.push(result),
                        None => step["observation"] = json!({"results": [result]}),
                    },
                    None => unsaid.push(first),
                }
                continue;
            }
            _ => {
                unsaid.push(first);
                continue;
            }
        };
        step["step_id"] = Value::from(steps.len() + 1);
        if let Some(timestamp) = &first.timestamp {
            step["timestamp"] = Value::from(timestamp.as_str());
        }
        model = model.or(first.usage.as_ref().and_then(|usage| usage.model.as_deref()));
        steps.push(step);
    }
    diagnostics.extend(left_out(unsaid.into_iter(), NAME));
    let mut agent = json!({"name": trace.format, "version": "unknown"});
    if let Some(model) = model {
        agent["model_name"] = Value::from(model);
    }
    if !tools.is_empty() {
        agent["tool_definitions"] = Value::from(tools);
    }
    let session = trace.session.as_deref().unwrap_or(&trace.name);
    json!({"schema_version": "ATIF-v1.6", "session_id": session, "agent": agent, "steps": steps})
}

fn answer(turn: &[Event]) -> Value {
    let (mut said, mut reasons, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for event in turn {
        let (content, reasoning) = match &event.kind {
            EventKind::Action(action) => {
                calls.push(json!({
                    "tool_call_id": action.call_id, "function_name": action.tool_name,
                    "arguments": match parsed(&action.arguments) {
                        Value::String(text) => json!({"text": text}),
                        object => object,
                    },
                }));
                reasons.extend(action.thinking.iter().filter_map(thinking));
                (&action.thought, &action.reasoning)
            }
            EventKind::Message(message) => (&message.content, &message.reasoning),
            _ => continue,
        };
        said.push(text_of(content));
        reasons.extend(content.iter().filter_map(thinking));
        reasons.extend(reasoning.clone());
    }
    said.retain(|text| !text.is_empty());
    let mut step = json!({"source": "agent", "message": said.join("\n")});
    if !reasons.is_empty() {
        step["reasoning_content"] = Value::from(reasons.join("\n\n"));
    }
    if !calls.is_empty() {
        step["tool_calls"] = Value::Array(calls);
    }
    if let Some(metrics) = turn.first().and_then(|event| event.usage.as_ref()).and_then(metrics) {
        step["metrics"] = metrics;
    }
    step
}

fn thinking(block: &ContentBlock) -> Option<String> {
    match block {
        ContentBlock::Thinking { thinking, .. } => Some(thinking.clone()),
        _ => None,
    }
}

fn metrics(usage: &Usage) -> Option<Value> {
    let mut metrics = json!({"prompt_tokens": usage.total_input()?});
    let counts = [("completion_tokens", usage.output_tokens), ("cached_tokens", usage.cache_read_tokens)];
    for (key, count) in counts {
        if let Some(count) = count {
            metrics[key] = Value::from(count);
        }
    }
    Some(metrics)
}
