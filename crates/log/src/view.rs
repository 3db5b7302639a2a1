//! From the log to a view: headers by the segment, bodies only of records.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use condenser::condensation::Rewrite;
use condenser::header::{Held, Numbers};
use condenser::{Class, EventId, Header, Names, Rules, View};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use serde::Deserialize;

use crate::error::{ReadError, ViewError};
use crate::header::{INTERIM, THINKING, class};
use crate::log::{Log, RuleSet, SessionId, position, row_number};
use crate::read::{NO_BODY, Run, damaged, excerpt};
use crate::segment::{self, SEGMENT, Segment};

/// The version of each rule set that this build has.
const RULES_VERSION: u32 = 1;

impl RuleSet {
    /// A rule set as this build has it.
    pub fn of(rules: Rules) -> Self {
        let name = serde_json::to_value(rules).ok().and_then(|name| name.as_str().map(str::to_owned));
        Self { name: name.unwrap_or_default(), version: RULES_VERSION }
    }

    /// The rules behind the name and version; `None` where this build has no such rules.
    pub fn rules(&self) -> Option<Rules> {
        let rules = serde_json::from_value(serde_json::Value::String(self.name.clone())).ok()?;
        (self.version == RULES_VERSION).then_some(rules)
    }
}

impl Log {
    /// The view of a session as of `head`, under the rules stored with the session; without `head`, of the session's
    /// head. Of the bodies it reads only those of condensations, undos, pins and unpins.
    pub fn view(&self, session: &SessionId, head: Option<&EventId>) -> Result<View, ViewError> {
        self.view_sized(session, head, None)
    }

    /// As [`view`](Self::view), with the sizes that [`Log::count_tokens`] stored for a counter.
    pub fn view_sized(
        &self,
        session: &SessionId,
        head: Option<&EventId>,
        counter: Option<&str>,
    ) -> Result<View, ViewError> {
        let info = self.session(session)?.ok_or_else(|| ReadError::NoSession(session.clone()))?;
        let rules = info
            .rules
            .rules()
            .ok_or_else(|| ViewError::Rules { session: session.clone(), rules: info.rules.clone() })?;
        let (names, headers) = self.interned_headers(session, head, counter)?;
        Ok(View::replay_headers(Arc::new(names), &headers, rules))
    }

    /// The headers from the root to `head` with their ids interned, for [`View::replay_headers`]; with the sizes
    /// stored for a counter, where one is named.
    pub fn interned_headers(
        &self,
        session: &SessionId,
        head: Option<&EventId>,
        counter: Option<&str>,
    ) -> Result<(Names, Vec<Header>), ReadError> {
        let (number, runs) = self.runs_to(session, head)?;
        let pieces = pieces(&self.conn, session, number, &runs)?;
        let counts = match counter {
            Some(counter) => self.token_counts(session, counter)?,
            None => Vec::new(),
        };
        let mut interner = Interner::new(session, counts, &pieces);
        pieces.iter().try_for_each(|piece| interner.piece(piece))?;
        let Interner { ids, calls, responses, numbers, .. } = interner;
        let mut resolver = Resolver::new(&ids);
        let mut held = Vec::new();
        for (at, numbers) in numbers.iter().filter(|(_, numbers)| has_record(numbers.class)) {
            held.push(resolver.held(&self.conn, session, number, *at, numbers)?);
        }
        let others = resolver.others;
        let event_names = ids.iter().copied().chain(others.iter().map(String::as_str));
        let names = Names::restore(event_names, calls.texts, responses.texts);
        let mut held = held.into_iter();
        let headers = numbers
            .into_iter()
            .map(|(at, numbers)| {
                let header = match has_record(numbers.class) {
                    true => held.next().and_then(|held| names.header_with(numbers, held)),
                    false => names.header_of(numbers),
                };
                header.ok_or_else(|| damaged(session, at, "its numbers are impossible".to_owned()))
            })
            .collect::<Result<_, ReadError>>()?;
        Ok((names, headers))
    }
}

fn has_record(class: Class) -> bool {
    matches!(class, Class::Condensation | Class::Undo | Class::Pin | Class::Unpin)
}

/// Consecutive events of a path.
enum Piece {
    /// Of a segment that begins at a position.
    Packed {
        segment: Arc<Segment>,
        first: i64,
        range: RangeInclusive<i64>,
        branch: i64,
    },
    Rows(Vec<HeaderRow>),
}

impl Piece {
    /// The most events it can have on the path.
    fn len(&self) -> usize {
        match self {
            Self::Packed { range, .. } => (range.end() - range.start() + 1) as usize,
            Self::Rows(rows) => rows.len(),
        }
    }
}

struct HeaderRow {
    position: i64,
    parent: Option<i64>,
    id: String,
    kind: i64,
    flags: i64,
    call: Option<String>,
    response: Option<String>,
}

/// Reads the headers of a path. No transaction is needed: what is on a path does not change.
fn pieces(conn: &Connection, session: &SessionId, number: i64, runs: &[Run]) -> Result<Vec<Piece>, ReadError> {
    let mut pieces = Vec::new();
    let mut newest: Option<(i64, Option<Arc<Segment>>)> = None;
    for run in runs {
        let mut from = run.next;
        while from <= run.last {
            let first = from / SEGMENT * SEGMENT;
            let to = run.last.min(first + SEGMENT - 1);
            if newest.as_ref().is_none_or(|(position, _)| *position != first) {
                newest = Some((first, segment::load(conn, number, first)?.map(Arc::new)));
            }
            let piece = match (&newest, run.branch) {
                (Some((_, Some(segment))), Some(branch)) => {
                    Piece::Packed { segment: Arc::clone(segment), first, range: from..=to, branch }
                }
                _ => Piece::Rows(rows(conn, session, number, run, from..=to)?),
            };
            pieces.push(piece);
            from = to + 1;
        }
    }
    Ok(pieces)
}

fn rows(
    conn: &Connection,
    session: &SessionId,
    number: i64,
    run: &Run,
    range: RangeInclusive<i64>,
) -> Result<Vec<HeaderRow>, ReadError> {
    let mut statement = conn.prepare_cached(
        "SELECT row, parent, id, kind, flags, call, response FROM event \
         WHERE row BETWEEN ?1 AND ?2 AND branch = ?3 ORDER BY row",
    )?;
    let (first, last) = (row_number(number, *range.start()), row_number(number, *range.end()));
    let rows = statement.query_map((first, last, run.branch), |row| {
        Ok(HeaderRow {
            position: row.get(0)?,
            parent: row.get(1)?,
            id: row.get(2)?,
            kind: row.get(3)?,
            flags: row.get(4)?,
            call: row.get(5)?,
            response: row.get(6)?,
        })
    })?;
    rows.map(|row| {
        let mut row = row.map_err(|error| damaged(session, *range.start(), excerpt(&error.to_string())))?;
        row.position = position(number, row.position)?;
        Ok(row)
    })
    .collect()
}

/// Distinct texts, numbered in the order in which they come.
struct Space<'a> {
    numbers: HashMap<&'a str, u32>,
    texts: Vec<&'a str>,
}

impl<'a> Space<'a> {
    fn with_capacity(n_texts: usize) -> Self {
        Self { numbers: HashMap::with_capacity(n_texts), texts: Vec::with_capacity(n_texts) }
    }

    fn number(&mut self, text: &'a str) -> u32 {
        match self.numbers.entry(text) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let number = self.texts.len() as u32;
                self.texts.push(text);
                *new.insert(number)
            }
        }
    }
}

/// Joins pieces to one numbering.
struct Interner<'a> {
    session: &'a SessionId,
    counts: std::iter::Peekable<std::vec::IntoIter<(u64, u32)>>,
    ids: Vec<&'a str>,
    calls: Space<'a>,
    responses: Space<'a>,
    /// With the position of each event.
    numbers: Vec<(i64, Numbers)>,
    previous: Option<i64>,
}

impl<'a> Interner<'a> {
    fn new(session: &'a SessionId, counts: Vec<(u64, u32)>, pieces: &[Piece]) -> Self {
        let n_events = pieces.iter().map(Piece::len).sum();
        Self {
            session,
            counts: counts.into_iter().peekable(),
            ids: Vec::with_capacity(n_events),
            calls: Space::with_capacity(n_events / 2),
            responses: Space::with_capacity(n_events / 2),
            numbers: Vec::with_capacity(n_events),
            previous: None,
        }
    }

    fn piece(&mut self, piece: &'a Piece) -> Result<(), ReadError> {
        match piece {
            Piece::Rows(rows) => rows.iter().try_for_each(|row| {
                let call = row.call.as_deref().map(|call| self.calls.number(call));
                let response = row.response.as_deref().map(|response| self.responses.number(response));
                self.event(row.position, row.parent, &row.id, row.kind, row.flags, call, response)
            }),
            Piece::Packed { segment, first, range, branch } => {
                let unreadable =
                    |session: &SessionId, at| damaged(session, at, "its packed header is unreadable".into());
                let calls = segment.calls().ok_or_else(|| unreadable(self.session, *first))?;
                let responses = segment.responses().ok_or_else(|| unreadable(self.session, *first))?;
                // A text is numbered when an event of this path first uses it.
                let (mut call_numbers, mut response_numbers) = (vec![None; calls.len()], vec![None; responses.len()]);
                for at in range.clone() {
                    let index = (at - first) as usize;
                    let event = (|| {
                        if segment.branch(index)? != *branch {
                            return Some(None);
                        }
                        let call = translate(segment.call(index)?, &calls, &mut call_numbers, &mut self.calls)?;
                        let response = translate(
                            segment.response(index)?,
                            &responses,
                            &mut response_numbers,
                            &mut self.responses,
                        )?;
                        let header = (segment.id(index)?, segment.kind(index)?, segment.flags(index)?);
                        Some(Some((segment.parent(index)?, header, call, response)))
                    })();
                    match event {
                        None => return Err(unreadable(self.session, at)),
                        Some(None) => {}
                        Some(Some((parent, (id, kind, flags), call, response))) => {
                            self.event(at, parent, id, kind, flags, call, response)?;
                        }
                    }
                }
                Ok(())
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of one row")]
    fn event(
        &mut self,
        at: i64,
        parent: Option<i64>,
        id: &'a str,
        kind: i64,
        flags: i64,
        call: Option<u32>,
        response: Option<u32>,
    ) -> Result<(), ReadError> {
        if parent != self.previous {
            return Err(damaged(self.session, at, "it does not follow the event before it".into()));
        }
        self.previous = Some(at);
        while self.counts.next_if(|(position, _)| *position < at as u64).is_some() {}
        let tokens = self.counts.next_if(|(position, _)| *position == at as u64).map(|(_, tokens)| tokens);
        let class = class(kind);
        let is_call = matches!(class, Class::Action | Class::Observation);
        self.numbers.push((
            at,
            Numbers {
                id: self.ids.len() as u32,
                call: call.filter(|_| is_call),
                response: response.filter(|_| class == Class::Action),
                class,
                thinking: class == Class::Action && flags & THINKING != 0,
                interim: class == Class::Observation && flags & INTERIM != 0,
                tokens,
            },
        ));
        self.ids.push(id);
        Ok(())
    }
}

/// The number in the whole path of a text that a segment numbers for itself; the outer `None` is a number too large.
fn translate<'a>(
    local: Option<usize>,
    texts: &[&'a str],
    numbers: &mut [Option<u32>],
    space: &mut Space<'a>,
) -> Option<Option<u32>> {
    let Some(local) = local else { return Some(None) };
    let number = numbers.get_mut(local)?;
    if number.is_none() {
        *number = Some(space.number(texts.get(local)?));
    }
    Some(*number)
}

/// Numbers the ids that records name: events by their place on the path, summaries and unknown ids after those.
///
/// A record nearly always names what came after the record before it, or was kept then. Looking only there first is
/// much faster than an index of all ids, which is made if it has to be.
struct Resolver<'a> {
    ids: &'a [&'a str],
    /// Ids before this place were added to `recent`.
    fed: usize,
    recent: HashMap<&'a str, u32>,
    all: Option<HashMap<&'a str, u32>>,
    /// Names that are no event on the path.
    others: Vec<String>,
    other_numbers: HashMap<String, u32>,
    /// Whether an event's id looks like a summary's.
    has_odd_ids: bool,
}

impl<'a> Resolver<'a> {
    fn new(ids: &'a [&'a str]) -> Self {
        Self {
            ids,
            fed: 0,
            recent: HashMap::new(),
            all: None,
            others: Vec::new(),
            other_numbers: HashMap::new(),
            has_odd_ids: ids.iter().any(|id| id.ends_with("-summary")),
        }
    }

    fn number(&mut self, id: &str, is_forgotten: bool) -> u32 {
        let recent = if is_forgotten { self.recent.remove(id) } else { self.recent.get(id).copied() };
        if let Some(number) = recent.or_else(|| self.other_numbers.get(id).copied()) {
            return number;
        }
        let ids = self.ids;
        let all = self.all.get_or_insert_with(|| ids.iter().enumerate().map(|(n, id)| (*id, n as u32)).collect());
        match all.get(id) {
            Some(number) => *number,
            None => self.other(id),
        }
    }

    fn other(&mut self, name: &str) -> u32 {
        let number = (self.ids.len() + self.others.len()) as u32;
        self.others.push(name.to_owned());
        self.other_numbers.insert(name.to_owned(), number);
        number
    }

    /// What the header of the event at `at` holds: a condensation, undo, pin or unpin.
    fn held(
        &mut self,
        conn: &Connection,
        session: &SessionId,
        number: i64,
        at: i64,
        numbers: &Numbers,
    ) -> Result<Held, ReadError> {
        for place in self.fed..numbers.id as usize {
            self.recent.insert(self.ids[place], place as u32);
        }
        self.fed = self.fed.max(numbers.id as usize);
        let json = body(conn, session, number, at)?;
        let fields: Fields<'_> =
            serde_json::from_slice(&json).map_err(|error| damaged(session, at, excerpt(&error.to_string())))?;
        if numbers.class != Class::Condensation {
            let ids = fields.condensation.into_iter().chain(fields.ids);
            return Ok(Held::Ids(ids.map(|id| self.number(&id.0, false)).collect()));
        }
        let rewrites =
            fields.rewrites.into_iter().map(|(id, rewrite)| (self.number(id.as_str(), false), rewrite)).collect();
        let mut forgotten: Vec<u32> = fields.forgotten_event_ids.iter().map(|id| self.number(&id.0, true)).collect();
        forgotten.sort_unstable();
        forgotten.dedup();
        let summary_name = format!("{}-summary", self.ids[numbers.id as usize]);
        let is_new = !self.has_odd_ids && !self.other_numbers.contains_key(&summary_name);
        let summary_id = if is_new { self.other(&summary_name) } else { self.number(&summary_name, false) };
        Ok(Held::Record { forgotten, rewrites, summary: fields.summary.zip(fields.summary_offset), summary_id })
    }
}

/// The fields of such a body that a view needs; the others are skipped unread.
#[derive(Deserialize)]
struct Fields<'j> {
    #[serde(default, borrow)]
    forgotten_event_ids: Vec<Text<'j>>,
    summary: Option<String>,
    summary_offset: Option<usize>,
    #[serde(default)]
    rewrites: BTreeMap<EventId, Rewrite>,
    #[serde(borrow)]
    condensation: Option<Text<'j>>,
    #[serde(default, borrow)]
    ids: Vec<Text<'j>>,
}

/// A text that is not copied where it stands in the JSON as it is.
#[derive(Deserialize)]
struct Text<'j>(#[serde(borrow)] Cow<'j, str>);

fn body(conn: &Connection, session: &SessionId, number: i64, at: i64) -> Result<Vec<u8>, ReadError> {
    let json = conn
        .prepare_cached("SELECT json FROM body WHERE row = ?1")?
        .query_row([row_number(number, at)], |row| match row.get_ref(0)? {
            ValueRef::Text(json) => Ok(Some(json.to_vec())),
            _ => Ok(None),
        })
        .optional()?
        .flatten();
    json.ok_or_else(|| damaged(session, at, NO_BODY.to_owned()))
}
