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

use std::collections::HashSet;

use condenser::condensation::{Condensation, RewriteOp};
use condenser::event::{
    ContentBlock, EventId, EventKind, Message, Observation, Outcome, Role, Source, SystemPrompt, Usage,
};
use serde_json::{Map, Value};

use crate::blocks::{block, is_visible, take_action};
use crate::builder::{Builder, Count};
use crate::fields::{take_content, take_list, take_object, take_text};
use crate::ids::{ByHash, hash};
use crate::json::{Found, Record};
use crate::node::{Node, Object};
use crate::reader::{Out, Place, Records, Stream, read_values};
use crate::{Diagnostic, Document, Format, Link, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: NAME,
    description: "Pi coding agent sessions, versions 1 to 3: ~/.pi/agent/sessions/**/*.jsonl",
    sniff,
    read: |document| read_values(document, NAME, open),
};

const NAME: &str = "pi";

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

/// Begins to read a session.
pub(crate) fn open(records: &Records<'_>, head: &Document, out: &mut Out) -> Result<Box<dyn Stream>, ReadError> {
    if !head.records().first().is_some_and(|header| is_header(&header.value)) {
        return Err(head.unfit(NAME, "the first record is no `session` header with an id"));
    }
    let mut links = Links::default();
    records.each(Some(&["id", "parentId"]), |found| links.add(&found))?;
    let on_path = links.path(out);
    let header = head.records().first().map(|header| &header.value);
    let text = |key: &str| header.and_then(|header| header.get(key)?.as_str()).map(str::to_owned);
    let parent = text("parentSession").or_else(|| text("branchedFrom")).map(|to| Link { to, call_id: None });
    let trace = Builder::new(Vec::new()).finish(head.name(), NAME, 0);
    out.begin(Trace { session: text("id"), parent, ..trace });
    Ok(Box::new(Session {
        links,
        on_path,
        next: 0,
        builder: Builder::new(Vec::new()),
        done: Vec::new(),
        positions: Vec::new(),
    }))
}

/// How the entries of a file hang together. Ids are known by their hash.
#[derive(Default)]
struct Links {
    places: Vec<Place>,
    parents: Vec<Parent>,
    /// By id; of equal ids the last, as Pi has it.
    positions: ByHash<u32>,
}

#[derive(Clone, Copy)]
enum Parent {
    Header,
    Entry(u64),
    /// The entry before it in the file.
    Before,
}

impl Links {
    fn add(&mut self, found: &Found<'_>) {
        let position = self.places.len() as u32;
        self.places.push(found.place());
        self.parents.push(match found.node.get("parentId") {
            Some(Node::Null) => Parent::Header,
            Some(Node::String(id)) => Parent::Entry(hash(id)),
            _ => Parent::Before,
        });
        if let Some(id) = found.node.get("id").and_then(Node::as_str).filter(|_| position > 0) {
            self.positions.insert(hash(id), position);
        }
    }

    /// Which entries are on the active branch: those from the last one up to the header.
    fn path(&self, out: &mut Out) -> Vec<bool> {
        let n_all = self.places.len();
        if self.positions.is_empty() {
            return vec![true; n_all];
        }
        let mut bridged = Count::default();
        let mut on_path = vec![false; n_all];
        let mut at = n_all.saturating_sub(1);
        while at > 0 {
            on_path[at] = true;
            at = match self.parents[at] {
                Parent::Header => 0,
                Parent::Before => at - 1,
                // A parent that comes later is damage as well, and would lead in a circle.
                Parent::Entry(id) => match self.positions.get(&id) {
                    Some(parent) if (*parent as usize) < at => *parent as usize,
                    _ => {
                        bridged.add_earlier(format!("line {}", self.places[at].0));
                        at - 1
                    }
                },
            };
        }
        if let Some(header) = on_path.first_mut() {
            *header = true;
        }
        bridged
            .report("parents that are no earlier entries, bridged by the entry before")
            .into_iter()
            .for_each(|odd| out.note(odd));
        let n_off = on_path.iter().filter(|on_path| !**on_path).count();
        if n_off > 0 {
            out.note(Diagnostic::new("file", format!("entries on other branches, left out: {n_off}")));
        }
        on_path
    }
}

/// Reads the entries on the active branch.
struct Session {
    links: Links,
    on_path: Vec<bool>,
    /// The position of the next entry.
    next: usize,
    builder: Builder,
    /// The record ids of the path so far, as the builder made them unique, and their positions.
    done: Vec<EventId>,
    positions: Vec<u32>,
}

impl Stream for Session {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        let (line, place) = (found.line, found.place());
        // What could be linked may be nested too deep to be read.
        while self.links.places.get(self.next).is_some_and(|next| *next < place) {
            self.next += 1;
        }
        let position = self.next;
        self.next += 1;
        if !self.on_path.get(position).is_some_and(|on_path| *on_path) {
            return;
        }
        let text = |key: &str| found.node.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
        let id = text("id").map_or_else(|| format!("line-{line}"), str::to_owned);
        let timestamp = found.node.get("timestamp").and_then(Node::as_str).map(str::to_owned);
        self.done.push(self.builder.begin(&id, format!("line {line}"), timestamp));
        self.positions.push(position as u32);
        match found.node {
            Node::Object(entry) => {
                let (links, positions) = (&self.links, &self.positions);
                // Nothing is kept where the first kept entry is not on the path before the compaction.
                let first_kept = |entry: &Object<'_>| -> usize {
                    let first = match entry.get("firstKeptEntryId").and_then(Node::as_str) {
                        Some(id) => links.positions.get(&hash(id)).copied(),
                        None => {
                            entry.get("firstKeptEntryIndex").and_then(Node::as_u64).and_then(|n| u32::try_from(n).ok())
                        }
                    };
                    let first = first.filter(|first| *first > 0).and_then(|first| positions.binary_search(&first).ok());
                    first.unwrap_or(positions.len())
                };
                add_entry(&mut self.builder, entry, &self.done, first_kept);
            }
            node => {
                self.builder.add_unknown(Source::Environment, "value", node.into_value());
            }
        }
        self.builder.drain(out);
    }

    fn finish(&mut self, out: &mut Out) {
        self.builder.close(out);
    }
}

/// Adds one entry. `done` are the record ids of the path so far, this entry's last.
fn add_entry(
    builder: &mut Builder,
    mut entry: Object<'_>,
    done: &[EventId],
    first_kept: impl Fn(&Object<'_>) -> usize,
) {
    let kind = entry.get("type").and_then(Node::as_str).unwrap_or_default().to_owned();
    match kind.as_str() {
        "message" if entry.get("message").is_some_and(Node::is_object) => add_message(builder, entry),
        "custom_message" => {
            let content = take_content(&mut entry, "content", block);
            add_text(builder, Source::Environment, content, entry);
        }
        "branch_summary" if entry.get("summary").and_then(Node::as_str).is_some_and(|text| !text.is_empty()) => {
            let summary = entry.get("summary").and_then(Node::as_str).unwrap_or_default().to_owned();
            add_text(builder, Source::Environment, vec![ContentBlock::text(branch_summary(&summary))], entry);
        }
        "compaction" => {
            let first = first_kept(&entry);
            let kept: HashSet<&str> = done.iter().skip(first).map(EventId::as_str).collect();
            let summary = take_text(&mut entry, "summary");
            // The prompt in force then is stored with the compaction; without one, none was shown.
            let keeps_system = entry.get("systemMessage").is_some_and(Node::is_object);
            let event = builder.add_compaction(summary, keeps_system, |record| kept.contains(record));
            event.foreign = rest(entry).into();
        }
        "context_edit" => add_edit(builder, entry),
        _ => {
            builder.add_unknown(Source::Environment, &kind, Value::Object(entry.into_map()));
        }
    }
}

fn add_message(builder: &mut Builder, mut entry: Object<'_>) {
    let Some(message) = entry.get_mut("message").and_then(Node::as_object_mut) else { return };
    let role = message.get("role").and_then(Node::as_str).unwrap_or_default().to_owned();
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
                outcome: match message.get("isError").and_then(Node::as_bool) {
                    Some(true) => Outcome::Error,
                    _ => Outcome::Ok,
                },
                ..Observation::default()
            };
            builder.add(Source::Environment, EventKind::Observation(observation)).foreign = rest(entry).into();
        }
        "bashExecution" if message.get("excludeFromContext").and_then(Node::as_bool) != Some(true) => {
            let content = vec![ContentBlock::text(bash_text(message))];
            add_text(builder, Source::User, content, entry);
        }
        "branchSummary" | "compactionSummary" if message.get("summary").is_some_and(Node::is_string) => {
            let summary = message.get("summary").and_then(Node::as_str).unwrap_or_default().to_owned();
            let text = if role == "branchSummary" { branch_summary(&summary) } else { summary };
            add_text(builder, Source::Environment, vec![ContentBlock::text(text)], entry);
        }
        "system" => {
            let prompt = SystemPrompt { content: take_content(message, "content", block), ..SystemPrompt::default() };
            builder.add(Source::Environment, EventKind::SystemPrompt(prompt)).foreign = rest(entry).into();
        }
        _ => {
            let source = if role == "bashExecution" { Source::User } else { Source::Environment };
            builder.add_unknown(source, "message", Value::Object(entry.into_map()));
        }
    }
}

fn add_text(builder: &mut Builder, source: Source, content: Vec<ContentBlock>, entry: Object<'_>) {
    let message = Message { content, ..Message::text(Role::User, "") };
    builder.add(source, EventKind::Message(message)).foreign = rest(entry).into();
}

/// One answer of the model: an action a call, and a message of what no call follows.
///
/// The whole `content` stays where its blocks say more than the events do, or stand in another order.
fn add_answer(builder: &mut Builder, mut entry: Object<'_>) {
    let response = entry.get("id").and_then(Node::as_str).map(str::to_owned);
    let Some(message) = entry.get_mut("message").and_then(Node::as_object_mut) else { return };
    let is_call = |part: &Node<'_>| part.is_object() && part.get("type").and_then(Node::as_str) == Some("toolCall");
    let is_text = message.get("content").is_some_and(Node::is_string);
    let parts = take_list(message, "content").unwrap_or_default();
    let blocks: Vec<Option<(ContentBlock, bool)>> =
        parts.iter().map(|part| (!is_call(part)).then(|| block(part))).collect();
    let has_text = match message.get("content") {
        Some(Node::String(text)) => !text.trim().is_empty(),
        _ => blocks.iter().any(|block| block.as_ref().is_none_or(|(block, _)| is_visible(block))),
    };
    let is_cut = matches!(message.get("stopReason").and_then(Node::as_str), Some("aborted" | "error"));
    if !has_text && (is_cut || parts.is_empty()) {
        if !is_text {
            message.insert("content", Node::Array(parts));
        }
        builder.add_unknown(Source::Agent, "message", Value::Object(entry.into_map()));
        return;
    }

    let response = response.filter(|id| !id.is_empty()).unwrap_or_else(|| builder.record().as_str().to_owned());
    let usage = take_usage(message);
    // Before a call, thinking stands before text; a message keeps the order.
    let last_call = blocks.iter().rposition(Option::is_none).unwrap_or(0);
    let is_moved = blocks[..last_call].windows(2).any(|pair| match pair {
        [Some((before, _)), Some((after, _))] => !before.is_thinking() && after.is_thinking(),
        _ => false,
    });
    if is_moved || blocks.iter().flatten().any(|(_, exact)| !exact) {
        message.insert("content", Node::Array(parts.clone()));
    }
    let mut pending = if is_text { take_content(message, "content", block) } else { Vec::new() };
    let mut events: Vec<(EventKind, Map<String, Value>)> = Vec::new();
    for (part, block) in parts.into_iter().zip(blocks) {
        match (block, part) {
            (Some((block, _)), _) => pending.push(block),
            (None, Node::Object(mut call)) => {
                let action = take_action(&mut call, "arguments", std::mem::take(&mut pending), &response);
                let mut foreign = Map::new();
                if !call.is_empty() {
                    foreign.insert("block".to_owned(), Value::Object(call.into_map()));
                }
                events.push((EventKind::Action(action), foreign));
            }
            (None, _) => {}
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
        event.foreign = foreign.into();
        if let Some((usage, rest)) = shared.take() {
            event.usage = usage;
            event.foreign.extend(rest);
        }
    }
}

/// Moves the counters out. Pi's `input` excludes what was read from and written to the cache.
fn take_usage(message: &mut Object<'_>) -> Option<Usage> {
    let model = message.get("model").and_then(Node::as_str).map(str::to_owned);
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
fn add_edit(builder: &mut Builder, entry: Object<'_>) {
    let target = entry.get("targetId").and_then(Node::as_str).unwrap_or_default();
    let (targets, has_calls) = builder.shown_of(target);
    let mut record = Condensation::default();
    match (entry.get("replacement"), targets.as_slice()) {
        (Some(Node::Null), _) => record.forgotten_event_ids.extend(targets),
        (Some(Node::Object(replacement)), [id]) if !has_calls => {
            let content = take_content(&mut replacement.clone(), "content", block);
            record.rewrites.insert(id.clone(), RewriteOp::Replace { content }.into());
        }
        (_, []) => {}
        _ => {
            let what = "an edit of an answer with calls is kept as unknown: no record can exchange calls";
            builder.note([Diagnostic::new(builder.place().to_owned(), what)]);
            builder.add_unknown(Source::Environment, "context_edit", Value::Object(entry.into_map()));
            return;
        }
    }
    builder.add_condensation(record).foreign = rest(entry).into();
}

/// What of an entry the event has no place for.
fn rest(mut entry: Object<'_>) -> Map<String, Value> {
    for key in ["id", "timestamp"] {
        if entry.get(key).is_some_and(Node::is_string) {
            entry.shift_remove(key);
        }
    }
    if let Some(mut message) = take_object(&mut entry, "message") {
        if message.get("usage").and_then(Node::as_object).is_some_and(Object::is_empty) {
            message.shift_remove("usage");
        }
        entry.insert("message", Node::Object(message));
    }
    entry.into_map()
}

fn branch_summary(summary: &str) -> String {
    format!(
        "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{summary}</summary>"
    )
}

/// A command that the user ran, as Pi tells the model.
fn bash_text(message: &Object<'_>) -> String {
    let text = |key: &str| message.get(key).and_then(Node::as_str).unwrap_or_default();
    let is = |key: &str| message.get(key).and_then(Node::as_bool) == Some(true);
    let mut told = format!("Ran `{}`\n", text("command"));
    match text("output") {
        "" => told.push_str("(no output)"),
        output => told.push_str(&format!("```\n{output}\n```")),
    }
    match message.get("exitCode").and_then(Node::as_i64) {
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
