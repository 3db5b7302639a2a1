//! Erasing bodies and dropping sessions: the only ways in which anything leaves a log.

use condenser::Unread;
use condenser::condensation::{Condensation, RewriteOp};
use condenser::event::{ContentBlock, Event, EventId, EventKind};
use rusqlite::OptionalExtension;
use rusqlite::types::ValueRef;
use serde_json::{Map, Value};

use crate::chain;
use crate::counts;
use crate::error::{ReadError, SessionError, StorageError};
use crate::log::{Log, SessionId, State, find, row_number};
use crate::read::{NO_BODY, damaged, parse};
use crate::search;

/// What stands in place of an erased text.
pub const ERASED: &str = "[erased]";

impl Log {
    /// Replaces the body of an event by a tombstone.
    ///
    /// The event keeps its id, kind, place, call and response, so that views keep their shape; its texts become
    /// [`ERASED`], and what is neither text nor shape goes: images, thinking, tools, foreign fields. The hash stays:
    /// [`Log::verify`] still checks the chain, and says that the event is erased. Erasing twice changes nothing.
    ///
    /// No call gives the old text any more, but unused parts of the file can still hold it until
    /// [`compact`](Self::compact). Other events that repeat the text, exports and backups are not touched.
    pub fn erase(&self, session: &SessionId, id: &EventId) -> Result<(), ReadError> {
        let tx = self.write()?;
        let state = State::load(&tx, session)?.ok_or_else(|| ReadError::NoSession(session.clone()))?;
        let position = find(&tx, state.number, id)?
            .ok_or_else(|| ReadError::NoEvent { session: session.clone(), id: id.clone() })?;
        let row = row_number(state.number, position);
        let damaged = |detail| damaged(session, position, detail);
        let found = tx
            .query_row("SELECT json, erased IS NOT NULL FROM body WHERE row = ?1", [row], |row| {
                let json = row.get_ref(0)?;
                let digest = if let ValueRef::Text(json) = json { Some(chain::digest(json)) } else { None };
                Ok((parse(json), digest, row.get::<_, bool>(1)?))
            })
            .optional()?;
        let Some((event, digest, is_erased)) = found else { return Err(damaged(NO_BODY.to_owned())) };
        let (event, _) = event.map_err(damaged)?;
        if let Some(digest) = digest
            && !is_erased
        {
            let json = serde_json::to_string(&tombstone(event)).map_err(|error| damaged(error.to_string()))?;
            tx.execute("UPDATE body SET json = ?2, erased = ?3 WHERE row = ?1", (row, json, digest))?;
            counts::forget(&tx, state.number, position)?;
            search::remove(&tx, row, row)?;
        }
        Ok(tx.commit()?)
    }

    /// Takes a whole session out of the log. Its texts leave the file with the next [`compact`](Self::compact).
    pub fn drop_session(&self, session: &SessionId) -> Result<(), SessionError> {
        let tx = self.write()?;
        let state = State::load(&tx, session)?.ok_or_else(|| SessionError::NoSession(session.clone()))?;
        let rows = (row_number(state.number, 0), row_number(state.number + 1, 0) - 1);
        search::remove(&tx, rows.0, rows.1)?;
        for table in ["event", "body", "segment"] {
            tx.execute(&format!("DELETE FROM {table} WHERE row BETWEEN ?1 AND ?2"), rows)?;
        }
        counts::drop_session(&tx, state.number)?;
        tx.execute("DELETE FROM branch WHERE session = ?1", [state.number])?;
        tx.execute("DELETE FROM session WHERE session = ?1", [state.number])?;
        Ok(tx.commit()?)
    }

    /// Writes the file anew, without the room that is free in it and without what erased and dropped bodies left
    /// there, and empties the write-ahead log. Takes time and free disk space like the whole log, and lets writers
    /// wait; readers go on.
    ///
    /// `Ok(false)`: another connection was reading, and old pages can stand in the write-ahead log until it is
    /// written over; call again.
    pub fn compact(&self) -> Result<bool, StorageError> {
        self.conn.execute_batch("VACUUM")?;
        let busy: i64 = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        Ok(busy == 0)
    }
}

/// The event without its content: what links it to others stays.
pub(crate) fn tombstone(event: Event) -> Event {
    Event {
        kind: without_content(event.kind),
        foreign: Map::new().into(),
        extra: Map::new(),
        unread: Unread::default(),
        ..event
    }
}

fn erased() -> Vec<ContentBlock> {
    vec![ContentBlock::text(ERASED)]
}

fn without_content(mut kind: EventKind) -> EventKind {
    match &mut kind {
        EventKind::SystemPrompt(prompt) => {
            prompt.content = erased();
            prompt.dynamic_context.clear();
            prompt.tools.clear();
        }
        EventKind::Message(message) => {
            message.content = erased();
            message.extended_content.clear();
            message.name = None;
            message.reasoning = None;
            for call in message.tool_calls.iter_mut().flatten() {
                call.arguments = "{}".to_owned();
            }
        }
        EventKind::Action(action) => {
            action.arguments = "{}".to_owned();
            action.thought.clear();
            action.reasoning = None;
            action.thinking.clear();
        }
        EventKind::Observation(observation) => {
            observation.content = erased();
            observation.extended_content.clear();
        }
        EventKind::Condensation(record) => erase_record(record),
        EventKind::CondensationRequest(request) => request.guidance = None,
        EventKind::CondensationFailed(failed) => failed.reason = ERASED.to_owned(),
        EventKind::Unknown(unknown) => unknown.payload = Value::Null,
        _ => {}
    }
    kind
}

fn erase_record(record: &mut Condensation) {
    if let Some(summary) = &mut record.summary {
        *summary = ERASED.to_owned();
    }
    record.extra = Map::new();
    record.unread = Unread::default();
    for rewrite in record.rewrites.values_mut() {
        match &mut rewrite.op {
            RewriteOp::Clear { text } | RewriteOp::Note { text } => *text = ERASED.to_owned(),
            RewriteOp::Replace { content } => *content = erased(),
            RewriteOp::Arguments { text } => *text = "{}".to_owned(),
            _ => {}
        }
    }
}
