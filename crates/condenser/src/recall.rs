//! The way back to what left the view, and the removal of secrets.

use std::borrow::Cow;
use std::ops::Range;

use crate::event::EventId;

/// Fetches what is stored, forgotten events included.
pub trait Recall {
    /// The text of an event as stored, or the bytes of it in `range` (clamped to its length).
    ///
    /// `None`: no such event. The bytes are the event's shown text blocks joined by newlines.
    fn bytes(&self, id: &EventId, range: Option<Range<u64>>) -> Option<Vec<u8>>;
}

/// The address of a stored event, as native policies write it into a view: `[event <id>]`.
pub fn address(id: &EventId) -> String {
    format!("[event {id}]")
}

/// Replaces secrets by placeholders.
pub trait Redact: Send + Sync {
    /// The text without its secrets, and how many were found.
    fn redact<'a>(&self, text: &'a str) -> (Cow<'a, str>, usize);
}
