//! Readers of public agent trace formats.
//!
//! A reader turns foreign records into [`Event`]s and keeps everything: what has no place in an event
//! stays in its `foreign` fields, and what the model never saw becomes an `unknown` event. A damaged
//! record is reported as a [`Diagnostic`] with its place and never silently skipped.

use std::fmt;

use condenser::event::Event;

pub mod json;

/// One session's active branch, as events.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The path as given, plus `#<row>` (from 0) where a file holds several traces.
    pub name: String,
    /// The format's stable name, as `condenser formats` lists it.
    pub format: &'static str,
    /// The task the trace belongs to, where the source names one (an instance or task id).
    pub task: Option<String>,
    /// The events, in the order of the active branch. Ids are unique.
    pub events: Vec<Event>,
    /// Foreign records of the whole file.
    pub records: u64,
    /// What was odd. File-level diagnostics stand on the first trace of a file.
    pub diagnostics: Vec<Diagnostic>,
}

/// Something odd in a file, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line, row or record, in the source's own counting: `line 12`, `row 3`, `messages[4]`.
    pub place: String,
    /// What was found and what was done. At most a short excerpt of the content.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}
