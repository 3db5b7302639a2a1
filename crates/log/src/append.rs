//! Appending: a batch is one transaction, and becomes the newest part of its branch.

use std::borrow::Cow;
use std::ops::Range;

use condenser::{Event, EventId};
use rusqlite::ffi::{SQLITE_CONSTRAINT_UNIQUE, SQLITE_TOOBIG};
use rusqlite::{CachedStatement, Connection, Error as SqliteError, OptionalExtension};

use crate::chain::{self, Hash};
use crate::error::{AppendError, Cause, StorageError};
use crate::header::Columns;
use crate::log::{Log, MAX_EVENTS, SessionId, State, find, row_number};
use crate::segment::{Packed, Packer};

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
        let json = Batch::of(events)?;
        let bodies = json.bodies(events)?;
        let tx = self.write()?;
        let mut writer = Writer::new(&tx, session)?;
        // Kept only if the batch is committed: what was packed of a batch that is not there must not be used.
        writer.go_on(self.packer.take());
        if let Some(expected) = expected {
            writer.expect_head(expected)?;
        }
        for (event, body) in events.iter().zip(&bodies) {
            writer.event(event, body)?;
        }
        let (appended, packer) = writer.finish()?;
        tx.commit()?;
        self.packer.replace(Some(packer));
        Ok(appended)
    }
}

/// The JSON of several events in one piece.
struct Batch {
    json: String,
    ends: Vec<usize>,
}

impl Batch {
    fn of(events: &[Event]) -> Result<Self, AppendError> {
        let (mut json, mut ends) = (Vec::new(), Vec::with_capacity(events.len()));
        for event in events {
            serde_json::to_writer(&mut json, event)
                .map_err(|source| AppendError::Unwritable { id: event.id.clone(), source })?;
            ends.push(json.len());
        }
        // JSON is always text; where it were not, nothing would be appended.
        let json = String::from_utf8(json).map_err(|error| StorageError::Other(Cause::new(error)))?;
        Ok(Self { json, ends })
    }

    fn bodies(&self, events: &[Event]) -> Result<Vec<Body<'_>>, AppendError> {
        let mut start = 0;
        let bodies = events.iter().zip(&self.ends).map(|(event, &end)| {
            let json = &self.json[start..end];
            start = end;
            Body::of_json(&event.id, json)
        });
        bodies.collect()
    }
}

/// An event's JSON and what its row needs of it.
pub(crate) struct Body<'j> {
    pub(crate) json: Cow<'j, str>,
    /// Of `json`, or of what was erased.
    pub(crate) digest: Hash,
    /// Whether `json` is the tombstone of an erased event.
    pub(crate) erased: bool,
}

impl Body<'static> {
    pub(crate) fn of(event: &Event) -> Result<Self, AppendError> {
        let json =
            serde_json::to_string(event).map_err(|source| AppendError::Unwritable { id: event.id.clone(), source })?;
        Self::of_json(&event.id, json)
    }
}

impl<'j> Body<'j> {
    /// The body of JSON that reads as the event with this id.
    pub(crate) fn of_json(id: &EventId, json: impl Into<Cow<'j, str>>) -> Result<Self, AppendError> {
        let json = json.into();
        if json.len() > MAX_EVENT_BYTES {
            return Err(AppendError::TooLarge { id: id.clone(), bytes: json.len(), limit: MAX_EVENT_BYTES });
        }
        let depth = depth(json.as_bytes());
        if depth > MAX_EVENT_DEPTH {
            return Err(AppendError::TooDeep { id: id.clone(), depth, limit: MAX_EVENT_DEPTH });
        }
        Ok(Self { digest: chain::digest(json.as_bytes()), json, erased: false })
    }
}

/// The levels of arrays and objects in valid JSON, or a number above them that is still within [`MAX_EVENT_DEPTH`].
pub(crate) fn depth(json: &[u8]) -> usize {
    // Nearly all JSON has too few brackets to be deep, and counting them is much faster than reading it.
    let brackets = json.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if brackets <= MAX_EVENT_DEPTH { brackets } else { exact_depth(json) }
}

fn exact_depth(json: &[u8]) -> usize {
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

/// The rows of one batch, inside the caller's transaction.
pub(crate) struct Writer<'a> {
    conn: &'a Connection,
    session: &'a SessionId,
    insert_event: CachedStatement<'a>,
    insert_body: CachedStatement<'a>,
    pub(crate) state: State,
    first: i64,
    packer: Packer,
    /// What the next event without a parent follows.
    place: Option<Place>,
    /// Whether the branch of `place` has a newer tip than its row says.
    moved: bool,
    last_id: Option<EventId>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(conn: &'a Connection, session: &'a SessionId) -> Result<Self, AppendError> {
        let state = State::load(conn, session)?.ok_or_else(|| AppendError::NoSession(session.clone()))?;
        let place = state.head.map(|head| Place::load(conn, state.number, head)).transpose()?;
        // Held, so that they are not looked up for each event.
        let insert_event = conn.prepare_cached(
            "INSERT INTO event (row, session, branch, parent, id, kind, flags, call, response) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let insert_body = conn.prepare_cached("INSERT INTO body (row, hash, json, erased) VALUES (?1, ?2, ?3, ?4)")?;
        let first = state.events;
        let packer = Packer::new(state.number, first);
        Ok(Self { conn, session, insert_event, insert_body, first, packer, state, place, moved: false, last_id: None })
    }

    /// Goes on with what an earlier batch left, where nobody appended in between.
    fn go_on(&mut self, packer: Option<Packer>) {
        if let Some(packer) = packer.filter(|packer| packer.is_at(self.state.number, self.first)) {
            self.packer = packer;
        }
    }

    /// The event that the next one without a parent follows.
    fn head(&self) -> Result<Option<EventId>, StorageError> {
        self.place.as_ref().map(|place| id_at(self.conn, self.state.number, place.position)).transpose()
    }

    fn expect_head(&self, expected: Option<&EventId>) -> Result<(), AppendError> {
        let found = self.head()?;
        if expected == found.as_ref() {
            return Ok(());
        }
        Err(AppendError::HeadMoved { session: self.session.clone(), expected: expected.cloned(), found })
    }

    /// Lets the next event without a parent follow another event, or begin a tree.
    pub(crate) fn move_to(&mut self, head: Option<i64>) -> Result<(), StorageError> {
        self.store_tip()?;
        self.place = head.map(|head| Place::load(self.conn, self.state.number, head)).transpose()?;
        self.last_id = None;
        Ok(())
    }

    pub(crate) fn event(&mut self, event: &Event, body: &Body<'_>) -> Result<(), AppendError> {
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
        let (id, number) = (event.id.as_str(), self.state.number);
        self.insert_event
            .execute((row, number, branch, parent, id, columns.kind, columns.flags, columns.call, columns.response))
            .map_err(|error| match error {
                SqliteError::SqliteFailure(code, _) if code.extended_code == SQLITE_CONSTRAINT_UNIQUE => {
                    AppendError::Duplicate { session: self.session.clone(), id: event.id.clone() }
                }
                error => error.into(),
            })?;
        self.insert_body.execute((row, hash, &*body.json, body.erased.then_some(body.digest))).map_err(|error| {
            match error {
                SqliteError::SqliteFailure(code, _) if code.extended_code == SQLITE_TOOBIG => {
                    AppendError::TooLarge { id: event.id.clone(), bytes: body.json.len(), limit: MAX_EVENT_BYTES }
                }
                error => error.into(),
            }
        })?;
        self.packer.event(
            self.conn,
            &Packed {
                id,
                kind: columns.kind,
                flags: columns.flags,
                branch,
                parent,
                call: columns.call,
                response: columns.response,
            },
        )?;
        self.place = Some(Place { position, branch, hash, is_tip: true });
        self.moved = true;
        self.last_id = Some(event.id.clone());
        self.state.events += 1;
        Ok(())
    }

    fn new_branch(&mut self, first: i64) -> Result<i64, StorageError> {
        self.store_tip()?;
        let branch = self.state.branches;
        let fork = self.place.as_ref().map(|place| place.position);
        self.conn
            .prepare_cached("INSERT INTO branch (session, branch, fork, first, tip) VALUES (?1, ?2, ?3, ?4, ?4)")?
            .execute((self.state.number, branch, fork, first))?;
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

    pub(crate) fn finish(mut self) -> Result<(Appended, Packer), StorageError> {
        self.store_tip()?;
        let State { number, events, branches, .. } = self.state;
        let head = self.place.as_ref().map(|place| place.position);
        self.conn
            .prepare_cached("UPDATE session SET events = ?2, branches = ?3, head = ?4 WHERE session = ?1")?
            .execute((number, events, branches, head))?;
        let head = match self.last_id.take() {
            Some(id) => Some(id),
            None => self.head()?,
        };
        Ok((Appended { positions: self.first as u64..events as u64, head }, self.packer))
    }
}

/// The id of the event at a position.
pub(crate) fn id_at(conn: &Connection, session: i64, position: i64) -> Result<EventId, StorageError> {
    let id: String = conn
        .prepare_cached("SELECT id FROM event WHERE row = ?1")?
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
            assert_eq!(exact_depth(json.as_bytes()), expected, "{json}");
            assert!(depth(json.as_bytes()) >= expected, "{json}");
        }
    }
}
