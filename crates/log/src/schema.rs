//! The file format: tables, version, and what is checked when a file is opened.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// "COND" in SQLite's application id: what makes a database file an event log.
const APPLICATION_ID: i64 = 0x434f_4e44;

/// The format's major version, SQLite's `user_version`. A build reads its own major and migrates older ones.
pub(crate) const MAJOR: i64 = 1;

/// The format's minor version. It grows with additions that an older build of the same major may ignore.
pub(crate) const MINOR: i64 = 0;

const TABLES: &str = "
CREATE TABLE format (
    minor   INTEGER NOT NULL,
    creator TEXT    NOT NULL
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
    head          INTEGER
) STRICT;
CREATE TABLE branch (
    session INTEGER NOT NULL,
    branch  INTEGER NOT NULL,
    fork    INTEGER,
    first   INTEGER NOT NULL,
    tip     INTEGER NOT NULL,
    PRIMARY KEY (session, branch)
) STRICT, WITHOUT ROWID;
CREATE TABLE name (
    name INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE event (
    row      INTEGER PRIMARY KEY,
    session  INTEGER NOT NULL,
    branch   INTEGER NOT NULL,
    parent   INTEGER,
    id       INTEGER NOT NULL,
    kind     INTEGER NOT NULL,
    flags    INTEGER NOT NULL,
    call     INTEGER,
    response INTEGER,
    UNIQUE (id, session)
) STRICT;
CREATE TABLE body (
    row  INTEGER PRIMARY KEY,
    hash BLOB NOT NULL,
    json TEXT NOT NULL
) STRICT;
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
    /// A log of a major version with no migration.
    TooOld(i64),
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
        (APPLICATION_ID, older) => Format::TooOld(older),
        _ => Format::Foreign(format!("a database with application id {application} and {tables} tables and indices")),
    })
}

/// Creates the tables, unless another process did so since the caller looked.
pub(crate) fn create(conn: &Connection) -> rusqlite::Result<()> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    if format(&tx)? == Format::Empty {
        tx.execute_batch(TABLES)?;
        tx.execute(
            "INSERT INTO format VALUES (?1, ?2)",
            (MINOR, concat!("condenser-log ", env!("CARGO_PKG_VERSION"))),
        )?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", MAJOR)?;
    }
    tx.commit()
}
