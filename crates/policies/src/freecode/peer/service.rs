//! The compaction service: a transcript of its own, the trigger, the selection, and what a veto does.

use serde::Deserialize;

use super::{Settings, estimate, heuristic};
use crate::exact::{is_js_space, utf16_len, utf16_slice};

/// A message of the transcript.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Its id.
    pub id: String,
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub content: String,
    /// Its size.
    pub token_count: u64,
}

/// Reads a number of the environment as the original does: the digits at the beginning count, and only above 0.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim_start_matches(is_js_space);
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok().filter(|value| *value > 0)
}

/// What stands behind a tool text that was cut.
const TRUNCATED: &str = "\n[tool output truncated for memory]";

/// Whether a size asks for a compaction. `limit`: what the model takes, where known and above 0.
pub fn should_compact(tokens: u64, limit: Option<u64>, settings: &Settings) -> bool {
    if let Some(threshold) = settings.auto_compact_tokens {
        return tokens >= threshold;
    }
    let window = limit.filter(|limit| *limit > 0).unwrap_or(settings.default_limit_tokens);
    tokens >= window.min(settings.compact_target_tokens).saturating_sub(settings.auto_compact_buffer_tokens)
}

/// What is summarized and what stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection<'m> {
    /// What is summarized.
    pub summarize: &'m [Message],
    /// What stays.
    pub preserve: &'m [Message],
}

/// Sum of the sizes of messages.
pub fn tokens(messages: &[Message]) -> u64 {
    messages.iter().map(|message| message.token_count).sum()
}

/// Where the newest turns begin: the place of the `n`-th message of the user from the end.
fn turns(roles: &[&str], n: usize) -> Option<usize> {
    let users = roles.iter().enumerate().rev().filter(|(_, role)| **role == "user");
    n.checked_sub(1).and_then(|n| users.map(|(at, _)| at).nth(n))
}

/// Chooses what is summarized: all but the newest turns, of which the oldest messages go while they are too large.
pub fn select<'m>(messages: &'m [Message], settings: &Settings) -> Selection<'m> {
    let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
    let n_users = roles.iter().filter(|role| **role == "user").count();
    if n_users <= settings.preserve_recent_turns {
        return Selection { summarize: &[], preserve: messages };
    }
    let mut start = turns(&roles, settings.preserve_recent_turns).unwrap_or(messages.len());
    while messages.len() - start > 1 && tokens(&messages[start..]) > settings.max_preserve_recent_tokens {
        start += 1;
    }
    Selection { summarize: &messages[..start], preserve: &messages[start..] }
}

/// Where the stored history begins after a compaction: the place of its first message that stays.
pub fn keep(roles: &[&str], n_turns: i64) -> usize {
    match usize::try_from(n_turns) {
        Ok(n) if n > 0 => turns(roles, n).unwrap_or(0),
        _ => roles.len(),
    }
}

/// What a compaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// Whether a hook vetoed it.
    pub is_vetoed: bool,
    /// The summary, where something was summarized.
    pub summary: Option<String>,
    /// Ids of what was summarized.
    pub compacted: Vec<String>,
    /// Ids of what stays.
    pub preserved: Vec<String>,
    /// The size before.
    pub tokens_before: u64,
    /// The size after.
    pub tokens_after: u64,
}

/// The transcript and what is remembered beside it.
#[derive(Clone, Debug, Default)]
pub struct Service {
    /// The settings.
    pub settings: Settings,
    /// The transcript.
    pub messages: Vec<Message>,
    /// The running estimate.
    pub token_count: u64,
    /// The summaries so far.
    pub summaries: Vec<String>,
    /// The size at the last check.
    pub last_effective: u64,
    /// The size at the last veto.
    pub blocked_at: Option<u64>,
    n_added: usize,
}

impl Service {
    /// An empty transcript.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Adds a message. Its id is its number.
    pub fn add(&mut self, role: &str, content: &str) -> &Message {
        let most = self.settings.max_tool_output_chars;
        let is_long = role == "assistant" && content.starts_with("Tool ") && utf16_len(content) > most;
        let content = if is_long { utf16_slice(content, 0, most) + TRUNCATED } else { content.to_owned() };
        let token_count = estimate(&content, &self.settings);
        self.token_count += token_count;
        self.n_added += 1;
        let at = self.messages.len();
        let id = (self.n_added - 1).to_string();
        self.messages.push(Message { id, role: role.to_owned(), content, token_count });
        &self.messages[at]
    }

    /// Whether to compact. `measured` is the input that the provider reported last, 0 where there is none.
    pub fn should_compact(&mut self, limit: Option<u64>, measured: u64) -> bool {
        let tokens = if measured > 0 { measured } else { self.token_count };
        self.last_effective = tokens;
        if self.blocked_at.is_some_and(|blocked| tokens < blocked.saturating_add(self.settings.retry_growth_tokens)) {
            return false;
        }
        should_compact(tokens, limit, &self.settings)
    }

    /// Compacts. `ask` is a model's summary of the messages and the summary before, where there is one.
    pub fn compact(
        &mut self,
        is_vetoed: bool,
        ask: impl FnOnce(&[Message], Option<&str>) -> Option<String>,
    ) -> Compaction {
        let ids = |messages: &[Message]| messages.iter().map(|message| message.id.clone()).collect();
        let selection = select(&self.messages, &self.settings);
        let mut done = Compaction {
            is_vetoed: false,
            summary: None,
            compacted: ids(selection.summarize),
            preserved: ids(selection.preserve),
            tokens_before: self.token_count,
            tokens_after: self.token_count,
        };
        if selection.summarize.is_empty() {
            return done;
        }
        if is_vetoed {
            self.blocked_at = Some(if self.last_effective > 0 { self.last_effective } else { self.token_count });
            return Compaction { is_vetoed, compacted: Vec::new(), preserved: ids(&self.messages), ..done };
        }
        let previous = self.summaries.last().map(String::as_str);
        let summary = ask(selection.summarize, previous)
            .unwrap_or_else(|| heuristic(selection.summarize, previous, &self.settings).content);
        done.tokens_after = estimate(&summary, &self.settings) + tokens(selection.preserve);
        self.messages = selection.preserve.to_vec();
        self.token_count = done.tokens_after;
        self.blocked_at = None;
        self.summaries.push(summary.clone());
        done.summary = Some(summary);
        done
    }
}
