//! OpenHands before its SDK: trajectories, and the rows of evaluations (`output.jsonl`).
//!
//! A trajectory is a list of actions and observations. A row holds one in `history`, flat or, in 2024, as
//! pairs of an action and its observation; what surrounds it is the event `row`, and `instruction` the
//! user's message where the history has none. (Rows of SDK events are the format `openhands-v1`.)
//!
//! | item | event |
//! | --- | --- |
//! | `action` system | the system prompt |
//! | `action` message of a user; of the agent | a user message; an assistant message |
//! | any other action of the agent | an action; its arguments are those of the response's call, else its `args` |
//! | `action` run of a user, and its observation | user messages |
//! | the observation of an action | an observation |
//! | `action` condensation | a condensation, its offset counted in what a view shows |
//! | states, recalls, requests, null observations | unknown |
//!
//! An observation belongs to the action that is its `cause`, and only without one to the call of its id.
//! What an agent says is the text of its response, on the first action of that; a response is kept with its
//! first event only, and its usage counted once. What stands between a delegation and its observation is
//! a linked trace. The item `7` is the record `7`; one without an id is called after its place.

use std::collections::{BTreeSet, HashMap, HashSet};

use condenser::condensation::Condensation;
use condenser::event::{
    Action, ContentBlock, EventId, EventKind, Message, Observation, Outcome, Role, Source, SystemPrompt, Usage,
};
use serde_json::{Map, Value};

use crate::blocks::block;
use crate::builder::Builder;
use crate::fields::{self, take_content, take_list, take_text};
use crate::json::Found;
use crate::openhands_v1::{attach_usage, lead};
use crate::reader::{Out, Records, Stream, read_values};
use crate::{Diagnostic, Document, Format, Link, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: NAME,
    description: "OpenHands trajectories before the SDK, and evaluation output.jsonl of that time",
    sniff,
    read,
};

const NAME: &str = "openhands-v0";

/// So many members of a list are looked at.
const SNIFFED: usize = 50;

fn sniff(document: &Document) -> bool {
    match document.single() {
        Some(Value::Array(items)) => is_history(items),
        Some(row) => is_row(row),
        None => document.records().iter().take(SNIFFED).any(|record| is_row(&record.value)),
    }
}

fn is_row(value: &Value) -> bool {
    value.get("history").and_then(Value::as_array).is_some_and(|history| {
        is_history(history) || (!history.is_empty() && history.iter().take(SNIFFED).all(is_pair))
    })
}

fn is_history(items: &[Value]) -> bool {
    items.iter().take(SNIFFED).any(is_event)
        && items.iter().take(SNIFFED).all(|item| item.is_object() && !is_other(item))
}

/// Whether an item can only be another format's.
fn is_other(item: &Value) -> bool {
    item.get("kind").is_some() || item.get("role").is_some()
}

fn is_event(value: &Value) -> bool {
    let is_named = |key: &str| value.get(key).is_some_and(Value::is_string);
    (is_named("action") && value.get("args").is_some() || is_named("observation") && value.get("content").is_some())
        && value.get("id").is_some_and(Value::is_number)
        && is_named("source")
}

fn is_pair(value: &Value) -> bool {
    value.as_array().is_some_and(|pair| pair.len() == 2 && pair.first().is_some_and(is_event))
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    let records = document.records();
    if records.iter().any(|record| record.value.get("history").is_some_and(Value::is_array)) {
        return read_values(document, NAME, open);
    }
    if !matches!(document.single(), Some(Value::Array(items)) if items.iter().any(is_event)) {
        return Err(document.unfit(NAME, "neither a list of actions and observations nor rows with a `history`"));
    }
    let diagnostics = std::mem::take(&mut document.diagnostics);
    let items = document.take_records().into_iter().flat_map(|record| match record.value {
        Value::Array(items) => items,
        _ => Vec::new(),
    });
    let items: Vec<Item> = items.enumerate().map(|(at, value)| Item::new(format!("[{at}]"), value)).collect();
    let n_records = items.len();
    Ok(traces(items, document.name(), n_records, diagnostics))
}

/// Begins to read rows.
pub(crate) fn open(_: &Records<'_>, head: &Document, _: &mut Out) -> Result<Box<dyn Stream>, ReadError> {
    if !head.records().iter().any(|record| record.value.get("history").is_some_and(Value::is_array)) {
        return Err(head.unfit(NAME, "no row has a `history`"));
    }
    Ok(Box::new(Rows { path: head.name(), row: 0 }))
}

/// Rows of an evaluation, each a trace, and one for each delegate.
struct Rows {
    path: String,
    row: usize,
}

impl Stream for Rows {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        let row = self.row;
        self.row += 1;
        let history = match found.node.into_value() {
            Value::Object(mut map) => take_list(&mut map, "history").map(|history| (map, history)),
            _ => None,
        };
        let Some((mut map, history)) = history else {
            out.note_file(Diagnostic::new(format!("line {}", found.line), "a row without `history`; left out"));
            return;
        };
        let task = ["instance_id", "id", "task_id"].iter().find_map(|key| id_text(map.get(*key)));
        let items = history.into_iter().enumerate().flat_map(|(at, value)| {
            let place = format!("row {row} history[{at}]");
            match value {
                Value::Array(pair) => pair_items(&place, pair),
                value => vec![Item::new(place, value)],
            }
        });
        let mut found = traces(items.collect(), format!("{}#{row}", self.path), 0, Vec::new());
        if let Some(first) = found.first_mut() {
            if let Some(metrics) = map.get("metrics") {
                attach_usage(&mut first.events, std::iter::once(metrics));
            }
            let lead = lead(&mut map, &first.events);
            first.events.splice(0..0, lead);
        }
        for mut trace in found {
            trace.task.clone_from(&task);
            out.trace(trace);
        }
    }

    fn finish(&mut self, _: &mut Out) {}
}

/// One action or observation, and where it stands.
struct Item {
    place: String,
    value: Value,
}

impl Item {
    fn new(place: String, value: Value) -> Self {
        Self { place, value }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key).and_then(Value::as_str)
    }
}

/// The members of a pair; the second answers the first.
fn pair_items(place: &str, pair: Vec<Value>) -> Vec<Item> {
    let cause = pair.first().and_then(|action| action.get("id")).cloned();
    let items = pair.into_iter().enumerate().map(|(at, mut value)| {
        if let (1, Some(map), Some(cause)) = (at, value.as_object_mut(), &cause)
            && map.get("observation").is_some_and(|kind| kind != "null")
        {
            map.entry("cause").or_insert_with(|| cause.clone());
        }
        Item::new(format!("{place}[{at}]"), value)
    });
    items.collect()
}

/// The trace of a history, and those of the agents it delegated to, each before those of the agents below it.
fn traces(items: Vec<Item>, name: String, records: usize, diagnostics: Vec<Diagnostic>) -> Vec<Trace> {
    /// Delegates of delegates that are told apart; none are known that go so deep.
    const DEEPEST: usize = 16;
    let mut all = Vec::new();
    let mut open = vec![(items, name, None, 0)];
    let mut diagnostics = Some(diagnostics);
    while let Some((items, name, parent, depth)) = open.pop() {
        let (own, delegated) = if depth < DEEPEST { split(items) } else { (items, Vec::new()) };
        let mut reader = Reader::new(diagnostics.take().unwrap_or_default());
        own.into_iter().for_each(|item| reader.add(item));
        all.push(Trace { parent, ..reader.builder.finish(name.clone(), NAME, records) });
        for (number, (call_id, work)) in
            delegated.into_iter().enumerate().rev().filter(|(_, (_, work))| !work.is_empty())
        {
            let parent = Link { to: name.clone(), call_id: Some(call_id).filter(|id| !id.is_empty()) };
            open.push((work, format!("{name}.delegate-{number}"), Some(parent), depth + 1));
        }
    }
    all
}

/// The items of an agent itself, and the work of its delegates by the call that began it.
fn split(items: Vec<Item>) -> (Vec<Item>, Vec<(String, Vec<Item>)>) {
    let mut own = Vec::new();
    let mut delegated: Vec<(String, Vec<Item>)> = Vec::new();
    let mut depth = 0usize;
    for item in items {
        if depth > 0 && item.text("observation") == Some("delegate") {
            depth -= 1;
        }
        let begins = item.text("action") == Some("delegate");
        let call = begins.then(|| call_id(&item)).flatten();
        match delegated.last_mut() {
            Some((_, work)) if depth > 0 => work.push(item),
            _ => own.push(item),
        }
        if begins {
            if depth == 0 {
                delegated.push((call.unwrap_or_default(), Vec::new()));
            }
            depth += 1;
        }
    }
    (own, delegated)
}

/// The id of a number or text, as text.
fn id_text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// The call an action makes: the one that its response names, else one made up from its id.
fn call_id(item: &Item) -> Option<String> {
    let given = item.value.pointer("/tool_call_metadata/tool_call_id").and_then(Value::as_str);
    given.map(str::to_owned).or_else(|| id_text(item.value.get("id")).map(|id| format!("{id}-call")))
}

struct Reader {
    builder: Builder,
    /// Call ids by the ids of the actions that made them; none for a user's.
    calls: HashMap<String, Option<String>>,
    /// The newest response that was kept.
    response: Option<Value>,
    paid: HashSet<String>,
    /// What the peer's own view holds: the id, and the event it shows.
    view: Vec<(String, Option<EventId>)>,
}

impl Reader {
    fn new(diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            builder: Builder::new(diagnostics),
            calls: HashMap::new(),
            response: None,
            paid: HashSet::new(),
            view: Vec::new(),
        }
    }

    fn add(&mut self, item: Item) {
        let given = id_text(item.value.get("id"));
        let record = given.clone().unwrap_or_else(|| item.place.clone());
        let timestamp = item.text("timestamp").map(str::to_owned);
        let is_user = item.text("source") == Some("user");
        let action = item.text("action").map(str::to_owned);
        let observation = item.text("observation").map(str::to_owned);
        let own_call = call_id(&item);
        self.builder.begin(&record, item.place, timestamp);
        let Value::Object(map) = item.value else {
            let place = self.builder.place().to_owned();
            self.builder.note([Diagnostic::new(place, "neither an action nor an observation; kept as unknown")]);
            self.builder.add_unknown(Source::Environment, "item", item.value);
            return;
        };
        let before = self.builder.events().len();
        let is_condensation = action.as_deref() == Some("condensation");
        match (action.as_deref(), observation.as_deref()) {
            (Some("system"), _) => self.add_system(map),
            (Some("message"), _) => self.add_message(map, is_user),
            (Some("condensation"), _) => self.add_condensation(map),
            (Some(kind @ ("condensation_request" | "recall" | "change_agent_state" | "null" | "loop_recovery")), _) => {
                self.add_unknown(kind, map, is_user);
            }
            (Some(kind), _) if is_user => {
                self.calls.insert(record.clone(), None);
                let kind = kind.to_owned();
                self.add_command(&kind, map);
            }
            (Some(kind), _) => {
                let call_id = own_call.unwrap_or_else(|| format!("{record}-call"));
                self.calls.insert(record.clone(), Some(call_id.clone()));
                self.add_action(kind, call_id, map);
            }
            (None, Some(kind @ ("null" | "agent_state_changed" | "recall"))) => self.add_unknown(kind, map, is_user),
            (None, Some(kind)) => self.add_observation(kind, map),
            (None, None) => {
                let place = self.builder.place().to_owned();
                self.builder.note([Diagnostic::new(place, "neither an action nor an observation; kept as unknown")]);
                self.add_unknown("item", map, is_user);
            }
        }
        if !is_condensation {
            let shown = self.builder.events()[before..].iter().find(|event| event.kind.is_shown());
            self.view.push((record, shown.map(|event| event.id.clone())));
        }
    }

    fn add_unknown(&mut self, kind: &str, map: Map<String, Value>, is_user: bool) {
        let source = if is_user { Source::User } else { Source::Environment };
        self.builder.add_unknown(source, kind, Value::Object(map));
    }

    fn add_system(&mut self, mut map: Map<String, Value>) {
        let mut prompt = SystemPrompt::default();
        if let Some(args) = map.get_mut("args").and_then(Value::as_object_mut) {
            prompt.content = take_content(args, "content", block);
            prompt.tools = take_list(args, "tools").unwrap_or_default();
        }
        self.builder.add(Source::Agent, EventKind::SystemPrompt(prompt)).foreign = rest(map).into();
    }

    fn add_message(&mut self, mut map: Map<String, Value>, is_user: bool) {
        let (response_id, usage, _) = self.take_response(&mut map);
        let mut content = Vec::new();
        if let Some(args) = map.get_mut("args").and_then(Value::as_object_mut) {
            content = take_content(args, "content", block);
            content.extend(images(args));
        }
        let (source, message) = if is_user {
            (Source::User, Message { content, ..Message::text(Role::User, "") })
        } else {
            let response_id = response_id.or_else(|| Some(self.builder.record().as_str().to_owned()));
            (Source::Agent, Message { content, response_id, ..Message::text(Role::Assistant, "") })
        };
        let event = self.builder.add(source, EventKind::Message(message));
        event.foreign = rest(map).into();
        event.usage = usage;
    }

    /// A command of the user's own, as the agent is told of it.
    fn add_command(&mut self, kind: &str, map: Map<String, Value>) {
        let argument = |key: &str| map.get("args").and_then(|args| args.get(key)?.as_str());
        let Some(command) = argument("command").or_else(|| argument("code")).filter(|_| kind.starts_with("run")) else {
            return self.add_unknown(kind, map, true);
        };
        let message = Message::text(Role::User, format!("User executed the command:\n{command}"));
        self.builder.add(Source::User, EventKind::Message(message)).foreign = rest(map).into();
    }

    fn add_action(&mut self, kind: &str, call_id: String, mut map: Map<String, Value>) {
        let (response_id, usage, said) = self.take_response(&mut map);
        let function = map.get("tool_call_metadata").and_then(|call| call.get("function_name")?.as_str());
        let tool_name = function.unwrap_or(kind).to_owned();
        let args = map.get_mut("args").and_then(Value::as_object_mut);
        let mut action = Action {
            call_id: call_id.clone(),
            tool_name,
            response_id: response_id.clone().or_else(|| Some(self.builder.record().as_str().to_owned())),
            ..Action::default()
        };
        let thought = args.and_then(|args| {
            let thought = match args.get_mut("thought") {
                // What the response says is on its first action only.
                _ if response_id.is_some() => None,
                Some(Value::Object(parts)) => {
                    action.reasoning = take_text(parts, "reasoning_content").filter(|text| !text.is_empty());
                    take_text(parts, "default")
                }
                Some(Value::String(_)) => take_text(args, "thought"),
                _ => None,
            };
            let call = said.as_ref().and_then(|said| said.call(&call_id));
            action.arguments = call.unwrap_or_else(|| {
                let mut args = args.clone();
                args.shift_remove("thought");
                Value::Object(args).to_string()
            });
            thought
        });
        let is_first = said.as_ref().is_some_and(|said| said.is_new);
        if let Some(said) = said.filter(|_| is_first) {
            action.thought = said.text.into_iter().map(ContentBlock::text).collect();
            action.reasoning = said.reasoning;
        } else {
            action.thought = thought.filter(|text| !text.is_empty()).into_iter().map(ContentBlock::text).collect();
        }
        let event = self.builder.add(Source::Agent, EventKind::Action(action));
        event.foreign = rest(map).into();
        event.usage = usage;
    }

    fn add_observation(&mut self, kind: &str, mut map: Map<String, Value>) {
        // The copy of the response was kept with the action.
        drop(self.take_response(&mut map));
        let cause = id_text(map.get("cause"));
        let named =
            map.get("tool_call_metadata").and_then(|call| call.get("tool_call_id")?.as_str()).map(str::to_owned);
        let call_id = match cause.and_then(|cause| self.calls.get(&cause).cloned()) {
            Some(call) => call,
            None => named,
        };
        let tool_name = map.get("tool_call_metadata").and_then(|call| call.get("function_name")?.as_str());
        let tool_name = tool_name.unwrap_or_default().to_owned();
        let extras = map.get("extras");
        let exit_code = extras.and_then(|extras| {
            let code = extras.pointer("/metadata/exit_code").or_else(|| extras.get("exit_code"));
            code?.as_i64()
        });
        let outcome = match kind {
            "user_rejected" => Outcome::Rejected,
            "error" => Outcome::Error,
            _ if exit_code.is_some_and(|code| code != 0) => Outcome::Error,
            _ => Outcome::Ok,
        };
        let suffix =
            extras.and_then(|extras| extras.pointer("/metadata/suffix")?.as_str()).filter(|text| !text.is_empty());
        let extended_content: Vec<ContentBlock> = suffix.map(ContentBlock::text).into_iter().collect();
        let mut content = take_content(&mut map, "content", block);
        if let Some(extras) = map.get_mut("extras").and_then(Value::as_object_mut) {
            content.extend(images(extras));
        }
        let kind = match call_id {
            Some(call_id) => {
                let observation =
                    Observation { call_id, tool_name, content, extended_content, outcome, interim: false };
                EventKind::Observation(observation)
            }
            // Nothing called for it: the agent is told so in a message.
            None => EventKind::Message(Message { content, extended_content, ..Message::text(Role::User, "") }),
        };
        self.builder.add(Source::Environment, kind).foreign = rest(map).into();
    }

    fn add_condensation(&mut self, mut map: Map<String, Value>) {
        let mut record = Condensation::default();
        let mut ids: BTreeSet<String> = BTreeSet::new();
        let mut offset = None;
        if let Some(args) = map.get_mut("args").and_then(Value::as_object_mut) {
            ids.extend(
                args.get("forgotten_event_ids")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                    .filter_map(|id| id_text(Some(id))),
            );
            let bound = |key: &str| args.get(key).and_then(Value::as_i64);
            if let (Some(first), Some(last)) = (bound("forgotten_events_start_id"), bound("forgotten_events_end_id")) {
                let is_within = |id: &String| id.parse::<i64>().is_ok_and(|id| (first..=last).contains(&id));
                ids.extend(self.view.iter().map(|(id, _)| id.clone()).filter(is_within));
            }
            offset = args.get("summary_offset").and_then(Value::as_u64).and_then(|offset| usize::try_from(offset).ok());
            record.summary = take_text(args, "summary");
        }
        let (gone, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.view).into_iter().partition(|(id, _)| ids.contains(id));
        record.forgotten_event_ids = gone.into_iter().filter_map(|(_, event)| event).collect();
        self.view = left;
        if let Some(offset) = offset.filter(|_| record.summary.is_some()) {
            let offset = offset.min(self.view.len());
            record.summary_offset = Some(self.view[..offset].iter().filter(|(_, event)| event.is_some()).count());
            // The peer gives its summary the id of the condensation.
            let id = self.builder.record();
            let entry = (id.as_str().to_owned(), Some(id.summary_id()));
            self.view.insert(offset, entry);
        }
        self.builder.add_condensation(record).foreign = rest(map).into();
    }

    /// The id and usage of the response that an item repeats, and what it says.
    ///
    /// Its text stays with the first item only.
    fn take_response(&mut self, map: &mut Map<String, Value>) -> (Option<String>, Option<Usage>, Option<Said>) {
        let call = map.get_mut("tool_call_metadata").and_then(Value::as_object_mut);
        let Some(call) = call.filter(|call| call.get("model_response").is_some_and(Value::is_object)) else {
            return (None, None, None);
        };
        let Some(response) = call.get("model_response") else { return (None, None, None) };
        let Some(id) = response.get("id").and_then(Value::as_str).map(str::to_owned) else { return (None, None, None) };
        let is_new = self.paid.insert(id.clone());
        let model = response.get("model").and_then(Value::as_str);
        let usage = response.get("usage").filter(|_| is_new).and_then(|figures| fields::usage(figures, model));
        let said = Said::new(response, is_new);
        if self.response.as_ref() == Some(response) {
            call.shift_remove("model_response");
            call.insert("response_id".to_owned(), Value::from(id.as_str()));
        } else {
            self.response = Some(response.clone());
        }
        (Some(id), usage, said)
    }
}

/// What a response says and calls.
struct Said {
    is_new: bool,
    text: Option<String>,
    reasoning: Option<String>,
    calls: Vec<(String, String)>,
}

impl Said {
    fn new(response: &Value, is_new: bool) -> Option<Self> {
        let message = response.get("choices")?.get(0)?.get("message")?;
        let text = |value: Option<&Value>| match value? {
            Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            Value::Array(parts) => {
                let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
                Some(texts.join("\n")).filter(|text| !text.is_empty())
            }
            _ => None,
        };
        let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        let call = |call: &Value| {
            let arguments = call.pointer("/function/arguments")?;
            let arguments = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
            Some((call.get("id")?.as_str()?.to_owned(), arguments))
        };
        Some(Self {
            is_new,
            text: text(message.get("content")),
            reasoning: text(message.get("reasoning_content")),
            calls: calls.filter_map(call).collect(),
        })
    }

    fn call(&self, id: &str) -> Option<String> {
        self.calls.iter().find(|(call, _)| call == id).map(|(_, arguments)| arguments.clone())
    }
}

/// The images beside a text. The list stays where it is.
fn images(map: &Map<String, Value>) -> Option<ContentBlock> {
    let urls = map.get("image_urls")?.as_array()?.iter().filter_map(|url| url.as_str().map(str::to_owned));
    let urls: Vec<String> = urls.filter(|url| !url.is_empty()).collect();
    (!urls.is_empty()).then_some(ContentBlock::Image { urls, cache: false })
}

/// What of an item the event has no place for.
fn rest(mut map: Map<String, Value>) -> Map<String, Value> {
    if map.get("timestamp").is_some_and(Value::is_string) {
        map.shift_remove("timestamp");
    }
    map
}
