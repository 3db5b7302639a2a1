//! `anthropic-clear-tool-uses`: the edit `clear_tool_uses_20250919` of Anthropic's API, by its documentation.
//!
//! Above a size, or a number of tool uses, all results but those of the newest uses give way to a placeholder, oldest
//! first; on demand the calls lose their arguments too. What would free less than `clear_at_least` is not done at all.
//!
//! As a record: rewrites. The original edits each request anew and stores nothing; here what was cleared stays so, and
//! what an edit frees is what it clears newly. The placeholder's words are ours.

mod adapter;
pub mod peer;
mod policy;

pub use peer::Settings as ClearToolUsesSettings;
pub use policy::ClearToolUses;
pub(crate) use policy::policies;
