//! Trajectory data sets as Parquet files: one trace a row.
//!
//! Rows hold chat messages under `messages` or `trajectory`, as a list or as JSON text, or a SWE-agent run as
//! `trajectory` of `role` and `text`. A column that a row has nothing in is as if it were not there.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::SerializedFileReader;
use parquet::record::reader::RowIter;
use serde_json::{Map, Value, json};

use crate::json::{Found, Record};
use crate::node::Node;
use crate::reader::{Out, Stream};
use crate::{Content, Diagnostic, Document, ReadError, Trace, openai_chat, swe_agent};

/// The rows of a file, one at a time.
pub(crate) struct Table {
    rows: RowIter<'static>,
    next: u64,
}

impl Table {
    pub(crate) fn open(path: &Path, file: File) -> Result<Self, ReadError> {
        match SerializedFileReader::new(file) {
            Ok(reader) => Ok(Self { rows: reader.into_iter(), next: 0 }),
            Err(error) => Err(ReadError::Malformed {
                path: path.to_owned(),
                place: "file".to_owned(),
                reason: format!("not a Parquet file that can be read: {error}"),
            }),
        }
    }

    /// Hands the next row to a stream; false at the end.
    pub(crate) fn next(&mut self, stream: &mut dyn Stream, out: &mut Out) -> bool {
        let row = self.next;
        self.next += 1;
        match self.rows.next() {
            None => false,
            Some(Ok(value)) => {
                let node = Node::from(without_nulls(value.to_json_value()));
                stream.push(Found { line: row, nth: 0, node }, out);
                true
            }
            Some(Err(error)) => {
                let message = format!("cannot be decoded: {error}; the rest of the file is left out");
                out.note_file(Diagnostic::new(format!("row {row}"), message));
                false
            }
        }
    }
}

/// Every struct of a column has all members that any of them has.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(key, value)| (key, without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

/// Reads rows as traces.
pub(crate) struct Rows {
    pub(crate) document: String,
}

impl Stream for Rows {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        let row = found.line;
        let value = found.node.into_value();
        let name = format!("{}#{row}", self.document);
        let read = match run(&value) {
            Some(run) => swe_agent_trace(run),
            None => openai_chat::row(&format!("row {row}"), openai_chat::Layout::Rows, value).map(|(trace, _)| trace),
        };
        match read {
            Ok(trace) => out.trace(Trace { name, ..trace }),
            Err(reason) => {
                out.note_file(Diagnostic::new(format!("row {row}"), format!("{reason}; the row is left out")))
            }
        }
    }

    fn finish(&mut self, _: &mut Out) {}
}

/// A row of SWE-agent turns as the run they are.
///
/// An action is the last fenced block of an answer; what the user says after it is what the action gave.
fn run(row: &Value) -> Option<Value> {
    let turns = row.get("trajectory")?.as_array()?;
    let is_turn = |turn: &Value| {
        turn.get("role").is_some() && (turn.get("text").is_some() || turn.get("system_prompt").is_some())
    };
    if turns.is_empty() || !turns.iter().all(is_turn) {
        return None;
    }
    let history: Vec<Value> = turns
        .iter()
        .map(|turn| {
            let mut item = turn.as_object().cloned().unwrap_or_default();
            let text = item.shift_remove("text").or_else(|| item.shift_remove("system_prompt")).unwrap_or_default();
            let role = item.shift_remove("role").unwrap_or_default();
            let is_answer = matches!(role.as_str(), Some("ai" | "assistant"));
            if let Some((thought, action)) = text.as_str().filter(|_| is_answer).and_then(fenced) {
                item.insert("thought".to_owned(), Value::from(thought));
                item.insert("action".to_owned(), Value::from(action));
            }
            item.insert("role".to_owned(), if is_answer { Value::from("assistant") } else { role });
            item.insert("content".to_owned(), text);
            item.insert("agent".to_owned(), Value::from("primary"));
            Value::Object(item)
        })
        .collect();
    let mut info: Map<String, Value> = row.as_object().cloned().unwrap_or_default();
    info.shift_remove("trajectory");
    Some(json!({"history": history, "info": info}))
}

/// What stands before the last fenced block, and the block.
fn fenced(text: &str) -> Option<(&str, &str)> {
    let (before, _) = text.rsplit_once("```")?;
    let (thought, block) = before.rsplit_once("```")?;
    let action = block.split_once('\n').map_or(block, |(_, action)| action);
    (!action.trim().is_empty()).then_some((thought.trim_end(), action))
}

fn swe_agent_trace(run: Value) -> Result<Trace, String> {
    let task = run.pointer("/info/instance_id").and_then(Value::as_str).map(str::to_owned);
    let records = vec![Record { line: 1, value: run }];
    let document = Document { path: "row".into(), content: Content::Records(records), diagnostics: Vec::new() };
    match (swe_agent::FORMAT.read)(document) {
        Ok(mut traces) if !traces.is_empty() => Ok(Trace { task, ..traces.swap_remove(0) }),
        Ok(_) => Err("no turns".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
