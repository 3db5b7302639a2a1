//! Verifying: every row against its body, its neighbours and the hash chain.

use std::fmt;

use condenser::EventId;
use rusqlite::types::ValueRef;
use rusqlite::{OptionalExtension, Row};

use crate::chain::{self, Hash};
use crate::erase::tombstone;
use crate::error::{ReadError, StorageError};
use crate::header::{Columns, kind_name};
use crate::log::{Log, SessionId, State, position, row_number};
use crate::read::parse;
use crate::segment::{self, SEGMENT};

/// Rows read in one transaction.
const PAGE_ROWS: usize = 1024;
/// Bytes of bodies read in one transaction.
const PAGE_BYTES: usize = 16 << 20;

/// The most problems that a verification lists.
pub const MAX_PROBLEMS: usize = 1000;

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Events read.
    pub events: u64,
    /// What is wrong, by position; the first [`MAX_PROBLEMS`].
    pub problems: Vec<Problem>,
    /// All problems, listed or not.
    pub n_problems: u64,
    /// Events whose body was erased, by position; the first [`MAX_PROBLEMS`]. They are no problems.
    pub erased: Vec<EventId>,
    /// All erased events, listed or not.
    pub n_erased: u64,
}

/// One event that is not what was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its position in the session, from 0.
    pub position: u64,
    /// Its id, where anything still tells it.
    pub id: Option<EventId>,
    /// What is wrong.
    pub fault: Fault,
}

/// How an event differs from what was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Its header row is gone.
    HeaderMissing,
    /// Its body row is gone.
    BodyMissing,
    /// Its body, its hash or its predecessor is not the one the chain was made with.
    Changed,
    /// Its header row says something else than its body.
    HeaderDiffers,
    /// Its branch, or the session's counters, do not fit its place.
    Misplaced,
    /// It was erased, and what stands in its place says more than that.
    TombstoneDiffers,
    /// The packed headers, which a view is built from, say something else than its header row, or are missing.
    PackedDiffers,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeaderMissing => "the header row is missing",
            Self::BodyMissing => "the body row is missing",
            Self::Changed => "the body, the hash or the event before it was changed",
            Self::HeaderDiffers => "the header row does not fit the body",
            Self::Misplaced => "the branch or the session's counters do not fit",
            Self::TombstoneDiffers => "it was erased, and its tombstone was changed",
            Self::PackedDiffers => "the packed headers do not fit the header row",
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => write!(f, "event {} ({id}): {}", self.position, self.fault),
            None => write!(f, "event {}: {}", self.position, self.fault),
        }
    }
}

/// What is known of one branch while its session is read.
#[derive(Debug)]
struct Line {
    fork: Option<i64>,
    first: i64,
    tip: i64,
    /// The newest of its events so far.
    last: Option<i64>,
}

impl Log {
    /// Reads a whole session and compares every event with its body, its parent, its branch and the hash chain.
    ///
    /// A changed, missing or swapped row is a [`Problem`]; a file that SQLite cannot read is an error. Someone
    /// who writes the whole chain anew is not detected. Events appended meanwhile are not looked at.
    pub fn verify(&self, session: &SessionId) -> Result<Verification, ReadError> {
        let (state, lines, beyond) = {
            let tx = self.conn.unchecked_transaction()?;
            let state = self.state(session)?;
            let mut statement =
                tx.prepare_cached("SELECT fork, first, tip FROM branch WHERE session = ?1 ORDER BY branch")?;
            let lines = statement.query_map([state.number], |row| {
                Ok(Line { fork: row.get(0)?, first: row.get(1)?, tip: row.get(2)?, last: None })
            })?;
            let lines = lines.collect::<Result<Vec<_>, _>>()?;
            let end = (row_number(state.number, state.events), row_number(state.number + 1, 0));
            let beyond = "SELECT EXISTS (SELECT 1 FROM event WHERE row >= ?1 AND row < ?2)";
            let beyond: bool = tx.query_row(beyond, end, |row| row.get(0))?;
            (state, lines, beyond)
        };
        let root = chain::root(session.as_str());
        let mut check = Check { log: self, state, lines, root, previous: None, found: Verification::default() };
        let mut next = 0;
        while next < check.state.events {
            next = check.page(next)?;
        }
        check.finish(beyond);
        check.packed()?;
        Ok(check.found)
    }

    /// Runs SQLite's own check over the whole file; what it finds, at most 100 lines. Empty: the file is sound.
    pub fn check_file(&self) -> Result<Vec<String>, StorageError> {
        let mut statement = self.conn.prepare("PRAGMA integrity_check(100)")?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    }
}

struct Check<'a> {
    log: &'a Log,
    state: State,
    lines: Vec<Line>,
    root: Hash,
    /// The event read last, with its hash as stored.
    previous: Option<(i64, Hash)>,
    found: Verification,
}

impl Check<'_> {
    /// Checks a page of rows and returns the position after it.
    fn page(&mut self, mut next: i64) -> Result<i64, ReadError> {
        let log = self.log;
        let mut statement = log.conn.prepare_cached(
            "SELECT e.row, e.parent, e.branch, e.kind, e.flags, e.id, e.call, e.response, e.session, b.hash, b.json, \
             b.erased FROM event e LEFT JOIN body b ON b.row = e.row \
             WHERE e.row BETWEEN ?1 AND ?2 ORDER BY e.row",
        )?;
        let number = self.state.number;
        let mut rows = statement.query((row_number(number, next), row_number(number, self.state.events - 1)))?;
        let (mut n_rows, mut bytes) = (0, 0);
        while n_rows < PAGE_ROWS && bytes < PAGE_BYTES {
            let row = rows.next()?;
            let position = match row {
                Some(row) => position(number, row.get(0)?)?,
                None => self.state.events,
            };
            if position < next {
                return Err(StorageError::corrupt(format!("row {position} stands after row {next}")).into());
            }
            for missing in next..position {
                self.missing(missing)?;
            }
            let Some(row) = row else { return Ok(self.state.events) };
            bytes += self.event(row, position)?;
            self.found.events += 1;
            n_rows += 1;
            next = position + 1;
        }
        Ok(next)
    }

    fn event(&mut self, row: &Row<'_>, at: i64) -> Result<usize, ReadError> {
        let parent: Option<i64> = row.get(1)?;
        let branch: i64 = row.get(2)?;
        let id: Option<EventId> = row.get::<_, Option<String>>(5)?.map(EventId::from);
        if !self.is_in_place(branch, parent, at) {
            self.report(at, id.clone(), Fault::Misplaced);
        }
        let hash: Option<Hash> = row.get(9)?;
        let (Some(hash), ValueRef::Text(json)) = (hash, row.get_ref(10)?) else {
            self.report(at, id, Fault::BodyMissing);
            self.previous = None;
            return Ok(0);
        };
        // The stored hash of the parent, right or wrong, so that a change is reported once and not by all after it.
        let before = match parent {
            None => Some(self.root),
            Some(parent) => match self.previous {
                Some((position, hash)) if position == parent => Some(hash),
                _ => self.stored_hash(parent)?,
            },
        };
        self.previous = Some((at, hash));
        let erased: Option<Hash> = row.get(11)?;
        let digest = erased.unwrap_or_else(|| chain::digest(json));
        if before.is_none_or(|before| chain::link(&before, &digest) != hash) {
            self.report(at, id, Fault::Changed);
            return Ok(json.len());
        }
        let (kind, flags): (i64, i64) = (row.get(3)?, row.get(4)?);
        let (call, response): (Option<String>, Option<String>) = (row.get(6)?, row.get(7)?);
        let event = parse(row.get_ref(10)?).map(|(event, _)| event);
        if erased.is_some() {
            self.found.n_erased += 1;
            if let Some(id) = &id
                && self.found.erased.len() < MAX_PROBLEMS
            {
                self.found.erased.push(id.clone());
            }
            if !event.as_ref().is_ok_and(|event| tombstone(event.clone()) == *event) {
                self.report(at, id.clone(), Fault::TombstoneDiffers);
            }
        }
        let fits = event.is_ok_and(|event| {
            let columns = Columns::of(&event);
            // A newer build may have given a kind a number of its own.
            (columns.kind == kind || kind_name(kind) == event.kind.name())
                // The row of an erased event still tells that there was thinking.
                && (columns.flags == flags || erased.is_some())
                && columns.call == call.as_deref()
                && columns.response == response.as_deref()
                && Some(&event.id) == id.as_ref()
        });
        let session: i64 = row.get(8)?;
        if !fits || session != self.state.number {
            self.report(at, id, Fault::HeaderDiffers);
        }
        Ok(json.len())
    }

    /// Whether the event continues or begins its branch as the branch's row says.
    fn is_in_place(&mut self, branch: i64, parent: Option<i64>, at: i64) -> bool {
        let Some(line) = usize::try_from(branch).ok().and_then(|branch| self.lines.get_mut(branch)) else {
            return false;
        };
        let fits = match line.last {
            Some(last) => parent == Some(last),
            None => line.first == at && line.fork == parent && parent.is_none_or(|parent| (0..at).contains(&parent)),
        };
        line.last = Some(at);
        fits
    }

    fn stored_hash(&self, position: i64) -> Result<Option<Hash>, ReadError> {
        let mut statement = self.log.conn.prepare_cached("SELECT hash FROM body WHERE row = ?1")?;
        let number = self.state.number;
        let hash = (0..self.state.events).contains(&position).then(|| row_number(number, position));
        Ok(hash.map(|row| statement.query_row([row], |row| row.get(0)).optional()).transpose()?.flatten())
    }

    fn missing(&mut self, at: i64) -> Result<(), ReadError> {
        let id = self
            .log
            .conn
            .prepare_cached("SELECT json FROM body WHERE row = ?1")?
            .query_row([row_number(self.state.number, at)], |row| Ok(parse(row.get_ref(0)?).ok()))
            .optional()?
            .flatten()
            .map(|(event, _)| event.id);
        self.report(at, id, Fault::HeaderMissing);
        Ok(())
    }

    fn report(&mut self, position: i64, id: Option<EventId>, fault: Fault) {
        self.found.n_problems += 1;
        if self.found.problems.len() < MAX_PROBLEMS {
            self.found.problems.push(Problem { position: position as u64, id, fault });
        }
    }

    /// Compares the packed headers with the rows that they repeat.
    fn packed(&mut self) -> Result<(), ReadError> {
        let number = self.state.number;
        let conn = &self.log.conn;
        for first in (0..self.state.events / SEGMENT).map(|n| n * SEGMENT) {
            // Rows that do not fit a segment, or are not all there, are reported by themselves where they are wrong.
            let Some(expected) = segment::pack(conn, number, first)? else { continue };
            let stored: Option<Vec<u8>> = conn
                .prepare_cached("SELECT data FROM segment WHERE row = ?1")?
                .query_row([row_number(number, first)], |row| row.get(0))
                .optional()?;
            for (index, id) in segment::differences(stored, expected) {
                self.report(first + index, id, Fault::PackedDiffers);
            }
        }
        Ok(())
    }

    /// What only the whole session tells: each branch's end, and whether the counters cover everything.
    fn finish(&mut self, beyond: bool) {
        if beyond || self.lines.len() as i64 != self.state.branches {
            self.report(self.state.events, None, Fault::Misplaced);
        }
        let ends: Vec<_> = self.lines.iter().filter(|line| line.last != Some(line.tip)).map(|line| line.tip).collect();
        for tip in ends {
            self.report(tip, None, Fault::Misplaced);
        }
    }
}
