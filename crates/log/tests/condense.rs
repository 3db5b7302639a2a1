//! Condensations, undos and pins as appended events, and what makes a decision stale.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use condenser::condensation::Condensation;
use condenser::event::{Action, CondensationFailed, Event, EventId, EventKind, Message, Role, Source};
use condenser::{Rewrite, RewriteOp};
use condenser_log::{CondensationError, Log, MarkError, Options, SessionId, Stale};

fn forgets(ids: &str) -> Condensation {
    Condensation {
        forgotten_event_ids: ids.split_whitespace().map(EventId::from).collect(),
        summary: Some("notes".to_owned()),
        summary_offset: Some(0),
        ..Condensation::default()
    }
}

fn shown(log: &Log, session: &SessionId) -> String {
    log.view(session, None).unwrap().ids().map(EventId::as_str).collect::<Vec<_>>().join(" ")
}

/// Does something to a session of `e0` to `e5`, then appends a record that was decided on `basis` and lists e0 and e1.
#[track_caller]
fn check(basis: Option<&str>, meanwhile: impl FnOnce(&Log, &SessionId), expected: Option<Stale>) {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    log.append(&session, &messages("e", 6)).unwrap();
    meanwhile(&log, &session);
    let before = ids(log.events(&session));
    let record = Condensation {
        rewrites: [(id("e1"), Rewrite::from(RewriteOp::Clear { text: "gone".to_owned() }))].into(),
        ..forgets("e0")
    };
    match (log.append_condensation(&session, &record, basis.map(id).as_ref()), expected) {
        (Ok(record_id), None) => {
            let event = log.event(&session, &record_id).unwrap().unwrap();
            assert_eq!(event.kind, EventKind::Condensation(record));
            assert!(event.timestamp.is_some());
            assert_eq!(log.session(&session).unwrap().unwrap().head, Some(record_id));
        }
        (Err(CondensationError::Stale { reason, .. }), Some(expected)) => {
            assert_eq!(reason, expected);
            assert_eq!(ids(log.events(&session)), before, "a stale record stores nothing");
        }
        (found, expected) => unreachable!("{found:?} instead of {expected:?}"),
    }
    assert_eq!(log.verify(&session).unwrap().problems, []);
}

#[test]
fn events_appended_while_a_summary_is_written_do_not_make_it_stale() {
    check(Some("e5"), |_, _| {}, None);
    check(
        Some("e5"),
        |log, session| {
            for n in 0..3 {
                log.append(session, &[message(&format!("late{n}"), "")]).unwrap();
            }
        },
        None,
    );
    check(Some("e2"), |_, _| {}, None);
    check(None, |_, _| {}, None);
}

#[test]
fn a_later_condensation_undo_or_pin_of_a_listed_event_makes_a_record_stale() {
    let condense = |log: &Log, session: &SessionId| log.append_condensation(session, &forgets("e3"), None).unwrap();
    for basis in [Some("e5"), Some("e2"), None] {
        let log = Log::open_in_memory().unwrap();
        let session = session(&log, "s");
        log.append(&session, &messages("e", 6)).unwrap();
        let first = condense(&log, &session);
        let error = log.append_condensation(&session, &forgets("e0"), basis.map(id).as_ref()).unwrap_err();
        assert!(
            matches!(&error, CondensationError::Stale { reason: Stale::Condensed(by), .. } if *by == first),
            "{error}"
        );
        assert!(error.to_string().contains(" and is stale: condensation "), "{error}");
        // On the new head it is decided anew, and holds.
        log.append_condensation(&session, &forgets("e0"), Some(&first)).unwrap();
        let (condensation, undo) = log.undo(&session, Some(&first)).unwrap();
        assert_eq!(condensation, first);
        let error = log.append_condensation(&session, &forgets("e0"), Some(&first)).unwrap_err();
        assert!(matches!(error, CondensationError::Stale { reason: Stale::Condensed(_), .. }), "{error}");
        log.append_condensation(&session, &forgets("e4"), Some(&undo)).unwrap();
    }
    let pin = |ids: &'static [&'static str]| {
        move |log: &Log, session: &SessionId| {
            log.pin(session, &ids.iter().map(|text| id(text)).collect::<Vec<_>>()).unwrap();
        }
    };
    check(Some("e5"), pin(&["e4", "e1"]), Some(Stale::Pinned(id("e1"))));
    check(Some("e5"), pin(&["e4"]), None);
    check(
        Some("e5"),
        |log, session| {
            log.unpin(session, &[id("e1")]).unwrap();
        },
        None,
    );
}

#[test]
fn a_basis_that_is_not_on_the_way_to_the_head_makes_a_record_stale() {
    let fork = |log: &Log, session: &SessionId| {
        log.set_head(session, Some(&id("e2"))).unwrap();
        log.append(session, &messages("f", 3)).unwrap();
    };
    for (basis, expected) in [
        ("e5", Some(Stale::NotAnAncestor)),
        ("e3", Some(Stale::NotAnAncestor)),
        ("e2", None),
        ("e0", None),
        ("f0", None),
        ("f2", None),
        ("nowhere", Some(Stale::NotAnAncestor)),
    ] {
        check(Some(basis), fork, expected);
    }
    let back = |log: &Log, session: &SessionId| log.set_head(session, Some(&id("e2"))).unwrap();
    check(Some("e3"), back, Some(Stale::NotAnAncestor));
    check(Some("e2"), back, None);
}

#[test]
fn an_undo_is_an_event_that_shows_again_what_was_hidden() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    log.append(&session, &messages("e", 4)).unwrap();
    assert!(matches!(log.undo(&session, None), Err(MarkError::NotInForce { id: None, .. })));
    let first = log.append_condensation(&session, &forgets("e0 e1"), Some(&id("e3"))).unwrap();
    let second = log.append_condensation(&session, &forgets("e2"), Some(&first)).unwrap();
    assert_eq!(log.condensations(&session).unwrap(), [first.clone(), second.clone()]);
    let summary = |id: &EventId| id.summary_id().to_string();
    assert_eq!(shown(&log, &session), format!("{} {} e3", summary(&second), summary(&first)));

    assert_eq!(log.undo(&session, None).unwrap().0, second);
    assert_eq!(shown(&log, &session), format!("{} e2 e3", summary(&first)));
    assert!(matches!(log.undo(&session, Some(&second)), Err(MarkError::NotInForce { id: Some(_), .. })));
    assert!(matches!(log.undo(&session, Some(&id("e0"))), Err(MarkError::NotInForce { .. })));
    assert_eq!(log.undo(&session, None).unwrap().0, first);
    assert_eq!(shown(&log, &session), "e0 e1 e2 e3");
    assert_eq!(log.condensations(&session).unwrap(), []);
    // As of an earlier event everything is as it was.
    let then = log.view(&session, Some(&second)).unwrap();
    assert_eq!(then.ids().count(), 3);
}

#[test]
fn pins_are_events_and_name_what_there_is() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    log.append(&session, &messages("e", 2)).unwrap();
    let condensation = log.append_condensation(&session, &forgets("e0"), None).unwrap();
    log.pin(&session, &[id("e1"), condensation.summary_id()]).unwrap();
    let view = log.view(&session, None).unwrap();
    assert!(view.iter().all(|entry| entry.is_pinned()), "{view:?}");
    log.unpin(&session, &[id("e1")]).unwrap();
    assert_eq!(log.view(&session, None).unwrap().iter().filter(|entry| entry.is_pinned()).count(), 1);
    assert!(log.pin(&session, &[id("nothing-summary")]).unwrap_err().to_string().contains("no event nothing-summary"));
    assert!(log.pin(&session, &[id("nothing")]).is_err());
}

#[test]
fn failed_attempts_are_counted_across_restarts_until_something_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let failed = |id: &str| {
        let kind =
            EventKind::CondensationFailed(CondensationFailed { reason: "too small".into(), ..Default::default() });
        Event::new(id, Source::Environment, kind)
    };
    let says = |id: &str, source, role| Event::new(id, source, EventKind::Message(Message::text(role, "hi")));
    let session = session(&Log::open(&path, Options::default()).unwrap(), "s");
    let check = |events: &[Event], expected| {
        let log = Log::open(&path, Options::default()).unwrap();
        log.append(&session, events).unwrap();
        assert_eq!(log.failed_attempts(&session).unwrap(), expected);
    };
    check(&[says("m", Source::User, Role::User)], 0);
    check(&[failed("f1")], 1);
    check(&[failed("f2"), says("m2", Source::User, Role::User)], 2);
    check(&[failed("f3")], 3);
    check(&[says("m3", Source::Agent, Role::Assistant)], 0);
    check(&[failed("f4")], 1);
    check(&[Event::new("a", Source::Agent, EventKind::Action(Action::default()))], 0);
    check(&[failed("f5"), failed("f6")], 2);
    let log = Log::open(&path, Options::default()).unwrap();
    log.append_condensation(&session, &forgets("m"), Some(&id("f6"))).unwrap();
    assert_eq!(log.failed_attempts(&session).unwrap(), 0);
    log.set_head(&session, Some(&id("f6"))).unwrap();
    log.append(&session, &[failed("f7")]).unwrap();
    assert_eq!(log.failed_attempts(&session).unwrap(), 3);
}
