//! What differs between two views of one log.

use std::collections::{HashMap, HashSet};

use super::View;
use crate::condensation::RewriteOp;
use crate::event::EventId;

/// What differs between two views.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewDiff {
    /// Entries that only the first view shows, in its order.
    pub left: Vec<EventId>,
    /// Entries that only the second view shows, in its order; summaries included.
    pub came: Vec<EventId>,
    /// Entries of both views with other content, in the order of the second.
    pub rewritten: Vec<EventId>,
    /// How many entries at the beginning are the same in both, content included: what a prefix cache keeps.
    pub common_prefix: usize,
}

impl ViewDiff {
    /// Whether both views show the same entries with the same content. Their order is told by
    /// [`ViewDiff::common_prefix`].
    pub fn is_empty(&self) -> bool {
        self.left.is_empty() && self.came.is_empty() && self.rewritten.is_empty()
    }
}

/// What an entry shows: the event or record it comes from, its rewriting, its summary.
type Content<'v> = (usize, Option<&'v RewriteOp>, Option<&'v str>);

impl View {
    /// What differs in `other`, a view of the same log or of another branch of it.
    ///
    /// Entries are matched by id, and compared without their bodies: by place in the log, rewriting and summary.
    /// Linear in both views.
    pub fn diff(&self, other: &View) -> ViewDiff {
        fn contents(view: &View) -> impl Iterator<Item = (&EventId, Content<'_>)> {
            view.iter().map(|entry| {
                (entry.id(), (entry.seq(), entry.rewrite().map(|(rewrite, _)| &rewrite.op), entry.summary()))
            })
        }
        let common_prefix = contents(self).zip(contents(other)).take_while(|(a, b)| a == b).count();
        let before: HashMap<&EventId, Content<'_>> = contents(self).skip(common_prefix).collect();
        let mut diff = ViewDiff { common_prefix, ..ViewDiff::default() };
        let mut kept = HashSet::new();
        for (id, content) in contents(other).skip(common_prefix) {
            kept.insert(id);
            match before.get(id) {
                None => diff.came.push(id.clone()),
                Some(old) if *old != content => diff.rewritten.push(id.clone()),
                Some(_) => {}
            }
        }
        diff.left =
            contents(self).skip(common_prefix).map(|(id, _)| id).filter(|id| !kept.contains(id)).cloned().collect();
        diff
    }
}
