//! A run as tables for people.

use std::collections::HashMap;

use condenser::profile::Prices;
use condenser_harness::{Basis, Manifest, PolicyMeans, Row, SavedRun, charged, lift, means};

use crate::terminal::printable;

/// What a comparison says and what it does not. Every table opens with it.
const ESTIMATE: &str =
    "Replay holds the recorded actions fixed: it says what the recorded agent would have been shown at each step,
and what that input would have cost. It does not estimate solve rate, run length or the detours a policy causes.";

/// More traces than this are shown by their means only.
const MAX_TRACES: usize = 20;

/// How a table is written: its header, and its rows.
type Write = fn(&[&str], Vec<Vec<String>>) -> String;

/// The tables of a run: one per trace, where there are not too many, and the means of each window.
pub(crate) fn tables(run: &SavedRun, table: Write) -> String {
    let prices = charged(&run.manifest.profile);
    let mut text = format!("{ESTIMATE}\n");
    let several = run.manifest.windows.len() > 1;
    let mut by_trace: Vec<&str> = Vec::new();
    let mut rows_of: HashMap<&str, Vec<&Row>> = HashMap::new();
    for row in &run.rows {
        let rows = rows_of.entry(&row.trace).or_default();
        if rows.is_empty() {
            by_trace.push(&row.trace);
        }
        rows.push(row);
    }
    if by_trace.len() > MAX_TRACES {
        text.push_str(&format!(
            "\nThe tables of {} traces are left out; --format csv has every row.\n",
            by_trace.len()
        ));
    }
    for trace in by_trace.iter().take(if by_trace.len() > MAX_TRACES { 0 } else { MAX_TRACES }) {
        let rows = &rows_of[trace];
        let steps = rows.first().map_or(0, |row| row.steps);
        let format = rows.first().map_or("", |row| row.format.as_str());
        let facts = run.traces.get(*trace);
        let events = facts.map_or_else(String::new, |facts| format!("{} events, ", facts.events));
        text.push_str(&format!("\n{} ({format}, {events}{steps} steps)\n", printable(trace)));
        if facts.is_some_and(|facts| facts.has_condensations) {
            text.push_str("The agent itself ran with condensations here, so `none` was never sent.\n");
        }
        text.push_str(&table(
            &header(several, false),
            rows.iter().map(|row| row_cells(row, several, prices.as_ref())).collect(),
        ));
    }
    if by_trace.len() > 1 {
        for window in &run.manifest.windows {
            let of_window: Vec<Row> = run.rows.iter().filter(|row| row.window == Some(*window)).cloned().collect();
            let means = means(&of_window, &prices.unwrap_or(NO_PRICES));
            text.push_str(&format!(
                "\nMean of {} traces, window {}; the last four columns are totals\n",
                by_trace.len(),
                tokens(*window)
            ));
            text.push_str(&table(
                &header(false, true),
                means.iter().map(|mean| mean_cells(mean, prices.is_some())).collect(),
            ));
            text.push_str(&lifts(&means));
        }
    }
    text.push_str(&footer(&run.manifest, prices.as_ref()));
    text
}

const NO_PRICES: Prices = Prices { input: 0.0, cache_read: 0.0, cache_write: 0.0, output: 0.0 };

fn header(with_window: bool, is_mean: bool) -> Vec<&'static str> {
    let mut header = vec!["policy"];
    if with_window {
        header.push("window");
    }
    header.push(if is_mean { "fired on" } else { "records" });
    header.extend([
        "peak",
        "input",
        "cached",
        "$ uncached",
        "$ discount",
        "$ tiered",
        "$ profile",
        "in view",
        "+ summary",
        "recoverable",
        "far in view",
        "re-reads",
        "over",
        "failed",
        "invalid",
    ]);
    header
}

fn row_cells(row: &Row, with_window: bool, prices: Option<&Prices>) -> Vec<String> {
    let seed = if row.seed > 0 { format!(" (seed {})", row.seed) } else { String::new() };
    let mut cells = vec![format!("{}{seed}", row.policy)];
    if with_window {
        cells.push(row.window.map_or_else(|| "–".into(), tokens));
    }
    cells.push(if row.fired() { row.condensations.to_string() } else { "–".into() });
    cells.extend([tokens(row.peak_tokens), tokens(row.input_tokens)]);
    cells.push(share(row.cached_tokens, row.input_tokens));
    for basis in Basis::ALL {
        cells.push(dollars(prices.map(|prices| row.price(&basis.prices(prices)))));
    }
    cells.push(dollars(row.cost_usd));
    cells.push(share(row.evidence_in_view, row.evidence_total));
    cells.push(share(row.evidence_in_view + row.evidence_in_summary, row.evidence_total));
    cells.push(share(row.evidence_recoverable, row.evidence_total));
    cells.push(share(row.evidence_far_in_view, row.evidence_far_total));
    cells.push(row.rereads_exposed.to_string());
    cells.push(row.over_window_steps.to_string());
    cells.push(row.failed_condensations.to_string());
    cells.push(row.invalid_requests.to_string());
    cells
}

fn mean_cells(mean: &PolicyMeans, has_prices: bool) -> Vec<String> {
    let mut cells = vec![mean.policy.clone(), format!("{} of {}", mean.fired, mean.n)];
    cells.extend([tokens(mean.peak_tokens as u64), tokens(mean.input_tokens as u64), percent(mean.cached_share)]);
    cells.extend(mean.cost.iter().map(|cost| dollars(has_prices.then_some(*cost))));
    cells.push(dollars(mean.cost_usd));
    cells.extend([mean.in_view, mean.in_view_or_summary, mean.recoverable, mean.far_in_view].map(percent));
    cells.push(mean.rereads_exposed.to_string());
    cells.push(mean.over_window_steps.to_string());
    cells.push(mean.failed_condensations.to_string());
    cells.push(mean.invalid_requests.to_string());
    cells
}

/// What a policy's choice is worth over a random one of the same size.
fn lifts(means: &[PolicyMeans]) -> String {
    let find = |name: &str| means.iter().find(|mean| mean.policy == name);
    let mut text = String::new();
    for (policy, random) in [("observation-masking", "random-masking"), ("recent-events", "random-forgetting")] {
        if let (Some(policy), Some(random)) = (find(policy), find(random))
            && let (Some(kept), Some(by_chance)) = (policy.in_view, random.in_view)
            && let Some(lift) = lift(kept, by_chance)
        {
            // Where a random choice cannot be made as small, it was easier to keep more.
            let size = percent((policy.input_tokens > 0.0).then(|| random.input_tokens / policy.input_tokens));
            text.push_str(&format!(
                "lift of {} over {} (at {size} of its input), in view: {lift:+.2}\n",
                policy.policy, random.policy
            ));
        }
    }
    text
}

fn footer(manifest: &Manifest, prices: Option<&Prices>) -> String {
    let windows: Vec<String> = manifest.windows.iter().map(|window| tokens(*window)).collect();
    let mut text = format!(
        "\nwindow {}, reserve {}, tokenizer {}{}, summarizer {}, recall {}, rules {}\n",
        windows.join(" and "),
        tokens(manifest.reserve),
        manifest.tokenizer,
        if manifest.is_estimate { " (an estimate)" } else { "" },
        format_args!("{}{}", manifest.summarizer, if manifest.is_model { "" } else { " (not an LLM summary)" }),
        if manifest.recall { "on" } else { "off" },
        manifest.rules,
    );
    if let Some(prices) = prices {
        text.push_str(&format!(
            "profile {}: USD per million tokens, input {:.2}, cache read {:.2}, cache write {:.2}, output {:.2}\n",
            manifest.profile.name, prices.input, prices.cache_read, prices.cache_write, prices.output
        ));
    }
    text.push_str(
        "in view, + summary, recoverable: where the evidence of an action's arguments was when it acted; far: 5 steps back or more\n",
    );
    text
}

/// `950`, `12.3k`, `1.25M`.
pub(crate) fn tokens(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{}k", trim(n as f64 / 1e3, 1)),
        _ => format!("{}M", trim(n as f64 / 1e6, 2)),
    }
}

fn trim(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) fn share(part: u64, whole: u64) -> String {
    percent((whole > 0).then(|| part as f64 / whole as f64))
}

/// Whole percents; nearly all is not all.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(
        || "–".into(),
        |share| match share {
            0.995..1.0 => format!("{:.1}%", (share * 1000.0).floor() / 10.0),
            _ => format!("{:.0}%", share * 100.0),
        },
    )
}

pub(crate) fn dollars(cost: Option<f64>) -> String {
    cost.map_or_else(|| "–".into(), |cost| format!("{cost:.3}"))
}
