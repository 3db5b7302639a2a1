//! The original's own three mechanisms. Lengths are UTF-16 code units.

mod heuristic;
mod prune;
mod retry;
mod service;

pub use heuristic::{Summary, heuristic};
pub use prune::{Candidate, Pruned, Pruning, marker};
pub use retry::{Retry, is_overflow};
pub use service::{Compaction, Message, Selection, Service, keep, parse, select, should_compact, tokens};

use serde::{Deserialize, Serialize};

use crate::exact::{js_trim, utf16_len};

/// Settings of all three mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Tokens below the limit at which it compacts.
    pub auto_compact_buffer_tokens: u64,
    /// The size at which it compacts, whatever the limits.
    pub auto_compact_tokens: Option<u64>,
    /// The size that costs ask for.
    pub compact_target_tokens: u64,
    /// The limit where none is known.
    pub default_limit_tokens: u64,
    /// How much the transcript has to grow after a veto before it is looked at again.
    pub retry_growth_tokens: u64,
    /// The newest turns of the user that stay.
    pub preserve_recent_turns: usize,
    /// The most tokens of what stays, but for one message.
    pub max_preserve_recent_tokens: u64,
    /// Longer tool texts are cut in the transcript.
    pub max_tool_output_chars: usize,
    /// Characters that count for a token.
    pub characters_per_token: u64,
    /// The most characters of all tool results of a history.
    pub tool_result_budget_chars: usize,
    /// The most tokens of a model's summary.
    pub summary_tokens: u64,
    /// Compactions that overflows may cause until a request is answered at the first attempt.
    pub overflow_retries: u32,
    /// The most characters of the goal in a summary without a model.
    pub goal_chars: usize,
    /// The most characters of the summary before in the next one.
    pub previous_chars: usize,
    /// The most characters of an entry of what is done, in progress or blocked.
    pub entry_chars: usize,
    /// The most characters of an answer.
    pub progress_chars: usize,
    /// The most entries of what is done.
    pub done_entries: usize,
    /// The most entries of what is in progress.
    pub in_progress_entries: usize,
    /// The most entries of what is blocked.
    pub blocked_entries: usize,
    /// The newest answers.
    pub progress_entries: usize,
    /// The most files.
    pub file_entries: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            auto_compact_buffer_tokens: 13_000,
            auto_compact_tokens: None,
            compact_target_tokens: 120_000,
            default_limit_tokens: 100_000,
            retry_growth_tokens: 5_000,
            preserve_recent_turns: 2,
            max_preserve_recent_tokens: 8_000,
            max_tool_output_chars: 2_000,
            characters_per_token: 4,
            tool_result_budget_chars: 200_000,
            summary_tokens: 1_024,
            overflow_retries: 3,
            goal_chars: 240,
            previous_chars: 1_500,
            entry_chars: 120,
            progress_chars: 200,
            done_entries: 5,
            in_progress_entries: 3,
            blocked_entries: 3,
            progress_entries: 3,
            file_entries: 15,
        }
    }
}

/// The size of a text: its characters by those of a token, rounded up.
pub fn estimate(text: &str, settings: &Settings) -> u64 {
    (utf16_len(text) as u64).div_ceil(settings.characters_per_token.max(1))
}

/// The user prompt of the summarizer that asks a model.
pub fn prompt(messages: &[Message], previous: Option<&str>) -> String {
    let lines: Vec<String> = messages.iter().map(|message| format!("{}: {}", message.role, message.content)).collect();
    let transcript = format!("Session transcript to summarize:\n\n{}", lines.join("\n\n"));
    match previous.filter(|previous| !previous.is_empty()) {
        Some(previous) => format!(
            "Previous summary (carry forward and update, don't repeat verbatim):\n\n{previous}\n\n---\n\n{transcript}"
        ),
        None => transcript,
    }
}

/// The summary that a model's answer is. `None` where it is blank.
pub fn read_reply(reply: Option<&str>) -> Option<&str> {
    reply.map(js_trim).filter(|text| !text.is_empty())
}
