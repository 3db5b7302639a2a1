//! An event-sourced context condenser for LLM agents: events, condensation records, views and requests.
//!
//! An agent's history is an append-only list of [`Event`]s. What the model is shown next is a [`View`]: the events
//! replayed, with their [`Condensation`] records applied. A [`Request`] is the view in the shape of a model's API. A
//! [`Policy`] decides what to forget, rewrite and summarize; the [`Condenser`] carries that out, checks it and hands
//! back the record, which the host appends like any other event.
//!
//! This crate is pure: no files, no clock, no network, no randomness, no async runtime. It stores nothing (see
//! `condenser-log`), reads no foreign format (`condenser-traces`) and holds no policy (`condenser-policies`).
//!
//! ```
//! use condenser::event::{Event, EventKind, Message, Role, Source};
//! use condenser::{Condensation, Request, Rules, View};
//!
//! let mut events = vec![
//!     Event::new("1", Source::User, EventKind::Message(Message::text(Role::User, "Fix the build."))),
//!     Event::new("2", Source::Agent, EventKind::Message(Message::text(Role::Assistant, "It was a typo."))),
//! ];
//! let mut view = View::replay(&events, Rules::Sound);
//!
//! let record = Condensation {
//!     forgotten_event_ids: ["2".into()].into(),
//!     summary: Some("A typo broke the build; it is fixed.".into()),
//!     summary_offset: Some(1),
//!     ..Condensation::default()
//! };
//! events.push(Event::new("3", Source::Environment, EventKind::Condensation(record)));
//! view.push(&events[2]);
//!
//! assert_eq!(view.ids().map(|id| id.as_str()).collect::<Vec<_>>(), ["1", "3-summary"]);
//! let request = Request::build(&view, &events).to_openai_chat();
//! assert_eq!(request["messages"][0]["role"], "user");
//! ```

pub mod attempts;
pub mod background;
pub mod budget;
pub mod condensation;
pub mod condenser;
mod cuts;
pub mod event;
mod foreign;
mod guard;
pub mod header;
pub mod lower;
pub mod policy;
pub mod profile;
pub mod recall;
pub mod render;
pub mod request;
#[cfg(feature = "schema")]
pub mod schema;
pub mod shadow;
pub mod tokens;
pub mod tree;
mod unread;
pub mod view;

pub use attempts::{Attempts, Rejection};
pub use background::{Stale, check_fresh};
pub use budget::{Bound, Budget, BudgetSettings, Budgets};
pub use condensation::{Condensation, Provenance, Rewrite, RewriteOp};
pub use condenser::{Condenser, Hooks, Outcome, OutcomeKind, Step};
pub use event::{ContentBlock, Event, EventId, EventKind};
pub use header::{Class, EventHeader, Header, Names};
pub use policy::{Edit, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State};
pub use policy::{SummarizeError, Summarizer, Summary, SummaryRequest};
pub use request::{Bodies, Request, Shown, Sizer};
pub use tokens::{TokenCounter, Tokens};
pub use unread::Unread;
pub use view::{Diagnostics, Entry, Property, Pushed, Rules, View, ViewDiff};

/// The Rust in these documents compiles and runs.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/EXTENDING.md")]
    struct Extending;
}
