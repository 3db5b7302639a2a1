//! The OpenHands SDK's own lowering of events to chat messages, at version 1.58.2.
//!
//! It serves the port's token counts, conformance, and hosts that want the peer's bytes. Nothing is repaired: a
//! history that the peer lowers to an invalid request is lowered to it here too.

use serde_json::{Value, json};

use crate::event::{ContentBlock, Event, EventKind, Observation, Outcome, Role, ToolCall};
use crate::request::{Bodies, ERROR_PREFIX, REJECTED_PREFIX, Shown};
use crate::view::View;

/// Longest text of a tool message, in characters. Longer ones are cut in the middle to exactly this.
const MAX_TOOL_TEXT: usize = 50_000;
/// Stands where text was cut. The peer's notice has this length too.
const CUT_NOTICE: &str = "\n[... this text is longer than what is sent in one piece, so its middle was left out here; the log holds it ...]\n";

/// The switches of the peer's chat serialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatOptions {
    /// Whether cache marks are written.
    pub cache_enabled: bool,
    /// Whether images are sent.
    pub vision_enabled: bool,
    /// Whether the model calls functions by itself.
    pub function_calling_enabled: bool,
    /// Whether content is one string even where parts would do.
    pub force_string_serializer: bool,
    /// Whether reasoning text is sent back.
    pub send_reasoning_content: bool,
}

/// A chat message before serialization.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: &'static str,
    /// Text and image blocks.
    pub content: Vec<ContentBlock>,
    /// Calls. An empty list and none differ: only without any does a user message fold.
    pub tool_calls: Option<Vec<ToolCall>>,
    /// The call that a tool message answers.
    pub tool_call_id: Option<String>,
    /// The tool's, or a participant's, name.
    pub name: Option<String>,
    /// Reasoning text.
    pub reasoning: Option<String>,
    /// Thinking blocks.
    pub thinking: Vec<ContentBlock>,
}

/// Why events have no messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// Only the first call of a response may have a thought.
    #[error("event {0}: a call after the first of its response has a thought of its own")]
    StrayThought(String),
    /// A tool message has a call id and no name.
    #[error("a message of role tool answers call {0:?} and has no name")]
    NamelessToolMessage(String),
}

/// The messages of a view.
///
/// # Errors
/// [`LowerError::StrayThought`].
pub fn view_messages(view: &View, bodies: &(impl Bodies + ?Sized)) -> Result<Vec<ChatMessage>, LowerError> {
    prefix_messages(view, bodies, view.len())
}

/// The messages of the first `length` entries of a view, lowered as a list of their own.
///
/// # Errors
/// [`LowerError::StrayThought`].
pub fn prefix_messages(
    view: &View,
    bodies: &(impl Bodies + ?Sized),
    length: usize,
) -> Result<Vec<ChatMessage>, LowerError> {
    let items: Vec<Item<'_>> = view
        .iter()
        .take(length)
        .filter_map(|entry| match entry.summary() {
            Some(text) => Some(Item { id: entry.id().as_str(), shown: Shown::Summary(text), event: None }),
            None => Some(Item {
                id: entry.id().as_str(),
                shown: Shown::of(entry, bodies)?,
                event: bodies.event(entry.seq()),
            }),
        })
        .collect();
    messages(&items)
}

/// The messages of events as they stand; kinds that are not shown are left out.
///
/// # Errors
/// [`LowerError::StrayThought`].
pub fn event_messages<'e>(events: impl IntoIterator<Item = &'e Event>) -> Result<Vec<ChatMessage>, LowerError> {
    let items: Vec<Item<'_>> = events
        .into_iter()
        .filter(|event| event.kind.is_shown())
        .map(|event| Item {
            id: event.id.as_str(),
            shown: Shown::Event(std::borrow::Cow::Borrowed(&event.kind)),
            event: Some(event),
        })
        .collect();
    messages(&items)
}

struct Item<'a> {
    id: &'a str,
    shown: Shown<'a>,
    event: Option<&'a Event>,
}

impl Item<'_> {
    fn kind(&self) -> Option<&EventKind> {
        match &self.shown {
            Shown::Event(kind) => Some(kind),
            Shown::Summary(_) => None,
        }
    }

    fn response(&self) -> Option<&str> {
        match self.kind() {
            Some(EventKind::Action(action)) => action.response_id.as_deref(),
            _ => None,
        }
    }
}

fn messages(items: &[Item<'_>]) -> Result<Vec<ChatMessage>, LowerError> {
    let mut messages: Vec<ChatMessage> = Vec::new();
    let mut index = 0;
    while let Some(item) = items.get(index) {
        let run = match item.response() {
            Some(response) => items[index..].iter().take_while(|next| next.response() == Some(response)).count(),
            None => 1,
        };
        let message = if run > 1 { batch(&items[index..index + run])? } else { single(item) };
        index += run;
        match messages.last_mut() {
            Some(last) if is_plain_user(last) && is_plain_user(&message) => last.content.extend(message.content),
            _ => messages.push(message),
        }
    }
    Ok(messages)
}

fn is_plain_user(message: &ChatMessage) -> bool {
    message.role == "user" && message.tool_calls.is_none() && message.tool_call_id.is_none() && message.name.is_none()
}

fn batch(items: &[Item<'_>]) -> Result<ChatMessage, LowerError> {
    let mut message = single(&items[0]);
    for item in &items[1..] {
        let next = single(item);
        if !next.content.is_empty() {
            return Err(LowerError::StrayThought(item.id.to_owned()));
        }
        message.tool_calls.get_or_insert_default().extend(next.tool_calls.into_iter().flatten());
    }
    Ok(message)
}

fn single(item: &Item<'_>) -> ChatMessage {
    let kind = match &item.shown {
        Shown::Summary(text) => {
            return ChatMessage { role: "user", content: vec![ContentBlock::text(*text)], ..ChatMessage::default() };
        }
        Shown::Event(kind) => &**kind,
    };
    match kind {
        EventKind::SystemPrompt(prompt) => ChatMessage {
            role: "system",
            content: [&prompt.content[..], &prompt.dynamic_context[..]].concat(),
            ..ChatMessage::default()
        },
        EventKind::Message(message) => {
            let (thinking, mut content): (Vec<_>, Vec<_>) =
                message.content.iter().cloned().partition(ContentBlock::is_thinking);
            content.extend(message.extended_content.iter().cloned());
            ChatMessage {
                role: match message.role {
                    Role::User => "user",
                    Role::Assistant => "assistant",
                    Role::System => "system",
                    Role::Tool => "tool",
                },
                content,
                tool_calls: message.tool_calls.clone(),
                tool_call_id: message.call_id.clone(),
                name: message.name.clone(),
                reasoning: message.reasoning.clone(),
                thinking,
            }
        }
        EventKind::Action(action) => ChatMessage {
            role: "assistant",
            content: action.thought.clone(),
            tool_calls: Some(vec![ToolCall {
                id: action.call_id.clone(),
                name: action.tool_name.clone(),
                arguments: action.arguments.clone(),
            }]),
            reasoning: action.reasoning.clone(),
            thinking: action.thinking.clone(),
            ..ChatMessage::default()
        },
        EventKind::Observation(observation) => ChatMessage {
            role: "tool",
            content: observation_content(observation, item.event),
            tool_call_id: Some(observation.call_id.clone()),
            name: Some(observation.tool_name.clone()),
            ..ChatMessage::default()
        },
        _ => ChatMessage::default(),
    }
}

fn observation_content(observation: &Observation, event: Option<&Event>) -> Vec<ContentBlock> {
    let class = event.and_then(|event| event.foreign.get("kind")).and_then(Value::as_str);
    let mut content = Vec::new();
    match observation.outcome {
        Outcome::Error if class != Some("AgentErrorEvent") => content.push(ContentBlock::text(ERROR_PREFIX)),
        Outcome::Rejected => {
            let reason: Vec<&str> = observation.content.iter().filter_map(ContentBlock::as_text).collect();
            return vec![ContentBlock::text(format!("{REJECTED_PREFIX}{}", reason.join("\n")))];
        }
        _ => {}
    }
    content.extend(observation.content.iter().cloned());
    content.extend(observation.extended_content.iter().cloned());
    content
}

impl ChatMessage {
    /// The message as the peer sends it.
    ///
    /// # Errors
    /// [`LowerError::NamelessToolMessage`].
    pub fn to_chat(&self, options: ChatOptions) -> Result<Value, LowerError> {
        let has_image = self.content.iter().any(|block| matches!(block, ContentBlock::Image { .. }));
        let as_list = (!options.force_string_serializer
            && (options.cache_enabled || options.vision_enabled || options.function_calling_enabled))
            || (options.vision_enabled && has_image);
        let mut message = json!({});
        if as_list {
            self.list(&mut message, options)
        } else {
            self.string(&mut message)
        }
        message["role"] = json!(self.role);
        if self.role == "assistant"
            && let Some(calls) = self.tool_calls.as_ref().filter(|calls| !calls.is_empty())
        {
            message["tool_calls"] = calls
                .iter()
                .map(|call| {
                    json!({
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments},
                    })
                })
                .collect();
            drop_blank_content(&mut message);
        }
        if self.role == "assistant"
            && self.tool_calls.as_ref().is_none_or(Vec::is_empty)
            && message["content"].as_array().is_some_and(Vec::is_empty)
        {
            message["content"] = json!("");
        }
        if let Some(call_id) = self.tool_call_id.as_ref().filter(|_| self.role == "tool") {
            let name = self.name.as_ref().ok_or_else(|| LowerError::NamelessToolMessage(call_id.clone()))?;
            message["tool_call_id"] = json!(call_id);
            message["name"] = json!(name);
        }
        if options.send_reasoning_content
            && let Some(reasoning) = self.reasoning.as_ref().filter(|reasoning| !reasoning.is_empty())
        {
            message["reasoning_content"] = json!(reasoning);
        }
        Ok(message)
    }

    fn text<'t>(&self, text: &'t str) -> std::borrow::Cow<'t, str> {
        if self.role == "tool" { cut_middle(text, MAX_TOOL_TEXT) } else { text.into() }
    }

    fn string(&self, message: &mut Value) {
        let texts: Vec<_> = self.content.iter().filter_map(ContentBlock::as_text).map(|text| self.text(text)).collect();
        message["content"] = json!(texts.join("\n"));
    }

    fn list(&self, message: &mut Value, options: ChatOptions) {
        let mark = json!({"type": "ephemeral"});
        let mut parts = Vec::new();
        let mut marks_message = false;
        for block in &self.content {
            let marked = match block {
                ContentBlock::Text { text, cache } => {
                    parts.push(json!({"type": "text", "text": self.text(text)}));
                    *cache
                }
                ContentBlock::Image { urls, cache } if options.vision_enabled => {
                    parts.extend(urls.iter().map(|url| json!({"type": "image_url", "image_url": {"url": url}})));
                    *cache && !urls.is_empty()
                }
                _ => false,
            };
            if marked && self.role == "tool" {
                marks_message = true;
            } else if marked && let Some(part) = parts.last_mut() {
                part["cache_control"] = mark.clone();
            }
        }
        message["content"] = Value::Array(parts);
        if marks_message {
            message["cache_control"] = mark;
        }
        if self.role == "assistant" && !self.thinking.is_empty() {
            message["thinking_blocks"] = self.thinking.iter().filter_map(thinking_block).collect();
        }
    }
}

fn thinking_block(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Thinking { thinking, signature: Some(signature) } => {
            Some(json!({"type": "thinking", "thinking": thinking, "signature": signature}))
        }
        ContentBlock::Thinking { thinking, signature: None } => Some(json!({"type": "thinking", "thinking": thinking})),
        ContentBlock::RedactedThinking { data } => Some(json!({"type": "redacted_thinking", "data": data})),
        _ => None,
    }
}

/// Beside calls, text of nothing but white space is left out, and content that is empty then.
fn drop_blank_content(message: &mut Value) {
    let is_blank = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
    let gone = match &mut message["content"] {
        Value::Array(parts) => {
            parts.retain(|part| part["type"] != "text" || !is_blank(&part["text"]));
            parts.is_empty()
        }
        text => is_blank(text),
    };
    if gone && let Some(fields) = message.as_object_mut() {
        fields.shift_remove("content");
    }
}

/// Cuts a text in the middle to exactly `limit` characters, the notice included.
///
/// The odd character goes to the head. Where the limit leaves no room, the notice itself is cut.
pub fn cut_middle(text: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    let length = text.chars().count();
    if length <= limit {
        return text.into();
    }
    let notice = CUT_NOTICE.chars().count();
    let Some(kept) = limit.checked_sub(notice).filter(|kept| *kept > 0) else {
        return CUT_NOTICE.chars().take(limit).collect();
    };
    let tail = kept / 2;
    let head: String = text.chars().take(kept - tail).collect();
    let tail: String = text.chars().skip(length - tail).collect();
    format!("{head}{CUT_NOTICE}{tail}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_has_the_length_of_the_peers() {
        assert_eq!(CUT_NOTICE.chars().count(), 113);
    }
}
