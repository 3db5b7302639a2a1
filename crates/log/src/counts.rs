//! Token counts, one per event and counter.

use condenser::event::{Event, EventId};
use condenser::tokens::Tokens;
use rusqlite::{Connection, OptionalExtension};

use crate::error::{ReadError, StorageError};
use crate::log::{Log, SessionId, State, position, row_number};
use crate::read::{damaged, parse};

/// Events counted between two writes.
const BATCH_EVENTS: usize = 1000;
/// Bytes of bodies after which such a batch ends.
const BATCH_BYTES: usize = 4 << 20;

impl Log {
    /// Counts the shown events of a session that have no size for this counter yet, and stores the sizes; how many
    /// were counted. After one append, that is one.
    ///
    /// `counter` names the counter with all that its sizes depend on; `size` is the size of an event as shown. No
    /// lock is held while it runs.
    pub fn count_tokens(
        &self,
        session: &SessionId,
        counter: &str,
        mut size: impl FnMut(&Event) -> Tokens,
    ) -> Result<u64, ReadError> {
        let mut counted = 0;
        loop {
            let state = self.state(session)?;
            let known = Counter::find(&self.conn, state.number, counter)?;
            let from = known.as_ref().map_or(0, |known| known.upto);
            if from >= state.events {
                return Ok(counted);
            }
            let (events, to) = self.uncounted(session, &state, known.as_ref(), from)?;
            let sizes: Vec<(i64, i64)> =
                events.iter().map(|(at, event)| (*at, i64::from(clamped(size(event))))).collect();
            let tx = self.write()?;
            let known = Counter::make(&tx, state.number, counter)?;
            for (at, tokens) in &sizes {
                tx.prepare_cached("INSERT OR REPLACE INTO count (counter, position, tokens) VALUES (?1, ?2, ?3)")?
                    .execute((known.counter, at, tokens))?;
            }
            tx.prepare_cached("UPDATE counter SET upto = ?2 WHERE counter = ?1")?.execute((known.counter, to))?;
            tx.commit()?;
            counted += sizes.len() as u64;
        }
    }

    /// The stored sizes of a session for a counter, as position and tokens, in order.
    pub fn token_counts(&self, session: &SessionId, counter: &str) -> Result<Vec<(u64, u32)>, ReadError> {
        let state = self.state(session)?;
        let Some(known) = Counter::find(&self.conn, state.number, counter)? else { return Ok(Vec::new()) };
        let mut statement =
            self.conn.prepare_cached("SELECT position, tokens FROM count WHERE counter = ?1 ORDER BY position")?;
        let counts = statement.query_map([known.counter], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(counts.collect::<Result<_, _>>()?)
    }

    /// The size of one event for a counter, where it is stored.
    pub fn token_count(&self, session: &SessionId, counter: &str, id: &EventId) -> Result<Option<Tokens>, ReadError> {
        let state = self.state(session)?;
        let tokens: Option<u64> = self
            .conn
            .prepare_cached(
                "SELECT n.tokens FROM counter c JOIN event e ON e.session = c.session AND e.id = ?3 \
                 JOIN count n ON n.counter = c.counter AND n.position = e.row - (c.session << 32) \
                 WHERE c.session = ?1 AND c.name = ?2",
            )?
            .query_row((state.number, counter, id.as_str()), |row| row.get(0))
            .optional()?;
        Ok(tokens.map(Tokens))
    }

    /// A batch of shown events without a size, and the position up to which there are no others.
    fn uncounted(
        &self,
        session: &SessionId,
        state: &State,
        known: Option<&Counter>,
        from: i64,
    ) -> Result<(Vec<(i64, Event)>, i64), ReadError> {
        let mut statement = self.conn.prepare_cached(
            "SELECT e.row, b.json FROM event e LEFT JOIN body b ON b.row = e.row \
             LEFT JOIN count n ON n.counter = ?3 AND n.position = e.row - (e.session << 32) \
             WHERE e.row BETWEEN ?1 AND ?2 AND e.kind <= 4 AND n.tokens IS NULL ORDER BY e.row",
        )?;
        let bounds = (row_number(state.number, from), row_number(state.number, state.events) - 1);
        let mut rows = statement.query((bounds.0, bounds.1, known.map(|known| known.counter)))?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let at = position(state.number, row.get(0)?)?;
            if events.len() == BATCH_EVENTS || bytes >= BATCH_BYTES {
                return Ok((events, at));
            }
            let (event, size) = parse(row.get_ref(1)?).map_err(|detail| damaged(session, at, detail))?;
            bytes += size;
            events.push((at, event));
        }
        Ok((events, state.events))
    }
}

fn clamped(tokens: Tokens) -> u32 {
    u32::try_from(tokens.0).unwrap_or(u32::MAX)
}

/// A counter of a session.
struct Counter {
    counter: i64,
    /// All shown events before this position have a size.
    upto: i64,
}

impl Counter {
    fn find(conn: &Connection, session: i64, name: &str) -> Result<Option<Self>, StorageError> {
        Ok(conn
            .prepare_cached("SELECT counter, upto FROM counter WHERE session = ?1 AND name = ?2")?
            .query_row((session, name), |row| Ok(Self { counter: row.get(0)?, upto: row.get(1)? }))
            .optional()?)
    }

    fn make(conn: &Connection, session: i64, name: &str) -> Result<Self, StorageError> {
        if let Some(known) = Self::find(conn, session, name)? {
            return Ok(known);
        }
        conn.execute("INSERT INTO counter (session, name, upto) VALUES (?1, ?2, 0)", (session, name))?;
        Ok(Self { counter: conn.last_insert_rowid(), upto: 0 })
    }
}

/// Forgets the sizes of an event whose text is no longer the one that was counted.
pub(crate) fn forget(conn: &Connection, session: i64, position: i64) -> Result<(), StorageError> {
    conn.execute(
        "DELETE FROM count WHERE position = ?2 AND counter IN (SELECT counter FROM counter WHERE session = ?1)",
        (session, position),
    )?;
    conn.execute("UPDATE counter SET upto = min(upto, ?2) WHERE session = ?1", (session, position))?;
    Ok(())
}

/// Drops all sizes of a session.
pub(crate) fn drop_session(conn: &Connection, session: i64) -> Result<(), StorageError> {
    conn.execute("DELETE FROM count WHERE counter IN (SELECT counter FROM counter WHERE session = ?1)", [session])?;
    conn.execute("DELETE FROM counter WHERE session = ?1", [session])?;
    Ok(())
}
