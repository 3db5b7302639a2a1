//! Branches: the log as a tree, and the path that a view replays.
//!
//! The log is append-only; `parent` makes it a tree. An event without a parent follows the one before it in the
//! log, so a log from before branching is one line; [`ROOT`] as parent begins a new tree. The rules are those of the
//! OpenHands SDK 1.58.2; cycles and unknown parents are errors here as there.

use std::collections::HashMap;

use crate::event::{Event, EventId};

/// The parent of an event that begins a new tree though it is not the first of the log.
pub const ROOT: &str = "__root__";

/// Where the head of a log points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Head {
    /// At the newest event that can be a head.
    #[default]
    Newest,
    /// At nothing: the next event begins a new tree.
    Empty,
    /// At an event.
    At(EventId),
}

/// Why there is no branch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BranchError {
    /// The head, or a parent on the way, is not in the log.
    #[error("event {0} is not in the log")]
    UnknownEvent(EventId),
    /// The parents lead in a circle.
    #[error("the parents of event {0} lead back to it")]
    Cycle(EventId),
}

/// Why an event cannot be appended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParentError {
    /// The log has an event with this id.
    #[error("the log already has an event {0}")]
    DuplicateId(EventId),
    /// The parent is not in the log yet.
    #[error("event {id}: its parent {parent} is not in the log")]
    UnknownParent {
        /// The event.
        id: EventId,
        /// Its parent.
        parent: EventId,
    },
}

/// The parent links of a log.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    ids: Vec<EventId>,
    positions: HashMap<EventId, usize>,
    parents: Vec<Parent>,
}

#[derive(Clone, Debug)]
enum Parent {
    None,
    At(usize),
    /// Named, and not in the log before it: only in a log that was not appended to through [`Tree::append`].
    Named(EventId),
}

impl Tree {
    /// Reads the links of a stored log as they are. Of events with one id the first counts.
    pub fn read<'e>(events: impl IntoIterator<Item = &'e Event>) -> Self {
        let mut tree = Self::default();
        for event in events {
            let parent = match &event.parent {
                None => tree.ids.len().checked_sub(1).map_or(Parent::None, Parent::At),
                Some(parent) if parent.as_str() == ROOT => Parent::None,
                Some(parent) => Parent::Named(parent.clone()),
            };
            tree.add(event.id.clone(), parent);
        }
        tree
    }

    /// Adds an event. `parent` is as stored: `None` follows the event before it.
    ///
    /// # Errors
    /// [`ParentError`] where the id is taken or the parent is not in the log; nothing is added then.
    pub fn append(&mut self, id: &EventId, parent: Option<&EventId>) -> Result<(), ParentError> {
        if self.positions.contains_key(id) {
            return Err(ParentError::DuplicateId(id.clone()));
        }
        let parent = match parent {
            None => self.ids.len().checked_sub(1).map_or(Parent::None, Parent::At),
            Some(parent) if parent.as_str() == ROOT => Parent::None,
            Some(parent) => match self.positions.get(parent) {
                Some(&position) => Parent::At(position),
                None => return Err(ParentError::UnknownParent { id: id.clone(), parent: parent.clone() }),
            },
        };
        self.add(id.clone(), parent);
        Ok(())
    }

    fn add(&mut self, id: EventId, parent: Parent) {
        self.positions.entry(id.clone()).or_insert(self.ids.len());
        self.ids.push(id);
        self.parents.push(parent);
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The position of an event in the log.
    pub fn position(&self, id: &EventId) -> Option<usize> {
        self.positions.get(id).copied()
    }

    /// The parent of the event at a position, where it has one.
    pub fn parent(&self, position: usize) -> Option<&EventId> {
        match self.parents.get(position)? {
            Parent::None => None,
            Parent::At(parent) => Some(&self.ids[*parent]),
            Parent::Named(parent) => Some(parent),
        }
    }

    /// Positions in the log from a root to `head`, the head included.
    ///
    /// # Errors
    /// [`BranchError`] where an event on the way is missing, or the way is a circle.
    pub fn path(&self, head: &EventId) -> Result<Vec<usize>, BranchError> {
        let mut path = Vec::new();
        let mut on_path = vec![false; self.ids.len()];
        let mut next = Some(head);
        while let Some(id) = next {
            let position = self.position(id).ok_or_else(|| BranchError::UnknownEvent(id.clone()))?;
            if std::mem::replace(&mut on_path[position], true) {
                return Err(BranchError::Cycle(id.clone()));
            }
            path.push(position);
            next = self.parent(position);
        }
        path.reverse();
        Ok(path)
    }

    /// The event that a head means: for [`Head::Newest`] the newest one that `can_be_head` accepts.
    pub fn resolve<'t>(&'t self, head: &'t Head, can_be_head: impl Fn(usize) -> bool) -> Option<&'t EventId> {
        match head {
            Head::At(id) => Some(id),
            Head::Empty => None,
            Head::Newest => (0..self.ids.len()).rev().find(|&position| can_be_head(position)).map(|at| &self.ids[at]),
        }
    }

    /// The events that are nobody's parent, oldest first: the tips of the branches.
    pub fn tips(&self) -> Vec<&EventId> {
        let mut is_parent = vec![false; self.ids.len()];
        for position in 0..self.ids.len() {
            if let Some(parent) = self.parent(position).and_then(|parent| self.position(parent)) {
                is_parent[parent] = true;
            }
        }
        (0..self.ids.len()).filter(|&position| !is_parent[position]).map(|position| &self.ids[position]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventKind, Message, Role, Source};

    /// A log as `id<parent` words; `id` alone follows the one before it.
    fn tree(script: &str) -> Tree {
        let events: Vec<Event> = script
            .split_whitespace()
            .map(|word| {
                let (id, parent) = word.split_once('<').map_or((word, None), |(id, parent)| (id, Some(parent)));
                let mut event = Event::new(id, Source::User, EventKind::Message(Message::text(Role::User, id)));
                event.parent = parent.map(EventId::from);
                event
            })
            .collect();
        Tree::read(&events)
    }

    #[track_caller]
    fn check(script: &str, head: &str, expected: &str) {
        let tree = tree(script);
        let path = match tree.path(&EventId::from(head)) {
            Ok(path) => path.into_iter().map(|at| tree.ids[at].as_str()).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(path, expected);
    }

    #[test]
    fn a_branch_runs_from_a_root_to_its_head() {
        check("a b c", "c", "a b c");
        check("a b c<a d", "d", "a c d");
        check("a b c<__root__ d", "d", "c d");
        check("a b<a c<a", "b", "a b");
    }

    #[test]
    fn damaged_links_are_errors_and_not_loops() {
        check("a b<x", "b", "event x is not in the log");
        check("a<b b<a", "b", "the parents of event b lead back to it");
        check("a<a", "a", "the parents of event a lead back to it");
        check("a", "z", "event z is not in the log");
    }

    #[test]
    fn tips_are_the_events_that_nothing_follows() {
        assert_eq!(tree("a b c<a d").tips().iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["b", "d"]);
    }
}
