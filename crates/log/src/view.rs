//! From the log to a view: headers by the segment, bodies only of records.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use condenser::condensation::{Condensation, Rewrite};
use condenser::header::Numbers;
use condenser::{Class, EventHeader, EventId, Header, Names, Rules, View};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use serde::Deserialize;

use crate::error::{ReadError, StorageError, ViewError};
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
        let mut interner = Interner::new(session, counts);
        pieces.iter().try_for_each(|piece| interner.piece(piece))?;
        let Interner { ids, calls, responses, numbers, .. } = interner;
        let record_ids: Vec<String> = numbers
            .iter()
            .filter(|(_, numbers)| has_record(numbers.class))
            .map(|(_, numbers)| ids[numbers.id as usize].to_owned())
            .collect();
        let mut names = Names::restore(ids, calls.texts, responses.texts);
        let mut record_ids = record_ids.into_iter();
        let headers = numbers
            .into_iter()
            .map(|(at, numbers)| {
                let header = if has_record(numbers.class) {
                    let id = record_ids.next().unwrap_or_default();
                    Some(names.header(&record(&self.conn, session, number, at, id, numbers.class)?))
                } else {
                    names.header_of(numbers)
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
#[derive(Default)]
struct Space<'a> {
    numbers: HashMap<&'a str, u32>,
    texts: Vec<&'a str>,
}

impl<'a> Space<'a> {
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
    fn new(session: &'a SessionId, counts: Vec<(u64, u32)>) -> Self {
        Self {
            session,
            counts: counts.into_iter().peekable(),
            ids: Vec::new(),
            calls: Space::default(),
            responses: Space::default(),
            numbers: Vec::new(),
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

/// What a view needs of a condensation, undo, pin or unpin.
struct Record {
    id: String,
    class: Class,
    record: Condensation,
    named: Vec<EventId>,
}

impl EventHeader for Record {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> Class {
        self.class
    }

    fn condensation(&self) -> Option<&Condensation> {
        (self.class == Class::Condensation).then_some(&self.record)
    }

    fn named_ids(&self, visit: &mut dyn FnMut(&str)) {
        self.named.iter().for_each(|id| visit(id.as_str()));
    }
}

/// The fields of such a body that a view needs; the others are skipped unread.
#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    forgotten_event_ids: Vec<EventId>,
    summary: Option<String>,
    summary_offset: Option<usize>,
    #[serde(default)]
    rewrites: BTreeMap<EventId, Rewrite>,
    condensation: Option<EventId>,
    #[serde(default)]
    ids: Vec<EventId>,
}

fn record(
    conn: &Connection,
    session: &SessionId,
    number: i64,
    at: i64,
    id: String,
    class: Class,
) -> Result<Record, ReadError> {
    let damaged = |detail| damaged(session, at, detail);
    let fields = conn
        .prepare_cached("SELECT json FROM body WHERE row = ?1")?
        .query_row([row_number(number, at)], |row| {
            Ok(match row.get_ref(0)? {
                ValueRef::Text(json) => {
                    serde_json::from_slice::<Fields>(json).map_err(|error| excerpt(&error.to_string()))
                }
                _ => Err(NO_BODY.to_owned()),
            })
        })
        .optional()
        .map_err(StorageError::from)?
        .unwrap_or_else(|| Err(NO_BODY.to_owned()))
        .map_err(damaged)?;
    let named = fields.condensation.into_iter().chain(fields.ids).collect();
    let record = Condensation {
        forgotten_event_ids: fields.forgotten_event_ids.into_iter().collect(),
        summary: fields.summary,
        summary_offset: fields.summary_offset,
        rewrites: fields.rewrites,
        ..Condensation::default()
    };
    Ok(Record { id, class, record, named })
}
