//! Messages that repeat actions and observations.

use std::collections::{HashMap, HashSet};

use condenser::event::{ContentBlock, Event, EventKind};
use serde_json::Value;

use super::event;
use crate::node::Node;
use crate::reader::Place;

/// Messages that repeat actions and observations.
///
/// The TypeScript port stores each call twice, as a message with `tool_calls` and as an action, and each
/// answer twice, as a message of role tool and as an observation. The message of role tool holds what the
/// model was shown.
#[derive(Default)]
pub(super) struct Mirrors {
    copies: HashSet<Place>,
    thoughts: HashMap<Place, Vec<ContentBlock>>,
    answers: HashMap<Place, Vec<ContentBlock>>,
}

/// What a stored value is in such a pair.
pub(super) enum Mirror {
    /// No part of one.
    None,
    /// The message.
    Copy,
    /// The action, with what the message says beside the call.
    Thought(Vec<ContentBlock>),
    /// The observation, with what the model was shown of it.
    Answer(Vec<ContentBlock>),
}

/// What is gathered on the way to [`Mirrors`].
#[derive(Default)]
pub(super) struct Gathered {
    /// The first action with each call id, and the last answer.
    actions: HashMap<String, Place>,
    answers: HashMap<String, Place>,
    /// Assistant messages, with the ids of their calls.
    messages: Vec<(Place, Vec<String>, Vec<ContentBlock>)>,
    /// Messages of role tool, with the call they name.
    results: Vec<(Place, String, Vec<ContentBlock>)>,
}

impl Gathered {
    pub(super) fn add(&mut self, at: Place, value: &Node<'_>) {
        let text = |value: &Node<'_>, key: &str| value.get(key).and_then(Node::as_str).map(str::to_owned);
        let kind = value.get("kind").and_then(Node::as_str);
        match (kind, text(value, "tool_call_id")) {
            (Some("ActionEvent"), Some(call_id)) => {
                self.actions.entry(call_id).or_insert(at);
            }
            (Some("ObservationEvent" | "AgentErrorEvent" | "UserRejectObservation"), Some(call_id)) => {
                self.answers.insert(call_id, at);
            }
            _ => {}
        }
        let Some(message) = value.get("llm_message").filter(|_| kind == Some("MessageEvent")) else { return };
        let content = || match message.get("content") {
            Some(Node::Array(parts)) => parts.iter().map(|part| event::part(part).0).collect(),
            Some(Node::String(text)) if !text.is_empty() => vec![ContentBlock::text(text.as_ref())],
            _ => Vec::new(),
        };
        match message.get("role").and_then(Node::as_str) {
            Some("assistant") => {
                let calls = message.get("tool_calls").and_then(Node::as_array);
                let ids: Option<Vec<String>> =
                    calls.and_then(|calls| calls.iter().map(|call| text(call, "id")).collect());
                self.messages.extend(ids.filter(|ids| !ids.is_empty()).map(|ids| (at, ids, content())));
            }
            Some("tool") => self.results.extend(text(message, "tool_call_id").map(|id| (at, id, content()))),
            _ => {}
        }
    }

    pub(super) fn mirrors(self) -> Mirrors {
        let mut mirrors = Mirrors::default();
        for (at, ids, thought) in self.messages {
            let calls: Option<Vec<Place>> = ids.iter().map(|id| self.actions.get(id).copied()).collect();
            let Some(first) = calls.and_then(|calls| calls.into_iter().min()) else { continue };
            mirrors.copies.insert(at);
            if thought.iter().any(|block| block.as_text().is_none_or(|text| !text.trim().is_empty())) {
                mirrors.thoughts.insert(first, thought);
            }
        }
        for (at, id, content) in self.results {
            if let Some(answer) = self.answers.get(&id).copied().filter(|answer| *answer < at) {
                mirrors.copies.insert(at);
                mirrors.answers.insert(answer, content);
            }
        }
        mirrors
    }
}

impl Mirrors {
    pub(super) fn role(&mut self, at: Place, value: &Node<'_>) -> Mirror {
        if self.copies.contains(&at) {
            return Mirror::Copy;
        }
        if let Some(thought) = self.thoughts.remove(&at) {
            return Mirror::Thought(thought);
        }
        // An observation with a content list says itself what the model was shown.
        let has_content =
            value.get("observation").is_none_or(|stored| stored.get("content").is_some_and(Node::is_array));
        match self.answers.remove(&at) {
            Some(content) if !has_content => Mirror::Answer(content),
            _ => Mirror::None,
        }
    }
}

pub(super) fn with_thought(mut event: Event, thought: Vec<ContentBlock>) -> Event {
    if let EventKind::Action(action) = &mut event.kind
        && action.thought.is_empty()
    {
        action.thought = thought;
    }
    event
}

pub(super) fn with_answer(mut event: Event, content: Vec<ContentBlock>, stored: Option<Value>) -> Event {
    if let EventKind::Observation(observation) = &mut event.kind {
        observation.content = content;
        if let Some(stored) = stored {
            event.foreign.insert("observation".to_owned(), stored);
            event.foreign.insert("content_from_message".to_owned(), Value::Bool(true));
        }
    }
    event
}
