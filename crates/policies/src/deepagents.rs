//! `deepagents`, `langchain-summarization` and `langchain-clear-tool-uses`: the context middleware of Deep Agents as read
//! at 0.7.32 of `deepagents`, and what it is made of in `langchain` 1.5.2 and `langchain-core` 1.8.3.
//!
//! *Deep Agents*, before each call of the model: old arguments of writing calls are cut, and where the messages reach a
//! trigger or the complete request its budget, all but the newest messages go to a history file and a summary stands for
//! them, with where the file is. What then still does not fit, or what the provider refused, loses the results at its
//! end: to the head of a file that was read, else to a file of its own. Long results go to a file as they return, and so
//! does a long prompt. *LangChain's own* summarization keeps the newest messages behind a summary and does nothing else;
//! its clearing replaces old results by a placeholder.
//!
//! As a record: what is before the cut is forgotten, an earlier summary included, and the summary stands behind the
//! system prompts, worded as the model is shown it. Cut arguments, clipped and evicted texts are rewrites; they stay once
//! made, where the original cuts arguments for each request anew. The history file and the files of results are the log:
//! in the place of a path stand the addresses of events, which recall leads back to the exact bytes. Without recall
//! nothing is evicted and no summary has a pointer, as where the original fails to write. Uploading media, and telling the
//! model where they are, is the host's.

mod adapter;
mod clearing;
pub mod peer;
mod policy;

pub use clearing::{ClearToolUses, ClearingSettings};
pub(crate) use policy::policies;
pub use policy::{DeepAgents, DeepAgentsSettings, LangChainSettings};
