//! A view as the peer would have stored it, and what it sends as an edit.

use condenser::event::{ContentBlock, EventKind, Role};
use condenser::{Edit, Event, RewriteOp, State};
use serde_json::{Value, json};

use super::peer::Entry;

/// The entries of a state, each with its position in the view. The first user message is the task, which the peer
/// stores as an output; it knows no later ones. Summaries are texts of the assistant.
pub(super) fn history(state: &State<'_>) -> Vec<(usize, Entry)> {
    let mut has_task = false;
    let mut history = Vec::with_capacity(state.view.len());
    for entry in state.view.iter() {
        let item = match (entry.summary(), state.event(entry.index())) {
            (Some(text), _) => new("assistant", "thought", json!(text)),
            (None, Some(event)) => stored(event, &mut has_task),
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

fn stored(event: &Event, has_task: &mut bool) -> Entry {
    let mut entry = match &event.kind {
        EventKind::SystemPrompt(_) => new("system", "system_prompt", content(event)),
        EventKind::Message(message) => match message.role {
            Role::User if !*has_task => {
                // A demonstration comes before the task.
                *has_task = !event.foreign.contains_key("is_demo");
                new("user", "observation", content(event))
            }
            Role::User => new("user", "user", content(event)),
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

/// What sending these entries, of those that stand at `places`, changes in the view.
pub(super) fn edit(state: &State<'_>, places: &[usize], sent: &[(usize, Entry)]) -> Edit {
    let mut edit = Edit::default();
    let mut sent = sent.iter().peekable();
    for at in places {
        let Some(entry) = state.view.get(*at) else { continue };
        let Some((_, after)) = sent.next_if(|(sent, _)| sent == at) else {
            edit.forget.insert(entry.id().clone());
            continue;
        };
        let (Some(event), Some(after)) = (state.event(*at), after.get("content")) else { continue };
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
