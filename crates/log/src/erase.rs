//! Erasing bodies and dropping sessions: the only ways in which anything leaves a log.

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
    /// Replaces the body of an event by a tombstone, and takes the old text out of the file.
    ///
    /// The event keeps its id, kind, place, call and response, so that views keep their shape; its texts become
    /// [`ERASED`], and what is neither text nor shape goes: images, thinking, tools, foreign fields. The hash stays:
    /// [`Log::verify`] still checks the chain, and says that the event is erased. Erasing twice changes nothing.
    ///
    /// Other events that repeat the text (a summary, a later message), exports and backups are not touched. Where
    /// another connection is reading at this moment, old pages can stay in the write-ahead log until it is written
    /// over; `Ok(false)` says so, and erasing once more tries again.
    pub fn erase(&self, session: &SessionId, id: &EventId) -> Result<bool, ReadError> {
        let secure = self.secure_delete()?;
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
        tx.commit()?;
        drop(secure);
        Ok(self.truncate_wal()?)
    }

    /// Takes a whole session out of the log, and its texts out of the file. As with [`Log::erase`], `Ok(false)` says
    /// that old pages can still stand in the write-ahead log.
    pub fn drop_session(&self, session: &SessionId) -> Result<bool, SessionError> {
        let secure = self.secure_delete()?;
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
        tx.commit()?;
        drop(secure);
        Ok(self.truncate_wal()?)
    }

    /// Lets SQLite write zeros over what is deleted, until the guard goes.
    fn secure_delete(&self) -> Result<SecureDelete<'_>, StorageError> {
        self.conn.pragma_update(None, "secure_delete", true)?;
        Ok(SecureDelete(self))
    }

    /// Moves the write-ahead log into the file and empties it. Whether no reader was in the way.
    fn truncate_wal(&self) -> Result<bool, StorageError> {
        let busy: i64 = self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        Ok(busy == 0)
    }
}

struct SecureDelete<'a>(&'a Log);

impl Drop for SecureDelete<'_> {
    fn drop(&mut self) {
        // Left on, it would make appends a little slower and nothing worse.
        let _ = self.0.conn.pragma_update(None, "secure_delete", false);
    }
}

/// The event without its content: what links it to others stays.
pub(crate) fn tombstone(event: Event) -> Event {
    Event { kind: without_content(event.kind), foreign: Map::new(), extra: Map::new(), ..event }
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
    for rewrite in record.rewrites.values_mut() {
        match &mut rewrite.op {
            RewriteOp::Clear { text } | RewriteOp::Note { text } => *text = ERASED.to_owned(),
            RewriteOp::Replace { content } => *content = erased(),
            RewriteOp::Arguments { text } => *text = "{}".to_owned(),
            _ => {}
        }
    }
}
