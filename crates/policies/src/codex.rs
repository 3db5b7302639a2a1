//! `codex`: the local compaction of the Codex CLI, as read in `compact.rs` at commits `0100b103` and `e06dd0e5`.
//!
//! Once the size reaches nine tenths of the window, or a configured limit, the whole history is summarized. What stays is
//! what the user said, newest first up to 20,000 tokens, the last of it without its middle, and behind it the summary as
//! a message of the user. Everything the agent said, called and got is gone, and so is the summary before, which only
//! the new one carries on. Where the history is too long for the summarizer, its oldest items are left out.
//!
//! As a record: what leaves is forgotten, a message that lost its middle or its images is rewritten, the summary stands
//! last. System prompts and injected context (instructions, environment) stay where they are, where the original injects
//! the latter anew. Its remote compaction gives an encrypted item, for which a log has no use.

mod adapter;
pub mod peer;
mod policy;

pub use peer::Settings as CodexSettings;
pub use policy::Codex;
pub(crate) use policy::policies;
