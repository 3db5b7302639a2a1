//! A view as the list that the model is given, and changes of that list as an edit.
//!
//! System prompts are the system message, which is none of the list. A summary is a tagged message of the user. The `id`
//! of a message is that of its first entry in the view.

use std::collections::{BTreeMap, BTreeSet};

use condenser::condensation::BlockKind;
use condenser::event::{ContentBlock, EventKind, Role};
use condenser::recall::address;
use condenser::{Class, EventId, Rewrite, RewriteOp, State};
use serde_json::{Value, json};

use super::peer::{self, Backend, Stored, Thrown};
use crate::summarizing::{label, unfenced};
use crate::turns::{self, Turn, turns};

/// The effective list, each message with the positions in the view that it stands for.
#[derive(Debug)]
pub(super) struct Chat {
    pub(super) messages: Vec<Value>,
    members: Vec<Vec<usize>>,
}

/// The turns that are in the list.
pub(super) fn listed(state: &State<'_>) -> Vec<Turn> {
    let is_prompt = |turn: &Turn| match turn {
        Turn::System(index) => state.view.get(*index).is_some_and(|entry| entry.class() == Class::SystemPrompt),
        _ => false,
    };
    turns(state).into_iter().filter(|turn| !is_prompt(turn)).collect()
}

impl Chat {
    pub(super) fn new(state: &State<'_>) -> Self {
        let mut chat = Self { messages: Vec::new(), members: Vec::new() };
        for turn in listed(state) {
            let Some(mut message) = message(state, &turn) else { continue };
            let entry = turn.members().first().and_then(|&index| state.view.get(index));
            message["id"] = json!(entry.map(|entry| entry.id().as_str()));
            chat.messages.push(message);
            chat.members.push(turn.members().to_vec());
        }
        chat
    }

    pub(super) fn members(&self, message: usize) -> &[usize] {
        self.members.get(message).map_or(&[], Vec::as_slice)
    }

    /// The entries before a cut.
    pub(super) fn forget(&self, state: &State<'_>, cut: usize) -> BTreeSet<EventId> {
        let members = self.members.iter().take(cut).flatten();
        members.filter_map(|&index| state.view.get(index)).map(|entry| entry.id().clone()).collect()
    }

    /// The rewrites that make these messages of the list, from `from` on.
    pub(super) fn rewrites(&self, state: &State<'_>, list: &[Value], from: usize) -> BTreeMap<EventId, Rewrite> {
        let mut rewrites = BTreeMap::new();
        for (at, (old, new)) in self.messages.iter().zip(list).enumerate().skip(from) {
            if old == new {
                continue;
            }
            let mut calls = old["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
                .zip(new["tool_calls"].as_array().into_iter().flatten());
            for &index in self.members(at) {
                let (Some(entry), Some(kind)) = (state.view.get(index), turns::kind(state, index)) else { continue };
                let op = match &*kind {
                    EventKind::Action(_) => calls.next().and_then(|(old, new)| {
                        let text = |call: &Value| call["function"]["arguments"].as_str().unwrap_or_default().to_owned();
                        let (old, new) = (text(old), text(new));
                        let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
                        (parsed(&old) != parsed(&new)).then_some(RewriteOp::Arguments { text: new })
                    }),
                    // A stub is not stubbed again.
                    _ if old["content"] != new["content"] && !is_replaced(entry) => {
                        Some(RewriteOp::Replace { content: replaced(&kind, &new["content"]) })
                    }
                    _ => None,
                };
                if let Some(op) = op {
                    rewrites.insert(entry.id().clone(), op.into());
                }
            }
        }
        rewrites
    }

    /// Takes out of answers behind a cut what their provider ties to the history before, unless they change anyhow.
    pub(super) fn strip(&self, state: &State<'_>, from: usize, rewrites: &mut BTreeMap<EventId, Rewrite>) {
        for &index in self.members.iter().skip(from).flatten() {
            let (Some(entry), Some(event)) = (state.view.get(index), state.event(index)) else { continue };
            let has_thinking = match &event.kind {
                EventKind::Action(action) => {
                    action.reasoning.is_some()
                        || action.thinking.iter().chain(&action.thought).any(ContentBlock::is_thinking)
                }
                EventKind::Message(message) if message.role == Role::Assistant => {
                    message.reasoning.is_some() || message.content.iter().any(ContentBlock::is_thinking)
                }
                _ => false,
            };
            let metadata = event.foreign.get("response_metadata").unwrap_or(&Value::Null);
            if has_thinking && entry.rewrite().is_none() && peer::is_bound_reasoning("thinking", metadata) {
                let op = RewriteOp::Strip { kinds: BTreeSet::from([BlockKind::Thinking]) };
                rewrites.entry(entry.id().clone()).or_insert_with(|| op.into());
            }
        }
    }

    /// Marks the results that stand as the placeholder as cleared.
    pub(super) fn mark_cleared(&mut self, state: &State<'_>, placeholder: &str) {
        for (message, members) in self.messages.iter_mut().zip(&self.members) {
            let entry = members.first().and_then(|&index| state.view.get(index));
            let op = entry.and_then(|entry| entry.rewrite()).map(|(rewrite, _)| &rewrite.op);
            if matches!(op, Some(RewriteOp::Clear { text }) if text == placeholder) {
                peer::mark_cleared(message);
            }
        }
    }

    /// The entries of these calls of an answer.
    pub(super) fn entries_of_calls(&self, state: &State<'_>, message: usize, calls: &[String]) -> Vec<EventId> {
        let is_one = |&&index: &&usize| match state.event(index).map(|event| &event.kind) {
            Some(EventKind::Action(action)) => calls.contains(&action.call_id),
            _ => false,
        };
        let entries = self.members(message).iter().filter(is_one).filter_map(|&index| state.view.get(index));
        entries.map(|entry| entry.id().clone()).collect()
    }

    /// What the summarizer is shown of messages: each entry once, with what the list says of it.
    pub(super) fn events(&self, state: &State<'_>, messages: &[(usize, Value)]) -> Vec<(EventId, String)> {
        let mut events = Vec::new();
        for (at, message) in messages {
            let mut content = peer::content_text(&message["content"]);
            let mut calls = message["tool_calls"].as_array().into_iter().flatten();
            for &index in self.members(*at) {
                let Some(entry) = state.view.get(index) else { continue };
                let kind = state.event(index).map(|event| &event.kind);
                let mut text = kind.map_or_else(|| "[summary]".to_owned(), label);
                text.push('\n');
                text.push_str(&std::mem::take(&mut content));
                if matches!(kind, Some(EventKind::Action(_)))
                    && let Some(arguments) = calls.next().and_then(|call| call["function"]["arguments"].as_str())
                {
                    text.push_str(&format!("\n{arguments}"));
                }
                events.push((entry.id().clone(), unfenced(text)));
            }
        }
        events
    }
}

fn is_replaced(entry: condenser::Entry<'_>) -> bool {
    entry
        .rewrite()
        .is_some_and(|(rewrite, _)| matches!(rewrite.op, RewriteOp::Replace { .. } | RewriteOp::Clear { .. }))
}

/// The content of an entry that is sent with another text: what is no text stays beside it.
fn replaced(kind: &EventKind, content: &Value) -> Vec<ContentBlock> {
    let others = turns::content(kind).filter(|block| matches!(block, ContentBlock::Image { .. })).cloned();
    let is_list = content.is_array();
    std::iter::once(ContentBlock::text(peer::content_text(content))).chain(others.filter(|_| is_list)).collect()
}

fn message(state: &State<'_>, turn: &Turn) -> Option<Value> {
    Some(match turn {
        Turn::Summary(index) => peer::summary_message(state.view.get(*index)?.summary()?),
        Turn::System(index) => json!({"role": "system", "content": content(&*turns::kind(state, *index)?)}),
        Turn::User(index) => json!({"role": "user", "content": content(&*turns::kind(state, *index)?)}),
        Turn::Result(index) => {
            let kind = turns::kind(state, *index)?;
            let (call, name) = match &*kind {
                EventKind::Observation(observation) => (observation.call_id.as_str(), observation.tool_name.as_str()),
                EventKind::Message(message) => (message.call_id.as_deref().unwrap_or_default(), ""),
                _ => ("", ""),
            };
            json!({"role": "tool", "content": content(&kind), "tool_call_id": call, "name": name})
        }
        Turn::Answer(members) => answer(state, members),
    })
}

/// A text where there is one, else blocks.
fn content(kind: &EventKind) -> Value {
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
        [] => json!(""),
        [block] if block["type"] == "text" => block["text"].clone(),
        _ => json!(blocks),
    }
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
    if calls.is_empty() {
        json!({"role": "assistant", "content": text})
    } else {
        json!({"role": "assistant", "content": text, "tool_calls": calls})
    }
}

/// The log in the place of the original's file system: all is stored there already, under the address of its event.
/// Without recall there is no address, as if writing had failed.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) recall: bool,
}

impl Backend for Log {
    fn read(&mut self, _: &str) -> Result<Option<Vec<u8>>, Thrown> {
        Ok(None)
    }

    fn write(&mut self, _: &str, _: &str) -> Result<Stored, Thrown> {
        Ok(if self.recall { Stored::Done } else { Stored::Refused })
    }

    fn edit(&mut self, path: &str, _: &str, new: &str) -> Result<Stored, Thrown> {
        self.write(path, new)
    }

    fn address(&self, _: &str, message: &Value) -> String {
        address(&EventId::new(message["id"].as_str().unwrap_or_default()))
    }

    fn now(&mut self) -> String {
        String::new()
    }

    fn random(&mut self) -> String {
        String::new()
    }
}

/// Where the history before a cut is: its first and last event, and the largest that leave now.
pub(super) fn history(state: &State<'_>, forget: &BTreeSet<EventId>, most: usize) -> Option<String> {
    let is_first = |seq: &usize| {
        state
            .bodies
            .event(*seq)
            .is_some_and(|event| event.kind.is_shown() && !matches!(event.kind, EventKind::SystemPrompt(_)))
    };
    let first = (0..state.view.n_pushed()).find(is_first).and_then(|seq| state.bodies.event(seq))?;
    let mut leaving: Vec<_> =
        state.view.iter().filter(|entry| !entry.is_summary() && forget.contains(entry.id())).collect();
    let last = leaving.last().map_or(&first.id, |entry| entry.id());
    let mut text = format!("{} to {}", address(&first.id), address(last));
    let (edges, tokens) = ([first.id.clone(), last.clone()], state.entry_tokens());
    leaving.retain(|entry| !edges.contains(entry.id()));
    leaving.sort_by_key(|entry| std::cmp::Reverse(tokens.get(entry.index()).copied()));
    leaving.truncate(most);
    leaving.sort_by_key(|entry| entry.index());
    if !leaving.is_empty() {
        let largest: Vec<String> = leaving.iter().map(|entry| address(entry.id())).collect();
        text.push_str(&format!(", the largest between them {}", largest.join(" ")));
    }
    Some(text)
}
