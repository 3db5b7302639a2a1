//! What can go wrong, one type per operation; [`StorageError`] is the part they share.

use std::path::PathBuf;

use condenser::EventId;
use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_CORRUPT_VTAB;

use crate::{RuleSet, SessionId};

/// Why the file could not be read or written. Nothing is half written after any of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// No space for another page: the disk, a quota, or SQLite's page limit.
    #[error("the disk is full; nothing was written, and the same call works again once there is space")]
    DiskFull(#[source] Cause),
    /// The file, its directory or the connection allows no writing.
    #[error("the log is read-only")]
    ReadOnly(#[source] Cause),
    /// Another connection held its lock longer than the busy time-out.
    #[error("another process kept the log locked longer than the time-out; try again or raise `Options::busy_timeout`")]
    Locked(#[source] Cause),
    /// The operating system did not let the file, or its `-wal` and `-shm` neighbours, be opened or created.
    #[error(
        "the log, or its -wal and -shm files, could not be opened; check the permissions of the file and its folder"
    )]
    Permission(#[source] Cause),
    /// The file's structure is broken. `verify` and `check_file` say more.
    #[error("the log file is damaged; restore it from a backup, or export what `verify` still passes")]
    Corrupt(#[source] Cause),
    /// Any other failure of SQLite or of the operating system.
    #[error("the log file could not be accessed")]
    Other(#[source] Cause),
}

/// What lies under a [`StorageError`], as text for people.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Cause(Box<dyn std::error::Error + Send + Sync>);

impl Cause {
    pub(crate) fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

impl StorageError {
    pub(crate) fn corrupt(detail: impl Into<String>) -> Self {
        Self::Corrupt(Cause::new(detail.into()))
    }
}

impl From<rusqlite::Error> for StorageError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        let class = match &error {
            E::SqliteFailure(code, _) | E::SqlInputError { error: code, .. } => match code.code {
                ErrorCode::DiskFull => Self::DiskFull,
                ErrorCode::ReadOnly => Self::ReadOnly,
                ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::Locked,
                ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied | ErrorCode::CannotOpen => {
                    Self::Permission
                }
                // The SQL is fixed and the values are checked: a statement that does not fit, or a broken
                // constraint, means that the tables are not what this crate wrote.
                ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::Unknown => Self::Corrupt,
                _ => Self::Other,
            },
            E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::Utf8Error(..)
            | E::QueryReturnedNoRows => Self::Corrupt,
            _ => Self::Other,
        };
        class(Cause::new(error))
    }
}

impl From<std::io::Error> for StorageError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        let class = match error.kind() {
            ErrorKind::PermissionDenied => Self::Permission,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull,
            ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            _ => Self::Other,
        };
        class(Cause::new(error))
    }
}

/// Why a log was not opened. The file is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file, and the access asked for does not create one.
    #[error("{}: no such log", path.display())]
    NotFound {
        /// The path.
        path: PathBuf,
    },
    /// The path holds something else.
    #[error("{}: not an event log: {found}", path.display())]
    NotALog {
        /// The path.
        path: PathBuf,
        /// What was found instead.
        found: String,
    },
    /// A newer build wrote the file.
    #[error("{}: log format {found} is newer than {supported}, the newest this build reads; use a newer build", path.display())]
    Newer {
        /// The path.
        path: PathBuf,
        /// The file's major version.
        found: i64,
        /// The newest major version this build reads.
        supported: i64,
    },
    /// The file's version is older than any this build can migrate from.
    #[error("{}: log format {found} is older than any this build can migrate from", path.display())]
    NoMigration {
        /// The path.
        path: PathBuf,
        /// The file's major version.
        found: i64,
    },
    /// The file's version is older, and bringing it to the version of this build takes writing.
    #[error("{}: log format {found} has to be migrated to {supported}; open it once for writing", path.display())]
    NeedsMigration {
        /// The path.
        path: PathBuf,
        /// The file's major version.
        found: i64,
        /// The major version this build reads.
        supported: i64,
    },
    /// SQLite granted another journal mode than the one asked for.
    #[error("{}: journal mode {wanted} was asked for and {granted} granted; the file system may not support it, choose another `Options::journal`", path.display())]
    Journal {
        /// The path.
        path: PathBuf,
        /// The mode asked for.
        wanted: &'static str,
        /// The mode granted.
        granted: String,
    },
    /// The file could not be read or written.
    #[error("{}: {source}", path.display())]
    Storage {
        /// The path.
        path: PathBuf,
        /// Why.
        source: StorageError,
    },
}

/// Why a session was not created, or its head not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The log has no such session.
    #[error("no session {0} in this log")]
    NoSession(SessionId),
    /// The session has no such event.
    #[error("no event {id} in session {session}")]
    NoEvent {
        /// The session.
        session: SessionId,
        /// The event.
        id: EventId,
    },
    /// The session's `meta` is nested deeper than [`MAX_EVENT_DEPTH`](crate::MAX_EVENT_DEPTH).
    #[error(
        "the session's meta is nested {depth} deep, more than {limit}, the most that can be read back; store it as JSON text"
    )]
    TooDeep {
        /// Its depth.
        depth: usize,
        /// The limit.
        limit: usize,
    },
    /// The log holds as many sessions as the format can number.
    #[error("the log is full: it holds {0} sessions, the most a file can number")]
    TooManySessions(i64),
    /// The file could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a batch was not appended. No event of it is stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The log has no such session.
    #[error("no session {0} in this log")]
    NoSession(SessionId),
    /// The session, or the batch, has an event with this id already.
    #[error("session {session} already has an event {id}")]
    Duplicate {
        /// The session.
        session: SessionId,
        /// The id that exists already.
        id: EventId,
    },
    /// An event names a parent that is neither in the session nor before it in the batch.
    #[error("event {id} names the parent {parent}, which is not before it in session {session}")]
    UnknownParent {
        /// The session.
        session: SessionId,
        /// The event.
        id: EventId,
        /// The parent it names.
        parent: EventId,
    },
    /// The head is not the one the caller expected.
    #[error("the head of session {session} is {}, not {}", shown(found), shown(expected))]
    HeadMoved {
        /// The session.
        session: SessionId,
        /// The head the caller expected.
        expected: Option<EventId>,
        /// The head as it is.
        found: Option<EventId>,
    },
    /// An event's JSON is longer than [`MAX_EVENT_BYTES`](crate::MAX_EVENT_BYTES).
    #[error(
        "event {id} takes {bytes} bytes, more than {limit}, the most for one event; store large content elsewhere and refer to it"
    )]
    TooLarge {
        /// The event.
        id: EventId,
        /// Its length in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// An event's JSON is nested deeper than [`MAX_EVENT_DEPTH`](crate::MAX_EVENT_DEPTH), so that no reader would read it back.
    #[error(
        "event {id} is nested {depth} deep, more than {limit}, the most that can be read back; store the value as JSON text"
    )]
    TooDeep {
        /// The event.
        id: EventId,
        /// Its depth.
        depth: usize,
        /// The limit.
        limit: usize,
    },
    /// An event could not be written as JSON.
    #[error("event {id} cannot be written as JSON")]
    Unwritable {
        /// The event.
        id: EventId,
        /// Why.
        source: serde_json::Error,
    },
    /// The session holds as many events as the format can number.
    #[error("session {0} is full: it holds 2^32 events, the most a session can number; go on in a new session")]
    SessionFull(SessionId),
    /// The file could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why something stored could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The log has no such session.
    #[error("no session {0} in this log")]
    NoSession(SessionId),
    /// The session has no such event.
    #[error("no event {id} in session {session}")]
    NoEvent {
        /// The session.
        session: SessionId,
        /// The event.
        id: EventId,
    },
    /// One event is not what was appended. `verify` lists all of them.
    #[error("event {position} of session {session} is damaged: {detail}")]
    Damaged {
        /// The session.
        session: SessionId,
        /// The event's position, from 0.
        position: u64,
        /// What is wrong; at most a short excerpt of the content.
        detail: String,
    },
    /// The file could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a call of the recall tool has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecallError {
    /// The arguments name neither one event nor one search.
    #[error("give either `event_id` or `search`, the latter with at least one letter or digit")]
    Arguments,
    /// The search failed.
    #[error(transparent)]
    Search(SearchError),
    /// The session could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a session was not exported, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The session could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output could not be written.
    #[error("the export could not be written")]
    Io(#[from] std::io::Error),
}

/// Why an exported session was not imported. Nothing of it is stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The input is something else.
    #[error("not an exported session: the first line does not say so")]
    NotAnExport,
    /// A newer build wrote the export.
    #[error("export version {found} is newer than {supported}, the newest this build reads; use a newer build")]
    Newer {
        /// The version of the export.
        found: u32,
        /// The newest version this build reads.
        supported: u32,
    },
    /// The log has this session.
    #[error("the log already has session {0}; import it into another log, or drop it first")]
    Exists(SessionId),
    /// A line cannot be read.
    #[error("line {line}: {detail}")]
    Line {
        /// The line, from 1.
        line: u64,
        /// What is wrong; at most a short excerpt of the content.
        detail: String,
    },
    /// The input ends before the export does.
    #[error("the export is cut short before line {line}; export it again")]
    CutShort {
        /// The line that is missing, from 1.
        line: u64,
    },
    /// The input could not be read.
    #[error("the export could not be read")]
    Io(#[from] std::io::Error),
    /// An event could not be appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The session could not be created.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why there is no backup. Nothing stands at its place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// A file is in the way.
    #[error("{}: there is a file already; name another, or remove it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The log could not be read, or the copy not written.
    #[error("{}: {source}", path.display())]
    Storage {
        /// The path of the copy.
        path: PathBuf,
        /// Why.
        source: StorageError,
    },
}

/// Why a session was not opened to its view.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The session is read by rules that this build does not have.
    #[error("session {session} is read by the rules {} version {}, which this build does not have; use a newer build", rules.name, rules.version)]
    Rules {
        /// The session.
        session: SessionId,
        /// Its rules.
        rules: RuleSet,
    },
    /// The session could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a condensation was not appended. Nothing is stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CondensationError {
    /// The decision no longer holds; decide again on the head as it is.
    #[error("the condensation was decided on {} and is stale: {reason}", shown(basis))]
    Stale {
        /// The session.
        session: SessionId,
        /// The event it was decided on.
        basis: Option<EventId>,
        /// Why it is stale.
        reason: Stale,
    },
    /// The event could not be appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// What came after the basis could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Why a condensation is stale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stale {
    /// The basis does not lie on the way to the head: it was moved.
    #[error("that event does not lie on the way to the head")]
    NotAnAncestor,
    /// Another condensation came after the basis.
    #[error("condensation {0} came after it")]
    Condensed(EventId),
    /// An undo came after the basis.
    #[error("undo {0} came after it")]
    Undone(EventId),
    /// This event, which the record lists, was pinned after the basis.
    #[error("event {0}, which it lists, was pinned after it")]
    Pinned(EventId),
}

/// Why an undo or a pin was not appended. Nothing is stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MarkError {
    /// No such condensation, or none at all, is in force on the active branch.
    #[error("{} on the active branch of session {session}", not_in_force(id))]
    NotInForce {
        /// The session.
        session: SessionId,
        /// The condensation that was named.
        id: Option<EventId>,
    },
    /// The event could not be appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The session could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn not_in_force(id: &Option<EventId>) -> String {
    match id {
        Some(id) => format!("no condensation {id} is in force"),
        None => "no condensation is in force".to_owned(),
    }
}

macro_rules! through {
    ($($error:ident: $by:ident),*) => {$(
        impl From<StorageError> for $error {
            fn from(error: StorageError) -> Self {
                Self::$by(error.into())
            }
        }

        impl From<rusqlite::Error> for $error {
            fn from(error: rusqlite::Error) -> Self {
                Self::$by(error.into())
            }
        }
    )*};
}
through!(CondensationError: Append, MarkError: Append, ExportError: Read);

/// Why a search gave nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// The query has no letters or digits.
    #[error("there is nothing to search for; give at least one word with a letter or a digit")]
    NoWords,
    /// The search index is damaged. The events are not.
    #[error("the search index is damaged; make it anew with `Log::drop_index`, or `condenser log index --rebuild`")]
    Index(#[source] Cause),
    /// The session, or what was found in it, could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl From<StorageError> for SearchError {
    fn from(error: StorageError) -> Self {
        Self::Read(error.into())
    }
}

impl From<rusqlite::Error> for SearchError {
    fn from(error: rusqlite::Error) -> Self {
        match &error {
            rusqlite::Error::SqliteFailure(code, _) if code.extended_code == SQLITE_CORRUPT_VTAB => {
                Self::Index(Cause::new(error))
            }
            _ => Self::Read(error.into()),
        }
    }
}

fn shown(id: &Option<EventId>) -> &str {
    id.as_ref().map_or("(none)", EventId::as_str)
}

macro_rules! from_sqlite {
    ($($error:ty),*) => {$(
        impl From<rusqlite::Error> for $error {
            fn from(error: rusqlite::Error) -> Self {
                Self::Storage(error.into())
            }
        }
    )*};
}
from_sqlite!(SessionError, AppendError, ReadError);
