//! OpenHands SDK event logs: a conversation folder, JSON lines, a server's page, a list of events, or the
//! rows of a benchmark's `output.jsonl`.

use std::collections::{HashMap, HashSet};

use condenser::event::{Event, EventId, EventKind, Message, Origin, Role, Source, Unknown, Usage};
use condenser::tree::ROOT;
use serde_json::{Map, Value};

use crate::fields::{self, take_list, take_text};
use crate::ids::Ids;
use crate::json::{self, Record};
use crate::{Diagnostic, Document, Format, ReadError, Trace};

mod event;
mod mirrors;
mod stored;

pub use event::{LoadError, Mode, parse_event};
use mirrors::{Mirror, Mirrors, with_answer, with_thought};
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
    let mut diagnostics = std::mem::take(&mut document.diagnostics);
    let mut records = document.take_records();
    if let [Record { value, .. }] = records.as_mut_slice() {
        let items = match value {
            Value::Array(items) => Some(std::mem::take(items)),
            Value::Object(page) => {
                if page.get("next_page_id").is_some_and(|next| !next.is_null()) {
                    diagnostics.push(Diagnostic::new("file", "the page has a successor that is not in the file"));
                }
                take_list(page, "items")
            }
            _ => None,
        };
        if let Some(items) = items {
            let values: Vec<_> =
                items.into_iter().enumerate().map(|(at, value)| (format!("items[{at}]"), value)).collect();
            return one_trace(&document, values, diagnostics).map(|trace| vec![trace]);
        }
    }
    if records.iter().any(|record| is_row(&record.value)) {
        return read_rows(&document, records, diagnostics);
    }
    let values = records.into_iter().map(|record| (format!("line {}", record.line), record.value)).collect();
    one_trace(&document, values, diagnostics).map(|trace| vec![trace])
}

fn one_trace(
    document: &Document,
    values: Vec<(String, Value)>,
    mut diagnostics: Vec<Diagnostic>,
) -> Result<Trace, ReadError> {
    if !values.iter().any(|(_, value)| is_event(value)) {
        return Err(document.unfit(FORMAT.name, "no value has the `kind` of an event"));
    }
    let records = values.len() as u64;
    let events = events(values, &Head::default(), &mut diagnostics);
    Ok(Trace { name: document.name(), format: FORMAT.name, task: None, events, records, diagnostics })
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
    Ok(Trace { name: document.name(), format: FORMAT.name, task: None, events, records, diagnostics })
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
fn read_rows(
    document: &Document,
    records: Vec<Record>,
    mut diagnostics: Vec<Diagnostic>,
) -> Result<Vec<Trace>, ReadError> {
    let n_records = records.len() as u64;
    let mut traces: Vec<Trace> = Vec::new();
    for (row, record) in records.into_iter().enumerate() {
        let place = format!("line {}", record.line);
        let Value::Object(mut map) = record.value else {
            diagnostics.push(Diagnostic::new(place, "a list where a row was expected; left out"));
            continue;
        };
        let Some(history) = take_list(&mut map, "history") else {
            diagnostics.push(Diagnostic::new(place, "a row without `history`; left out"));
            continue;
        };
        let mut found = std::mem::take(&mut diagnostics);
        let values =
            history.into_iter().enumerate().map(|(at, value)| (format!("row {row} history[{at}]"), value)).collect();
        let mut events = events(values, &Head::default(), &mut found);
        if let Some(metrics) = map.get("metrics") {
            attach_usage(&mut events, std::iter::once(metrics));
        }
        let task = map.get("instance_id").map(|id| id.as_str().map_or_else(|| id.to_string(), str::to_owned));
        let lead = lead(&mut map, &events);
        events.splice(0..0, lead);
        traces.push(Trace {
            name: document.row_name(row),
            format: FORMAT.name,
            task,
            events,
            records: n_records,
            diagnostics: found,
        });
    }
    match traces.first_mut() {
        Some(first) => first.diagnostics.append(&mut diagnostics),
        None => return Err(document.unfit(FORMAT.name, "no row has a `history`")),
    }
    Ok(traces)
}

/// What stands before a row's history: the rest of the row, never shown, and the task as the user's message.
fn lead(row: &mut Map<String, Value>, history: &[Event]) -> Vec<Event> {
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
    let mirrors = Mirrors::find(&values);
    let mut ids = Ids::default();
    let mut parsed = Vec::with_capacity(values.len());
    let mut n_mirrors = 0usize;
    for (at, (place, mut value)) in values.into_iter().enumerate() {
        let Some(map) = value.as_object_mut() else {
            diagnostics.push(Diagnostic::new(place, "not an object; left out"));
            continue;
        };
        if !map.get("kind").is_some_and(Value::is_string) {
            diagnostics.push(Diagnostic::new(&place, "an event without `kind`; kept as unknown"));
        }
        if !map.get("id").is_some_and(Value::is_string) {
            let id = map.get("id").filter(|id| !id.is_null()).map_or_else(|| format!("event-{at}"), Value::to_string);
            diagnostics.push(Diagnostic::new(&place, format!("an event without a text as id; called {id}")));
            map.insert("id".to_owned(), Value::from(id));
        }
        let event = match mirrors.role(at, &value) {
            Mirror::None => parse_event(value, Mode::Lenient),
            Mirror::Copy => {
                n_mirrors += 1;
                parse_event(value.clone(), Mode::Lenient).map(|event| event::as_unknown(event, value))
            }
            Mirror::Thought(thought) => parse_event(value, Mode::Lenient).map(|event| with_thought(event, thought)),
            Mirror::Answer(content) => {
                let stored = value.get("observation").cloned();
                parse_event(value, Mode::Lenient).map(|event| with_answer(event, content, stored))
            }
        };
        match event {
            Ok(mut event) => {
                let record = event.id.as_str().to_owned();
                let (id, was_taken) = ids.claim(&record);
                if was_taken {
                    let name = json::excerpt(&record, 80);
                    diagnostics.push(Diagnostic::new(&place, format!("the id {name} occurs again; called {id}")));
                }
                event.id = id;
                event.origin = Some(Origin { record, part: 0 });
                parsed.push((place, event));
            }
            Err(error) => diagnostics.push(Diagnostic::new(place, format!("{error}; left out"))),
        }
    }
    if n_mirrors > 0 {
        diagnostics.push(Diagnostic::new(
            "file",
            format!("{n_mirrors} messages repeat calls and answers that also stand as actions and observations; kept as unknown"),
        ));
    }
    let mut events = active_branch(parsed, head, diagnostics);
    name_forgotten_summaries(&mut events, diagnostics);
    events
}

/// Names the summary that a condensation forgets as a view names it.
///
/// Versions of 2025 gave the entry of a summary a random id that no file holds. A condensation that forgets
/// exactly one id of no earlier event, while a summary is shown, means that summary.
fn name_forgotten_summaries(events: &mut [Event], diagnostics: &mut Vec<Diagnostic>) {
    let mut seen: HashSet<EventId> = HashSet::new();
    let mut shown: Option<EventId> = None;
    let mut n_named = 0usize;
    for event in events {
        if let EventKind::Condensation(record) = &mut event.kind {
            let summary = shown.take_if(|shown| !record.forgotten_event_ids.contains(shown));
            let mut unknown = record.forgotten_event_ids.iter().filter(|id| !seen.contains(*id));
            if let (Some(summary), Some(stored), None) = (&summary, unknown.next().cloned(), unknown.next()) {
                record.forgotten_event_ids.remove(&stored);
                record.forgotten_event_ids.insert(summary.clone());
                event.foreign.insert("forgotten_summary_id".to_owned(), Value::from(stored.as_str()));
                n_named += 1;
                shown = None;
            } else {
                shown = summary;
            }
            if record.shown_summary().is_some() {
                shown = Some(event.id.summary_id());
            }
        }
        seen.insert(event.id.clone());
    }
    if n_named > 0 {
        diagnostics.push(Diagnostic::new(
            "file",
            format!(
                "{n_named} condensations forget an earlier summary by an id that is not stored; read as that summary"
            ),
        ));
    }
}

/// The events on the path to the head, with what is never shown left where it stands.
///
/// Without any `parent_id` that is the whole log. A parent that is not an earlier event is bridged by the
/// event before.
fn active_branch(parsed: Vec<(String, Event)>, head: &Head, diagnostics: &mut Vec<Diagnostic>) -> Vec<Event> {
    if head.leaf.is_none() && !head.is_empty && parsed.iter().all(|(_, event)| event.parent.is_none()) {
        return parsed.into_iter().map(|(_, event)| event).collect();
    }
    let mut position: HashMap<EventId, usize> = HashMap::new();
    let mut parents = Vec::with_capacity(parsed.len());
    for (at, (place, event)) in parsed.iter().enumerate() {
        let before = at.checked_sub(1);
        let parent = match &event.parent {
            Some(parent) if parent.as_str() == ROOT => None,
            Some(parent) => position.get(parent).copied().or_else(|| {
                diagnostics.push(Diagnostic::new(
                    place,
                    "the parent is no earlier event of the file; the event before takes its place",
                ));
                before
            }),
            None => before,
        };
        parents.push(parent);
        position.entry(event.id.clone()).or_insert(at);
    }
    let moves_head = |event: &Event| {
        !matches!(
            event.foreign.get("kind").and_then(Value::as_str),
            Some("ConversationStateUpdateEvent" | "ConversationErrorEvent")
        )
    };
    let mut at = match &head.leaf {
        Some(leaf) => position.get(leaf.as_str()).copied().or_else(|| {
            diagnostics.push(Diagnostic::new(
                "base_state.json",
                "its leaf_event_id is no event of the log; the last event takes its place",
            ));
            parsed.iter().rposition(|(_, event)| moves_head(event))
        }),
        None if head.is_empty => None,
        None => parsed.iter().rposition(|(_, event)| moves_head(event)),
    };
    let mut on_path = vec![false; parsed.len()];
    while let Some(here) = at {
        on_path[here] = true;
        at = parents[here];
    }
    let n_all = parsed.len();
    let kept: Vec<Event> = parsed
        .into_iter()
        .zip(on_path)
        .filter(|((_, event), on_path)| *on_path || !moves_head(event))
        .map(|((_, event), _)| event)
        .collect();
    if kept.len() < n_all {
        diagnostics.push(Diagnostic::new(
            "file",
            format!("{} events stand on other branches and are left out", n_all - kept.len()),
        ));
    }
    kept
}

fn members(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_object().into_iter().flat_map(Map::values)
}

/// Puts the usage of each response on the response's first event.
fn attach_usage<'a>(events: &mut [Event], metrics: impl Iterator<Item = &'a Value>) {
    let mut usages: HashMap<&str, Usage> = HashMap::new();
    for entry in metrics.filter_map(|metrics| metrics.get("token_usages")?.as_array()).flatten() {
        let response = entry.get("response_id").and_then(Value::as_str).unwrap_or_default();
        if let Some(usage) = fields::usage(entry, None).filter(|_| !response.is_empty()) {
            usages.insert(response, usage);
        }
    }
    for event in events {
        event.usage = event.response_id().and_then(|response| usages.remove(response));
    }
}
