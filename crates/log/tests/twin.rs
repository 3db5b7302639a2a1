//! The log against a twin that keeps everything in vectors.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use condenser::{Event, EventId};
use condenser_log::{AppendError, Log, Options, SessionId};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// To a session, events as (id, parent).
    Append(usize, Vec<(u8, Option<u8>)>),
    /// In a session, to an event.
    Head(usize, Option<u8>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let event = (0..40u8, prop::option::weighted(0.3, 0..40u8));
    prop_oneof![
        6 => (0..2usize, prop::collection::vec(event, 0..6)).prop_map(|(session, events)| Step::Append(session, events)),
        2 => (0..2usize, prop::option::weighted(0.9, 0..40u8)).prop_map(|(session, head)| Step::Head(session, head)),
        1 => Just(Step::Reopen),
    ]
}

/// A session as vectors.
#[derive(Clone, Debug, Default)]
struct Twin {
    /// Events with the position of the one they follow.
    events: Vec<(Event, Option<usize>)>,
    head: Option<usize>,
}

impl Twin {
    fn find(&self, id: &EventId) -> Option<usize> {
        self.events.iter().position(|(event, _)| event.id == *id)
    }

    /// The twin with the batch, or the id that is wrong and whether it is a duplicate.
    fn append(&self, batch: &[Event]) -> Result<Self, (EventId, bool)> {
        let mut twin = self.clone();
        for event in batch {
            let parent = match &event.parent {
                None => twin.head,
                Some(parent) => Some(twin.find(parent).ok_or_else(|| (event.id.clone(), false))?),
            };
            if twin.find(&event.id).is_some() {
                return Err((event.id.clone(), true));
            }
            twin.head = Some(twin.events.len());
            twin.events.push((event.clone(), parent));
        }
        Ok(twin)
    }

    fn path(&self, head: Option<usize>) -> String {
        let mut path: Vec<&str> =
            std::iter::successors(head, |at| self.events[*at].1).map(|at| self.events[at].0.id.as_str()).collect();
        path.reverse();
        path.join(" ")
    }

    /// Events that no event follows first: the first child of an event goes on with its branch.
    fn tips(&self) -> Vec<&EventId> {
        let mut tips: Vec<usize> = Vec::new();
        for (at, (_, parent)) in self.events.iter().enumerate() {
            match tips.iter_mut().find(|tip| Some(**tip) == *parent) {
                Some(tip) => *tip = at,
                None => tips.push(at),
            }
        }
        tips.into_iter().map(|at| &self.events[at].0.id).collect()
    }
}

fn check(log: &Log, session: &SessionId, twin: &Twin) {
    let read: Vec<Event> = log.events(session).unwrap().map(Result::unwrap).collect();
    assert_eq!(read, twin.events.iter().map(|(event, _)| event.clone()).collect::<Vec<_>>());
    let info = log.session(session).unwrap().unwrap();
    assert_eq!(info.head.as_ref(), twin.head.map(|head| &twin.events[head].0.id));
    assert_eq!(ids(log.branch(session, None)), twin.path(twin.head));
    for at in 0..twin.events.len() {
        let head = &twin.events[at].0.id;
        assert_eq!(ids(log.branch(session, Some(head))), twin.path(Some(at)));
    }
    let branches = log.branches(session).unwrap();
    assert_eq!(branches.iter().map(|branch| &branch.tip).collect::<Vec<_>>(), twin.tips());
    assert_eq!(info.branches, branches.len() as u64);
    assert_eq!(log.verify(session).unwrap().problems, []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_log_does_what_vectors_would_do(steps in prop::collection::vec(step(), 1..20)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.db");
        let options = Options { sync: condenser_log::Sync::Normal, ..Options::default() };
        let mut log = Log::open(&path, options).unwrap();
        let sessions = [session(&log, "0"), session(&log, "1")];
        let mut twins = [Twin::default(), Twin::default()];
        for step in steps {
            match step {
                Step::Append(n, events) => {
                    let batch: Vec<Event> = events
                        .into_iter()
                        .map(|(id, parent)| Event {
                            parent: parent.map(|parent| EventId::from(format!("e{parent}"))),
                            ..message(&format!("e{id}"), &format!("of {n}"))
                        })
                        .collect();
                    match (log.append(&sessions[n], &batch), twins[n].append(&batch)) {
                        (Ok(_), Ok(twin)) => twins[n] = twin,
                        (Err(AppendError::Duplicate { id, .. }), Err((wrong, true))) => prop_assert_eq!(id, wrong),
                        (Err(AppendError::UnknownParent { id, .. }), Err((wrong, false))) => prop_assert_eq!(id, wrong),
                        (log, twin) => prop_assert!(false, "{log:?} but {twin:?}"),
                    }
                }
                Step::Head(n, head) => {
                    let head = head.map(|head| EventId::from(format!("e{head}")));
                    let expected = match &head {
                        None => Some(None),
                        Some(id) => twins[n].find(id).map(Some),
                    };
                    let moved = log.set_head(&sessions[n], head.as_ref());
                    prop_assert_eq!(moved.is_ok(), expected.is_some());
                    twins[n].head = expected.unwrap_or(twins[n].head);
                }
                Step::Reopen => {
                    drop(log);
                    log = Log::open(&path, options).unwrap();
                }
            }
        }
        for (session, twin) in sessions.iter().zip(&twins) {
            check(&log, session, twin);
        }
    }
}
