//! OpenAI chat messages: a list, a message a line, dataset rows, logged requests, stored completions.
//!
//! Message `i` becomes the event `m<i>`, and with several calls `m<i>#1`, `m<i>#2`, … as well. What surrounds
//! the messages is the event `row`; tools without a system message are the event `tools`.
//!
//! Beside members of the message that have no place in an event, `foreign` holds: `role` where it is
//! `developer` or `function`; `content_shape` `list` where content was a list of parts; `tool_call` with what
//! is left of a call, its id included where `made_up_call_id` says that the event has another;
//! `name_from_call` where a result did not name its tool; `call_shape` `function_call` for the old form;
//! `reasoning_key` where reasoning was not called `reasoning_content`. That of `row` says where in it the messages, the
//! tools and the answer stood.

use condenser::event::{Event, EventKind, Origin, Source, SystemPrompt, Unknown};
use serde_json::{Map, Value};

use crate::fields::{self, take_list, take_text};
use crate::json::Found;
use crate::reader::{Out, Records, Stream, read_values};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

pub(crate) mod messages;

use messages::{Mapper, Response};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: NAME,
    description: "OpenAI chat messages: a list, JSON lines, dataset rows, logged requests, stored completions",
    sniff: |document| layout(document).is_some(),
    read,
};

const NAME: &str = "openai-chat";

/// So many records, or members of a list, are looked at.
const SNIFFED: usize = 50;

/// Where the messages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
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
        Some(value) if is_message_value(value) => Some(Layout::Lines),
        Some(value) if !has_messages(value) => None,
        Some(value) if value.get("messages").is_some() && task(value).is_none() => Some(Layout::Log),
        Some(_) => Some(Layout::Rows),
        None => of_many(document.records().iter().map(|record| &record.value), Layout::Lines),
    }
}

fn of_many<'a>(values: impl Iterator<Item = &'a Value> + Clone, if_messages: Layout) -> Option<Layout> {
    values.clone().next()?;
    if are_messages(values.clone()) {
        return Some(if_messages);
    }
    let head = || values.clone().take(SNIFFED);
    let n_rows = head().filter(|value| messages_key(value).is_some()).count();
    let is_rows = n_rows * 2 > head().count() && head().any(has_messages);
    (is_rows && !values.clone().any(has_foreign_messages)).then_some(Layout::Rows)
}

/// Whether values are one conversation: most are messages, and what is not is no message of another format.
///
/// All are looked at: a call in Anthropic's words may come late.
fn are_messages<'a>(values: impl Iterator<Item = &'a Value>) -> bool {
    let (mut n_messages, mut n_others) = (0, 0);
    for value in values {
        match value.as_object() {
            Some(map) if is_message(map) => n_messages += 1,
            Some(map) if map.get("role").is_some_and(is_role) && is_anthropic(map) => return false,
            _ => n_others += 1,
        }
    }
    n_messages > n_others
}

fn is_message_value(value: &Value) -> bool {
    value.as_object().is_some_and(is_message)
}

/// Whether an object is a chat message, and not one in Anthropic's words.
fn is_message(value: &Map<String, Value>) -> bool {
    let has_body = ["content", "tool_calls", "function_call", "content_parts", "refusal"]
        .iter()
        .any(|key| value.contains_key(*key));
    value.get("role").is_some_and(is_role) && has_body && value.get("type").is_none() && !is_anthropic(value)
}

fn is_role(role: &Value) -> bool {
    const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
    role.as_str().is_some_and(|role| ROLES.contains(&role))
}

fn is_anthropic(message: &Map<String, Value>) -> bool {
    let blocks = message.get("content").and_then(Value::as_array);
    blocks.into_iter().flatten().any(|block| {
        block.get("type").and_then(Value::as_str).is_some_and(|kind| ["tool_use", "tool_result"].contains(&kind))
    })
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
        Value::Array(messages) => are_messages(messages.iter()),
        Value::String(text) => text.contains("\"role\""),
        _ => false,
    })
}

fn has_foreign_messages(value: &Value) -> bool {
    messages_key(value).is_some_and(|key| {
        value[key].as_array().is_some_and(|messages| !messages.is_empty() && !are_messages(messages.iter()))
    })
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
    let layout = layout(&document);
    let is_one = matches!(document.records(), [_]);
    if !is_one || layout == Some(Layout::Lines) {
        return read_values(document, NAME, open);
    }
    let Some(layout) = layout else { return Err(document.unfit(NAME, NO_MESSAGES)) };
    let diagnostics = std::mem::take(&mut document.diagnostics);
    let Some(value) = document.take_records().pop().map(|record| record.value) else { return Ok(Vec::new()) };
    let items = match value {
        Value::Array(items) => items,
        value => {
            // A logged request, or a file of one row.
            let name = if layout == Layout::Log { document.name() } else { document.row_name(0) };
            let (trace, n_messages) =
                row(&value_place(layout, 1), layout, value).map_err(|reason| document.unfit(NAME, reason))?;
            let records = if layout == Layout::Log { n_messages } else { 1 };
            let diagnostics = diagnostics.into_iter().chain(trace.diagnostics).collect();
            return Ok(vec![Trace { name, records, diagnostics, ..trace }]);
        }
    };
    let records = items.len() as u64;
    if layout == Layout::List {
        let mut mapper = Mapper::new(Vec::new(), diagnostics);
        items
            .into_iter()
            .enumerate()
            .for_each(|(at, message)| mapper.add_any(&format!("messages[{at}]"), message, None));
        let (events, diagnostics) = mapper.finish();
        return Ok(vec![Trace { name: document.name(), events, records, diagnostics, ..empty() }]);
    }
    let (mut traces, mut early) = (Vec::new(), diagnostics);
    for (at, value) in items.into_iter().enumerate() {
        let place = format!("row[{at}]");
        match row(&place, layout, value) {
            Ok((mut trace, _)) => {
                trace.diagnostics.splice(0..0, early.drain(..));
                traces.push(Trace { name: document.row_name(at), records, ..trace });
            }
            Err(reason) => early.push(Diagnostic::new(place, format!("{reason}; the row is left out"))),
        }
    }
    match traces.first_mut() {
        Some(first) => first.diagnostics.append(&mut early),
        None => return Err(document.unfit(NAME, "no row holds chat messages")),
    }
    Ok(traces)
}

const NO_MESSAGES: &str = "there is no list of chat messages";

fn value_place(layout: Layout, line: u64) -> String {
    if layout == Layout::Log { String::new() } else { format!("line {line}") }
}

fn empty() -> Trace {
    Trace {
        name: String::new(),
        format: NAME,
        task: None,
        session: None,
        parent: None,
        events: Vec::new(),
        records: 0,
        diagnostics: Vec::new(),
    }
}

/// Begins to read messages or rows, a record each.
pub(crate) fn open(_: &Records<'_>, head: &Document, out: &mut Out) -> Result<Box<dyn Stream>, ReadError> {
    match layout(head) {
        Some(Layout::List | Layout::Lines) => {
            out.begin(Trace { name: head.name(), ..empty() });
            Ok(Box::new(Mapper::new(Vec::new(), Vec::new())))
        }
        Some(Layout::Rows | Layout::Log) => Ok(Box::new(Rows { document: head.name(), n_rows: 0 })),
        None => Err(head.unfit(NAME, NO_MESSAGES)),
    }
}

/// One conversation, a message a record.
impl Stream for Mapper {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        self.add_any(&format!("line {}", found.line), found.node.into_value(), None);
        self.drain(out);
    }

    fn finish(&mut self, _: &mut Out) {}
}

/// A conversation a record.
struct Rows {
    document: String,
    n_rows: usize,
}

impl Stream for Rows {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        let place = format!("line {}", found.line);
        match row(&place, Layout::Rows, found.node.into_value()) {
            Ok((trace, _)) => out.trace(Trace { name: format!("{}#{}", self.document, self.n_rows), ..trace }),
            Err(reason) => out.note_file(Diagnostic::new(place, format!("{reason}; the row is left out"))),
        }
        self.n_rows += 1;
    }

    fn finish(&mut self, _: &mut Out) {}
}

/// One row or log as a trace without a name, and how many messages it holds; or why it is none.
pub(crate) fn row(place: &str, layout: Layout, value: Value) -> Result<(Trace, u64), String> {
    let task = task(&value);
    let (Some(key), Value::Object(mut map)) = (messages_key(&value), value) else {
        return Err("no list of chat messages".to_owned());
    };
    let is_text = map.get(key).is_some_and(Value::is_string);
    let messages = match map.get(key) {
        Some(Value::String(text)) => serde_json::from_str(text).ok(),
        Some(Value::Null) => Some(Vec::new()),
        _ => take_list(&mut map, key),
    };
    let is_usable = |messages: &Vec<Value>| messages.is_empty() || are_messages(messages.iter());
    let Some(messages) = messages.filter(is_usable) else {
        return Err(format!("`{key}` is no list of chat messages"));
    };
    // The list is what the events are made of; the rest of the row is kept.
    map.shift_remove(key);
    let n_messages = messages.len() as u64;
    let place = |at: usize| match layout {
        Layout::Log => format!("{key}[{at}]"),
        _ => format!("{place} {key}[{at}]"),
    };
    let mut shape = Map::new();
    shape.insert("messages_key".to_owned(), Value::from(key));
    if is_text {
        shape.insert("messages_shape".to_owned(), Value::from("string"));
    }
    let (events, diagnostics) = conversation(map, shape, messages, place);
    Ok((Trace { task, events, diagnostics, ..empty() }, n_messages))
}

/// The events of one row or log: what surrounds the messages, the messages, and the answer beside them.
fn conversation(
    mut rest: Map<String, Value>,
    mut shape: Map<String, Value>,
    mut messages: Vec<Value>,
    place: impl Fn(usize) -> String,
) -> (Vec<Event>, Vec<Diagnostic>) {
    let tools = take_tools(&mut rest, &mut shape);
    let response = answer(&rest).map(|(answer, response)| {
        if !messages.last().is_some_and(|last| same(last, answer)) {
            messages.push(answer.clone());
            shape.insert("answer".to_owned(), Value::from("last"));
        }
        response
    });
    if shape.contains_key("answer") {
        take_answer(&mut rest);
    }
    let mut response = response;
    let starts_with_system =
        messages.first().is_some_and(|first| matches!(first["role"].as_str(), Some("system" | "developer")));

    let mut lead = Vec::new();
    let new = |id: &str, source, kind| Event {
        origin: Some(Origin { record: id.to_owned(), part: 0 }),
        ..Event::new(id, source, kind)
    };
    let unknown = Unknown { foreign_kind: "row".to_owned(), payload: Value::Object(rest) };
    lead.push(Event { foreign: shape.into(), ..new("row", Source::Environment, EventKind::Unknown(unknown)) });
    let mut mapper = if starts_with_system || tools.is_empty() {
        Mapper::new(tools, Vec::new())
    } else {
        let prompt = SystemPrompt { tools, ..SystemPrompt::default() };
        lead.push(new("tools", Source::Agent, EventKind::SystemPrompt(prompt)));
        Mapper::new(Vec::new(), Vec::new())
    };
    let last = messages.len().saturating_sub(1);
    for (at, message) in messages.into_iter().enumerate() {
        let response = if at == last { response.take() } else { None };
        mapper.add_any(&place(at), message, response);
    }
    let (events, diagnostics) = mapper.finish();
    lead.extend(events);
    (lead, diagnostics)
}

/// Tool schemas beside the messages; some columns hold them as JSON text.
fn take_tools(rest: &mut Map<String, Value>, shape: &mut Map<String, Value>) -> Vec<Value> {
    for key in ["tools", "functions"] {
        let text = take_text(rest, key);
        let tools = match &text {
            Some(text) => serde_json::from_str(text).ok(),
            None => take_list(rest, key),
        };
        match (tools, text) {
            (Some(tools), text) => {
                shape.insert("tools_key".to_owned(), Value::from(key));
                if text.is_some() {
                    shape.insert("tools_shape".to_owned(), Value::from("string"));
                }
                return tools;
            }
            (None, Some(text)) => drop(rest.insert(key.to_owned(), Value::from(text))),
            (None, None) => {}
        }
    }
    rest.get("kwargs").and_then(|kwargs| kwargs.get("tools")?.as_array()).cloned().unwrap_or_default()
}

/// The first choice of a response beside the messages, with the response's id and usage.
fn answer(rest: &Map<String, Value>) -> Option<(&Value, Response)> {
    let response = match rest.get("response") {
        Some(Value::Object(response)) => response,
        _ => rest,
    };
    let message = response.get("choices")?.as_array()?.first()?.get("message")?;
    let model = response.get("model").and_then(Value::as_str);
    let usage = response.get("usage").and_then(|figures| fields::usage(figures, model));
    let id = response.get("id").and_then(Value::as_str).map(str::to_owned);
    is_message_value(message).then_some((message, Response { id, usage }))
}

fn take_answer(rest: &mut Map<String, Value>) -> Option<Value> {
    let response = match rest.get_mut("response") {
        Some(Value::Object(response)) => response,
        _ => rest,
    };
    response.get_mut("choices")?.as_array_mut()?.first_mut()?.as_object_mut()?.shift_remove("message")
}

/// Whether two assistant messages say and call the same.
fn same(a: &Value, b: &Value) -> bool {
    let ids = |message: &Value| -> Vec<Value> {
        let calls = message.get("tool_calls").and_then(Value::as_array);
        calls.into_iter().flatten().filter_map(|call| call.get("id").cloned()).collect()
    };
    a.get("role") == b.get("role") && a.get("content") == b.get("content") && ids(a) == ids(b)
}
