//! Reading: events, headers and paths, page by page.

use std::collections::VecDeque;
use std::fmt;

use condenser::{Class, Condensation, Event, EventHeader, EventId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::{ReadError, StorageError};
use crate::header::{CONDENSATION, INTERIM, PIN, THINKING, UNDO, UNPIN, class_of, kind_name};
use crate::log::{Log, SessionId, State, find, position, row_number};

/// A page ends after this many rows.
const PAGE_ROWS: usize = 256;
/// A page ends once its bodies reach this many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// The most characters of a foreign message that an error repeats.
const EXCERPT: usize = 120;

impl Log {
    /// All events of a session in the order they were appended, whatever their branch.
    ///
    /// Covers the events there are now, and reads them in pages: a slow reader holds nothing up.
    pub fn events(&self, session: &SessionId) -> Result<Events<'_>, ReadError> {
        let state = self.state(session)?;
        let all = (state.events > 0).then_some(Run { branch: None, next: 0, last: state.events - 1 });
        Ok(Events::new(Walk::new(self, session, state.number, all.into_iter().collect())))
    }

    /// The events from the root to `head`, both included; without `head`, to the session's head.
    ///
    /// This is the history as of that event.
    pub fn branch(&self, session: &SessionId, head: Option<&EventId>) -> Result<Events<'_>, ReadError> {
        Ok(Events::new(self.walk_to(session, head)?))
    }

    /// The headers of the same events as [`branch`](Self::branch). Of the bodies it reads only those of
    /// condensations, undos, pins and unpins.
    pub fn headers(&self, session: &SessionId, head: Option<&EventId>) -> Result<Headers<'_>, ReadError> {
        Ok(Headers { walk: self.walk_to(session, head)?, page: VecDeque::new() })
    }

    /// One event; `None` where the session has none with this id.
    pub fn event(&self, session: &SessionId, id: &EventId) -> Result<Option<Event>, ReadError> {
        let state = self.state(session)?;
        let Some(position) = find(&self.conn, state.number, id)? else { return Ok(None) };
        let damaged = |detail| damaged(session, position, detail);
        self.conn
            .prepare_cached("SELECT json FROM body WHERE row = ?1")?
            .query_row([row_number(state.number, position)], |row| Ok(parse(row.get_ref(0)?)))
            .optional()?
            .unwrap_or_else(|| Err(NO_BODY.to_owned()))
            .map(|(event, _)| Some(event))
            .map_err(damaged)
    }

    /// The branches of a session, oldest first.
    pub fn branches(&self, session: &SessionId) -> Result<Vec<Branch>, ReadError> {
        let tx = self.conn.unchecked_transaction()?;
        let state = self.state(session)?;
        let active = match state.head {
            Some(head) => Some(run_to(&tx, state.number, head)?.0.branch),
            None => None,
        };
        let mut statement = tx.prepare_cached(
            "SELECT b.branch, t.id, f.id FROM branch b \
             JOIN event t ON t.row = (?1 << 32) + b.tip LEFT JOIN event f ON f.row = (?1 << 32) + b.fork \
             WHERE b.session = ?1 ORDER BY b.branch",
        )?;
        let branches = statement.query_map([state.number], |row| {
            let number: i64 = row.get(0)?;
            Ok(Branch {
                tip: row.get::<_, String>(1)?.into(),
                fork: row.get::<_, Option<String>>(2)?.map(EventId::from),
                is_active: active == Some(Some(number)),
            })
        })?;
        Ok(branches.collect::<Result<_, _>>()?)
    }

    pub(crate) fn state(&self, session: &SessionId) -> Result<State, ReadError> {
        State::load(&self.conn, session)?.ok_or_else(|| ReadError::NoSession(session.clone()))
    }

    fn walk_to(&self, session: &SessionId, head: Option<&EventId>) -> Result<Walk<'_>, ReadError> {
        let (number, runs) = self.runs_to(session, head)?;
        Ok(Walk::new(self, session, number, runs.into()))
    }

    /// The session's number, and the runs of events from the root to `head`.
    pub(crate) fn runs_to(&self, session: &SessionId, head: Option<&EventId>) -> Result<(i64, Vec<Run>), ReadError> {
        // One transaction, so that the head and its branches belong together.
        let tx = self.conn.unchecked_transaction()?;
        let state = self.state(session)?;
        let head = match head {
            None => state.head,
            Some(id) => Some(
                find(&tx, state.number, id)?
                    .ok_or_else(|| ReadError::NoEvent { session: session.clone(), id: id.clone() })?,
            ),
        };
        let mut runs = Vec::new();
        let mut next = head;
        while let Some(last) = next {
            let (run, fork) = run_to(&tx, state.number, last)?;
            runs.push(run);
            next = fork;
        }
        runs.reverse();
        Ok((state.number, runs))
    }
}

/// One branch of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its newest event; [`Log::branch`] leads to it.
    pub tip: EventId,
    /// The event it forks off; `None` where it starts at the very beginning.
    pub fork: Option<EventId>,
    /// Whether the head is one of its own events.
    pub is_active: bool,
}

/// An iterator over stored events. It ends after its first error.
pub struct Events<'a> {
    walk: Walk<'a>,
    page: VecDeque<Event>,
}

impl<'a> Events<'a> {
    fn new(walk: Walk<'a>) -> Self {
        Self { walk, page: VecDeque::new() }
    }
}

impl Iterator for Events<'_> {
    type Item = Result<Event, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        const SQL: &str = "SELECT e.row, e.parent, b.json FROM event e LEFT JOIN body b ON b.row = e.row \
             WHERE e.row BETWEEN ?1 AND ?2 AND (?3 IS NULL OR e.branch = ?3) ORDER BY e.row";
        self.walk.next(SQL, &mut self.page, |row, _, _| parse(row.get_ref(2).map_err(|_| NO_BODY)?))
    }
}

impl fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("walk", &self.walk).finish_non_exhaustive()
    }
}

/// The header of a stored event: all that a view needs of it, without the body.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredHeader {
    /// The event's id.
    pub id: EventId,
    /// Its position in the session, from 0.
    pub position: u64,
    /// The position of the event it follows; `None` for a root.
    pub parent: Option<u64>,
    /// Its kind, as the JSON tag names it; `unknown` also for a kind that a newer build added.
    pub kind: &'static str,
    /// The call that an action makes or an observation answers.
    pub call_id: Option<String>,
    /// The model response it belongs to.
    pub response_id: Option<String>,
    /// Whether an action carries thinking blocks.
    pub has_thinking: bool,
    /// Whether a later answer to the same call replaces this observation.
    pub is_interim: bool,
    /// The whole event, for condensations, undos, pins and unpins only.
    pub event: Option<Box<Event>>,
}

impl EventHeader for StoredHeader {
    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn class(&self) -> Class {
        class_of(self.kind)
    }

    fn call_id(&self) -> Option<&str> {
        self.call_id.as_deref()
    }

    fn response_id(&self) -> Option<&str> {
        self.response_id.as_deref()
    }

    fn has_thinking(&self) -> bool {
        self.has_thinking
    }

    fn is_interim(&self) -> bool {
        self.is_interim
    }

    fn condensation(&self) -> Option<&Condensation> {
        self.event.as_deref().and_then(EventHeader::condensation)
    }

    fn named_ids(&self, visit: &mut dyn FnMut(&str)) {
        if let Some(event) = &self.event {
            event.named_ids(visit);
        }
    }
}

/// An iterator over headers. It ends after its first error.
pub struct Headers<'a> {
    walk: Walk<'a>,
    page: VecDeque<StoredHeader>,
}

impl Iterator for Headers<'_> {
    type Item = Result<StoredHeader, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        const SQL: &str = "SELECT e.row, e.parent, e.kind, e.flags, e.id, e.call, e.response, \
             CASE WHEN e.kind IN (5, 8, 9, 10) THEN (SELECT json FROM body WHERE row = e.row) END FROM event e \
             WHERE e.row BETWEEN ?1 AND ?2 AND (?3 IS NULL OR e.branch = ?3) ORDER BY e.row";
        self.walk.next(SQL, &mut self.page, header)
    }
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Headers").field("walk", &self.walk).finish_non_exhaustive()
    }
}

fn header(row: &Row<'_>, position: i64, parent: Option<i64>) -> Result<(StoredHeader, usize), String> {
    let column = |error: rusqlite::Error| excerpt(&error.to_string());
    let kind: i64 = row.get(2).map_err(column)?;
    let flags: i64 = row.get(3).map_err(column)?;
    let (event, bytes) = match kind {
        CONDENSATION | UNDO | PIN | UNPIN => {
            let (event, bytes) = parse(row.get_ref(7).map_err(column)?)?;
            (Some(Box::new(event)), bytes)
        }
        _ => (None, 0),
    };
    let header = StoredHeader {
        id: row.get::<_, String>(4).map_err(column)?.into(),
        position: position as u64,
        parent: parent.map(|parent| parent as u64),
        kind: kind_name(kind),
        call_id: row.get(5).map_err(column)?,
        response_id: row.get(6).map_err(column)?,
        has_thinking: flags & THINKING != 0,
        is_interim: flags & INTERIM != 0,
        event,
    };
    Ok((header, bytes))
}

/// A run of events of one branch (or of all), by position.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) branch: Option<i64>,
    pub(crate) next: i64,
    pub(crate) last: i64,
}

/// The part of the event's own branch up to it, and the event that this part forks off.
pub(crate) fn run_to(conn: &Connection, session: i64, last: i64) -> Result<(Run, Option<i64>), StorageError> {
    let (branch, first, fork): (i64, i64, Option<i64>) = conn
        .prepare_cached(
            "SELECT e.branch, b.first, b.fork FROM event e \
             JOIN branch b ON b.session = ?2 AND b.branch = e.branch WHERE e.row = ?1",
        )?
        .query_row((row_number(session, last), session), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?
        .ok_or_else(|| StorageError::corrupt(format!("event {last} of session number {session} is missing")))?;
    // Positions fall along a path, so that following it ends.
    if !(0..=last).contains(&first) || fork.is_some_and(|fork| !(0..first).contains(&fork)) {
        return Err(StorageError::corrupt(format!("branch {branch} of session number {session} is impossible")));
    }
    Ok((Run { branch: Some(branch), next: first, last }, fork))
}

/// Reads runs page by page; between pages no statement is open.
#[derive(Debug)]
struct Walk<'a> {
    log: &'a Log,
    session: SessionId,
    number: i64,
    runs: VecDeque<Run>,
    /// The position read last.
    previous: Option<i64>,
}

impl<'a> Walk<'a> {
    fn new(log: &'a Log, session: &SessionId, number: i64, runs: VecDeque<Run>) -> Self {
        Self { log, session: session.clone(), number, runs, previous: None }
    }

    /// The next item of `page`, which is filled from `sql` (columns: row, parent, then what `read` wants) when empty.
    fn next<T>(
        &mut self,
        sql: &str,
        page: &mut VecDeque<T>,
        read: impl Fn(&Row<'_>, i64, Option<i64>) -> Result<(T, usize), String>,
    ) -> Option<Result<T, ReadError>> {
        // What was read before an error is handed out before it.
        let mut outcome = Ok(());
        while page.is_empty() && !self.runs.is_empty() && outcome.is_ok() {
            outcome = self.fill(sql, page, &read);
        }
        match (page.pop_front(), outcome) {
            (item, Ok(())) => item.map(Ok),
            (None, Err(error)) => {
                self.runs.clear();
                Some(Err(error))
            }
            // The next call reads the failing row again, as the first of its page.
            (Some(item), Err(_)) => Some(Ok(item)),
        }
    }

    fn fill<T>(
        &mut self,
        sql: &str,
        page: &mut VecDeque<T>,
        read: impl Fn(&Row<'_>, i64, Option<i64>) -> Result<(T, usize), String>,
    ) -> Result<(), ReadError> {
        let Some(run) = self.runs.front_mut() else { return Ok(()) };
        let mut statement = self.log.conn.prepare_cached(sql)?;
        let mut rows =
            statement.query((row_number(self.number, run.next), row_number(self.number, run.last), run.branch))?;
        let mut bytes = 0;
        while page.len() < PAGE_ROWS && bytes < PAGE_BYTES {
            let Some(row) = rows.next()? else {
                if self.previous != Some(run.last) {
                    return Err(damaged(&self.session, run.next, MISSING.to_owned()));
                }
                self.runs.pop_front();
                break;
            };
            let position = position(self.number, row.get(0)?)?;
            let parent: Option<i64> = row.get(1)?;
            let follows = match run.branch {
                Some(_) => position >= run.next && parent == self.previous,
                None => position == run.next,
            };
            if !follows {
                return Err(damaged(&self.session, run.next, MISSING.to_owned()));
            }
            let (item, size) =
                read(row, position, parent).map_err(|detail| damaged(&self.session, position, detail))?;
            page.push_back(item);
            bytes += size;
            run.next = position + 1;
            self.previous = Some(position);
        }
        Ok(())
    }
}

const MISSING: &str = "it is missing, or does not follow the event before it";
pub(crate) const NO_BODY: &str = "its body is missing";

pub(crate) fn damaged(session: &SessionId, position: i64, detail: String) -> ReadError {
    ReadError::Damaged { session: session.clone(), position: position as u64, detail }
}

/// The event in a body, and the body's length.
pub(crate) fn parse(json: ValueRef<'_>) -> Result<(Event, usize), String> {
    match json {
        ValueRef::Text(json) => match serde_json::from_slice(json) {
            Ok(event) => Ok((event, json.len())),
            Err(error) => Err(format!("its body cannot be read: {}", excerpt(&error.to_string()))),
        },
        _ => Err(NO_BODY.to_owned()),
    }
}

pub(crate) fn excerpt(message: &str) -> String {
    message.chars().take(EXCERPT).collect()
}
