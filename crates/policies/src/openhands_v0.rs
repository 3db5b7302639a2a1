//! `openhands-v0-*`: the condensers of the older OpenHands application, as of November 2025.
//!
//! Two families. *Plain* ones map the view to another at each step and store nothing: `recent`, `masking`, `browser`.
//! *Rolling* ones store a condensation: `amortized`, `summarizing`, `attention` and `structured` on a request or above
//! `max_size` events, `window` on a request only. A pipeline runs its members in order, each on the view that the one
//! before left, up to the first condensation; `server` is the one that the web server builds.
//!
//! As a record: what a plain condenser leaves out is forgotten, what it masks is cleared; a range of ids is the events
//! of the view within it. The peer shows the newest summary only, so older ones are forgotten with the next. It asks
//! for a condensation when the provider refuses a request as too long; here, when the request is over its limit
//! (`request_on_overflow`). Its rolling condensers cut between a call and its answer without looking; the condenser
//! extends such cuts. `attention` decides from a model's answer what leaves, for which a plan has no place: the policy
//! is given a [`Ranker`], by default one that needs no model.

mod adapter;
pub mod peer;
mod policy;

pub(crate) use policy::policies;
pub use policy::{NewestFirst, OpenHandsV0, Ranker};
