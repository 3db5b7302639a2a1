//! What all parts read of a message.

use serde_json::{Map, Value};

use super::SUMMARY_SOURCE;

pub(super) fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

pub(super) fn is_tool(message: &Value) -> bool {
    role(message) == "tool"
}

pub(super) fn is_assistant(message: &Value) -> bool {
    role(message) == "assistant"
}

/// Whether a message carries a summary: by role and tag, never by text.
pub fn is_summary(message: &Value) -> bool {
    role(message) == "user" && message["additional_kwargs"]["lc_source"] == SUMMARY_SOURCE
}

/// The call that a result answers; empty where it names none.
pub fn call_id(message: &Value) -> &str {
    message["tool_call_id"].as_str().unwrap_or_default()
}

/// The text of a content: that of its text blocks, joined by line feeds.
pub fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(block_text).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

pub(super) fn block_text(block: &Value) -> Option<&str> {
    match block {
        Value::String(text) => Some(text),
        block if block["type"] == "text" => block["text"].as_str(),
        _ => None,
    }
}

pub(super) fn calls(message: &Value) -> impl Iterator<Item = Call<'_>> {
    message["tool_calls"].as_array().into_iter().flatten().map(Call)
}

/// One call of an assistant's message.
#[derive(Clone, Copy)]
pub(super) struct Call<'m>(&'m Value);

impl<'m> Call<'m> {
    pub(super) fn id(self) -> &'m str {
        self.0["id"].as_str().unwrap_or_default()
    }

    pub(super) fn name(self) -> &'m str {
        self.0["function"]["name"].as_str().unwrap_or_default()
    }

    /// The parsed arguments; none where they are no object.
    pub(super) fn arguments(self) -> Map<String, Value> {
        match self.0["function"]["arguments"].as_str().map(serde_json::from_str) {
            Some(Ok(Value::Object(arguments))) => arguments,
            _ => Map::new(),
        }
    }
}

/// The first characters of a text.
pub(super) fn head(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(at, _)| &text[..at])
}

/// The text, or its first characters and dots.
pub(super) fn shortened(text: &str, characters: usize) -> String {
    let head = head(text, characters);
    if head.len() < text.len() { format!("{head}...") } else { text.to_owned() }
}
