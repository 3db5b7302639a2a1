//! Several processes on one log: killed at random moments, and appending at once.
//!
//! The other processes are this very test binary, started with [`writer`] as its only test.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::*;
use condenser_log::{Journal, Log, Options, SessionId};
use rusqlite::Connection;

/// Where a killed writer is likely to be: syncing the write-ahead log of a commit, syncing the file in a checkpoint,
/// or syncing the rollback journal.
const SYNC_POINTS: [(&str, Journal, usize); 3] =
    [("commit", Journal::Wal, 1), ("checkpoint", Journal::Wal, 3), ("rollback", Journal::Rollback, 5)];

fn options(journal: Journal) -> Options {
    Options { journal, ..Options::default() }
}

fn start(path: &Path, session: &SessionId, prefix: &str, sync_point: usize, n_events: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer", "--ignored", "--nocapture"])
        .env("WRITER", format!("{}\n{session}\n{prefix}\n{sync_point}\n{n_events}", path.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Text of a length that depends on the number, up to a few pages.
fn text(n: usize) -> String {
    format!("event {n} ").repeat(1 + n * 7919 % 700)
}

#[test]
#[ignore = "a process that the other tests start"]
fn writer() {
    let Ok(settings) = std::env::var("WRITER") else { return };
    let settings: Vec<&str> = settings.lines().collect();
    let (path, session, prefix) = (Path::new(settings[0]), SessionId::new(settings[1]), settings[2]);
    let (name, journal, batch) = SYNC_POINTS[settings[3].parse::<usize>().unwrap()];
    let n_events: usize = settings[4].parse().unwrap();
    let log = Log::open(path, options(journal)).unwrap();
    let checkpointer = Connection::open(path).unwrap();
    let mut next = log.session(&session).unwrap().unwrap().events as usize;
    if prefix != "shared" {
        next = 0;
    }
    while next < n_events {
        let events: Vec<_> = (next..next + batch).map(|n| message(&format!("{prefix}{n}"), &text(n))).collect();
        log.append(&session, &events).unwrap();
        next += batch;
        println!("acknowledged {next}");
        if name == "checkpoint" {
            checkpointer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        }
    }
}

/// The numbers that a writer acknowledges, to its end.
fn acknowledged(child: &mut Child) -> impl Iterator<Item = usize> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter_map(|line| line.split("acknowledged ").nth(1)?.trim().parse().ok())
}

#[test]
fn a_killed_writer_leaves_every_acknowledged_event_and_a_log_that_goes_on() {
    let kills: usize = std::env::var("CONDENSER_KILLS").map_or(21, |kills| kills.parse().unwrap());
    let mut random = 0x9e37_79b9_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for (sync_point, (name, journal, batch)) in SYNC_POINTS.into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.db");
        let session = session(&Log::open(&path, options(journal)).unwrap(), "s");
        let (mut total, mut unacknowledged) = (0, 0);
        for kill in 0..kills.div_ceil(SYNC_POINTS.len()) {
            let mut child = start(&path, &session, "shared", sync_point, usize::MAX - 10);
            let mut seen = acknowledged(&mut child);
            let mut last = seen.by_ref().nth(draw(8) as usize).unwrap();
            (0..draw(3_000_000)).for_each(|_| std::hint::spin_loop());
            child.kill().unwrap();
            child.wait().unwrap();
            last = seen.last().unwrap_or(last);

            let log = Log::open(&path, options(journal)).unwrap();
            let events: Vec<_> = log.events(&session).unwrap().map(Result::unwrap).collect();
            assert!(events.len() >= last, "{name}, kill {kill}: {last} acknowledged, {} there", events.len());
            assert_eq!(events.len() % batch, 0, "{name}, kill {kill}: half a batch");
            for (n, event) in events.iter().enumerate().skip(total) {
                assert_eq!(event, &message(&format!("shared{n}"), &text(n)), "{name}, kill {kill}");
            }
            unacknowledged += events.len() - last;
            assert_eq!(log.verify(&session).unwrap().problems, [], "{name}, kill {kill}");
            assert_eq!(log.check_file().unwrap(), [""; 0], "{name}, kill {kill}");
            let next: Vec<_> =
                (events.len()..events.len() + batch).map(|n| message(&format!("shared{n}"), &text(n))).collect();
            log.append(&session, &next).unwrap();
            total = events.len() + batch;
        }
        println!("{name}: {total} events, {unacknowledged} stored before a kill and not acknowledged");
    }
}

#[test]
fn two_processes_append_a_thousand_times_each_and_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let log = Log::open(&path, Options::default()).unwrap();
    let session = session(&log, "s");
    let writers = ["a", "b"].map(|prefix| start(&path, &session, prefix, 0, 1000));
    let mut readers = 0;
    for mut writer in writers {
        assert_eq!(acknowledged(&mut writer).last(), Some(1000));
        assert!(writer.wait().unwrap().success());
        readers += usize::from(log.events(&session).unwrap().all(|event| event.is_ok()));
    }
    assert_eq!(readers, 2);
    let ids: Vec<String> = log.branch(&session, None).unwrap().map(|event| event.unwrap().id.to_string()).collect();
    assert_eq!(ids.len(), 2000);
    for writer in ["a", "b"] {
        let own: Vec<_> = ids.iter().filter(|id| id.starts_with(writer)).cloned().collect();
        assert_eq!(own, (0..1000).map(|n| format!("{writer}{n}")).collect::<Vec<_>>());
    }
    assert_eq!(log.verify(&session).unwrap().problems, []);
}
