//! `powercode`: the hand-built session and compactor of powercode, as read in its published source.
//!
//! Once the size exceeds the window less a reserve, the history is cut at a message of the user so that at least about
//! `keep_recent_tokens` stay, and a summary takes the place of what is before. Long tool results lose their middle at the
//! same time. Where no such message exists, or the summarizer gives none, that is all that happens.
//!
//! As a record: what is before the cut and the summary before are forgotten, the new summary stands behind the system
//! prompts under its label, and long results are rewritten. In the original results come back whole once the size is
//! small again; here they stay cut, because no record may make a request larger.

mod adapter;
pub mod peer;
mod policy;

pub use peer::Settings as PowercodeSettings;
pub use policy::Powercode;
pub(crate) use policy::policies;
