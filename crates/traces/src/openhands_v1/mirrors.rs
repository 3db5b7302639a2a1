//! Messages that repeat actions and observations.

use std::collections::{HashMap, HashSet};

use condenser::event::{ContentBlock, Event, EventKind};
use serde_json::Value;

use super::event;

/// Messages that repeat actions and observations.
///
/// The TypeScript port stores each call twice, as a message with `tool_calls` and as an action, and each
/// answer twice, as a message of role tool and as an observation. The message of role tool holds what the
/// model was shown.
#[derive(Default)]
pub(super) struct Mirrors {
    copies: HashSet<usize>,
    thoughts: HashMap<usize, Vec<ContentBlock>>,
    answers: HashMap<usize, Vec<ContentBlock>>,
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

impl Mirrors {
    pub(super) fn find<'v>(values: &'v [(String, Value)]) -> Self {
        // The SDK itself writes neither.
        let repeats = |value: &Value| {
            value.get("llm_message").is_some_and(|message| {
                message["role"] == "tool" || message.get("tool_calls").is_some_and(Value::is_array)
            })
        };
        if !values.iter().any(|(_, value)| repeats(value)) {
            return Self::default();
        }
        let text = |value: &'v Value, key: &str| value.get(key).and_then(Value::as_str);
        let mut actions: HashMap<&str, usize> = HashMap::new();
        let mut answers: HashMap<&str, usize> = HashMap::new();
        for (at, (_, value)) in values.iter().enumerate() {
            let Some(call_id) = text(value, "tool_call_id") else { continue };
            match value.get("kind").and_then(Value::as_str) {
                Some("ActionEvent") => {
                    actions.entry(call_id).or_insert(at);
                }
                Some("ObservationEvent" | "AgentErrorEvent" | "UserRejectObservation") => {
                    answers.insert(call_id, at);
                }
                _ => {}
            }
        }
        let mut mirrors = Self::default();
        for (at, (_, value)) in values.iter().enumerate() {
            let Some(message) =
                value.get("llm_message").filter(|_| value.get("kind").is_some_and(|kind| kind == "MessageEvent"))
            else {
                continue;
            };
            let content = || match message.get("content") {
                Some(Value::Array(parts)) => parts.iter().map(|part| event::part(part).0).collect(),
                Some(Value::String(text)) if !text.is_empty() => vec![ContentBlock::text(text.as_str())],
                _ => Vec::new(),
            };
            match message.get("role").and_then(Value::as_str) {
                Some("assistant") => {
                    let calls: Option<Vec<usize>> =
                        message.get("tool_calls").and_then(Value::as_array).and_then(|calls| {
                            calls.iter().map(|call| actions.get(call.get("id")?.as_str()?).copied()).collect()
                        });
                    if let Some(first) = calls.and_then(|calls| calls.into_iter().min()) {
                        mirrors.copies.insert(at);
                        let thought: Vec<ContentBlock> = content();
                        if thought.iter().any(|block| block.as_text().is_none_or(|text| !text.trim().is_empty())) {
                            mirrors.thoughts.insert(first, thought);
                        }
                    }
                }
                Some("tool") => {
                    let answer = text(message, "tool_call_id").and_then(|id| answers.get(id).copied());
                    if let Some(answer) = answer.filter(|answer| *answer < at) {
                        mirrors.copies.insert(at);
                        mirrors.answers.insert(answer, content());
                    }
                }
                _ => {}
            }
        }
        mirrors
    }

    pub(super) fn role(&self, at: usize, value: &Value) -> Mirror {
        if self.copies.contains(&at) {
            return Mirror::Copy;
        }
        if let Some(thought) = self.thoughts.get(&at) {
            return Mirror::Thought(thought.clone());
        }
        // An observation with a content list says itself what the model was shown.
        let has_content =
            value.get("observation").is_none_or(|stored| stored.get("content").is_some_and(Value::is_array));
        match self.answers.get(&at) {
            Some(content) if !has_content => Mirror::Answer(content.clone()),
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
        }
    }
    event
}
