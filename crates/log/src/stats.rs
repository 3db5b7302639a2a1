//! What a log holds, in numbers.

use std::fs;

use crate::error::ReadError;
use crate::header::kind_name;
use crate::log::Log;

/// What a log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of the write-ahead log.
    pub wal_bytes: u64,
    /// Bytes of the file that are free for use again.
    pub free_bytes: u64,
    /// The journal mode, as SQLite granted it.
    pub journal: String,
    /// The format's version, major and minor.
    pub format: (u64, u64),
    /// The crate and version that created the file.
    pub creator: String,
    /// Sessions.
    pub sessions: u64,
    /// Sessions whose import did not come to its end.
    pub incomplete: u64,
    /// Branches of all sessions.
    pub branches: u64,
    /// Events of all sessions.
    pub events: u64,
    /// Events by kind, the most frequent first.
    pub kinds: Vec<(&'static str, u64)>,
    /// Bytes of the events' JSON.
    pub body_bytes: u64,
    /// Erased events.
    pub erased: u64,
    /// Events that the search index covers.
    pub indexed: u64,
    /// Stored token counts.
    pub token_counts: u64,
}

impl Log {
    /// Counts what the log holds. Reads the headers of all events and the sizes of their bodies.
    pub fn stats(&self) -> Result<Stats, ReadError> {
        let tx = self.conn.unchecked_transaction()?;
        let pragma = |name: &str| tx.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
        let page = pragma("page_size")?;
        let (free_bytes, major) = (pragma("freelist_count")?.saturating_mul(page), pragma("user_version")?);
        let (minor, creator) =
            tx.query_row("SELECT minor, creator FROM format", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (sessions, incomplete, branches, indexed) = tx.query_row(
            "SELECT count(*), count(*) FILTER (WHERE NOT complete), coalesce(sum(branches), 0), \
             coalesce(sum(indexed), 0) FROM session",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )?;
        let (body_bytes, erased) =
            tx.query_row("SELECT coalesce(sum(octet_length(json)), 0), count(erased) FROM body", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        let token_counts = tx.query_row("SELECT count(*) FROM count", [], |row| row.get(0))?;
        let mut statement = tx.prepare("SELECT kind, count(*) FROM event GROUP BY kind ORDER BY 2 DESC, 1")?;
        let kinds = statement.query_map([], |row| Ok((kind_name(row.get(0)?), row.get::<_, u64>(1)?)))?;
        let kinds: Vec<_> = kinds.collect::<Result<_, _>>()?;
        Ok(Stats {
            file_bytes: fs::metadata(self.path()).map_or(0, |metadata| metadata.len()),
            wal_bytes: self.wal_bytes(),
            free_bytes,
            journal: self.journal_mode().to_owned(),
            format: (major, minor),
            creator,
            sessions,
            incomplete,
            branches,
            events: kinds.iter().map(|(_, n)| n).sum(),
            kinds,
            body_bytes,
            erased,
            indexed,
            token_counts,
        })
    }
}
