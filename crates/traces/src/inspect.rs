//! Inspect evaluation logs: one object with `eval` and `samples`, each sample a trace. A zipped log is unpacked into
//! such an object before.
//!
//! A sample's `messages` are chat messages with `function` and an object of arguments in their calls. Texts
//! given as `attachment://<hash>` are looked up in the sample's table. The rest of the sample, its events
//! included, is the event `sample`, never shown; the rest of the log is `log`, in the first trace. Usage and
//! tools come from the sample's model events.

use std::collections::HashMap;

use condenser::event::{ContentBlock, EventKind, Message, Observation, Outcome, Role, Source, SystemPrompt, Usage};
use serde_json::{Map, Value};

use crate::answer::{Answer, arguments};
use crate::blocks::block;
use crate::builder::{Builder, Count};
use crate::fields::{take_content, take_list, take_text};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "inspect",
    description: "Inspect evaluation logs, a trace a sample: logs/*.eval, logs/*.json",
    sniff: |document| document.single().is_some_and(is_log),
    read,
};

fn is_log(file: &Value) -> bool {
    file.get("eval").is_some_and(Value::is_object) && file.get("samples").is_some_and(Value::is_array)
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if !document.single().is_some_and(is_log) {
        return Err(document.unfit(FORMAT.name, "not one object with `eval` and a list of `samples`"));
    }
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let Some(Value::Object(mut file)) = document.take_records().pop().map(|record| record.value) else {
        return Ok(Vec::new());
    };
    let samples = take_list(&mut file, "samples").unwrap_or_default();
    let messages = |sample: &Value| sample.get("messages").and_then(Value::as_array).map_or(0, Vec::len);
    let records = samples.iter().map(messages).sum();
    let mut log = Some(file);
    let mut traces = Vec::new();
    for (row, sample) in samples.into_iter().enumerate() {
        let Value::Object(sample) = sample else {
            diagnostics.push(Diagnostic::new(format!("samples[{row}]"), "a sample that is no object; left out"));
            continue;
        };
        let task = match sample.get("id") {
            Some(Value::String(id)) => Some(id.clone()),
            Some(Value::Number(id)) => Some(id.to_string()),
            _ => None,
        };
        let mut builder = Builder::new(std::mem::take(&mut diagnostics));
        if let Some(log) = log.take() {
            builder.begin("log", "log".to_owned(), None);
            builder.add_unknown(Source::Environment, "log", Value::Object(log));
        }
        let session = sample.get("uuid").and_then(Value::as_str).map(str::to_owned);
        add_sample(&mut builder, row, sample);
        traces.push(Trace { task, session, ..builder.finish(document.row_name(row), FORMAT.name, records) });
    }
    match traces.first_mut() {
        Some(first) => first.diagnostics.append(&mut diagnostics),
        None => return Err(document.unfit(FORMAT.name, "the log has no samples")),
    }
    Ok(traces)
}

fn add_sample(builder: &mut Builder, row: usize, mut sample: Map<String, Value>) {
    let mut messages = take_list(&mut sample, "messages").unwrap_or_default();
    let attachments = sample.get("attachments").and_then(Value::as_object);
    let mut missing = Count::default();
    for (at, message) in messages.iter_mut().enumerate() {
        resolve(message, attachments, &mut || missing.add(|| format!("samples[{row}].messages[{at}]")));
    }
    builder.note(missing.report("attachments that are not in the sample's table, their names kept"));

    let mut figures = HashMap::new();
    let mut tools = Vec::new();
    for event in sample.get("events").and_then(Value::as_array).into_iter().flatten() {
        if event.get("event").and_then(Value::as_str) != Some("model") {
            continue;
        }
        if tools.is_empty() {
            tools = event.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
        }
        let id = event.pointer("/output/choices/0/message/id").and_then(Value::as_str);
        let usage = event.get("output").and_then(|output| usage(output.get("usage")?, output.get("model")?.as_str()));
        figures.extend(id.map(str::to_owned).zip(usage));
    }
    for tool in &mut tools {
        resolve(tool, attachments, &mut || {});
    }

    builder.begin("sample", format!("samples[{row}]"), None);
    builder.add_unknown(Source::Environment, "sample", Value::Object(sample));
    let is_system =
        |message: Option<&Value>| message.and_then(|message| message.get("role")?.as_str()) == Some("system");
    if !tools.is_empty() && !is_system(messages.first()) {
        builder.begin("tools", format!("samples[{row}]"), None);
        let prompt = SystemPrompt { tools: std::mem::take(&mut tools), ..SystemPrompt::default() };
        builder.add(Source::Agent, EventKind::SystemPrompt(prompt));
    }
    for (at, message) in messages.into_iter().enumerate() {
        let id = message.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = id.map_or_else(|| format!("m{at}"), str::to_owned);
        let usage = figures.remove(&id);
        builder.begin(&id, format!("samples[{row}].messages[{at}]"), None);
        match message {
            Value::Object(message) => add_message(builder, message, usage, at == 0, &mut tools),
            other => {
                let place = builder.place().to_owned();
                builder.note([Diagnostic::new(place, "a message that is no object; kept as unknown")]);
                builder.add_unknown(Source::Environment, "message", other);
            }
        }
    }
}

/// Puts the texts of a table in the place of their names.
fn resolve(value: &mut Value, table: Option<&Map<String, Value>>, missing: &mut impl FnMut()) {
    match value {
        Value::String(text) => {
            let Some(name) = text.strip_prefix("attachment://") else { return };
            match table.and_then(|table| table.get(name)) {
                Some(found) => *value = found.clone(),
                None => missing(),
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| resolve(item, table, missing)),
        Value::Object(map) => map.values_mut().for_each(|item| resolve(item, table, missing)),
        _ => {}
    }
}

fn add_message(
    builder: &mut Builder,
    mut message: Map<String, Value>,
    usage: Option<Usage>,
    is_first: bool,
    tools: &mut Vec<Value>,
) {
    let role = take_text(&mut message, "role").unwrap_or_default();
    let content = take_content(&mut message, "content", part);
    match role.as_str() {
        "assistant" => {
            let record = builder.record().as_str().to_owned();
            let mut answer = Answer::new(record.as_str());
            answer.say(content);
            for (at, call) in take_list(&mut message, "tool_calls").unwrap_or_default().into_iter().enumerate() {
                let mut call = match call {
                    Value::Object(call) => call,
                    other => Map::from_iter([("value".to_owned(), other)]),
                };
                let id = take_text(&mut call, "id").unwrap_or_else(|| format!("{record}-call-{at}"));
                let name = take_text(&mut call, "function").unwrap_or_default();
                let given = arguments(call.shift_remove("arguments"));
                let foreign = match call.is_empty() {
                    true => Map::new(),
                    false => Map::from_iter([("tool_call".to_owned(), Value::Object(call))]),
                };
                answer.call(id, name, given, foreign);
            }
            answer.add_to(builder, usage, message);
        }
        "tool" => {
            let error = message.get("error").filter(|error| !error.is_null());
            let told = error.and_then(|error| error.get("message")?.as_str()).filter(|_| content.is_empty());
            let outcome = match error.map(|error| error.get("type").and_then(Value::as_str)) {
                None => Outcome::Ok,
                Some(Some("approval")) => Outcome::Rejected,
                Some(_) => Outcome::Error,
            };
            let content = if content.is_empty() { told.map(ContentBlock::text).into_iter().collect() } else { content };
            let observation = Observation {
                call_id: take_text(&mut message, "tool_call_id").unwrap_or_default(),
                tool_name: take_text(&mut message, "function").unwrap_or_default(),
                content,
                outcome,
                ..Observation::default()
            };
            builder.add(Source::Environment, EventKind::Observation(observation)).foreign = message.into();
        }
        "system" if is_first => {
            let prompt = SystemPrompt { content, tools: std::mem::take(tools), ..SystemPrompt::default() };
            builder.add(Source::Environment, EventKind::SystemPrompt(prompt)).foreign = message.into();
        }
        _ => {
            let (role, source) = match role.as_str() {
                "system" => (Role::System, Source::Environment),
                _ => (Role::User, Source::User),
            };
            let kind = EventKind::Message(Message { content, ..Message::text(role, "") });
            builder.add(source, kind).foreign = message.into();
        }
    }
}

/// A content part in Inspect's words, and whether the block says everything that the part did.
fn part(value: &Value) -> (ContentBlock, bool) {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    match (text("type"), text("reasoning"), text("image")) {
        (Some("reasoning"), Some(data), _) if value.get("redacted") == Some(&Value::Bool(true)) => {
            (ContentBlock::RedactedThinking { data: data.to_owned() }, false)
        }
        (Some("reasoning"), Some(thinking), _) => {
            let signature = text("signature").map(str::to_owned);
            (ContentBlock::Thinking { thinking: thinking.to_owned(), signature }, false)
        }
        (Some("image"), _, Some(url)) => (ContentBlock::Image { urls: vec![url.to_owned()], cache: false }, false),
        _ => block(value),
    }
}

/// Figures in Inspect's words. Whether the input includes what was read from the cache, the total tells.
fn usage(figures: &Value, model: Option<&str>) -> Option<Usage> {
    let count = |key: &str| figures.get(key).and_then(Value::as_u64);
    let (input, output) = (count("input_tokens")?, count("output_tokens"));
    let (read, write) = (count("input_tokens_cache_read"), count("input_tokens_cache_write"));
    let includes_cache = count("total_tokens") == Some(input.saturating_add(output.unwrap_or(0)));
    let cached = if includes_cache { read.unwrap_or(0).saturating_add(write.unwrap_or(0)) } else { 0 };
    Some(Usage {
        input_tokens: Some(input.saturating_sub(cached)),
        cache_read_tokens: read,
        cache_write_tokens: write,
        output_tokens: output,
        model: model.map(str::to_owned),
    })
}
