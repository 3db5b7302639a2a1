//! Logs of this and of earlier formats, kept as files, open and go on.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::*;
use condenser::Tokens;
use condenser::condensation::Condensation;
use condenser_log::{Access, Journal, Log, NewSession, OpenError, Options, Query, RuleSet, SessionId};

fn stored(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn copy(name: &str, dir: &Path) -> PathBuf {
    let path = dir.join(name);
    fs::copy(stored(name), &path).unwrap();
    path
}

fn version(path: &Path) -> i64 {
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// The session with this name.
fn named(log: &Log, name: &str) -> SessionId {
    log.sessions().unwrap().into_iter().find(|info| info.name == name).unwrap().id
}

/// What both stored logs have in common: sessions "every kind", "tree" and "empty".
fn check_common(log: &Log) {
    let (kinds, tree, empty) = (named(log, "every kind"), named(log, "tree"), named(log, "empty"));
    for session in log.sessions().unwrap() {
        assert_eq!(log.verify(&session.id).unwrap().problems, []);
        assert_eq!(session.created_ms, 1_767_225_600_000);
    }
    assert_eq!(log.check_file().unwrap(), [""; 0]);
    let events: Vec<_> = log.events(&kinds).unwrap().map(Result::unwrap).collect();
    assert_eq!(events, every_kind());
    assert_eq!(ids(log.events(&tree)), "a0 a1 a2 a3 b0 b1 a4 c0 c1 d0");
    assert_eq!(ids(log.branch(&tree, None)), "a0 a1 b0 b1");
    assert_eq!(ids(log.branch(&tree, Some(&id("c1")))), "a0 a1 b0 c0 c1");
    let info = log.session(&tree).unwrap().unwrap();
    assert_eq!((info.rules, info.branches), (RuleSet { name: "openhands".to_owned(), version: 1 }, 4));
    assert_eq!(info.meta["format"], "openhands");
    assert_eq!(ids(log.events(&empty)), "");
    assert_eq!(log.view(&tree, None).unwrap().len(), 4);
    assert_eq!(log.view(&kinds, None).unwrap().ids().map(|id| id.as_str()).collect::<Vec<_>>(), ["s", "m", "a", "o"]);
}

/// A log for writing goes on where it was.
fn check_going_on(log: &Log) {
    for session in log.sessions().unwrap() {
        log.append(&session.id, &messages("new", 1100)).unwrap();
        assert_eq!(log.search(&session.id, &Query::new("text of new")).unwrap().hits.len(), 10);
        assert!(log.count_tokens(&session.id, "words", |_| Tokens(1)).unwrap() >= 1100);
        log.erase(&session.id, &id("new7")).unwrap();
        let verified = log.verify(&session.id).unwrap();
        assert_eq!((verified.problems, verified.erased.last()), (vec![], Some(&id("new7"))));
    }
    assert_eq!(log.check_file().unwrap(), [""; 0]);
}

#[test]
fn a_log_of_format_1_is_migrated_when_it_is_opened_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy("format-1.db", dir.path());
    let before = fs::read(&path).unwrap();
    let error = Log::open(&path, Options { access: Access::Read, ..Options::default() }).unwrap_err();
    assert!(matches!(error, OpenError::NeedsMigration { found: 1, supported: 2, .. }), "{error}");
    assert!(error.to_string().contains("log format 1 has to be migrated to 2; open it once for writing"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);

    let log = Log::open(&path, Options { access: Access::Write, ..Options::default() }).unwrap();
    check_common(&log);
    check_going_on(&log);
    drop(log);
    assert_eq!(version(&path), 2);
    check_common_after(&Log::open(&path, Options { access: Access::Read, ..Options::default() }).unwrap());
}

/// After [`check_going_on`] the old events are still the first.
fn check_common_after(log: &Log) {
    let read: Vec<_> = log.events(&named(log, "every kind")).unwrap().take(11).map(Result::unwrap).collect();
    assert_eq!(read, every_kind());
}

#[test]
fn connections_that_migrate_at_once_agree() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy("format-1.db", dir.path());
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| check_common(&Log::open(&path, Options::default()).unwrap()))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    check_going_on(&Log::open(&path, Options::default()).unwrap());
}

#[test]
fn a_migration_that_cannot_be_finished_leaves_the_old_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy("format-1.db", dir.path());
    // An id that stands for no text cannot be carried over.
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE event SET id = 99999 WHERE row & 0xffffffff = 3", [])
        .unwrap();
    let error = Log::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Storage { .. }), "{error}");
    assert_eq!(version(&path), 1);
}

#[test]
fn a_log_of_format_2_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = copy("format-2.db", dir.path());
    let check_long = |log: &Log| {
        let long = named(log, "long");
        let info = log.session(&long).unwrap().unwrap();
        assert_eq!((info.events, info.is_complete), (1114, true));
        assert_eq!(log.verify(&long).unwrap().erased, [id("e7")]);
        let view = log.view_sized(&long, None, Some("words")).unwrap();
        assert_eq!(view.len(), 1114 - 4 - 5 + 1, "four records are not shown, five events are forgotten, a summary is");
        assert_eq!(view.iter().filter(|entry| entry.is_pinned()).count(), 1);
        assert_eq!(view.iter().filter(|entry| entry.tokens() == Some(Tokens(3))).count(), 1105);
        let hits = log.search(&long, &Query::new("\"text 1001\"")).unwrap();
        assert_eq!((hits.hits.len(), hits.not_indexed), (1, 0));
        assert_eq!(log.condensations(&long).unwrap().len(), 1);
        assert!(!log.session(&named(log, "unfinished")).unwrap().unwrap().is_complete);
    };
    let log = Log::open(&path, Options { access: Access::Read, ..Options::default() }).unwrap();
    check_common(&log);
    check_long(&log);
    drop(log);
    let log = Log::open(&path, Options { access: Access::Write, ..Options::default() }).unwrap();
    check_common(&log);
    check_long(&log);
    check_going_on(&log);
    assert_eq!(version(&path), 2);
}

/// How the fixture was made, and the way to make one of a later format.
#[test]
#[ignore = "writes a fixture of the format of this build"]
fn write_the_fixture() {
    let path = stored("format-2.db");
    assert!(!path.exists(), "a fixture is written once");
    let options = Options { journal: Journal::Rollback, clock: || 1_767_225_600_000, ..Options::default() };
    let log = Log::open(&path, options).unwrap();
    let new = |name: &str, rules: &str, meta| NewSession {
        name: name.to_owned(),
        rules: RuleSet { name: rules.to_owned(), version: 1 },
        meta,
    };
    let kinds = session(&log, "every kind");
    log.append(&kinds, &every_kind()).unwrap();
    let meta = [("format".to_owned(), "openhands".into())].into_iter().collect();
    let tree = log.create_session(new("tree", "openhands", meta)).unwrap();
    log.append(&tree, &messages("a", 4)).unwrap();
    log.set_head(&tree, Some(&id("a1"))).unwrap();
    log.append(&tree, &messages("b", 2)).unwrap();
    log.append(&tree, &[after("a3", "a4"), after("b0", "c0"), message("c1", "")]).unwrap();
    log.set_head(&tree, None).unwrap();
    log.append(&tree, &[message("d0", "")]).unwrap();
    log.set_head(&tree, Some(&id("b1"))).unwrap();
    session(&log, "empty");
    let long = session(&log, "long");
    log.append(&long, &messages("e", 1110)).unwrap();
    log.erase(&long, &id("e7")).unwrap();
    let forgets = |ids: std::ops::Range<usize>| Condensation {
        forgotten_event_ids: ids.map(|n| id(&format!("e{n}"))).collect(),
        summary: Some("notes".to_owned()),
        summary_offset: Some(1),
        ..Condensation::default()
    };
    let first = log.append_condensation(&long, &forgets(10..15), Some(&id("e1109"))).unwrap();
    log.append_condensation(&long, &forgets(20..30), Some(&first)).unwrap();
    log.undo(&long, None).unwrap();
    log.pin(&long, &[id("e1")]).unwrap();
    log.index(&long).unwrap();
    log.count_tokens(&long, "words", |_| Tokens(3)).unwrap();
    log.import(new("unfinished", "sound", Default::default())).unwrap();
    log.compact().unwrap();
}
