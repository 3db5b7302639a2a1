//! OpenAI chat messages: a list, a message a line, dataset rows, logged requests, stored completions.
//!
//! Message `i` becomes the event `m<i>`, and with several calls `m<i>#1`, `m<i>#2`, … as well. What surrounds
//! the messages is the event `row`; tools without a system message are the event `tools`.
//!
//! Beside members of the message that have no place in an event, `foreign` holds: `role` where it is
//! `developer` or `function`; `content_shape` `list` where content was a list of parts; `tool_call` with what
//! is left of a call, its id included where `made_up_call_id` says that the event has another;
//! `name_from_call` where a result did not name its tool; `call_shape` `function_call` for the old form.

use condenser::event::{Event, EventKind, Origin, Source, SystemPrompt, Unknown};
use serde_json::{Map, Value};

use crate::fields::{self, take_list, take_text};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

pub(crate) mod messages;

use messages::{Mapper, Response};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "openai-chat",
    description: "OpenAI chat messages: a list, JSON lines, dataset rows, logged requests, stored completions",
    sniff: |document| layout(document).is_some(),
    read,
};

/// So many records, or members of a list, are looked at.
const SNIFFED: usize = 50;

/// Where the messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// The file is a list of messages.
    List,
    /// Each record is a message.
    Lines,
    /// The file is an object with messages: a logged request, a stored completion.
    Log,
    /// Each record, or each member of a list, is an object with messages.
    Rows,
}

fn layout(document: &Document) -> Option<Layout> {
    match document.single() {
        Some(Value::Array(items)) => of_many(items.iter(), Layout::List),
        Some(value) if is_message(value) => Some(Layout::Lines),
        Some(value) if !has_messages(value) => None,
        Some(value) if value.get("messages").is_some() && task(value).is_none() => Some(Layout::Log),
        Some(_) => Some(Layout::Rows),
        None => of_many(document.records().iter().map(|record| &record.value), Layout::Lines),
    }
}

fn of_many<'a>(values: impl Iterator<Item = &'a Value> + Clone, if_messages: Layout) -> Option<Layout> {
    values.clone().next()?;
    // All of them: a call in Anthropic's words may come late.
    if values.clone().all(is_message) {
        return Some(if_messages);
    }
    let head = || values.clone().take(SNIFFED);
    let n_rows = head().filter(|value| messages_key(value).is_some()).count();
    let is_rows = n_rows * 2 > head().count() && head().any(has_messages);
    (is_rows && !values.clone().any(has_foreign_messages)).then_some(Layout::Rows)
}

/// Whether a value is a chat message, and not one in Anthropic's words.
fn is_message(value: &Value) -> bool {
    const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
    let is_role = value.get("role").and_then(Value::as_str).is_some_and(|role| ROLES.contains(&role));
    let has_body = ["content", "tool_calls", "function_call", "content_parts", "refusal"]
        .iter()
        .any(|key| value.get(key).is_some());
    let blocks = value.get("content").and_then(Value::as_array);
    let is_anthropic = blocks.into_iter().flatten().any(|block| {
        block.get("type").and_then(Value::as_str).is_some_and(|kind| ["tool_use", "tool_result"].contains(&kind))
    });
    is_role && has_body && value.get("type").is_none() && !is_anthropic
}

/// The member of a row or log that holds its messages.
fn messages_key(value: &Value) -> Option<&'static str> {
    const KEYS: [&str; 4] = ["messages", "traj", "trajectory", "conversations"];
    // Objects of other formats that hold messages as well.
    const OTHERS: [&str; 5] = ["sessionId", "system", "system_prompt", "trajectory_format", "history"];
    let map = value.as_object()?;
    let key = KEYS.into_iter().find(|key| {
        map.get(*key).is_some_and(|messages| match messages {
            Value::Array(_) | Value::Null => true,
            Value::String(text) => text.trim_start().starts_with('['),
            _ => false,
        })
    })?;
    (!OTHERS.iter().any(|other| map.contains_key(*other))).then_some(key)
}

fn has_messages(value: &Value) -> bool {
    messages_key(value).is_some_and(|key| match &value[key] {
        Value::Array(messages) => !messages.is_empty() && messages.iter().all(is_message),
        Value::String(text) => text.contains("\"role\""),
        _ => false,
    })
}

fn has_foreign_messages(value: &Value) -> bool {
    messages_key(value)
        .is_some_and(|key| value[key].as_array().is_some_and(|messages| !messages.iter().all(is_message)))
}

/// The task of a row, where it names one.
fn task(row: &Value) -> Option<String> {
    ["instance_id", "task_id", "trajectory_id", "traj_id"].iter().find_map(|key| match row.get(*key)? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    })
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    let Some(layout) = layout(&document) else {
        return Err(document.unfit(FORMAT.name, "there is no list of chat messages"));
    };
    let diagnostics = std::mem::take(&mut document.diagnostics);
    let mut records = document.take_records();
    let values: Vec<(String, Value)> = match (records.as_mut_slice(), layout) {
        ([record], Layout::List | Layout::Rows) if record.value.is_array() => {
            let Value::Array(items) = record.value.take() else { return Ok(Vec::new()) };
            let name = if layout == Layout::Rows { "row" } else { "messages" };
            items.into_iter().enumerate().map(|(at, item)| (format!("{name}[{at}]"), item)).collect()
        }
        _ => records.into_iter().map(|record| (format!("line {}", record.line), record.value)).collect(),
    };
    if matches!(layout, Layout::List | Layout::Lines) {
        let records = values.len() as u64;
        let mut mapper = Mapper::new(Vec::new(), diagnostics);
        values.into_iter().for_each(|(place, message)| mapper.add(&place, message, None));
        let (events, diagnostics) = mapper.finish();
        return Ok(vec![Trace {
            name: document.name(),
            format: FORMAT.name,
            task: None,
            session: None,
            parent: None,
            events,
            records,
            diagnostics,
        }]);
    }
    read_rows(&document, layout, values, diagnostics)
}

fn read_rows(
    document: &Document,
    layout: Layout,
    rows: Vec<(String, Value)>,
    mut diagnostics: Vec<Diagnostic>,
) -> Result<Vec<Trace>, ReadError> {
    let n_rows = rows.len() as u64;
    let mut traces: Vec<Trace> = Vec::new();
    for (row, (place, value)) in rows.into_iter().enumerate() {
        let task = task(&value);
        let key = messages_key(&value);
        let (Some(key), Value::Object(mut map)) = (key, value) else {
            diagnostics.push(Diagnostic::new(place, "a row without messages; left out"));
            continue;
        };
        let messages = match map.get(key) {
            Some(Value::String(text)) => serde_json::from_str(text).ok(),
            Some(Value::Null) => Some(Vec::new()),
            _ => take_list(&mut map, key),
        };
        let Some(messages) = messages.filter(|messages: &Vec<Value>| messages.iter().all(is_message)) else {
            diagnostics
                .push(Diagnostic::new(place, format!("`{key}` is no list of chat messages; the row is left out")));
            continue;
        };
        // The list is what the events are made of; the rest of the row is kept.
        map.shift_remove(key);
        let records = if layout == Layout::Log { messages.len() as u64 } else { n_rows };
        let place = |at: usize| match layout {
            Layout::Log => format!("{key}[{at}]"),
            _ => format!("{place} {key}[{at}]"),
        };
        let (events, found) = conversation(map, messages, place, std::mem::take(&mut diagnostics));
        let name = if layout == Layout::Log { document.name() } else { document.row_name(row) };
        traces.push(Trace { name, format: FORMAT.name, task, session: None, parent: None, events, records, diagnostics: found });
    }
    match traces.first_mut() {
        Some(first) => first.diagnostics.append(&mut diagnostics),
        None => return Err(document.unfit(FORMAT.name, "no row holds chat messages")),
    }
    Ok(traces)
}

/// The events of one row or log: what surrounds the messages, the messages, and the answer beside them.
fn conversation(
    mut rest: Map<String, Value>,
    mut messages: Vec<Value>,
    place: impl Fn(usize) -> String,
    diagnostics: Vec<Diagnostic>,
) -> (Vec<Event>, Vec<Diagnostic>) {
    let tools = take_tools(&mut rest);
    let mut response = None;
    if let Some((answer, its_response)) = take_answer(&mut rest) {
        if !messages.last().is_some_and(|last| same(last, &answer)) {
            messages.push(answer);
        }
        response = Some(its_response);
    }
    let starts_with_system =
        messages.first().is_some_and(|first| matches!(first["role"].as_str(), Some("system" | "developer")));

    let mut lead = Vec::new();
    let new = |id: &str, source, kind| Event {
        origin: Some(Origin { record: id.to_owned(), part: 0 }),
        ..Event::new(id, source, kind)
    };
    if !rest.is_empty() {
        let unknown = Unknown { foreign_kind: "row".to_owned(), payload: Value::Object(rest) };
        lead.push(new("row", Source::Environment, EventKind::Unknown(unknown)));
    }
    let mut mapper = if starts_with_system || tools.is_empty() {
        Mapper::new(tools, diagnostics)
    } else {
        let prompt = SystemPrompt { tools, ..SystemPrompt::default() };
        lead.push(new("tools", Source::Agent, EventKind::SystemPrompt(prompt)));
        Mapper::new(Vec::new(), diagnostics)
    };
    let last = messages.len().saturating_sub(1);
    for (at, message) in messages.into_iter().enumerate() {
        let response = if at == last { response.take() } else { None };
        mapper.add(&place(at), message, response);
    }
    let (events, diagnostics) = mapper.finish();
    lead.extend(events);
    (lead, diagnostics)
}

/// Tool schemas beside the messages; some columns hold them as JSON text.
fn take_tools(rest: &mut Map<String, Value>) -> Vec<Value> {
    for key in ["tools", "functions"] {
        if let Some(tools) = take_list(rest, key) {
            return tools;
        }
        if let Some(text) = take_text(rest, key) {
            match serde_json::from_str(&text) {
                Ok(tools) => return tools,
                Err(_) => drop(rest.insert(key.to_owned(), Value::from(text))),
            }
        }
    }
    rest.get("kwargs").and_then(|kwargs| kwargs.get("tools")?.as_array()).cloned().unwrap_or_default()
}

/// The first choice of a response beside the messages, with the response's id and usage.
fn take_answer(rest: &mut Map<String, Value>) -> Option<(Value, Response)> {
    let response = match rest.get_mut("response") {
        Some(Value::Object(response)) => response,
        _ => rest,
    };
    let choice = response.get_mut("choices")?.as_array_mut()?.first_mut()?;
    if !is_message(choice.get("message")?) {
        return None;
    }
    let message = choice.as_object_mut()?.shift_remove("message")?;
    let model = response.get("model").and_then(Value::as_str);
    let usage = response.get("usage").and_then(|figures| fields::usage(figures, model));
    let id = response.get("id").and_then(Value::as_str).map(str::to_owned);
    Some((message, Response { id, usage }))
}

/// Whether two assistant messages say and call the same.
fn same(a: &Value, b: &Value) -> bool {
    let ids = |message: &Value| -> Vec<Value> {
        let calls = message.get("tool_calls").and_then(Value::as_array);
        calls.into_iter().flatten().filter_map(|call| call.get("id").cloned()).collect()
    };
    a.get("role") == b.get("role") && a.get("content") == b.get("content") && ids(a) == ids(b)
}
