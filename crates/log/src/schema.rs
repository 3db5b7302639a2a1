//! The file format: tables, version, and what is checked when a file is opened.

use rusqlite::{Connection, Transaction, TransactionBehavior};

use crate::error::StorageError;
use crate::segment;

/// "COND" in SQLite's application id: what makes a database file an event log.
const APPLICATION_ID: i64 = 0x434f_4e44;

/// The format's major version, SQLite's `user_version`. A build reads its own major and migrates older ones.
pub(crate) const MAJOR: i64 = 2;

/// The format's minor version. It grows with additions that an older build of the same major may ignore.
pub(crate) const MINOR: i64 = 0;

const TABLES: &str = "
CREATE TABLE format (
    minor    INTEGER NOT NULL,
    creator  TEXT    NOT NULL,
    sessions INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE session (
    session       INTEGER PRIMARY KEY,
    id            TEXT    NOT NULL UNIQUE,
    name          TEXT    NOT NULL,
    created       INTEGER NOT NULL,
    rules         TEXT    NOT NULL,
    rules_version INTEGER NOT NULL,
    meta          TEXT    NOT NULL,
    events        INTEGER NOT NULL,
    branches      INTEGER NOT NULL,
    head          INTEGER,
    complete      INTEGER NOT NULL DEFAULT 1,
    indexed       INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE branch (
    session INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    fork    INTEGER,
    first   INTEGER NOT NULL,
    tip     INTEGER NOT NULL,
    PRIMARY KEY (session, branch)
) STRICT, WITHOUT ROWID;
CREATE TABLE event (
    row      INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    branch   INTEGER NOT NULL,
    parent   INTEGER,
    id       TEXT    NOT NULL,
    kind     INTEGER NOT NULL,
    flags    INTEGER NOT NULL,
    call     TEXT,
    response TEXT,
    UNIQUE (session, id)
) STRICT;
CREATE TABLE body (
    row    INTEGER PRIMARY KEY,
    hash   BLOB NOT NULL,
    json   TEXT NOT NULL,
    erased BLOB
) STRICT;
CREATE TABLE segment (
    row  INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE counter (
    counter INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    upto    INTEGER NOT NULL,
    UNIQUE (session, name)
) STRICT;
CREATE TABLE count (
    counter  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    PRIMARY KEY (counter, position)
) STRICT, WITHOUT ROWID;
";

/// From format 1 to 2. The tables are written out again, since a later format changes those above and not this step.
///
/// Format 1 kept the texts of ids in a table of their own, and had no packed headers, counts or erased bodies.
const FROM_1: &str = "
ALTER TABLE format ADD COLUMN sessions INTEGER NOT NULL DEFAULT 0;
UPDATE format SET sessions = (SELECT coalesce(max(session), 0) FROM session);
ALTER TABLE session ADD COLUMN complete INTEGER NOT NULL DEFAULT 1;
ALTER TABLE session ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE body ADD COLUMN erased BLOB;
ALTER TABLE event RENAME TO event_1;
CREATE TABLE event (
    row      INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    branch   INTEGER NOT NULL,
    parent   INTEGER,
    id       TEXT    NOT NULL,
    kind     INTEGER NOT NULL,
    flags    INTEGER NOT NULL,
    call     TEXT,
    response TEXT,
    UNIQUE (session, id)
) STRICT;
INSERT INTO event
    SELECT e.row, e.session, e.branch, e.parent, i.text, e.kind, e.flags, c.text, r.text
    FROM event_1 e LEFT JOIN name i ON i.name = e.id
    LEFT JOIN name c ON c.name = e.call LEFT JOIN name r ON r.name = e.response
    ORDER BY e.row;
DROP TABLE event_1;
DROP TABLE name;
CREATE TABLE segment (
    row  INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;
CREATE TABLE counter (
    counter INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    upto    INTEGER NOT NULL,
    UNIQUE (session, name)
) STRICT;
CREATE TABLE count (
    counter  INTEGER NOT NULL,
    position INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    PRIMARY KEY (counter, position)
) STRICT, WITHOUT ROWID;
";

/// What a database file turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// No tables and no marks: a new file.
    Empty,
    /// A log of the major version of this build.
    Current,
    /// A log of a newer major version.
    Newer(i64),
    /// A log of an older major version.
    Older(i64),
    /// Something else.
    Foreign(String),
}

/// Reads the marks of a database file and changes nothing.
pub(crate) fn format(conn: &Connection) -> rusqlite::Result<Format> {
    // All marks from one moment: another process may be creating the tables.
    let moment = if conn.is_autocommit() { Some(conn.unchecked_transaction()?) } else { None };
    let application: i64 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let major: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if let Some(moment) = moment {
        moment.commit()?;
    }
    Ok(match (application, major) {
        (0, 0) if tables == 0 => Format::Empty,
        (APPLICATION_ID, MAJOR) => Format::Current,
        (APPLICATION_ID, newer) if newer > MAJOR => Format::Newer(newer),
        (APPLICATION_ID, older) => Format::Older(older),
        _ => Format::Foreign(format!("a database with application id {application} and {tables} tables and indices")),
    })
}

/// Creates the tables, unless another process did so since the caller looked.
pub(crate) fn create(conn: &Connection) -> rusqlite::Result<()> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    if format(&tx)? == Format::Empty {
        tx.execute_batch(TABLES)?;
        tx.execute(
            "INSERT INTO format (minor, creator) VALUES (?1, ?2)",
            (MINOR, concat!("condenser-log ", env!("CARGO_PKG_VERSION"))),
        )?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", MAJOR)?;
    }
    tx.commit()
}

/// Whether a log of this major version can be brought to the one of this build.
pub(crate) fn can_migrate(found: i64) -> bool {
    (1..MAJOR).contains(&found)
}

/// Brings a log of an older major version to the one of this build, in one transaction.
///
/// Does nothing where another process was faster. Migrations go forward only, a step per major version.
pub(crate) fn migrate(conn: &Connection) -> Result<(), StorageError> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    while let Format::Older(found) = format(&tx)? {
        match found {
            1 => {
                tx.execute_batch(FROM_1)?;
                segment::seal_all(&tx)?;
            }
            _ => return Ok(()),
        }
        tx.pragma_update(None, "user_version", found + 1)?;
        tx.execute("UPDATE format SET minor = 0", [])?;
    }
    Ok(tx.commit()?)
}
