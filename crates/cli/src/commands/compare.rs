//! `condenser compare`: policies side by side on recorded traces.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use condenser::{Policy, Tokens};
use condenser_harness::probes::{Probes, Probing, Verdict};
use condenser_harness::statistics::{metric, metrics};
use condenser_harness::{
    Choice, Control, Manifest, ManifestPolicy, Prepared, Replay, Row, RowKey, RunError, RunWriter, SavedRun,
    SavedSteps, Subject, TraceFacts, digest_of,
};
use condenser_traces::{Candidate, Trace};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;

use super::score::read_probes;
use crate::error::{CliError, Exit};
use crate::gate::{Gate, GateArguments};
use crate::input::{InputArguments, Met};
use crate::output::Output;
use crate::shard::{Shard, parse_shard};
use crate::subjects::{Measure, MeasureArguments, Policies, parse_tokens};
use crate::table::{markdown, table};
use crate::tables::tables;
use crate::terminal::note;

#[derive(clap::Args, Debug)]
pub(crate) struct CompareArguments {
    #[command(flatten)]
    input: InputArguments,
    /// Policies and controls by name; `default` is every native policy and control, `all` everything. Without it, what
    /// `--policies` names, or else `default`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policy: Vec<String>,
    /// A TOML file of policies with settings, of grids of settings, and of pipelines.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// Context windows: `32k`, or several as `8k,32k,128k`.
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "32k", value_parser = parse_tokens)]
    window: Vec<Tokens>,
    #[command(flatten)]
    measure: MeasureArguments,
    /// The policy that random controls and the oracle match, instead of observation-masking and recent-events.
    #[arg(long = "match", value_name = "POLICY")]
    matched: Option<String>,
    /// How many seeds random controls run under, from 0.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// A folder for the run: rows as they are finished, steps, a manifest. A run that was interrupted goes on there.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Compare only a part of the traces, as `1/4`; `condenser merge` puts parts together.
    #[arg(long, value_name = "I/N", value_parser = parse_shard, requires = "out")]
    shard: Option<Shard>,
    /// The metric that decides, stored in the run's manifest (`condenser stats`).
    #[arg(long, value_name = "METRIC", default_value = "cost_usd")]
    primary: String,
    /// Probes to grade: a file, or a folder with one per trace, `<trace stem>.json`. What came of them is stored in
    /// the run and can be a condition of `--fail-on`.
    #[arg(long, value_name = "PATH")]
    probes: Option<PathBuf>,
    #[command(flatten)]
    gate: GateArguments,
    /// The form of the result.
    #[arg(long, value_enum, default_value = "table")]
    format: RunFormat,
    /// Write the result to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Threads; all processors where none is named.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
}

pub(crate) fn run(arguments: &CompareArguments) -> Result<Exit, CliError> {
    let measure = arguments.measure.resolve()?;
    let policies = Policies::read(arguments.policies.as_deref())?;
    let choices = policies.choose(&arguments.policy)?;
    let matched = arguments.matched.as_ref().map(|name| policies.policy(name)).transpose()?;
    if metric(&arguments.primary).is_none() {
        return Err(CliError::Usage(format!("unknown metric {:?}; there are {}", arguments.primary, metric_names())));
    }
    let manifest = manifest(arguments, &measure, &choices)?;
    let gate = Gate::read(&arguments.gate, &manifest)?;
    let mut output = Output::open(arguments.output.clone())?;
    let writer = arguments.out.as_deref().map(|folder| RunWriter::open(folder, &manifest)).transpose();
    let writer = writer.map_err(run_error)?;
    let (candidates, mut met) = arguments.input.candidates()?;
    let threads = rayon::ThreadPoolBuilder::new().num_threads(arguments.jobs.map_or(0, usize::from)).build();
    let threads = threads.map_err(|error| CliError::Usage(format!("cannot start threads: {error}")))?;
    let comparison = Comparison {
        arguments,
        measure: &measure,
        choices: &choices,
        matched: matched.as_deref(),
        writer: writer.as_ref(),
        progress: progress(candidates.len()),
        n_rows: AtomicU64::new(0),
        n_traces: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
    };
    let compared: Vec<(Vec<Compared>, Met)> =
        threads.install(|| candidates.par_iter().map(|candidate| comparison.candidate(candidate)).collect());
    comparison.progress.finish_and_clear();
    if let Some(error) = comparison.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let n_here = comparison.n_traces.load(Ordering::Relaxed);
    let mut here = SavedRun::new(manifest);
    for (found, met_here) in compared {
        met.add(met_here);
        for trace in found {
            here.traces.insert(trace.facts.trace.clone(), trace.facts);
            here.rows.extend(trace.rows);
            here.steps.extend(trace.saved);
        }
    }
    let run = writer.map_or(Ok(here), RunWriter::finish).map_err(run_error)?;
    if arguments.out.is_some() && run.traces.len() as u64 > n_here {
        note(&format!(
            "the run holds {} traces, {} of them not among those named now: they are shown as well",
            run.traces.len(),
            run.traces.len() as u64 - n_here
        ));
    }
    show(&run, arguments.format, &mut output)?;
    output.finish()?;
    let passed = gate.judge(&run)?;
    let is_incomplete = measure.models.summarizer.note_missing();
    Ok(if is_incomplete || !passed { Exit::Check } else { met.exit(arguments.input.strict) })
}

/// The metrics, for a message.
pub(crate) fn metric_names() -> String {
    metrics().map(|metric| metric.name).collect::<Vec<_>>().join(", ")
}

/// The form of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RunFormat {
    /// For people.
    Table,
    /// The same as Markdown.
    Markdown,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
    /// A Parquet file.
    #[cfg(feature = "parquet")]
    Parquet,
}

/// Writes a run as the user wants to see it.
pub(crate) fn show(run: &SavedRun, format: RunFormat, output: &mut Output) -> Result<(), CliError> {
    match format {
        RunFormat::Table => output.text(&tables(run, table)),
        RunFormat::Markdown => output.text(&tables(run, markdown)),
        RunFormat::Json => output.json(&run.rows),
        RunFormat::Jsonl => run.rows.iter().try_for_each(|row| output.json_line(row)),
        RunFormat::Csv => output.csv(&run.rows),
        #[cfg(feature = "parquet")]
        RunFormat::Parquet => output.with(|writer| crate::parquet::write(&run.rows, writer)),
    }
}

/// What an error of a run that is only read means to a user.
pub(crate) fn read_error(error: RunError) -> CliError {
    CliError::Input(error.to_string())
}

/// What an error of a run that is written means to a user.
pub(crate) fn run_error(error: RunError) -> CliError {
    match error {
        RunError::Io { path, source } => CliError::Output { path: Some(path), source },
        RunError::OtherSettings { .. }
        | RunError::InUse { .. }
        | RunError::OtherTrace { .. }
        | RunError::NoManifest { .. }
        | RunError::OtherVersion { .. } => CliError::Usage(error.to_string()),
        _ => CliError::Input(error.to_string()),
    }
}

fn manifest(arguments: &CompareArguments, measure: &Measure, choices: &[Choice]) -> Result<Manifest, CliError> {
    let (version, condenser) = Manifest::versions();
    let probes = arguments.probes.as_deref().map(digest_of_files).transpose()?;
    Ok(Manifest {
        version,
        condenser,
        policies: choices
            .iter()
            .map(|choice| ManifestPolicy { name: row_name(choice, arguments), config_digest: choice.config_digest() })
            .collect(),
        windows: windows(arguments).iter().map(|window| window.0).collect(),
        reserve: arguments.measure.reserve.0,
        tokenizer: measure.models.counter.name().to_owned(),
        is_estimate: measure.models.counter.is_estimate(),
        summarizer: measure.models.summarizer.get().name().to_owned(),
        is_model: measure.models.summarizer.is_model(),
        recall: measure.recall(),
        rules: word(&arguments.measure.rules),
        matched: arguments.matched.clone(),
        seeds: arguments.seeds,
        profile: measure.models.profile.clone(),
        primary: arguments.primary.clone(),
        probes,
        shard: arguments.shard.map(|shard| (shard.number, shard.of)),
        finished: true,
    })
}

/// The name that a row of a choice has.
fn row_name(choice: &Choice, arguments: &CompareArguments) -> String {
    match (choice.control().and_then(Control::default_match), &arguments.matched) {
        (Some(default), Some(matched)) if matched != default => format!("{}({matched})", choice.name()),
        _ => choice.name().to_owned(),
    }
}

fn digest_of_files(path: &Path) -> Result<String, CliError> {
    let failed = |error: std::io::Error| CliError::Input(format!("{}: {error}", path.display()));
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).map_err(failed)?;
        files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
        files.sort();
    }
    let texts: Vec<Vec<u8>> = files.iter().map(std::fs::read).collect::<Result<_, _>>().map_err(failed)?;
    Ok(condenser::condenser::digest(texts))
}

fn progress(n: usize) -> ProgressBar {
    // On a terminal only: elsewhere indicatif draws nothing.
    let bar = ProgressBar::new(n as u64);
    let template = "{bar:30} {pos}/{len} files, {msg}, {elapsed} so far, about {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message("0 rows");
    bar
}

/// A comparison at work.
struct Comparison<'a> {
    arguments: &'a CompareArguments,
    measure: &'a Measure,
    choices: &'a [Choice],
    matched: Option<&'a dyn Policy>,
    writer: Option<&'a RunWriter>,
    progress: ProgressBar,
    n_rows: AtomicU64,
    n_traces: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<CliError>>,
}

/// What came of one trace. Where a run is written, rows and steps are there and not here.
struct Compared {
    facts: TraceFacts,
    rows: Vec<Row>,
    saved: Vec<(RowKey, SavedSteps)>,
}

impl Comparison<'_> {
    /// Keeps the first failure and lets the others stop.
    fn fail(&self, error: CliError) {
        self.failed.store(true, Ordering::Relaxed);
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn candidate(&self, candidate: &Candidate) -> (Vec<Compared>, Met) {
        let mut compared = Vec::new();
        let mut is_first = true;
        let met = self.arguments.input.each(candidate, &mut |trace| {
            let is_ours = self.arguments.shard.is_none_or(|shard| shard.holds(&trace.name));
            // A file of probes belongs to the first trace of a file.
            let probed = std::mem::take(&mut is_first);
            if is_ours && !self.failed.load(Ordering::Relaxed) {
                match self.trace(&trace, candidate.path.as_path(), probed) {
                    Ok(found) => compared.extend(found),
                    Err(error) => self.fail(error),
                }
            }
        });
        self.progress.inc(1);
        (compared, met)
    }

    fn trace(&self, trace: &Trace, path: &Path, probed: bool) -> Result<Option<Compared>, CliError> {
        self.n_traces.fetch_add(1, Ordering::Relaxed);
        let mut runs = self.runs(trace);
        if let Some(writer) = self.writer {
            let n_all = runs.len();
            runs.retain(|(key, ..)| !writer.done().contains_key(key));
            self.count(n_all - runs.len());
            if runs.is_empty() && writer.digest(&trace.name) == Some(digest_of(&trace.events)) {
                return Ok(None);
            }
        }
        let subject =
            Subject { trace: &trace.name, format: trace.format, task: trace.task.as_deref(), events: &trace.events };
        let mut prepared = Prepared::new(subject, self.measure.models.counter, self.measure.rules);
        if self.writer.is_some() {
            prepared = prepared.keep_views();
        }
        let mut facts = prepared.facts();
        if let Some(writer) = self.writer {
            writer.begin(&facts).map_err(run_error)?;
        }
        let probes = self.probes(path, probed)?;
        let replays: Vec<Option<(Replay, Vec<Verdict>)>> = runs
            .into_par_iter()
            .map(|(_, window, choice, seed)| {
                if self.failed.load(Ordering::Relaxed) {
                    return None;
                }
                let replay = self.replay(&prepared, window, choice, seed, probes.as_ref());
                let added = replay.and_then(|(replay, verdicts)| match self.writer {
                    Some(writer) => writer.add(&replay, verdicts).map(|()| None).map_err(run_error),
                    None => Ok(Some((replay, verdicts))),
                });
                self.count(1);
                added.unwrap_or_else(|error| {
                    self.fail(error);
                    None
                })
            })
            .collect();
        if self.arguments.gate.is_empty() {
            // Nothing asks for them here, and there may be very many traces.
            (facts.output, facts.idle, facts.uses) = Default::default();
        }
        let mut compared = Compared { facts, rows: Vec::new(), saved: Vec::new() };
        for (replay, verdicts) in replays.into_iter().flatten() {
            if !self.arguments.gate.is_empty() {
                compared.saved.push((RowKey::of(&replay.row), SavedSteps::of(&replay, verdicts)));
            }
            compared.rows.push(replay.row);
        }
        Ok(Some(compared))
    }

    fn count(&self, n: usize) {
        let n_rows = self.n_rows.fetch_add(n as u64, Ordering::Relaxed) + n as u64;
        let rate = n_rows as f64 / self.progress.elapsed().as_secs_f64().max(0.001);
        self.progress.set_message(format!("{n_rows} rows, {rate:.0} a second"));
    }

    /// All rows that a trace gets, in the order of the tables.
    fn runs(&self, trace: &Trace) -> Vec<(RowKey, Tokens, &Choice, u64)> {
        let mut runs = Vec::new();
        for window in windows(self.arguments) {
            for choice in self.choices {
                let policy = row_name(choice, self.arguments);
                let n_seeds = if choice.draws() { self.arguments.seeds } else { 1 };
                runs.extend((0..n_seeds).map(|seed| {
                    let key =
                        RowKey { trace: trace.name.clone(), window: Some(window.0), policy: policy.clone(), seed };
                    (key, window, choice, seed)
                }));
            }
        }
        runs
    }

    fn probes(&self, path: &Path, probed: bool) -> Result<Option<(PathBuf, Probes)>, CliError> {
        let Some(probes) = self.arguments.probes.as_deref().filter(|_| probed) else { return Ok(None) };
        let Some(file) = super::probe::probes_of(probes, path) else {
            note(&format!("{}: there is no file of probes for it", path.display()));
            return Ok(None);
        };
        let read = read_probes(&file)?;
        Ok(Some((file, read)))
    }

    fn replay(
        &self,
        prepared: &Prepared<'_>,
        window: Tokens,
        choice: &Choice,
        seed: u64,
        probes: Option<&(PathBuf, Probes)>,
    ) -> Result<(Replay, Vec<Verdict>), CliError> {
        let settings = self.measure.settings(window, seed);
        let Some((file, probes)) = probes else {
            return Ok((choice.replay(prepared, &settings, self.matched, None), Vec::new()));
        };
        let probing = Probing::new(prepared, probes);
        let mut probing = probing.map_err(|error| CliError::Input(format!("{}: {error}", file.display())))?;
        let replay = choice.replay(prepared, &settings, self.matched, Some(&mut |seen| probing.see(seen)));
        Ok((replay, probing.verdicts()))
    }
}

/// The windows, each once.
fn windows(arguments: &CompareArguments) -> Vec<Tokens> {
    let mut windows = arguments.window.clone();
    let mut seen = HashSet::new();
    windows.retain(|window| seen.insert(*window));
    windows
}

/// A choice as it is written on the command line.
fn word(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
