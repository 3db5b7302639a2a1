//! `condenser log list`, `show`, `verify` and `stats`.

use std::ops::Range;
use std::path::PathBuf;

use condenser::event::Source;
use condenser::request::text_of;
use condenser::{Class, Entry, Event, EventId, EventKind};
use condenser_log::{Access, Log, SessionId};
use serde::Serialize;
use serde_json::json;

use super::{SessionArguments, failed, find_session, open, write_rows};
use crate::error::{CliError, Exit};
use crate::output::{Output, OutputFormat};
use crate::terminal::{note, printable_lines};

/// Characters of an event's text in a table.
const EXCERPT: usize = 60;
/// Problems that are shown for a session.
const SHOWN_PROBLEMS: usize = 20;

#[derive(clap::Args, Debug)]
pub(crate) struct ListArguments {
    /// The log's file.
    db: PathBuf,
    /// The form of the list.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(Serialize)]
struct SessionRow {
    session: String,
    name: String,
    events: u64,
    branches: u64,
    rules: String,
    complete: bool,
    created_ms: u64,
    head: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<serde_json::Map<String, serde_json::Value>>,
}

pub(super) fn list(arguments: &ListArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.db, Access::Read)?;
    let rows: Vec<SessionRow> = log
        .sessions()
        .map_err(failed)?
        .into_iter()
        .map(|session| SessionRow {
            session: session.id.to_string(),
            name: session.name,
            events: session.events,
            branches: session.branches,
            rules: session.rules.name,
            complete: session.is_complete,
            created_ms: session.created_ms,
            head: session.head.map(|head| head.to_string()),
            // Nested objects have no place in comma-separated values.
            meta: (arguments.format != OutputFormat::Csv).then_some(session.meta),
        })
        .collect();
    write_rows(arguments.format, &["session", "name", "events", "branches", "rules"], &rows, |row| {
        let name = if row.complete { row.name.clone() } else { format!("{} (incomplete)", row.name) };
        vec![row.session.clone(), name, row.events.to_string(), row.branches.to_string(), row.rules.clone()]
    })?;
    Ok(Exit::Ok)
}

#[derive(clap::Args, Debug)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// One event: its whole text.
    id: Option<String>,
    /// Bytes of the event's text, as START..END.
    #[arg(long, requires = "id", value_parser = byte_range)]
    bytes: Option<Range<u64>>,
    /// The session as of this event, instead of its head.
    #[arg(long, value_name = "ID", conflicts_with = "id")]
    head: Option<String>,
    /// All events in the order they were appended, on whatever branch.
    #[arg(long, conflicts_with_all = ["id", "head", "view"])]
    all: bool,
    /// What the model is shown, instead of the events.
    #[arg(long, conflicts_with = "id")]
    view: bool,
    /// The form of the list; jsonl and json give whole events.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

fn byte_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || "a range of bytes is written START..END, as 0..4096".to_owned();
    let (start, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str, default| if text.is_empty() { Ok(default) } else { text.parse().map_err(|_| wrong()) };
    Ok(number(start, 0)?..number(end, u64::MAX)?)
}

#[derive(Serialize)]
struct EventRow {
    id: String,
    kind: String,
    source: String,
    text: String,
}

pub(super) fn show(arguments: &ShowArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.session.db, Access::Read)?;
    let session = arguments.session.find(&log)?;
    if let Some(id) = &arguments.id {
        return show_event(&log, &session, &EventId::from(id.as_str()), arguments);
    }
    let head = arguments.head.as_deref().map(EventId::from);
    if arguments.view {
        return show_view(&log, &session, head.as_ref(), arguments.format);
    }
    let events = match arguments.all {
        true => log.events(&session),
        false => log.branch(&session, head.as_ref()),
    };
    let events = events.map_err(failed)?;
    if arguments.format == OutputFormat::Jsonl {
        let mut output = Output::open(None)?;
        for event in events {
            output.json_line(&event.map_err(failed)?)?;
        }
        output.finish()?;
        return Ok(Exit::Ok);
    }
    let events: Vec<Event> = events.collect::<Result<_, _>>().map_err(failed)?;
    if arguments.format == OutputFormat::Json {
        let mut output = Output::open(None)?;
        output.json(&events)?;
        output.finish()?;
        return Ok(Exit::Ok);
    }
    let rows: Vec<EventRow> = events
        .iter()
        .map(|event| EventRow {
            id: event.id.to_string(),
            kind: event.kind.name().to_owned(),
            source: source(event.source).to_owned(),
            text: excerpt(&summary(&event.kind)),
        })
        .collect();
    write_events(arguments.format, &rows)
}

fn write_events(format: OutputFormat, rows: &[EventRow]) -> Result<Exit, CliError> {
    write_rows(format, &["id", "kind", "source", "text"], rows, |row| {
        vec![row.id.clone(), row.kind.clone(), row.source.clone(), row.text.clone()]
    })?;
    Ok(Exit::Ok)
}

fn show_event(log: &Log, session: &SessionId, id: &EventId, arguments: &ShowArguments) -> Result<Exit, CliError> {
    let missing = || CliError::Input(format!("no event {id} in session {session}"));
    let mut output = Output::open(None)?;
    if arguments.bytes.is_some() {
        // Exact bytes, for whatever reads them: nothing is escaped.
        let bytes = log.text(session, id, arguments.bytes.clone()).map_err(failed)?.ok_or_else(missing)?;
        output.with(|writer| writer.write_all(&bytes))?;
    } else {
        let event = log.event(session, id).map_err(failed)?.ok_or_else(missing)?;
        match arguments.format {
            OutputFormat::Json => output.json(&event)?,
            OutputFormat::Jsonl => output.json_line(&event)?,
            _ => output.text(&format!("{}\n", printable_lines(&summary(&event.kind))))?,
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn show_view(log: &Log, session: &SessionId, head: Option<&EventId>, format: OutputFormat) -> Result<Exit, CliError> {
    let view = log.view(session, head).map_err(failed)?;
    let mut rows = Vec::new();
    for entry in view.iter() {
        let (source, text) = match entry.summary() {
            Some(summary) => ("environment", summary.to_owned()),
            None => {
                let event = log.event(session, entry.id()).map_err(failed)?;
                let Some(event) = event else { continue };
                let kind = entry.rewrite().map(|(rewrite, _)| rewrite.op.apply(&event.kind));
                (self::source(event.source), summary(kind.as_ref().unwrap_or(&event.kind)))
            }
        };
        rows.push(EventRow {
            id: entry.id().to_string(),
            kind: class(&entry).to_owned(),
            source: source.to_owned(),
            text: excerpt(&text),
        });
    }
    write_events(format, &rows)
}

fn class(entry: &Entry<'_>) -> &'static str {
    match entry.class() {
        _ if entry.is_summary() => "summary",
        Class::SystemPrompt => "system_prompt",
        Class::Action => "action",
        Class::Observation => "observation",
        _ => "message",
    }
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Agent => "agent",
        Source::User => "user",
        Source::Hook => "hook",
        _ => "environment",
    }
}

/// The text of an event, or what stands for it where it has none.
fn summary(kind: &EventKind) -> String {
    let ids = |ids: &mut dyn Iterator<Item = &EventId>| ids.map(EventId::as_str).collect::<Vec<_>>().join(" ");
    match kind {
        EventKind::Action(action) => format!("{} {}", action.tool_name, text_of(kind)),
        EventKind::Condensation(record) => {
            let (forgotten, rewritten) = (record.forgotten_event_ids.len(), record.rewrites.len());
            let summary = record.summary.as_deref().unwrap_or("no summary");
            format!("forgets {forgotten}, rewrites {rewritten}: {summary}")
        }
        EventKind::CondensationFailed(failed) => failed.reason.clone(),
        EventKind::CondensationRequest(request) => request.guidance.clone().unwrap_or_default(),
        EventKind::Undo(undo) => undo.condensation.to_string(),
        EventKind::Pin(pin) | EventKind::Unpin(pin) => ids(&mut pin.ids.iter()),
        EventKind::Unknown(unknown) => unknown.foreign_kind.clone(),
        kind => text_of(kind),
    }
}

fn excerpt(text: &str) -> String {
    let mut words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = words.char_indices().nth(EXCERPT) {
        words.truncate(end);
        words.push('…');
    }
    words
}

#[derive(clap::Args, Debug)]
pub(crate) struct VerifyArguments {
    /// The log's file.
    db: PathBuf,
    /// Only this session: its id, the beginning of its id, or its name.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

pub(super) fn verify(arguments: &VerifyArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.db, Access::Read)?;
    let sessions = match &arguments.session {
        Some(_) => vec![find_session(&log, arguments.session.as_deref())?],
        None => log.sessions().map_err(failed)?.into_iter().map(|session| session.id).collect(),
    };
    let mut output = Output::open(None)?;
    let mut is_sound = true;
    for session in sessions {
        let found = log.verify(&session).map_err(failed)?;
        is_sound &= found.n_problems == 0;
        let erased = if found.n_erased > 0 { format!(", {} erased", found.n_erased) } else { String::new() };
        output.text(&format!("{session} {} events{erased}, {} problems\n", found.events, found.n_problems))?;
        for problem in found.problems.iter().take(SHOWN_PROBLEMS) {
            output.text(&format!("  {}\n", crate::terminal::printable(&problem.to_string())))?;
        }
        if found.n_problems > SHOWN_PROBLEMS as u64 {
            output.text(&format!("  {} more\n", found.n_problems - SHOWN_PROBLEMS as u64))?;
        }
    }
    let structure = log.check_file().map_err(failed)?;
    is_sound &= structure.is_empty();
    for line in &structure {
        output.text(&format!("file: {line}\n"))?;
    }
    output.finish()?;
    if !is_sound {
        note("the log is damaged; restore it from a backup, or export what still passes");
    }
    Ok(if is_sound { Exit::Ok } else { Exit::Check })
}

#[derive(clap::Args, Debug)]
pub(crate) struct StatsArguments {
    /// The log's file.
    db: PathBuf,
    /// The form of the numbers.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(Serialize)]
struct StatRow {
    what: String,
    value: serde_json::Value,
}

pub(super) fn stats(arguments: &StatsArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.db, Access::Read)?;
    let stats = log.stats().map_err(failed)?;
    let mut rows = vec![
        ("file bytes", json!(stats.file_bytes)),
        ("write-ahead log bytes", json!(stats.wal_bytes)),
        ("free bytes", json!(stats.free_bytes)),
        ("journal mode", json!(stats.journal)),
        ("format", json!(format!("{}.{}", stats.format.0, stats.format.1))),
        ("created by", json!(stats.creator)),
        ("sessions", json!(stats.sessions)),
        ("incomplete sessions", json!(stats.incomplete)),
        ("branches", json!(stats.branches)),
        ("events", json!(stats.events)),
        ("body bytes", json!(stats.body_bytes)),
        ("erased events", json!(stats.erased)),
        ("indexed events", json!(stats.indexed)),
        ("token counts", json!(stats.token_counts)),
    ];
    rows.extend(stats.kinds.iter().map(|(kind, n)| (*kind, json!(n))));
    let rows: Vec<StatRow> = rows.into_iter().map(|(what, value)| StatRow { what: what.to_owned(), value }).collect();
    write_rows(arguments.format, &["what", "value"], &rows, |row| {
        vec![row.what.clone(), row.value.as_str().map_or_else(|| row.value.to_string(), str::to_owned)]
    })?;
    Ok(Exit::Ok)
}
