//! The original's own arithmetic: sizes, cut, and the messages of one request.
//!
//! Messages are chat-completions objects, without the system prompt.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::exact::{js_json, js_trim, utf16_len, utf16_slice};

/// When to compact, how much to keep and what is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Tokens of the window that stay free.
    pub reserve_tokens: u64,
    /// Tokens of the newest messages that stay.
    pub keep_recent_tokens: u64,
    /// Bytes that count for a token.
    pub bytes_per_token: u64,
    /// The most characters of a tool result that stays whole.
    pub result_characters: usize,
    /// The characters that stay of a longer one, at either end.
    pub result_end_characters: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reserve_tokens: 16_384,
            keep_recent_tokens: 20_000,
            bytes_per_token: 4,
            result_characters: 8_000,
            result_end_characters: 4_000,
        }
    }
}

/// What is remembered beside the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The newest summary, and how many messages it stands for.
    pub compaction: Option<(String, usize)>,
    /// The size that the provider reported last, and how many messages it covers.
    pub usage: Option<(u64, usize)>,
}

/// What a request is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Memory {
    /// Nothing is summarized.
    Ready(Vec<Value>),
    /// The messages up to `cut` are to be summarized first.
    NeedsSummary {
        /// How many pending messages the summary is to stand for.
        cut: usize,
        /// What the summarizer is asked.
        input: String,
        /// What is sent behind the new summary.
        recent: Vec<Value>,
        /// What is sent where there is no summary.
        otherwise: Vec<Value>,
    },
}

/// What stands in the middle.
pub const TRUNCATED: &str = "\n\n...[Middle tool output truncated]...\n\n";
/// The line above a summary.
pub const SUMMARY_LABEL: &str = "[System-generated summary of earlier session]";

/// The size of a message: the bytes of its JSON by those of a token, rounded up.
pub fn estimate(message: &Value, settings: &Settings) -> u64 {
    (js_json(message).len() as u64).div_ceil(settings.bytes_per_token.max(1))
}

/// The message that shows a summary.
pub fn summary_message(summary: &str) -> Value {
    json!({"role": "user", "content": format!("{SUMMARY_LABEL}\n{summary}")})
}

impl Session {
    /// The summary, unless it is empty.
    pub fn summary(&self) -> Option<&str> {
        self.compaction.as_ref().map(|(summary, _)| summary.as_str()).filter(|summary| !summary.is_empty())
    }

    /// The messages that no summary stands for.
    pub fn pending<'h>(&self, history: &'h [Value]) -> &'h [Value] {
        let until = self.compaction.as_ref().map_or(0, |(_, until)| *until);
        history.get(until..).unwrap_or_default()
    }

    /// The summary, where there is one, and these messages behind it.
    pub fn with_summary(&self, messages: impl IntoIterator<Item = Value>) -> Vec<Value> {
        self.summary().map(summary_message).into_iter().chain(messages).collect()
    }

    /// The size of the next request.
    pub fn tokens(&self, history: &[Value], settings: &Settings) -> u64 {
        let estimate = |message: &Value| estimate(message, settings);
        match self.usage {
            Some((total, covered)) => {
                history.get(covered..).unwrap_or_default().iter().map(estimate).fold(total, u64::saturating_add)
            }
            None => {
                let summary = self.summary().map_or(0, |summary| estimate(&summary_message(summary)));
                summary + self.pending(history).iter().map(estimate).sum::<u64>()
            }
        }
    }

    /// What the next request holds.
    pub fn memory(&self, history: &[Value], window: u64, settings: &Settings) -> Memory {
        let pending = self.pending(history);
        if !is_over(self.tokens(history, settings), window, settings) {
            return Memory::Ready(self.with_summary(pending.iter().cloned()));
        }
        let cut = cut(pending, settings);
        let truncated: Vec<Value> = pending.iter().map(|message| truncate(message, settings)).collect();
        let (older, recent) = truncated.split_at(cut);
        let otherwise = self.with_summary(truncated.iter().cloned());
        if cut == 0 {
            return Memory::Ready(otherwise);
        }
        Memory::NeedsSummary { cut, input: input(self.summary(), older), recent: recent.to_vec(), otherwise }
    }

    /// Takes a summary over. Whether there was one: a blank answer changes nothing.
    pub fn accept(&mut self, reply: Option<&str>, cut: usize) -> bool {
        let Some(summary) = reply.map(js_trim).filter(|summary| !summary.is_empty()) else { return false };
        let until = self.compaction.as_ref().map_or(0, |(_, until)| *until);
        self.compaction = Some((summary.to_owned(), until + cut));
        self.usage = None;
        true
    }
}

/// Whether a request is too large for a window.
pub fn is_over(tokens: u64, window: u64, settings: &Settings) -> bool {
    i128::from(tokens) > i128::from(window) - i128::from(settings.reserve_tokens)
}

/// How many of the oldest messages a summary is to stand for. 0: none can be.
pub fn cut(pending: &[Value], settings: &Settings) -> usize {
    let is_user = |message: &Value| message["role"] == "user";
    let mut sum = 0u64;
    for index in (0..pending.len()).rev() {
        sum += estimate(&pending[index], settings);
        if sum < settings.keep_recent_tokens {
            continue;
        }
        if let Some(ahead) = pending[index..].iter().position(is_user) {
            return index + ahead;
        }
    }
    0
}

/// A copy of a message, without the middle of a long tool result.
pub fn truncate(message: &Value, settings: &Settings) -> Value {
    let content = message["content"].as_str().filter(|_| message["role"] == "tool");
    let is_long = |content: &&str| utf16_len(content) > settings.result_characters;
    let Some(content) = content.filter(is_long) else { return message.clone() };
    let (n, end) = (utf16_len(content), settings.result_end_characters);
    let (head, tail) = (utf16_slice(content, 0, end), utf16_slice(content, n.saturating_sub(end), n));
    let mut message = message.clone();
    message["content"] = json!(format!("{head}{TRUNCATED}{tail}"));
    message
}

fn input(previous: Option<&str>, older: &[Value]) -> String {
    let mut history = "# New History\n".to_owned();
    print_indented(&json!(older), 0, &mut history);
    match previous {
        Some(previous) => format!("# Previous Summary\n{previous}\n\n{history}"),
        None => history,
    }
}

/// `JSON.stringify(value, null, 2)`.
fn print_indented(value: &Value, depth: usize, out: &mut String) {
    let line = |depth: usize| format!("\n{}", "  ".repeat(depth));
    let mut separator = "";
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for item in items {
                out.push_str(separator);
                out.push_str(&line(depth + 1));
                print_indented(item, depth + 1, out);
                separator = ",";
            }
            out.push_str(&line(depth));
            out.push(']');
        }
        Value::Object(fields) if !fields.is_empty() => {
            out.push('{');
            for (key, field) in fields {
                out.push_str(separator);
                out.push_str(&line(depth + 1));
                out.push_str(&js_json(&json!(key)));
                out.push_str(": ");
                print_indented(field, depth + 1, out);
                separator = ",";
            }
            out.push_str(&line(depth));
            out.push('}');
        }
        scalar => out.push_str(&js_json(scalar)),
    }
}
