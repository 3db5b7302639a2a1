//! OpenHands SDK event logs: a conversation folder, JSON lines, a server's page, a list of events, or the
//! rows of a benchmark's `output.jsonl`.

use std::collections::{HashMap, HashSet};

use condenser::event::{Event, EventId, EventKind, Message, Origin, Role, Source, Unknown, Usage};
use condenser::tree::ROOT;
use serde_json::{Map, Value};

use crate::builder::Count;
use crate::fields::{self, take_list, take_text};
use crate::ids::{ByHash, Ids, hash};
use crate::json::{self, Found};
use crate::node::Node;
use crate::reader::{Out, Place, Records, Stream, read_values};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

mod event;
mod mirrors;
mod stored;

pub use event::{LoadError, Mode, parse_event};
use mirrors::{Gathered, Mirror, Mirrors, with_answer, with_thought};
pub use stored::{StoredError, StoredEvent};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "openhands-v1",
    description: "OpenHands SDK events: a conversation folder, JSON lines, a page of items, or benchmark rows",
    sniff,
    read,
};

/// So many records, or members of a list, are looked at.
const SNIFFED: usize = 50;

fn sniff(document: &Document) -> bool {
    if document.is_directory() {
        return event_folder(document).is_some();
    }
    let items = match document.single() {
        Some(Value::Array(items)) => Some(items),
        Some(page) => page.get("items").and_then(Value::as_array),
        None => None,
    };
    match items {
        Some(items) => items.iter().take(SNIFFED).any(is_event),
        None => document.records().iter().take(SNIFFED).any(|record| is_event(&record.value) || is_row(&record.value)),
    }
}

/// Whether a value is a stored event of any kind, known or not.
fn is_event(value: &Value) -> bool {
    value.get("kind").and_then(Value::as_str).is_some_and(|kind| {
        kind.ends_with("Event") || ["Condensation", "CondensationRequest", "UserRejectObservation"].contains(&kind)
    })
}

fn is_row(value: &Value) -> bool {
    value.get("instance_id").is_some()
        && value
            .get("history")
            .and_then(Value::as_array)
            .is_some_and(|history| history.iter().take(SNIFFED).any(is_event))
}

/// The event files of a folder.
struct EventFolder {
    /// The folder they are in: `events`, or `None` for the folder itself.
    sub: Option<&'static str>,
    /// Number and name of each, sorted.
    files: Vec<(u64, String)>,
}

fn event_folder(document: &Document) -> Option<EventFolder> {
    [Some("events"), None].into_iter().find_map(|sub| {
        let names = document.file_names(sub).into_iter();
        let mut files: Vec<_> = names.filter_map(|name| Some((file_number(&name)?, name))).collect();
        files.sort_unstable();
        (!files.is_empty()).then_some(EventFolder { sub, files })
    })
}

/// The number in `event-00017-<id>.json`.
fn file_number(name: &str) -> Option<u64> {
    let (number, id) = name.strip_prefix("event-")?.strip_suffix(".json")?.split_once('-')?;
    let is_number = number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || id.is_empty() {
        return None;
    }
    number.parse().ok()
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if document.is_directory() {
        return read_folder(&document).map(|trace| vec![trace]);
    }
    let is_list =
        document.single().is_some_and(|value| value.is_array() || value.get("items").is_some_and(Value::is_array));
    if !is_list {
        return read_values(document, FORMAT.name, open);
    }
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let items = match document.take_records().pop().map(|record| record.value) {
        Some(Value::Array(items)) => items,
        Some(Value::Object(mut page)) => {
            if page.get("next_page_id").is_some_and(|next| !next.is_null()) {
                diagnostics.push(Diagnostic::new("file", "the page has a successor that is not in the file"));
            }
            take_list(&mut page, "items").unwrap_or_default()
        }
        _ => Vec::new(),
    };
    if !items.iter().any(is_event) {
        return Err(document.unfit(FORMAT.name, NO_EVENT));
    }
    let values: Vec<_> = items.into_iter().enumerate().map(|(at, value)| (format!("items[{at}]"), value)).collect();
    let records = values.len() as u64;
    let events = events(values, &Head::default(), &mut diagnostics);
    Ok(vec![Trace { records, events, diagnostics, ..trace(document.name()) }])
}

const NO_EVENT: &str = "no value has the `kind` of an event";

fn trace(name: String) -> Trace {
    Trace {
        name,
        format: FORMAT.name,
        task: None,
        session: None,
        parent: None,
        events: Vec::new(),
        records: 0,
        diagnostics: Vec::new(),
    }
}

/// Begins to read events or rows, a record each.
pub(crate) fn open(records: &Records<'_>, head: &Document, out: &mut Out) -> Result<Box<dyn Stream>, ReadError> {
    let first = || head.records().iter().take(SNIFFED).map(|record| &record.value);
    if first().any(is_row) {
        return Ok(Box::new(Rows { document: head.path.display().to_string(), n_rows: 0 }));
    }
    if !head.records().iter().any(|record| is_event(&record.value)) {
        return Err(head.unfit(FORMAT.name, NO_EVENT));
    }
    // The SDK itself repeats nothing, and most logs are one branch.
    let needs_survey =
        records.mention(&["\"parent_id\"", "\"role\": \"tool\"", "\"role\":\"tool\"", "\"tool_calls\""])?;
    let mut survey = Survey::default();
    if needs_survey {
        records.each(Some(Survey::KEYS), |found| survey.add(found.place(), &found.node))?;
    }
    out.begin(trace(head.name()));
    Ok(Box::new(survey.log(&Head::default(), out)))
}

impl Stream for Log {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        let (line, place) = (found.line, found.place());
        let event = self.read(place, || format!("line {line}"), found.node, |odd| out.note(odd));
        event.into_iter().for_each(|event| out.event(event));
    }

    fn finish(&mut self, out: &mut Out) {
        self.report(|odd| out.note(odd));
    }
}

fn read_folder(document: &Document) -> Result<Trace, ReadError> {
    let Some(EventFolder { sub, files }) = event_folder(document) else {
        return Err(
            document.unfit(FORMAT.name, "the folder has no files event-NNNNN-<id>.json, nor has its folder events")
        );
    };
    let mut diagnostics = Vec::new();
    let mut next = 0;
    for (number, name) in &files {
        if *number > next {
            let gap = if *number == next + 1 {
                format!("event {next} is")
            } else {
                format!("events {next} to {} are", number - 1)
            };
            diagnostics.push(Diagnostic::new(name, format!("{gap} missing before this one; read on")));
        }
        if next > 0 && *number == next - 1 {
            diagnostics
                .push(Diagnostic::new(name, "a second file has this number; both are kept, in order of their ids"));
        }
        next = number + 1;
    }
    let folder = sub.map_or_else(|| document.path.clone(), |sub| document.path.join(sub));
    let mut values = Vec::new();
    for (_, name) in &files {
        match Document::open(&folder.join(name)) {
            Ok(mut file) => {
                let found = std::mem::take(&mut file.diagnostics);
                diagnostics
                    .extend(found.into_iter().map(|odd| Diagnostic::new(format!("{name} {}", odd.place), odd.message)));
                let mut records = file.take_records().into_iter();
                values.extend(records.next().map(|record| (name.clone(), record.value)));
                if records.next().is_some() {
                    diagnostics
                        .push(Diagnostic::new(name, "more than one value in an event file; only the first is read"));
                }
            }
            Err(ReadError::Empty { .. }) => {
                diagnostics.push(Diagnostic::new(name, "the event file is empty and left out"))
            }
            Err(ReadError::Malformed { place, reason, .. }) => {
                diagnostics
                    .push(Diagnostic::new(format!("{name} {place}"), format!("{reason}; the event is left out")));
            }
            Err(ReadError::Binary { what, .. }) => {
                diagnostics.push(Diagnostic::new(name, format!("{what}, not an event; left out")));
            }
            Err(error) => return Err(error),
        }
    }
    if values.is_empty() {
        return Err(document.unfit(FORMAT.name, "not one event file can be read"));
    }
    let state = state(document, sub, &mut diagnostics);
    let head = Head {
        leaf: state.get("leaf_event_id").and_then(Value::as_str).map(str::to_owned),
        is_empty: state.get("head_is_empty").and_then(Value::as_bool).unwrap_or(false),
    };
    let mut events = events(values, &head, &mut diagnostics);
    if let Some(stats) = state.get("stats") {
        // One level per model client, below `usage_to_metrics` or its older name.
        attach_usage(&mut events, members(stats).flat_map(members));
    }
    let records = files.len() as u64;
    Ok(Trace { events, records, diagnostics, ..trace(document.name()) })
}

/// The conversation state beside the events; null where there is none.
fn state(document: &Document, sub: Option<&str>, diagnostics: &mut Vec<Diagnostic>) -> Value {
    const NAME: &str = "base_state.json";
    let mut path = document.path.join(NAME);
    if sub.is_none() && !path.exists() {
        path = document.path.join("..").join(NAME);
    }
    match Document::open(&path) {
        Ok(mut file) => file.take_records().into_iter().next().map(|record| record.value).unwrap_or_default(),
        Err(ReadError::NotFound { .. }) => Value::Null,
        Err(_) => {
            diagnostics.push(Diagnostic::new(NAME, "cannot be read; head and usage are taken from the events alone"));
            Value::Null
        }
    }
}

/// Rows of an evaluation: `history` holds the events, and begins after the task, which is `instruction`.
struct Rows {
    document: String,
    n_rows: usize,
}

impl Stream for Rows {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        let (row, place) = (self.n_rows, format!("line {}", found.line));
        self.n_rows += 1;
        let Value::Object(mut map) = found.node.into_value() else {
            return out.note_file(Diagnostic::new(place, "a list where a row was expected; left out"));
        };
        let Some(history) = take_list(&mut map, "history") else {
            return out.note_file(Diagnostic::new(place, "a row without `history`; left out"));
        };
        let mut diagnostics = Vec::new();
        let values =
            history.into_iter().enumerate().map(|(at, value)| (format!("row {row} history[{at}]"), value)).collect();
        let mut events = events(values, &Head::default(), &mut diagnostics);
        if let Some(metrics) = map.get("metrics") {
            attach_usage(&mut events, std::iter::once(metrics));
        }
        let task = map.get("instance_id").map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
        let lead = lead(&mut map, &events);
        events.splice(0..0, lead);
        out.trace(Trace { task, events, diagnostics, ..trace(format!("{}#{row}", self.document)) });
    }

    fn finish(&mut self, _: &mut Out) {}
}

/// What stands before a row's history: the rest of the row, never shown, and the task as the user's message.
pub(crate) fn lead(row: &mut Map<String, Value>, history: &[Event]) -> Vec<Event> {
    let has_task = history.iter().any(|event| {
        matches!(&event.kind, EventKind::Message(Message { role: Role::User, .. })) && event.source == Source::User
    });
    let instruction = if has_task { None } else { take_text(row, "instruction") };
    let taken: HashSet<&str> = history.iter().map(|event| event.id.as_str()).collect();
    let new = |name: &str, source, kind| {
        let mut id = name.to_owned();
        while taken.contains(id.as_str()) {
            id.push('#');
        }
        let origin = Some(Origin { record: name.to_owned(), part: 0 });
        Event { origin, ..Event::new(id, source, kind) }
    };
    let payload = Value::Object(std::mem::take(row));
    let mut events =
        vec![new("row", Source::Environment, EventKind::Unknown(Unknown { foreign_kind: "row".to_owned(), payload }))];
    if let Some(text) = instruction {
        events.push(new("instruction", Source::User, EventKind::Message(Message::text(Role::User, text))));
    }
    events
}

/// Which event the conversation stands at, where the state says so.
#[derive(Default)]
struct Head {
    leaf: Option<String>,
    is_empty: bool,
}

/// Turns stored values, each with its place, into the events of the active branch.
fn events(values: Vec<(String, Value)>, head: &Head, diagnostics: &mut Vec<Diagnostic>) -> Vec<Event> {
    let mut survey = Survey::default();
    for (at, (_, value)) in (0..).zip(&values) {
        survey.add((at, 0), &Node::of_value(value, Some(Survey::KEYS)));
    }
    let mut log = survey.log(head, diagnostics);
    let mut note = |odd| diagnostics.push(odd);
    let events = (0..)
        .zip(values)
        .filter_map(|(at, (place, value))| log.read((at, 0), || place, Node::from(value), &mut note))
        .collect();
    log.report(note);
    events
}

/// What has to be known of all events before the first is read.
#[derive(Default)]
struct Survey {
    gathered: Gathered,
    places: Vec<Place>,
    /// Where the event with an id, by its hash, stands in `places`.
    positions: ByHash<u32>,
    /// By position: the hash of the parent's id.
    parents: Vec<Option<u64>>,
    has_parents: bool,
    /// By position: whether the conversation moves on with the event.
    moves_head: Vec<bool>,
}

impl Survey {
    const KEYS: &[&str] = &["id", "kind", "parent_id", "tool_call_id", "llm_message"];

    fn add(&mut self, place: Place, value: &Node<'_>) {
        self.gathered.add(place, value);
        let text = |key: &str| value.get(key).and_then(Node::as_str);
        if !value.is_object() {
            return;
        }
        let position = self.places.len() as u32;
        if let Some(id) = text("id") {
            self.positions.entry(hash(id)).or_insert(position);
        }
        self.places.push(place);
        self.has_parents |= text("parent_id").is_some();
        self.parents.push(text("parent_id").map(hash));
        self.moves_head.push(!matches!(text("kind"), Some("ConversationStateUpdateEvent" | "ConversationErrorEvent")));
    }

    fn log(self, head: &Head, notes: &mut impl Notes) -> Log {
        let left_out = self.off_branch(head, notes);
        Log { mirrors: self.gathered.mirrors(), left_out, ..Log::default() }
    }

    /// The places that are not on the path to the head, in order. What is never shown stays where it stands.
    ///
    /// Without any `parent_id` that is none. A parent that is not an earlier event is bridged by the event before.
    fn off_branch(&self, head: &Head, notes: &mut impl Notes) -> Vec<Place> {
        if head.leaf.is_none() && !head.is_empty && !self.has_parents {
            return Vec::new();
        }
        let mut bridged = Count::default();
        let parent = |at: u32, bridged: &mut Count| {
            let before = at.checked_sub(1);
            match self.parents[at as usize] {
                Some(parent) if parent == hash(ROOT) => None,
                Some(parent) => self.positions.get(&parent).copied().filter(|parent| *parent < at).or_else(|| {
                    bridged.add_earlier(format!("line {}", self.places[at as usize].0));
                    before
                }),
                None => before,
            }
        };
        let last = || self.moves_head.iter().rposition(|moves_head| *moves_head).map(|at| at as u32);
        let mut at = match &head.leaf {
            Some(leaf) => self.positions.get(&hash(leaf)).copied().or_else(|| {
                notes.note(Diagnostic::new(
                    "base_state.json",
                    "its leaf_event_id is no event of the log; the last event takes its place",
                ));
                last()
            }),
            None if head.is_empty => None,
            None => last(),
        };
        let mut left_out = self.moves_head.clone();
        while let Some(here) = at {
            left_out[here as usize] = false;
            at = parent(here, &mut bridged);
        }
        let places: Vec<Place> =
            self.places.iter().zip(left_out).filter(|(_, left_out)| *left_out).map(|(place, _)| *place).collect();
        bridged
            .report("parents that are no earlier event of the file, bridged by the event before")
            .into_iter()
            .for_each(|odd| notes.note(odd));
        if !places.is_empty() {
            let message = format!("{} events stand on other branches and are left out", places.len());
            notes.note(Diagnostic::new("file", message));
        }
        places
    }
}

/// Where diagnostics go.
trait Notes {
    fn note(&mut self, diagnostic: Diagnostic);
}

impl Notes for Vec<Diagnostic> {
    fn note(&mut self, diagnostic: Diagnostic) {
        self.push(diagnostic);
    }
}

impl Notes for Out {
    fn note(&mut self, diagnostic: Diagnostic) {
        Out::note(self, diagnostic);
    }
}

/// Reads the events of one conversation, in order.
#[derive(Default)]
struct Log {
    mirrors: Mirrors,
    left_out: Vec<Place>,
    ids: Ids,
    n_values: usize,
    n_mirrors: usize,
    /// The entry of the summary that is shown now.
    summary: Option<EventId>,
    n_named: usize,
}

impl Log {
    /// The event of a stored value, where it is on the branch and can be used.
    fn read(
        &mut self,
        at: Place,
        place: impl FnOnce() -> String,
        mut node: Node<'_>,
        mut note: impl FnMut(Diagnostic),
    ) -> Option<Event> {
        let n = self.n_values;
        self.n_values += 1;
        let Some(map) = node.as_object_mut() else {
            note(Diagnostic::new(place(), "not an object; left out"));
            return None;
        };
        if self.left_out.binary_search(&at).is_ok() {
            return None;
        }
        let mut odd: Vec<String> = Vec::new();
        if !map.get("kind").is_some_and(Node::is_string) {
            odd.push("an event without `kind`; kept as unknown".to_owned());
        }
        if !map.get("id").is_some_and(Node::is_string) {
            let id = map.get("id").filter(|id| !id.is_null()).map_or_else(|| format!("event-{n}"), Node::to_string);
            odd.push(format!("an event without a text as id; called {id}"));
            map.insert("id", Node::from(id));
        }
        let parse = |node| event::parse(node, Mode::Lenient);
        let event = match self.mirrors.role(at, &node) {
            Mirror::None => parse(node),
            Mirror::Copy => {
                self.n_mirrors += 1;
                parse(node.clone()).map(|event| event::as_unknown(event, node.into_value()))
            }
            Mirror::Thought(thought) => parse(node).map(|event| with_thought(event, thought)),
            Mirror::Answer(content) => {
                let stored = node.get("observation").map(|stored| stored.clone().into_value());
                parse(node).map(|event| with_answer(event, content, stored))
            }
        };
        let event = match event {
            Ok(mut event) => {
                let record = event.id.as_str().to_owned();
                if let Some(id) = self.ids.claim(&record) {
                    odd.push(format!("the id {} occurs again; called {id}", json::excerpt(&record, 80)));
                    event.id = id;
                }
                event.origin = Some(Origin { record, part: 0 });
                self.name_forgotten_summary(&mut event);
                Some(event)
            }
            Err(error) => {
                odd.push(format!("{error}; left out"));
                None
            }
        };
        if !odd.is_empty() {
            let place = place();
            odd.into_iter().for_each(|message| note(Diagnostic::new(&place, message)));
        }
        event
    }

    /// Names the summary that a condensation forgets as a view names it.
    ///
    /// Versions of 2025 gave the entry of a summary a random id that no file holds. A condensation that forgets
    /// exactly one id of no earlier event, while a summary is shown, means that summary.
    fn name_forgotten_summary(&mut self, event: &mut Event) {
        let EventKind::Condensation(record) = &mut event.kind else { return };
        let summary = self.summary.take_if(|shown| !record.forgotten_event_ids.contains(shown));
        let mut unknown =
            record.forgotten_event_ids.iter().filter(|id| !self.ids.contains(id.as_str()) || **id == event.id);
        if let (Some(summary), Some(stored), None) = (&summary, unknown.next().cloned(), unknown.next()) {
            record.forgotten_event_ids.remove(&stored);
            record.forgotten_event_ids.insert(summary.clone());
            event.foreign.insert("forgotten_summary_id".to_owned(), Value::from(stored.as_str()));
            self.n_named += 1;
        } else {
            self.summary = summary;
        }
        if record.shown_summary().is_some() {
            self.summary = Some(event.id.summary_id());
        }
    }

    /// Reports what was counted.
    fn report(&self, mut note: impl FnMut(Diagnostic)) {
        if self.n_mirrors > 0 {
            let n = self.n_mirrors;
            note(Diagnostic::new(
                "file",
                format!(
                    "{n} messages repeat calls and answers that also stand as actions and observations; kept as unknown"
                ),
            ));
        }
        if self.n_named > 0 {
            let n = self.n_named;
            note(Diagnostic::new(
                "file",
                format!(
                    "{n} condensations forget an earlier summary by an id that is not stored; read as that summary"
                ),
            ));
        }
    }
}

fn members(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(Map::values)
}

/// Puts the usage of each response on the response's first event.
pub(crate) fn attach_usage<'a>(events: &mut [Event], metrics: impl Iterator<Item = &'a Value>) {
    let mut usages: HashMap<&str, Usage> = HashMap::new();
    for entry in metrics.filter_map(|metrics| metrics.get("token_usages")?.as_array()).flatten() {
        let response = entry.get("response_id").and_then(Value::as_str).unwrap_or_default();
        if let Some(usage) = fields::usage(entry, None).filter(|_| !response.is_empty()) {
            usages.insert(response, usage);
        }
    }
    for event in events.iter_mut().filter(|event| event.usage.is_none()) {
        event.usage = event.response_id().and_then(|response| usages.remove(response));
    }
}
