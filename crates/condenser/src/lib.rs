//! An event-sourced context condenser for LLM agents.

pub mod condensation;
pub mod condenser;
mod cuts;
pub mod event;
pub mod header;
pub mod lower;
pub mod policy;
pub mod profile;
pub mod recall;
pub mod render;
pub mod request;
#[cfg(feature = "schema")]
pub mod schema;
pub mod tokens;
pub mod tree;
pub mod view;

pub use condensation::{Condensation, Provenance, Rewrite, RewriteOp};
pub use condenser::{Condenser, Outcome, OutcomeKind, Step};
pub use event::{ContentBlock, Event, EventId, EventKind};
pub use header::{Class, EventHeader, Header, Names};
pub use policy::{Budget, Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State};
pub use policy::{SummarizeError, Summarizer, Summary, SummaryRequest};
pub use request::{Bodies, Request, Shown, Sizer};
pub use tokens::{TokenCounter, Tokens};
pub use view::{Diagnostics, Entry, Property, Pushed, Rules, View, ViewDiff};
