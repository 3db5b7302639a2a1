//! Sessions in and out, erasing, and copies of a log in use.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::*;
use condenser::condensation::Condensation;
use condenser::event::Event;
use condenser_log::{
    Access, AppendError, BackupError, Fault, ImportError, Log, NewSession, Options, Query, RuleSet, SessionId,
    is_export,
};

fn exported(log: &Log, session: &SessionId) -> String {
    let mut lines = Vec::new();
    log.export(session, &mut lines).unwrap();
    assert!(is_export(&lines));
    String::from_utf8(lines).unwrap()
}

/// A session with every kind, several trees and forks, and a head inside.
fn forked(log: &Log) -> SessionId {
    let s = session(log, "forked");
    log.append(&s, &every_kind()).unwrap();
    log.append(&s, &messages("a", 4)).unwrap();
    log.set_head(&s, Some(&id("a1"))).unwrap();
    log.append(&s, &messages("b", 2)).unwrap();
    log.append(&s, &[after("a3", "a4"), after("b0", "c0"), message("c1", "")]).unwrap();
    log.set_head(&s, None).unwrap();
    log.append(&s, &[message("d0", "")]).unwrap();
    log.set_head(&s, Some(&id("b1"))).unwrap();
    s
}

/// All rows of a session, with hashes.
fn rows(path: &Path) -> Vec<String> {
    let conn = rusqlite::Connection::open(path).unwrap();
    let mut statement = conn
        .prepare(
            "SELECT e.branch, e.parent, e.id, e.kind, e.flags, e.call, e.response, hex(b.hash), b.json, hex(b.erased) \
             FROM event e JOIN body b ON b.row = e.row ORDER BY e.row",
        )
        .unwrap();
    let line = |row: &rusqlite::Row<'_>| Ok((0..10).map(|n| format!("{:?}|", row.get_ref(n).unwrap())).collect());
    statement.query_map([], line).unwrap().map(Result::unwrap).collect()
}

#[test]
fn an_export_read_into_another_log_gives_the_same_rows_hashes_and_branches() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from.db"), dir.path().join("to.db"));
    let log = Log::open(&from, Options::default()).unwrap();
    let session = forked(&log);
    log.append(&session, &messages("many", 3000)).unwrap();
    log.erase(&session, &id("a2")).unwrap();
    log.set_head(&session, Some(&id("c0"))).unwrap();
    let lines = exported(&log, &session);
    let copy = Log::open(&to, Options::default()).unwrap();
    let (copied, events) = copy.import_export(lines.as_bytes()).unwrap();
    assert_eq!(copied, session);
    assert_eq!(events, log.session(&session).unwrap().unwrap().events);
    assert_eq!(rows(&to), rows(&from));
    assert_eq!(copy.session(&session).unwrap(), log.session(&session).unwrap());
    assert_eq!(copy.branches(&session).unwrap(), log.branches(&session).unwrap());
    assert_eq!(exported(&copy, &session), lines);
    let verified = copy.verify(&session).unwrap();
    assert_eq!((verified.problems, verified.erased), (vec![], vec![id("a2")]));
    assert!(matches!(copy.import_export(lines.as_bytes()), Err(ImportError::Exists(exists)) if exists == session));
}

#[test]
fn an_export_that_is_damaged_or_cut_short_leaves_nothing_and_names_its_line() {
    let log = Log::open_in_memory().unwrap();
    let session = forked(&log);
    let lines = exported(&log, &session);
    let n_lines = lines.lines().count();
    let copy = Log::open_in_memory().unwrap();
    let check = |lines: &str, expected: &str| {
        let error = copy.import_export(lines.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(copy.sessions().unwrap(), []);
    };
    for cut in [1, 2, n_lines - 1] {
        let cut: Vec<&str> = lines.lines().take(cut).collect();
        check(&cut.join("\n"), &format!("cut short before line {}", cut.len() + 1));
    }
    check("", "not an exported session");
    check("{\"kind\":\"message\"}\n", "not an exported session");
    check(&lines.replace("\"id\":\"a2\"", "\"id\":7"), "line 15: ");
    check(&lines.replace("\"condenser_end\":", "\"condenser_end\":1"), "there should be 1");
    check(&lines.replace("\"version\":1,\"id\"", "\"version\":2,\"id\""), "export version 2 is newer than 1");
    check(&lines.replacen("{\"condenser_head\":\"a1\"}", "{\"condenser_head\":\"zz\"}", 1), "zz");
    check(&lines.replacen("{\"condenser_head\":\"a1\"}", "{\"condenser_tail\":\"zz\"}", 1), "line ");
    copy.import_export(lines.as_bytes()).unwrap();
}

#[test]
fn an_unfinished_import_is_marked_and_an_abandoned_one_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let new = |name: &str| NewSession {
        name: name.to_owned(),
        rules: RuleSet { name: "sound".to_owned(), version: 1 },
        meta: Default::default(),
    };
    let fill = |name, n| {
        let mut import = log.import(new(name)).unwrap();
        messages("e", n).into_iter().for_each(|event| import.push(event).unwrap());
        import
    };
    let whole = fill("whole", 2500);
    let whole_id = whole.session().clone();
    assert_eq!(whole.finish().unwrap(), 2500);
    let half_id = fill("half", 2500).session().clone();
    fill("abandoned", 2500).abandon().unwrap();
    let listed: Vec<_> =
        log.sessions().unwrap().into_iter().map(|info| (info.name, info.events, info.is_complete)).collect();
    assert_eq!(listed, [("whole".to_owned(), 2500, true), ("half".to_owned(), 2000, false)]);
    for session in [&whole_id, &half_id] {
        assert_eq!(log.verify(session).unwrap().problems, []);
    }
    let mut twice = fill("twice", 1500);
    let error = messages("e", 1000).into_iter().find_map(|event| twice.push(event).err()).unwrap();
    assert!(matches!(error, AppendError::Duplicate { .. }), "{error}");
    twice.abandon().unwrap();
    assert_eq!(log.sessions().unwrap().len(), 2);
}

fn contains(path: &Path, needle: &str) -> bool {
    let wal = path.with_file_name(format!("{}-wal", path.file_name().unwrap().display()));
    [path, &wal].iter().any(|path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
    })
}

#[test]
fn an_erased_body_is_gone_from_the_file_and_its_place_and_hash_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let session = session(&log, "s");
    let mut events = every_kind();
    // What a newer version wrote, and this one keeps without knowing it, is content too.
    events[1] = serde_json::from_str(
        r#"{"id":"m","source":"user","kind":"message","role":"user","hobby":"gardening",
            "content":[{"type":"text","text":"hi","mood":"melancholy"},{"type":"hologram","of":"grandmother"}]}"#,
    )
    .unwrap();
    events.push(message("secret", "the password is xyzzyplugh and more"));
    events.extend(messages("e", 50));
    log.append(&session, &events).unwrap();
    log.count_tokens(&session, "words", |_| condenser::Tokens(7)).unwrap();
    assert_eq!(log.search(&session, &Query::new("xyzzyplugh")).unwrap().hits.len(), 1);
    let before = log.view(&session, None).unwrap();
    for event in &events[..12] {
        log.erase(&session, &event.id).unwrap();
        log.erase(&session, &event.id).unwrap();
    }
    assert!(log.compact().unwrap());
    for secret in ["xyzzyplugh", "quote ", "future.widget", "keep the names", "gardening", "melancholy", "grandmother"]
    {
        assert_eq!(contains(&path, secret), secret == "future.widget", "{secret}");
    }
    let verified = log.verify(&session).unwrap();
    assert_eq!((verified.problems, verified.n_erased), (vec![], 12));
    assert_eq!(log.check_file().unwrap(), [""; 0]);
    assert_eq!(log.search(&session, &Query::new("xyzzyplugh")).unwrap().hits, []);
    assert_eq!(log.text(&session, &id("secret"), None).unwrap().unwrap(), b"[erased]");
    assert_eq!(log.token_count(&session, "words", &id("secret")).unwrap(), None);
    assert_eq!(log.token_count(&session, "words", &id("e1")).unwrap(), Some(condenser::Tokens(7)));
    assert_eq!(log.count_tokens(&session, "words", |_| condenser::Tokens(1)).unwrap(), 5);
    let after = log.view(&session, None).unwrap();
    assert_eq!(before.ids().collect::<Vec<_>>(), after.ids().collect::<Vec<_>>());
    log.append(&session, &messages("f", 3)).unwrap();
    assert_eq!(log.verify(&session).unwrap().problems, []);
    // A tombstone says no more than that.
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch("UPDATE body SET json = replace(json, '[erased]', 'invented') WHERE row & 0xffffffff = 11")
        .unwrap();
    let problems = log.verify(&session).unwrap().problems;
    assert_eq!((problems[0].position, problems[0].fault), (11, Fault::TombstoneDiffers));
}

#[test]
fn a_dropped_session_is_gone_from_the_file_and_the_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let (kept, dropped) = (session(&log, "kept"), session(&log, "dropped"));
    for n in 0..30 {
        log.append(&kept, &messages(&format!("k{n}-"), 50)).unwrap();
        log.append(&dropped, &[message(&format!("d{n}"), "xyzzyplugh")]).unwrap();
        log.append(&dropped, &messages(&format!("d{n}-"), 50)).unwrap();
    }
    for session in [&kept, &dropped] {
        log.index(session).unwrap();
        log.count_tokens(session, "words", |_| condenser::Tokens(1)).unwrap();
    }
    log.drop_session(&dropped).unwrap();
    assert!(log.compact().unwrap());
    assert!(!contains(&path, "xyzzyplugh"));
    assert!(!contains(&path, dropped.as_str()));
    assert_eq!(log.sessions().unwrap().len(), 1);
    let stats = log.stats().unwrap();
    assert_eq!((stats.events, stats.indexed, stats.token_counts), (1500, 1500, 1500));
    assert_eq!(log.verify(&kept).unwrap().problems, []);
    assert_eq!(log.check_file().unwrap(), [""; 0]);
    assert_eq!(log.search(&kept, &Query::new("text")).unwrap().hits.len(), 10);
    assert!(log.drop_session(&dropped).is_err());
    // Nothing of the old session shows through a new one.
    let next = session(&log, "next");
    log.append(&next, &messages("n", 2)).unwrap();
    assert_eq!(log.search(&next, &Query::new("text")).unwrap().hits.len(), 2);
    assert_eq!(log.verify(&next).unwrap().problems, []);
}

#[test]
fn a_reader_in_the_way_of_emptying_the_write_ahead_log_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let options = Options { busy_timeout: std::time::Duration::ZERO, ..Options::default() };
    let log = Log::open(&path, options).unwrap();
    let session = session(&log, "s");
    log.append(&session, &messages("e", 3)).unwrap();
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM event").unwrap();
    log.erase(&session, &id("e1")).unwrap();
    assert!(!log.compact().unwrap());
    reader.execute_batch("COMMIT").unwrap();
    assert!(log.compact().unwrap());
}

#[test]
fn a_backup_of_a_log_in_use_is_a_whole_log_that_only_its_owner_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options { sync: condenser_log::Sync::Normal, ..Options::default() }).unwrap();
    let session = forked(&log);
    log.index(&session).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let log = Log::open(&path, Options { sync: condenser_log::Sync::Normal, ..Options::default() }).unwrap();
            (0..200).for_each(|n| drop(log.append(&session, &messages(&format!("w{n}-"), 5)).unwrap()));
        });
        for n in 0..5 {
            let copy = dir.path().join(format!("copy{n}.db"));
            let bytes = log.backup(&copy).unwrap();
            assert_eq!(fs::metadata(&copy).unwrap().len(), bytes);
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt as _;
                assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
            }
            let copy = Log::open(&copy, Options { access: Access::Read, ..Options::default() }).unwrap();
            let info = copy.session(&session).unwrap().unwrap();
            assert_eq!((info.events - 21) % 5, 0, "whole batches");
            assert_eq!(copy.verify(&session).unwrap().problems, []);
            assert_eq!(copy.check_file().unwrap(), [""; 0]);
        }
        writer.join().unwrap();
    });
    let taken = dir.path().join("copy0.db");
    assert!(matches!(log.backup(&taken), Err(BackupError::Exists { path }) if path == taken));
    let nowhere = dir.path().join("no/such/folder.db");
    assert!(log.backup(&nowhere).unwrap_err().to_string().contains("folder.db"));
    let restored = Log::open(&taken, Options::default()).unwrap();
    restored.append(&session, &[message("after", "")]).unwrap();
    assert_eq!(restored.verify(&session).unwrap().problems, []);
}

#[test]
fn kinds_of_the_future_are_exported_as_they_came() {
    let log = Log::open_in_memory().unwrap();
    let session = session(&log, "s");
    let event: Event =
        serde_json::from_str(r#"{"id":"w","source":"hook","kind":"future.widget","size":{"z":1,"a":[2.50]}}"#).unwrap();
    log.append(&session, std::slice::from_ref(&event)).unwrap();
    let record: Condensation =
        serde_json::from_str(r#"{"forgotten_event_ids":["no","nor","not"],"summary":"s"}"#).unwrap();
    log.append_condensation(&session, &record, None).unwrap();
    let lines = exported(&log, &session);
    let copy = Log::open_in_memory().unwrap();
    copy.import_export(lines.as_bytes()).unwrap();
    assert_eq!(copy.event(&session, &id("w")).unwrap(), Some(event));
    assert_eq!(exported(&copy, &session), lines);
    assert_eq!(copy.view(&session, None).unwrap().diagnostics().hidden, 1);
    assert_eq!(copy.view(&session, None).unwrap().diagnostics().unknown_ids, 3);
}
