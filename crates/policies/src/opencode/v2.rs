//! `opencode-v2`: the compaction of OpenCode's event-sourced session.
//!
//! Before each call the request is sized as text; above the context less a buffer the session is written out, one string
//! a message. The newest 8,000 tokens of that text are *recent*, cut inside a message if need be; what is before them is
//! summarized, together with what was recent at the checkpoint before. One message of the user, the checkpoint, then
//! holds the summary and the recent text, and stands for all. After a refusal by the provider, and on request, it also
//! compacts where nothing lies before the recent text; after a refusal it does so once.
//!
//! As a record: everything but system prompts and messages is forgotten, and the checkpoint stands behind the prompts.
//! What was recent is text inside it: nothing of it keeps its structure.

mod adapter;
pub mod peer;
mod policy;

pub use peer::Settings as OpencodeV2Settings;
pub use policy::OpencodeV2;
pub(crate) use policy::info;
