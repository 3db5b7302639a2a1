//! Codex rollouts: one record a line, `{timestamp, type, payload}`.
//!
//! | record | event |
//! | --- | --- |
//! | the first `session_meta` | the system prompt, where it holds one |
//! | `response_item` | as in the format `openai-responses` |
//! | `compacted` | a condensation: what of its `replacement_history` was said before stays, a last new text is the summary, and where more is new it follows as messages |
//! | `event_msg/token_count` | unknown; its figures are the usage of the response before it |
//! | all else: turn contexts, states, what the interface was told | unknown |
//!
//! The interface's copies of what was said (`user_message`, `agent_message`) are messages only in files that
//! have no `response_item` message among their first records. Figures of a single response count; a running
//! total that does not grow by them is reported. A repeated figure is no second response. A `compacted` record
//! without a replacement keeps what the user said and ends with its message.
//!
//! Rollouts of 2025 without `type` and `payload` begin with `{id, timestamp, instructions}`; the other lines
//! are bare items. A response item has its own id; other records are called `line-<n>`.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use condenser::event::{EventId, EventKind, Message, Role, Source, SystemPrompt};
use serde_json::{Map, Value};

use crate::blocks::block;
use crate::builder::{Builder, Count};
use crate::fields::{take_content, take_list, take_text};
use crate::json::{Found, Record};
use crate::node::Node;
use crate::reader::{Out, Records, Stream, read_values};
use crate::responses::{Items, usage};
use crate::{Document, Format, Link, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: NAME,
    description: "Codex rollouts: ~/.codex/sessions/**/rollout-*.jsonl",
    sniff,
    read: |document| read_values(document, NAME, open),
};

const NAME: &str = "codex";

/// So many records are looked at.
const SNIFFED: usize = 50;
/// So many events wait for what their response cost. It comes within a few records, or not at all.
const MAX_WAITING: usize = 200;

fn sniff(document: &Document) -> bool {
    let records = document.records();
    records.iter().take(SNIFFED).any(|record| is_own(&record.value)) || is_old(records)
}

fn is_own(record: &Value) -> bool {
    const KINDS: [&str; 5] = ["session_meta", "response_item", "turn_context", "compacted", "event_msg"];
    record.get("type").and_then(Value::as_str).is_some_and(|kind| KINDS.contains(&kind))
        && record.get("payload").is_some_and(Value::is_object)
}

/// Whether the file begins as those of 2025 did.
fn is_old(records: &[Record]) -> bool {
    let [first, rest @ ..] = records else { return false };
    let has = |key: &str| first.value.get(key).is_some();
    let is_item = |record: &Record| {
        let kind = record.value.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| ["message", "reasoning", "function_call", "function_call_output"].contains(&kind))
    };
    has("id") && has("timestamp") && has("instructions") && !has("type") && rest.iter().take(SNIFFED).any(is_item)
}

/// Begins to read a rollout.
pub(crate) fn open(records: &Records<'_>, head: &Document, out: &mut Out) -> Result<Box<dyn Stream>, ReadError> {
    if !sniff(head) {
        return Err(head.unfit(NAME, "no record has the `type` and `payload` of a rollout"));
    }
    let mut meta = None;
    let (mut has_item, mut has_mirror) = (false, false);
    records.each(Some(&["type", "payload", "id", "instructions"]), |found| {
        let text = |node: Option<&Node<'_>>| node.and_then(Node::as_str).map(str::to_owned);
        let kind = text(found.node.get("type")).unwrap_or_default();
        let payload = found.node.get("payload").and_then(|payload| text(payload.get("type")));
        match (kind.as_str(), payload.as_deref()) {
            ("session_meta", _) => {
                meta.get_or_insert_with(|| {
                    found.node.get("payload").cloned().map(Node::into_value).unwrap_or_default()
                });
            }
            ("", None) if found.node.get("instructions").is_some() => {
                meta.get_or_insert_with(|| found.node.clone().into_value());
            }
            ("response_item", Some("message")) => has_item = true,
            ("event_msg", Some("user_message")) => has_mirror = true,
            _ => {}
        }
    })?;
    let meta = meta.unwrap_or_default();
    let text = |pointers: &[&str]| {
        let mut found = pointers.iter().filter_map(|pointer| meta.pointer(pointer)?.as_str());
        found.find(|text| !text.is_empty()).map(str::to_owned)
    };
    let parents = ["/parent_thread_id", "/source/subagent/thread_spawn/parent_thread_id", "/forked_from_id"];
    let parent = text(&parents).map(|to| Link { to, call_id: None });
    let trace = Builder::new(Vec::new()).finish(head.name(), NAME, 0);
    out.begin(Trace { session: text(&["/id", "/session_id"]), parent, ..trace });
    Ok(Box::new(Session {
        builder: Builder::new(Vec::new()),
        items: Items::default(),
        only_mirror: has_mirror && !has_item,
        has_meta: false,
        own_from: meta.get("subagent_history_start_ordinal").and_then(Value::as_u64),
        model: None,
        said: Vec::new(),
        last_count: None,
        total: None,
        uneven: Count::default(),
        foreign_shapes: Count::default(),
    }))
}

struct Session {
    builder: Builder,
    items: Items,
    /// Whether what the interface was told is all there is.
    only_mirror: bool,
    has_meta: bool,
    /// Records before this ordinal are a copy of the parent's: paid for there.
    own_from: Option<u64>,
    model: Option<String>,
    /// Messages in view.
    said: Vec<Said>,
    last_count: Option<Value>,
    total: Option<u64>,
    uneven: Count,
    foreign_shapes: Count,
}

/// A message in view.
struct Said {
    /// What it says, as a number.
    key: u64,
    record: EventId,
    /// Whether the user wrote it.
    is_user: bool,
}

impl Stream for Session {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        self.add(found.line, found.node.into_value());
        if self.builder.events().len() > MAX_WAITING {
            self.items.close(&mut self.builder);
        }
        if !self.items.is_open() {
            self.builder.drain(out);
        }
    }

    fn finish(&mut self, out: &mut Out) {
        self.items.flush(&mut self.builder);
        let odd = [
            std::mem::take(&mut self.uneven)
                .report("running totals that do not grow by the figures of their response; these count"),
            std::mem::take(&mut self.foreign_shapes).report("lines that are no objects, kept as unknown"),
        ];
        self.builder.note(odd.into_iter().flatten());
        self.builder.close(out);
    }
}

impl Session {
    fn add(&mut self, line: u64, value: Value) {
        let place = format!("line {line}");
        let Value::Object(mut record) = value else {
            self.foreign_shapes.add(|| place.clone());
            self.note_unknown(line, "value", value, None);
            return;
        };
        let timestamp = record.get("timestamp").and_then(Value::as_str).map(str::to_owned);
        let kind = record.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let payload = record.get("payload").and_then(|payload| payload.get("type")?.as_str()).map(str::to_owned);
        match (kind.as_str(), payload.as_deref()) {
            ("session_meta", _) if !self.has_meta => self.add_meta(line, record, timestamp),
            ("", None) if !self.has_meta && record.contains_key("instructions") => {
                self.add_meta(line, record, timestamp);
            }
            ("response_item", _) => {
                let item = record.shift_remove("payload").unwrap_or_default();
                self.add_item(line, item, timestamp);
            }
            ("compacted", _) => self.add_compaction(line, record, timestamp),
            ("event_msg", Some("token_count")) => self.add_count(line, record, timestamp),
            ("event_msg", Some(mirror @ ("user_message" | "agent_message" | "agent_reasoning")))
                if self.only_mirror =>
            {
                let mirror = mirror.to_owned();
                self.add_mirror(line, &mirror, record, timestamp);
            }
            ("turn_context", _) => {
                let model = record.get("payload").and_then(|payload| payload.get("model")?.as_str());
                if let Some(model) = model {
                    self.model = Some(model.to_owned());
                }
                self.note_unknown(line, &kind, Value::Object(record), timestamp);
            }
            (kind, Some(payload)) if record.contains_key("payload") => {
                let kind = format!("{kind}/{payload}");
                self.note_unknown(line, &kind, Value::Object(record), timestamp);
            }
            // A bare item, as rollouts of 2025 have them.
            ("message" | "reasoning", None) => self.add_item(line, Value::Object(record), timestamp),
            (call, None) if call.contains("_call") && !record.contains_key("payload") => {
                self.add_item(line, Value::Object(record), timestamp);
            }
            _ => self.note_unknown(line, &kind, Value::Object(record), timestamp),
        }
    }

    /// Adds a record that no model saw. It does not end a response.
    fn note_unknown(&mut self, line: u64, kind: &str, record: Value, timestamp: Option<String>) {
        self.builder.begin(&format!("line-{line}"), format!("line {line}"), timestamp);
        self.builder.add_unknown(Source::Environment, kind, record);
    }

    /// The record that opens the file. Its copies in forked files do not.
    fn add_meta(&mut self, line: u64, mut record: Map<String, Value>, timestamp: Option<String>) {
        self.has_meta = true;
        self.builder.begin(&format!("line-{line}"), format!("line {line}"), timestamp);
        let mut prompt = SystemPrompt::default();
        let has_payload = record.get("payload").is_some_and(Value::is_object);
        let meta = match record.get_mut("payload").and_then(Value::as_object_mut) {
            Some(meta) => meta,
            None => &mut record,
        };
        match meta.get_mut("base_instructions") {
            Some(Value::Object(instructions)) => prompt.content = take_content(instructions, "text", block),
            Some(Value::String(_)) => prompt.content = take_content(meta, "base_instructions", block),
            // Older files: what the user wrote for the agent, sent as a message of its own.
            _ if has_payload => {}
            _ => prompt.content = take_content(meta, "instructions", block),
        }
        prompt.tools = take_list(meta, "dynamic_tools").unwrap_or_default();
        if prompt.content.is_empty() && prompt.tools.is_empty() {
            self.builder.add_unknown(Source::Environment, "session_meta", Value::Object(record));
            return;
        }
        self.items.has_shown = true;
        self.builder.add(Source::Agent, EventKind::SystemPrompt(prompt)).foreign = record.into();
    }

    fn add_item(&mut self, line: u64, item: Value, timestamp: Option<String>) {
        let id = item.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let id = id.map_or_else(|| format!("line-{line}"), str::to_owned);
        self.push_item(id, format!("line {line}"), item, timestamp);
    }

    fn push_item(&mut self, id: String, place: String, item: Value, timestamp: Option<String>) {
        let key = key_of(&item);
        self.items.push(&mut self.builder, id, place, timestamp, item);
        if let (Some(key), Some(event)) = (key, self.builder.events().last()) {
            let is_user = event.source == Source::User;
            self.said.push(Said { key, record: self.builder.record().clone(), is_user });
        }
    }

    /// What the interface was told, where nothing else tells it.
    fn add_mirror(&mut self, line: u64, mirror: &str, mut record: Map<String, Value>, timestamp: Option<String>) {
        let payload = record.get_mut("payload").and_then(Value::as_object_mut);
        let text = payload
            .and_then(|payload| take_text(payload, if mirror == "agent_reasoning" { "text" } else { "message" }));
        let Some(text) = text else {
            return self.note_unknown(line, &format!("event_msg/{mirror}"), Value::Object(record), timestamp);
        };
        self.builder.begin(&format!("line-{line}"), format!("line {line}"), timestamp);
        let response_id = Some(self.builder.record().as_str().to_owned());
        let (source, message) = match mirror {
            "user_message" => (Source::User, Message::text(Role::User, text)),
            "agent_message" => (Source::Agent, Message { response_id, ..Message::text(Role::Assistant, text) }),
            _ => {
                record.insert("text".to_owned(), Value::from(text));
                self.builder.add_unknown(Source::Agent, "event_msg/agent_reasoning", Value::Object(record));
                return;
            }
        };
        self.builder.add(source, EventKind::Message(message)).foreign = record.into();
    }

    fn add_compaction(&mut self, line: u64, mut record: Map<String, Value>, timestamp: Option<String>) {
        self.items.flush(&mut self.builder);
        let place = format!("line {line}");
        let payload = record.get_mut("payload").and_then(Value::as_object_mut);
        let message = payload.as_ref().and_then(|payload| payload.get("message")?.as_str()).map(str::to_owned);
        let replacement = payload.and_then(|payload| take_list(payload, "replacement_history"));
        self.builder.begin(&format!("line-{line}"), place.clone(), timestamp.clone());
        let said = std::mem::take(&mut self.said);
        let Some(replacement) = replacement else {
            // What the user said stays, and the message is the summary.
            self.said = said.into_iter().filter(|said| said.is_user).collect();
            let kept: HashSet<String> = self.said.iter().map(|said| said.record.as_str().to_owned()).collect();
            let summary = message.filter(|message| !message.is_empty());
            self.builder.add_compaction_at_end(summary, true, |record| kept.contains(record)).foreign = record.into();
            return;
        };

        let mut before = said.into_iter();
        let mut kept = HashSet::new();
        let mut new = replacement.into_iter().peekable();
        while let Some(key) = new.peek().map(key_of) {
            let Some(said) = key.and_then(|key| before.by_ref().find(|said| said.key == key)) else { break };
            kept.insert(said.record.as_str().to_owned());
            self.said.push(said);
            new.next();
        }
        let mut new: Vec<Value> = new.collect();
        let summary = match new.as_slice() {
            [Value::Object(last)] if last.get("role").and_then(Value::as_str) == Some("user") => {
                let content = take_content(&mut last.clone(), "content", crate::responses::part);
                let texts: Option<Vec<&str>> = content.iter().map(|block| block.as_text()).collect();
                texts.map(|texts| texts.join("\n")).filter(|text| !text.is_empty())
            }
            _ => None,
        };
        if summary.is_some() {
            record.insert("summary_item".to_owned(), new.remove(0));
        }
        self.builder.add_compaction_at_end(summary, true, |record| kept.contains(record)).foreign = record.into();
        self.items.is_replacement = true;
        for (at, item) in new.into_iter().enumerate() {
            self.push_item(format!("line-{line}/{at}"), place.clone(), item, timestamp.clone());
        }
        self.items.flush(&mut self.builder);
        self.items.is_replacement = false;
    }

    /// What the newest response cost. The same figures twice are one response.
    fn add_count(&mut self, line: u64, record: Map<String, Value>, timestamp: Option<String>) {
        let info =
            record.get("payload").and_then(|payload| payload.get("info")).filter(|info| info.is_object()).cloned();
        let is_copy = record
            .get("ordinal")
            .and_then(Value::as_u64)
            .zip(self.own_from)
            .is_some_and(|(ordinal, own)| ordinal < own);
        let is_repeated = info.is_none() || info == self.last_count;
        self.items.flush(&mut self.builder);
        self.note_unknown(line, "event_msg/token_count", Value::Object(record), timestamp);
        let Some(info) = info.filter(|_| !is_repeated) else { return };
        let tokens = |key: &str| info.get(key)?.get("total_tokens")?.as_u64();
        let total = tokens("total_token_usage");
        if let (Some(before), Some(total), Some(last)) = (self.total, total, tokens("last_token_usage"))
            && before.checked_add(last) != Some(total)
        {
            self.uneven.add(|| format!("line {line}"));
        }
        self.total = total.or(self.total);
        let figures = info.get("last_token_usage").and_then(|last| usage(last, self.model.as_deref()));
        self.last_count = Some(info);
        if is_copy {
            return self.items.end_unpaid(&mut self.builder);
        }
        if let Some(figures) = figures
            && !self.items.pay(&mut self.builder, figures.clone())
        {
            // A response that left no item: a compaction's, an aborted one.
            self.builder.set_usage(Some(figures));
        }
    }
}

/// What a message item says, as a number; `None` for what is no message.
fn key_of(item: &Value) -> Option<u64> {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    if kind != "message" || item.get("role").and_then(Value::as_str) == Some("assistant") {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    item.get("role").and_then(Value::as_str).hash(&mut hasher);
    match item.get("content") {
        Some(Value::Array(parts)) => {
            parts.iter().for_each(|part| part.get("text").unwrap_or(part).to_string().hash(&mut hasher));
        }
        content => content.map(Value::to_string).hash(&mut hasher),
    }
    Some(hasher.finish())
}
