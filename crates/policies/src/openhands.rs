//! `openhands`: the summarizing condenser of the OpenHands SDK, as read at version 1.58.2.
//!
//! It triggers on a request, on more than `max_size` events, or on more tokens than a limit; it summarizes a range in
//! the middle that begins after `keep_first` events and ends where half the size remains, cut at manipulation
//! indices. Where no such range exists and it must act, it summarizes everything after the system prompt, with
//! shorter texts after each failed call.
//!
//! As a record: the range is forgotten and the summary stands at its start. `openhands-agent` is the preset of the
//! stock agent. Made for views under the rules `openhands`; under `sound` the condenser extends its cuts.

mod adapter;
pub mod peer;
mod policy;

pub(crate) use policy::policies;
pub use policy::{MessageCounter, OpenHands, OpenHandsSettings};
