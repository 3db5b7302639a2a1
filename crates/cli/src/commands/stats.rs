//! `condenser stats`: what differences between policies are worth.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use condenser_harness::statistics::{
    Difference, Finding, Resampling, Role, Spread, Study, StudyError, Verdict, compare_rows, spread,
};
use condenser_harness::{Row, SavedRun};

use crate::error::{CliError, Exit};
use crate::output::{Output, OutputFormat};
use crate::table::table;

/// The longest line that can be a row.
const MAX_LINE: usize = 1 << 20;

#[derive(clap::Args, Debug)]
pub(crate) struct StatsArguments {
    /// Folders that `condenser compare --out` wrote, or files of rows as its `--format jsonl` writes them. Rows of one
    /// trace, policy and window in several of them, or of several seeds, are samples.
    #[arg(required = true)]
    rows: Vec<PathBuf>,
    /// The policy that all others are compared with.
    #[arg(long, value_name = "POLICY", default_value = "none")]
    baseline: String,
    /// The metric that decides. Name it before looking at the rows. Without it, what the run's manifest names, or
    /// else cost_usd.
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
    /// Further metrics that are tested; their p are adjusted together, after Holm.
    #[arg(long, value_name = "METRICS", value_delimiter = ',')]
    also: Vec<String>,
    /// Metrics that are shown and not tested.
    #[arg(long, value_name = "METRICS", value_delimiter = ',')]
    explore: Vec<String>,
    /// Up to which difference of the primary metric two policies are called equal.
    #[arg(long, value_name = "NUMBER")]
    margin: Option<f64>,
    #[command(flatten)]
    resampling: ResamplingArguments,
    /// The form of the result; json holds findings and spreads, jsonl the findings only.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
    /// Write the result to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// How tasks are drawn anew.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct ResamplingArguments {
    /// How often tasks are drawn anew.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    resamples: u32,
    /// Where the random numbers start.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl ResamplingArguments {
    pub(crate) fn get(self) -> Resampling {
        Resampling { seed: self.seed, resamples: self.resamples }
    }
}

#[derive(serde::Serialize)]
struct Report<'f> {
    baseline: &'f str,
    seed: u64,
    resamples: u32,
    findings: &'f [Finding],
    spreads: &'f [Spread],
}

pub(crate) fn run(arguments: &StatsArguments) -> Result<Exit, CliError> {
    let mut rows = Vec::new();
    let mut named = None;
    let mut seen = HashSet::new();
    for path in &arguments.rows {
        // A path twice is no second sample.
        if !seen.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())) {
            return Err(CliError::Usage(format!("{}: named twice", path.display())));
        }
        if path.is_dir() {
            let run = SavedRun::open(path).map_err(|error| CliError::Input(error.to_string()))?;
            named.get_or_insert(run.manifest.primary);
            rows.extend(run.rows);
        } else {
            read(path, &mut rows)?;
        }
    }
    let primary = arguments.metric.clone().or(named).unwrap_or_else(|| "cost_usd".to_owned());
    let study = Study {
        baseline: arguments.baseline.clone(),
        primary,
        secondary: arguments.also.clone(),
        exploratory: arguments.explore.clone(),
        margin: arguments.margin,
        resampling: arguments.resampling.get(),
    };
    let usage = |error: StudyError| CliError::Usage(error.to_string());
    let findings = compare_rows(&rows, &study).map_err(usage)?;
    let spreads = spread(&rows, &study.primary).map_err(usage)?;
    let mut output = Output::open(arguments.output.clone())?;
    match arguments.format {
        OutputFormat::Table => output.text(&tables(&study, &findings, &spreads))?,
        OutputFormat::Json => output.json(&Report {
            baseline: &study.baseline,
            seed: arguments.resampling.seed,
            resamples: arguments.resampling.resamples,
            findings: &findings,
            spreads: &spreads,
        })?,
        OutputFormat::Jsonl => findings.iter().try_for_each(|finding| output.json_line(finding))?,
        OutputFormat::Csv => output.csv(&findings.iter().map(Flat::new).collect::<Vec<_>>())?,
    }
    output.finish()?;
    Ok(Exit::Ok)
}

/// Reads rows from a file of JSON lines.
fn read(path: &Path, rows: &mut Vec<Row>) -> Result<(), CliError> {
    let failed = |reason: String| CliError::Input(format!("{}{reason}", path.display()));
    let file = File::open(if path.is_dir() { path.join("rows.jsonl") } else { path.to_owned() })
        .map_err(|error| failed(format!(": {error}")))?;
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|error| failed(format!(", line {}: {error}", index + 1)))?;
        if line.trim().is_empty() {
            continue;
        }
        if line.len() > MAX_LINE {
            return Err(failed(format!(", line {}: longer than a row can be", index + 1)));
        }
        rows.push(serde_json::from_str(&line).map_err(|error| {
            failed(format!(", line {}: no row of `condenser compare --format jsonl`: {error}", index + 1))
        })?);
    }
    Ok(())
}

/// A finding as one line of values.
#[derive(serde::Serialize)]
struct Flat<'f> {
    policy: &'f str,
    metric: &'f str,
    role: Role,
    window: Option<u64>,
    tokenizer: &'f str,
    summarizer: &'f str,
    n_traces: Option<usize>,
    n_tasks: Option<usize>,
    baseline_mean: Option<f64>,
    treatment_mean: Option<f64>,
    mean: Option<f64>,
    median: Option<f64>,
    wins: Option<usize>,
    ties: Option<usize>,
    losses: Option<usize>,
    top_share: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    detectable: Option<f64>,
    p: Option<f64>,
    p_adjusted: Option<f64>,
    verdict: Verdict,
    unpaired: usize,
    without_task: usize,
}

impl<'f> Flat<'f> {
    fn new(finding: &'f Finding) -> Self {
        let of = finding.difference.as_ref();
        let interval = of.and_then(|of| of.interval);
        Self {
            policy: &finding.policy,
            metric: &finding.metric,
            role: finding.role,
            window: finding.window,
            tokenizer: &finding.tokenizer,
            summarizer: &finding.summarizer,
            n_traces: of.map(|of| of.n_traces),
            n_tasks: of.map(|of| of.n_tasks),
            baseline_mean: of.map(|of| of.baseline_mean),
            treatment_mean: of.map(|of| of.treatment_mean),
            mean: of.map(|of| of.mean),
            median: of.map(|of| of.median),
            wins: of.map(|of| of.wins),
            ties: of.map(|of| of.ties),
            losses: of.map(|of| of.losses),
            top_share: of.and_then(|of| of.top_share),
            low: interval.map(|[low, _]| low),
            high: interval.map(|[_, high]| high),
            detectable: of.and_then(|of| of.detectable),
            p: of.and_then(|of| of.p),
            p_adjusted: finding.p_adjusted,
            verdict: finding.verdict,
            unpaired: finding.unpaired,
            without_task: finding.without_task,
        }
    }
}

fn tables(study: &Study, findings: &[Finding], spreads: &[Spread]) -> String {
    let mut text = format!(
        "Differences to `{}`, trace by trace; 95% intervals from {} draws of whole tasks, seed {}\n",
        study.baseline, study.resampling.resamples, study.resampling.seed
    );
    let mut done: Vec<(&str, Option<u64>, &str, &str)> = Vec::new();
    let key = |it: &'_ Finding| (it.window, it.tokenizer.clone(), it.summarizer.clone());
    for first in findings {
        let this = (first.metric.as_str(), first.window, first.tokenizer.as_str(), first.summarizer.as_str());
        if done.contains(&this) {
            continue;
        }
        done.push(this);
        let window = first.window.map_or_else(|| "no window".to_owned(), |window| format!("window {window}"));
        text.push_str(&format!(
            "\n{} ({}), {window}, tokenizer {}, summarizer {}\n",
            first.metric,
            role(first.role),
            first.tokenizer,
            first.summarizer
        ));
        let of_table = findings.iter().filter(|it| it.metric == first.metric && key(it) == key(first));
        text.push_str(&table(&HEADER, of_table.map(|finding| cells(finding, study))));
    }
    if !spreads.is_empty() {
        text.push_str(&format!("\n{} between samples of one trace, beside that between traces\n", study.primary));
        let header = ["policy", "window", "traces", "samples", "sd of samples", "sd of traces"];
        text.push_str(&table(&header, spreads.iter().map(spread_cells)));
    }
    text.push_str(&notes(study, findings));
    text
}

const HEADER: [&str; 13] = [
    "policy",
    "traces",
    "tasks",
    "baseline",
    "policy's",
    "difference",
    "interval",
    "median",
    "win/tie/loss",
    "top 5%",
    "detectable",
    "p",
    "verdict",
];

fn role(role: Role) -> &'static str {
    match role {
        Role::Primary => "primary",
        Role::Secondary => "secondary, p adjusted",
        Role::Exploratory => "exploratory, not tested",
    }
}

fn cells(finding: &Finding, study: &Study) -> Vec<String> {
    let Some(it) = &finding.difference else {
        let mut cells = vec![finding.policy.clone(), "0".to_owned()];
        cells.resize(HEADER.len(), "–".to_owned());
        return cells;
    };
    let p = match finding.role {
        Role::Primary => it.p,
        Role::Secondary => finding.p_adjusted,
        Role::Exploratory => None,
    };
    let verdict = match finding.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Equal => "equal",
        Verdict::Undecided if study.margin.is_none() => "no difference shown",
        Verdict::Undecided => "undecided",
        Verdict::Untested => "–",
    };
    let mut cells = vec![finding.policy.clone()];
    cells.extend(difference_cells(it));
    cells.push(p.map_or_else(dash, |p| format!("{p:.4}")));
    cells.push(verdict.to_owned());
    cells
}

/// Counts, means, interval, median, wins, top share and detectable difference.
pub(crate) fn difference_cells(it: &Difference) -> Vec<String> {
    vec![
        it.n_traces.to_string(),
        it.n_tasks.to_string(),
        number(it.baseline_mean),
        number(it.treatment_mean),
        signed(it.mean),
        it.interval.map_or_else(dash, |[low, high]| format!("{} to {}", signed(low), signed(high))),
        signed(it.median),
        format!("{}/{}/{}", it.wins, it.ties, it.losses),
        it.top_share.map_or_else(dash, |share| format!("{:.0}%", share * 100.0)),
        it.detectable.map_or_else(dash, number),
    ]
}

fn spread_cells(it: &Spread) -> Vec<String> {
    vec![
        it.policy.clone(),
        it.window.map_or_else(dash, |window| window.to_string()),
        it.n_traces.to_string(),
        it.n_samples.to_string(),
        number(it.between_samples),
        it.between_traces.map_or_else(dash, number),
    ]
}

fn notes(study: &Study, findings: &[Finding]) -> String {
    let mut text = String::new();
    let unpaired = findings.iter().map(|it| it.unpaired).max().unwrap_or(0);
    let without_task = findings.iter().map(|it| it.without_task).max().unwrap_or(0);
    text.push_str(
        "\ntop 5%: the share of all absolute differences that the twentieth of the traces with the largest has\n\
         detectable: the difference that a study of this size finds four times in five\n",
    );
    match study.margin {
        Some(margin) => text.push_str(&format!("equal: the whole interval lies within ±{margin}\n")),
        None => text.push_str("nothing is called equal without --margin\n"),
    }
    if without_task > 0 {
        text.push_str(&format!("{without_task} traces name no task; each counts as a task of its own\n"));
    }
    if unpaired > 0 {
        text.push_str(&format!(
            "up to {unpaired} traces of a policy have no partner under `{}`, or no value, and are left out\n",
            study.baseline
        ));
    }
    if findings.iter().any(|it| it.summarizer == "extractive") {
        text.push_str("summaries by `extractive` are lines picked from events, and not an LLM's\n");
    }
    text
}

fn dash() -> String {
    "–".to_owned()
}

/// Four digits that count.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let digits = match size {
        _ if size == 0.0 => 0,
        _ if size >= 1e3 => 0,
        _ if size >= 1.0 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

fn signed(value: f64) -> String {
    if value > 0.0 { format!("+{}", number(value)) } else { number(value) }
}
