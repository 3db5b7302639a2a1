//! `condenser compare`: policies side by side on recorded traces.

use std::collections::HashSet;
use std::path::PathBuf;

use condenser::profile::Prices;
use condenser::{Policy, Tokens};
use condenser_harness::{Basis, PolicyMeans, Prepared, Row, Subject, charged, lift, means};
use condenser_traces::{Candidate, Trace};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use crate::error::{CliError, Exit};
use crate::input::{InputArguments, Met};
use crate::output::{Output, OutputFormat};
use crate::subjects::{Choice, Measure, MeasureArguments, Policies, parse_tokens, replay};
use crate::table::table;
use crate::terminal::printable;

/// What a comparison says and what it does not. Every table opens with it.
const ESTIMATE: &str =
    "Replay holds the recorded actions fixed: it says what the recorded agent would have been shown at each step,
and what that input would have cost. It does not estimate solve rate, run length or the detours a policy causes.";

#[derive(clap::Args, Debug)]
pub(crate) struct CompareArguments {
    #[command(flatten)]
    input: InputArguments,
    /// Policies and controls by name; `default` is every native policy and control, `all` everything. Without it, what
    /// `--policies` names, or else `default`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policy: Vec<String>,
    /// A TOML file of policies with settings, and of pipelines.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// Context windows: `32k`, or several as `8k,32k,128k`.
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "32k", value_parser = parse_tokens)]
    window: Vec<Tokens>,
    #[command(flatten)]
    measure: MeasureArguments,
    /// The policy that random controls match, instead of observation-masking and recent-events.
    #[arg(long = "match", value_name = "POLICY")]
    matched: Option<String>,
    /// How many seeds random controls run under, from 0.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The form of the result.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
    /// Write the result to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Threads; all processors where none is named.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

/// The rows of one trace, and what the table says about it.
struct Compared {
    name: String,
    format: &'static str,
    n_events: usize,
    has_condensations: bool,
    rows: Vec<Row>,
}

pub(crate) fn run(arguments: &CompareArguments) -> Result<Exit, CliError> {
    let measure = arguments.measure.resolve()?;
    let policies = Policies::read(arguments.policies.as_deref())?;
    let choices = policies.choose(&arguments.policy)?;
    let matched = arguments.matched.as_ref().map(|name| policies.policy(name)).transpose()?;
    let mut output = Output::open(arguments.output.clone())?;
    let (candidates, mut met) = arguments.input.candidates()?;
    let threads = rayon::ThreadPoolBuilder::new().num_threads(arguments.jobs.map_or(0, usize::from)).build();
    let threads = threads.map_err(|error| CliError::Usage(format!("cannot start threads: {error}")))?;
    let progress = progress(candidates.len());
    let compared: Vec<(Vec<Compared>, Met)> = threads.install(|| {
        candidates
            .par_iter()
            .map(|candidate| {
                let result = compare_candidate(arguments, &measure, &choices, matched.as_deref(), candidate);
                progress.inc(1);
                result
            })
            .collect()
    });
    progress.finish_and_clear();
    let mut traces = Vec::new();
    for (result, met_here) in compared {
        met.add(met_here);
        traces.extend(result);
    }
    let rows: Vec<&Row> = traces.iter().flat_map(|trace| &trace.rows).collect();
    match arguments.format {
        OutputFormat::Table => output.text(&tables(arguments, &measure, &traces))?,
        OutputFormat::Json => output.json(&rows)?,
        OutputFormat::Jsonl => rows.iter().try_for_each(|row| output.json_line(row))?,
        OutputFormat::Csv => output.csv(&rows)?,
    }
    output.finish()?;
    let is_incomplete = measure.models.summarizer.note_missing();
    Ok(if is_incomplete { Exit::Check } else { met.exit(arguments.input.strict) })
}

fn progress(n: usize) -> ProgressBar {
    // On a terminal only: elsewhere indicatif draws nothing.
    let bar = ProgressBar::new(n as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} files, {elapsed} so far, about {eta} left") {
        bar.set_style(style);
    }
    bar
}

fn compare_candidate(
    arguments: &CompareArguments,
    measure: &Measure,
    choices: &[Choice],
    matched: Option<&dyn Policy>,
    candidate: &Candidate,
) -> (Vec<Compared>, Met) {
    let (traces, met) = arguments.input.read(candidate);
    let compared = traces.iter().map(|trace| compare_trace(arguments, measure, choices, matched, trace)).collect();
    (compared, met)
}

fn compare_trace(
    arguments: &CompareArguments,
    measure: &Measure,
    choices: &[Choice],
    matched: Option<&dyn Policy>,
    trace: &Trace,
) -> Compared {
    let subject =
        Subject { trace: &trace.name, format: trace.format, task: trace.task.as_deref(), events: &trace.events };
    let prepared = Prepared::new(subject, measure.models.counter, measure.rules);
    let mut runs = Vec::new();
    for window in windows(arguments) {
        for choice in choices {
            let n_seeds = if choice.draws() { arguments.seeds } else { 1 };
            runs.extend((0..n_seeds).map(|seed| (window, choice, seed)));
        }
    }
    let rows = runs
        .into_par_iter()
        .map(|(window, choice, seed)| {
            let settings = measure.settings(window, seed);
            replay(&prepared, choice, &settings, matched, None).row
        })
        .collect();
    Compared {
        name: trace.name.clone(),
        format: trace.format,
        n_events: trace.events.iter().filter(|event| event.kind.is_shown()).count(),
        has_condensations: prepared.has_recorded_condensations(),
        rows,
    }
}

/// The windows, each once.
fn windows(arguments: &CompareArguments) -> Vec<Tokens> {
    let mut windows = arguments.window.clone();
    let mut seen = HashSet::new();
    windows.retain(|window| seen.insert(*window));
    windows
}

fn tables(arguments: &CompareArguments, measure: &Measure, traces: &[Compared]) -> String {
    let prices = charged(&measure.models.profile);
    let mut text = format!("{ESTIMATE}\n");
    let several = windows(arguments).len() > 1;
    for trace in traces {
        let steps = trace.rows.first().map_or(0, |row| row.steps);
        text.push_str(&format!(
            "\n{} ({}, {} events, {steps} steps)\n",
            printable(&trace.name),
            trace.format,
            trace.n_events
        ));
        if trace.has_condensations {
            text.push_str("The agent itself ran with condensations here, so `none` was never sent.\n");
        }
        text.push_str(&table(
            &header(several, false),
            trace.rows.iter().map(|row| row_cells(row, several, prices.as_ref())),
        ));
    }
    let rows: Vec<Row> = traces.iter().flat_map(|trace| trace.rows.iter().cloned()).collect();
    if traces.len() > 1 {
        for window in windows(arguments) {
            let of_window: Vec<Row> = rows.iter().filter(|row| row.window == Some(window.0)).cloned().collect();
            let means = means(&of_window, &prices.unwrap_or(NO_PRICES));
            text.push_str(&format!(
                "\nMean of {} traces, window {}; the last four columns are totals\n",
                traces.len(),
                tokens(window.0)
            ));
            text.push_str(&table(&header(false, true), means.iter().map(|mean| mean_cells(mean, prices.is_some()))));
            text.push_str(&lifts(&means));
        }
    }
    text.push_str(&footer(arguments, measure, prices.as_ref()));
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
    let find = |name: &str| means.iter().find(|mean| mean.policy == name).and_then(|mean| mean.in_view);
    let mut text = String::new();
    for (policy, random) in [("observation-masking", "random-masking"), ("recent-events", "random-forgetting")] {
        if let (Some(kept), Some(by_chance)) = (find(policy), find(random))
            && let Some(lift) = lift(kept, by_chance)
        {
            text.push_str(&format!("lift of {policy} over {random}, in view: {lift:+.2}\n"));
        }
    }
    text
}

fn footer(arguments: &CompareArguments, measure: &Measure, prices: Option<&Prices>) -> String {
    let windows: Vec<String> = windows(arguments).iter().map(|window| tokens(window.0)).collect();
    let mut text = format!(
        "\nwindow {}, reserve {}, tokenizer {}{}, summarizer {}, recall {}, rules {}\n",
        windows.join(" and "),
        tokens(arguments.measure.reserve.0),
        measure.models.counter.name(),
        if measure.models.counter.is_estimate() { " (an estimate)" } else { "" },
        measure.models.summarizer.described(),
        word(&arguments.measure.recall),
        word(&arguments.measure.rules),
    );
    if let Some(prices) = prices {
        text.push_str(&format!(
            "profile {}: USD per million tokens, input {:.2}, cache read {:.2}, cache write {:.2}, output {:.2}\n",
            measure.models.profile.name, prices.input, prices.cache_read, prices.cache_write, prices.output
        ));
    }
    text.push_str(
        "in view, + summary, recoverable: where the evidence of an action's arguments was when it acted; far: 5 steps back or more\n",
    );
    text
}

/// A choice as it is written on the command line.
fn word(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// `950`, `12.3k`, `1.25M`.
fn tokens(n: u64) -> String {
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

fn share(part: u64, whole: u64) -> String {
    percent((whole > 0).then(|| part as f64 / whole as f64))
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |share| format!("{:.0}%", share * 100.0))
}

fn dollars(cost: Option<f64>) -> String {
    cost.map_or_else(|| "–".into(), |cost| format!("{cost:.3}"))
}
