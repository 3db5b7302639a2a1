//! LangChain messages in their three spellings, and LangSmith runs.
//!
//! Messages stand in a list, in `messages` of an object (a graph's state), or one a line: as constructors
//! (`lc: 1`), as `{type, data}`, or flat. A message is named by its id, else `m<i>`.
//!
//! | message | event |
//! | --- | --- |
//! | system | the system prompt where it is first, else a system message |
//! | human, and any other role | a user message |
//! | ai | an action a call, or a message; calls that stand in the content and in `tool_calls` count once |
//! | tool, function | an observation |
//! | remove | a condensation that forgets the message of that id, or all |
//!
//! `foreign` holds the rest of the message, `spelling` where it is not flat, and the whole `content` where its
//! blocks say more than the events do. What surrounds the messages is the event `file`.
//!
//! **Runs** (`run_type`, `dotted_order`) of one trace id are one trace in that order. Each run of a model repeats
//! the history: what is new becomes events, what is gone or changed a condensation. Each run is an unknown
//! event as well, as it was.

use std::collections::{BTreeSet, HashMap, HashSet};

use condenser::condensation::Condensation;
use condenser::event::{EventId, EventKind, Message, Observation, Outcome, Role, Source, SystemPrompt, Usage};
use serde_json::{Map, Value};

use crate::answer::{Answer, arguments};
use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{self, take_content, take_list, take_object, take_text};
use crate::history::{History, Said, Turn};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "langchain",
    description: "LangChain messages in their three spellings, a graph's state, LangSmith runs",
    sniff: |document| layout(document).is_some(),
    read,
};

/// So many records, or members of a list, are looked at.
const SNIFFED: usize = 50;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    List,
    State,
    Lines,
    Runs,
}

fn layout(document: &Document) -> Option<Layout> {
    let all = |values: Vec<&Value>, fits: fn(&Value) -> bool| {
        !values.is_empty() && values.into_iter().take(SNIFFED).all(fits)
    };
    match document.single() {
        Some(Value::Array(items)) if all(items.iter().collect(), is_run) => Some(Layout::Runs),
        Some(Value::Array(items)) => all(items.iter().collect(), is_message).then_some(Layout::List),
        Some(value) if is_run(value) => Some(Layout::Runs),
        Some(value) if is_message(value) => Some(Layout::Lines),
        Some(file) => {
            let messages = state(file)?.get("messages")?.as_array()?;
            all(messages.iter().collect(), is_message).then_some(Layout::State)
        }
        None => {
            let values: Vec<&Value> = document.records().iter().map(|record| &record.value).collect();
            if all(values.clone(), is_run) {
                return Some(Layout::Runs);
            }
            all(values, is_message).then_some(Layout::Lines)
        }
    }
}

/// The object that holds a graph's messages: the file, or its `values`.
fn state(file: &Value) -> Option<&Map<String, Value>> {
    match file.get("values") {
        Some(Value::Object(values)) if values.contains_key("messages") => Some(values),
        _ => file.as_object(),
    }
}

fn is_run(value: &Value) -> bool {
    value.get("run_type").is_some_and(Value::is_string) && value.get("inputs").is_some()
}

fn is_message(value: &Value) -> bool {
    const TYPES: [&str; 10] = [
        "human",
        "ai",
        "system",
        "tool",
        "function",
        "remove",
        "chat",
        "AIMessageChunk",
        "HumanMessageChunk",
        "developer",
    ];
    let kind = value.get("type").and_then(Value::as_str);
    if value.get("lc").is_some() && kind == Some("constructor") {
        return class(value).is_some_and(|class| class.contains("Message"));
    }
    kind.is_some_and(|kind| TYPES.contains(&kind))
        && (value.get("data").is_some_and(Value::is_object) || value.get("content").is_some() || kind == Some("remove"))
}

/// The class of a constructor.
fn class(value: &Value) -> Option<&str> {
    value.get("id")?.as_array()?.last()?.as_str()
}

/// A message, whichever way it was spelled.
struct Spelled {
    kind: &'static str,
    map: Map<String, Value>,
}

fn spelled(value: Value) -> Result<Spelled, Value> {
    if !is_message(&value) {
        return Err(value);
    }
    let class = class(&value).unwrap_or_default().to_owned();
    let Value::Object(mut outer) = value else { return Err(value) };
    let (mut map, spelling) = if outer.contains_key("lc") {
        (take_object(&mut outer, "kwargs").unwrap_or_default(), Some("constructor"))
    } else if let Some(data) = take_object(&mut outer, "data") {
        (data, Some("data"))
    } else {
        (std::mem::take(&mut outer), None)
    };
    let kind = map.get("type").and_then(Value::as_str).filter(|kind| *kind != "constructor");
    let kind = kind.or_else(|| outer.get("type")?.as_str().filter(|kind| *kind != "constructor"));
    let kind = match kind.unwrap_or(class.as_str()) {
        kind if kind.starts_with("ai") || kind.starts_with("AI") => "ai",
        kind if kind.starts_with("system") || kind.starts_with("System") || kind == "developer" => "system",
        kind if kind.starts_with("tool") || kind.starts_with("Tool") => "tool",
        kind if kind.starts_with("function") || kind.starts_with("Function") => "tool",
        kind if kind.starts_with("remove") || kind.starts_with("Remove") => "remove",
        _ => "human",
    };
    if let Some(spelling) = spelling {
        map.insert("spelling".to_owned(), Value::from(spelling));
        // The class path, and what else stood around the message.
        map.insert("outer".to_owned(), Value::Object(outer));
    }
    Ok(Spelled { kind, map })
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    let Some(layout) = layout(&document) else {
        return Err(document.unfit(FORMAT.name, "neither messages of LangChain nor runs of LangSmith"));
    };
    let diagnostics = std::mem::take(&mut document.diagnostics);
    let records = document.take_records();
    let mut builder = Builder::new(diagnostics);
    let values: Vec<(String, Value)> = match layout {
        Layout::State => {
            let Some(Value::Object(mut file)) = records.into_iter().next().map(|record| record.value) else {
                return Ok(Vec::new());
            };
            let is_inner = file.get("values").is_some_and(|values| values.get("messages").is_some());
            let holder = if is_inner { file.get_mut("values").and_then(Value::as_object_mut) } else { None };
            let messages = match holder {
                Some(values) => take_list(values, "messages"),
                None => take_list(&mut file, "messages"),
            };
            if !file.is_empty() {
                builder.begin("file", "file".to_owned(), None);
                builder.add_unknown(Source::Environment, "file", Value::Object(file));
            }
            let messages = messages.unwrap_or_default().into_iter().enumerate();
            messages.map(|(at, message)| (format!("messages[{at}]"), message)).collect()
        }
        _ => records
            .into_iter()
            .flat_map(|record| match record.value {
                Value::Array(items) => {
                    let items = items.into_iter().enumerate();
                    items.map(|(at, item)| (format!("[{at}]"), item)).collect::<Vec<_>>()
                }
                value => vec![(format!("line {}", record.line), value)],
            })
            .collect(),
    };
    if layout == Layout::Runs {
        return Ok(runs(values, &document, builder));
    }
    let records = values.len();
    // What a view could show of each record.
    let mut shown: HashMap<String, Vec<EventId>> = HashMap::new();
    for (at, (place, value)) in values.into_iter().enumerate() {
        let before = builder.events().len();
        add(&mut builder, at, place, value, &mut shown);
        for event in builder.events()[before..].iter().filter(|event| event.kind.is_shown()) {
            shown.entry(builder.record().as_str().to_owned()).or_default().push(event.id.clone());
        }
    }
    Ok(vec![builder.finish(document.name(), FORMAT.name, records)])
}

fn add(builder: &mut Builder, at: usize, place: String, value: Value, shown: &mut HashMap<String, Vec<EventId>>) {
    let Spelled { kind, mut map } = match spelled(value) {
        Ok(message) => message,
        Err(value) => {
            builder.begin(&format!("m{at}"), place.clone(), None);
            builder.note([Diagnostic::new(place, "no message of LangChain; kept as unknown")]);
            builder.add_unknown(Source::Environment, "message", value);
            return;
        }
    };
    let id = map.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned);
    if kind == "remove" {
        builder.begin(&format!("remove-{at}"), place, None);
        let forgotten_event_ids: BTreeSet<EventId> = match id.as_deref() {
            Some("__remove_all__") => shown.drain().flat_map(|(_, ids)| ids).collect(),
            Some(id) => shown.remove(id).unwrap_or_default().into_iter().collect(),
            None => BTreeSet::new(),
        };
        builder.add_condensation(Condensation { forgotten_event_ids, ..Condensation::default() }).foreign = map.into();
        return;
    }
    builder.begin(&id.unwrap_or_else(|| format!("m{at}")), place, None);
    let role = match kind {
        "ai" => return add_answer(builder, map),
        "tool" => {
            let observation = take_observation(&mut map);
            builder.add(Source::Environment, EventKind::Observation(observation)).foreign = map.into();
            return;
        }
        "system" if !builder.events().iter().any(|event| event.kind.is_shown()) => {
            let content = take_content(&mut map, "content", block);
            let prompt = SystemPrompt { content, ..SystemPrompt::default() };
            builder.add(Source::Environment, EventKind::SystemPrompt(prompt)).foreign = map.into();
            return;
        }
        "system" => Role::System,
        _ => Role::User,
    };
    let source = if role == Role::User { Source::User } else { Source::Environment };
    let content = take_content(&mut map, "content", block);
    let message = Message { content, name: take_text(&mut map, "name"), ..Message::text(role, "") };
    builder.add(source, EventKind::Message(message)).foreign = map.into();
}

fn take_observation(map: &mut Map<String, Value>) -> Observation {
    let is_error = map.get("status").and_then(Value::as_str) == Some("error");
    Observation {
        call_id: take_text(map, "tool_call_id").unwrap_or_default(),
        tool_name: take_text(map, "name").unwrap_or_default(),
        content: take_content(map, "content", block),
        outcome: if is_error { Outcome::Error } else { Outcome::Ok },
        ..Observation::default()
    }
}

/// What an answer says, in order. Its content stays where its blocks say more.
fn take_said(map: &mut Map<String, Value>) -> Vec<(Said, Map<String, Value>)> {
    let mut calls: Vec<Map<String, Value>> = Vec::new();
    for key in ["tool_calls", "invalid_tool_calls"] {
        let listed = map.get(key).and_then(Value::as_array).is_some_and(|calls| calls.iter().all(Value::is_object));
        if listed {
            calls.extend(take_list(map, key).unwrap_or_default().into_iter().filter_map(|call| match call {
                Value::Object(call) => Some(call),
                _ => None,
            }));
        }
    }
    let mut said = Vec::new();
    match take_list(map, "content") {
        None => {
            let content = take_content(map, "content", block);
            said.extend(content.into_iter().map(|block| (Said::Block(block), Map::new())));
        }
        Some(parts) => {
            let raw = parts.clone();
            let mut is_exact = true;
            for part in parts {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
                if matches!(kind, "tool_use" | "tool_call" | "function_call" | "input_json_delta") {
                    let id = ["id", "call_id"].iter().find_map(|key| part.get(*key)?.as_str());
                    let place = calls.iter().position(|call| call.get("id").and_then(Value::as_str) == id);
                    match (place, part) {
                        (Some(place), _) => said.push(said_call(calls.remove(place))),
                        (None, Value::Object(call)) if call.contains_key("name") => said.push(said_call(call)),
                        (None, _) => is_exact = false,
                    }
                    continue;
                }
                let reasoning = match kind {
                    "reasoning" => part.get("reasoning").or_else(|| part.get("text")).and_then(Value::as_str),
                    _ => None,
                };
                if let Some(reasoning) = reasoning {
                    is_exact = false;
                    said.push((Said::Reasoning(reasoning.to_owned()), Map::new()));
                    continue;
                }
                let (converted, exact) = block(&part);
                is_exact &= exact;
                said.push((Said::Block(converted), Map::new()));
            }
            if !is_exact {
                map.insert("content".to_owned(), Value::Array(raw));
            }
        }
    }
    said.extend(calls.into_iter().map(said_call));
    said
}

fn said_call(mut call: Map<String, Value>) -> (Said, Map<String, Value>) {
    let id = take_text(&mut call, "id").unwrap_or_default();
    let name = take_text(&mut call, "name").unwrap_or_default();
    let given = ["args", "input", "arguments"].iter().find_map(|key| call.shift_remove(*key));
    (Said::Call(id, name, arguments(given)), call)
}

fn add_answer(builder: &mut Builder, mut map: Map<String, Value>) {
    let response = response_id(&map).unwrap_or_else(|| builder.record().as_str().to_owned());
    let usage = usage(&map);
    let record = builder.record().as_str().to_owned();
    let mut answer = Answer::new(response);
    for (at, (said, rest)) in take_said(&mut map).into_iter().enumerate() {
        match said {
            Said::Block(block) => answer.say([block]),
            Said::Reasoning(text) => answer.reason(text),
            Said::Call(id, name, arguments) => {
                let id = if id.is_empty() { format!("{record}-call-{at}") } else { id };
                answer.call(id, name, arguments, Map::from_iter([("tool_call".to_owned(), Value::Object(rest))]));
            }
        }
    }
    answer.add_to(builder, usage, map);
}

fn response_id(map: &Map<String, Value>) -> Option<String> {
    let id = map.get("response_metadata").and_then(|data| data.get("id")?.as_str()).filter(|id| !id.is_empty());
    id.map(str::to_owned)
}

/// Figures of an answer: in LangChain's words, whose input includes the cache, else in the provider's.
fn usage(map: &Map<String, Value>) -> Option<Usage> {
    let data = map.get("response_metadata");
    let model = data.and_then(|data| data.get("model_name").or_else(|| data.get("model"))?.as_str());
    if let Some(figures) = map.get("usage_metadata").filter(|figures| figures.is_object()) {
        let count = |pointer: &str| figures.pointer(pointer).and_then(Value::as_u64);
        let (read, write) = (count("/input_token_details/cache_read"), count("/input_token_details/cache_creation"));
        let cached = read.unwrap_or(0).saturating_add(write.unwrap_or(0));
        return Some(Usage {
            input_tokens: Some(count("/input_tokens")?.saturating_sub(cached)),
            cache_read_tokens: read,
            cache_write_tokens: write,
            output_tokens: count("/output_tokens"),
            model: model.map(str::to_owned),
        });
    }
    let figures = data.and_then(|data| data.get("token_usage").or_else(|| data.get("usage")))?;
    fields::usage(figures, model).or_else(|| fields::anthropic_usage(figures, model))
}

/// Runs by their trace, in their order.
fn runs(values: Vec<(String, Value)>, document: &Document, builder: Builder) -> Vec<Trace> {
    let records = values.len();
    let text = |run: &Value, key: &str| run.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut order: Vec<String> = Vec::new();
    let mut groups: HashMap<String, Vec<(String, Value)>> = HashMap::new();
    for (place, run) in values {
        let trace_id = text(&run, "trace_id");
        if !groups.contains_key(&trace_id) {
            order.push(trace_id.clone());
        }
        groups.entry(trace_id).or_default().push((place, run));
    }
    let is_one = order.len() == 1;
    let mut first = Some(builder);
    let mut traces = Vec::new();
    for (row, trace_id) in order.into_iter().enumerate() {
        let mut runs = groups.remove(&trace_id).unwrap_or_default();
        runs.sort_by_key(|(_, run)| (text(run, "dotted_order"), text(run, "start_time")));
        let mut builder = first.take().unwrap_or_else(|| Builder::new(Vec::new()));
        let mut history = History::default();
        let mut seen = HashSet::new();
        for (place, run) in runs {
            let id = text(&run, "id");
            let id = if id.is_empty() { place.clone() } else { id };
            let is_new = seen.insert(id.clone());
            let time = run.get("start_time").and_then(Value::as_str).map(str::to_owned);
            let call = (is_new && text(&run, "run_type") == "llm").then(|| (sent(&run), got(&run)));
            builder.begin(&id, place.clone(), time.clone());
            let kind = format!("run/{}", text(&run, "run_type"));
            builder.add_unknown(Source::Environment, &kind, run);
            let Some((input, output)) = call else { continue };
            builder.begin(&format!("{id}/1"), place.clone(), time.clone());
            history.request(&mut builder, input);
            if let Some((turn, response, usage)) = output {
                builder.begin(&format!("{id}/2"), place, time);
                let at = builder.events().len();
                history.answer(&mut builder, turn, &response.unwrap_or(id), Map::new());
                if let Some(usage) = usage {
                    builder.set_usage_of(at, usage);
                }
            }
        }
        let name = if is_one { document.name() } else { document.row_name(row) };
        traces.push(Trace { session: Some(trace_id), ..builder.finish(name, FORMAT.name, records) });
    }
    traces
}

/// The messages a model was sent.
fn sent(run: &Value) -> Vec<Turn> {
    let messages = run.get("inputs").and_then(|inputs| inputs.get("messages")?.as_array());
    let messages = match messages.map(Vec::as_slice) {
        // A batch of one.
        Some([Value::Array(inner)]) => inner.as_slice(),
        Some(messages) => messages,
        None => return Vec::new(),
    };
    messages.iter().filter_map(|message| turn(message.clone())).collect()
}

type Got = (Turn, Option<String>, Option<Usage>);

/// The message a model answered with.
fn got(run: &Value) -> Option<Got> {
    let outputs = run.get("outputs")?;
    let message = outputs
        .pointer("/generations/0/0/message")
        .or_else(|| outputs.pointer("/generations/0/message"))
        .or_else(|| outputs.pointer("/choices/0/message"))
        .or_else(|| outputs.get("output"))
        .or_else(|| outputs.get("message"))
        .or(Some(outputs))
        .filter(|message| is_message(message) || message.get("role").is_some())?;
    let (response, usage) = match spelled(message.clone()) {
        Ok(Spelled { map, .. }) => (response_id(&map), usage(&map)),
        Err(_) => (None, None),
    };
    Some((turn(message.clone())?, response, usage))
}

fn turn(message: Value) -> Option<Turn> {
    let Spelled { kind, mut map } = match spelled(message) {
        Ok(message) => message,
        // Some tracers write the provider's own messages.
        Err(Value::Object(map)) => {
            let kind = match map.get("role").and_then(Value::as_str)? {
                "assistant" => "ai",
                "system" | "developer" => "system",
                "tool" => "tool",
                _ => "human",
            };
            Spelled { kind, map }
        }
        Err(_) => return None,
    };
    Some(match kind {
        "ai" => {
            // OpenAI's calls hold their name and arguments one level down.
            for call in map.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(call) = call.as_object_mut()
                    && let Some(function) = take_object(call, "function")
                {
                    call.extend(function);
                }
            }
            Turn::Assistant(take_said(&mut map).into_iter().map(|(said, _)| said).collect())
        }
        "tool" => Turn::Result(take_observation(&mut map)),
        "system" => Turn::System(take_content(&mut map, "content", block)),
        _ => Turn::User(take_content(&mut map, "content", block)),
    })
}
