//! `pi` and `pi-v1`: the session log and compaction of the Pi coding agent, as read at 0.73.1 of
//! `@mariozechner/pi-coding-agent` and at 1.6.0 of `@earendil-works/pi-coding-agent`.
//!
//! Once the context exceeds the window less a reserve, the newest messages of about `keep_recent_tokens` stay. What is
//! before them is summarized together with the summary before; where the cut splits a turn, its beginning is
//! summarized apart. Lists of files read and changed stand behind the summary. 0.73 looks where a user speaks, and
//! where the provider refuses the request as too long; 1.6 before each answer.
//!
//! As a record: everything before the cut and every earlier summary is forgotten, and the summary stands behind the
//! system prompts, worded as the model is shown it. Sizes of the whole are the state's, in the place of the usage that
//! a provider reports; the cut goes by the peer's own estimate.

mod adapter;
pub mod peer;
mod policy;

pub(crate) use policy::policies;
pub use policy::{PiPolicy, PiSettings};
