//! A log opens to the same view as its events would, also where headers are packed.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use condenser::condensation::Condensation;
use condenser::event::{Action, ContentBlock, Event, EventId, EventKind, Observation, Pin, Source, Undo};
use condenser::{Rewrite, RewriteOp, Rules, Tokens, View};
use condenser_log::{Fault, Log, NewSession, Options, ReadError, RuleSet, SessionId, ViewError};
use rusqlite::Connection;

fn action(n: usize, thinking: bool) -> Event {
    let thinking =
        if thinking { vec![ContentBlock::Thinking { thinking: "hm".to_owned(), signature: None }] } else { Vec::new() };
    // Ids of calls come back after a while, and two calls share a response.
    let kind = EventKind::Action(Action {
        call_id: format!("call {}", n % 700),
        tool_name: "shell".to_owned(),
        arguments: "{}".to_owned(),
        thinking,
        response_id: (!n.is_multiple_of(5)).then(|| format!("response {}", n / 2 % 900)),
        ..Action::default()
    });
    Event::new(format!("a{n}"), Source::Agent, kind)
}

fn observation(n: usize, interim: bool) -> Event {
    let kind = EventKind::Observation(Observation {
        call_id: format!("call {}", n % 700),
        content: vec![ContentBlock::text("done")],
        interim,
        ..Observation::default()
    });
    Event::new(format!("o{n}{}", if interim { "i" } else { "" }), Source::Environment, kind)
}

/// Events of all sorts, with condensations that forget most of what came before them.
fn run(from: usize, to: usize) -> Vec<Event> {
    let mut events = Vec::new();
    for n in from..to {
        match n % 11 {
            0 => events.push(message(&format!("m{n}"), "go on")),
            4 => events.extend([action(n, false), observation(n, true), observation(n, false)]),
            7 => events.extend([action(n, true), observation(n, false)]),
            8 => events.push(observation(n + 100_000, false)),
            _ => events.extend([action(n, false), observation(n, false)]),
        }
        let other = |kind| Event::new(format!("x{n}"), Source::Environment, kind);
        match n % 97 {
            50 => {
                let forgotten = events.iter().rev().skip(20).take(120).map(|event| event.id.clone()).collect();
                let rewrites =
                    [(id(&format!("o{}", n - 1)), Rewrite::from(RewriteOp::Clear { text: "cleared".to_owned() }))];
                events.push(other(EventKind::Condensation(Condensation {
                    forgotten_event_ids: forgotten,
                    summary: Some(format!("summary {n}")),
                    summary_offset: Some(2),
                    rewrites: rewrites.into(),
                    ..Condensation::default()
                })));
            }
            60 if n % 2 == 0 => {
                events.push(other(EventKind::Undo(Undo { condensation: id(&format!("x{}", n - 10)) })));
            }
            70 => events.push(other(EventKind::Pin(Pin { ids: vec![id(&format!("o{}", n - 3))] }))),
            75 => events.push(other(EventKind::Unpin(Pin { ids: vec![id(&format!("o{}", n - 8))] }))),
            80 => events.push(other(EventKind::CondensationRequest(Default::default()))),
            _ => {}
        }
    }
    events
}

/// A session of several thousand events on three branches.
fn tree(log: &Log, rules: Rules) -> SessionId {
    let session = log
        .create_session(NewSession { name: "tree".to_owned(), rules: RuleSet::of(rules), meta: Default::default() })
        .unwrap();
    for (from, to) in [(0, 200), (200, 201), (201, 1200)] {
        log.append(&session, &run(from, to)).unwrap();
    }
    log.set_head(&session, Some(&id("o600"))).unwrap();
    log.append(&session, &run(2000, 2900)).unwrap();
    for event in run(4000, 4100) {
        log.append(&session, &[event]).unwrap();
    }
    log.set_head(&session, Some(&id("m1100"))).unwrap();
    log.append(&session, &run(3000, 3500)).unwrap();
    session
}

fn facts(view: &View) -> String {
    let entries: Vec<_> = view
        .iter()
        .map(|entry| {
            (entry.id().to_string(), entry.seq(), entry.group(), entry.is_pinned(), entry.is_open(), entry.tokens())
        })
        .collect();
    let cuts: Vec<_> = view.manipulation_indices().collect();
    format!(
        "{entries:?} {cuts:?} {:?} {:?} {:?}",
        view.diagnostics(),
        view.records().collect::<Vec<_>>(),
        view.tokens()
    )
}

#[test]
fn packed_headers_give_the_view_of_the_events_on_every_branch() {
    for rules in [Rules::Sound, Rules::OpenHands] {
        let log = Log::open_in_memory().unwrap();
        let session = tree(&log, rules);
        let heads = ["o199", "o600", "m1100", "o1198", "o2899", "o4099", "o3499", "a3006", "x2960"];
        for head in heads.map(id).iter().filter(|id| log.event(&session, id).unwrap().is_some()) {
            let events: Vec<Event> = log.branch(&session, Some(head)).unwrap().map(Result::unwrap).collect();
            let (opened, replayed) = (log.view(&session, Some(head)).unwrap(), View::replay(&events, rules));
            assert_eq!(facts(&opened), facts(&replayed), "{head:?}");
            // An opened view goes on like any other: open calls find their answers, ids are known.
            let (mut opened, mut replayed) = (opened, replayed);
            for event in run(5000, 5050) {
                opened.push(&event);
                replayed.push(&event);
            }
            assert_eq!(facts(&opened), facts(&replayed), "{head:?}, gone on");
        }
        assert!(log.session(&session).unwrap().unwrap().events > 4 * 1024);
        assert_eq!(log.verify(&session).unwrap().problems, []);
    }
}

#[test]
fn records_that_name_odd_things_give_the_same_view_too() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "odd");
    let record = |id: &str, forgets: &str| {
        let record = Condensation {
            forgotten_event_ids: forgets.split_whitespace().map(EventId::from).collect(),
            summary: Some(format!("summary of {id}")),
            summary_offset: Some(1),
            ..Condensation::default()
        };
        Event::new(id, Source::Environment, EventKind::Condensation(record))
    };
    let names = |id: &str, ids: &str, kind: fn(Pin) -> EventKind| {
        Event::new(id, Source::User, kind(Pin { ids: ids.split_whitespace().map(EventId::from).collect() }))
    };
    let mut events = messages("e", 6);
    // A summary's id before and after its condensation, twice forgotten, unknown, of an event, and of itself.
    events.push(record("c1", "e1 nothing c1-summary c2-summary e5"));
    events.extend([record("c2", "e1 c1-summary later"), message("c3-summary", "an event"), message("later", "")]);
    events.extend([
        record("c3", "c3-summary c2-summary"),
        names("p", "e0 c3-summary nothing c4-summary", EventKind::Pin),
    ]);
    events.extend([record("c4", "e0 later c4"), record("c5", "e2 c4-summary"), names("u", "e0", EventKind::Unpin)]);
    events.extend([
        record("c6", "e0 nothing"),
        Event::new("un", Source::User, EventKind::Undo(Undo { condensation: id("c1") })),
    ]);
    events.push(Event::new("un2", Source::User, EventKind::Undo(Undo { condensation: id("nothing") })));
    for length in 1..=events.len() {
        let new = |rules| NewSession { name: String::new(), rules: RuleSet::of(rules), meta: Default::default() };
        for rules in [Rules::Sound, Rules::OpenHands] {
            let session = log.create_session(new(rules)).unwrap();
            log.append(&session, &events[..length]).unwrap();
            let opened = log.view(&session, None).unwrap();
            assert_eq!(facts(&opened), facts(&View::replay(&events[..length], rules)), "{length} events");
        }
    }
    assert_eq!(ids(log.events(&session)), "");
}

#[test]
fn a_view_is_built_by_the_rules_of_its_session_or_not_at_all() {
    let log = Log::open_in_memory().unwrap();
    for (rules, expected) in [
        (RuleSet::of(Rules::Sound), Some(Rules::Sound)),
        (RuleSet::of(Rules::OpenHands), Some(Rules::OpenHands)),
        (RuleSet { name: "sound".to_owned(), version: 2 }, None),
        (RuleSet { name: "future".to_owned(), version: 1 }, None),
    ] {
        let session = log
            .create_session(NewSession { name: String::new(), rules: rules.clone(), meta: Default::default() })
            .unwrap();
        match (log.view(&session, None), expected) {
            (Ok(view), Some(expected)) => assert_eq!(view.rules(), expected),
            (Err(error), None) => {
                assert!(matches!(&error, ViewError::Rules { rules: found, .. } if *found == rules), "{error}");
                assert!(error.to_string().ends_with("which this build does not have; use a newer build"), "{error}");
            }
            (found, expected) => unreachable!("{found:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn each_event_is_counted_once_per_counter_and_the_view_knows_its_total() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let session = tree(&log, Rules::Sound);
    let calls = std::cell::Cell::new(0);
    let count = |log: &Log, counter: &str, each: u64| {
        calls.set(0);
        let counted = log
            .count_tokens(&session, counter, |_| {
                calls.set(calls.get() + 1);
                Tokens(each)
            })
            .unwrap();
        assert_eq!(counted, calls.get());
        counted
    };
    let shown = log.headers(&session, None).unwrap().filter(|_| true).count();
    assert!(count(&log, "one", 1) > shown as u64 / 2);
    assert_eq!(count(&log, "one", 1), 0);
    assert!(count(&log, "ten", 10) > 0);
    drop(log);
    let log = Log::open(&path, Options::default()).unwrap();
    assert_eq!(count(&log, "one", 1), 0, "counts survive a restart");
    log.append(&session, &[message("late", "")]).unwrap();
    assert_eq!(count(&log, "one", 1), 1, "one append, one count");
    let plain = log.view(&session, None).unwrap();
    assert_eq!(plain.tokens(), None);
    let sized = log.view_sized(&session, None, Some("one")).unwrap();
    let unsized_entries = sized.iter().filter(|entry| entry.tokens().is_none()).count();
    let other = sized.iter().filter(|entry| entry.is_summary() || entry.rewrite().is_some()).count();
    assert_eq!(unsized_entries, other, "only summaries and rewritten entries have sizes of their own");
    assert!(sized.iter().filter_map(|entry| entry.tokens()).all(|tokens| tokens == Tokens(1)));
    assert_eq!(log.token_count(&session, "ten", &id("late")).unwrap(), None);
    assert_eq!(log.token_count(&session, "one", &id("late")).unwrap(), Some(Tokens(1)));
    assert_eq!(log.token_counts(&session, "absent").unwrap(), []);
}

#[test]
fn damaged_packed_headers_are_named_by_verify_and_never_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let session = tree(&log, Rules::Sound);
    let conn = Connection::open(&path).unwrap();
    let sound: Vec<u8> = conn.query_row("SELECT data FROM segment ORDER BY row LIMIT 1", [], |row| row.get(0)).unwrap();
    let store = |data: &[u8]| {
        conn.execute("UPDATE segment SET data = ?1 WHERE row = (SELECT min(row) FROM segment)", [data]).unwrap();
    };
    let ids = |view: Result<View, ViewError>| {
        view.map(|view| view.ids().map(EventId::to_string).collect::<Vec<_>>().join(" "))
            .map_err(|error| error.to_string())
    };
    let expected = ids(log.view(&session, None)).unwrap();
    for (n, place) in (0..sound.len()).step_by(1511).chain(0..14).enumerate() {
        let mut data = sound.clone();
        data[place] ^= [0x01, 0x80, 0xff][n % 3];
        store(&data);
        let found = log.verify(&session).unwrap();
        assert!(!found.problems.is_empty(), "byte {place}");
        assert!(found.problems.iter().all(|problem| problem.fault == Fault::PackedDiffers));
        let _ = ids(log.view(&session, None));
    }
    // One changed field is named by its event: the kind of the hundredth.
    let mut data = sound.clone();
    data[12 + 100] = 9;
    store(&data);
    let problems = log.verify(&session).unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].position, 100);
    assert!(problems[0].id.is_some());
    for data in [&sound[..50], &sound[..sound.len() - 1], &[]] {
        store(data);
        assert!(matches!(
            log.view(&session, None),
            Err(ViewError::Read(ReadError::Storage(_) | ReadError::Damaged { .. }))
        ));
    }
    // Without packed headers the rows serve.
    conn.execute("DELETE FROM segment", []).unwrap();
    assert_eq!(ids(log.view(&session, None)).unwrap(), expected);
    store(&sound);
}

#[test]
fn packed_headers_say_what_the_rows_say_however_the_events_came() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let open = || Log::open(&path, Options::default()).unwrap();
    let (mut one, other) = (open(), open());
    let here = session(&one, "here");
    let there = session(&one, "there");
    let mut n_events = 0;
    for (round, size) in [1000, 23, 2, 400, 700, 1, 1023, 1, 2500, 47].into_iter().enumerate() {
        let batch = messages(&format!("r{round} "), size);
        // What was packed of a batch that failed at its last event must not be used.
        let failing: Vec<Event> = batch.iter().cloned().chain([message("m", ""), message("m", "")]).collect();
        one.append(&here, &failing).unwrap_err();
        match round % 4 {
            0 => one.append(&here, &batch).unwrap(),
            1 => other.append(&here, &batch).unwrap(),
            2 => {
                one.append(&there, &batch).unwrap();
                one.append(&here, &batch).unwrap()
            }
            _ => {
                one = open();
                one.append(&here, &batch).unwrap()
            }
        };
        n_events += size;
    }
    let conn = Connection::open(&path).unwrap();
    let number = "SELECT session FROM session WHERE name = 'here'";
    let sql = format!("SELECT count(*) FROM segment WHERE row >> 32 = ({number})");
    let n_segments: usize = conn.query_row(&sql, [], |row| row.get(0)).unwrap();
    assert_eq!(n_segments, n_events / 1024);
    for session in [&here, &there] {
        assert_eq!(one.verify(session).unwrap().problems, []);
    }
}
