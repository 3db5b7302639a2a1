//! A saved run as one HTML page: tables, charts, and each trace with its log beside what the model was shown.
//!
//! The page holds everything it needs. A content security policy in it forbids scripts other than its own, and every
//! connection; foreign text goes in as text only, shortened, with control characters made visible. It holds excerpts of
//! the traces: it is as private as they are.
//!
//! A trace's log and views are packed one by one, and are unpacked when somebody opens the trace.

mod columns;
mod data;
mod detail;
mod page;
mod text;

use std::collections::HashMap;
use std::io::{self, Write};

use condenser::event::Event;
use condenser_harness::{Row, RowKey, SavedRun};
use serde::Deserialize;

pub use text::visible;

/// Where the events of a run's trace are.
#[derive(Clone, Debug)]
pub enum Source {
    /// Here, and they are those that the run was made with.
    Found(Vec<Event>),
    /// They are not to be had, for this reason.
    Missing(String),
}

/// How planted values of one kind stood after one round of condensation: a line of `condenser canaries --format jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CanaryLine {
    /// The policy.
    pub policy: String,
    /// The context window in tokens.
    pub window: u64,
    /// The kind.
    pub kind: String,
    /// The round, from 1.
    pub round: u32,
    /// Values that went through it.
    pub n: u64,
    /// Of these, those in view.
    pub in_view: u64,
    /// Of the others, those in a summary.
    pub in_summary: u64,
    /// Of the others, those behind an address.
    pub recoverable: u64,
    /// The rest.
    pub lost: u64,
    /// Of all, those whose superseded value stands alone or in a summary.
    pub stale: u64,
}

/// Writes the report of a run.
///
/// `events` is asked once for each trace, by its name, in the order of the run's traces.
///
/// # Errors
/// Those of `out`.
pub fn write(
    run: &SavedRun,
    canaries: &[CanaryLine],
    events: &mut dyn FnMut(&str) -> Source,
    out: &mut dyn Write,
) -> io::Result<()> {
    let parts = page::Parts::new(&data::facts(run));
    out.write_all(parts.head.as_bytes())?;
    let names = data::Names::new(run, canaries);
    let mut rows: HashMap<&str, Vec<&Row>> = HashMap::new();
    for row in &run.rows {
        rows.entry(&row.trace).or_default().push(row);
    }
    let mut sources = Vec::new();
    for (number, facts) in run.traces.values().enumerate() {
        let source = events(&facts.trace);
        let rows = rows.get(facts.trace.as_str()).map_or(&[][..], Vec::as_slice);
        let saved: Vec<detail::Saved<'_>> = rows
            .iter()
            .map(|row| {
                let key = RowKey::of(row);
                let views = run.views.get(&key).map(|saved| &saved.views);
                let views = views.filter(|views| views.steps.len() as u64 == row.steps);
                detail::Saved { row, steps: run.steps.get(&key), views }
            })
            .collect();
        let block = detail::block(run, facts, &source, &saved, &names)?;
        writeln!(out, "<script type=\"application/octet-stream\" id=\"trace-{number}\">{block}</script>")?;
        sources.push(match source {
            Source::Found(_) => None,
            Source::Missing(reason) => Some(text::name(&reason, 300)),
        });
    }
    let data = data::data(run, canaries, &names, &sources);
    let json = text::for_script(&serde_json::to_string(&data)?);
    writeln!(out, "<script type=\"application/json\" id=\"data\">{json}</script>")?;
    out.write_all(parts.foot.as_bytes())?;
    out.flush()
}
