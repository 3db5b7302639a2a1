//! OpenTelemetry spans of GenAI calls: OTLP JSON (one document or a line an export), or an exporter's list.
//!
//! Spans of one conversation (`gen_ai.conversation.id`, else the trace id) are one trace, in order of their
//! start. A span of a model call shows its request and its answer; each request repeats the whole conversation,
//! so that only what is new becomes events, and what is gone or changed becomes a condensation. The messages
//! are read from, in this order: `gen_ai.input.messages` and `gen_ai.output.messages`; events of the span
//! (`gen_ai.user.message`, `gen_ai.choice`, …); indexed attributes (`gen_ai.prompt.N.*`,
//! `llm.input_messages.N.*`); `ai.prompt.messages`, `ai.prompt` and `ai.response.*`. A span around model calls
//! of the same trace repeats them: it is not read again. Results of `execute_tool` spans count where no later
//! request shows them.
//!
//! Every span is an unknown event too, as it was, before the events it became; these have its id with `/`
//! and a number. Usage stands on the answer.

use std::collections::{BTreeMap, HashMap, HashSet};

use condenser::event::{ContentBlock, EventKind, Observation, Outcome, Source, Usage};
use serde_json::{Map, Value};

use crate::answer::arguments;
use crate::blocks::block;
use crate::builder::Builder;
use crate::history::{History, Said, Turn};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "otel-genai",
    description: "OpenTelemetry spans of GenAI calls: OTLP JSON, or an exporter's list of spans",
    sniff,
    read,
};

/// So many records, or members of a list, are looked at.
const SNIFFED: usize = 50;

fn sniff(document: &Document) -> bool {
    match document.single() {
        Some(Value::Array(spans)) => !spans.is_empty() && spans.iter().take(SNIFFED).all(is_span),
        Some(file) => is_export(file) || is_span(file),
        None => {
            let mut head = document.records().iter().take(SNIFFED).map(|record| &record.value).peekable();
            head.peek().is_some() && head.all(|value| is_export(value) || is_span(value))
        }
    }
}

fn is_export(value: &Value) -> bool {
    value.get("resourceSpans").is_some_and(Value::is_array)
}

fn is_span(value: &Value) -> bool {
    let has = |key: &str| value.get(key).is_some_and(Value::is_string);
    value.get("spanContext").is_some_and(Value::is_object)
        || (has("traceId") && has("spanId"))
        || (value.get("context").is_some_and(|context| context.get("trace_id").is_some()) && has("name"))
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let mut spans = Vec::new();
    for record in document.take_records() {
        let place = format!("line {}", record.line);
        match record.value {
            Value::Array(items) => {
                spans.extend(items.into_iter().enumerate().map(|(at, value)| Span::new(format!("[{at}]"), value)));
            }
            export if is_export(&export) => spans.extend(exported(&place, export)),
            span => spans.push(Span::new(place, span)),
        }
    }
    let records = spans.len();
    // Values that are no spans are kept where they stand in the order of the file.
    if !spans.iter().any(|span| is_span(&span.value)) {
        return Err(document.unfit(FORMAT.name, "there is no span with a trace id"));
    }
    let mut order: Vec<String> = Vec::new();
    let mut groups: HashMap<String, Vec<Span>> = HashMap::new();
    // A span that names no conversation is of the one its trace names.
    let mut named: HashMap<String, String> = HashMap::new();
    for span in &spans {
        if let Some(conversation) = span.text(&["gen_ai.conversation.id", "session.id"]) {
            named.entry(span.trace_id.clone()).or_insert_with(|| conversation.to_owned());
        }
    }
    for span in spans {
        let own = span.text(&["gen_ai.conversation.id", "session.id"]).map(str::to_owned);
        let key = own.or_else(|| named.get(&span.trace_id).cloned()).unwrap_or_else(|| span.trace_id.clone());
        if !groups.contains_key(&key) {
            order.push(key.clone());
        }
        groups.entry(key).or_default().push(span);
    }
    let is_one = order.len() == 1;
    let mut traces = Vec::new();
    for (row, key) in order.into_iter().enumerate() {
        let mut spans = groups.remove(&key).unwrap_or_default();
        spans.sort_by_key(|span| span.start);
        let name = if is_one { document.name() } else { document.row_name(row) };
        let builder = conversation(spans, std::mem::take(&mut diagnostics));
        traces.push(Trace { session: Some(key), ..builder.finish(name, FORMAT.name, records) });
    }
    Ok(traces)
}

/// The spans of an OTLP export.
fn exported(place: &str, mut export: Value) -> Vec<Span> {
    let mut spans = Vec::new();
    let lists = |value: &mut Value, keys: &[&str]| -> Vec<Value> {
        let list = keys.iter().find_map(|key| value.get_mut(*key).filter(|list| list.is_array()).map(Value::take));
        match list {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    };
    for (r, mut resource) in lists(&mut export, &["resourceSpans"]).into_iter().enumerate() {
        let scopes = lists(&mut resource, &["scopeSpans", "instrumentationLibrarySpans"]);
        for (s, mut scope) in scopes.into_iter().enumerate() {
            for (at, span) in lists(&mut scope, &["spans"]).into_iter().enumerate() {
                spans.push(Span::new(format!("{place} resourceSpans[{r}].scopeSpans[{s}].spans[{at}]"), span));
            }
        }
    }
    spans
}

/// A span with what is needed of it.
struct Span {
    place: String,
    value: Value,
    id: String,
    trace_id: String,
    /// Nanoseconds.
    start: u128,
    attributes: Map<String, Value>,
}

impl Span {
    fn new(place: String, value: Value) -> Self {
        let text = |pointers: &[&str]| {
            let mut found = pointers.iter().filter_map(|pointer| value.pointer(pointer)?.as_str());
            found.next().unwrap_or_default().to_owned()
        };
        let id = text(&["/spanId", "/spanContext/spanId", "/context/span_id"]);
        let trace_id = text(&["/traceId", "/spanContext/traceId", "/context/trace_id"]);
        let start =
            ["startTimeUnixNano", "startTime", "start_time"].iter().find_map(|key| nanoseconds(value.get(*key)?));
        let attributes = value.get("attributes").map(attributes).unwrap_or_default();
        Self { place, id, trace_id, start: start.unwrap_or(0), attributes, value }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.attributes.get(key)
    }

    fn text(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().filter_map(|key| self.get(key)?.as_str()).find(|text| !text.is_empty())
    }

    fn number(&self, keys: &[&str]) -> Option<u64> {
        keys.iter().find_map(|key| match self.get(key)? {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        })
    }

    /// A list that is structured or JSON text.
    fn list(&self, key: &str) -> Option<Vec<Value>> {
        match self.get(key)? {
            Value::Array(items) => Some(items.clone()),
            Value::String(text) => serde_json::from_str(text).ok(),
            _ => None,
        }
    }

    fn is_tool(&self) -> bool {
        self.text(&["gen_ai.operation.name"]) == Some("execute_tool")
            || self.text(&["ai.operationId"]) == Some("ai.toolCall")
            || self.text(&["openinference.span.kind"]) == Some("TOOL")
    }
}

/// A time as two numbers, a number as text, or a number.
fn nanoseconds(value: &Value) -> Option<u128> {
    match value {
        Value::Array(parts) => match parts.as_slice() {
            [seconds, rest] => Some(u128::from(seconds.as_u64()?) * 1_000_000_000 + u128::from(rest.as_u64()?)),
            _ => None,
        },
        Value::String(text) => text.parse().ok(),
        other => other.as_u64().map(u128::from),
    }
}

/// Attributes as a map, be they one or OTLP's list of keys and typed values.
fn attributes(value: &Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map.clone(),
        Value::Array(items) => {
            let pair = |item: &Value| Some((item.get("key")?.as_str()?.to_owned(), plain(item.get("value")?, 0)));
            items.iter().filter_map(pair).collect()
        }
        _ => Map::new(),
    }
}

/// OTLP's typed value as a plain one.
fn plain(value: &Value, depth: usize) -> Value {
    let Some((kind, inner)) = value.as_object().and_then(|map| map.iter().next()).filter(|_| depth < 64) else {
        return value.clone();
    };
    match kind.as_str() {
        "intValue" => match inner {
            Value::String(text) => text.parse::<i64>().map_or_else(|_| inner.clone(), Value::from),
            number => number.clone(),
        },
        "arrayValue" => {
            let values = inner.get("values").and_then(Value::as_array).into_iter().flatten();
            values.map(|value| plain(value, depth + 1)).collect()
        }
        "kvlistValue" => {
            let pairs = inner.get("values").and_then(Value::as_array).into_iter().flatten();
            let pair =
                |item: &Value| Some((item.get("key")?.as_str()?.to_owned(), plain(item.get("value")?, depth + 1)));
            Value::Object(pairs.filter_map(pair).collect())
        }
        "stringValue" | "boolValue" | "doubleValue" | "bytesValue" => inner.clone(),
        _ => value.clone(),
    }
}

/// What one model call was sent and what it gave.
struct Call {
    input: Vec<Turn>,
    output: Vec<Turn>,
    /// Whether a span inside of this one may tell the same.
    is_around: bool,
}

fn conversation(spans: Vec<Span>, diagnostics: Vec<Diagnostic>) -> Builder {
    let mut builder = Builder::new(diagnostics);
    let mut history = History::default();
    let calls: Vec<Option<Call>> = spans.iter().map(call).collect();
    let has_inner = calls.iter().flatten().any(|call| !call.is_around);
    let mut results = Vec::new();
    for (span, call) in spans.into_iter().zip(calls) {
        let id = if span.id.is_empty() { span.place.clone() } else { span.id.clone() };
        let time = span.value.get("startTime").or_else(|| span.value.get("startTimeUnixNano"));
        let time = time.map(|time| time.as_str().map_or_else(|| time.to_string(), str::to_owned));
        let call = call.filter(|call| !(call.is_around && has_inner));
        let tools = tools(&span);
        let usage = usage(&span);
        let response = span.text(&["gen_ai.response.id", "ai.response.id"]).map(str::to_owned);
        if span.is_tool() {
            results.extend(tool_result(&span).map(|result| (id.clone(), span.place.clone(), result)));
        }
        let name = span.value.get("name").and_then(Value::as_str).unwrap_or("span").to_owned();
        builder.begin(&id, span.place.clone(), time.clone());
        builder.add_unknown(Source::Environment, &name, span.value);
        let Some(call) = call else { continue };
        let record = builder.begin(&format!("{id}/1"), span.place.clone(), time.clone());
        history.set_tools(tools);
        history.request(&mut builder, call.input);
        builder.begin(&format!("{id}/2"), span.place, time);
        let at = builder.events().len();
        let response = response.unwrap_or_else(|| record.as_str().to_owned());
        for turn in call.output {
            history.answer(&mut builder, turn, &response, Map::new());
        }
        if let Some(usage) = usage.filter(|_| builder.events().len() > at) {
            builder.set_usage_of(at, usage);
        }
    }
    let answered: HashSet<String> = builder
        .events()
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Observation(observation) => Some(observation.call_id.clone()),
            _ => None,
        })
        .collect();
    let called: HashSet<String> = builder
        .events()
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::Action(action) => Some(action.call_id.clone()),
            _ => None,
        })
        .collect();
    for (id, place, result) in results {
        if called.contains(&result.call_id) && !answered.contains(&result.call_id) {
            builder.begin(&format!("{id}/result"), place, None);
            builder.add(Source::Environment, EventKind::Observation(result));
        }
    }
    builder
}

/// The tools a model was offered.
fn tools(span: &Span) -> Vec<Value> {
    let parsed = |tool: Value| match tool {
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        tool => tool,
    };
    let listed = ["gen_ai.tool.definitions", "ai.prompt.tools"].iter().find_map(|key| span.list(key));
    let tools: Vec<Value> = listed.unwrap_or_default().into_iter().map(parsed).collect();
    tools.into_iter().filter(Value::is_object).collect()
}

fn usage(span: &Span) -> Option<Usage> {
    let input = span.number(&[
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
        "ai.usage.inputTokens",
        "ai.usage.promptTokens",
    ]);
    let output = span.number(&[
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "ai.usage.outputTokens",
        "ai.usage.completionTokens",
    ]);
    let read = span.number(&[
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
        "ai.usage.cachedInputTokens",
    ]);
    let write = span.number(&["gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens"]);
    let model = span.text(&[
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "ai.response.model",
        "ai.model.id",
    ]);
    if input.is_none() && output.is_none() {
        return None;
    }
    // Vendors differ: where the cache cannot be a part of the input, it is beside it.
    let cached = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
    Some(Usage {
        input_tokens: input.map(|input| input.checked_sub(cached).unwrap_or(input)),
        cache_read_tokens: read,
        cache_write_tokens: write,
        output_tokens: output,
        model: model.map(str::to_owned),
    })
}

/// What a span of a model call says, in whichever words; `None` for other spans.
fn call(span: &Span) -> Option<Call> {
    const NO_CALLS: [&str; 5] = ["execute_tool", "embeddings", "create_agent", "retrieval", "invoke_workflow"];
    let operation = span.text(&["gen_ai.operation.name"]);
    if span.is_tool() || operation.is_some_and(|operation| NO_CALLS.contains(&operation)) {
        return None;
    }
    let is_around =
        operation == Some("invoke_agent") || matches!(span.text(&["openinference.span.kind"]), Some("AGENT" | "CHAIN"));
    let (input, output) = structured(span).or_else(|| from_events(span)).or_else(|| indexed(span)).unwrap_or_default();
    if !input.is_empty() || !output.is_empty() {
        return Some(Call { input: turns(input), output: turns(output), is_around });
    }
    let (input, is_around) = match (span.list("ai.prompt.messages"), span.text(&["ai.prompt"])) {
        (Some(messages), _) => (messages, false),
        (None, Some(prompt)) => (from_prompt(prompt), true),
        (None, None) => return None,
    };
    Some(Call { input: turns(input), output: turns(from_response(span)), is_around })
}

type Messages = (Vec<Value>, Vec<Value>);

fn structured(span: &Span) -> Option<Messages> {
    let mut input = Vec::new();
    if let Some(parts) = span.list("gen_ai.system_instructions") {
        input.push(message("system", Value::Array(parts)));
    } else if let Some(text) = span.text(&["gen_ai.system_instructions"]) {
        input.push(message("system", Value::from(text)));
    }
    let sent = span.list("gen_ai.input.messages");
    let got = span.list("gen_ai.output.messages");
    if sent.is_none() && got.is_none() {
        return None;
    }
    input.extend(sent.unwrap_or_default());
    Some((input, got.unwrap_or_default()))
}

fn message(role: &str, content: Value) -> Value {
    Value::Object(Map::from_iter([("role".to_owned(), Value::from(role)), ("content".to_owned(), content)]))
}

/// Messages in events of a span, as conventions before 1.37 have them.
fn from_events(span: &Span) -> Option<Messages> {
    let (mut input, mut output) = (Vec::new(), Vec::new());
    for event in span.value.get("events").and_then(Value::as_array)? {
        let Some(name) = event.get("name").and_then(Value::as_str) else { continue };
        let Some(kind) = name.strip_prefix("gen_ai.") else { continue };
        let mut body = event.get("attributes").map(attributes).unwrap_or_default();
        for key in ["body", "event.body", "gen_ai.event.content"] {
            let inner = match body.get(key) {
                Some(Value::String(text)) => serde_json::from_str(text).ok(),
                Some(other) => Some(other.clone()),
                None => None,
            };
            if let Some(Value::Object(inner)) = inner {
                body.extend(inner);
            }
        }
        if kind == "choice" {
            match body.get("message") {
                Some(Value::Object(message)) => body = message.clone(),
                Some(Value::String(text)) => {
                    if let Ok(Value::Object(message)) = serde_json::from_str(text) {
                        body = message;
                    }
                }
                _ => {}
            }
            body.insert("role".to_owned(), Value::from("assistant"));
            output.push(Value::Object(body));
        } else if let Some(role) = kind.strip_suffix(".message") {
            body.insert("role".to_owned(), Value::from(role));
            input.push(Value::Object(body));
        }
    }
    (!input.is_empty() || !output.is_empty()).then_some((input, output))
}

/// Messages in attributes that are numbered.
fn indexed(span: &Span) -> Option<Messages> {
    let one = |prefix: &str| -> Vec<Value> {
        let mut found: BTreeMap<usize, Vec<(&str, &Value)>> = BTreeMap::new();
        for (key, value) in &span.attributes {
            let Some((number, rest)) = key.strip_prefix(prefix).and_then(|rest| rest.split_once('.')) else { continue };
            if let Ok(number) = number.parse() {
                found.entry(number).or_default().push((rest.strip_prefix("message.").unwrap_or(rest), value));
            }
        }
        found.into_values().map(|members| Value::Object(nested(members))).collect()
    };
    let pairs = [("gen_ai.prompt.", "gen_ai.completion."), ("llm.input_messages.", "llm.output_messages.")];
    let found = pairs.map(|(input, output)| (one(input), one(output)));
    found.into_iter().find(|(input, output)| !input.is_empty() || !output.is_empty())
}

/// A message from members like `content` and `tool_calls.0.name`.
fn nested(members: Vec<(&str, &Value)>) -> Map<String, Value> {
    let mut message = Map::new();
    let mut calls: BTreeMap<usize, Map<String, Value>> = BTreeMap::new();
    let mut parts: BTreeMap<usize, Map<String, Value>> = BTreeMap::new();
    for (key, value) in members {
        let numbered = |prefix: &str| {
            let (number, rest) = key.strip_prefix(prefix)?.split_once('.')?;
            Some((number.parse::<usize>().ok()?, rest.rsplit('.').next().unwrap_or(rest)))
        };
        if let Some((number, member)) = numbered("tool_calls.") {
            calls.entry(number).or_default().insert(member.to_owned(), value.clone());
        } else if let Some((number, member)) = numbered("contents.") {
            parts.entry(number).or_default().insert(member.to_owned(), value.clone());
        } else {
            message.insert(key.to_owned(), value.clone());
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into_values().map(Value::Object).collect());
    }
    if !parts.is_empty() {
        message.insert("content".to_owned(), parts.into_values().map(Value::Object).collect());
    }
    message
}

/// The prompt of a span around calls: a text, a system text, messages.
fn from_prompt(prompt: &str) -> Vec<Value> {
    let Ok(Value::Object(mut prompt)) = serde_json::from_str::<Value>(prompt) else {
        return vec![message("user", Value::from(prompt))];
    };
    let mut messages = Vec::new();
    messages.extend(prompt.shift_remove("system").filter(|text| !text.is_null()).map(|text| message("system", text)));
    match prompt.shift_remove("messages") {
        Some(Value::Array(listed)) => messages.extend(listed),
        _ => messages.extend(
            prompt
                .shift_remove("prompt")
                .map(|content| match content {
                    Value::Array(listed) => listed,
                    text => vec![message("user", text)],
                })
                .into_iter()
                .flatten(),
        ),
    }
    messages
}

fn from_response(span: &Span) -> Vec<Value> {
    let mut parts = Vec::new();
    let text = |kind: &str, text: &str| {
        Value::Object(Map::from_iter([("type".to_owned(), Value::from(kind)), ("text".to_owned(), Value::from(text))]))
    };
    parts.extend(span.text(&["ai.response.reasoning"]).map(|reasoning| text("reasoning", reasoning)));
    parts.extend(span.text(&["ai.response.text", "ai.response.object"]).map(|said| text("text", said)));
    for mut call in span.list("ai.response.toolCalls").unwrap_or_default() {
        if let Some(call) = call.as_object_mut() {
            call.insert("type".to_owned(), Value::from("tool-call"));
        }
        parts.push(call);
    }
    if parts.is_empty() { Vec::new() } else { vec![message("assistant", Value::Array(parts))] }
}

/// Messages in any of the words above as turns.
fn turns(messages: Vec<Value>) -> Vec<Turn> {
    let mut turns = Vec::new();
    for message in messages {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
        let content = ["parts", "content"].iter().find_map(|key| message.get(*key).filter(|value| !value.is_null()));
        let mut said = Vec::new();
        let mut results = Vec::new();
        match content {
            Some(Value::Array(parts)) => parts.iter().for_each(|part| add_part(part, &mut said, &mut results)),
            Some(Value::String(text)) if !text.is_empty() => said.push(Said::Block(ContentBlock::text(text.as_str()))),
            Some(Value::String(_)) | None => {}
            Some(other) => said.push(Said::Block(block(other).0)),
        }
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            said.extend(said_call(call));
        }
        let blocks = |said: Vec<Said>| {
            let blocks = said.into_iter().filter_map(|part| match part {
                Said::Block(block) => Some(block),
                _ => None,
            });
            blocks.collect::<Vec<_>>()
        };
        match role {
            "system" | "developer" => turns.push(Turn::System(blocks(said))),
            "assistant" | "model" => turns.push(Turn::Assistant(said)),
            "tool" | "function" if results.is_empty() => {
                let text = |keys: &[&str]| keys.iter().find_map(|key| message.get(*key)?.as_str()).unwrap_or_default();
                results.push(Observation {
                    call_id: text(&["tool_call_id", "id"]).to_owned(),
                    tool_name: text(&["name"]).to_owned(),
                    content: blocks(said),
                    ..Observation::default()
                });
            }
            "tool" | "function" => {}
            _ if said.is_empty() && !results.is_empty() => {}
            _ => turns.push(Turn::User(blocks(said))),
        }
        turns.extend(results.into_iter().map(Turn::Result));
    }
    turns
}

fn add_part(part: &Value, said: &mut Vec<Said>, results: &mut Vec<Observation>) {
    let text = |keys: &[&str]| keys.iter().find_map(|key| part.get(*key)?.as_str());
    match text(&["type"]).unwrap_or_default() {
        "text" => match text(&["content", "text"]) {
            Some(text) => said.push(Said::Block(ContentBlock::text(text))),
            None => said.push(Said::Block(block(part).0)),
        },
        "reasoning" | "thinking" => {
            said.extend(text(&["content", "text", "thinking"]).map(|text| Said::Reasoning(text.to_owned())));
        }
        "tool_call" | "tool-call" => said.extend(said_call(part)),
        "tool_call_response" | "tool-result" => {
            let value = ["response", "result", "output"].iter().find_map(|key| part.get(*key));
            let is_error = part.get("isError").and_then(Value::as_bool) == Some(true)
                || part.pointer("/output/type").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("error"));
            results.push(Observation {
                call_id: text(&["id", "toolCallId"]).unwrap_or_default().to_owned(),
                tool_name: text(&["name", "toolName"]).unwrap_or_default().to_owned(),
                content: value.map(result_text).map(ContentBlock::text).into_iter().collect(),
                outcome: if is_error { Outcome::Error } else { Outcome::Ok },
                ..Observation::default()
            });
        }
        "blob" => match (text(&["mime_type"]), text(&["content", "data"])) {
            (Some(media), Some(data)) if media.starts_with("image/") => said.push(Said::Block(ContentBlock::Image {
                urls: vec![format!("data:{media};base64,{data}")],
                cache: false,
            })),
            _ => said.push(Said::Block(ContentBlock::Other { value: part.clone() })),
        },
        _ => said.push(Said::Block(block(part).0)),
    }
}

/// What a call gave, as text; typed outputs are unpacked.
fn result_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => match (other.get("type").and_then(Value::as_str), other.get("value")) {
            (Some("text" | "json" | "error-text" | "error-json" | "content"), Some(inner)) => result_text(inner),
            _ => other.to_string(),
        },
    }
}

fn said_call(call: &Value) -> Option<Said> {
    let from = call.get("function").filter(|function| function.is_object()).unwrap_or(call);
    let id = ["id", "toolCallId"].iter().find_map(|key| call.get(*key)?.as_str()).unwrap_or_default();
    let name = ["name", "toolName"].iter().find_map(|key| from.get(*key)?.as_str())?;
    let given = ["arguments", "input", "args"].iter().find_map(|key| from.get(*key)).cloned();
    Some(Said::Call(id.to_owned(), name.to_owned(), arguments(given)))
}

/// The result that a tool's own span tells.
fn tool_result(span: &Span) -> Option<Observation> {
    let call_id = span.text(&["gen_ai.tool.call.id", "ai.toolCall.id"])?.to_owned();
    let value =
        ["gen_ai.tool.call.result", "ai.toolCall.result", "output.value"].iter().find_map(|key| span.get(key))?;
    let is_error = span.value.pointer("/status/code").is_some_and(|code| code == 2 || code == "STATUS_CODE_ERROR");
    Some(Observation {
        call_id,
        tool_name: span.text(&["gen_ai.tool.name", "ai.toolCall.name", "tool.name"]).unwrap_or_default().to_owned(),
        content: vec![ContentBlock::text(result_text(value))],
        outcome: if is_error { Outcome::Error } else { Outcome::Ok },
        ..Observation::default()
    })
}
