//! Appending: a batch is one transaction, and becomes the newest part of its branch.

use std::ops::Range;

use condenser::{Event, EventId};
use rusqlite::ffi::{SQLITE_CONSTRAINT_UNIQUE, SQLITE_TOOBIG};
use rusqlite::{Connection, Error as SqliteError, OptionalExtension};

use crate::chain::{self, Hash};
use crate::error::{AppendError, StorageError};
use crate::header::Columns;
use crate::log::{Log, MAX_EVENTS, SessionId, State, find, row_number};

/// The most bytes of one event's JSON.
pub const MAX_EVENT_BYTES: usize = 256 << 20;

/// The most levels of arrays and objects in one event's JSON.
pub const MAX_EVENT_DEPTH: usize = 127;

/// What an append did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The positions of the new events in the session, from 0.
    pub positions: Range<u64>,
    /// The head afterwards.
    pub head: Option<EventId>,
}

impl Log {
    /// Appends a batch to a session, in one transaction; returns once it is as durable as
    /// [`Options::sync`](crate::Options::sync) says.
    ///
    /// An event without a parent follows the event before it in the batch, the first one the head. An event
    /// with a parent follows that one, and starts a branch where another event already does. The last event
    /// becomes the head. Other processes' batches come before or after, never between.
    pub fn append(&self, session: &SessionId, events: &[Event]) -> Result<Appended, AppendError> {
        self.append_batch(session, None, events)
    }

    /// Appends a batch as [`append`](Self::append) does, unless the head is another than `expected`.
    pub fn append_if_head(
        &self,
        session: &SessionId,
        expected: Option<&EventId>,
        events: &[Event],
    ) -> Result<Appended, AppendError> {
        self.append_batch(session, Some(expected), events)
    }

    fn append_batch(
        &self,
        session: &SessionId,
        expected: Option<Option<&EventId>>,
        events: &[Event],
    ) -> Result<Appended, AppendError> {
        // Everything that needs no lock comes before the lock.
        let bodies = events.iter().map(Body::of).collect::<Result<Vec<_>, _>>()?;
        let tx = self.write()?;
        let state = State::load(&tx, session)?.ok_or_else(|| AppendError::NoSession(session.clone()))?;
        let head = match state.head {
            Some(head) => Some(Place::load(&tx, state.number, head)?),
            None => None,
        };
        let found = head.as_ref().map(|head| id_at(&tx, state.number, head.position)).transpose()?;
        if let Some(expected) = expected
            && expected != found.as_ref()
        {
            return Err(AppendError::HeadMoved { session: session.clone(), expected: expected.cloned(), found });
        }
        let first = state.events;
        let mut writer = Writer { conn: &tx, session, state, place: head, moved: false };
        for (event, body) in events.iter().zip(&bodies) {
            writer.event(event, body)?;
        }
        let last = writer.finish()?;
        tx.commit()?;
        Ok(Appended {
            positions: first as u64..last as u64,
            head: events.last().map(|event| event.id.clone()).or(found),
        })
    }
}

struct Body {
    json: String,
    digest: Hash,
}

impl Body {
    fn of(event: &Event) -> Result<Self, AppendError> {
        let json =
            serde_json::to_string(event).map_err(|source| AppendError::Unwritable { id: event.id.clone(), source })?;
        if json.len() > MAX_EVENT_BYTES {
            return Err(AppendError::TooLarge { id: event.id.clone(), bytes: json.len(), limit: MAX_EVENT_BYTES });
        }
        let depth = depth(json.as_bytes());
        if depth > MAX_EVENT_DEPTH {
            return Err(AppendError::TooDeep { id: event.id.clone(), depth, limit: MAX_EVENT_DEPTH });
        }
        Ok(Self { digest: chain::digest(json.as_bytes()), json })
    }
}

/// The levels of arrays and objects in valid JSON.
pub(crate) fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// An event that the next one may follow.
#[derive(Debug)]
struct Place {
    position: i64,
    branch: i64,
    hash: Hash,
    is_tip: bool,
}

impl Place {
    fn load(conn: &Connection, session: i64, position: i64) -> Result<Self, StorageError> {
        conn.prepare_cached(
            "SELECT e.branch, b.hash, c.tip FROM event e JOIN body b ON b.row = e.row \
             JOIN branch c ON c.session = ?2 AND c.branch = e.branch WHERE e.row = ?1",
        )?
        .query_row((row_number(session, position), session), |row| {
            let tip: i64 = row.get(2)?;
            Ok(Self { position, branch: row.get(0)?, hash: row.get(1)?, is_tip: tip == position })
        })
        .optional()?
        .ok_or_else(|| StorageError::corrupt(format!("event {position} of session number {session} is missing")))
    }
}

struct Writer<'a> {
    conn: &'a Connection,
    session: &'a SessionId,
    state: State,
    /// What the next event without a parent follows.
    place: Option<Place>,
    /// Whether the branch of `place` has a newer tip than its row says.
    moved: bool,
}

impl Writer<'_> {
    fn event(&mut self, event: &Event, body: &Body) -> Result<(), AppendError> {
        if let Some(parent) = &event.parent {
            let position = find(self.conn, self.state.number, parent)?.ok_or_else(|| AppendError::UnknownParent {
                session: self.session.clone(),
                id: event.id.clone(),
                parent: parent.clone(),
            })?;
            if self.place.as_ref().is_none_or(|place| place.position != position) {
                self.store_tip()?;
                self.place = Some(Place::load(self.conn, self.state.number, position)?);
            }
        }
        let position = self.state.events;
        if position >= MAX_EVENTS {
            return Err(AppendError::SessionFull(self.session.clone()));
        }
        let branch = match &self.place {
            Some(place) if place.is_tip => place.branch,
            _ => self.new_branch(position)?,
        };
        let parent = self.place.as_ref().map(|place| place.position);
        let hash = match &self.place {
            Some(place) => chain::link(&place.hash, &body.digest),
            None => chain::link(&chain::root(self.session.as_str()), &body.digest),
        };
        let row = row_number(self.state.number, position);
        let columns = Columns::of(event);
        let id = self.new_name(event.id.as_str())?;
        let call = columns.call.map(|call| self.name(call)).transpose()?;
        let response = columns.response.map(|response| self.name(response)).transpose()?;
        self.conn
            .prepare_cached("INSERT INTO event VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?
            .execute((row, self.state.number, branch, parent, id, columns.kind, columns.flags, call, response))
            .map_err(|error| match error {
                SqliteError::SqliteFailure(code, _) if code.extended_code == SQLITE_CONSTRAINT_UNIQUE => {
                    AppendError::Duplicate { session: self.session.clone(), id: event.id.clone() }
                }
                error => error.into(),
            })?;
        self.conn.prepare_cached("INSERT INTO body VALUES (?1, ?2, ?3)")?.execute((row, hash, &body.json)).map_err(
            |error| match error {
                SqliteError::SqliteFailure(code, _) if code.extended_code == SQLITE_TOOBIG => {
                    AppendError::TooLarge { id: event.id.clone(), bytes: body.json.len(), limit: MAX_EVENT_BYTES }
                }
                error => error.into(),
            },
        )?;
        self.place = Some(Place { position, branch, hash, is_tip: true });
        self.moved = true;
        self.state.events += 1;
        Ok(())
    }

    fn new_branch(&mut self, first: i64) -> Result<i64, StorageError> {
        self.store_tip()?;
        let branch = self.state.branches;
        let fork = self.place.as_ref().map(|place| place.position);
        self.conn.prepare_cached("INSERT INTO branch VALUES (?1, ?2, ?3, ?4, ?4)")?.execute((
            self.state.number,
            branch,
            fork,
            first,
        ))?;
        self.state.branches += 1;
        Ok(branch)
    }

    fn store_tip(&mut self) -> Result<(), StorageError> {
        if let Some(place) = &self.place
            && self.moved
        {
            self.conn.prepare_cached("UPDATE branch SET tip = ?3 WHERE session = ?1 AND branch = ?2")?.execute((
                self.state.number,
                place.branch,
                place.position,
            ))?;
        }
        self.moved = false;
        Ok(())
    }

    /// The number of a text that is usually there already.
    fn name(&self, text: &str) -> Result<i64, StorageError> {
        let known = self
            .conn
            .prepare_cached("SELECT name FROM name WHERE text = ?1")?
            .query_row([text], |row| row.get(0))
            .optional()?;
        match known {
            Some(name) => Ok(name),
            None => {
                self.conn.prepare_cached("INSERT INTO name (text) VALUES (?1)")?.execute([text])?;
                Ok(self.conn.last_insert_rowid())
            }
        }
    }

    /// The number of a text that is usually new.
    fn new_name(&self, text: &str) -> Result<i64, StorageError> {
        let inserted =
            self.conn.prepare_cached("INSERT INTO name (text) VALUES (?1) ON CONFLICT DO NOTHING")?.execute([text])?;
        match inserted {
            0 => self.name(text),
            _ => Ok(self.conn.last_insert_rowid()),
        }
    }

    fn finish(mut self) -> Result<i64, StorageError> {
        self.store_tip()?;
        self.conn
            .prepare_cached("UPDATE session SET events = ?2, branches = ?3, head = ?4 WHERE session = ?1")?
            .execute((
                self.state.number,
                self.state.events,
                self.state.branches,
                self.place.as_ref().map(|place| place.position),
            ))?;
        Ok(self.state.events)
    }
}

/// The id of the event at a position.
fn id_at(conn: &Connection, session: i64, position: i64) -> Result<EventId, StorageError> {
    let id: String = conn
        .prepare_cached("SELECT n.text FROM event e JOIN name n ON n.name = e.id WHERE e.row = ?1")?
        .query_row([row_number(session, position)], |row| row.get(0))?;
    Ok(EventId::from(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewSession, Options, RuleSet, StorageError};
    use condenser::event::{EventKind, Message, Role, Source};

    #[test]
    fn a_full_disk_is_its_own_error_loses_nothing_and_the_log_goes_on_once_there_is_space() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path().join("log.db"), Options::default()).unwrap();
        let rules = RuleSet { name: "sound".to_owned(), version: 1 };
        let session = log.create_session(NewSession { name: "s".to_owned(), rules, meta: Default::default() }).unwrap();
        let event = |n: usize| {
            let text = n.to_string().repeat(3000);
            Event::new(n.to_string(), Source::User, EventKind::Message(Message::text(Role::User, text)))
        };
        let limit = |pages: i64| {
            let set = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
            log.conn.pragma_update_and_check(None, "max_page_count", pages, set).unwrap();
        };
        limit(60);
        let mut stored = 0;
        let error = loop {
            let batch: Vec<Event> = (stored..stored + 3).map(event).collect();
            match log.append(&session, &batch) {
                Ok(_) => stored += 3,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, AppendError::Storage(StorageError::DiskFull(_))), "{error:?}");
        assert!(stored > 0);
        let check = |expected: usize| {
            let read: Vec<Event> = log.events(&session).unwrap().map(Result::unwrap).collect();
            assert_eq!(read, (0..expected).map(event).collect::<Vec<_>>());
            assert_eq!(log.verify(&session).unwrap().problems, []);
        };
        check(stored);
        limit(1000);
        log.append(&session, &(stored..stored + 3).map(event).collect::<Vec<_>>()).unwrap();
        check(stored + 3);
    }

    #[test]
    fn depth_counts_levels_outside_strings_only() {
        for (json, expected) in
            [("1", 0), ("[]", 1), (r#"{"a":[{}],"b":[]}"#, 3), (r#"["[[{\"[[\\",["]"]]"#, 2), (r#""[""#, 0)]
        {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }
}
