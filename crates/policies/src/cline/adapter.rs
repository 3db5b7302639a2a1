//! A view as stored messages, and what basic compaction keeps of them as an edit.
//!
//! An answer with its calls is one message, and so are the results behind it. What an import kept of a message is taken
//! for what it was. System prompts and system messages are none of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use condenser::condensation::BlockKind;
use condenser::event::{ContentBlock, Event, EventKind, Role};
use condenser::{Entry, EventId, Rewrite, RewriteOp, State};
use serde_json::{Map, Value, json};

use super::peer::{Files, Kept, Notice};
use crate::exact::{js_json_len, js_trim};
use crate::turns::{self, Turn, turns};

/// A message, made once a log.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) value: Value,
    /// Characters of JSON.
    pub(super) length: usize,
}

impl Message {
    fn new(value: Value) -> Self {
        Self { length: js_json_len(&value), value }
    }
}

/// A message that an earlier compaction kept.
#[derive(Debug)]
struct Frozen(Rc<Message>);

/// The messages, and of each the entries of the view that it stands for.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) messages: Vec<Rc<Message>>,
    members: Vec<Vec<usize>>,
}

impl Store {
    pub(super) fn new(state: &State<'_>) -> Self {
        let mut members: Vec<Vec<usize>> = Vec::new();
        let mut before: Option<&Turn> = None;
        let turns = turns(state);
        for turn in turns.iter().filter(|turn| !matches!(turn, Turn::System(_))) {
            let record =
                |turn: &Turn| state.event(*turn.members().first()?)?.origin.as_ref().map(|it| it.record.as_str());
            let is_joined = match (before, turn) {
                (Some(Turn::Result(_)), Turn::Result(_)) => true,
                (Some(before @ (Turn::Result(_) | Turn::User(_))), Turn::Result(_) | Turn::User(_)) => {
                    record(turn).is_some_and(|it| record(before) == Some(it))
                }
                _ => false,
            };
            before = Some(turn);
            match members.last_mut().filter(|_| is_joined) {
                Some(all) => all.extend_from_slice(turn.members()),
                None => members.push(turn.members().to_vec()),
            }
        }
        let frozen = basic_record(state);
        let messages = members.iter().map(|members| message(state, members, frozen)).collect();
        Self { messages, members }
    }

    /// The messages as the original has them.
    pub(super) fn values(&self) -> Vec<Value> {
        self.messages.iter().map(|message| message.value.clone()).collect()
    }

    fn entries(&self, messages: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
        self.members.get(messages).unwrap_or_default().iter().flatten().copied()
    }

    /// The entries of messages.
    pub(super) fn forget(&self, state: &State<'_>, messages: std::ops::Range<usize>) -> BTreeSet<EventId> {
        self.entries(messages).filter_map(|index| state.view.get(index)).map(|entry| entry.id().clone()).collect()
    }

    fn owners(&self, state: &State<'_>, message: usize) -> Vec<usize> {
        self.owners_of(state, message, &self.messages[message].value)
    }

    /// The entry that each block belongs to, also of a message of which blocks are missing: what is said before a call is
    /// the call's.
    pub(super) fn owners_of(&self, state: &State<'_>, at: usize, message: &Value) -> Vec<usize> {
        let members = &self.members[at];
        let call = |index: &usize| match state.event(*index).map(|event| &event.kind) {
            Some(EventKind::Action(action)) => Some(action.call_id.as_str()),
            Some(EventKind::Observation(observation)) => Some(observation.call_id.as_str()),
            _ => None,
        };
        let mut next = 0;
        let mut owner = |block: &Value| {
            let id = block["id"].as_str().or_else(|| block["tool_use_id"].as_str());
            // Calls of one message may share an id.
            let is_it = |at: &usize| id.is_some() && call(&members[*at]) == id;
            let found = (next..members.len()).find(is_it).or_else(|| (0..next.min(members.len())).find(is_it));
            let at = found.unwrap_or(next.min(members.len() - 1));
            next = if found.is_some() { at + 1 } else { next };
            members[at]
        };
        match &message["content"] {
            Value::Array(blocks) => blocks.iter().map(&mut owner).collect(),
            _ => vec![members[0]],
        }
    }

    /// What keeping these changes in the view.
    pub(super) fn edit(&self, state: &State<'_>, kept: &Kept) -> condenser::Edit {
        let mut edit = condenser::Edit::default();
        let mut left = kept.messages.iter().zip(&kept.notices).peekable();
        for (at, message) in self.messages.iter().enumerate() {
            match left.next_if(|(kept, _)| kept["id"] == message.value["id"]) {
                None => edit.forget.extend(self.forget(state, at..at + 1)),
                Some((kept, notice)) => self.rewrite(state, at, kept, notice.as_ref(), &mut edit.rewrites),
            }
        }
        edit
    }

    fn rewrite(
        &self,
        state: &State<'_>,
        at: usize,
        kept: &Value,
        notice: Option<&Value>,
        rewrites: &mut BTreeMap<EventId, Rewrite>,
    ) {
        let changes = aligned(&self.messages[at].value, kept);
        let owners = self.owners(state, at);
        let last = owners.last().copied();
        for &index in &self.members[at] {
            let (Some(entry), Some(kind)) = (state.view.get(index), turns::kind(state, index)) else { continue };
            let own: Vec<&Change> =
                changes.iter().zip(&owners).filter(|(_, owner)| **owner == index).map(|(it, _)| it).collect();
            let notice = notice.filter(|_| last == Some(index)).map(Notice::text);
            let old = entry.rewrite().map(|(rewrite, _)| &rewrite.op);
            let op = match (notice, Changed::of(&own)) {
                (None, Changed::Nothing) => None,
                (None, Changed::Blocks(kinds)) => Some(RewriteOp::Strip { kinds }),
                (Some(notice), Changed::Nothing) => Some(noted(&kind, old, notice)),
                (notice, _) => {
                    let mut content = changed(&kind, &own);
                    content.extend(notice.map(ContentBlock::text));
                    Some(RewriteOp::Replace { content })
                }
            };
            if let Some(op) = op.filter(|op| Some(op) != old) {
                rewrites.insert(entry.id().clone(), op.into());
            }
        }
    }
}

/// The content with a notice behind it, and behind those before.
fn noted(kind: &EventKind, old: Option<&RewriteOp>, notice: String) -> RewriteOp {
    match old {
        None => RewriteOp::Note { text: notice },
        Some(RewriteOp::Note { text }) => RewriteOp::Note { text: format!("{text}\n\n{notice}") },
        Some(_) => {
            let mut content: Vec<ContentBlock> = turns::content(kind).cloned().collect();
            content.push(ContentBlock::text(notice));
            RewriteOp::Replace { content }
        }
    }
}

/// What became of a block.
#[derive(Debug)]
enum Change {
    Same(String),
    /// Its texts are others; whether images inside it stay.
    Text(Vec<String>, bool),
    Gone(String),
}

/// What became of each block of a message. Blank space around a text is none of it.
fn aligned(message: &Value, kept: &Value) -> Vec<Change> {
    let blocks = |message: &Value| match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        content => content.as_array().cloned().unwrap_or_default(),
    };
    let kept = blocks(kept);
    let mut kept = kept.iter().peekable();
    let change = |block: Value| {
        let kind = block["type"].as_str().unwrap_or_default();
        let is_same = |kept: &&Value| {
            let is_whole = matches!(kind, "text" | "file" | "tool_use" | "tool_result") || **kept == block;
            kept["type"] == kind && is_whole
        };
        if is_blank(&block) {
            kept.next_if(|kept| is_blank(kept));
            return Change::Same(kind.to_owned());
        }
        match kept.next_if(is_same) {
            None => Change::Gone(kind.to_owned()),
            Some(kept) => {
                let texts = texts(kept);
                let trimmed =
                    |texts: Vec<String>| texts.iter().map(|text| js_trim(text).to_owned()).collect::<Vec<_>>();
                let has_image = |block: &Value| block["content"].to_string().contains("\"type\":\"image\"");
                if trimmed(texts.clone()) == trimmed(self::texts(&block)) && has_image(kept) == has_image(&block) {
                    Change::Same(kind.to_owned())
                } else {
                    Change::Text(texts, has_image(kept))
                }
            }
        }
    };
    blocks(message).into_iter().map(change).collect()
}

fn is_blank(block: &Value) -> bool {
    block["type"] == "text" && js_trim(block["text"].as_str().unwrap_or_default()).is_empty()
}

/// The texts of a block that may be cut.
fn texts(block: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match block["type"].as_str() {
        Some("text") => text(&block["text"]).into_iter().collect(),
        Some("file") => {
            text(&block["content"]).map(|content| file_text(&block["path"], &content)).into_iter().collect()
        }
        Some("tool_result") => match &block["content"] {
            Value::String(text) => vec![text.clone()],
            content => content.as_array().into_iter().flatten().filter_map(|part| text(&part["text"])).collect(),
        },
        _ => Vec::new(),
    }
}

/// A file as the model is shown it.
fn file_text(path: &Value, content: &str) -> String {
    format!("<file_content path=\"{}\">\n{content}\n</file_content>", path.as_str().unwrap_or_default())
}

/// How much of an entry changed.
enum Changed {
    Nothing,
    /// Blocks of these kinds went, and nothing else changed.
    Blocks(BTreeSet<BlockKind>),
    Content,
}

impl Changed {
    fn of(changes: &[&Change]) -> Self {
        let mut kinds = BTreeSet::new();
        for change in changes {
            match change {
                Change::Same(_) => {}
                Change::Gone(kind) => match kind.as_str() {
                    "thinking" | "redacted_thinking" => drop(kinds.insert(BlockKind::Thinking)),
                    "image" => kinds.extend([BlockKind::Image, BlockKind::Other]),
                    "media" => drop(kinds.insert(BlockKind::Other)),
                    _ => return Self::Content,
                },
                Change::Text(..) => return Self::Content,
            }
        }
        if kinds.is_empty() { Self::Nothing } else { Self::Blocks(kinds) }
    }
}

/// The content of an entry whose blocks became these.
fn changed(kind: &EventKind, changes: &[&Change]) -> Vec<ContentBlock> {
    // The content of a call is what is said before it, without the thinking.
    let is_own = |block: &str| match kind {
        EventKind::Action(_) => !matches!(block, "thinking" | "redacted_thinking" | "tool_use"),
        _ => true,
    };
    let mut old = turns::content(kind);
    let mut content = Vec::new();
    for change in changes {
        match change {
            Change::Same(block) | Change::Gone(block) if !is_own(block) => {}
            Change::Same(_) => content.extend(old.next().cloned()),
            Change::Gone(_) => drop(old.next()),
            Change::Text(texts, has_images) => {
                content.extend(texts.iter().filter(|text| !text.is_empty()).map(ContentBlock::text));
                if matches!(kind, EventKind::Observation(_)) {
                    let is_other = |block: &&ContentBlock| block.as_text().is_none() && *has_images;
                    content.extend(turns::content(kind).filter(is_other).cloned());
                }
                old.next();
            }
        }
    }
    content
}

/// The place of the newest record that basic compaction may have made: one without a summary.
fn basic_record(state: &State<'_>) -> Option<usize> {
    (0..state.view.n_pushed()).rev().find(|&seq| {
        state.bodies.event(seq).is_some_and(|event| match &event.kind {
            EventKind::Condensation(record) => {
                record.summary.is_none()
                    && !record.forgotten_event_ids.is_empty()
                    && state.view.records().any(|id| *id == event.id)
            }
            _ => false,
        })
    })
}

/// The message of entries. What an earlier compaction kept beside prompts is marked as kept for ever; `record` is the
/// place of the newest.
fn message(state: &State<'_>, members: &[usize], record: Option<usize>) -> Rc<Message> {
    let entries: Vec<Entry<'_>> = members.iter().filter_map(|&index| state.view.get(index)).collect();
    let message = state.sizer.derived(&entries, || {
        Message::new(match entries.first() {
            Some(entry) if entry.is_summary() => summary(entry),
            _ => stored(state, members),
        })
    });
    let is_kept = record.is_some_and(|record| entries.first().is_some_and(|entry| entry.seq() < record));
    if !is_kept || super::peer::is_typed(&message.value) {
        return message;
    }
    let frozen = state.sizer.derived(&entries, || {
        let mut value = message.value.clone();
        let fields = value.as_object_mut();
        let metadata = fields.map(|fields| fields.entry("metadata").or_insert_with(|| json!({})));
        if let Some(Value::Object(metadata)) = metadata {
            metadata.insert("compaction".to_owned(), json!("preserved"));
        }
        Frozen(Rc::new(Message::new(value)))
    });
    Rc::clone(&frozen.0)
}

fn summary(entry: &Entry<'_>) -> Value {
    let text = entry.summary().unwrap_or_default();
    let (summary, files) = Files::split_off(text);
    json!({
        "id": entry.id().as_str(),
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "metadata": {
            "kind": "compaction_summary",
            "displayRole": "system",
            "summary": summary,
            "details": files.details(),
        },
    })
}

/// What an import keeps that a message has not.
const OURS: [&str; 4] = ["content_shape", "block", "input_shape", "made_up_call_id"];

/// A message with its entries' content, and what an import kept of it.
fn stored(state: &State<'_>, members: &[usize]) -> Value {
    let first = members.first().and_then(|&index| state.event(index));
    let role = match first.map(|event| &event.kind) {
        Some(EventKind::Action(_)) => "assistant",
        Some(EventKind::Message(message)) if message.role == Role::Assistant => "assistant",
        _ => "user",
    };
    let foreign = first.map(|event| &event.foreign);
    let mut message = Map::new();
    message.insert("id".to_owned(), json!(first.map(|event| event.id.as_str())));
    message.insert("role".to_owned(), json!(role));
    message.insert("content".to_owned(), Value::Null);
    for (name, value) in foreign.into_iter().flat_map(|foreign| foreign.iter()) {
        if !OURS.contains(&name.as_str()) && name != "content" {
            message.insert(name.clone(), value.clone());
        }
    }
    let is_changed = members.iter().any(|&index| state.view.get(index).is_some_and(|entry| entry.rewrite().is_some()));
    let is_text = foreign.is_some_and(|foreign| foreign.get("content_shape").is_some_and(|shape| shape == "string"));
    let content = match foreign.and_then(|foreign| foreign.get("content")).filter(|_| !is_changed) {
        Some(content) => content.clone(),
        None => {
            let blocks: Vec<Value> = members.iter().flat_map(|&index| blocks(state, index)).collect();
            match blocks.as_slice() {
                [] if is_text => json!(""),
                [block] if is_text && block["type"] == "text" => block["text"].clone(),
                _ => json!(blocks),
            }
        }
    };
    message.insert("content".to_owned(), content);
    Value::Object(message)
}

/// The blocks of an entry.
fn blocks(state: &State<'_>, index: usize) -> Vec<Value> {
    let Some(kind) = turns::kind(state, index) else { return Vec::new() };
    let rest = state.event(index).and_then(rest);
    match &*kind {
        EventKind::Action(action) => {
            let mut blocks: Vec<Value> = content(action.thinking.iter().chain(&action.thought));
            let input = serde_json::from_str(&action.arguments).unwrap_or_else(|_| json!(action.arguments));
            let call = json!({"type": "tool_use", "id": action.call_id, "name": action.tool_name, "input": input});
            blocks.push(with_rest(call, rest));
            blocks
        }
        EventKind::Observation(observation) => {
            let parts = content(turns::content(&kind));
            let is_text = rest.is_none_or(|rest| rest.get("content_shape").is_some_and(|shape| shape == "string"));
            let content = match parts.as_slice() {
                [] => json!(""),
                [part] if is_text && part["type"] == "text" => part["text"].clone(),
                _ => json!(parts),
            };
            let result = json!({"type": "tool_result", "tool_use_id": observation.call_id, "content": content});
            vec![with_rest(result, rest)]
        }
        kind => content(turns::content(kind)),
    }
}

/// What an import kept of a call or a result.
fn rest(event: &Event) -> Option<&Map<String, Value>> {
    event.foreign.get("block").and_then(Value::as_object)
}

fn with_rest(mut block: Value, rest: Option<&Map<String, Value>>) -> Value {
    for (name, value) in rest.into_iter().flatten().filter(|(name, _)| !OURS.contains(&name.as_str())) {
        block[name.as_str()] = value.clone();
    }
    block
}

fn content<'b>(blocks: impl Iterator<Item = &'b ContentBlock>) -> Vec<Value> {
    let mut list = Vec::new();
    for block in blocks {
        match block {
            ContentBlock::Text { text, .. } => list.push(json!({"type": "text", "text": text})),
            ContentBlock::Image { urls, .. } => {
                list.extend(urls.iter().map(|url| json!({"type": "image", "data": url})));
            }
            ContentBlock::Thinking { thinking, .. } => list.push(json!({"type": "thinking", "thinking": thinking})),
            ContentBlock::RedactedThinking { data } => list.push(json!({"type": "redacted_thinking", "data": data})),
            ContentBlock::Other { value } => list.push(value.clone()),
            _ => {}
        }
    }
    list
}
