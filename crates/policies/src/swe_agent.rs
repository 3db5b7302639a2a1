//! `swe-agent-*`: history processors of SWE-agent, commit `3ea751c0`.
//!
//! A processor maps the full history to the messages of one request, at each step anew; nothing is stored.
//!
//! - `last-n`: old outputs give way to a line with their size. The first one, which is the task, always stays and is
//!   counted; entries with a tag are always or never elided; the edge moves every `polling` outputs.
//! - `closed-window`: of several windows on one file the newest stays, in the others the numbered lines give way to a
//!   line; numbered lines without a file above them leave altogether. Only outputs that were stored as user messages,
//!   as without function calling, are looked at.
//! - `remove-regex`: what matches is deleted from all texts but the newest.
//!
//! As a record: an output elided is cleared, a text changed is replaced, an entry left out is forgotten. What was
//! changed once stays so, also where the original would show it again.

mod adapter;
pub mod peer;
mod policy;

pub(crate) use policy::policies;
pub use policy::{Processor, SweAgent};
