//! Recall: the text of stored events, forgotten ones included.

use std::ops::Range;

use condenser::EventId;
use condenser::recall::Recall;
use condenser::request::text_of;

use crate::error::ReadError;
use crate::log::{Log, SessionId};

impl Log {
    /// The text of an event as [`text_of`] gives it, or its bytes in `range`, clamped to its length; `None` where
    /// the session has no such event. A range may cut a character in two.
    pub fn text(
        &self,
        session: &SessionId,
        id: &EventId,
        range: Option<Range<u64>>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let Some(event) = self.event(session, id)? else { return Ok(None) };
        let mut text = text_of(&event.kind).into_bytes();
        if let Some(range) = range {
            let length = text.len();
            let clamp = |at: u64| usize::try_from(at).map_or(length, |at| at.min(length));
            text.truncate(clamp(range.end));
            text.drain(..clamp(range.start).min(text.len()));
        }
        Ok(Some(text))
    }

    /// A session as a [`Recall`].
    pub fn recall(&self, session: &SessionId) -> SessionRecall<'_> {
        SessionRecall { log: self, session: session.clone() }
    }
}

/// A session as a [`Recall`]. What cannot be read counts as absent; [`Log::text`] tells why.
#[derive(Debug)]
pub struct SessionRecall<'a> {
    log: &'a Log,
    session: SessionId,
}

impl Recall for SessionRecall<'_> {
    fn bytes(&self, id: &EventId, range: Option<Range<u64>>) -> Option<Vec<u8>> {
        self.log.text(&self.session, id, range).ok().flatten()
    }
}
