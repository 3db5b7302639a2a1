//! SWE-agent trajectories: one JSON object with `history`, and as a rule `trajectory` and `info`.
//!
//! The conversation is `history`; its items are the records, called `history-<n>`.
//!
//! | item | event |
//! | --- | --- |
//! | role system | the system prompt |
//! | a demonstration (`is_demo`, or `message_type` demonstration) | a user message, whatever its role: it is part of the prompt |
//! | role assistant with `tool_calls` | an action a call, with the content as thought |
//! | role assistant with only an `action` in its text | one action: the first word is the tool, `{"command": …}` the arguments, the call id is made up |
//! | role assistant with neither | an assistant message |
//! | role tool, or the user text after an action in text | an observation |
//! | any other user text | a user message |
//!
//! A step of `trajectory` belongs to the assistant item with the same `action`; its time and state are
//! in that event's foreign field `step`, its observation too where the history has none (the last
//! `submit`). A step also repeats the whole prompt. That copy is not kept, but compared: where it shows
//! other content than the history, old outputs were elided, and a condensation says so from there on.
//! `info` and all else of the file is in the foreign field `file` of the first event.
//!
//! Rows of datasets (`trajectory` of items with `role` system, user or ai and `text`) are traces as well: an
//! answer's last fenced block is its action, and the user text after it the observation. Item `n` of a row is
//! called `trajectory-<n>`; the rest of the row is the event `row`, never shown.

use std::collections::{BTreeMap, HashMap};

use condenser::condensation::{Condensation, Rewrite, RewriteOp};
use condenser::event::{Action, ContentBlock, EventId, EventKind, Message, Observation, Role, Source, SystemPrompt};
use serde_json::{Map, Value, json};

use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{take_call, take_content, take_list, take_text};
use crate::json::Found;
use crate::reader::{Out, Records, Stream, read_values};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: NAME,
    description: "SWE-agent trajectories, 0.x and 1.x, its demonstrations (*.traj), and rows of datasets",
    sniff: |document| is_file(document) || has_rows(document),
    read: |document| match has_rows(&document) {
        true => read_rows(document),
        false => read(document),
    },
};

const NAME: &str = "swe-agent";

/// So many records, or members of a list, are looked at.
const SNIFFED: usize = 50;

fn has_rows(document: &Document) -> bool {
    let all = |rows: &mut dyn Iterator<Item = &Value>| {
        let (mut any, mut fits) = (false, true);
        for row in rows.take(SNIFFED) {
            (any, fits) = (true, fits && is_row(row));
        }
        any && fits
    };
    match document.single() {
        Some(Value::Array(rows)) => all(&mut rows.iter()),
        _ => all(&mut document.records().iter().map(|record| &record.value)),
    }
}

/// Whether a value is a row of a dataset.
fn is_row(value: &Value) -> bool {
    let is_item = |item: &Value| {
        let role = item.get("role").and_then(Value::as_str);
        role.is_some_and(|role| ["system", "user", "ai"].contains(&role)) && item.get("text").is_some()
    };
    let items = value.get("trajectory").and_then(Value::as_array);
    items.is_some_and(|items| !items.is_empty() && items.iter().take(SNIFFED).all(is_item))
}

fn read_rows(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if !document.single().is_some_and(Value::is_array) {
        return read_values(document, NAME, open);
    }
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let rows = document.take_records().into_iter().flat_map(|record| match record.value {
        Value::Array(rows) => rows,
        _ => Vec::new(),
    });
    let rows: Vec<Value> = rows.collect();
    let records = rows.len() as u64;
    let mut traces = Vec::new();
    for (at, value) in rows.into_iter().enumerate() {
        match row(&format!("row[{at}]"), value) {
            Ok(mut trace) => {
                trace.diagnostics.splice(0..0, diagnostics.drain(..));
                traces.push(Trace { name: document.row_name(at), records, ..trace });
            }
            Err(odd) => diagnostics.push(odd),
        }
    }
    if let Some(first) = traces.first_mut() {
        first.diagnostics.append(&mut diagnostics);
    }
    Ok(traces)
}

/// Begins to read rows, a row a line.
pub(crate) fn open(_: &Records<'_>, head: &Document, _: &mut Out) -> Result<Box<dyn Stream>, ReadError> {
    if !has_rows(head) {
        return Err(head.unfit(NAME, "no row has a `trajectory` of items with `role` and `text`"));
    }
    Ok(Box::new(Rows { path: head.name(), next: 0 }))
}

struct Rows {
    path: String,
    next: usize,
}

impl Stream for Rows {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        let at = self.next;
        self.next += 1;
        match row(&format!("line {}", found.line), found.node.into_value()) {
            Ok(trace) => out.trace(Trace { name: format!("{}#{at}", self.path), ..trace }),
            Err(odd) => out.note_file(odd),
        }
    }

    fn finish(&mut self, _: &mut Out) {}
}

/// A row of a dataset as a trace without a name.
pub(crate) fn row(place: &str, value: Value) -> Result<Trace, Diagnostic> {
    let items = match value {
        Value::Object(mut map) if map.get("trajectory").is_some_and(Value::is_array) => {
            (take_list(&mut map, "trajectory").unwrap_or_default(), map)
        }
        _ => return Err(Diagnostic::new(place, "a row without a `trajectory`; left out")),
    };
    let (items, row) = items;
    let mut builder = Builder::new(Vec::new());
    let task = row.get("instance_id").and_then(Value::as_str).map(str::to_owned);
    builder.begin("row", place.to_owned(), None);
    builder.add_unknown(Source::Environment, "row", Value::Object(row));
    let mut open = None;
    for (at, item) in items.into_iter().enumerate() {
        builder.begin(&format!("trajectory-{at}"), format!("{place} trajectory[{at}]"), None);
        let Value::Object(mut item) = item else {
            builder.note([Diagnostic::new(builder.place(), "not an object; kept as unknown")]);
            builder.add_unknown(Source::Environment, "trajectory", item);
            continue;
        };
        if is_role(&item, "ai") {
            item.insert("role".to_owned(), Value::from("assistant"));
        }
        // Tables have every member in every item.
        item.retain(|_, value| !value.is_null());
        let text = take_text(&mut item, "text").filter(|text| !text.is_empty());
        let text = text.or_else(|| take_text(&mut item, "system_prompt")).unwrap_or_default();
        if let Some((thought, action)) = is_role(&item, "assistant").then(|| fenced(&text)).flatten() {
            item.insert("thought".to_owned(), Value::from(thought));
            item.insert("action".to_owned(), Value::from(action));
        }
        item.insert("content".to_owned(), Value::from(text));
        open = add_item(&mut builder, item, open.take());
    }
    Ok(Trace { task, ..builder.finish(String::new(), NAME, 0) })
}

/// The last fenced block of a text, and what stands before it.
fn fenced(text: &str) -> Option<(&str, &str)> {
    let (before, _) = text.trim_end().rsplit_once("```")?;
    let (thought, block) = before.rsplit_once("```")?;
    // A word after the fence names the language.
    let (_, action) = block.split_once('\n')?;
    Some((thought.trim_end(), action))
}

fn is_file(document: &Document) -> bool {
    let Some(file) = document.single() else { return false };
    let Some(item) = file.get("history").and_then(Value::as_array).and_then(|history| history.first()) else {
        return false;
    };
    let is_run = file.get("trajectory").is_some_and(Value::is_array) || file.get("info").is_some_and(Value::is_object);
    item.get("role").is_some_and(Value::is_string) && (is_run || item.get("agent").is_some())
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if document.single().is_none_or(|file| !file.get("history").is_some_and(Value::is_array)) {
        return Err(document.unfit(NAME, "not one object with a list `history`"));
    }
    let Some(Value::Object(mut file)) = document.take_records().pop().map(|record| record.value) else {
        return Ok(Vec::new());
    };
    let history = take_list(&mut file, "history").unwrap_or_default();
    let steps = take_list(&mut file, "trajectory").unwrap_or_default();
    let n_records = history.len();
    let mut builder = Builder::new(std::mem::take(&mut document.diagnostics));
    let mut elisions = elisions(&history, &steps);
    let mut steps = steps.into_iter().enumerate().peekable();
    let mut events: HashMap<usize, EventId> = HashMap::new();
    let mut open = None;
    let mut items = history.into_iter().enumerate().peekable();
    while let Some((index, item)) = items.next() {
        let id = builder.begin(&format!("history-{index}"), format!("history[{index}]"), None);
        events.insert(index, id);
        let Value::Object(mut item) = item else {
            builder.note([Diagnostic::new(format!("history[{index}]"), "not an object; kept as unknown")]);
            builder.add_unknown(Source::Environment, "history", item);
            continue;
        };
        let is_answer = is_role(&item, "assistant") && !is_demonstration(&item);
        let step = steps
            .next_if(|(_, step)| {
                is_answer && step.get("action").is_some_and(|action| Some(action) == item.get("action"))
            })
            .map(|(_, step)| leftover(step, &item, items.peek().map(|(_, next)| next)));
        if let Some(step) = step.filter(|step| !step.is_empty()) {
            item.insert("step".to_owned(), Value::Object(step));
        }
        if index == 0 && !file.is_empty() {
            item.insert("file".to_owned(), Value::Object(std::mem::take(&mut file)));
        }
        open = add_item(&mut builder, item, open.take());
        if let Some(Elision { step, changed }) = elisions.remove(&(index + 1)) {
            builder.begin(&format!("trajectory-{step}"), format!("trajectory[{step}]"), None);
            let rewrites: BTreeMap<EventId, Rewrite> = changed
                .into_iter()
                .filter_map(|(item, content)| Some((events.get(&item)?.clone(), RewriteOp::Replace { content }.into())))
                .collect();
            builder.add_condensation(Condensation { rewrites, ..Condensation::default() });
        }
    }
    for (index, step) in steps {
        builder.begin(&format!("trajectory-{index}"), format!("trajectory[{index}]"), None);
        builder.add_unknown(Source::Environment, "trajectory", without_prompt(step));
    }
    Ok(vec![builder.finish(document.name(), NAME, n_records)])
}

fn is_role(item: &Map<String, Value>, role: &str) -> bool {
    item.get("role").and_then(Value::as_str) == Some(role)
}

fn is_demonstration(item: &Map<String, Value>) -> bool {
    let is_demo = match item.get("is_demo") {
        Some(Value::Bool(is_demo)) => *is_demo,
        Some(Value::String(text)) => text == "true",
        _ => false,
    };
    is_demo || item.get("message_type").and_then(Value::as_str) == Some("demonstration")
}

/// Adds one item; `open` is the call id of the action in text right before it. Returns the one this leaves open.
fn add_item(builder: &mut Builder, mut item: Map<String, Value>, open: Option<String>) -> Option<String> {
    if is_demonstration(&item) {
        let content = take_content(&mut item, "content", block);
        if is_role(&item, "user") {
            item.shift_remove("role");
        }
        add_message(builder, Source::Environment, Role::User, content, item);
        return None;
    }
    let role = item.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_observation = item.get("message_type").and_then(Value::as_str).is_none_or(|kind| kind == "observation");
    match (role.as_str(), open) {
        ("assistant", _) => return add_answer(builder, item),
        ("system", _) => {
            item.shift_remove("role");
            let content = take_content(&mut item, "content", block);
            let is_first = !builder.events().iter().any(|event| matches!(event.kind, EventKind::SystemPrompt(_)));
            if is_first {
                let prompt = SystemPrompt { content, ..SystemPrompt::default() };
                builder.add(Source::Environment, EventKind::SystemPrompt(prompt)).foreign = item.into();
            } else {
                add_message(builder, Source::Environment, Role::System, content, item);
            }
        }
        ("tool", _) => {
            item.shift_remove("role");
            let call_id = match item.get_mut("tool_call_ids").and_then(Value::as_array_mut) {
                // More than one id does not occur; SWE-agent itself sends the first.
                Some(ids) if ids.first().is_some_and(Value::is_string) => {
                    let first = ids.remove(0);
                    if ids.is_empty() {
                        item.shift_remove("tool_call_ids");
                    }
                    first.as_str().map(str::to_owned)
                }
                _ => take_text(&mut item, "tool_call_id"),
            };
            add_observation(builder, call_id.unwrap_or_default(), item);
        }
        ("user", Some(call_id)) if is_observation => add_observation(builder, call_id, item),
        ("user", _) => {
            item.shift_remove("role");
            let content = take_content(&mut item, "content", block);
            add_message(builder, Source::User, Role::User, content, item);
        }
        _ => {
            builder.add_unknown(Source::Environment, "history", Value::Object(item));
        }
    }
    None
}

fn add_message(
    builder: &mut Builder,
    source: Source,
    role: Role,
    content: Vec<ContentBlock>,
    foreign: Map<String, Value>,
) {
    let message = Message { content, ..Message::text(role, "") };
    builder.add(source, EventKind::Message(message)).foreign = foreign.into();
}

fn add_observation(builder: &mut Builder, call_id: String, mut item: Map<String, Value>) {
    let content = take_content(&mut item, "content", block);
    let observation = Observation { call_id, content, ..Observation::default() };
    builder.add(Source::Environment, EventKind::Observation(observation)).foreign = item.into();
}

/// An answer of the model. Returns the call id of an action in text.
fn add_answer(builder: &mut Builder, mut item: Map<String, Value>) -> Option<String> {
    let id = builder.record().as_str().to_owned();
    item.shift_remove("role");
    let thinking: Vec<ContentBlock> =
        take_list(&mut item, "thinking_blocks").unwrap_or_default().iter().map(|part| block(part).0).collect();
    let has_calls = item.get("tool_calls").and_then(Value::as_array).is_some_and(|calls| !calls.is_empty());
    let text_action = item.get("action").and_then(Value::as_str).filter(|action| !action.trim().is_empty());
    if has_calls {
        // The thought is the content again.
        if item.get("thought") == item.get("content") {
            item.shift_remove("thought");
        }
        let content = take_content(&mut item, "content", block);
        let mut before = Some((content, thinking, std::mem::take(&mut item)));
        let calls = before.as_mut().and_then(|(_, _, item)| take_list(item, "tool_calls")).unwrap_or_default();
        for call in calls {
            let mut call = match call {
                Value::Object(call) => call,
                other => Map::from_iter([("value".to_owned(), other)]),
            };
            let (tool_name, arguments) = take_call(&mut call);
            let (thought, thinking, mut foreign) = before.take().unwrap_or_default();
            let action = Action {
                call_id: take_text(&mut call, "id").unwrap_or_default(),
                tool_name: tool_name.unwrap_or_default(),
                arguments: arguments.unwrap_or_default(),
                thought,
                thinking,
                response_id: Some(id.clone()),
                ..Action::default()
            };
            foreign.insert("call".to_owned(), Value::Object(call));
            builder.add(Source::Agent, EventKind::Action(action)).foreign = foreign.into();
        }
        return None;
    }
    if let Some(text) = text_action {
        let call_id = format!("{id}-call");
        let tool_name = text.split_whitespace().next().unwrap_or_default().to_owned();
        let arguments = json!({"command": text}).to_string();
        let thought = take_text(&mut item, "thought").filter(|thought| !thought.is_empty());
        let action = Action {
            call_id: call_id.clone(),
            tool_name,
            arguments,
            thought: thought.into_iter().map(ContentBlock::text).collect(),
            thinking,
            response_id: Some(id),
            ..Action::default()
        };
        builder.add(Source::Agent, EventKind::Action(action)).foreign = item.into();
        return Some(call_id);
    }
    let mut content = thinking;
    content.extend(take_content(&mut item, "content", block));
    let message = Message { content, response_id: Some(id), ..Message::text(Role::Assistant, "") };
    builder.add(Source::Agent, EventKind::Message(message)).foreign = item.into();
    None
}

fn without_prompt(mut step: Value) -> Value {
    if let Some(step) = step.as_object_mut() {
        step.shift_remove("messages");
        step.shift_remove("query");
    }
    step
}

/// What a step tells beyond the answer it belongs to and the item after that.
fn leftover(step: Value, answer: &Map<String, Value>, next: Option<&Value>) -> Map<String, Value> {
    let Value::Object(mut step) = without_prompt(step) else { return Map::new() };
    step.shift_remove("action");
    for (key, repeated) in [
        ("response", answer.get("content")),
        ("thought", answer.get("thought")),
        ("observation", next.and_then(|next| next.get("content"))),
    ] {
        if repeated.is_some_and(|repeated| step.get(key) == Some(repeated)) {
            step.shift_remove(key);
        }
    }
    step
}

/// What the prompt recorded with a step shows otherwise than it was shown before.
struct Elision {
    step: usize,
    /// The history items, and the content that took the place of theirs.
    changed: Vec<(usize, Vec<ContentBlock>)>,
}

/// The elisions, by the number of history items that the prompt covers.
fn elisions(history: &[Value], steps: &[Value]) -> BTreeMap<usize, Elision> {
    let mut shown: HashMap<usize, &Value> = HashMap::new();
    let mut found = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        let prompt = step.get("messages").or_else(|| step.get("query")).and_then(Value::as_array);
        let Some(prompt) = prompt.filter(|prompt| prompt.len() <= history.len()) else { continue };
        // Anything but content exchanged in place is beyond what the comparison can tell.
        if prompt.iter().zip(history).any(|(sent, item)| sent.get("role") != item.get("role")) {
            continue;
        }
        let mut changed = Vec::new();
        for (index, (sent, item)) in prompt.iter().zip(history).enumerate() {
            let is_result = matches!(item.get("role").and_then(Value::as_str), Some("user" | "tool"));
            let (Some(sent), Some(stored), true) = (sent.get("content"), item.get("content"), is_result) else {
                continue;
            };
            if sent != *shown.get(&index).unwrap_or(&stored) {
                shown.insert(index, sent);
                let mut content = Map::from_iter([("content".to_owned(), sent.clone())]);
                changed.push((index, take_content(&mut content, "content", block)));
            }
        }
        if !changed.is_empty() {
            found.insert(prompt.len(), Elision { step: number, changed });
        }
    }
    found
}
