//! `cline-basic` and `cline-agentic`: the compaction of Cline's SDK, as read at commit 21cb8d25.
//!
//! Sizes are a third of the characters of a message's JSON. From nine tenths of the most that the model reads, *basic*
//! compaction keeps all prompts, as much of the end of the last turn as fits, and of earlier turns the last answer if it
//! is without calls and fits. What still exceeds the budget loses images and thinking, then text, then whole exchanges.
//! Notices behind prompts name files, commands and the newest answers of what left. *Agentic* compaction keeps the newest
//! 20,000 tokens behind a model's summary, with lists of files; where the model fails, basic runs instead, and likewise
//! where the provider refused the request.
//!
//! As a record: what leaves is forgotten, cut texts are rewrites, and a notice is a note on the prompt before the gap;
//! so prompts stay events of their own, where the original joins them into one message. A summary stands behind the
//! system prompts. What survived a record without a summary is marked as staying for ever, as there. The original keeps
//! its result beside the session, with a fingerprint of the messages it stands for; here that is the log itself, and
//! `peer` has both.

mod adapter;
pub mod peer;
mod policy;

pub use peer::Settings as ClineSettings;
pub use policy::Cline;
pub(crate) use policy::policies;
