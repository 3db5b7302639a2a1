//! `freecode`: FreeCode's pruning, compaction and overflow retry, as read at commit 3d0b6ef.
//!
//! *Pruning*, at each request: while all tool results hold more than a budget of characters, the largest give way to
//! markers, but for those of the last answer and those that were sent whole before in the same run. Since every result
//! is first sent as one of the last answer, that happens where a run begins. *Compaction*, between runs, once the
//! size reaches the smaller of the model's limit and a target of cost, less a buffer: the newest turns of the user stay
//! and a summary takes the place of the others, by a model or, where that fails, by fixed rules. A vetoed one waits for
//! growth. *Overflow*: a request that is too large is compacted too, whenever it comes.
//!
//! As a record: markers are rewrites. All but the newest turns and every earlier summary is forgotten, and the summary
//! stands behind the system prompts, where the original puts it into its system prompt. Decisions about results hold
//! beyond their run, because no record may make a request larger. The summarizer's own transcript is taken from the
//! view, so that what its cap on recent messages left out is read again at the next compaction.
//! `freecode-heuristic` is the preset that asks no model.

mod adapter;
pub mod peer;
mod policy;

pub(crate) use policy::policies;
pub use policy::{Freecode, FreecodeSettings};
