//! Sizes: the approximate counter of the original's framework.

use serde_json::Value;

use super::message::{block_text, call_id, calls, is_assistant, is_tool, role};
use crate::exact::python_float;

/// Counts the tokens of a list.
pub trait Counter: Send + Sync {
    /// As estimated.
    fn tokens(&self, messages: &[Value]) -> u64;

    /// The same, brought closer to what the provider reported. Of a whole list only.
    fn scaled(&self, messages: &[Value]) -> u64 {
        self.tokens(messages)
    }
}

/// A number of characters makes a token, and each message has a few of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Approximate {
    /// Characters of a token.
    pub characters_per_token: f64,
    /// Tokens that each message has of its own.
    pub message_tokens: u64,
    /// Tokens of an image.
    pub image_tokens: u64,
    /// The most that a reported size raises an estimate by, as a factor.
    pub most_scaling: f64,
}

impl Default for Approximate {
    fn default() -> Self {
        Self { characters_per_token: 4.0, message_tokens: 3, image_tokens: 85, most_scaling: 1.25 }
    }
}

impl Approximate {
    /// For models whose answers are counted otherwise.
    pub fn anthropic() -> Self {
        Self { characters_per_token: 3.3, ..Self::default() }
    }

    fn message(&self, message: &Value) -> u64 {
        let (mut characters, mut tokens) = (0, 0);
        match &message["content"] {
            Value::String(text) => {
                characters += text.chars().count();
                let calls: Vec<String> =
                    if is_assistant(message) { calls(message).map(of_call).collect() } else { Vec::new() };
                if !calls.is_empty() {
                    characters += calls.join(", ").chars().count() + "[]".len();
                }
            }
            Value::Array(blocks) => {
                for block in blocks {
                    match (block_text(block), block["type"].as_str()) {
                        (Some(text), _) => characters += text.chars().count(),
                        (None, Some("image" | "image_url")) => tokens += self.image_tokens,
                        (None, _) => characters += repr(block).chars().count(),
                    }
                }
            }
            _ => {}
        }
        if is_tool(message) {
            characters += call_id(message).chars().count();
        }
        characters += role(message).len() + message["name"].as_str().unwrap_or_default().chars().count();
        (characters as f64 / self.characters_per_token).ceil() as u64 + self.message_tokens + tokens
    }
}

impl Counter for Approximate {
    fn tokens(&self, messages: &[Value]) -> u64 {
        messages.iter().map(|message| self.message(message)).sum()
    }

    fn scaled(&self, messages: &[Value]) -> u64 {
        let total = self.tokens(messages);
        let answers = || messages.iter().enumerate().filter(|(_, message)| is_assistant(message));
        let providers: Vec<Option<&str>> =
            answers().map(|(_, message)| message["response_metadata"]["model_provider"].as_str()).collect();
        let is_one = providers.first().is_some_and(|first| first.is_some() && providers.iter().all(|it| it == first));
        let newest =
            answers().filter_map(|(at, message)| Some((at, message["usage"]["total_tokens"].as_u64()?))).next_back();
        let Some((at, reported)) = newest.filter(|_| is_one && messages.len() > 1) else { return total };
        let estimate = self.tokens(&messages[..=at]);
        if estimate == 0 {
            return total;
        }
        let factor = (reported as f64 / estimate as f64).clamp(1.0, self.most_scaling.max(1.0));
        (total as f64 * factor).ceil() as u64
    }
}

/// A parsed call as Python prints it.
fn of_call(call: super::message::Call<'_>) -> String {
    let (name, id) = (Value::from(call.name()), Value::from(call.id()));
    let arguments = repr(&Value::Object(call.arguments()));
    format!("{{'name': {}, 'args': {arguments}, 'id': {}, 'type': 'tool_call'}}", repr(&name), repr(&id))
}

/// A value as Python prints it. What counts as printable is approximate beyond Latin 1.
fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) if number.is_f64() => python_float(number.as_f64().unwrap_or_default()),
        Value::Number(number) => number.to_string(),
        Value::String(text) => repr_text(text),
        Value::Array(items) => format!("[{}]", items.iter().map(repr).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{}: {}", repr_text(name), repr(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
    }
}

fn repr_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut printed = String::from(quote);
    for c in text.chars() {
        match c {
            '\n' => printed.push_str("\\n"),
            '\r' => printed.push_str("\\r"),
            '\t' => printed.push_str("\\t"),
            '\\' => printed.push_str("\\\\"),
            c if c == quote => printed.extend(['\\', c]),
            ' ' => printed.push(c),
            c if c.is_control()
                || c.is_whitespace()
                || matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{feff}') =>
            {
                let code = u32::from(c);
                printed.push_str(&if code < 256 { format!("\\x{code:02x}") } else { format!("\\u{code:04x}") });
            }
            c => printed.push(c),
        }
    }
    printed.push(quote);
    printed
}
