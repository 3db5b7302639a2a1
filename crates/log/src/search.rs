//! Full-text search over the events of a session, forgotten ones included.
//!
//! The index is SQLite's FTS5, without a copy of the texts. An append never touches it: it is caught up by the first
//! search after, or by [`Log::index`].

use condenser::EventId;
use condenser::request::text_of;
use rusqlite::{Connection, OptionalExtension};

use crate::error::{ReadError, SearchError, StorageError};
use crate::header::kind_name;
use crate::log::{Log, SessionId, State, position, row_number};
use crate::read::{damaged, parse};

/// The most hits of one page.
pub const MAX_HITS: u32 = 100;

/// Events indexed in one transaction: a writer never waits for more.
const BATCH_EVENTS: i64 = 1000;
/// Bytes of bodies after which such a transaction ends.
const BATCH_BYTES: usize = 4 << 20;
/// Words of a snippet.
const SNIPPET_WORDS: i64 = 24;
/// Stands before the first match while its place is looked for. A text that contains it has no place.
const MARK: &str = "\u{1}\u{2}match\u{3}\u{1}";

const INDEX: &str = "CREATE VIRTUAL TABLE search USING fts5(text, content='', contentless_delete=1)";
const SHOWN: &str = "CREATE VIRTUAL TABLE IF NOT EXISTS temp.shown USING fts5(text)";

/// What to search for.
#[derive(Clone, Debug)]
pub struct Query {
    /// Words that must all occur, in any order and case, with or without accents. `"two words"` stand side by side,
    /// `compil*` is a beginning. Everything else is no syntax.
    pub words: String,
    /// Hits of a page, 1 to [`MAX_HITS`]; others are clamped.
    pub limit: u32,
    /// Hits to leave out, those of the pages before.
    pub offset: u32,
}

impl Query {
    /// The first page of ten.
    pub fn new(words: impl Into<String>) -> Self {
        Self { words: words.into(), limit: 10, offset: 0 }
    }
}

/// A page of hits, the best first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// The hits.
    pub hits: Vec<Hit>,
    /// Whether there is another page.
    pub has_more: bool,
    /// Events that were not searched: the log is open for reading only and its index is behind.
    pub not_indexed: u64,
}

/// An event that contains all the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The event.
    pub id: EventId,
    /// Its position in the session, from 0.
    pub position: u64,
    /// Its kind, as the JSON tag names it.
    pub kind: &'static str,
    /// The text around the matches, each between `[` and `]`.
    pub snippet: String,
    /// Where the first match begins, in bytes of what [`Log::text`] gives; `None` where it cannot be told.
    pub at: Option<u64>,
}

impl Log {
    /// Searches the texts of a session's events, on whatever branch, as [`Log::text`] gives them.
    ///
    /// Catches the index up first, unless the log is open for reading only: then [`Hits::not_indexed`] says what was
    /// not searched.
    pub fn search(&self, session: &SessionId, query: &Query) -> Result<Hits, SearchError> {
        let expression = expression(&query.words).ok_or(SearchError::NoWords)?;
        if !self.conn.is_readonly("main")? {
            self.index(session)?;
        }
        let state = self.state(session)?;
        let not_indexed = state.events.saturating_sub(indexed(&self.conn, state.number)?) as u64;
        let mut hits = Hits { not_indexed, ..Hits::default() };
        if !exists(&self.conn)? {
            return Ok(hits);
        }
        let limit = query.limit.clamp(1, MAX_HITS);
        let rows: Vec<i64> = {
            let mut statement = self.conn.prepare_cached(
                "SELECT rowid FROM search WHERE search MATCH ?1 AND rowid BETWEEN ?2 AND ?3 \
                 ORDER BY rank, rowid LIMIT ?4 OFFSET ?5",
            )?;
            let last = row_number(state.number, state.events) - 1;
            let bounds = (&expression, row_number(state.number, 0), last, limit + 1, query.offset);
            statement.query_map(bounds, |row| row.get(0))?.collect::<Result<_, _>>()?
        };
        hits.has_more = rows.len() > limit as usize;
        for row in rows.into_iter().take(limit as usize) {
            if let Some(hit) = self.hit(session, &state, row, &expression)? {
                hits.hits.push(hit);
            }
        }
        Ok(hits)
    }

    /// `None` where the event was dropped or erased since.
    fn hit(&self, session: &SessionId, state: &State, row: i64, expression: &str) -> Result<Option<Hit>, SearchError> {
        let at = position(state.number, row)?;
        let found = self
            .conn
            .prepare_cached(
                "SELECT e.id, e.kind, b.json FROM event e JOIN body b ON b.row = e.row \
                 WHERE e.row = ?1 AND b.erased IS NULL",
            )?
            .query_row([row], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, parse(row.get_ref(2)?))))
            .optional()?;
        let Some((id, kind, event)) = found else { return Ok(None) };
        let (event, _) = event.map_err(|detail| SearchError::Read(damaged(session, at, detail)))?;
        let text = text_of(&event.kind);
        let (snippet, marked) = self.shown(&text, expression)?;
        let place = if text.contains(MARK) { None } else { marked.find(MARK) };
        Ok(Some(Hit {
            id: id.into(),
            position: at as u64,
            kind: kind_name(kind),
            snippet,
            at: place.map(|place| place as u64),
        }))
    }

    /// The snippet of a matching text, and the text with [`MARK`] before each match.
    fn shown(&self, text: &str, expression: &str) -> Result<(String, String), StorageError> {
        self.conn.prepare_cached(SHOWN)?.execute([])?;
        let clear = || self.conn.prepare_cached("DELETE FROM temp.shown")?.execute([]);
        clear()?;
        self.conn.prepare_cached("INSERT INTO temp.shown (text) VALUES (?1)")?.execute([text])?;
        let shown = self
            .conn
            .prepare_cached(
                "SELECT snippet(shown, 0, '[', ']', '…', ?2), highlight(shown, 0, ?3, '') \
                 FROM temp.shown WHERE shown MATCH ?1",
            )?
            .query_row((expression, SNIPPET_WORDS, MARK), |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        clear()?;
        Ok(shown.unwrap_or_default())
    }

    /// Brings the search index of a session up to date; the number of events added.
    ///
    /// Works in short transactions, so that appends go on meanwhile.
    pub fn index(&self, session: &SessionId) -> Result<u64, ReadError> {
        let mut added = 0;
        loop {
            // Looking takes no lock: most searches find the index up to date.
            let state = self.state(session)?;
            if indexed(&self.conn, state.number)? >= state.events {
                return Ok(added);
            }
            let tx = self.write()?;
            let state = self.state(session)?;
            let from = indexed(&tx, state.number)?.min(state.events);
            if !exists(&tx)? {
                tx.execute_batch(INDEX)?;
            }
            let to = index_batch(&tx, &state, from)?;
            tx.prepare_cached("UPDATE session SET indexed = ?2 WHERE session = ?1")?.execute((state.number, to))?;
            tx.commit()?;
            added += (to - from) as u64;
        }
    }

    /// Drops the search index of all sessions. It is derived: the next search, or [`Log::index`], makes it anew.
    pub fn drop_index(&self) -> Result<(), StorageError> {
        let tx = self.write()?;
        tx.execute_batch("DROP TABLE IF EXISTS search; UPDATE session SET indexed = 0")?;
        Ok(tx.commit()?)
    }
}

/// Indexes events from a position on and returns the position after the last.
fn index_batch(conn: &Connection, state: &State, from: i64) -> Result<i64, ReadError> {
    let to = state.events.min(from + BATCH_EVENTS);
    let mut bodies =
        conn.prepare_cached("SELECT row, json FROM body WHERE row BETWEEN ?1 AND ?2 AND erased IS NULL ORDER BY row")?;
    let mut insert = conn.prepare_cached("INSERT INTO search (rowid, text) VALUES (?1, ?2)")?;
    let mut rows = bodies.query((row_number(state.number, from), row_number(state.number, to) - 1))?;
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        let at = position(state.number, number)?;
        // A damaged event is for `verify`; the others stay searchable.
        if let Ok((event, size)) = parse(row.get_ref(1)?) {
            bytes += size;
            let text = text_of(&event.kind);
            if !text.is_empty() {
                insert.execute((number, text))?;
            }
        }
        if bytes >= BATCH_BYTES {
            return Ok(at + 1);
        }
    }
    Ok(to)
}

/// How many events of a session the index covers.
fn indexed(conn: &Connection, session: i64) -> Result<i64, StorageError> {
    Ok(conn.prepare_cached("SELECT indexed FROM session WHERE session = ?1")?.query_row([session], |row| row.get(0))?)
}

fn exists(conn: &Connection) -> Result<bool, StorageError> {
    Ok(conn
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'search')")?
        .query_row([], |row| row.get(0))?)
}

/// Takes events out of the index, and their words out of the file.
pub(crate) fn remove(conn: &Connection, first: i64, last: i64) -> Result<(), StorageError> {
    if !exists(conn)? {
        return Ok(());
    }
    let removed = conn.execute("DELETE FROM search WHERE rowid BETWEEN ?1 AND ?2", (first, last))?;
    if removed > 0 {
        // Until segments are merged the words of a deleted event stay where they are.
        conn.execute("INSERT INTO search (search) VALUES ('optimize')", [])?;
    }
    Ok(())
}

/// The words as an FTS5 expression; `None` where there is nothing to search for.
fn expression(words: &str) -> Option<String> {
    let mut terms = Vec::new();
    for (n, part) in words.split('"').enumerate() {
        let quoted = n % 2 == 1;
        let parts: Vec<&str> = if quoted { vec![part] } else { part.split_whitespace().collect() };
        for term in parts {
            let (term, prefix) = match term.strip_suffix('*') {
                Some(term) if !quoted => (term, "*"),
                _ => (term, ""),
            };
            if term.chars().any(char::is_alphanumeric) {
                terms.push(format!("\"{}\"{prefix}", term.replace('\0', " ")));
            }
        }
    }
    (!terms.is_empty()).then(|| terms.join(" "))
}

#[cfg(test)]
mod tests {
    use super::expression;

    #[test]
    fn what_a_user_types_is_words_and_never_syntax() {
        for (typed, expected) in [
            ("one two", Some(r#""one" "two""#)),
            ("AND OR NOT NEAR(a, 2)", Some(r#""AND" "OR" "NOT" "NEAR(a," "2)""#)),
            (r#"say "two words" x"#, Some(r#""say" "two words" "x""#)),
            (r#"half "open phrase"#, Some(r#""half" "open phrase""#)),
            ("compil* text:x ^y a-b", Some(r#""compil"* "text:x" "^y" "a-b""#)),
            ("nul\0nul", Some("\"nul nul\"")),
            (" :: \"\" * ", None),
            ("", None),
        ] {
            assert_eq!(expression(typed).as_deref(), expected, "{typed:?}");
        }
    }
}
