//! `opencode-v1`: the compaction service of OpenCode's main app.
//!
//! *Pruning*, where a run has ended: behind the newest two turns of the user and the newest 40,000 tokens of tool
//! results, older results are marked, if that gains more than 20,000, and show as a placeholder. A mark, like a summary,
//! ends the walk. *Compaction*, before an answer, once the size of the last one reaches the window less the room for
//! answers: the newest two turns stay, whole or from some message on, as far as they fit, and a summary takes the place of
//! the others. *Overflow*: where the provider refuses a request, what the user said last is put again behind the
//! summary, and what came after it is not summarized.
//!
//! As a record: marks are rewrites, and last. All but the tail is forgotten, older summaries included; the summary
//! stands behind the system prompts, below the question that it answers. After an overflow the message of the user stays
//! where it is, with labels for its files. What tells the model to go on is the host's to add.

mod adapter;
pub mod peer;
mod policy;

pub use peer::Settings as OpencodeV1Settings;
pub use policy::OpencodeV1;
pub(crate) use policy::info;
