//! Writers of trace formats.
//!
//! A trace that is written in its own format becomes what it was read from, as far as the events tell: off-branch
//! records were never events. A trace of another format is written in the words of the target, and what these cannot
//! say is left out and reported.

use std::io;

use condenser::event::{ContentBlock, Event, EventKind, Role};
use condenser::request::{Api, Request};
use condenser::view::{Rules, View};
use serde_json::{Map, Value};

use crate::{Diagnostic, Trace};

mod anthropic;
mod atif;
mod openai_chat;
mod openhands_v1;
mod pi;

/// The formats that can be written, by their stable names.
pub const WRITABLE: [&str; 5] = ["openhands-v1", "openai-chat", "anthropic", "pi", "atif"];

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// No writer has this name.
    #[error("no trace format that can be written is called {asked:?}; these are: {}", WRITABLE.join(", "))]
    UnknownFormat {
        /// The name as given, shortened.
        asked: String,
    },
    /// The format holds one conversation a file.
    #[error("{format} holds one conversation a file, and there are {n}; convert them one by one (PATH#ROW)")]
    OneTrace {
        /// The format.
        format: &'static str,
        /// The number of traces.
        n: usize,
    },
}

/// Traces in the words of a format.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The JSON values of the file.
    pub values: Vec<Value>,
    /// Whether the file is a value a line; else it is one document.
    pub is_lines: bool,
    /// What was left out.
    pub diagnostics: Vec<Diagnostic>,
}

impl Written {
    /// Writes the file.
    ///
    /// # Errors
    ///
    /// What the writer says.
    pub fn write_to(&self, writer: &mut dyn io::Write) -> io::Result<()> {
        for value in &self.values {
            match self.is_lines {
                true => serde_json::to_writer(&mut *writer, value)?,
                false => serde_json::to_writer_pretty(&mut *writer, value)?,
            }
            writer.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Turns the traces of one file into the named format.
///
/// # Errors
///
/// [`WriteError`].
pub fn write(traces: &[Trace], format: &str) -> Result<Written, WriteError> {
    let one = |format: &'static str| match traces {
        [trace] => Ok(trace),
        _ => Err(WriteError::OneTrace { format, n: traces.len() }),
    };
    match format {
        "openhands-v1" => openhands_v1::write(traces),
        "openai-chat" => Ok(openai_chat::write(traces)),
        "anthropic" => one("anthropic").map(anthropic::write),
        "pi" => one("pi").map(pi::write),
        "atif" => Ok(atif::write(traces)),
        _ => Err(WriteError::UnknownFormat { asked: crate::json::excerpt(format, 60) }),
    }
}

/// The events of each foreign record, in order.
fn records(events: &[Event]) -> impl Iterator<Item = &[Event]> {
    events.chunk_by(|a, b| match (&a.origin, &b.origin) {
        (Some(a), Some(b)) => a.record == b.record && a.part < b.part,
        _ => false,
    })
}

/// The events of each answer of the model, and each other event by itself.
fn turns(events: &[Event]) -> impl Iterator<Item = &[Event]> {
    let is_answer = |event: &Event| match &event.kind {
        EventKind::Action(_) => true,
        EventKind::Message(message) => message.role == Role::Assistant,
        _ => false,
    };
    events.chunk_by(move |a, b| {
        is_answer(a) && is_answer(b) && a.response_id().is_some() && a.response_id() == b.response_id()
    })
}

/// Puts content where the reader took it from. What the reader left there says more and stays.
fn put_content(
    map: &mut Map<String, Value>,
    key: &str,
    blocks: &[ContentBlock],
    part: impl Fn(&ContentBlock) -> Value,
) {
    let shape = map.shift_remove(&format!("{key}_shape"));
    if map.contains_key(key) || (blocks.is_empty() && shape.is_none()) {
        return;
    }
    let content = match (shape.as_ref().and_then(Value::as_str), blocks) {
        (Some("string"), [block]) if block.as_text().is_some() => Value::from(block.as_text()),
        (Some("object"), [block]) => part(block),
        _ => Value::Array(blocks.iter().map(part).collect()),
    };
    map.insert(key.to_owned(), content);
}

/// The text of content, other blocks left out.
fn text_of(blocks: &[ContentBlock]) -> String {
    blocks.iter().filter_map(ContentBlock::as_text).collect::<Vec<_>>().join("\n")
}

/// Arguments as the object they are, or as their text.
fn parsed(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        _ if arguments.trim().is_empty() => Value::Object(Map::new()),
        _ => Value::from(arguments),
    }
}

/// A trace as the request that an API would be sent after it, nothing condensed.
fn request(trace: &Trace, api: Api) -> Value {
    let events: Vec<Event> =
        trace.events.iter().filter(|event| !matches!(event.kind, EventKind::Condensation(_))).cloned().collect();
    let view = View::replay(&events, Rules::Sound);
    Request::build(&view, &events).render(api)
}

/// What a format has no words for, counted.
fn left_out<'e>(events: impl Iterator<Item = &'e Event>, format: &str) -> Vec<Diagnostic> {
    let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    events.for_each(|event| *counts.entry(event.kind.name()).or_default() += 1);
    counts
        .into_iter()
        .map(|(kind, n)| {
            Diagnostic::new("trace", format!("events of kind {kind}, which {format} cannot say, left out: {n}"))
        })
        .collect()
}

/// Whether an event is no part of the conversation.
fn is_aside(event: &&Event) -> bool {
    !event.kind.is_shown()
}
