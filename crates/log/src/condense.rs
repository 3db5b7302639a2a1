//! What is appended about other events: condensations, undos and pins.

use std::collections::BTreeSet;

use condenser::condensation::Condensation;
use condenser::event::{Event, EventId, EventKind, Pin, Source, Undo};
use rusqlite::Connection;

use crate::append::{Body, Writer};
use crate::error::{CondensationError, MarkError, ReadError, Stale, StorageError};
use crate::header::{ACTION, CONDENSATION, CONDENSATION_FAILED, MESSAGE, PIN, UNDO};
use crate::id::timestamp;
use crate::log::{Log, SessionId, State, find, position, row_number};
use crate::read::{Run, damaged, parse, run_to};

impl Log {
    /// Appends a condensation after the head, with an id and a time; `basis` is the event it was decided on, `None`
    /// the very beginning.
    ///
    /// No lock is needed while a summary is written: what was appended meanwhile stays visible. Only what makes the
    /// decision wrong is refused, as [`CondensationError::Stale`]: the basis is no longer on the way to the head, or
    /// a condensation, an undo, or a pin of an event that the record lists came after it.
    pub fn append_condensation(
        &self,
        session: &SessionId,
        record: &Condensation,
        basis: Option<&EventId>,
    ) -> Result<EventId, CondensationError> {
        let event = self.stamped(EventKind::Condensation(record.clone()))?;
        let body = Body::of(&event)?;
        let tx = self.write()?;
        let mut writer = Writer::new(&tx, session)?;
        let listed: BTreeSet<&EventId> = record.forgotten_event_ids.iter().chain(record.rewrites.keys()).collect();
        if let Some(reason) = staleness(&tx, session, &writer.state, basis, &listed)? {
            return Err(CondensationError::Stale { session: session.clone(), basis: basis.cloned(), reason });
        }
        writer.event(&event, &body)?;
        writer.finish()?;
        tx.commit()?;
        Ok(event.id)
    }

    /// Takes a condensation back, by an appended event: views show again what it had hidden.
    ///
    /// Without an id, the newest condensation in force on the active branch. The condensation that was taken back,
    /// and the new event.
    pub fn undo(&self, session: &SessionId, condensation: Option<&EventId>) -> Result<(EventId, EventId), MarkError> {
        let mut in_force = self.condensations(session)?;
        let condensation = match condensation {
            Some(id) if in_force.contains(id) => id.clone(),
            None if !in_force.is_empty() => in_force.swap_remove(in_force.len() - 1),
            id => return Err(MarkError::NotInForce { session: session.clone(), id: id.cloned() }),
        };
        let undo = self.stamped(EventKind::Undo(Undo { condensation: condensation.clone() }))?;
        self.append(session, std::slice::from_ref(&undo))?;
        Ok((condensation, undo.id))
    }

    /// Pins events, so that no policy may forget or rewrite them; the new event.
    pub fn pin(&self, session: &SessionId, ids: &[EventId]) -> Result<EventId, MarkError> {
        self.append_pin(session, ids, EventKind::Pin)
    }

    /// Takes pins back; the new event.
    pub fn unpin(&self, session: &SessionId, ids: &[EventId]) -> Result<EventId, MarkError> {
        self.append_pin(session, ids, EventKind::Unpin)
    }

    fn append_pin(
        &self,
        session: &SessionId,
        ids: &[EventId],
        kind: fn(Pin) -> EventKind,
    ) -> Result<EventId, MarkError> {
        let state = self.state(session)?;
        for id in ids {
            // A summary is an entry too, and its id is made of its condensation's.
            let event = id.as_str().strip_suffix("-summary").map(EventId::from);
            let known = |id: &EventId| find(&self.conn, state.number, id).map(|found| found.is_some());
            if !known(id)? && !event.as_ref().map_or(Ok(false), known)? {
                return Err(ReadError::NoEvent { session: session.clone(), id: id.clone() }.into());
            }
        }
        let event = self.stamped(kind(Pin { ids: ids.to_vec() }))?;
        self.append(session, std::slice::from_ref(&event))?;
        Ok(event.id)
    }

    /// The condensations in force on the active branch, oldest first: those that no undo there names.
    pub fn condensations(&self, session: &SessionId) -> Result<Vec<EventId>, ReadError> {
        let tx = self.conn.unchecked_transaction()?;
        let state = self.state(session)?;
        let (mut found, mut undone) = (Vec::new(), BTreeSet::new());
        let mut next = state.head;
        while let Some(last) = next {
            let (run, fork) = run_to(&tx, state.number, last)?;
            for mark in marks(&tx, session, &state, &run, run.next)?.into_iter().rev() {
                match mark.kind {
                    EventKind::Undo(undo) => {
                        undone.insert(undo.condensation);
                    }
                    EventKind::Condensation(_) if !undone.contains(&mark.id) => found.push(mark.id),
                    _ => {}
                }
            }
            next = fork;
        }
        found.reverse();
        Ok(found)
    }

    /// How many condensations failed on the active branch since the newest condensation or the newest answer of the
    /// model. The events are in the log, so the count survives a restart.
    pub fn failed_attempts(&self, session: &SessionId) -> Result<u64, ReadError> {
        let tx = self.conn.unchecked_transaction()?;
        let state = self.state(session)?;
        let mut failed = 0;
        let mut next = state.head;
        while let Some(last) = next {
            let (run, fork) = run_to(&tx, state.number, last)?;
            let mut statement = tx.prepare_cached(
                "SELECT e.kind, CASE WHEN e.kind = ?4 THEN b.json END FROM event e LEFT JOIN body b ON b.row = e.row \
                 WHERE e.row BETWEEN ?1 AND ?2 AND e.branch = ?3 ORDER BY e.row DESC",
            )?;
            let bounds = (row_number(state.number, run.next), row_number(state.number, last), run.branch, MESSAGE);
            let mut rows = statement.query(bounds)?;
            while let Some(row) = rows.next()? {
                match row.get(0)? {
                    CONDENSATION_FAILED => failed += 1,
                    CONDENSATION | ACTION => return Ok(failed),
                    MESSAGE if parse(row.get_ref(1)?).is_ok_and(|(event, _)| event.source == Source::Agent) => {
                        return Ok(failed);
                    }
                    _ => {}
                }
            }
            next = fork;
        }
        Ok(failed)
    }

    /// An event of this log's own making.
    fn stamped(&self, kind: EventKind) -> Result<Event, StorageError> {
        let mut event = Event::new(self.new_event_id()?, Source::Environment, kind);
        event.timestamp = Some(timestamp(self.now_ms()));
        Ok(event)
    }
}

/// Why a decision made on `basis` no longer holds; `None` where it does.
fn staleness(
    conn: &Connection,
    session: &SessionId,
    state: &State,
    basis: Option<&EventId>,
    listed: &BTreeSet<&EventId>,
) -> Result<Option<Stale>, CondensationError> {
    let basis = match basis {
        None => None,
        Some(id) => match find(conn, state.number, id)? {
            Some(basis) => Some(basis),
            None => return Ok(Some(Stale::NotAnAncestor)),
        },
    };
    let mut next = state.head;
    // Positions fall along the path, so that the basis is passed at most once.
    while let Some(last) = next.filter(|last| basis.is_none_or(|basis| *last >= basis)) {
        let (run, fork) = run_to(conn, state.number, last)?;
        let basis_here = match basis {
            Some(basis) if basis >= run.next => Some(run_to(conn, state.number, basis)?.0.branch == run.branch),
            _ => None,
        };
        if basis_here == Some(false) {
            return Ok(Some(Stale::NotAnAncestor));
        }
        let from = basis.filter(|_| basis_here.is_some()).map_or(run.next, |basis| basis + 1);
        for mark in marks(conn, session, state, &run, from)? {
            let reason = match mark.kind {
                EventKind::Condensation(_) => Stale::Condensed(mark.id),
                EventKind::Undo(_) => Stale::Undone(mark.id),
                EventKind::Pin(pin) => match pin.ids.into_iter().find(|id| listed.contains(id)) {
                    Some(id) => Stale::Pinned(id),
                    None => continue,
                },
                _ => continue,
            };
            return Ok(Some(reason));
        }
        if basis_here.is_some() {
            return Ok(None);
        }
        next = fork;
    }
    Ok(if basis.is_some() { Some(Stale::NotAnAncestor) } else { None })
}

/// The condensations, undos and pins of a run from a position on, oldest first.
fn marks(conn: &Connection, session: &SessionId, state: &State, run: &Run, from: i64) -> Result<Vec<Event>, ReadError> {
    let mut statement = conn.prepare_cached(
        "SELECT e.row, b.json FROM event e LEFT JOIN body b ON b.row = e.row \
         WHERE e.row BETWEEN ?1 AND ?2 AND e.branch = ?3 AND e.kind IN (?4, ?5, ?6) ORDER BY e.row",
    )?;
    let (first, last) = (row_number(state.number, from), row_number(state.number, run.last));
    let mut rows = statement.query((first, last, run.branch, CONDENSATION, UNDO, PIN))?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        let at = position(state.number, row.get(0)?)?;
        let (event, _) = parse(row.get_ref(1)?).map_err(|detail| damaged(session, at, detail))?;
        events.push(event);
    }
    Ok(events)
}
