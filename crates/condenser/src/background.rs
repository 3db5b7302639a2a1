//! Condensing while the agent goes on: a snapshot to decide on, and whether the record may still be appended.
//!
//! The host clones its view and its list of shared events, which is cheap, and lets the policy and the summarizer work
//! on them. Meanwhile it appends. A record decided on the snapshot counts entries from the front, so that what was
//! appended since keeps its place behind it.

use std::sync::Arc;

use crate::condensation::Condensation;
use crate::event::{Event, EventId, EventKind};
use crate::request::Bodies;

impl Bodies for Vec<Arc<Event>> {
    fn event(&self, seq: usize) -> Option<&Event> {
        self.get(seq).map(|event| &**event)
    }
}

/// Why a record can no longer be appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stale {
    /// The event that the record was decided on is not on the branch.
    #[error("the condensation was decided on event {0}, which is not on this branch")]
    OtherBranch(EventId),
    /// Another condensation came first.
    #[error("condensation {0} came first")]
    Condensed(EventId),
    /// A condensation was taken back meanwhile.
    #[error("event {0} took a condensation back meanwhile")]
    Undone(EventId),
    /// An event that the record changes was pinned meanwhile.
    #[error("event {0} was pinned meanwhile")]
    Pinned(EventId),
}

/// Whether a record may be appended to a branch that has grown since it was decided. Plain appends do no harm.
///
/// Reads the branch backwards to the record's basis; a record without one was decided on an empty branch.
///
/// # Errors
/// [`Stale`] where the basis is not on the branch, or a condensation, an undo or a pin of a listed event follows it.
pub fn check_fresh<'e, I>(record: &Condensation, branch: I) -> Result<(), Stale>
where
    I: IntoIterator<Item = &'e Event>,
    I::IntoIter: DoubleEndedIterator,
{
    let basis = record.provenance.as_ref().and_then(|provenance| provenance.basis.as_ref());
    for event in branch.into_iter().rev() {
        if Some(&event.id) == basis {
            return Ok(());
        }
        match &event.kind {
            EventKind::Condensation(_) => return Err(Stale::Condensed(event.id.clone())),
            EventKind::Undo(_) => return Err(Stale::Undone(event.id.clone())),
            EventKind::Pin(pin) => {
                let is_listed =
                    |id: &&EventId| record.forgotten_event_ids.contains(*id) || record.rewrites.contains_key(*id);
                if let Some(id) = pin.ids.iter().find(is_listed) {
                    return Err(Stale::Pinned(id.clone()));
                }
            }
            _ => {}
        }
    }
    basis.map_or(Ok(()), |basis| Err(Stale::OtherBranch(basis.clone())))
}
