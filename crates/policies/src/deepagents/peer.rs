//! The original's own functions, with what it stores in and whom it calls behind [`Backend`] and [`Handler`].
//!
//! Messages are chat-completions objects with an `id`; a summary is one of the user that [`is_summary`] knows by its
//! tag. Characters are Unicode code points.

mod arguments;
mod backend;
mod call;
mod clearing;
mod count;
mod cutoff;
mod event;
mod history;
mod message;
mod request;
mod tail;
mod trigger;
mod trim;

pub use arguments::Arguments;
pub use backend::{Backend, Stored, Thrown};
pub use call::{CallError, Done, Exhausted, Handler, Middleware, State, Summarized, is_overflow};
pub use clearing::{Cleared, Clearing, clear, mark_cleared};
pub use count::{Approximate, Counter};
pub use cutoff::{cutoff, safe_point};
pub use event::{SUMMARY_SOURCE, effective, is_bound_reasoning, summary_frame, summary_message, translate};
pub use history::{HISTORY_FOLDER, offload};
pub use message::{call_id, content_text, is_summary};
pub use request::{output_tokens, request_budget};
pub use tail::{
    Clip, Evicted, Eviction, Preview, RESULTS_FOLDER, clip, evict, evict_result, file_name, head_clip, preview,
    shown_id, stub, tail_start, threshold,
};
pub use trigger::{Clause, halved, is_met, reported};
pub use trim::trim;

use serde::{Deserialize, Serialize};

/// How much: so many messages or tokens, or a share of the model's input limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// Messages.
    Messages(u64),
    /// Tokens.
    Tokens(u64),
    /// A share of the limit, above 0 and at most 1.
    Fraction(f64),
}

/// The summary where the summarizer is shown nothing.
pub const NOTHING_TO_SUMMARIZE: &str = "Nothing of the earlier conversation fits into a summary.";

/// What stands for a share of a limit that is not known.
pub const UNKNOWN_LIMIT: Size = Size::Messages(20);

impl Size {
    /// Tokens, at least one. `None` for messages, and for a share of an unknown limit.
    pub fn tokens(self, limit: Option<u64>) -> Option<u64> {
        match self {
            Self::Messages(_) => None,
            Self::Tokens(tokens) => Some(tokens.max(1)),
            Self::Fraction(share) => limit.map(|limit| share_of(limit, share)),
        }
    }

    /// What is wrong with it, if anything.
    ///
    /// # Errors
    /// Zero, or a share above 1.
    pub fn check(self) -> Result<(), &'static str> {
        match self {
            Self::Messages(0) | Self::Tokens(0) => Err("must be above 0"),
            Self::Fraction(share) if !(share > 0.0 && share <= 1.0) => Err("must be above 0, and at most 1"),
            _ => Ok(()),
        }
    }
}

/// A share of a limit, rounded down, at least one.
fn share_of(limit: u64, share: f64) -> u64 {
    ((limit as f64 * share).floor() as u64).max(1)
}
