//! The original's own functions. Messages are its stored ones: `role`, `content` (text or blocks), and possibly `id`,
//! `metadata`, `metrics` and `ts`. Lengths are UTF-16 code units.

mod agentic;
mod basic;
mod budget;
mod notices;
mod projection;
mod select;
mod sidecar;

pub use agentic::{Files, cut, file_section, fold, serialize, summary_text};
pub use basic::{Basic, Kept, Report, basic, keep, without_metrics};
pub use budget::{Budget, Mode, ModelInfo, Side, budget, max_input, request_tokens};
pub(super) use budget::{budget_of, n_pairs, request_of};
pub use notices::{Notice, display_text};
pub use projection::{Action, Intent, Projection, project};
pub use sidecar::{Sidecar, fingerprint};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exact::js_json_len;

/// All constants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Characters of JSON that count for a token.
    pub characters_per_token: u64,
    /// The most tokens of a request where nothing is known of the model.
    pub default_max_input_tokens: u64,
    /// The share of a context window that a request may have, where only the window is known.
    pub window_share: f64,
    /// The share of the most at which it compacts.
    pub trigger_share: f64,
    /// What is left, as a share of the trigger.
    pub target_share: f64,
    /// The same of a long conversation, as a share of the most.
    pub long_target_share: f64,
    /// Turns of a long conversation.
    pub long_turns: usize,
    /// What is left on request or after an overflow, as a share of all messages.
    pub manual_target_share: f64,
    /// The least share that it is taken for.
    pub least_manual_share: f64,
    /// The largest.
    pub most_manual_share: f64,
    /// The tokens of the newest messages that stay beside a model's summary.
    pub preserve_recent_tokens: u64,
    /// The most tokens of a summary.
    pub summary_tokens: u64,
    /// The least tokens that a summarizer is taken to read.
    pub least_summarizer_tokens: u64,
    /// The characters of a tool result, file or thought that the summarizer is shown.
    pub summarized_characters: usize,
    /// The characters of a command in a notice.
    pub command_characters: usize,
    /// The newest answers that notices repeat.
    pub notice_responses: usize,
    /// The fewest characters of a message that is truncated, and of a text that still gets a marker.
    pub least_characters: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            characters_per_token: 3,
            default_max_input_tokens: 128_000,
            window_share: 0.9,
            trigger_share: 0.9,
            target_share: 0.7,
            long_target_share: 0.5,
            long_turns: 5,
            manual_target_share: 0.5,
            least_manual_share: 0.05,
            most_manual_share: 0.95,
            preserve_recent_tokens: 20_000,
            summary_tokens: 4_096,
            least_summarizer_tokens: 1_024,
            summarized_characters: 2_000,
            command_characters: 100,
            notice_responses: 3,
            least_characters: 16,
        }
    }
}

impl Settings {
    /// The size of a message: its whole JSON.
    pub fn tokens(&self, message: &Value) -> u64 {
        self.tokens_of(js_json_len(message))
    }

    /// The size of so many characters of JSON.
    pub(super) fn tokens_of(&self, length: usize) -> u64 {
        (length as u64).div_ceil(self.characters_per_token.max(1)).max(1)
    }

    /// The size of all.
    pub fn total(&self, messages: &[Value]) -> u64 {
        messages.iter().map(|message| self.tokens(message)).sum()
    }
}

fn is_user(message: &Value) -> bool {
    message["role"] == "user"
}

fn is_assistant(message: &Value) -> bool {
    message["role"] == "assistant"
}

fn blocks(message: &Value) -> &[Value] {
    message["content"].as_array().map_or(&[], Vec::as_slice)
}

fn is_kind(block: &Value, kind: &str) -> bool {
    block["type"] == kind
}

/// Whether a message holds results and nothing else.
fn is_results(message: &Value) -> bool {
    let blocks = blocks(message);
    is_user(message) && !blocks.is_empty() && blocks.iter().all(|block| is_kind(block, "tool_result"))
}

/// Whether a message is a summary.
pub fn is_summary(message: &Value) -> bool {
    message["metadata"]["kind"] == "compaction_summary"
}

/// Whether a message is what a user wrote: the start of a turn.
pub fn is_typed(message: &Value) -> bool {
    is_user(message) && !is_results(message) && !is_summary(message)
}

/// Whether an earlier compaction marked a message as one that stays.
pub fn is_frozen(message: &Value) -> bool {
    message["metadata"]["compaction"] == "preserved"
}

fn last_typed(messages: &[Value]) -> Option<usize> {
    messages.iter().rposition(is_typed)
}
