//! A view as the peer would have stored it, and what it sends as an edit.

use std::cell::OnceCell;
use std::rc::Rc;

use condenser::event::{ContentBlock, EventKind, Role};
use condenser::{Edit, Event, RewriteOp, State};
use serde_json::{Value, json};

use super::peer::{self, Changes, Entry};

/// An entry with what is asked of it at each step.
pub(super) struct Stored {
    pub(super) entry: Entry,
    size: OnceCell<(usize, usize)>,
}

impl Stored {
    fn new(entry: Entry) -> Self {
        Self { entry, size: OnceCell::new() }
    }

    /// See [`peer::size`].
    pub(super) fn size(&self) -> (usize, usize) {
        *self.size.get_or_init(|| peer::size(&self.entry))
    }
}

/// The entries of a state, each with its position in the view. The first user message is the task, which the peer
/// stores as an output; it knows no later ones. Summaries are texts of the assistant.
pub(super) fn history(state: &State<'_>) -> Vec<(usize, Rc<Stored>)> {
    let mut has_task = false;
    let mut history = Vec::with_capacity(state.view.len());
    for entry in state.view.iter() {
        let item = match (entry.summary(), state.event(entry.index())) {
            (Some(text), _) => Rc::new(Stored::new(new("assistant", "thought", json!(text)))),
            (None, Some(event)) if !has_task && is_users(event) => {
                // A demonstration comes before the task.
                has_task = !event.foreign.contains_key("is_demo");
                Rc::new(Stored::new(stored(event, "observation")))
            }
            (None, Some(event)) => state.sizer.derived(&[entry], || Stored::new(stored(event, "user"))),
            (None, None) => continue,
        };
        history.push((entry.index(), item));
    }
    history
}

fn new(role: &str, kind: &str, content: Value) -> Entry {
    Entry::from_iter([
        ("role".to_owned(), json!(role)),
        ("content".to_owned(), content),
        ("message_type".to_owned(), json!(kind)),
    ])
}

fn is_users(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Message(message) if message.role == Role::User)
}

/// An event as it is stored; `kind` is the type of a user's message.
fn stored(event: &Event, kind: &str) -> Entry {
    let mut entry = match &event.kind {
        EventKind::SystemPrompt(_) => new("system", "system_prompt", content(event)),
        EventKind::Message(message) => match message.role {
            Role::User => new("user", kind, content(event)),
            Role::Assistant => new("assistant", "thought", content(event)),
            _ => new("system", "system_prompt", content(event)),
        },
        EventKind::Action(action) => {
            let mut entry = new("assistant", "action", content(event));
            entry.insert("tool_calls".to_owned(), json!([{"function": {"name": action.tool_name}}]));
            entry
        }
        _ => new("tool", "observation", content(event)),
    };
    for name in ["role", "message_type", "is_demo", "tags"] {
        if let Some(value) = event.foreign.get(name) {
            entry.insert(name.to_owned(), value.clone());
        }
    }
    entry
}

/// The content of an event: text where it is one text, else blocks.
fn content(event: &Event) -> Value {
    content_of(&blocks(&event.kind))
}

fn content_of(blocks: &[&ContentBlock]) -> Value {
    match blocks {
        [] => json!(""),
        [ContentBlock::Text { text, .. }] => json!(text),
        blocks => blocks
            .iter()
            .map(|block| match block {
                ContentBlock::Text { text, .. } => json!({"type": "text", "text": text}),
                ContentBlock::Image { urls, .. } => json!({"type": "image_url", "image_url": {"url": urls.first()}}),
                _ => json!({"type": "other"}),
            })
            .collect(),
    }
}

/// Whether this is [`content_of`] the blocks, which for a single text is not copied.
fn is_content(content: &Value, blocks: &[&ContentBlock]) -> bool {
    match (content, blocks) {
        (Value::String(content), [ContentBlock::Text { text, .. }]) => content == text,
        _ => *content == content_of(blocks),
    }
}

fn blocks(kind: &EventKind) -> Vec<&ContentBlock> {
    let [first, second]: [&[ContentBlock]; 2] = match kind {
        EventKind::SystemPrompt(prompt) => [&prompt.content, &prompt.dynamic_context],
        EventKind::Message(message) => [&message.content, &message.extended_content],
        EventKind::Action(action) => [&action.thought, &[]],
        EventKind::Observation(answer) => [&answer.content, &answer.extended_content],
        _ => [&[], &[]],
    };
    first.iter().chain(second).collect()
}

/// What sending a history with these changes changes in the view.
pub(super) fn edit(state: &State<'_>, history: &[(usize, Rc<Stored>)], changes: &Changes) -> Edit {
    let mut edit = Edit::default();
    for (at, after) in changes.iter().filter_map(|(at, after)| Some((history.get(*at)?.0, after))) {
        let Some(entry) = state.view.get(at) else { continue };
        let Some(after) = after else {
            edit.forget.insert(entry.id().clone());
            continue;
        };
        let Some(event) = state.event(at) else { continue };
        let blocks = blocks(&event.kind);
        if is_content(after, &blocks) {
            continue;
        }
        let op = match after {
            Value::String(text) if text.is_empty() => RewriteOp::Replace { content: Vec::new() },
            Value::String(text) => RewriteOp::Clear { text: text.clone() },
            after => RewriteOp::Replace { content: replaced(&blocks, after) },
        };
        if entry.rewrite().is_none_or(|(rewrite, _)| rewrite.op != op) {
            edit.rewrites.insert(entry.id().clone(), op.into());
        }
    }
    edit
}

/// The blocks with the texts that are sent.
fn replaced(blocks: &[&ContentBlock], sent: &Value) -> Vec<ContentBlock> {
    let texts = sent.as_array().into_iter().flatten();
    blocks
        .iter()
        .zip(texts)
        .map(|(block, sent)| match (block, sent["text"].as_str()) {
            (ContentBlock::Text { .. }, Some(text)) => ContentBlock::text(text),
            (block, _) => (*block).clone(),
        })
        .collect()
}
