//! From the log to a view: headers by the segment, bodies only of records.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use condenser::condensation::Rewrite;
use condenser::header::{Held, Numbers};
use condenser::{Class, EventId, Header, Names, Rules, View};
use hashbrown::HashMap;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use serde::Deserialize;

use crate::error::{ReadError, ViewError};
use crate::header::{INTERIM, THINKING, class};
use crate::log::{Log, RuleSet, SessionId, position, row_number};
use crate::read::{NO_BODY, Run, damaged, excerpt};
use crate::segment::{self, SEGMENT, Segment, numbered};

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
        let counts = match counter {
            Some(counter) => self.token_counts(session, counter)?,
            None => Vec::new(),
        };
        let mut interner = Interner::new(session, counts, &runs);
        read(&self.conn, session, number, &runs, |piece| interner.piece(piece))?;
        let Interner { mut names, mut headers, records, .. } = interner;
        let (held, others) = self.held(session, number, &names, &records)?;
        for other in others {
            names.add_event(&other);
        }
        for ((index, at, numbers), held) in records.into_iter().zip(held) {
            headers[index] = names.header_with(numbers, held).ok_or_else(|| impossible(session, at))?;
        }
        Ok((names, headers))
    }

    /// What the headers of records hold, and the names that are no event on the path, numbered after those that are.
    fn held(
        &self,
        session: &SessionId,
        number: i64,
        names: &Names,
        records: &[(usize, i64, Numbers)],
    ) -> Result<(Vec<Held>, Vec<String>), ReadError> {
        let mut resolver = Resolver::new(names);
        let held = records
            .iter()
            .map(|(_, at, numbers)| resolver.held(&self.conn, session, number, *at, numbers))
            .collect::<Result<_, _>>()?;
        Ok((held, resolver.others))
    }
}

fn impossible(session: &SessionId, at: i64) -> ReadError {
    damaged(session, at, "its numbers are impossible".to_owned())
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

struct HeaderRow {
    position: i64,
    parent: Option<i64>,
    id: String,
    kind: i64,
    flags: i64,
    call: Option<String>,
    response: Option<String>,
}

/// Hands on the headers of a path, piece by piece. No transaction is needed: what is on a path does not change.
fn read(
    conn: &Connection,
    session: &SessionId,
    number: i64,
    runs: &[Run],
    mut piece: impl FnMut(&Piece) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut newest: Option<(i64, Option<Arc<Segment>>)> = None;
    for run in runs {
        let mut from = run.next;
        while from <= run.last {
            let first = from / SEGMENT * SEGMENT;
            let to = run.last.min(first + SEGMENT - 1);
            if newest.as_ref().is_none_or(|(position, _)| *position != first) {
                newest = Some((first, segment::load(conn, number, first)?.map(Arc::new)));
            }
            piece(&match (&newest, run.branch) {
                (Some((_, Some(segment))), Some(branch)) => {
                    Piece::Packed { segment: Arc::clone(segment), first, range: from..=to, branch }
                }
                _ => Piece::Rows(rows(conn, session, number, run, from..=to)?),
            })?;
            from = to + 1;
        }
    }
    Ok(())
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

/// Joins pieces to one numbering.
struct Interner<'a> {
    session: &'a SessionId,
    counts: std::iter::Peekable<std::vec::IntoIter<(u64, u32)>>,
    names: Names,
    headers: Vec<Header>,
    /// What has a record or names ids: its place among the headers, where it is to be replaced, and its position.
    records: Vec<(usize, i64, Numbers)>,
    previous: Option<i64>,
}

/// The columns of one event, its call and response as numbers of the whole path.
struct Row<'a> {
    at: i64,
    parent: Option<i64>,
    id: &'a str,
    kind: i64,
    flags: i64,
    call: Option<u32>,
    response: Option<u32>,
}

impl<'a> Interner<'a> {
    fn new(session: &'a SessionId, counts: Vec<(u64, u32)>, runs: &[Run]) -> Self {
        // A damaged file may claim any number.
        let n_events: i64 = runs.iter().map(|run| (run.last + 1 - run.next).clamp(0, 1 << 20)).sum();
        Self {
            session,
            counts: counts.into_iter().peekable(),
            names: Names::default(),
            headers: Vec::with_capacity(n_events as usize),
            records: Vec::new(),
            previous: None,
        }
    }

    fn piece(&mut self, piece: &Piece) -> Result<(), ReadError> {
        match piece {
            Piece::Rows(rows) => rows.iter().try_for_each(|row| {
                let call = row.call.as_deref().map(|call| self.names.intern_call(call));
                let response = row.response.as_deref().map(|response| self.names.intern_response(response));
                self.event(Row {
                    at: row.position,
                    parent: row.parent,
                    id: &row.id,
                    kind: row.kind,
                    flags: row.flags,
                    call,
                    response,
                })
            }),
            Piece::Packed { segment, first, range, branch } => {
                let unreadable = |session, at| damaged(session, at, "its packed header is unreadable".into());
                let (Some(calls), Some(responses)) = (segment.calls(), segment.responses()) else {
                    return Err(unreadable(self.session, *first));
                };
                // Calls and responses of other branches are numbered too, which changes nothing.
                let calls: Vec<u32> = calls.iter().map(|call| self.names.intern_call(call)).collect();
                let responses: Vec<u32> =
                    responses.iter().map(|response| self.names.intern_response(response)).collect();
                for at in range.clone() {
                    let index = (at - first) as usize;
                    let row = || {
                        Some(Row {
                            at,
                            parent: segment.parent(index)?,
                            id: segment.id(index)?,
                            kind: segment.kind(index)?,
                            flags: segment.flags(index)?,
                            call: numbered(&calls, segment.call(index)?)?,
                            response: numbered(&responses, segment.response(index)?)?,
                        })
                    };
                    if segment.branch(index) != Some(*branch) {
                        continue;
                    }
                    self.event(row().ok_or_else(|| unreadable(self.session, at))?)?;
                }
                Ok(())
            }
        }
    }

    fn event(&mut self, row: Row<'_>) -> Result<(), ReadError> {
        if row.parent != self.previous {
            return Err(damaged(self.session, row.at, "it does not follow the event before it".into()));
        }
        self.previous = Some(row.at);
        let position = row.at as u64;
        while self.counts.next_if(|(counted, _)| *counted < position).is_some() {}
        let tokens = self.counts.next_if(|(counted, _)| *counted == position).map(|(_, tokens)| tokens);
        let class = class(row.kind);
        let is_call = matches!(class, Class::Action | Class::Observation);
        let numbers = Numbers {
            id: self.names.add_event(row.id),
            call: row.call.filter(|_| is_call),
            response: row.response.filter(|_| class == Class::Action),
            class,
            thinking: class == Class::Action && row.flags & THINKING != 0,
            interim: class == Class::Observation && row.flags & INTERIM != 0,
            tokens,
        };
        let mut plain = numbers;
        if has_record(class) {
            self.records.push((self.headers.len(), row.at, numbers));
            plain.class = Class::Other;
        }
        self.headers.push(self.names.header_of(plain).ok_or_else(|| impossible(self.session, row.at))?);
        Ok(())
    }
}

/// Numbers the ids that records name: events by their place on the path, summaries and unknown ids after those.
///
/// A record nearly always names events in their order, and those that came after the record before it, or were kept
/// then. Looking only there first is much faster than an index of all ids, which is made if it has to be.
struct Resolver<'a> {
    names: &'a Names,
    /// One more than the last event that a record named.
    next: u32,
    /// The record's own number.
    record: u32,
    /// Ids before this number were added to `recent`.
    fed: u32,
    recent: HashMap<&'a str, u32>,
    all: Option<HashMap<&'a str, u32>>,
    /// Names that are no event on the path.
    others: Vec<String>,
    other_numbers: HashMap<String, u32>,
    /// Whether an event's id looks like a summary's.
    has_odd_ids: bool,
}

impl<'a> Resolver<'a> {
    fn new(names: &'a Names) -> Self {
        Self {
            names,
            next: 0,
            record: 0,
            fed: 0,
            recent: HashMap::new(),
            all: None,
            others: Vec::new(),
            other_numbers: HashMap::new(),
            has_odd_ids: names.event_names().any(|id| id.ends_with("-summary")),
        }
    }

    fn number(&mut self, id: &str, is_forgotten: bool) -> u32 {
        let names = self.names;
        // Between two that are named there may be a record.
        if let Some(number) = [self.next, self.next + 1].into_iter().find(|next| names.event_name(*next) == Some(id)) {
            self.next = number + 1;
            return number;
        }
        if let Some(number) = self.other_numbers.get(id) {
            return *number;
        }
        for place in self.fed..self.record {
            self.recent.extend(names.event_name(place).map(|id| (id, place)));
        }
        self.fed = self.fed.max(self.record);
        let recent = if is_forgotten { self.recent.remove(id) } else { self.recent.get(id).copied() };
        if let Some(number) = recent {
            self.next = number + 1;
            return number;
        }
        let all = self.all.get_or_insert_with(|| (0..).zip(names.event_names()).map(|(n, id)| (id, n)).collect());
        match all.get(id) {
            Some(number) => *number,
            None => self.other(id),
        }
    }

    fn other(&mut self, name: &str) -> u32 {
        let number = (self.names.n_events() + self.others.len()) as u32;
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
        self.record = numbers.id;
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
        let summary_name = format!("{}-summary", self.names.event_name(numbers.id).unwrap_or_default());
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
