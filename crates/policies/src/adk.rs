//! `adk`: the event compaction of Google's ADK, as read in `apps/compaction.py` of its Python package.
//!
//! *Sliding window*, once an invocation has ended: where `compaction_interval` invocations have come since the end of
//! the last compaction, they are summarized together with `overlap_size` before them. *Token threshold*: once the prompt
//! has so many tokens, all but the newest `event_retention_size` events are, together with the summary before. The
//! original compacts nothing unless it is configured; the interval and overlap here are those of its documentation's
//! example.
//!
//! As a record: the events of the range that are in the view are forgotten, and the summary stands where they ended.
//! Overlapping events are read from the log again. Earlier summaries stay, as in the original, until the token
//! threshold takes them up. An invocation is what follows a message of the user.

mod adapter;
pub mod peer;
mod policy;

pub use peer::Settings as AdkSettings;
pub use policy::Adk;
pub(crate) use policy::policies;
