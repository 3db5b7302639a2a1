//! What a log promises to the one who appends and reads.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use condenser::recall::Recall;
use condenser::{Event, EventHeader, Names};
use condenser_log::{Access, AppendError, Branch, Journal, Log, NewSession, Options, RuleSet, SessionError, SessionId};
use serde_json::json;

fn json_lines(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| serde_json::to_string(event).unwrap()).collect()
}

#[test]
fn events_of_every_kind_come_back_byte_for_byte_also_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let events = every_kind();
    let log = Log::open(&path, Options::default()).unwrap();
    let session = session(&log, "kinds");
    log.append(&session, &events).unwrap();
    let check = |log: &Log| {
        let read: Vec<Event> = log.events(&session).unwrap().map(Result::unwrap).collect();
        assert_eq!(json_lines(&read), json_lines(&events));
        for event in &events {
            assert_eq!(log.event(&session, &event.id).unwrap().as_ref(), Some(event));
        }
        assert_eq!(log.event(&session, &id("absent")).unwrap(), None);
        assert_eq!(log.verify(&session).unwrap().problems, []);
    };
    check(&log);
    drop(log);
    check(&Log::open(&path, Options { access: Access::Write, ..Options::default() }).unwrap());
    check(&Log::open(&path, Options { access: Access::Read, ..Options::default() }).unwrap());
}

#[test]
fn headers_say_the_same_as_the_events_they_stand_for() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "headers");
    let events = every_kind();
    log.append(&session, &events).unwrap();
    let headers: Vec<_> = log.headers(&session, None).unwrap().map(Result::unwrap).collect();
    assert_eq!(headers.len(), events.len());
    let (mut names, mut twin) = (Names::default(), Names::default());
    for (position, (header, event)) in headers.iter().zip(&events).enumerate() {
        assert_eq!(format!("{:?}", names.header(header)), format!("{:?}", twin.header(event)));
        assert_eq!(EventHeader::condensation(header), event.condensation());
        assert_eq!((header.kind, header.position), (event.kind.name(), position as u64));
        assert_eq!(header.parent, position.checked_sub(1).map(|parent| parent as u64));
    }
}

#[test]
fn a_session_keeps_what_it_was_created_with() {
    let log = Log::open_in_memory().unwrap();
    let new = NewSession {
        name: "näme".to_owned(),
        rules: RuleSet { name: "openhands".to_owned(), version: 3 },
        meta: json!({"source": "x", "n": 1}).as_object().unwrap().clone(),
    };
    let session = log.create_session(new.clone()).unwrap();
    log.append(&session, &messages("e", 3)).unwrap();
    let info = log.session(&session).unwrap().unwrap();
    assert_eq!((&info.name, &info.rules, &info.meta), (&new.name, &new.rules, &new.meta));
    assert_eq!((info.events, info.branches, info.head.clone()), (3, 1, Some(id("e2"))));
    assert!(info.created_ms > 1_700_000_000_000);
    assert_eq!(log.sessions().unwrap(), [info]);
    assert_eq!(log.session(&SessionId::new("absent")).unwrap(), None);
    let deep = (0..127).fold(json!(1), |value, _| json!({"v": value}));
    let nest = |levels| NewSession { meta: json!({"v": levels}).as_object().unwrap().clone(), ..new.clone() };
    log.create_session(nest(deep["v"].clone())).unwrap();
    assert!(matches!(log.create_session(nest(deep)), Err(SessionError::TooDeep { depth: 128, limit: 127 })));
    assert_eq!(log.sessions().unwrap().len(), 2);
}

#[test]
fn sessions_of_one_file_do_not_mix() {
    let log = Log::open_in_memory().unwrap();
    let (a, b) = (session(&log, "a"), session(&log, "b"));
    for i in 0..300 {
        log.append(&a, &[message(&format!("e{i}"), "of a")]).unwrap();
        log.append(&b, &[message(&format!("e{i}"), "of b")]).unwrap();
    }
    for (session, text) in [(&a, "of a"), (&b, "of b")] {
        let read: Vec<Event> = log.events(session).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, (0..300).map(|i| message(&format!("e{i}"), text)).collect::<Vec<_>>());
        assert_eq!(log.verify(session).unwrap().problems, []);
    }
}

#[test]
fn a_batch_is_stored_whole_or_not_at_all() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    log.append(&session, &messages("e", 2)).unwrap();
    let check = |batch: &[Event], message: &str| {
        let error = log.append(&session, batch).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(ids(log.events(&session)), "e0 e1");
        assert_eq!(log.branches(&session).unwrap().len(), 1);
        assert_eq!(log.verify(&session).unwrap().problems, []);
        error
    };
    let duplicate = check(&[message("x", ""), message("e1", "again"), message("y", "")], "already has an event e1");
    assert!(matches!(duplicate, AppendError::Duplicate { id: twice, .. } if twice == id("e1")));
    check(&[message("x", ""), message("x", "")], "already has an event x");
    check(&[message("x", ""), after("later", "y"), message("later", "")], "event y names the parent later");
    check(&[after("x", "x")], "event x names the parent x");
    let mut deep = message("deep", "");
    deep.foreign.insert("v".to_owned(), (0..200).fold(json!(1), |value, _| json!([value])));
    check(&[message("x", ""), deep], "event deep is nested 202 deep, more than 127");
    log.append(&session, &[message("x", "")]).unwrap();
    assert_eq!(ids(log.events(&session)), "e0 e1 x");
}

#[test]
fn the_deepest_event_that_is_accepted_is_read_back() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    let mut deep = message("deep", "");
    deep.foreign.insert("v".to_owned(), (0..125).fold(json!(1), |value, _| json!([value])));
    log.append(&session, std::slice::from_ref(&deep)).unwrap();
    assert_eq!(log.event(&session, &deep.id).unwrap(), Some(deep));
}

#[test]
fn an_unknown_session_is_refused_everywhere_by_name() {
    let log = Log::open_in_memory().unwrap();
    let session = SessionId::new("nowhere");
    for error in [
        log.append(&session, &[]).unwrap_err().to_string(),
        log.events(&session).unwrap_err().to_string(),
        log.headers(&session, None).unwrap_err().to_string(),
        log.event(&session, &id("e")).unwrap_err().to_string(),
        log.branches(&session).unwrap_err().to_string(),
        log.verify(&session).unwrap_err().to_string(),
        log.set_head(&session, None).unwrap_err().to_string(),
    ] {
        assert_eq!(error, "no session nowhere in this log");
    }
}

#[test]
fn a_moved_head_makes_a_fork_and_every_path_stays_readable() {
    let log = Log::open_in_memory().unwrap();
    let s = session(&log, "tree");
    log.append(&s, &messages("a", 4)).unwrap();
    log.set_head(&s, Some(&id("a1"))).unwrap();
    assert_eq!(ids(log.branch(&s, None)), "a0 a1");
    log.append(&s, &messages("b", 2)).unwrap();
    log.append(&s, &[after("a3", "a4"), after("b0", "c0"), message("c1", "")]).unwrap();
    log.set_head(&s, None).unwrap();
    assert_eq!(ids(log.branch(&s, None)), "");
    log.append(&s, &[message("d0", "")]).unwrap();

    assert_eq!(ids(log.events(&s)), "a0 a1 a2 a3 b0 b1 a4 c0 c1 d0");
    for (head, path) in
        [("a4", "a0 a1 a2 a3 a4"), ("a2", "a0 a1 a2"), ("b1", "a0 a1 b0 b1"), ("c1", "a0 a1 b0 c0 c1"), ("d0", "d0")]
    {
        assert_eq!(ids(log.branch(&s, Some(&id(head)))), path);
        let headers: Vec<_> =
            log.headers(&s, Some(&id(head))).unwrap().map(|header| header.unwrap().id.to_string()).collect();
        assert_eq!(headers.join(" "), path);
    }
    let branch = |tip: &str, fork: Option<&str>, is_active| Branch { tip: id(tip), fork: fork.map(id), is_active };
    assert_eq!(
        log.branches(&s).unwrap(),
        [
            branch("a4", None, false),
            branch("b1", Some("a1"), false),
            branch("c1", Some("b0"), false),
            branch("d0", None, true)
        ]
    );
    assert_eq!(log.verify(&s).unwrap().problems, []);
    assert!(matches!(log.set_head(&s, Some(&id("no"))), Err(SessionError::NoEvent { .. })));
    assert!(log.branch(&s, Some(&id("no"))).unwrap_err().to_string().contains("no event no in session"));
}

#[test]
fn an_append_that_expects_another_head_is_refused_with_both_heads() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    log.append_if_head(&session, None, &messages("e", 2)).unwrap();
    let error = log.append_if_head(&session, Some(&id("e0")), &[message("x", "")]).unwrap_err();
    assert!(error.to_string().ends_with("is e1, not e0"), "{error}");
    let error = log.append_if_head(&session, None, &[message("x", "")]).unwrap_err();
    assert!(error.to_string().ends_with("is e1, not (none)"), "{error}");
    let appended = log.append_if_head(&session, Some(&id("e1")), &[message("x", "")]).unwrap();
    assert_eq!((appended.positions, appended.head), (2..3, Some(id("x"))));
    let nothing = log.append(&session, &[]).unwrap();
    assert_eq!((nothing.positions, nothing.head), (3..3, Some(id("x"))));
}

#[test]
fn recall_gives_exact_bytes_of_forgotten_events_too() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    log.append(&session, &[message("e", "0123456789"), message("f", "añ🙂")]).unwrap();
    let recall = log.recall(&session);
    let bytes = |event: &str, range| recall.bytes(&id(event), range);
    assert_eq!(bytes("e", None).unwrap(), b"0123456789");
    assert_eq!(bytes("e", Some(3..6)).unwrap(), b"345");
    assert_eq!(bytes("e", Some(8..u64::MAX)).unwrap(), b"89");
    assert_eq!(bytes("e", Some(50..60)).unwrap(), b"");
    #[expect(clippy::reversed_empty_ranges)]
    let reversed = bytes("e", Some(6..3));
    assert_eq!(reversed.unwrap(), b"");
    assert_eq!(bytes("f", Some(3..5)).unwrap(), "🙂".as_bytes()[..2]);
    assert_eq!(bytes("g", None), None);
    assert_eq!(log.recall(&SessionId::new("no")).bytes(&id("e"), None), None);
}

#[test]
fn new_ids_ascend_and_are_ulids() {
    let log = Log::open_in_memory().unwrap();
    let ids: Vec<String> = (0..2000).map(|_| log.new_event_id().unwrap().to_string()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b));
    assert!(ids.iter().all(|id| id.len() == 26 && id.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase())));
}

#[test]
fn writers_of_their_own_connections_lose_nothing_and_keep_batches_whole() {
    for journal in [Journal::Wal, Journal::Rollback] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.db");
        // All of them create the file at once, and the session as soon as they can.
        let options = Options { sync: condenser_log::Sync::Normal, journal, ..Options::default() };
        let sessions: Vec<SessionId> = std::thread::scope(|scope| {
            let open = |name: &'static str| session(&Log::open(&path, options).unwrap(), name);
            let threads: Vec<_> = ["a", "b", "c"].map(|name| scope.spawn(move || open(name))).into_iter().collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let shared = &sessions[0];
        std::thread::scope(|scope| {
            for writer in ["x", "y"] {
                let path = &path;
                scope.spawn(move || {
                    let log = Log::open(path, options).unwrap();
                    for batch in messages(writer, 200).chunks(2) {
                        log.append(shared, batch).unwrap();
                    }
                });
            }
        });
        let log = Log::open(&path, options).unwrap();
        assert_eq!(log.sessions().unwrap().len(), 3);
        let all: Vec<String> = log.branch(shared, None).unwrap().map(|event| event.unwrap().id.to_string()).collect();
        assert_eq!(all.len(), 400);
        assert!(all.chunks(2).all(|batch| batch[0][..1] == batch[1][..1]), "batches interleave");
        for writer in ["x", "y"] {
            let own: Vec<_> = all.iter().filter(|id| id.starts_with(writer)).cloned().collect();
            assert_eq!(own, (0..200).map(|i| format!("{writer}{i}")).collect::<Vec<_>>());
        }
        assert_eq!(log.verify(shared).unwrap().problems, []);
        assert_eq!(log.check_file().unwrap(), [""; 0]);
    }
}

#[test]
fn a_slow_reader_sees_its_moment_and_does_not_let_the_wal_grow() {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::open(dir.path().join("log.db"), Options { sync: condenser_log::Sync::Normal, ..Options::default() })
        .unwrap();
    assert_eq!(log.journal_mode(), "wal");
    let session = session(&log, "s");
    log.append(&session, &messages("first", 600)).unwrap();
    let mut reader = log.events(&session).unwrap();
    reader.next().unwrap().unwrap();
    let body = "x".repeat(300);
    for batch in 0..500 {
        let events: Vec<_> = (0..100).map(|i| message(&format!("{batch}-{i}"), &body)).collect();
        log.append(&session, &events).unwrap();
        reader.next().unwrap().unwrap();
        // 50,000 events and more than 30 MB in all; SQLite starts over at about 4 MB.
        assert!(log.wal_bytes() < 6 << 20, "{}", log.wal_bytes());
    }
    assert_eq!(reader.map(Result::unwrap).count(), 600 - 501);
}
