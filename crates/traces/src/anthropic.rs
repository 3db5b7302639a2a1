//! Anthropic messages: a list, a message a line, or a request with `messages`, the answer beside it or not.
//!
//! Message `i` is the record `m<i>`, its parts events in their order: a `tool_result` an observation, a
//! `tool_use` an action with the text and thinking before it, what is left a message. A request's `system`
//! and `tools` are the event `system`; what else surrounds the messages is the event `file`, never shown.
//!
//! `foreign` of a message's first event holds the rest of the message: `content_shape` `string` where the
//! content was plain text, and the whole `content` where its blocks say more than the events do. `block`
//! holds what is left of a `tool_use` or `tool_result` block (`input_shape` where the input was no object).

use condenser::event::{ContentBlock, EventKind, Message, Observation, Outcome, Role, Source, SystemPrompt, Usage};
use serde_json::{Map, Value};

use crate::answer::{Answer, arguments};
use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{self, take_content, take_list, take_object, take_text};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "anthropic",
    description: "Anthropic messages: a list, JSON lines, or requests with the answer beside them",
    sniff: |document| is_anthropic(document, has_own_block),
    read,
};

fn is_anthropic(document: &Document, is_own: impl Fn(&Value) -> bool) -> bool {
    let all = |messages: Vec<&Value>| {
        messages.iter().all(|message| is_message(message)) && messages.iter().any(|message| is_own(message))
    };
    match document.single() {
        Some(Value::Array(items)) => all(items.iter().collect()),
        Some(value) if is_message(value) => is_own(value),
        Some(file) => is_request(file) && (is_own(file) || is_only_own(file)),
        None => all(document.records().iter().map(|record| &record.value).collect()),
    }
}

/// Whether a value is a request: messages of the two roles, and nothing that is another format's.
fn is_request(file: &Value) -> bool {
    const OTHERS: [&str; 3] = ["sessionId", "system_prompt", "trajectory_format"];
    !OTHERS.iter().any(|key| file.get(key).is_some())
        && file
            .get("messages")
            .and_then(Value::as_array)
            .is_some_and(|messages| !messages.is_empty() && messages.iter().all(is_message))
}

/// Whether a request has something that no other API's has.
fn is_only_own(file: &Value) -> bool {
    let messages = file.get("messages").and_then(Value::as_array);
    file.get("system").is_some_and(|system| system.is_string() || system.is_array())
        || messages.into_iter().flatten().any(has_own_block)
        || is_response(file.get("response"))
}

fn is_response(value: Option<&Value>) -> bool {
    value.is_some_and(|value| value.get("type").and_then(Value::as_str) == Some("message") && is_message(value))
}

/// Whether a value is a message of this API's two roles, in words that OpenAI's has not.
pub(crate) fn is_message(value: &Value) -> bool {
    matches!(value.get("role").and_then(Value::as_str), Some("user" | "assistant"))
        && value.get("content").is_some_and(|content| content.is_string() || content.is_array())
        && value.get("tool_calls").is_none_or(Value::is_null)
        && value.get("type").is_none_or(|kind| kind == "message")
}

fn has_own_block(message: &Value) -> bool {
    const KINDS: [&str; 7] =
        ["tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document", "container_upload"];
    let blocks = message.get("content").and_then(Value::as_array);
    blocks.into_iter().flatten().any(|block| {
        let kind = block.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| KINDS.contains(&kind)) || block.get("source").is_some_and(Value::is_object)
    })
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if !is_anthropic(&document, |_| true) {
        return Err(document.unfit(FORMAT.name, "no list of messages of the roles user and assistant"));
    }
    let mut builder = Builder::new(std::mem::take(&mut document.diagnostics));
    let mut records = document.take_records();
    let messages: Vec<(String, Value)> = match records.as_mut_slice() {
        [record] if record.value.is_array() => numbered(record.value.take()),
        [record] if record.value.get("messages").is_some() => {
            let Value::Object(mut file) = record.value.take() else { return Ok(Vec::new()) };
            let messages = file.shift_remove("messages").unwrap_or_default();
            add_request(&mut builder, messages, file)
        }
        _ => records.into_iter().map(|record| (format!("line {}", record.line), record.value)).collect(),
    };
    let is_answer = |place: &str| place == "response";
    let records = messages.iter().filter(|(place, _)| !is_answer(place)).count();
    for (at, (place, message)) in messages.into_iter().enumerate() {
        builder.begin(&format!("m{at}"), place, None);
        match message {
            Value::Object(message) => add_message(&mut builder, message, block, usage),
            other => {
                let place = builder.place().to_owned();
                builder.note([Diagnostic::new(place, "a message that is no object; kept as unknown")]);
                builder.add_unknown(Source::Environment, "message", other);
            }
        }
    }
    Ok(vec![builder.finish(document.name(), FORMAT.name, records)])
}

fn numbered(messages: Value) -> Vec<(String, Value)> {
    let Value::Array(messages) = messages else { return Vec::new() };
    messages.into_iter().enumerate().map(|(at, message)| (format!("messages[{at}]"), message)).collect()
}

/// Adds what surrounds the messages, and returns these, the answer at the end.
fn add_request(builder: &mut Builder, messages: Value, mut file: Map<String, Value>) -> Vec<(String, Value)> {
    let mut messages = numbered(messages);
    if is_response(file.get("response"))
        && let Some(mut response) = take_object(&mut file, "response")
    {
        response.shift_remove("type");
        let said = |message: &Value| message.get("content") == response.get("content");
        if !messages.last().is_some_and(|(_, last)| said(last)) {
            messages.push(("response".to_owned(), Value::Object(response)));
        } else {
            file.insert("response".to_owned(), Value::Object(response));
        }
    }
    let mut prompt = Map::new();
    prompt.extend(file.shift_remove("system").map(|system| ("system".to_owned(), system)));
    let has_tools = file.get("tools").is_some_and(Value::is_array);
    let tools = take_list(&mut file, "tools").unwrap_or_default();
    if !file.is_empty() {
        builder.begin("file", "file".to_owned(), None);
        builder.add_unknown(Source::Environment, "file", Value::Object(file));
    }
    if !prompt.is_empty() || has_tools {
        builder.begin("system", "system".to_owned(), None);
        let raw = prompt.get("system").cloned();
        let content = take_content(&mut prompt, "system", block);
        if !prompt.contains_key("system_shape") && !content.iter().all(|block| block.as_text().is_some()) {
            prompt.extend(raw.map(|raw| ("system".to_owned(), raw)));
        }
        let prompt_event = EventKind::SystemPrompt(SystemPrompt { content, tools, ..SystemPrompt::default() });
        builder.add(Source::Agent, prompt_event).foreign = prompt.into();
    }
    messages
}

/// Adds one message of the role user or assistant to the current record.
///
/// `part` reads a block that is neither call nor result, `usage` the figures of an answer.
pub(crate) fn add_message(
    builder: &mut Builder,
    mut message: Map<String, Value>,
    part: fn(&Value) -> (ContentBlock, bool),
    usage: impl Fn(&Map<String, Value>) -> Option<Usage>,
) {
    let is_answer = message.get("role").and_then(Value::as_str) == Some("assistant");
    message.shift_remove("role");
    let raw = message.get("content").cloned();
    let parts = match take_list(&mut message, "content") {
        Some(parts) => parts,
        None => {
            // Plain text is the one part.
            let content = take_content(&mut message, "content", part);
            if is_answer {
                let mut answer = Answer::new(response_id(builder, &message));
                answer.say(content);
                let usage = usage(&message);
                answer.add_to(builder, usage, message);
            } else {
                builder.add(Source::User, user(content)).foreign = message.into();
            }
            return;
        }
    };
    let mut is_exact = true;
    let mut convert = |part_value: &Value| {
        let (block, exact) = part(part_value);
        is_exact &= exact && !part_value.is_string();
        block
    };
    if is_answer {
        let mut answer = Answer::new(response_id(builder, &message));
        for value in parts {
            match value {
                Value::Object(mut call) if is_kind(&call, "tool_use") => {
                    call.shift_remove("type");
                    let id = take_text(&mut call, "id").unwrap_or_default();
                    let name = take_text(&mut call, "name").unwrap_or_default();
                    let input = take_input(&mut call);
                    answer.call(id, name, input, in_block(call));
                }
                value => answer.say([convert(&value)]),
            }
        }
        if !is_exact {
            message.extend(raw.map(|raw| ("content".to_owned(), raw)));
        }
        let usage = usage(&message);
        answer.add_to(builder, usage, message);
        return;
    }
    let mut kinds = Vec::new();
    let mut text = Vec::new();
    for value in parts {
        match value {
            Value::Object(mut result) if is_kind(&result, "tool_result") => {
                if !text.is_empty() {
                    kinds.push((user(std::mem::take(&mut text)), Map::new()));
                }
                result.shift_remove("type");
                let outcome = match result.get("is_error").and_then(Value::as_bool) {
                    Some(true) => Outcome::Error,
                    _ => Outcome::Ok,
                };
                let observation = Observation {
                    call_id: take_text(&mut result, "tool_use_id").unwrap_or_default(),
                    content: take_content(&mut result, "content", part),
                    outcome,
                    ..Observation::default()
                };
                kinds.push((EventKind::Observation(observation), in_block(result)));
            }
            value => text.push(convert(&value)),
        }
    }
    if !is_exact {
        message.extend(raw.map(|raw| ("content".to_owned(), raw)));
    }
    if !text.is_empty() || kinds.is_empty() {
        kinds.push((user(text), Map::new()));
    }
    let mut rest = Some(message);
    for (kind, mut foreign) in kinds {
        let source = if matches!(kind, EventKind::Observation(_)) { Source::Environment } else { Source::User };
        foreign.extend(rest.take().unwrap_or_default());
        builder.add(source, kind).foreign = foreign.into();
    }
}

fn user(content: Vec<ContentBlock>) -> EventKind {
    EventKind::Message(Message { content, ..Message::text(Role::User, "") })
}

fn is_kind(block: &Map<String, Value>, kind: &str) -> bool {
    block.get("type").and_then(Value::as_str) == Some(kind)
}

fn in_block(rest: Map<String, Value>) -> Map<String, Value> {
    match rest.is_empty() {
        true => rest,
        false => Map::from_iter([("block".to_owned(), Value::Object(rest))]),
    }
}

/// The response an answer is: the id the API gave it, else the record's.
fn response_id(builder: &Builder, message: &Map<String, Value>) -> String {
    let id = message.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
    id.map_or_else(|| builder.record().as_str().to_owned(), str::to_owned)
}

/// The input of a call as JSON text; one that is no object is remembered as such.
fn take_input(call: &mut Map<String, Value>) -> String {
    let shape = match call.get("input") {
        Some(Value::Null) => return "{}".to_owned(),
        None => Some("absent"),
        Some(Value::String(_)) => Some("string"),
        Some(_) => None,
    };
    let input = call.shift_remove("input");
    call.extend(shape.map(|shape| ("input_shape".to_owned(), Value::from(shape))));
    arguments(input)
}

/// The figures that stand in an answer.
pub(crate) fn usage(message: &Map<String, Value>) -> Option<Usage> {
    fields::anthropic_usage(message.get("usage")?, message.get("model").and_then(Value::as_str))
}
