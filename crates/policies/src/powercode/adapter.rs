//! A view as the messages of a chat, and what the peer would send as an edit.

use std::collections::BTreeSet;

use condenser::event::{ContentBlock, EventKind};
use condenser::{Edit, EventId, RewriteOp, State};
use serde_json::{Value, json};

use super::peer::{SUMMARY_LABEL, Session, Settings, truncate};
use crate::turns::{self, Turn, turns};

/// The messages that no summary stands for, each with the positions in the view that it stands for.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) session: Session,
    pub(super) messages: Vec<Value>,
    members: Vec<Vec<usize>>,
    summaries: Vec<usize>,
}

impl Chat {
    pub(super) fn new(state: &State<'_>) -> Self {
        let mut chat =
            Self { session: Session::default(), messages: Vec::new(), members: Vec::new(), summaries: Vec::new() };
        let mut texts = Vec::new();
        for turn in turns(state) {
            let message = match &turn {
                // The prompt is put before every request and is none of the history.
                Turn::System(_) => continue,
                Turn::Summary(index) => {
                    chat.summaries.push(*index);
                    let text = state.view.get(*index).and_then(|entry| entry.summary()).unwrap_or_default();
                    texts.push(text.strip_prefix(&format!("{SUMMARY_LABEL}\n")).unwrap_or(text));
                    continue;
                }
                Turn::User(index) => {
                    // What an import says of the content's form.
                    let event = state.event(*index);
                    let is_list = event.is_some_and(|event| event.foreign.get("content_shape").is_some());
                    turns::kind(state, *index).map(|kind| user(&kind, is_list))
                }
                Turn::Result(index) => turns::kind(state, *index).map(|kind| result(&kind)),
                Turn::Answer(members) => Some(answer(state, members)),
            };
            chat.messages.extend(message);
            chat.members.push(turn.members().to_vec());
        }
        if !texts.is_empty() {
            chat.session.compaction = Some((texts.join("\n\n"), 0));
        }
        chat
    }

    /// Where a message begins in the view.
    pub(super) fn first_member(&self, message: usize) -> Option<usize> {
        self.members.get(message)?.first().copied()
    }

    /// What leaves where a new summary stands for the messages before `cut`.
    pub(super) fn forget(&self, state: &State<'_>, cut: usize) -> BTreeSet<EventId> {
        let old = self.members.iter().take(cut).flatten().chain(&self.summaries);
        old.filter_map(|&index| state.view.get(index)).map(|entry| entry.id().clone()).collect()
    }

    /// Takes the middle out of long results from `from` on.
    pub(super) fn truncate(&self, state: &State<'_>, settings: &Settings, from: usize, edit: &mut Edit) {
        for (message, members) in self.messages.iter().zip(&self.members).skip(from) {
            let short = truncate(message, settings);
            if short == *message {
                continue;
            }
            let text = short["content"].as_str().unwrap_or_default();
            for entry in members.iter().filter_map(|&index| state.view.get(index)) {
                let content = vec![ContentBlock::text(text)];
                edit.rewrites.insert(entry.id().clone(), RewriteOp::Replace { content }.into());
            }
        }
    }
}

/// A text, or blocks where there is more than one text.
fn user(kind: &EventKind, is_list: bool) -> Value {
    let mut blocks = Vec::new();
    for block in turns::content(kind) {
        match block {
            ContentBlock::Text { text, .. } => blocks.push(json!({"type": "text", "text": text})),
            ContentBlock::Image { urls, .. } => {
                blocks.extend(urls.iter().map(|url| json!({"type": "image_url", "image_url": {"url": url}})));
            }
            ContentBlock::Other { value } => blocks.push(value.clone()),
            _ => {}
        }
    }
    match blocks.as_slice() {
        [block] if block["type"] == "text" && !is_list => json!({"role": "user", "content": block["text"]}),
        _ => json!({"role": "user", "content": blocks}),
    }
}

/// A result is one text, as the peer's tools give it.
fn result(kind: &EventKind) -> Value {
    let call = match kind {
        EventKind::Observation(observation) => Some(observation.call_id.as_str()),
        EventKind::Message(message) => message.call_id.as_deref(),
        _ => None,
    };
    json!({"role": "tool", "tool_call_id": call, "content": turns::text(kind)})
}

fn answer(state: &State<'_>, members: &[usize]) -> Value {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for kind in members.iter().filter_map(|&index| turns::kind(state, index)) {
        text.push_str(&turns::text(&kind));
        if let EventKind::Action(action) = &*kind {
            let function = json!({"name": action.tool_name, "arguments": action.arguments});
            calls.push(json!({"id": action.call_id, "type": "function", "function": function}));
        }
    }
    let content = if text.is_empty() { Value::Null } else { json!(text) };
    if calls.is_empty() {
        json!({"role": "assistant", "content": content})
    } else {
        json!({"role": "assistant", "content": content, "tool_calls": calls})
    }
}
