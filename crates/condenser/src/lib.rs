//! An event-sourced context condenser for LLM agents.

pub mod condensation;
pub mod event;
pub mod profile;
pub mod recall;
pub mod tokens;

pub use condensation::{Condensation, Provenance, Rewrite, RewriteOp};
pub use event::{ContentBlock, Event, EventId, EventKind};
pub use tokens::{TokenCounter, Tokens};
