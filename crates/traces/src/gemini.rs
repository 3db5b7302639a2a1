//! Gemini CLI sessions: one object with `messages` of the types user, gemini, info and error.
//!
//! An answer is an action a call, with the text and thoughts before it, or a message; results stand in the
//! calls (`toolCalls[].result`) and become observations of the same record. Notices are unknown, and so is
//! the event `file` with what surrounds the messages. `foreign` holds the rest of the message, of a call
//! (`call`) and the `result` where it says more than its text.

use condenser::event::{ContentBlock, EventKind, Message, Observation, Outcome, Role, Source, Usage};
use serde_json::{Map, Value};

use crate::answer::{Answer, arguments};
use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{take_content, take_list, take_text};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "gemini-cli",
    description: "Gemini CLI sessions: ~/.gemini/tmp/*/chats/session-*.json",
    sniff: |document| document.single().is_some_and(is_session),
    read,
};

fn is_session(file: &Value) -> bool {
    const TYPES: [&str; 5] = ["user", "gemini", "info", "error", "warning"];
    let is_typed =
        |message: &Value| message.get("type").and_then(Value::as_str).is_some_and(|kind| TYPES.contains(&kind));
    file.get("sessionId").is_some_and(Value::is_string)
        && file.get("projectHash").is_some()
        && file.get("messages").and_then(Value::as_array).is_some_and(|messages| messages.iter().take(50).all(is_typed))
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if !document.single().is_some_and(is_session) {
        return Err(document.unfit(FORMAT.name, "not one object with `sessionId`, `projectHash` and `messages`"));
    }
    let Some(Value::Object(mut file)) = document.take_records().pop().map(|record| record.value) else {
        return Ok(Vec::new());
    };
    let mut builder = Builder::new(std::mem::take(&mut document.diagnostics));
    let messages = take_list(&mut file, "messages").unwrap_or_default();
    let records = messages.len();
    let session = file.get("sessionId").and_then(Value::as_str).map(str::to_owned);
    builder.begin("file", "file".to_owned(), None);
    builder.add_unknown(Source::Environment, "file", Value::Object(file));
    for (at, message) in messages.into_iter().enumerate() {
        let text = |key: &str| message.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let id = text("id").map_or_else(|| format!("m{at}"), str::to_owned);
        let timestamp = text("timestamp").map(str::to_owned);
        let kind = text("type").unwrap_or_default().to_owned();
        builder.begin(&id, format!("messages[{at}]"), timestamp);
        match (kind.as_str(), message) {
            ("user", Value::Object(mut message)) => {
                let content = take_content(&mut message, "content", part);
                let kind = EventKind::Message(Message { content, ..Message::text(Role::User, "") });
                builder.add(Source::User, kind).foreign = message.into();
            }
            ("gemini", Value::Object(message)) => add_answer(&mut builder, message),
            ("info" | "error" | "warning", message) => drop(builder.add_unknown(Source::Environment, &kind, message)),
            (_, message) => {
                let place = builder.place().to_owned();
                builder.note([Diagnostic::new(place, "a message of no known `type`; kept as unknown")]);
                builder.add_unknown(Source::Environment, "message", message);
            }
        }
    }
    Ok(vec![Trace { session, ..builder.finish(document.name(), FORMAT.name, records) }])
}

fn add_answer(builder: &mut Builder, mut message: Map<String, Value>) {
    let record = builder.record().as_str().to_owned();
    let mut answer = Answer::new(record.as_str());
    for thought in message.get("thoughts").and_then(Value::as_array).into_iter().flatten() {
        let texts = ["subject", "description"].iter().filter_map(|key| thought.get(key)?.as_str());
        answer.reason(texts.collect::<Vec<_>>().join(": "));
    }
    answer.say(take_content(&mut message, "content", part));
    let mut results = Vec::new();
    for (at, call) in take_list(&mut message, "toolCalls").unwrap_or_default().into_iter().enumerate() {
        let mut call = match call {
            Value::Object(call) => call,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        let call_id = take_text(&mut call, "id").unwrap_or_else(|| format!("{record}-call-{at}"));
        let tool_name = take_text(&mut call, "name").unwrap_or_default();
        let args = arguments(call.shift_remove("args"));
        let outcome = match call.get("status").and_then(Value::as_str) {
            Some("error") => Outcome::Error,
            Some("cancelled") => Outcome::Rejected,
            _ => Outcome::Ok,
        };
        if let Some(parts) = take_list(&mut call, "result") {
            results.push((call_id.clone(), outcome, parts));
        }
        answer.call(call_id, tool_name, args, Map::from_iter([("call".to_owned(), Value::Object(call))]));
    }
    let usage = usage(&message);
    answer.add_to(builder, usage, message);
    for (call_id, outcome, parts) in results {
        let (content, exact) = result(&parts);
        let observation = Observation { call_id, content, outcome, ..Observation::default() };
        let event = builder.add(Source::Environment, EventKind::Observation(observation));
        if !exact {
            event.foreign.insert("result".to_owned(), Value::Array(parts));
        }
    }
}

/// What the model was told of a call, and whether that is all of it.
fn result(parts: &[Value]) -> (Vec<ContentBlock>, bool) {
    let mut exact = parts.len() == 1;
    let blocks = parts.iter().map(|value| {
        let Some(response) = value.get("functionResponse").and_then(|response| response.get("response")) else {
            let (block, is_exact) = part(value);
            exact &= is_exact;
            return block;
        };
        match response.as_object().map(|response| (response.len(), response.get("output"))) {
            Some((1, Some(Value::String(output)))) => ContentBlock::text(output.as_str()),
            _ => ContentBlock::text(response.to_string()),
        }
    });
    let blocks = blocks.collect();
    (blocks, exact)
}

/// A part in Gemini's words, and whether the block says everything that the part did.
fn part(value: &Value) -> (ContentBlock, bool) {
    let Some(map) = value.as_object() else { return block(value) };
    if let Some(text) = map.get("text").and_then(Value::as_str) {
        return (ContentBlock::text(text), map.len() == 1);
    }
    let data =
        map.get("inlineData").and_then(|data| Some((data.get("mimeType")?.as_str()?, data.get("data")?.as_str()?)));
    match data {
        Some((media, data)) if media.starts_with("image/") => {
            (ContentBlock::Image { urls: vec![format!("data:{media};base64,{data}")], cache: false }, map.len() == 1)
        }
        _ => block(value),
    }
}

/// The figures of an answer; `input` includes what was read from the cache, `output` leaves the thoughts out.
fn usage(message: &Map<String, Value>) -> Option<Usage> {
    let tokens = message.get("tokens")?;
    let count = |key: &str| tokens.get(key).and_then(Value::as_u64);
    let cached = count("cached");
    let output = count("output").map(|output| output.saturating_add(count("thoughts").unwrap_or(0)));
    Some(Usage {
        input_tokens: Some(count("input")?.saturating_sub(cached.unwrap_or(0))),
        cache_read_tokens: cached,
        cache_write_tokens: None,
        output_tokens: output,
        model: message.get("model").and_then(Value::as_str).map(str::to_owned),
    })
}
