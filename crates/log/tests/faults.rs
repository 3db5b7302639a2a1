//! What happens to a log in a bad place: foreign files, newer formats, no permission, broken bytes.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::*;
use condenser::Tokens;
use condenser_log::{
    Access, AppendError, Fault, Journal, Log, OpenError, Options, Query, ReadError, SessionError, SessionId,
    StorageError,
};
use rusqlite::Connection;

fn small_log(dir: &Path) -> (PathBuf, SessionId) {
    let path = dir.join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let session = session(&log, "s");
    log.append(&session, &every_kind()).unwrap();
    log.append(&session, &messages("e", 20)).unwrap();
    log.set_head(&session, Some(&id("e3"))).unwrap();
    log.append(&session, &messages("f", 20)).unwrap();
    (path, session)
}

#[test]
fn a_newer_major_is_refused_by_number_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = small_log(dir.path());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let before = fs::read(&path).unwrap();
    for access in [Access::Create, Access::Write, Access::Read] {
        let error = Log::open(&path, Options { access, ..Options::default() }).unwrap_err();
        assert!(matches!(error, OpenError::Newer { found: 99, supported: 2, .. }), "{error}");
        assert!(error.to_string().contains("log format 99 is newer than 2, the newest this build reads"), "{error}");
    }
    let error = Log::open(&path, Options { journal: Journal::Rollback, ..Options::default() }).unwrap_err();
    assert!(matches!(error, OpenError::Newer { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn an_older_major_without_a_migration_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = small_log(dir.path());
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 0).unwrap();
    let error = Log::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::NoMigration { found: 0, .. }), "{error}");
}

#[test]
fn a_newer_minor_is_read_and_written_and_never_stamped_down() {
    let dir = tempfile::tempdir().unwrap();
    let (path, session) = small_log(dir.path());
    Connection::open(&path).unwrap().execute("UPDATE format SET minor = 7", []).unwrap();
    let log = Log::open(&path, Options::default()).unwrap();
    log.append(&session, &[message("new", "")]).unwrap();
    assert_eq!(log.format_minor().unwrap(), 7);
}

#[test]
fn what_is_not_a_log_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    fs::write(&text, "not a database, and longer than the hundred bytes that a header of SQLite takes ".repeat(10))
        .unwrap();
    let other = dir.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x); PRAGMA user_version = 2").unwrap();
    for path in [&text, &other] {
        let before = fs::read(path).unwrap();
        for access in [Access::Create, Access::Read] {
            let error = Log::open(path, Options { access, ..Options::default() }).unwrap_err();
            assert!(matches!(error, OpenError::NotALog { .. }), "{error:?}");
        }
        assert_eq!(&fs::read(path).unwrap(), &before);
    }
    assert!(matches!(
        Log::open(dir.path(), Options::default()),
        Err(OpenError::NotALog { .. } | OpenError::Storage { .. })
    ));
    let absent = dir.path().join("absent");
    for access in [Access::Write, Access::Read] {
        let error = Log::open(&absent, Options { access, ..Options::default() }).unwrap_err();
        assert!(matches!(error, OpenError::NotFound { .. }), "{error:?}");
        assert!(!absent.exists());
    }
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    let error = Log::open(&empty, Options { access: Access::Read, ..Options::default() }).unwrap_err();
    assert!(matches!(error, OpenError::NotALog { .. }), "{error:?}");
}

#[cfg(unix)]
#[test]
fn a_new_log_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    session(&log, "s");
    for name in ["log.db", "log.db-wal", "log.db-shm"] {
        let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn writing_to_a_log_opened_for_reading_is_its_own_error() {
    let dir = tempfile::tempdir().unwrap();
    let (path, session) = small_log(dir.path());
    let log = Log::open(&path, Options { access: Access::Read, ..Options::default() }).unwrap();
    let error = log.append(&session, &[message("new", "")]).unwrap_err();
    assert!(matches!(error, AppendError::Storage(StorageError::ReadOnly(_))), "{error:?}");
    let error = log.set_head(&session, None).unwrap_err();
    assert!(matches!(error, SessionError::Storage(StorageError::ReadOnly(_))), "{error:?}");
    assert_eq!(log.events(&session).unwrap().map(Result::unwrap).count(), 51);
}

#[cfg(unix)]
#[test]
fn a_file_without_permission_is_its_own_error() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = small_log(dir.path());
    let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    set(0o400);
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        eprintln!("skipped: this user may write to read-only files");
        return;
    }
    let error = Log::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Storage { source: StorageError::ReadOnly(_), .. }), "{error:?}");
    set(0);
    let error = Log::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Storage { source: StorageError::Permission(_), .. }), "{error:?}");
}

#[test]
fn neighbours_that_cannot_be_opened_are_their_own_error() {
    let dir = tempfile::tempdir().unwrap();
    let (path, session) = small_log(dir.path());
    fs::create_dir(dir.path().join("log.db-wal")).unwrap();
    let error = Log::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Storage { source: StorageError::Permission(_), .. }), "{error:?}");
    assert!(error.to_string().contains("-wal and -shm"), "{error}");
    fs::remove_dir(dir.path().join("log.db-wal")).unwrap();
    assert_eq!(Log::open(&path, Options::default()).unwrap().events(&session).unwrap().count(), 51);
}

#[test]
fn a_file_that_lost_its_end_is_its_own_error() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = small_log(dir.path());
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2 / 4096 * 4096]).unwrap();
    let error = Log::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Storage { source: StorageError::Corrupt(_), .. }), "{error:?}");
    assert!(error.to_string().contains("restore it from a backup"), "{error}");
}

#[test]
fn any_changed_byte_of_a_stored_payload_is_noticed_and_its_event_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let s = session(&log, "s");
    log.append(&s, &messages("e", 20)).unwrap();
    let words: Vec<String> = (0..4000).map(|n| format!("w{n:05}")).collect();
    log.append(&s, &[message("long", &words.join(" "))]).unwrap();
    log.append(&s, &messages("f", 20)).unwrap();
    let json = serde_json::to_string(&log.event(&s, &id("e5")).unwrap().unwrap()).unwrap();
    log.compact().unwrap();
    drop(log);
    let sound = fs::read(&path).unwrap();
    // SQLite leaves copies in unused parts of pages, so all places that look like the payload are changed at once.
    let places = |needle: &str| -> Vec<usize> {
        let windows = sound.windows(needle.len()).enumerate();
        windows.filter(|(_, window)| *window == needle.as_bytes()).map(|(place, _)| place).collect()
    };
    let check = |places: &[usize], offset: usize, position: u64, name: &str| {
        for bits in [0x01, 0x20, 0x80] {
            let mut bytes = sound.clone();
            places.iter().for_each(|place| bytes[place + offset] ^= bits);
            fs::write(&path, &bytes).unwrap();
            let log = Log::open(&path, Options { access: Access::Read, ..Options::default() }).unwrap();
            let problems = log.verify(&s).unwrap().problems;
            assert_eq!(problems.len(), 1, "{name} byte {offset}");
            assert_eq!((problems[0].position, problems[0].fault), (position, Fault::Changed));
            assert_eq!(problems[0].id, Some(id(name)));
        }
    };
    // Every byte of a short body, and bytes all over one that takes many pages.
    let short = places(&json);
    (0..json.len()).for_each(|offset| check(&short, offset, 5, "e5"));
    words.iter().step_by(131).for_each(|word| check(&places(word), 3, 20, "long"));
}

#[test]
fn a_lock_that_is_held_too_long_is_its_own_error() {
    let dir = tempfile::tempdir().unwrap();
    let (path, session) = small_log(dir.path());
    let log = Log::open(&path, Options { busy_timeout: Duration::ZERO, ..Options::default() }).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = log.append(&session, &[message("new", "")]).unwrap_err();
    assert!(matches!(error, AppendError::Storage(StorageError::Locked(_))), "{error:?}");
    assert_eq!(log.events(&session).unwrap().map(Result::unwrap).count(), 51, "readers do not wait");
    other.execute_batch("ROLLBACK").unwrap();
    log.append(&session, &[message("new", "")]).unwrap();
}

#[test]
fn verify_names_each_event_that_was_tampered_with() {
    // Positions 0 to 10 are one event of every kind, "m" at 1, "a" at 2, "o" at 3; "e0" stands at 11.
    let cases = [
        ("UPDATE body SET json = replace(json, 'text 5 of e', 'text 6 of e')", "16 e5 Changed"),
        ("UPDATE body SET json = '{' WHERE row & 0xffffffff = 16", "16 e5 Changed"),
        ("UPDATE body SET hash = zeroblob(32) WHERE row & 0xffffffff = 16", "16 e5 Changed, 17 e6 Changed"),
        ("DELETE FROM body WHERE row & 0xffffffff = 16", "16 e5 BodyMissing, 17 e6 Changed"),
        ("DELETE FROM event WHERE row & 0xffffffff = 16", "16 e5 HeaderMissing, 17 e6 Misplaced"),
        (
            "DELETE FROM event WHERE row & 0xffffffff = 16; DELETE FROM body WHERE row & 0xffffffff = 16",
            "16 - HeaderMissing, 17 e6 Misplaced, 17 e6 Changed",
        ),
        (
            "CREATE TABLE t AS SELECT * FROM body; UPDATE body SET json = (SELECT json FROM t WHERE row & 0xffffffff = \
             33 - (body.row & 0xffffffff)), hash = (SELECT hash FROM t WHERE row & 0xffffffff = 33 - (body.row & 0xffffffff)) \
             WHERE row & 0xffffffff IN (16, 17)",
            "16 e5 Changed, 17 e6 Changed, 18 e7 Changed",
        ),
        ("UPDATE event SET parent = 12 WHERE row & 0xffffffff = 16", "16 e5 Misplaced, 16 e5 Changed"),
        ("UPDATE event SET kind = 3 WHERE row & 0xffffffff = 16", "16 e5 HeaderDiffers"),
        ("UPDATE event SET flags = 0 WHERE row & 0xffffffff = 2", "2 a HeaderDiffers"),
        ("UPDATE event SET call = NULL WHERE row & 0xffffffff = 3", "3 o HeaderDiffers"),
        ("UPDATE event SET id = 'stolen' WHERE id = 'e5'", "16 stolen HeaderDiffers"),
        ("UPDATE branch SET tip = 20 WHERE branch = 0", "20 - Misplaced"),
        ("UPDATE session SET events = 52", "51 - HeaderMissing"),
        ("UPDATE session SET events = 50, head = 49", "50 - Misplaced"),
        ("DELETE FROM branch WHERE branch = 1", "31 f0 Misplaced"),
    ];
    for (sql, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (path, session) = small_log(dir.path());
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let log = Log::open(&path, Options::default()).unwrap();
        let found = log.verify(&session).unwrap();
        let problems: Vec<String> = found
            .problems
            .iter()
            .map(|problem| {
                let id = problem.id.as_ref().map_or("-", |id| id.as_str());
                format!("{} {id} {:?}", problem.position, problem.fault)
            })
            .collect();
        let problems = problems.join(", ");
        assert!(problems.starts_with(expected), "{sql}: {problems}");
    }
}

#[test]
fn a_reader_stops_at_a_missing_event_and_names_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let (path, session) = small_log(dir.path());
    Connection::open(&path).unwrap().execute_batch("DELETE FROM event WHERE row & 0xffffffff = 16").unwrap();
    let log = Log::open(&path, Options::default()).unwrap();
    for read in [log.events(&session), log.branch(&session, Some(&id("e19")))] {
        let read: Vec<_> = read.unwrap().collect();
        assert_eq!(read.len(), 17, "what comes before is read");
        let error = read.into_iter().next_back().unwrap().unwrap_err();
        assert!(matches!(error, ReadError::Damaged { position: 16, .. }), "{error}");
    }
    assert!(log.verify(&session).unwrap().problems.iter().any(|problem| problem.fault == Fault::HeaderMissing));
}

#[test]
fn broken_bytes_anywhere_in_the_file_give_typed_errors_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let (path, session) = small_log(dir.path());
    let sound = fs::read(&path).unwrap();
    let expected: Vec<_> =
        Log::open(&path, Options::default()).unwrap().events(&session).unwrap().map(Result::unwrap).collect();
    let broken_path = dir.path().join("broken.db");
    let (mut refused, mut noticed) = (0, 0);
    // A step that is prime to the page size visits every place of a page in turn.
    let places = (0..100).chain((100..sound.len()).step_by(401));
    for (n, place) in places.enumerate() {
        let mut bytes = sound.clone();
        bytes[place] ^= [0xff, 0x01, 0x80, 0x55][n % 4];
        if n % 7 == 0 {
            bytes.truncate(place);
        }
        for neighbour in ["broken.db-wal", "broken.db-shm", "broken.db-journal"] {
            let _ = fs::remove_file(dir.path().join(neighbour));
        }
        fs::write(&broken_path, &bytes).unwrap();
        let Ok(log) = Log::open(&broken_path, Options { access: Access::Write, ..Options::default() }) else {
            refused += 1;
            continue;
        };
        let read: Result<Vec<_>, _> = log.events(&session).and_then(Iterator::collect);
        let headers = log.headers(&session, None).map(|headers| headers.filter(Result::is_err).count());
        let branches = log.branches(&session);
        let sound = log.verify(&session).is_ok_and(|found| found.problems.is_empty());
        if let Ok(read) = &read
            && sound
        {
            assert_eq!(read, &expected, "byte {place}: passed as sound with other events");
        }
        if n % 4 == 0 {
            let _ = log.append(&session, &[message("new", "")]);
        }
        let _ = (log.sessions(), log.event(&session, &id("e5")), log.check_file());
        noticed += usize::from(read.is_err() || !sound || headers.is_err() || branches.is_err());
    }
    assert!(refused > 10 && noticed > 10, "{refused} refused, {noticed} noticed");
}

#[test]
fn no_call_panics_on_a_file_with_random_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (path, session) = small_log(dir.path());
    {
        let log = Log::open(&path, Options::default()).unwrap();
        log.append(&session, &messages("more", 1100)).unwrap();
        log.index(&session).unwrap();
        log.count_tokens(&session, "words", |_| Tokens(1)).unwrap();
        log.compact().unwrap();
    }
    let sound = fs::read(&path).unwrap();
    let mut random = 7_u64;
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let mut failed = 0;
    for round in 0..60 {
        let mut bytes = sound.clone();
        for _ in 0..=round % 4 {
            let (place, length) = (draw(sound.len()), 1 + draw(64));
            // The beginning of the file is damaged by the other tests.
            let place = place.max(200);
            let end = (place + length).min(sound.len());
            bytes[place..end].iter_mut().for_each(|byte| *byte = draw(256) as u8);
        }
        for neighbour in ["log.db-wal", "log.db-shm"] {
            let _ = fs::remove_file(dir.path().join(neighbour));
        }
        fs::write(&path, &bytes).unwrap();
        let Ok(log) = Log::open(&path, Options::default()) else { continue };
        let copy = Log::open_in_memory().unwrap();
        let mut export = Vec::new();
        let outcomes = [
            log.view(&session, None).is_ok(),
            log.verify(&session).is_ok_and(|found| found.problems.is_empty()),
            log.search(&session, &Query::new("text")).is_ok(),
            log.export(&session, &mut export).is_ok(),
            copy.import_export(&export[..]).is_ok(),
            log.stats().is_ok(),
            log.condensations(&session).is_ok(),
            log.failed_attempts(&session).is_ok(),
            log.token_counts(&session, "words").is_ok(),
            log.count_tokens(&session, "others", |_| Tokens(1)).is_ok(),
            log.undo(&session, None).is_ok(),
            log.pin(&session, &[id("e1")]).is_ok(),
            log.erase(&session, &id("e2")).is_ok(),
            log.backup(dir.path().join(format!("copy{round}"))).is_ok(),
            log.drop_session(&session).is_ok(),
            log.compact().is_ok(),
        ];
        failed += outcomes.iter().filter(|is_ok| !**is_ok).count();
    }
    assert!(failed > 60, "only {failed} calls noticed anything");
}
