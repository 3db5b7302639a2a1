//! `complexity-trap-masking`, `-summary` and `-hybrid`: the three arms of the study of SWE-agent on SWE-bench Verified
//! (arXiv 2508.21433).
//!
//! A turn is an answer of the agent with the results of its calls. *Masking*: results older than the newest 10 turns give
//! way to a line, reasoning and calls stay. *Summary*: once 21 turns lie before the newest 10, they are folded into a
//! summary, together with the summary before. *Hybrid*: masking first, and a summary late; its text gives no number, so
//! twice as many turns are folded here.
//!
//! As a record: masks are rewrites, folded turns are forgotten with what was said between them, and the summary stands in
//! their place. Prompts and the task, which come before the first turn, stay.

pub mod peer;
mod policy;

pub use peer::Settings as ComplexityTrapSettings;
pub use policy::ComplexityTrap;
pub(crate) use policy::policies;
