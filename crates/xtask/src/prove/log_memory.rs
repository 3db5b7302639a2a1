//! How much memory opening a long log takes: the view's, not the log's.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use condenser::Rules;
use condenser::condensation::Condensation;
use condenser::event::{Event, EventId, EventKind, Message, Role, Source};
use condenser_log::{Access, Log, NewSession, Options, RuleSet, SessionId, Sync};

/// Bytes of the log's file, at least.
const LOG_BYTES: u64 = 200 << 20;
/// Bytes of memory that opening may take, at most.
const MEMORY_BYTES: u64 = 64 << 20;
/// Events of one batch; all but one are forgotten at once.
const BATCH: usize = 100;
/// Names the file and the session to the process that opens them.
const OPEN: &str = "CONDENSER_PROVE_OPEN";

/// Writes a log, and opens it in another process. Whether its peak memory stays under the bound.
pub(super) fn command() -> anyhow::Result<bool> {
    if let Ok(open) = std::env::var(OPEN) {
        let (session, path) = open.split_once(' ').context("a session and a path")?;
        return open_to_view(Path::new(path), &SessionId::new(session));
    }
    if peak_bytes().is_none() {
        println!("skipped: this system does not tell a process its peak memory");
        return Ok(true);
    }
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("log.db");
    let session = write(&path)?;
    let opened = Command::new(std::env::current_exe()?)
        .args(["prove", "memory"])
        .env(OPEN, format!("{session} {}", path.display()))
        .status()?;
    Ok(opened.success())
}

fn write(path: &Path) -> anyhow::Result<SessionId> {
    let log = Log::open(path, Options { sync: Sync::Normal, ..Options::default() })?;
    let rules = RuleSet::of(Rules::Sound);
    let session = log.create_session(NewSession { name: "long".to_owned(), rules, meta: Default::default() })?;
    let text = "a line of some output that nobody reads again\n".repeat(40);
    let mut n_events = 0;
    while std::fs::metadata(path)?.len() < LOG_BYTES {
        let event = |n: usize| {
            let kind = EventKind::Message(Message::text(Role::User, format!("{n} {text}")));
            Event::new(format!("{n:08x}-0000-4000-8000-{n:012x}"), Source::User, kind)
        };
        let events: Vec<Event> = (n_events..n_events + BATCH).map(event).collect();
        let head = log.append(&session, &events)?.head;
        let forgotten: std::collections::BTreeSet<EventId> =
            events.iter().skip(1).map(|event| event.id.clone()).collect();
        let record = Condensation { forgotten_event_ids: forgotten, ..Condensation::default() };
        log.append_condensation(&session, &record, head.as_ref())?;
        n_events += BATCH;
    }
    Ok(session)
}

fn open_to_view(path: &Path, session: &SessionId) -> anyhow::Result<bool> {
    let log = Log::open(path, Options { access: Access::Read, ..Options::default() })?;
    let view = log.view(session, None)?;
    let peak = peak_bytes().context("a peak")?;
    let (file, shown, pushed) = (std::fs::metadata(path)?.len(), view.len(), view.n_pushed());
    println!("{} MB of log, {shown} of {pushed} events shown, peak memory {} MB", file >> 20, peak >> 20);
    Ok(peak < MEMORY_BYTES)
}

/// The most memory this process ever had.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}
