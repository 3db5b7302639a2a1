//! The log beside a raw SQLite insert loop (`log_figures loops`) and beside the OpenHands SDK's store (`log_figures sdk
//! PYTHON`, a Python with `openhands-sdk` 1.58.2), each on the same disk in one run; and a long session opened to its
//! view (`log_figures long`).
//!
//! Prints Markdown tables. Files are made in the system's folder for temporary files, which should be on a disk.

use std::hint::black_box;
use std::io::{Error, Result};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use condenser::event::{Action, ContentBlock, EventKind, Observation, Source};
use condenser::{Condensation, Event, EventId, Rules, View};
use condenser_benches::{Shape, openhands_events};
use condenser_log::{Access, Log, NewSession, Options, RuleSet, SessionId, Sync};
use condenser_traces::openhands_v1::{Mode, parse_event};
use rusqlite::Connection;
use serde::Deserialize;

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/openhands_store.py");
const BATCH: usize = 100;
/// Events of the comparison with the SDK.
const N_PEER: usize = 5_000;
/// Events of an insert loop.
const N_RAW: usize = 20_000;
/// Events of the long session.
const N_LONG: usize = 1_000_000;

#[derive(Deserialize)]
struct Peer {
    shown: usize,
    append_us: f64,
    open_s: f64,
}

fn main() -> Result<()> {
    let mut out = std::io::stdout().lock();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["loops"] => insert_loops(&mut out),
        ["sdk", python] => beside_the_sdk(python, &mut out),
        ["long"] => long_session(&mut out),
        _ => Err(Error::other("usage: log_figures loops | sdk PYTHON | long")),
    }
}

fn insert_loops(out: &mut impl std::io::Write) -> Result<()> {
    let events = events(N_RAW, 100);
    writeln!(out, "| batches of {BATCH} | raw insert loop | condenser | ratio |\n| --- | ---: | ---: | ---: |")?;
    for (name, sync, rounds) in [("normal sync", Sync::Normal, 15), ("full sync", Sync::Full, 7)] {
        let (mut raw, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let dir = tempfile::tempdir()?;
            let (log, session) = open(&dir.path().join("ours.db"), sync)?;
            ours.push(append(&log, &session, &events, BATCH)?);
            raw.push(insert(&dir.path().join("ours.db"), &dir.path().join("raw.db"), sync)?);
        }
        // The best of each: what else the machine does only ever adds.
        let (raw, ours) = (best(&raw) / events.len() as u32, best(&ours) / events.len() as u32);
        let ratio = raw.as_secs_f64() / ours.as_secs_f64();
        writeln!(out, "| {name} | {} | {} | {ratio:.2} |", us(raw), us(ours))?;
    }
    writeln!(out)
}

/// Inserts the rows that a log has into an empty one, as they are, and nothing else.
fn insert(from: &Path, to: &Path, sync: Sync) -> Result<Duration> {
    type Row = (i64, i64, i64, Option<i64>, String, i64, i64, Option<String>, Option<String>);
    let (log, _) = open(to, sync)?;
    drop(log);
    let run = || -> rusqlite::Result<Duration> {
        let source = Connection::open(from)?;
        let mut statement = source.prepare(
            "SELECT e.row, e.session, e.branch, e.parent, e.id, e.kind, e.flags, e.call, e.response, b.hash, b.json \
             FROM event e JOIN body b ON b.row = e.row ORDER BY e.row",
        )?;
        let rows = statement.query_map([], |row| {
            let event: Row = (
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
                row.get(5)?,
                row.get(6)?,
                row.get(7)?,
                row.get(8)?,
            );
            Ok((event, row.get::<_, Vec<u8>>(9)?, row.get::<_, String>(10)?))
        })?;
        let rows: Vec<_> = rows.collect::<rusqlite::Result<_>>()?;
        let conn = Connection::open(to)?;
        conn.pragma_update(None, "synchronous", if sync == Sync::Full { "full" } else { "normal" })?;
        let mut event = conn.prepare("INSERT INTO event VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
        let mut body = conn.prepare("INSERT INTO body VALUES (?1, ?2, ?3, NULL)")?;
        let start = Instant::now();
        for batch in rows.chunks(BATCH) {
            let tx = conn.unchecked_transaction()?;
            for (header, hash, json) in batch {
                event.execute((
                    header.0, header.1, header.2, header.3, &header.4, header.5, header.6, &header.7, &header.8,
                ))?;
                body.execute((header.0, hash, json))?;
            }
            tx.commit()?;
        }
        Ok(start.elapsed())
    };
    run().map_err(Error::other)
}

fn beside_the_sdk(python: &str, out: &mut impl std::io::Write) -> Result<()> {
    let lines: Vec<String> = openhands_events(Shape { n_events: N_PEER, condense_every: 100 })
        .iter()
        .map(|event| format!("{event}\n"))
        .collect();
    let events = parse(&lines);
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("single.db");
    let (log, session) = open(&path, Sync::Full)?;
    let single = append(&log, &session, &events, 1)? / events.len() as u32;
    let (batched, batched_session) = open(&dir.path().join("batched.db"), Sync::Full)?;
    let batch = append(&batched, &batched_session, &events, BATCH)? / events.len() as u32;
    drop(log);
    let mut shown = 0;
    let times = (0..11).map(|_| {
        let start = Instant::now();
        shown = black_box(open_to_view(&path, &session)?).len();
        Ok(start.elapsed())
    });
    let opened = median(times.collect::<Result<_>>()?);

    let file = dir.path().join("events.jsonl");
    std::fs::write(&file, lines.concat())?;
    let folder = dir.path().join("store");
    std::fs::create_dir(&folder)?;
    let output = Command::new(python)
        .args([Path::new(PEER), &file, &folder])
        .env("OPENHANDS_SUPPRESS_BANNER", "1")
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .output()?;
    if !output.status.success() {
        return Err(Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let peer: Peer = serde_json::from_slice(&output.stdout)?;
    if peer.shown != shown {
        return Err(Error::other(format!("{shown} entries here, {} there", peer.shown)));
    }
    writeln!(out, "| {} events | SDK 1.58.2 | condenser | ratio |\n| --- | ---: | ---: | ---: |", events.len())?;
    for (name, theirs_us, ours) in [
        ("one durable append", peer.append_us, single),
        ("an append in durable batches of 100", peer.append_us, batch),
        ("open and read to the view", peer.open_s * 1e6, opened),
    ] {
        let ratio = theirs_us / 1e6 / ours.as_secs_f64();
        writeln!(out, "| {name} | {:.0} µs | {} | {ratio:.0} |", theirs_us, us(ours))?;
    }
    writeln!(out)
}

fn long_session(out: &mut impl std::io::Write) -> Result<()> {
    writeln!(out, "| {N_LONG} events | file | open to the view | shown |\n| --- | ---: | ---: | ---: |")?;
    for (name, condense_every) in [("a condensation every 100", 100), ("no condensation", usize::MAX)] {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("long.db");
        let (log, session) = open(&path, Sync::Normal)?;
        let mut shown = Vec::new();
        for first in (0..N_LONG).step_by(1000) {
            let mut batch = Vec::new();
            for n in first..first + 1000 {
                batch.push(long_event(n, condense_every, &mut shown));
            }
            log.append(&session, &batch).map_err(Error::other)?;
        }
        drop(log);
        let mut n_shown = 0;
        let times = (0..7).map(|_| {
            let start = Instant::now();
            n_shown = black_box(open_to_view(&path, &session)?).len();
            Ok(start.elapsed())
        });
        let times = times.collect::<Result<Vec<_>>>()?;
        let megabytes = std::fs::metadata(&path)?.len() / 1_000_000;
        let (best, middle) = (best(&times), median(times));
        let (best, middle) = (best.as_secs_f64(), middle.as_secs_f64());
        writeln!(out, "| {name} | {megabytes} MB | {middle:.3} s, best {best:.3} s | {n_shown} |")?;
    }
    Ok(())
}

/// Calls and their answers in turn, a response a call, with a condensation now and then that forgets all but the newest.
fn long_event(n: usize, condense_every: usize, shown: &mut Vec<EventId>) -> Event {
    let id = format!("{n:08x}-0000-4000-8000-{n:012x}");
    if n % condense_every == condense_every - 1 {
        let forgotten = shown.drain(..shown.len() - 10).collect();
        shown.insert(0, EventId::new(format!("{id}-summary")));
        let summary = Some("Work went on.".to_owned());
        let record = Condensation {
            forgotten_event_ids: forgotten,
            summary,
            summary_offset: Some(0),
            ..Condensation::default()
        };
        return Event::new(id, Source::Environment, EventKind::Condensation(record));
    }
    let call = n - n % 2;
    let call_id = format!("toolu_{call:024}");
    let kind = if n == call {
        EventKind::Action(Action {
            call_id,
            tool_name: "terminal".to_owned(),
            arguments: format!("{{\"command\": \"sed -n {n}p src/main.rs\"}}"),
            response_id: Some(format!("msg_{call:024}")),
            ..Action::default()
        })
    } else {
        let content = vec![ContentBlock::text("A line of output, and another one. ".repeat(8))];
        EventKind::Observation(Observation {
            call_id,
            tool_name: "terminal".to_owned(),
            content,
            ..Observation::default()
        })
    };
    let event = Event::new(id, Source::Agent, kind);
    shown.push(event.id.clone());
    event
}

fn open(path: &Path, sync: Sync) -> Result<(Log, SessionId)> {
    let log = Log::open(path, Options { sync, ..Options::default() }).map_err(Error::other)?;
    let new = NewSession { name: "bench".to_owned(), rules: RuleSet::of(Rules::OpenHands), meta: Default::default() };
    let session = log.create_session(new).map_err(Error::other)?;
    Ok((log, session))
}

fn append(log: &Log, session: &SessionId, events: &[Event], batch: usize) -> Result<Duration> {
    let start = Instant::now();
    for batch in events.chunks(batch) {
        log.append(session, batch).map_err(Error::other)?;
    }
    Ok(start.elapsed())
}

fn open_to_view(path: &Path, session: &SessionId) -> Result<View> {
    let log = Log::open(path, Options { access: Access::Write, ..Options::default() }).map_err(Error::other)?;
    log.view(session, None).map_err(Error::other)
}

fn events(n_events: usize, condense_every: usize) -> Vec<Event> {
    let parse = |event| parse_event(event, Mode::Lenient).ok();
    openhands_events(Shape { n_events, condense_every }).into_iter().filter_map(parse).collect()
}

fn parse(lines: &[String]) -> Vec<Event> {
    lines.iter().filter_map(|line| parse_event(serde_json::from_str(line).ok()?, Mode::Lenient).ok()).collect()
}

fn us(time: Duration) -> String {
    format!("{:.1} µs", time.as_secs_f64() * 1e6)
}

fn best(times: &[Duration]) -> Duration {
    times.iter().copied().min().unwrap_or_default()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
