//! Packed headers: what a view needs of [`SEGMENT`] consecutive events in one blob.
//!
//! A segment repeats the rows of `event` and is written by the append that completes it, so that a long session
//! opens without a row per event. The newest events, up to the next multiple of [`SEGMENT`], stand in rows alone.
//!
//! Little-endian: the number of events, of calls and of responses (`u32` each); columns, an entry an event: kind
//! (`u8`), flags (`u8`), branch (`u32`), parent (`u32`), call (`u16`), response (`u16`), where all bits set mean
//! none; the ends (`u32`) of the texts of ids, calls and responses; the texts. Calls and responses are numbered
//! within the segment.

use std::hash::BuildHasher as _;

use condenser::EventId;
use hashbrown::{DefaultHashBuilder, HashTable};
use rusqlite::{Connection, OptionalExtension};

use crate::error::StorageError;
use crate::log::row_number;

/// Events of one segment.
pub(crate) const SEGMENT: i64 = 1024;

const NO_PARENT: u32 = u32::MAX;
const NO_TEXT: u16 = u16::MAX;
/// Bytes of the three numbers at the beginning.
const HEAD: usize = 12;
/// Bytes an event takes, ends of texts included.
const WIDTH: usize = 1 + 1 + 4 + 4 + 2 + 2 + 4;

/// The header of one event as a segment, or a row, holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed<'a> {
    pub(crate) id: &'a str,
    pub(crate) kind: i64,
    pub(crate) flags: i64,
    pub(crate) branch: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) call: Option<&'a str>,
    pub(crate) response: Option<&'a str>,
}

/// Texts that are stored once and referred to by number.
#[derive(Debug, Default)]
struct Texts {
    numbers: HashTable<(u64, u16)>,
    hasher: DefaultHashBuilder,
    ends: Vec<u32>,
    text: String,
}

impl Texts {
    fn number(&mut self, text: Option<&str>) -> Option<u16> {
        let Some(text) = text else { return Some(NO_TEXT) };
        let wanted = self.hasher.hash_one(text);
        let is_it = |&(hash, number): &(u64, u16)| hash == wanted && self.get(number) == Some(text);
        if let Some((_, number)) = self.numbers.find(wanted, is_it) {
            return Some(*number);
        }
        let number = u16::try_from(self.ends.len()).ok().filter(|number| *number < NO_TEXT)?;
        self.numbers.insert_unique(wanted, (wanted, number), |&(hash, _)| hash);
        self.push(text)?;
        Some(number)
    }

    fn get(&self, number: u16) -> Option<&str> {
        let number = usize::from(number);
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.text.get(start as usize..*self.ends.get(number)? as usize)
    }

    fn push(&mut self, text: &str) -> Option<()> {
        self.text.push_str(text);
        self.ends.push(u32::try_from(self.text.len()).ok()?);
        Some(())
    }
}

/// Columns under construction.
#[derive(Debug, Default)]
struct Builder {
    n_events: u32,
    kinds: Vec<u8>,
    flags: Vec<u8>,
    branches: Vec<u8>,
    parents: Vec<u8>,
    calls: Vec<u8>,
    responses: Vec<u8>,
    ids: Texts,
    call_texts: Texts,
    response_texts: Texts,
}

impl Builder {
    /// `None` where a value does not fit: such a run of events stays in rows.
    fn push(&mut self, event: &Packed<'_>) -> Option<()> {
        self.n_events += 1;
        self.kinds.push(u8::try_from(event.kind).ok()?);
        self.flags.push(u8::try_from(event.flags).ok()?);
        self.branches.extend(u32::try_from(event.branch).ok()?.to_le_bytes());
        let parent = event.parent.map_or(Some(NO_PARENT), |parent| u32::try_from(parent).ok())?;
        self.parents.extend(parent.to_le_bytes());
        self.calls.extend(self.call_texts.number(event.call)?.to_le_bytes());
        self.responses.extend(self.response_texts.number(event.response)?.to_le_bytes());
        self.ids.push(event.id)
    }

    fn finish(self) -> Vec<u8> {
        let n_calls = self.call_texts.ends.len() as u32;
        let n_responses = self.response_texts.ends.len() as u32;
        let mut data = Vec::new();
        for number in [self.n_events, n_calls, n_responses] {
            data.extend(number.to_le_bytes());
        }
        for column in [self.kinds, self.flags, self.branches, self.parents, self.calls, self.responses] {
            data.extend(column);
        }
        let texts = [self.ids, self.call_texts, self.response_texts];
        data.extend(texts.iter().flat_map(|texts| &texts.ends).flat_map(|end| end.to_le_bytes()));
        texts.iter().for_each(|texts| data.extend(texts.text.as_bytes()));
        data
    }
}

/// A segment as read.
#[derive(Debug)]
pub(crate) struct Segment {
    /// All but the texts.
    data: Vec<u8>,
    texts: String,
    n_events: usize,
    n_calls: usize,
    n_responses: usize,
}

impl Segment {
    /// `None` where the blob is not a segment. What its columns say is checked where they are read.
    pub(crate) fn new(mut data: Vec<u8>) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?) as usize);
        let (n_events, n_calls, n_responses) = (number(0)?, number(4)?, number(8)?);
        if n_events != SEGMENT as usize || n_calls > n_events || n_responses > n_events {
            return None;
        }
        let begin = HEAD + n_events * WIDTH + 4 * (n_calls + n_responses);
        if data.len() < begin {
            return None;
        }
        let texts = String::from_utf8(data.split_off(begin)).ok()?;
        Some(Self { n_events, n_calls, n_responses, data, texts })
    }

    fn ends(&self) -> usize {
        HEAD + self.n_events * (WIDTH - 4)
    }

    fn u16_at(&self, column: usize, index: usize) -> Option<u16> {
        let at = HEAD + column * self.n_events + 2 * index;
        Some(u16::from_le_bytes(self.data.get(at..at + 2)?.try_into().ok()?))
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.data.get(at..at + 4)?.try_into().ok()?))
    }

    /// A text of the space whose ends begin after `before` others, and whose texts begin at `base`.
    fn text(&self, before: usize, base: usize, number: usize) -> Option<&str> {
        let end_at = |number: usize| self.u32_at(self.ends() + 4 * (before + number));
        let start = number.checked_sub(1).map_or(Some(0), end_at)? as usize;
        let end = end_at(number)? as usize;
        self.texts.get(base.checked_add(start)?..base.checked_add(end)?)
    }

    /// The bytes of all texts of the spaces before this one.
    fn base(&self, before: usize) -> Option<usize> {
        let mut base = 0usize;
        for (start, n) in [(0, self.n_events), (self.n_events, self.n_calls)] {
            if before > start && n > 0 {
                base = base.checked_add(self.u32_at(self.ends() + 4 * (start + n - 1))? as usize)?;
            }
        }
        Some(base)
    }

    /// The id of an event.
    pub(crate) fn id(&self, index: usize) -> Option<&str> {
        self.text(0, 0, index)
    }

    /// The texts of the calls, or of the responses, by number.
    pub(crate) fn calls(&self) -> Option<Vec<&str>> {
        let base = self.base(self.n_events)?;
        (0..self.n_calls).map(|number| self.text(self.n_events, base, number)).collect()
    }

    pub(crate) fn responses(&self) -> Option<Vec<&str>> {
        let before = self.n_events + self.n_calls;
        let base = self.base(before)?;
        (0..self.n_responses).map(|number| self.text(before, base, number)).collect()
    }

    /// All events, one `None` where one cannot be read.
    fn events(&self) -> Vec<Option<Packed<'_>>> {
        let calls = self.calls().unwrap_or_default();
        let responses = self.responses().unwrap_or_default();
        let event = |index| {
            Some(Packed {
                id: self.id(index)?,
                kind: self.kind(index)?,
                flags: self.flags(index)?,
                branch: self.branch(index)?,
                parent: self.parent(index)?,
                call: numbered(&calls, self.call(index)?)?,
                response: numbered(&responses, self.response(index)?)?,
            })
        };
        (0..self.n_events).map(event).collect()
    }

    pub(crate) fn kind(&self, index: usize) -> Option<i64> {
        self.data.get(HEAD + index).map(|kind| i64::from(*kind))
    }

    pub(crate) fn flags(&self, index: usize) -> Option<i64> {
        self.data.get(HEAD + self.n_events + index).map(|flags| i64::from(*flags))
    }

    pub(crate) fn branch(&self, index: usize) -> Option<i64> {
        self.u32_at(HEAD + 2 * self.n_events + 4 * index).map(i64::from)
    }

    /// The parent's position; the inner `None` is a root.
    pub(crate) fn parent(&self, index: usize) -> Option<Option<i64>> {
        let parent = self.u32_at(HEAD + 6 * self.n_events + 4 * index)?;
        Some((parent != NO_PARENT).then_some(i64::from(parent)))
    }

    /// The number of the call within the segment; the inner `None` is no call.
    pub(crate) fn call(&self, index: usize) -> Option<Option<usize>> {
        let call = self.u16_at(10, index)?;
        Some((call != NO_TEXT).then_some(usize::from(call)))
    }

    /// The number of the response within the segment.
    pub(crate) fn response(&self, index: usize) -> Option<Option<usize>> {
        let response = self.u16_at(12, index)?;
        Some((response != NO_TEXT).then_some(usize::from(response)))
    }
}

/// What stands for a text of this number; the inner `None` is no text.
pub(crate) fn numbered<T: Copy>(texts: &[T], number: Option<usize>) -> Option<Option<T>> {
    match number {
        Some(number) => texts.get(number).copied().map(Some),
        None => Some(None),
    }
}

/// The segment that begins at `position`, where it is complete.
pub(crate) fn load(conn: &Connection, session: i64, position: i64) -> Result<Option<Segment>, StorageError> {
    let data: Option<Vec<u8>> = conn
        .prepare_cached("SELECT data FROM segment WHERE row = ?1")?
        .query_row([row_number(session, position)], |row| row.get(0))
        .optional()?;
    data.map(|data| {
        Segment::new(data).ok_or_else(|| {
            StorageError::corrupt(format!("the packed headers from event {position} of session number {session}"))
        })
    })
    .transpose()
}

/// The events, by index, of which a stored segment says something else than the expected one, with their ids.
pub(crate) fn differences(stored: Option<Vec<u8>>, expected: Vec<u8>) -> Vec<(i64, Option<EventId>)> {
    if stored.as_ref() == Some(&expected) {
        return Vec::new();
    }
    let Some(expected) = Segment::new(expected) else { return vec![(0, None)] };
    let expected = expected.events();
    let stored = stored.and_then(Segment::new);
    let stored = stored.as_ref().map(Segment::events).unwrap_or_default();
    let mut found = Vec::new();
    for (index, event) in expected.iter().enumerate() {
        if stored.get(index) != Some(event) {
            found.push((index as i64, event.as_ref().map(|event| EventId::from(event.id))));
        }
    }
    // Some byte differs, if only one that stands for no event.
    if found.is_empty() {
        found.push((0, None));
    }
    found
}

/// Packs events as they are appended, and writes the segments that they complete.
///
/// It can be kept from one append to the next, so that most segments are written without reading their rows again.
#[derive(Debug)]
pub(crate) struct Packer {
    session: i64,
    next: i64,
    /// The events of the segment so far; `None` where they are not known from its beginning.
    builder: Option<Builder>,
}

impl Packer {
    /// Packs from the event at `next` on.
    pub(crate) fn new(session: i64, next: i64) -> Self {
        Self { session, next, builder: (next % SEGMENT == 0).then(Builder::default) }
    }

    /// Whether it has seen the events of this session up to the one before `next`, and no others.
    pub(crate) fn is_at(&self, session: i64, next: i64) -> bool {
        (self.session, self.next) == (session, next)
    }

    /// Takes up the next event, whose row is written.
    pub(crate) fn event(&mut self, conn: &Connection, event: &Packed<'_>) -> Result<(), StorageError> {
        self.next += 1;
        if self.builder.as_mut().is_some_and(|builder| builder.push(event).is_none()) {
            self.builder = None;
        }
        if self.next % SEGMENT == 0 {
            let first = self.next - SEGMENT;
            match self.builder.take() {
                Some(builder) => store(conn, self.session, first, &builder.finish())?,
                None => seal(conn, self.session, first)?,
            }
            self.builder = Some(Builder::default());
        }
        Ok(())
    }
}

fn store(conn: &Connection, session: i64, first: i64, data: &[u8]) -> Result<(), StorageError> {
    conn.prepare_cached("INSERT INTO segment (row, data) VALUES (?1, ?2)")?
        .execute((row_number(session, first), data))?;
    Ok(())
}

/// Writes the segment that begins at `first` from its rows, where they fit.
fn seal(conn: &Connection, session: i64, first: i64) -> Result<(), StorageError> {
    match pack(conn, session, first)? {
        Some(data) => store(conn, session, first, &data),
        None => Ok(()),
    }
}

/// Writes the segments of all sessions of a log that has none.
pub(crate) fn seal_all(conn: &Connection) -> Result<(), StorageError> {
    let mut statement = conn.prepare("SELECT session, events FROM session")?;
    let sessions = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let sessions: Vec<(i64, i64)> = sessions.collect::<Result<_, _>>()?;
    for (session, events) in sessions {
        for segment in 0..events / SEGMENT {
            seal(conn, session, segment * SEGMENT)?;
        }
    }
    Ok(())
}

/// The segment that begins at `first`, from its rows; `None` where they are not all there or do not fit.
pub(crate) fn pack(conn: &Connection, session: i64, first: i64) -> Result<Option<Vec<u8>>, StorageError> {
    let mut statement = conn.prepare_cached(
        "SELECT row, id, kind, flags, branch, parent, call, response FROM event WHERE row BETWEEN ?1 AND ?2 ORDER BY row",
    )?;
    let start = row_number(session, first);
    let not_text =
        || StorageError::corrupt(format!("an id after event {first} of session number {session} is no text"));
    let mut rows = statement.query((start, start + SEGMENT - 1))?;
    let mut builder = Builder::default();
    while let Some(row) = rows.next()? {
        let text = |column| row.get_ref(column).map(|value| value.as_str_or_null());
        let packed = Packed {
            id: row.get_ref(1)?.as_str().map_err(|_| not_text())?,
            kind: row.get(2)?,
            flags: row.get(3)?,
            branch: row.get(4)?,
            parent: row.get(5)?,
            call: text(6)?.map_err(|_| not_text())?,
            response: text(7)?.map_err(|_| not_text())?,
        };
        if row.get::<_, i64>(0)? != start + i64::from(builder.n_events) || builder.push(&packed).is_none() {
            return Ok(None);
        }
    }
    Ok((i64::from(builder.n_events) == SEGMENT).then(|| builder.finish()))
}
