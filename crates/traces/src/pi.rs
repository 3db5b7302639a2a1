//! Pi coding agent sessions: one JSON entry a line, a header first.
//!
//! Version 1 (no `version` in the header) is a straight line of entries without ids. Later versions are a
//! tree by `id` and `parentId`: the active branch is the path from the last entry to its root, entries
//! on other branches are counted and left out. A parent that is not in the file is bridged by the entry
//! before it in the file, since such a link means damage.
//!
//! | entry | event |
//! | --- | --- |
//! | `message` of role user, custom, `custom_message`, `branch_summary`, `bashExecution` | a user message, worded as Pi words it for the model |
//! | `message` of role assistant | an action a call, with the text and thinking before it; what follows the last call is a message |
//! | `message` of role toolResult | an observation |
//! | `message` of role system | a system prompt |
//! | `compaction` | a condensation that forgets everything before the first kept entry, the earlier summary included |
//! | `context_edit` | a condensation that forgets or replaces its target |
//! | the header, model and thinking changes, labels, extension state, excluded commands | unknown |
//!
//! An answer that was aborted, or failed, before it had text or a call is unknown too. Calls of such
//! an answer are kept: Pi shows them, and some were answered. Each answer is a response of its own, by
//! its entry's id. Entries without an id are called `line-<n>`.

use std::collections::{HashMap, HashSet};

use condenser::condensation::{Condensation, RewriteOp};
use condenser::event::{
    ContentBlock, Event, EventId, EventKind, Message, Observation, Outcome, Role, Source, SystemPrompt, Usage,
};
use serde_json::{Map, Value};

use crate::blocks::{block, is_visible, take_action};
use crate::builder::{Builder, Count};
use crate::fields::{take_content, take_list, take_object, take_text};
use crate::json::Record;
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "pi",
    description: "Pi coding agent sessions, versions 1 to 3: ~/.pi/agent/sessions/**/*.jsonl",
    sniff,
    read,
};

fn sniff(document: &Document) -> bool {
    let kind = |record: &Record| record.value.get("type").and_then(Value::as_str).map(str::to_owned);
    let records = document.records();
    records.first().is_some_and(|header| is_header(&header.value) && header.value.get("createdAt").is_none())
        // Another harness has the same header and kinds with a slash.
        && !records.iter().take(50).any(|record| kind(record).is_some_and(|kind| kind.contains('/')))
}

fn is_header(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str) == Some("session") && value.get("id").is_some_and(Value::is_string)
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if !document.records().first().is_some_and(|header| is_header(&header.value)) {
        return Err(document.unfit(FORMAT.name, "the first record is no `session` header with an id"));
    }
    let records = document.take_records();
    let n_records = records.len();
    let mut builder = Builder::new(std::mem::take(&mut document.diagnostics));
    let ids = ids(&records);
    let path = path(&records, &mut builder);
    let places: HashMap<usize, usize> = path.iter().enumerate().map(|(place, index)| (*index, place)).collect();

    let mut records: Vec<Option<Record>> = records.into_iter().map(Some).collect();
    // The record ids of the path, as the builder made them unique.
    let mut done: Vec<EventId> = Vec::with_capacity(path.len());
    for index in &path {
        let Some(Record { line, value }) = records.get_mut(*index).and_then(Option::take) else { continue };
        let id = value.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = id.map_or_else(|| format!("line-{line}"), str::to_owned);
        let timestamp = value.get("timestamp").and_then(Value::as_str).map(str::to_owned);
        done.push(builder.begin(&id, format!("line {line}"), timestamp));
        let Value::Object(entry) = value else {
            builder.add_unknown(Source::Environment, "value", value);
            continue;
        };
        // Nothing is kept where the first kept entry is not on the path before the compaction.
        let first_kept = |entry: &Map<String, Value>| -> usize {
            let first = match entry.get("firstKeptEntryId").and_then(Value::as_str) {
                Some(id) => ids.get(id).copied(),
                None => entry.get("firstKeptEntryIndex").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()),
            };
            first.filter(|index| *index > 0).and_then(|index| places.get(&index).copied()).unwrap_or(done.len())
        };
        add_entry(&mut builder, entry, &done, first_kept);
    }
    Ok(vec![builder.finish(document.name(), FORMAT.name, n_records)])
}

/// Record positions by id; of equal ids the last, as Pi has it.
fn ids(records: &[Record]) -> HashMap<String, usize> {
    let id = |record: &Record| record.value.get("id").and_then(Value::as_str).map(str::to_owned);
    records.iter().enumerate().skip(1).filter_map(|(index, record)| Some((id(record)?, index))).collect()
}

/// The header, then the entries of the active branch, as positions in the file.
fn path(records: &[Record], builder: &mut Builder) -> Vec<usize> {
    let ids = ids(records);
    if ids.is_empty() {
        return (0..records.len()).collect();
    }
    let mut bridged = Count::default();
    let mut seen = HashSet::new();
    let mut path = Vec::new();
    let mut next = records.len() - 1;
    while next > 0 && seen.insert(next) {
        path.push(next);
        let record = &records[next];
        next = match record.value.get("parentId") {
            Some(Value::Null) => 0,
            Some(Value::String(id)) => ids.get(id).copied().unwrap_or_else(|| {
                bridged.add(|| format!("line {}", record.line));
                next - 1
            }),
            _ => next - 1,
        };
    }
    if next > 0 {
        let place = format!("line {}", records[next].line);
        builder.note([Diagnostic::new(place, "parents form a circle; the branch was cut here")]);
    }
    builder.note(bridged.report("parents that are not in the file, bridged by the entry before"));
    path.push(0);
    path.reverse();
    if path.len() < records.len() {
        let off = records.len() - path.len();
        builder.note([Diagnostic::new("file", format!("entries on other branches, left out: {off}"))]);
    }
    path
}

/// Adds one entry. `done` are the record ids of the path so far, this entry's last.
fn add_entry(
    builder: &mut Builder,
    mut entry: Map<String, Value>,
    done: &[EventId],
    first_kept: impl Fn(&Map<String, Value>) -> usize,
) {
    let kind = entry.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "message" if entry.get("message").is_some_and(Value::is_object) => add_message(builder, entry),
        "custom_message" => {
            let content = take_content(&mut entry, "content", block);
            add_text(builder, Source::Environment, content, entry);
        }
        "branch_summary" if entry.get("summary").and_then(Value::as_str).is_some_and(|text| !text.is_empty()) => {
            let summary = take_text(&mut entry, "summary").unwrap_or_default();
            add_text(builder, Source::Environment, vec![ContentBlock::text(branch_summary(&summary))], entry);
        }
        "compaction" => {
            let first = first_kept(&entry);
            let kept: HashSet<&str> = done.iter().skip(first).map(EventId::as_str).collect();
            let summary = take_text(&mut entry, "summary");
            // The prompt in force then is stored with the compaction; without one, none was shown.
            let keeps_system = entry.get("systemMessage").is_some_and(Value::is_object);
            let event = builder.add_compaction(summary, keeps_system, |record| kept.contains(record));
            event.foreign = rest(entry);
        }
        "context_edit" => add_edit(builder, entry),
        _ => {
            builder.add_unknown(Source::Environment, &kind, Value::Object(entry));
        }
    }
}

fn add_message(builder: &mut Builder, mut entry: Map<String, Value>) {
    let Some(message) = entry.get_mut("message").and_then(Value::as_object_mut) else { return };
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
    match role.as_str() {
        "assistant" => add_answer(builder, entry),
        "user" | "custom" | "hookMessage" => {
            let content = take_content(message, "content", block);
            let source = if role == "user" { Source::User } else { Source::Environment };
            add_text(builder, source, content, entry);
        }
        "toolResult" => {
            let observation = Observation {
                call_id: take_text(message, "toolCallId").unwrap_or_default(),
                tool_name: take_text(message, "toolName").unwrap_or_default(),
                content: take_content(message, "content", block),
                outcome: match message.get("isError").and_then(Value::as_bool) {
                    Some(true) => Outcome::Error,
                    _ => Outcome::Ok,
                },
                ..Observation::default()
            };
            builder.add(Source::Environment, EventKind::Observation(observation)).foreign = rest(entry);
        }
        "bashExecution" if message.get("excludeFromContext").and_then(Value::as_bool) != Some(true) => {
            let content = vec![ContentBlock::text(bash_text(message))];
            message.shift_remove("output");
            add_text(builder, Source::User, content, entry);
        }
        "branchSummary" | "compactionSummary" if message.get("summary").is_some_and(Value::is_string) => {
            let summary = take_text(message, "summary").unwrap_or_default();
            let text = if role == "branchSummary" { branch_summary(&summary) } else { summary };
            add_text(builder, Source::Environment, vec![ContentBlock::text(text)], entry);
        }
        "system" => {
            let prompt = SystemPrompt { content: take_content(message, "content", block), ..SystemPrompt::default() };
            builder.add(Source::Environment, EventKind::SystemPrompt(prompt)).foreign = rest(entry);
        }
        _ => {
            let source = if role == "bashExecution" { Source::User } else { Source::Environment };
            builder.add_unknown(source, "message", Value::Object(entry));
        }
    }
}

fn add_text(builder: &mut Builder, source: Source, content: Vec<ContentBlock>, entry: Map<String, Value>) {
    let message = Message { content, ..Message::text(Role::User, "") };
    builder.add(source, EventKind::Message(message)).foreign = rest(entry);
}

/// One answer of the model: an action a call, and a message of what no call follows.
fn add_answer(builder: &mut Builder, mut entry: Map<String, Value>) {
    let response = entry.get("id").and_then(Value::as_str).map(str::to_owned);
    let Some(message) = entry.get_mut("message").and_then(Value::as_object_mut) else { return };
    let parts = message.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_call = |part: &Value| part.get("type").and_then(Value::as_str) == Some("toolCall");
    let has_text = match message.get("content") {
        Some(Value::String(text)) => !text.trim().is_empty(),
        _ => parts.iter().any(|part| is_call(part) || is_visible(&block(part).0)),
    };
    let is_cut = matches!(message.get("stopReason").and_then(Value::as_str), Some("aborted" | "error"));
    if !has_text && (is_cut || parts.is_empty()) {
        builder.add_unknown(Source::Agent, "message", Value::Object(entry));
        return;
    }

    let response = response.filter(|id| !id.is_empty()).unwrap_or_else(|| builder.record().as_str().to_owned());
    let usage = take_usage(message);
    let mut pending = Vec::new();
    let mut events: Vec<(EventKind, Map<String, Value>)> = Vec::new();
    match take_list(message, "content") {
        None => pending = take_content(message, "content", block),
        Some(parts) => {
            let inexact: Vec<Value> = parts.iter().filter(|part| !is_call(part) && !block(part).1).cloned().collect();
            if !inexact.is_empty() {
                message.insert("content".to_owned(), Value::Array(inexact));
            }
            for part in parts {
                match part {
                    Value::Object(mut call) if call.get("type").and_then(Value::as_str) == Some("toolCall") => {
                        let action = take_action(&mut call, "arguments", std::mem::take(&mut pending), &response);
                        let mut foreign = Map::new();
                        if !call.is_empty() {
                            foreign.insert("block".to_owned(), Value::Object(call));
                        }
                        events.push((EventKind::Action(action), foreign));
                    }
                    part => pending.push(block(&part).0),
                }
            }
        }
    }
    if !pending.is_empty() {
        let response_id = Some(response);
        let message = Message { content: pending, response_id, ..Message::text(Role::Assistant, "") };
        events.push((EventKind::Message(message), Map::new()));
    }
    let mut shared = Some((usage, rest(entry)));
    for (kind, foreign) in events {
        let event = builder.add(Source::Agent, kind);
        event.foreign = foreign;
        if let Some((usage, rest)) = shared.take() {
            event.usage = usage;
            event.foreign.extend(rest);
        }
    }
}

/// Moves the counters out. Pi's `input` excludes what was read from and written to the cache.
fn take_usage(message: &mut Map<String, Value>) -> Option<Usage> {
    let model = message.get("model").and_then(Value::as_str).map(str::to_owned);
    let counters = message.get_mut("usage")?.as_object_mut()?;
    let mut take = |key: &str| {
        let count = counters.get(key)?.as_u64()?;
        counters.shift_remove(key);
        Some(count)
    };
    Some(Usage {
        input_tokens: take("input"),
        cache_read_tokens: take("cacheRead"),
        cache_write_tokens: take("cacheWrite"),
        output_tokens: take("output"),
        model,
    })
}

/// A later change of another entry: null takes it out of the context, content replaces its own.
fn add_edit(builder: &mut Builder, entry: Map<String, Value>) {
    let target = entry.get("targetId").and_then(Value::as_str).unwrap_or_default();
    let targets: Vec<&Event> = builder
        .events()
        .iter()
        .filter(|event| event.kind.is_shown() && event.origin.as_ref().is_some_and(|origin| origin.record == target))
        .collect();
    let mut record = Condensation::default();
    match (entry.get("replacement"), targets.as_slice()) {
        (Some(Value::Null), _) => record.forgotten_event_ids = targets.iter().map(|event| event.id.clone()).collect(),
        (Some(Value::Object(replacement)), [event]) if !matches!(event.kind, EventKind::Action(_)) => {
            let content = take_content(&mut replacement.clone(), "content", block);
            record.rewrites.insert(event.id.clone(), RewriteOp::Replace { content }.into());
        }
        (_, []) => {}
        _ => {
            let what = "an edit of an answer with calls is kept as unknown: no record can exchange calls";
            builder.note([Diagnostic::new(builder.place().to_owned(), what)]);
            builder.add_unknown(Source::Environment, "context_edit", Value::Object(entry));
            return;
        }
    }
    builder.add_condensation(record).foreign = rest(entry);
}

/// What of an entry the event has no place for.
fn rest(mut entry: Map<String, Value>) -> Map<String, Value> {
    for key in ["id", "timestamp"] {
        if entry.get(key).is_some_and(Value::is_string) {
            entry.shift_remove(key);
        }
    }
    if let Some(mut message) = take_object(&mut entry, "message") {
        if message.get("usage").and_then(Value::as_object).is_some_and(Map::is_empty) {
            message.shift_remove("usage");
        }
        entry.insert("message".to_owned(), Value::Object(message));
    }
    entry
}

fn branch_summary(summary: &str) -> String {
    format!(
        "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{summary}</summary>"
    )
}

/// A command that the user ran, as Pi tells the model.
fn bash_text(message: &Map<String, Value>) -> String {
    let text = |key: &str| message.get(key).and_then(Value::as_str).unwrap_or_default();
    let is = |key: &str| message.get(key).and_then(Value::as_bool) == Some(true);
    let mut told = format!("Ran `{}`\n", text("command"));
    match text("output") {
        "" => told.push_str("(no output)"),
        output => told.push_str(&format!("```\n{output}\n```")),
    }
    match message.get("exitCode").and_then(Value::as_i64) {
        _ if is("cancelled") => told.push_str("\n\n(command cancelled)"),
        Some(code) if code != 0 => told.push_str(&format!("\n\nCommand exited with code {code}")),
        _ => {}
    }
    match text("fullOutputPath") {
        path if is("truncated") && !path.is_empty() => {
            told.push_str(&format!("\n\n[Output truncated. Full output: {path}]"));
        }
        _ => {}
    }
    told
}
