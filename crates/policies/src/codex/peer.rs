//! The original's own arithmetic. Items are those of the Responses API; a token is four bytes, rounded up.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// When to compact, and what stays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The size at which it compacts, where it is smaller than the share of the window.
    pub token_limit: Option<u64>,
    /// That share.
    pub window_share: f64,
    /// The most tokens of the user's messages that stay.
    pub user_tokens: u64,
    /// Bytes that count for a token.
    pub bytes_per_token: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { token_limit: None, window_share: 0.9, user_tokens: 20_000, bytes_per_token: 4 }
    }
}

/// The line before a summary, by which it is known again.
pub const SUMMARY_PREFIX: &str = "Another model worked on this task before and left the following handoff. Build on it, \
                                  and do not do again what is done:";
/// What stands for a summary without text.
pub const NO_SUMMARY: &str = "(no summary was written)";
/// How messages begin that the program wrote in the user's place.
const INJECTED: [&str; 4] =
    ["<user_instructions>", "<environment_context>", "# AGENTS.md instructions", "<turn_aborted>"];

/// The size at which to compact. `None`: nothing is known.
pub fn token_limit(window: Option<u64>, settings: &Settings) -> Option<u64> {
    let share = window.map(|window| (window as f64 * settings.window_share) as u64);
    [share, settings.token_limit].into_iter().flatten().min()
}

/// Whether a size calls for a compaction.
pub fn should_compact(total: u64, limit: Option<u64>) -> bool {
    limit.is_some_and(|limit| total >= limit)
}

/// The tokens of a text.
pub fn tokens(text: &str, settings: &Settings) -> u64 {
    (text.len() as u64).div_ceil(settings.bytes_per_token.max(1))
}

/// The text of an item.
pub fn text(item: &Value) -> String {
    match &item["content"] {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n"),
        content => content.as_str().unwrap_or_default().to_owned(),
    }
}

/// Whether a text was written by the program in the user's place.
pub fn is_injected(text: &str) -> bool {
    INJECTED.iter().any(|begin| text.trim_start().starts_with(begin))
}

/// Whether a text is an earlier summary.
pub fn is_summary(text: &str) -> bool {
    text.starts_with(SUMMARY_PREFIX)
}

/// What the user really said, with the position of each item.
pub fn user_messages(items: &[Value]) -> Vec<(usize, String)> {
    let is_user = |item: &Value| item["role"] == "user" && (item["type"].is_null() || item["type"] == "message");
    let users = items.iter().enumerate().filter(|(_, item)| is_user(item));
    users.map(|(at, item)| (at, text(item))).filter(|(_, text)| !is_summary(text) && !is_injected(text)).collect()
}

/// Those that stay, in order; the oldest of them may have lost its middle.
pub fn select(messages: &[(usize, String)], settings: &Settings) -> Vec<(usize, String)> {
    let mut remaining = settings.user_tokens;
    let mut selected = Vec::new();
    for (at, text) in messages.iter().rev() {
        if remaining == 0 {
            break;
        }
        let size = tokens(text, settings);
        if size > remaining {
            selected.push((*at, without_middle(text, remaining, settings)));
            break;
        }
        selected.push((*at, text.clone()));
        remaining -= size;
    }
    selected.reverse();
    selected
}

/// A text without its middle: half of the budget stays in front, half behind. Characters stay whole.
pub fn without_middle(text: &str, budget: u64, settings: &Settings) -> String {
    let bytes = budget.saturating_mul(settings.bytes_per_token).min(text.len() as u64) as usize;
    if bytes == text.len() {
        return text.to_owned();
    }
    let front = text.floor_char_boundary(bytes / 2);
    let behind = text.ceil_char_boundary(text.len() - (bytes - bytes / 2));
    let removed = ((behind - front) as u64).div_ceil(settings.bytes_per_token.max(1));
    format!("{}…{removed} tokens truncated…{}", &text[..front], &text[behind..])
}

/// The text of a summary as it is kept.
pub fn summary(answer: &str) -> String {
    let answer = if answer.is_empty() { NO_SUMMARY } else { answer };
    format!("{SUMMARY_PREFIX}\n{answer}")
}

fn message(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

/// The new history. `initial`: the context that is injected, where the compaction happens inside a turn.
pub fn rebuild(initial: &[Value], users: &[(usize, String)], answer: &str) -> Vec<Value> {
    let mut items: Vec<Value> = users.iter().map(|(_, text)| message(text)).collect();
    // Before the last real message, so that the summary stays last.
    let at = items.len().saturating_sub(1);
    items.splice(at..at, initial.iter().cloned());
    items.push(message(&summary(answer)));
    items
}

/// How many of the oldest items are left out for the summarizer, if `fits` says of a suffix whether it can be sent.
pub fn drop_oldest(n_items: usize, fits: impl Fn(usize) -> bool) -> usize {
    (0..n_items).find(|&from| fits(from)).unwrap_or(n_items.saturating_sub(1))
}
