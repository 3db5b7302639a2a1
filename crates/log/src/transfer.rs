//! Sessions in and out: imports in batches, export as JSON lines, backup while the log is in use.
//!
//! An exported session is a line of its own facts, then its events in the order in which they were appended, each
//! exactly as stored, then a line that says it is complete. Where an event does not follow the one before it, a line
//! before it says which one it follows; a line before the tombstone of an erased event keeps its digest. Those other
//! lines are JSON objects whose only key begins with `condenser_`.

use std::fs::{self, File};
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};

use condenser::event::{Event, EventId};
use rusqlite::types::ValueRef;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::append::{Body, MAX_EVENT_BYTES, Writer};
use crate::chain::Hash;
use crate::error::{AppendError, BackupError, ExportError, ImportError, ReadError, SessionError, StorageError};
use crate::log::{Log, NewSession, RuleSet, SessionId, create_file, find, position, row_number};
use crate::read::{damaged, excerpt};

/// Version of the lines of an export.
const EXPORT_VERSION: u32 = 1;
/// Events of one transaction of an import.
const BATCH_EVENTS: usize = 1000;
/// Bytes of JSON after which such a transaction ends.
const BATCH_BYTES: usize = 8 << 20;
/// Rows that an export reads at a time.
const PAGE_ROWS: usize = 256;
/// Bytes of bodies after which it stops reading.
const PAGE_BYTES: usize = 1 << 20;

/// A session that is being filled, in batches of bounded size.
///
/// Other processes may read and write the log meanwhile. The session counts as incomplete until
/// [`finish`](Self::finish), and an import that dies before leaves it so:
/// [`SessionInfo::is_complete`](crate::SessionInfo::is_complete) tells.
pub struct Import<'a> {
    log: &'a Log,
    session: SessionId,
    items: Vec<Item>,
    bytes: usize,
    events: u64,
}

enum Item {
    Event(Box<Event>, Body<'static>),
    Head(Option<EventId>),
}

impl std::fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Import").field("session", &self.session).field("events", &self.events).finish_non_exhaustive()
    }
}

impl Import<'_> {
    /// The session that is being filled.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Adds an event, as [`Log::append`] does; it is stored with its batch.
    pub fn push(&mut self, event: Event) -> Result<(), AppendError> {
        let body = Body::of(&event)?;
        self.push_body(event, body)
    }

    fn push_body(&mut self, event: Event, body: Body<'static>) -> Result<(), AppendError> {
        self.bytes += body.json.len();
        self.events += 1;
        self.items.push(Item::Event(Box::new(event), body));
        if self.items.len() >= BATCH_EVENTS || self.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), AppendError> {
        let tx = self.log.write()?;
        let mut writer = Writer::new(&tx, &self.session)?;
        for item in &self.items {
            match item {
                Item::Event(event, body) => writer.event(event, body)?,
                Item::Head(head) => {
                    let position = match head {
                        None => None,
                        Some(id) => {
                            Some(find(&tx, writer.state.number, id)?.ok_or_else(|| AppendError::UnknownParent {
                                session: self.session.clone(),
                                id: id.clone(),
                                parent: id.clone(),
                            })?)
                        }
                    };
                    writer.move_to(position)?;
                }
            }
        }
        writer.finish()?;
        tx.commit()?;
        self.items.clear();
        self.bytes = 0;
        Ok(())
    }

    /// Stores what is left and marks the session complete; how many events it has.
    pub fn finish(mut self) -> Result<u64, AppendError> {
        self.flush()?;
        self.log.conn.execute("UPDATE session SET complete = 1 WHERE id = ?1", [self.session.as_str()])?;
        Ok(self.events)
    }

    /// Drops the session with all that was stored so far.
    pub fn abandon(self) -> Result<(), SessionError> {
        self.log.drop_session(&self.session)
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    condenser_session: SessionLine,
}

#[derive(Serialize, Deserialize)]
struct SessionLine {
    version: u32,
    id: String,
    name: String,
    created_ms: u64,
    rules: RulesLine,
    #[serde(default)]
    meta: Map<String, Value>,
}

#[derive(Serialize, Deserialize)]
struct RulesLine {
    name: String,
    version: u32,
}

/// A line that is no event.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    /// The next event follows this one; at the end, the head.
    #[serde(rename = "condenser_head")]
    Head(Option<EventId>),
    /// The next event is the tombstone of a body with this digest, in hexadecimal.
    #[serde(rename = "condenser_erased")]
    Erased(String),
    /// The session is complete and has so many events.
    #[serde(rename = "condenser_end")]
    End(u64),
}

const HEAD_PREFIX: &[u8] = b"{\"condenser_session\"";
const MARK_PREFIX: &[u8] = b"{\"condenser_";

/// Whether a file beginning with these bytes is an exported session.
pub fn is_export(beginning: &[u8]) -> bool {
    beginning.starts_with(HEAD_PREFIX)
}

impl Log {
    /// Begins a session that is filled in batches.
    pub fn import(&self, session: NewSession) -> Result<Import<'_>, SessionError> {
        let session = self.insert_session(self.new_session_id()?, session, self.now_ms(), false)?;
        Ok(Import { log: self, session, items: Vec::new(), bytes: 0, events: 0 })
    }

    /// Writes a session as JSON lines: the events there are now, each exactly as stored. Reads in pages, so that
    /// memory does not grow with the session. The number of events.
    pub fn export(&self, session: &SessionId, mut to: impl Write) -> Result<u64, ExportError> {
        let info = self.session(session)?.ok_or_else(|| ReadError::NoSession(session.clone()))?;
        let state = self.state(session)?;
        let rules = RulesLine { name: info.rules.name, version: info.rules.version };
        let (id, name, created_ms, meta) = (info.id.to_string(), info.name, info.created_ms, info.meta);
        let line = SessionLine { version: EXPORT_VERSION, id, name, created_ms, rules, meta };
        write_line(&mut to, &Head { condenser_session: line })?;
        let mut previous = None;
        let mut next = 0;
        while next < state.events {
            for row in self.stored(session, state.number, next, state.events)? {
                if row.parent != previous {
                    let parent = row.parent.map(|at| self.id_at(state.number, at)).transpose()?;
                    write_line(&mut to, &Mark::Head(parent))?;
                }
                if let Some(digest) = row.erased {
                    write_line(&mut to, &Mark::Erased(blake3::Hash::from_bytes(digest).to_hex().to_string()))?;
                }
                to.write_all(&row.json)?;
                to.write_all(b"\n")?;
                previous = Some(next);
                next += 1;
            }
        }
        if state.head != previous {
            write_line(&mut to, &Mark::Head(state.head.map(|at| self.id_at(state.number, at)).transpose()?))?;
        }
        write_line(&mut to, &Mark::End(next as u64))?;
        to.flush()?;
        Ok(next as u64)
    }

    /// A page of rows from a position on, never empty.
    fn stored(&self, session: &SessionId, number: i64, from: i64, end: i64) -> Result<Vec<StoredRow>, ReadError> {
        let mut statement = self.conn.prepare_cached(
            "SELECT e.row, e.parent, b.erased, b.json FROM event e JOIN body b ON b.row = e.row \
             WHERE e.row BETWEEN ?1 AND ?2 ORDER BY e.row",
        )?;
        let mut rows = statement.query((row_number(number, from), row_number(number, end) - 1))?;
        let (mut page, mut bytes) = (Vec::new(), 0);
        while page.len() < PAGE_ROWS && bytes < PAGE_BYTES {
            let Some(row) = rows.next()? else { break };
            let expected = from + page.len() as i64;
            if position(number, row.get(0)?)? != expected {
                break;
            }
            let ValueRef::Text(json) = row.get_ref(3)? else {
                return Err(damaged(session, expected, "its body is no text".to_owned()));
            };
            bytes += json.len();
            page.push(StoredRow { parent: row.get(1)?, erased: row.get(2)?, json: json.to_vec() });
        }
        if page.is_empty() {
            return Err(damaged(session, from, "it is missing".to_owned()));
        }
        Ok(page)
    }

    /// Reads an exported session into this log, under the id it had; hashes come out as they were. Reads line by
    /// line and writes in batches. An export that is cut short, or damaged, leaves nothing behind.
    pub fn import_export(&self, mut from: impl BufRead) -> Result<(SessionId, u64), ImportError> {
        let mut lines = Lines { number: 0, line: Vec::new() };
        let head: Head = match lines.next(&mut from)? {
            Some(line) if is_export(line) => lines.parse()?,
            _ => return Err(ImportError::NotAnExport),
        };
        let line = head.condenser_session;
        if line.version > EXPORT_VERSION {
            return Err(ImportError::Newer { found: line.version, supported: EXPORT_VERSION });
        }
        let id = SessionId::new(line.id);
        if self.session(&id)?.is_some() {
            return Err(ImportError::Exists(id));
        }
        let rules = RuleSet { name: line.rules.name, version: line.rules.version };
        let new = NewSession { name: line.name, rules, meta: line.meta };
        let session = self.insert_session(id, new, line.created_ms, false)?;
        let mut import = Import { log: self, session, items: Vec::new(), bytes: 0, events: 0 };
        let session = import.session.clone();
        let read = read_events(&mut lines, &mut from, &mut import);
        match read.and_then(|()| Ok(import.finish()?)) {
            Ok(events) => Ok((session, events)),
            Err(error) => {
                // The first error is the one to tell; what could not be dropped stays marked as incomplete.
                let _ = self.drop_session(&session);
                Err(error)
            }
        }
    }

    /// Copies the whole log to a new file, while others read and write it: the log as of one moment, compact, readable
    /// by the owner only. The copy appears under its name once it is complete; its size in bytes.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<u64, BackupError> {
        let to = to.as_ref();
        if to.exists() {
            return Err(BackupError::Exists { path: to.to_owned() });
        }
        let failed = |source: StorageError| BackupError::Storage { path: to.to_owned(), source };
        let part = PathBuf::from(format!("{}.part", to.display()));
        let io = |error: std::io::Error| failed(error.into());
        if fs::exists(&part).map_err(io)? {
            return Err(BackupError::Exists { path: part });
        }
        create_file(&part).map_err(io)?;
        let copied = (|| {
            let target = fs::canonicalize(&part)?;
            let target = target.to_str().ok_or_else(|| std::io::Error::other("the path is no text"))?;
            self.conn.execute("VACUUM INTO ?1", [target])?;
            File::open(&part)?.sync_all()?;
            fs::rename(&part, to)?;
            if let Some(folder) = to.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                // The name is durable once its folder is.
                File::open(folder)?.sync_all()?;
            }
            Ok(fs::metadata(to)?.len())
        })();
        copied.map_err(|error| {
            let _ = fs::remove_file(&part);
            failed(error)
        })
    }
}

struct StoredRow {
    parent: Option<i64>,
    erased: Option<Hash>,
    json: Vec<u8>,
}

fn write_line(to: &mut impl Write, line: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *to, line)?;
    to.write_all(b"\n")
}

/// Lines of bounded length, counted from 1.
struct Lines {
    number: u64,
    line: Vec<u8>,
}

impl Lines {
    /// The next line without its end; `None` at the end of the input.
    fn next(&mut self, from: &mut impl BufRead) -> Result<Option<&[u8]>, ImportError> {
        self.number += 1;
        self.line.clear();
        let limit = MAX_EVENT_BYTES as u64 + 2;
        if from.take(limit).read_until(b'\n', &mut self.line)? == 0 {
            return Ok(None);
        }
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        } else if self.line.len() as u64 == limit {
            return Err(self.bad(format!("it is longer than {MAX_EVENT_BYTES} bytes")));
        }
        Ok(Some(&self.line))
    }

    fn parse<T: for<'de> Deserialize<'de>>(&self) -> Result<T, ImportError> {
        serde_json::from_slice(&self.line).map_err(|error| self.bad(excerpt(&error.to_string())))
    }

    fn bad(&self, detail: String) -> ImportError {
        ImportError::Line { line: self.number, detail }
    }
}

fn read_events(lines: &mut Lines, from: &mut impl BufRead, import: &mut Import<'_>) -> Result<(), ImportError> {
    let mut erased: Option<Hash> = None;
    loop {
        let Some(line) = lines.next(from)? else { return Err(ImportError::CutShort { line: lines.number }) };
        if line.starts_with(MARK_PREFIX) {
            match lines.parse()? {
                Mark::Head(head) => import.items.push(Item::Head(head)),
                Mark::Erased(digest) => {
                    let digest = blake3::Hash::from_hex(&digest).map_err(|error| lines.bad(error.to_string()))?;
                    erased = Some(*digest.as_bytes());
                }
                Mark::End(events) if events == import.events => return Ok(()),
                Mark::End(events) => {
                    return Err(lines.bad(format!("there should be {events} events before it, not {}", import.events)));
                }
            }
            continue;
        }
        let event: Event = lines.parse()?;
        let json = String::from_utf8(std::mem::take(&mut lines.line)).map_err(|error| lines.bad(error.to_string()))?;
        let mut body = Body::of_json(&event.id, json)?;
        if let Some(digest) = erased.take() {
            body.digest = digest;
            body.erased = true;
        }
        import.push_body(event, body)?;
    }
}
