//! The view beside the OpenHands SDK's, on the same events in one run: `against_openhands PYTHON`.
//!
//! PYTHON has to have `openhands-sdk` 1.58.2. Prints medians and their ratios as a Markdown table.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{Error, Result, Write as _};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use condenser::{Event, Header, Names, Rules, View};
use condenser_benches::{Shape, openhands_events};
use condenser_traces::openhands_v1::{Mode, StoredEvent, parse_event};
use serde::Deserialize;

const PEER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/openhands_view.py");
const LENGTHS: [usize; 2] = [1_000, 8_000];

#[derive(Deserialize)]
struct Peer {
    shown: usize,
    parse_us_per_event: f64,
    rebuild_ms: f64,
    append_us: BTreeMap<usize, f64>,
}

fn main() -> Result<()> {
    let python = std::env::args().nth(1).ok_or_else(|| Error::other("usage: against_openhands PYTHON"))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "| 10,000 events | | SDK 1.58.2 | condenser | ratio |\n| --- | --- | ---: | ---: | ---: |")?;
    for (name, condense_every) in [("a condensation every 100", 100), ("no condensation", 0)] {
        let lines: Vec<String> =
            openhands_events(Shape { n_events: 10_000, condense_every }).iter().map(ToString::to_string).collect();
        let peer = peer(&python, &lines, if condense_every == 0 { &LENGTHS } else { &[] })?;
        let events = whole(&lines);
        let (names, headers) = headers(&events);
        for (rules_name, rules) in [("openhands", Rules::OpenHands), ("sound", Rules::Sound)] {
            let mut row = |what: &str, theirs_ms: f64, ours: Duration| {
                let ours_ms = ours.as_secs_f64() * 1e3;
                let ratio = theirs_ms / ours_ms;
                writeln!(
                    out,
                    "| {name} | {what}, {rules_name} rules | {theirs_ms:.2} ms | {ours_ms:.3} ms | {ratio:.0} |"
                )
            };
            let replayed = View::replay_headers(Arc::clone(&names), &headers, rules);
            if replayed.len() != peer.shown {
                return Err(Error::other(format!("{} entries here, {} there", replayed.len(), peer.shown)));
            }
            let replay = median(41, || View::replay_headers(Arc::clone(&names), &headers, rules).len());
            row("replay from headers", peer.rebuild_ms, replay)?;
            row("replay from events", peer.rebuild_ms, median(11, || View::replay(&events, rules).len()))?;
            let text_ms = peer.parse_us_per_event * lines.len() as f64 / 1e3 + peer.rebuild_ms;
            row("JSON text to view", text_ms, median(11, || View::replay(&stored(&lines), rules).len()))?;
            row("JSON text to whole events to view", text_ms, median(5, || View::replay(&whole(&lines), rules).len()))?;
            for (length, theirs_us) in &peer.append_us {
                let ours = append(&names, &headers, *length, rules);
                row(&format!("append and next cut at {length}"), theirs_us / 1e3, ours)?;
            }
        }
    }
    Ok(())
}

fn peer(python: &str, lines: &[String], lengths: &[usize]) -> Result<Peer> {
    let path = std::env::temp_dir().join(format!("condenser-bench-{}.jsonl", std::process::id()));
    std::fs::write(&path, lines.join("\n"))?;
    let output = Command::new(python)
        .arg(PEER)
        .arg(&path)
        .args(lengths.iter().map(ToString::to_string))
        .env("OPENHANDS_SUPPRESS_BANNER", "1")
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .output();
    std::fs::remove_file(&path)?;
    let output = output?;
    if !output.status.success() {
        return Err(Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn whole(lines: &[String]) -> Vec<Event> {
    lines.iter().filter_map(|line| parse_event(serde_json::from_str(line).ok()?, Mode::Lenient).ok()).collect()
}

fn stored(lines: &[String]) -> Vec<StoredEvent<'_>> {
    lines.iter().filter_map(|line| StoredEvent::read(line).ok()).collect()
}

fn headers(events: &[Event]) -> (Arc<Names>, Vec<Header>) {
    let mut names = Names::default();
    let headers = events.iter().map(|event| names.header(event)).collect();
    (Arc::new(names), headers)
}

/// One append, from the middle of a hundred.
fn append(names: &Arc<Names>, headers: &[Header], length: usize, rules: Rules) -> Duration {
    const APPENDS: usize = 100;
    let view = View::replay_headers(Arc::clone(names), &headers[..length], rules);
    let mut times: Vec<Duration> = (0..21)
        .map(|_| {
            let mut view = view.clone();
            view.push_header(&headers[length]);
            let start = Instant::now();
            for header in &headers[length + 1..=length + APPENDS] {
                view.push_header(header);
                black_box(view.next_index(length / 2));
            }
            start.elapsed() / APPENDS as u32
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn median<T>(runs: usize, mut run: impl FnMut() -> T) -> Duration {
    let mut times: Vec<Duration> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            black_box(run());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[runs / 2]
}
