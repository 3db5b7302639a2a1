//! The open log and its sessions.

use std::cell::RefCell;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use condenser::EventId;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior};
use serde_json::{Map, Value};

use crate::append::{MAX_EVENT_DEPTH, depth, id_at};
use crate::error::{Cause, OpenError, ReadError, SessionError, StorageError};
use crate::id::Ids;
use crate::schema::{self, Format};
use crate::segment::Packer;

/// The write-ahead log is cut back to this many bytes after a checkpoint.
const WAL_LIMIT: i64 = 64 << 20;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing; a missing file is created, readable by its owner only.
    #[default]
    Create,
    /// Reading and writing; a missing file is an error.
    Write,
    /// Reading.
    Read,
}

/// When an append returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When the batch survives a power cut.
    #[default]
    Full,
    /// When the batch survives the end of this process. A power cut may take the newest batches, whole
    /// ones only. Several times as fast for small batches.
    Normal,
}

/// How SQLite keeps transactions whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Journal {
    /// Write-ahead log: readers and the writer do not wait for each other. Needs shared memory, so it does
    /// not work on most network file systems; opening fails where it is not granted.
    #[default]
    Wal,
    /// Rollback journal: works everywhere; readers and the writer wait for each other.
    Rollback,
}

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What for.
    pub access: Access,
    /// When an append returns.
    pub sync: Sync,
    /// How transactions are kept whole. Not used with [`Access::Read`], which takes what the file has.
    pub journal: Journal,
    /// How long a call waits for another connection's lock before it fails.
    pub busy_timeout: Duration,
    /// The clock behind new ids and session times: milliseconds since 1970.
    pub clock: fn() -> u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            access: Access::Create,
            sync: Sync::Full,
            journal: Journal::Wal,
            busy_timeout: Duration::from_secs(30),
            clock: system_clock,
        }
    }
}

fn system_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The identity of a session: a ULID, made by [`Log::create_session`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(String);

impl SessionId {
    /// Wraps an id as a user gave it; nothing is looked up.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule set that reads a session, kept with it: no reader applies another one unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSet {
    /// The rule set's name, as [`condenser::Rules`] is written.
    pub name: String,
    /// Its version.
    pub version: u32,
}

/// What a new session is.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// A name for people; it need not be unique.
    pub name: String,
    /// The rule set.
    pub rules: RuleSet,
    /// Whatever the host keeps with a session: source, model, task.
    pub meta: Map<String, Value>,
}

/// A session as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionInfo {
    /// Its identity.
    pub id: SessionId,
    /// Its name.
    pub name: String,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// The rule set that reads it.
    pub rules: RuleSet,
    /// What the host keeps with it.
    pub meta: Map<String, Value>,
    /// Its events, on all branches.
    pub events: u64,
    /// Its branches.
    pub branches: u64,
    /// The event that the next one follows; `None` at the very beginning.
    pub head: Option<EventId>,
    /// Whether its import came to its end. What an import that died half way left is readable, and is dropped
    /// with [`Log::drop_session`].
    pub is_complete: bool,
}

/// An open event log.
///
/// A handle is one connection: it may move between threads, and each thread or process opens its own.
/// No method keeps a transaction open after it returns, iterators included.
#[derive(Debug)]
pub struct Log {
    pub(crate) conn: Connection,
    path: PathBuf,
    journal: String,
    clock: fn() -> u64,
    ids: RefCell<Ids>,
    /// What the last append packed of a segment that is not complete yet.
    pub(crate) packer: RefCell<Option<Packer>>,
}

impl Log {
    /// Opens the log at `path`.
    ///
    /// A file of another kind or of a newer format is refused and left as it is.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let storage = |source: StorageError| OpenError::Storage { path: path.to_owned(), source };
        if options.access == Access::Create {
            create_file(path).map_err(|error| storage(error.into()))?;
        }
        let metadata = fs::metadata(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => OpenError::NotFound { path: path.to_owned() },
            _ => storage(error.into()),
        })?;
        if metadata.is_dir() {
            return Err(OpenError::NotALog { path: path.to_owned(), found: "a folder".to_owned() });
        }
        // An absolute path has no second meaning to SQLite, as `:memory:` has.
        let absolute = fs::canonicalize(path).map_err(|error| storage(error.into()))?;
        let access = match options.access {
            Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
            Access::Create | Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        };
        let conn = Connection::open_with_flags(absolute, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .map_err(|error| storage(error.into()))?;
        let wanted = match options.journal {
            Journal::Wal => "wal",
            Journal::Rollback => "delete",
        };
        Self::prepare(conn, path, wanted, options)
    }

    /// A log that lives as long as the handle.
    pub fn open_in_memory() -> Result<Self, OpenError> {
        let path = Path::new(":memory:");
        let conn = Connection::open_in_memory()
            .map_err(|error| OpenError::Storage { path: path.to_owned(), source: error.into() })?;
        Self::prepare(conn, path, "memory", Options::default())
    }

    fn prepare(conn: Connection, path: &Path, wanted: &'static str, options: Options) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let journal = (|| {
            conn.busy_timeout(options.busy_timeout)?;
            conn.pragma_update(None, "trusted_schema", false)?;
            conn.pragma_update(None, "cell_size_check", true)?;
            let found = schema::format(&conn)?;
            if options.access == Access::Read {
                let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
                return Ok((found, journal));
            }
            let is_usable = match found {
                Format::Empty => options.access == Access::Create,
                Format::Current => true,
                Format::Older(major) => schema::can_migrate(major),
                Format::Newer(_) | Format::Foreign(_) => false,
            };
            if !is_usable {
                return Ok((found, String::new()));
            }
            if conn.is_readonly("main")? {
                return Err(StorageError::ReadOnly(Cause::new(
                    "the file allows no writing; open it with `Access::Read`",
                )));
            }
            let journal = set_journal(&conn, wanted, options.busy_timeout)?;
            conn.pragma_update(None, "synchronous", if options.sync == Sync::Full { "full" } else { "normal" })?;
            conn.pragma_update(None, "fullfsync", options.sync == Sync::Full)?;
            conn.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
            if journal == wanted {
                match found {
                    Format::Empty => schema::create(&conn)?,
                    Format::Older(_) => schema::migrate(&conn)?,
                    _ => return Ok((found, journal)),
                }
            }
            Ok((schema::format(&conn)?, journal))
        })();
        match journal {
            Err(StorageError::Corrupt(cause)) if is_not_a_database(&conn) => {
                Err(OpenError::NotALog { path, found: cause.to_string() })
            }
            Err(source) => Err(OpenError::Storage { path, source }),
            Ok((Format::Empty | Format::Current | Format::Older(_), granted))
                if options.access != Access::Read && !granted.is_empty() && granted != wanted =>
            {
                Err(OpenError::Journal { path, wanted, granted })
            }
            Ok((Format::Empty, _)) => Err(OpenError::NotALog { path, found: "an empty file".to_owned() }),
            Ok((Format::Foreign(found), _)) => Err(OpenError::NotALog { path, found }),
            Ok((Format::Newer(found), _)) => Err(OpenError::Newer { path, found, supported: schema::MAJOR }),
            Ok((Format::Older(found), _)) if schema::can_migrate(found) => {
                Err(OpenError::NeedsMigration { path, found, supported: schema::MAJOR })
            }
            Ok((Format::Older(found), _)) => Err(OpenError::NoMigration { path, found }),
            Ok((Format::Current, journal)) => {
                conn.set_prepared_statement_cache_capacity(64);
                Ok(Self {
                    conn,
                    path,
                    journal,
                    clock: options.clock,
                    ids: RefCell::new(Ids::new()),
                    packer: RefCell::default(),
                })
            }
        }
    }

    /// The path the log was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The journal mode that SQLite granted: `wal`, `delete` or `memory`.
    pub fn journal_mode(&self) -> &str {
        &self.journal
    }

    /// Bytes of the write-ahead log at this moment; 0 where there is none.
    pub fn wal_bytes(&self) -> u64 {
        let wal = format!("{}-wal", self.conn.path().unwrap_or_default());
        fs::metadata(wal).map_or(0, |metadata| metadata.len())
    }

    /// The format's minor version, as the file's creator or last migration wrote it.
    pub fn format_minor(&self) -> Result<u64, ReadError> {
        Ok(self.conn.query_row("SELECT minor FROM format", [], |row| row.get(0))?)
    }

    /// A new event id: a ULID later than every one this handle made before.
    pub fn new_event_id(&self) -> Result<EventId, StorageError> {
        self.new_ulid().map(EventId::from)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        (self.clock)()
    }

    fn new_ulid(&self) -> Result<String, StorageError> {
        let random = || {
            let mut bytes = [0; 16];
            self.conn.prepare_cached("SELECT randomblob(16)")?.query_row([], |row| {
                bytes.copy_from_slice(row.get_ref(0)?.as_blob()?);
                Ok(())
            })?;
            Ok(u128::from_le_bytes(bytes))
        };
        self.ids.borrow_mut().next(self.now_ms(), random)
    }

    /// Starts a session. Its head is `None` until events are appended.
    pub fn create_session(&self, session: NewSession) -> Result<SessionId, SessionError> {
        self.insert_session(self.new_session_id()?, session, self.now_ms(), true)
    }

    pub(crate) fn new_session_id(&self) -> Result<SessionId, StorageError> {
        self.new_ulid().map(SessionId)
    }

    pub(crate) fn id_at(&self, session: i64, position: i64) -> Result<EventId, StorageError> {
        id_at(&self.conn, session, position)
    }

    pub(crate) fn insert_session(
        &self,
        id: SessionId,
        session: NewSession,
        created_ms: u64,
        is_complete: bool,
    ) -> Result<SessionId, SessionError> {
        let meta = Value::Object(session.meta).to_string();
        let depth = depth(meta.as_bytes());
        if depth > MAX_EVENT_DEPTH {
            return Err(SessionError::TooDeep { depth, limit: MAX_EVENT_DEPTH });
        }
        let tx = self.write()?;
        // A number is never used again: an iterator over a dropped session finds nothing, not another one.
        let last: i64 = tx.query_row("SELECT sessions FROM format", [], |row| row.get(0))?;
        if !(0..MAX_SESSIONS).contains(&last) {
            return Err(SessionError::TooManySessions(last));
        }
        let number = last + 1;
        tx.execute("UPDATE format SET sessions = ?1", [number])?;
        let created = i64::try_from(created_ms).unwrap_or(i64::MAX);
        tx.execute(
            "INSERT INTO session (session, id, name, created, rules, rules_version, meta, events, branches, complete) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, ?8)",
            (number, &id.0, &session.name, created, &session.rules.name, session.rules.version, meta, is_complete),
        )?;
        tx.commit()?;
        Ok(id)
    }

    /// All sessions, oldest first.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, ReadError> {
        let mut statement = self.conn.prepare_cached(concat!(session_sql!(), " ORDER BY s.session"))?;
        let rows = statement.query_map([], session_info)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// One session; `None` where there is none with this id.
    pub fn session(&self, session: &SessionId) -> Result<Option<SessionInfo>, ReadError> {
        let mut statement = self.conn.prepare_cached(concat!(session_sql!(), " WHERE s.id = ?1"))?;
        Ok(statement.query_row([&session.0], session_info).optional()?)
    }

    /// Moves the head, so that the next event follows `head`: a fork, unless `head` is a branch's newest event.
    ///
    /// `None` is the very beginning. No event is touched.
    pub fn set_head(&self, session: &SessionId, head: Option<&EventId>) -> Result<(), SessionError> {
        let tx = self.write()?;
        let state = State::load(&tx, session)?.ok_or_else(|| SessionError::NoSession(session.clone()))?;
        let position = match head {
            None => None,
            Some(id) => Some(
                find(&tx, state.number, id)?
                    .ok_or_else(|| SessionError::NoEvent { session: session.clone(), id: id.clone() })?,
            ),
        };
        tx.prepare_cached("UPDATE session SET head = ?2 WHERE session = ?1")?.execute((state.number, position))?;
        Ok(tx.commit()?)
    }

    /// A transaction that holds the write lock from its beginning, so that waiting for it works.
    pub(crate) fn write(&self) -> rusqlite::Result<Transaction<'_>> {
        Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate)
    }
}

macro_rules! session_sql {
    () => {
        "SELECT s.id, s.name, s.created, s.rules, s.rules_version, s.meta, s.events, s.branches, e.id, s.complete \
         FROM session s LEFT JOIN event e ON e.row = (s.session << 32) + s.head"
    };
}
use session_sql;

fn session_info(row: &Row<'_>) -> rusqlite::Result<SessionInfo> {
    let meta: String = row.get(5)?;
    let meta = serde_json::from_str(&meta)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(5, rusqlite::types::Type::Text, error.into()))?;
    Ok(SessionInfo {
        id: SessionId(row.get(0)?),
        name: row.get(1)?,
        created_ms: row.get(2)?,
        rules: RuleSet { name: row.get(3)?, version: row.get(4)? },
        meta,
        events: row.get(6)?,
        branches: row.get(7)?,
        head: row.get::<_, Option<String>>(8)?.map(EventId::from),
        is_complete: row.get(9)?,
    })
}

/// Sessions are numbered from 1 to this, so that no row number, nor the one after the last, overflows.
const MAX_SESSIONS: i64 = (1 << 31) - 2;

/// Positions are below this.
pub(crate) const MAX_EVENTS: i64 = 1 << 32;

/// The row number of the event at `position` of a session.
pub(crate) fn row_number(session: i64, position: i64) -> i64 {
    (session << 32) + position
}

/// The counters of a session, checked for the ranges that [`row_number`] needs.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) number: i64,
    pub(crate) events: i64,
    pub(crate) branches: i64,
    pub(crate) head: Option<i64>,
}

impl State {
    pub(crate) fn load(conn: &Connection, session: &SessionId) -> Result<Option<Self>, StorageError> {
        let state = conn
            .prepare_cached("SELECT session, events, branches, head FROM session WHERE id = ?1")?
            .query_row([&session.0], |row| {
                Ok(Self { number: row.get(0)?, events: row.get(1)?, branches: row.get(2)?, head: row.get(3)? })
            })
            .optional()?;
        if let Some(state) = &state {
            let plausible = (1..=MAX_SESSIONS).contains(&state.number)
                && (0..=MAX_EVENTS).contains(&state.events)
                && (0..=state.events).contains(&state.branches)
                && state.head.is_none_or(|head| (0..state.events).contains(&head));
            if !plausible {
                return Err(StorageError::corrupt(format!("impossible counters in session {session}")));
            }
        }
        Ok(state)
    }
}

/// The position of an event.
pub(crate) fn find(conn: &Connection, session: i64, id: &EventId) -> Result<Option<i64>, StorageError> {
    let row: Option<i64> = conn
        .prepare_cached("SELECT row FROM event WHERE session = ?1 AND id = ?2")?
        .query_row((session, id.as_str()), |row| row.get(0))
        .optional()?;
    row.map(|row| position(session, row)).transpose()
}

/// The position behind a row number, which must be of this session.
pub(crate) fn position(session: i64, row: i64) -> Result<i64, StorageError> {
    match row.checked_sub(session << 32) {
        Some(position) if (0..MAX_EVENTS).contains(&position) => Ok(position),
        _ => Err(StorageError::corrupt(format!("row {row} is filed under session number {session}"))),
    }
}

pub(crate) fn create_file(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn is_not_a_database(conn: &Connection) -> bool {
    let schema = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    matches!(schema, Err(rusqlite::Error::SqliteFailure(code, _)) if code.code == ErrorCode::NotADatabase)
}

/// Asks for a journal mode and returns the one granted.
///
/// SQLite does not wait for other connections here as it does elsewhere, so the waiting is done by hand.
fn set_journal(conn: &Connection, wanted: &str, timeout: Duration) -> rusqlite::Result<String> {
    let deadline = Instant::now() + timeout;
    loop {
        let granted = conn.pragma_update_and_check(None, "journal_mode", wanted, |row| row.get(0));
        match granted {
            Err(rusqlite::Error::SqliteFailure(code, _))
                if code.code == ErrorCode::DatabaseBusy && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            granted => return granted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_mode_that_is_not_granted_is_refused_by_name() {
        // A database in memory stands for a file system without shared memory: it never grants WAL.
        let conn = Connection::open_in_memory().unwrap();
        let error = Log::prepare(conn, Path::new("log.db"), "wal", Options::default()).unwrap_err();
        assert!(
            matches!(&error, OpenError::Journal { wanted: "wal", granted, .. } if granted == "memory"),
            "{error:?}"
        );
        assert!(error.to_string().starts_with("log.db: journal mode wal was asked for and memory granted"), "{error}");
    }
}
