//! Claude Code sessions: one JSON record a line, chained by `uuid` and `parentUuid`.
//!
//! | record | event |
//! | --- | --- |
//! | `user` text, typed or injected (`isMeta`) | a user message |
//! | `user` tool result | an observation a result |
//! | `assistant` | an action a call; the text and thinking before it go with it, what follows the last call is a message |
//! | `system/compact_boundary` with the `isCompactSummary` record after it | one condensation |
//! | `system/microcompact_boundary` | a condensation that clears the named results |
//! | all else: progress, snapshots, titles, sub-agents, errors written by the client | unknown |
//!
//! **One answer, many records.** Records with one `message.id` are one response. Text or thinking that
//! stands in a record of its own joins the next call of the response; the leftovers of its record are
//! then in that event's foreign field `merged`. An event has the id of the record that completed it.
//! Usage grows from record to record: the last one counts, and stands on the first event. An answer
//! of nothing but thinking is unknown, since the client does not send it back.
//!
//! **Live branch.** Walking up from the last user, assistant or system record gives the chain. A boundary
//! is crossed by `logicalParentUuid`, and a parent that is not in the file is bridged by the record before.
//! To the chain belong also the records beside it that are no branches: other records of an answer on
//! the chain (parallel calls), results of its calls, and text injected with one of its calls. Other user
//! and assistant records and boundaries were abandoned by a rewind or a retry: they are counted and left
//! out. What stays is in file order. Where all records are a sub-agent's, they are the conversation.

use std::collections::{BTreeMap, HashMap, HashSet};

use condenser::condensation::{Condensation, Rewrite, RewriteOp};
use condenser::event::{ContentBlock, EventId, EventKind, Message, Observation, Outcome, Role, Source, Usage};
use serde_json::{Map, Value};

use crate::blocks::{block, is_visible, take_action};
use crate::builder::{Builder, Count};
use crate::fields::{anthropic_usage, take_content, take_list, take_text};
use crate::json;
use crate::{Diagnostic, Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format =
    Format { name: "claude-code", description: "Claude Code sessions: ~/.claude/projects/**/*.jsonl", sniff, read };

/// What stands for a result that the client no longer sends.
const CLEARED: &str = "[Old tool result content cleared]";

fn sniff(document: &Document) -> bool {
    document.records().iter().take(50).any(|record| is_own(&record.value))
}

fn is_own(record: &Value) -> bool {
    let has = |key: &str| record.get(key).is_some_and(Value::is_string);
    match record.get("type").and_then(Value::as_str) {
        Some("summary") => has("leafUuid") || has("sessionId"),
        Some(
            "user" | "assistant" | "system" | "progress" | "attachment" | "queue-operation" | "file-history-snapshot",
        ) => has("sessionId"),
        _ => false,
    }
}

/// A record and what the chain needs of it.
struct Record {
    line: u64,
    id: String,
    kind: Kind,
    value: Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    User,
    Assistant,
    Compact,
    Microcompact,
    /// Any other system record.
    System,
    /// Not part of the conversation.
    Noise,
}

impl Record {
    fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key).and_then(Value::as_str)
    }

    fn is(&self, key: &str) -> bool {
        self.value.get(key).and_then(Value::as_bool) == Some(true)
    }

    /// The response an assistant record belongs to.
    fn response(&self) -> Option<&str> {
        match self.kind {
            Kind::Assistant => self.value.pointer("/message/id").and_then(Value::as_str).or(Some(&self.id)),
            _ => None,
        }
    }

    /// The blocks of the message; none where the content is text.
    fn blocks(&self) -> &[Value] {
        self.value.pointer("/message/content").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn block_ids(&self, kind: &str, key: &str) -> impl Iterator<Item = &str> {
        self.blocks()
            .iter()
            .filter(move |block| is_kind(block, kind))
            .filter_map(move |block| block.get(key).and_then(Value::as_str))
    }

    fn place(&self) -> String {
        format!("line {}", self.line)
    }
}

fn is_kind(block: &Value, kind: &str) -> bool {
    block.get("type").and_then(Value::as_str) == Some(kind)
}

fn read(mut document: Document) -> Result<Vec<Trace>, ReadError> {
    if !document.records().iter().any(|record| is_own(&record.value)) {
        return Err(document.unfit(FORMAT.name, "no record has a `sessionId` and a type of a session"));
    }
    let records = document.take_records();
    let n_records = records.len();
    let mut builder = Builder::new(std::mem::take(&mut document.diagnostics));
    let records = classify(records);
    let live = live(&records, &mut builder);
    let mut session = Session::new(&records, &live);
    for (index, record) in records.into_iter().enumerate() {
        session.add(&mut builder, index, record, live[index]);
    }
    let odd = [
        session.abandoned.report("records abandoned by a rewind or a retry, left out"),
        session.unmatched.report("cleared results that are not in the file"),
    ];
    builder.note(odd.into_iter().flatten());
    Ok(vec![builder.finish(document.name(), FORMAT.name, n_records)])
}

/// Names each record and tells the conversation from the rest.
fn classify(records: Vec<json::Record>) -> Vec<Record> {
    let is_chained = |value: &Value| {
        matches!(value.get("type").and_then(Value::as_str), Some("user" | "assistant"))
            && value.get("uuid").is_some_and(Value::is_string)
    };
    let is_side = |value: &Value| value.get("isSidechain").and_then(Value::as_bool) == Some(true);
    let is_sub_agent = !records.iter().any(|record| is_chained(&record.value) && !is_side(&record.value));
    let mut seen = HashSet::new();
    let mut classified = Vec::with_capacity(records.len());
    for json::Record { line, value } in records {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let uuid = text("uuid").map(str::to_owned);
        let is_new = uuid.as_ref().is_some_and(|uuid| seen.insert(uuid.clone()));
        let has_message = value.get("message").is_some_and(Value::is_object);
        let kind = match text("type") {
            // A record that was written twice counts once.
            _ if !is_new || (is_side(&value) && !is_sub_agent) => Kind::Noise,
            Some("user") if has_message => Kind::User,
            Some("assistant") if has_message => Kind::Assistant,
            Some("system") => match text("subtype") {
                Some("compact_boundary") => Kind::Compact,
                Some("microcompact_boundary") => Kind::Microcompact,
                _ => Kind::System,
            },
            _ => Kind::Noise,
        };
        classified.push(Record { line, id: uuid.unwrap_or_else(|| format!("line-{line}")), kind, value });
    }
    classified
}

/// Which records are on the live branch.
fn live(records: &[Record], builder: &mut Builder) -> Vec<bool> {
    let mut live = vec![false; records.len()];
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    for (index, record) in records.iter().enumerate() {
        by_id.entry(record.id.as_str()).or_insert(index);
    }
    let before = |index: usize| records[..index].iter().rposition(|record| record.kind != Kind::Noise);

    let mut bridged = Count::default();
    let mut next = before(records.len());
    while let Some(index) = next {
        if std::mem::replace(&mut live[index], true) {
            builder.note([Diagnostic::new(records[index].place(), "parents form a circle; the branch was cut here")]);
            break;
        }
        let record = &records[index];
        let logical = record.text("logicalParentUuid").and_then(|id| by_id.get(id).copied());
        next = match record.value.get("parentUuid") {
            Some(Value::Null) if logical.is_some() || record.kind != Kind::Compact => logical,
            Some(Value::Null) | None => before(index),
            Some(parent) => match parent.as_str().and_then(|id| by_id.get(id).copied()).or(logical) {
                Some(parent) => Some(parent),
                None => {
                    bridged.add(|| record.place());
                    before(index)
                }
            },
        };
    }
    builder.note(bridged.report("parents that are not in the file, bridged by the record before"));

    let answers: HashSet<&str> =
        records.iter().zip(&live).filter(|(_, live)| **live).filter_map(|(record, _)| record.response()).collect();
    for (index, record) in records.iter().enumerate() {
        live[index] |= record.response().is_some_and(|id| answers.contains(id));
    }
    let calls: HashSet<&str> = records
        .iter()
        .filter(|record| record.response().is_some_and(|id| answers.contains(id)))
        .flat_map(|record| record.block_ids("tool_use", "id"))
        .collect();
    for (index, record) in records.iter().enumerate().filter(|(_, record)| record.kind == Kind::User) {
        live[index] |= record.block_ids("tool_result", "tool_use_id").any(|id| calls.contains(id))
            || record.text("sourceToolUseID").is_some_and(|id| calls.contains(id));
    }
    live
}

/// What is known of a response from all its records.
#[derive(Default)]
struct Response {
    last_record: usize,
    is_visible: bool,
    usage: Option<Usage>,
}

/// Text and thinking that wait for a call, and what is left of their records.
#[derive(Default)]
struct Pending {
    blocks: Vec<ContentBlock>,
    merged: Vec<Value>,
}

struct Session {
    responses: HashMap<String, Response>,
    pending: HashMap<String, Pending>,
    /// The summary record of each boundary, by position.
    summaries: HashMap<usize, Value>,
    consumed: HashSet<usize>,
    /// Record ids in file order, for the segments that compactions preserve.
    positions: HashMap<String, usize>,
    abandoned: Count,
    unmatched: Count,
}

impl Session {
    fn new(records: &[Record], live: &[bool]) -> Self {
        let mut session = Self {
            responses: HashMap::new(),
            pending: HashMap::new(),
            summaries: HashMap::new(),
            consumed: HashSet::new(),
            positions: HashMap::new(),
            abandoned: Count::default(),
            unmatched: Count::default(),
        };
        let mut boundary = None;
        for (index, record) in records.iter().enumerate() {
            session.positions.entry(record.id.clone()).or_insert(index);
            match record.kind {
                _ if !live[index] => {}
                Kind::Compact => boundary = Some(index),
                Kind::User if record.is("isCompactSummary") => {
                    if let Some(boundary) = boundary.take() {
                        session.summaries.insert(boundary, record.value.clone());
                        session.consumed.insert(index);
                    }
                }
                Kind::Assistant if !is_from_client(record) => {
                    let Some(id) = record.response() else { continue };
                    let response = session.responses.entry(id.to_owned()).or_default();
                    response.last_record = index;
                    response.is_visible |= match record.value.pointer("/message/content") {
                        Some(Value::String(text)) => !text.trim().is_empty(),
                        _ => record.blocks().iter().any(|part| is_visible(&block(part).0)),
                    };
                    response.usage = usage(&record.value).or(response.usage.take());
                }
                _ => {}
            }
        }
        session
    }

    fn add(&mut self, builder: &mut Builder, index: usize, record: Record, is_live: bool) {
        let is_message = matches!(record.kind, Kind::User | Kind::Assistant | Kind::Compact | Kind::Microcompact);
        if is_message && !is_live {
            self.abandoned.add(|| record.place());
            return;
        }
        if self.consumed.contains(&index) {
            return;
        }
        builder.begin(&record.id, record.place(), record.text("timestamp").map(str::to_owned));
        match record.kind {
            Kind::User if record.is("isCompactSummary") => self.add_compaction(builder, None, Some(record.value)),
            Kind::Compact => {
                let summary = self.summaries.remove(&index);
                self.add_compaction(builder, Some(record.value), summary);
            }
            Kind::Microcompact => self.add_clearing(builder, record.value),
            Kind::User if !record.is("isVisibleInTranscriptOnly") => add_user(builder, record.value),
            Kind::Assistant if !is_from_client(&record) => self.add_answer(builder, index, record),
            Kind::User => add_noise(builder, Source::User, record.value),
            Kind::Assistant => add_noise(builder, Source::Agent, record.value),
            Kind::System | Kind::Noise => add_noise(builder, Source::Environment, record.value),
        }
    }

    /// One record of an answer.
    fn add_answer(&mut self, builder: &mut Builder, index: usize, record: Record) {
        let id = record.response().unwrap_or_default().to_owned();
        let Some(response) = self.responses.get_mut(&id) else { return };
        if !response.is_visible {
            let usage = response.usage.take();
            add_noise(builder, Source::Agent, record.value);
            builder.set_usage(usage);
            return;
        }
        let is_last = index == response.last_record;
        let Value::Object(mut map) = record.value else { return };
        let Some(message) = map.get_mut("message").and_then(Value::as_object_mut) else { return };
        let mut pending = self.pending.remove(&id).unwrap_or_default();
        let mut actions = Vec::new();
        match take_list(message, "content") {
            None => pending.blocks.extend(take_content(message, "content", block)),
            Some(parts) => {
                let mut inexact = Vec::new();
                for part in parts {
                    match part {
                        Value::Object(mut call) if call.get("type").and_then(Value::as_str) == Some("tool_use") => {
                            let before = std::mem::take(&mut pending);
                            let action = take_action(&mut call, "input", before.blocks, &id);
                            actions.push((action, call, before.merged));
                        }
                        part => {
                            let (converted, exact) = block(&part);
                            pending.blocks.push(converted);
                            if !exact {
                                inexact.push(part);
                            }
                        }
                    }
                }
                if !inexact.is_empty() {
                    message.insert("content".to_owned(), Value::Array(inexact));
                }
            }
        }

        let mut rest = Some(rest(map));
        for (action, call, merged) in actions {
            let event = builder.add(Source::Agent, EventKind::Action(action));
            event.usage = response.usage.take();
            event.foreign = rest.take().unwrap_or_default();
            if !call.is_empty() {
                event.foreign.insert("block".to_owned(), Value::Object(call));
            }
            if !merged.is_empty() {
                event.foreign.insert("merged".to_owned(), Value::Array(merged));
            }
        }
        if is_last && !pending.blocks.is_empty() {
            let content = pending.blocks;
            let message = Message { content, response_id: Some(id), ..Message::text(Role::Assistant, "") };
            let event = builder.add(Source::Agent, EventKind::Message(message));
            event.usage = response.usage.take();
            event.foreign = rest.take().unwrap_or_default();
            if !pending.merged.is_empty() {
                event.foreign.insert("merged".to_owned(), Value::Array(pending.merged));
            }
            return;
        }
        if let Some(mut rest) = rest {
            rest.insert("uuid".to_owned(), Value::String(record.id));
            rest.insert("timestamp".to_owned(), builder.timestamp().map_or(Value::Null, Value::from));
            pending.merged.push(Value::Object(rest));
        }
        if !pending.blocks.is_empty() || !pending.merged.is_empty() {
            self.pending.insert(id, pending);
        }
    }

    fn add_compaction(&self, builder: &mut Builder, boundary: Option<Value>, summary: Option<Value>) {
        let preserved = boundary.as_ref().map(|boundary| self.preserved(boundary)).unwrap_or_default();
        if summary.is_none() {
            builder.note([Diagnostic::new(builder.place().to_owned(), "no summary follows the compaction")]);
        }
        let mut foreign = Map::new();
        if let Some(boundary) = boundary {
            foreign.insert("boundary".to_owned(), boundary);
        }
        let mut text = None;
        if let Some(Value::Object(mut record)) = summary {
            if let Some(message) = record.get_mut("message").and_then(Value::as_object_mut) {
                let content = take_content(message, "content", block);
                let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).collect();
                text = Some(texts.join("\n"));
            }
            foreign.insert("summary_record".to_owned(), Value::Object(record));
        }
        builder.add_compaction(text, true, |record| preserved.contains(record)).foreign = foreign;
    }

    /// The records that stay in view: listed by id, or as the segment between two.
    fn preserved(&self, boundary: &Value) -> HashSet<String> {
        let mut ids = HashSet::new();
        let messages = boundary.pointer("/compactMetadata/preservedMessages");
        let listed = messages.and_then(|kept| kept.get("allUuids").or_else(|| kept.get("uuids")).or(Some(kept)));
        for item in listed.and_then(Value::as_array).into_iter().flatten() {
            ids.extend(item.as_str().or_else(|| item.get("uuid").and_then(Value::as_str)).map(str::to_owned));
        }
        let position = |key: &str| {
            let id = boundary.pointer("/compactMetadata/preservedSegment")?.get(key)?.as_str()?;
            self.positions.get(id).copied()
        };
        if let (true, Some(head), Some(tail)) = (ids.is_empty(), position("headUuid"), position("tailUuid")) {
            let segment = self.positions.iter().filter(|(_, at)| (head..=tail).contains(*at));
            ids.extend(segment.map(|(id, _)| id.clone()));
        }
        ids
    }

    /// Results that the client no longer sends.
    fn add_clearing(&mut self, builder: &mut Builder, record: Value) {
        let ids = record.pointer("/microcompactMetadata/compactedToolIds").and_then(Value::as_array);
        let mut rewrites: BTreeMap<EventId, Rewrite> = BTreeMap::new();
        for id in ids.into_iter().flatten().filter_map(Value::as_str) {
            let answers = builder.answers(id);
            if answers.is_empty() {
                self.unmatched.add(|| builder.place().to_owned());
            }
            rewrites.extend(
                answers.iter().map(|answer| (answer.clone(), RewriteOp::Clear { text: CLEARED.to_owned() }.into())),
            );
        }
        let foreign = match record {
            Value::Object(map) => rest(map),
            _ => Map::new(),
        };
        builder.add_condensation(Condensation { rewrites, ..Condensation::default() }).foreign = foreign;
    }
}

/// Whether an assistant record was written by the client and not by a model.
fn is_from_client(record: &Record) -> bool {
    record.is("isApiErrorMessage")
        || record.value.pointer("/message/model").and_then(Value::as_str) == Some("<synthetic>")
}

fn add_noise(builder: &mut Builder, source: Source, record: Value) {
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let kind = text("type").unwrap_or_default();
    let detail = match kind {
        "system" => text("subtype"),
        "progress" => record.pointer("/data/type").and_then(Value::as_str),
        _ => None,
    };
    let kind = detail.map_or_else(|| kind.to_owned(), |detail| format!("{kind}/{detail}"));
    builder.add_unknown(source, &kind, record);
}

/// A user record: text, or results, or both.
fn add_user(builder: &mut Builder, record: Value) {
    let source =
        if record.get("isMeta").and_then(Value::as_bool) == Some(true) { Source::Environment } else { Source::User };
    let is_rejected = record.get("toolUseResult").and_then(Value::as_str).is_some_and(is_rejection);
    let is_empty = match record.pointer("/message/content") {
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(parts)) => parts.is_empty(),
        _ => true,
    };
    let Value::Object(mut map) = record else { return };
    let Some(message) = map.get_mut("message").and_then(Value::as_object_mut).filter(|_| !is_empty) else {
        return add_noise(builder, source, Value::Object(map));
    };
    let mut kinds = Vec::new();
    match take_list(message, "content") {
        None => kinds.push((user_message(take_content(message, "content", block)), Map::new())),
        Some(parts) => {
            let mut text = Vec::new();
            let mut inexact = Vec::new();
            for part in parts {
                match part {
                    Value::Object(mut result) if result.get("type").and_then(Value::as_str) == Some("tool_result") => {
                        if !text.is_empty() {
                            kinds.push((user_message(std::mem::take(&mut text)), Map::new()));
                        }
                        let observation = take_observation(&mut result, is_rejected);
                        kinds.push((EventKind::Observation(observation), result));
                    }
                    part => {
                        let (converted, exact) = block(&part);
                        text.push(converted);
                        if !exact {
                            inexact.push(part);
                        }
                    }
                }
            }
            if !inexact.is_empty() {
                message.insert("content".to_owned(), Value::Array(inexact));
            }
            if !text.is_empty() {
                kinds.push((user_message(text), Map::new()));
            }
        }
    }
    let mut rest = Some(rest(map));
    for (kind, block) in kinds {
        let source = if matches!(kind, EventKind::Observation(_)) { Source::Environment } else { source };
        let event = builder.add(source, kind);
        event.foreign = rest.take().unwrap_or_default();
        if !block.is_empty() {
            event.foreign.insert("block".to_owned(), Value::Object(block));
        }
    }
}

fn user_message(content: Vec<ContentBlock>) -> EventKind {
    EventKind::Message(Message { content, ..Message::text(Role::User, "") })
}

fn take_observation(result: &mut Map<String, Value>, is_rejected: bool) -> Observation {
    result.shift_remove("type");
    let outcome = match result.get("is_error").and_then(Value::as_bool) {
        Some(true) if is_rejected => Outcome::Rejected,
        Some(true) => Outcome::Error,
        _ => Outcome::Ok,
    };
    Observation {
        call_id: take_text(result, "tool_use_id").unwrap_or_default(),
        content: take_content(result, "content", block),
        outcome,
        ..Observation::default()
    }
}

/// Whether the client's own account of a result says that the user refused the call.
fn is_rejection(account: &str) -> bool {
    account == "User rejected tool use" || account.starts_with("Error: The user doesn't want to proceed with this tool")
}

/// What one record reports.
fn usage(record: &Value) -> Option<Usage> {
    let message = record.get("message")?;
    anthropic_usage(message.get("usage")?, message.get("model").and_then(Value::as_str))
}

/// What of a record the event has no place for.
fn rest(mut map: Map<String, Value>) -> Map<String, Value> {
    for key in ["uuid", "timestamp"] {
        if map.get(key).is_some_and(Value::is_string) {
            map.shift_remove(key);
        }
    }
    map
}
