//! One response of a model as events: an action a call, and a message of what no call follows.

use condenser::event::{Action, ContentBlock, EventKind, Message, Role, Source, Usage};
use serde_json::{Map, Value};

use crate::builder::Builder;

/// Collects the parts of a response in their order.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    response: String,
    reasoning: Option<String>,
    pending: Vec<ContentBlock>,
    kinds: Vec<(EventKind, Map<String, Value>)>,
}

impl Answer {
    /// A response with an id that its events share.
    pub(crate) fn new(response: impl Into<String>) -> Self {
        Self { response: response.into(), ..Self::default() }
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.pending.is_empty() && self.reasoning.is_none()
    }

    /// Adds reasoning that came as plain text; it goes with the next call or message.
    pub(crate) fn reason(&mut self, text: String) {
        match &mut self.reasoning {
            Some(before) => {
                before.push_str("\n\n");
                before.push_str(&text);
            }
            None => self.reasoning = Some(text),
        }
    }

    /// Adds text, thinking or another block.
    pub(crate) fn say(&mut self, blocks: impl IntoIterator<Item = ContentBlock>) {
        self.pending.extend(blocks);
    }

    /// Adds a call, with what is left of its foreign form.
    pub(crate) fn call(&mut self, call_id: String, tool_name: String, arguments: String, foreign: Map<String, Value>) {
        let (thinking, thought) = std::mem::take(&mut self.pending).into_iter().partition(ContentBlock::is_thinking);
        let action = Action {
            call_id,
            tool_name,
            arguments,
            thought,
            thinking,
            reasoning: self.reasoning.take(),
            response_id: Some(self.response.clone()),
        };
        self.kinds.push((EventKind::Action(action), foreign));
    }

    /// Adds the events to the current record. The first carries the usage and the record's `rest`.
    ///
    /// A response without any part is a message without content.
    pub(crate) fn add_to(mut self, builder: &mut Builder, usage: Option<Usage>, rest: Map<String, Value>) {
        if !self.pending.is_empty() || self.reasoning.is_some() || self.kinds.is_empty() {
            let message = Message {
                content: self.pending,
                reasoning: self.reasoning,
                response_id: Some(self.response),
                ..Message::text(Role::Assistant, "")
            };
            self.kinds.push((EventKind::Message(message), Map::new()));
        }
        let mut shared = Some((usage, rest));
        for (kind, foreign) in self.kinds {
            let event = builder.add(Source::Agent, kind);
            event.foreign = foreign.into();
            if let Some((usage, rest)) = shared.take() {
                event.usage = usage;
                for (key, value) in rest {
                    event.foreign.entry(key).or_insert(value);
                }
            }
        }
    }
}

/// Arguments as JSON text: text as it is, nothing as an empty object.
pub(crate) fn arguments(value: Option<Value>) -> String {
    match value {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    }
}
