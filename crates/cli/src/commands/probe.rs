//! `condenser probe`: whether the next request still answers authored questions, policy by policy.

use std::path::{Path, PathBuf};

use condenser::{Summarizer, Tokens};
use condenser_harness::canaries::full_tokens;
use condenser_harness::probes::{Answer, Panel, ProbeKind, ProbeRow, Probes, Probing, Stale, Verdict};
use condenser_harness::{Choice, Prepared, Row, Seen, Status, Subject};
use condenser_traces::Trace;

use super::score::read_probes;
use crate::error::{CliError, Exit};
use crate::input::InputArguments;
use crate::models;
use crate::output::{Output, OutputFormat};
use crate::subjects::{Measure, MeasureArguments, Policies};
use crate::table::table;
use crate::terminal::note;
use crate::window::{Window, parse_window};

#[derive(clap::Args, Debug)]
pub(crate) struct ProbeArguments {
    #[command(flatten)]
    input: InputArguments,
    /// A file of probes, or a folder with one per trace: `<trace stem>.json`.
    #[arg(long, value_name = "PATH")]
    probes: PathBuf,
    /// Policies and controls by name; `default` is every native policy and control, `all` everything.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "default")]
    policy: Vec<String>,
    /// A TOML file of policies with settings, and of pipelines.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// Context windows: shares of each trace's last request, as 20%, or tokens, as 32k.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "20%", value_parser = parse_window)]
    window: Vec<Window>,
    /// Let this model answer the questions (feature `llm`): a TOML file as `--summarizer` takes it.
    #[arg(long, value_name = "FILE")]
    ask: Option<PathBuf>,
    /// The model that judges answers to decisions and continuations which are not exact.
    #[arg(long, value_name = "FILE", requires = "ask")]
    judge: Option<PathBuf>,
    /// How often each question is asked. A cassette plays one sample for each.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Where every answer is written, one JSON object a line. It has to be named where a model is asked.
    #[arg(long, value_name = "FILE", requires = "ask")]
    answers: Option<PathBuf>,
    #[command(flatten)]
    measure: MeasureArguments,
    /// The form of the result; all but the table have a line per probe.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
    /// Write the result to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// An answer, and where it was given.
#[derive(serde::Serialize)]
struct AnswerLine<'a> {
    trace: &'a str,
    policy: &'a str,
    window: Option<u64>,
    seed: u64,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// The models, one per repeat.
#[derive(Default)]
struct Models {
    answering: Vec<Box<dyn Summarizer>>,
    judging: Vec<Box<dyn Summarizer>>,
}

/// What came of one window.
#[derive(Default)]
struct Found {
    rows: Vec<ProbeRow>,
    answers: Vec<(Row, Vec<Answer>)>,
}

pub(crate) fn run(arguments: &ProbeArguments) -> Result<Exit, CliError> {
    let models = models(arguments)?;
    let measure = arguments.measure.resolve()?;
    let choices = Policies::read(arguments.policies.as_deref())?.choose(&arguments.policy)?;
    let mut output = Output::open(arguments.output.clone())?;
    let mut answers = arguments.answers.clone().map(|path| Output::open(Some(path))).transpose()?;
    let (candidates, mut met) = arguments.input.candidates()?;
    let mut found: Vec<Found> = arguments.window.iter().map(|_| Found::default()).collect();
    let mut n_probed = 0;
    for candidate in &candidates {
        let (traces, met_here) = arguments.input.read(candidate);
        met.add(met_here);
        let Some(path) = probes_of(&arguments.probes, &candidate.path) else {
            note(&format!("{}: left out: there is no file of probes for it", candidate.path.display()));
            continue;
        };
        let probes = read_probes(&path)?;
        // A file of probes belongs to the first trace of a file.
        for trace in traces.iter().take(1) {
            n_probed += 1;
            let wrong = |reason| CliError::Input(format!("{}: {reason}", path.display()));
            on_trace(arguments, &measure, &choices, &models, trace, &probes, &mut found).map_err(wrong)?;
        }
    }
    for (row, given) in found.iter().flat_map(|found| &found.answers) {
        for answer in given {
            let line =
                AnswerLine { trace: &row.trace, policy: &row.policy, window: row.window, seed: row.seed, answer };
            answers.as_mut().map_or(Ok(()), |answers| answers.json_line(&line))?;
        }
    }
    let rows: Vec<&ProbeRow> = found.iter().flat_map(|found| &found.rows).collect();
    match arguments.format {
        OutputFormat::Table => output.text(&tables(arguments, &measure, &choices, &found, n_probed))?,
        OutputFormat::Json => output.json(&rows)?,
        OutputFormat::Jsonl => rows.iter().try_for_each(|row| output.json_line(row))?,
        OutputFormat::Csv => output.csv(&rows.iter().map(|row| Flat::new(row)).collect::<Vec<_>>())?,
    }
    output.finish()?;
    answers.map_or(Ok(()), Output::finish)?;
    let n_failed = found.iter().flat_map(|found| &found.answers).flat_map(|(_, given)| given);
    let n_failed = n_failed.filter(|answer| answer.error.is_some()).count();
    if n_failed > 0 {
        note(&format!("{n_failed} questions got no answer or no judgement; --answers says why"));
    }
    let is_incomplete =
        measure.models.summarizer.note_missing() || n_failed > 0 || (n_probed == 0 && !candidates.is_empty());
    Ok(if is_incomplete { Exit::Check } else { met.exit(arguments.input.strict) })
}

fn models(arguments: &ProbeArguments) -> Result<Models, CliError> {
    let Some(ask) = &arguments.ask else { return Ok(Models::default()) };
    if arguments.answers.is_none() {
        return Err(CliError::Usage(
            "a model is only asked where its answers are kept: name a file with --answers".into(),
        ));
    }
    let panel =
        |file: &Path| (0..arguments.repeats).map(|sample| models::model(file, sample)).collect::<Result<_, _>>();
    let judging = arguments.judge.as_deref().map_or_else(|| Ok(Vec::new()), panel)?;
    Ok(Models { answering: panel(ask)?, judging })
}

/// The file of probes for a trace.
pub(crate) fn probes_of(probes: &Path, trace: &Path) -> Option<PathBuf> {
    if !probes.is_dir() {
        return Some(probes.to_owned());
    }
    let path = probes.join(format!("{}.json", trace.file_stem()?.to_string_lossy()));
    path.is_file().then_some(path)
}

fn on_trace(
    arguments: &ProbeArguments,
    measure: &Measure,
    choices: &[Choice],
    models: &Models,
    trace: &Trace,
    probes: &Probes,
    found: &mut [Found],
) -> Result<(), String> {
    let subject =
        Subject { trace: &trace.name, format: trace.format, task: trace.task.as_deref(), events: &trace.events };
    let prepared = Prepared::new(subject, measure.models.counter, measure.rules);
    let full = full_tokens(&prepared);
    let panel = Panel { models: &models.answering, judges: &models.judging };
    for (window, found) in arguments.window.iter().zip(found) {
        let mut settings = measure.settings(Tokens(0), 0);
        let (tokens, reserve) = window.of(full, settings.reserve);
        (settings.window, settings.reserve) = (Some(tokens), reserve);
        for choice in choices {
            let mut probing = Probing::new(&prepared, probes).map_err(|error| error.to_string())?;
            let mut answers = Vec::new();
            let mut observe = |seen: &Seen<'_>| {
                probing.see(seen);
                probing.at(seen.step).for_each(|probe| answers.extend(panel.ask(probe, seen)));
            };
            let row = choice.replay(&prepared, &settings, None, Some(&mut observe)).row;
            found.rows.extend(probing.verdicts().into_iter().map(|verdict| probe_row(&row, verdict)));
            if !answers.is_empty() {
                found.answers.push((row, answers));
            }
        }
    }
    Ok(())
}

fn probe_row(row: &Row, verdict: Verdict) -> ProbeRow {
    ProbeRow {
        trace: row.trace.clone(),
        policy: row.policy.clone(),
        window: row.window,
        summarizer: row.summarizer.clone(),
        seed: row.seed,
        verdict,
    }
}

/// A row as one line of values.
#[derive(serde::Serialize)]
struct Flat<'r> {
    trace: &'r str,
    policy: &'r str,
    window: Option<u64>,
    summarizer: &'r str,
    seed: u64,
    probe: &'r str,
    kind: ProbeKind,
    status: Status,
    found: usize,
    wanted: usize,
    stale: Stale,
    lacks_polarity: bool,
    fetch_tokens: u64,
}

impl<'r> Flat<'r> {
    fn new(row: &'r ProbeRow) -> Self {
        let verdict = &row.verdict;
        Self {
            trace: &row.trace,
            policy: &row.policy,
            window: row.window,
            summarizer: &row.summarizer,
            seed: row.seed,
            probe: &verdict.probe,
            kind: verdict.kind,
            status: verdict.status,
            found: verdict.found,
            wanted: verdict.wanted,
            stale: verdict.stale,
            lacks_polarity: verdict.lacks_polarity,
            fetch_tokens: verdict.fetch_tokens,
        }
    }
}

fn tables(
    arguments: &ProbeArguments,
    measure: &Measure,
    choices: &[Choice],
    found: &[Found],
    n_probed: usize,
) -> String {
    let mut text = format!(
        "Probes of {n_probed} traces, each held against the request after its event; summarizer {}, tokenizer {}\n",
        measure.models.summarizer.described(),
        measure.models.counter.name(),
    );
    for (window, found) in arguments.window.iter().zip(found) {
        text.push_str(&format!("\nwindow {window}\n"));
        let header = [
            "policy",
            "kind",
            "probes",
            "in view",
            "in summary",
            "recoverable",
            "lost",
            "no polarity",
            "stale",
            "fetch",
        ];
        let mut rows = Vec::new();
        for choice in choices {
            rows.extend(ProbeKind::ALL.iter().filter_map(|&kind| kind_cells(choice.name(), kind, &found.rows)));
        }
        text.push_str(&table(&header, rows));
        if arguments.ask.is_some() {
            text.push('\n');
            let header = ["policy", "kind", "answers", "exact", "judged right", "right", "without answer"];
            let mut rows = Vec::new();
            for choice in choices {
                rows.extend(
                    ProbeKind::ALL.iter().filter_map(|&kind| answer_cells(choice.name(), kind, &found.answers)),
                );
            }
            text.push_str(&table(&header, rows));
        }
    }
    text.push_str(
        "\nin view: in an entry that is no summary; recoverable: behind addresses in the request, really fetched; no polarity: of the lost,\n\
         constraints whose value stands there without what makes it one; stale: values that no longer hold, alone or repeated in a summary;\n\
         fetch: tokens that fetching would add, per recoverable probe\n",
    );
    text
}

fn kind_cells(policy: &str, kind: ProbeKind, rows: &[ProbeRow]) -> Option<Vec<String>> {
    let of_kind: Vec<&Verdict> =
        rows.iter().filter(|row| row.policy == policy && row.verdict.kind == kind).map(|row| &row.verdict).collect();
    if of_kind.is_empty() {
        return None;
    }
    let count = |is: &dyn Fn(&Verdict) -> bool| of_kind.iter().filter(|verdict| is(verdict)).count();
    let mut cells = vec![policy.to_owned(), kind.name().to_owned(), of_kind.len().to_string()];
    cells.extend(Status::ALL.map(|status| count(&|verdict| verdict.status == status).to_string()));
    cells.push(count(&|verdict| verdict.lacks_polarity).to_string());
    cells.push(count(&|verdict| verdict.stale.is_failure()).to_string());
    let fetched: u64 = of_kind.iter().map(|verdict| verdict.fetch_tokens).sum();
    let n_fetched = count(&|verdict| verdict.status == Status::Recoverable) as u64;
    cells.push(fetched.checked_div(n_fetched).map_or_else(|| "–".to_owned(), |mean| mean.to_string()));
    Some(cells)
}

fn answer_cells(policy: &str, kind: ProbeKind, answers: &[(Row, Vec<Answer>)]) -> Option<Vec<String>> {
    let of_policy = answers.iter().filter(|(row, _)| row.policy == policy).flat_map(|(_, given)| given);
    let of_kind: Vec<&Answer> = of_policy.filter(|answer| answer.kind == kind).collect();
    if of_kind.is_empty() {
        return None;
    }
    let count = |is: &dyn Fn(&Answer) -> bool| of_kind.iter().filter(|answer| is(answer)).count().to_string();
    Some(vec![
        policy.to_owned(),
        kind.name().to_owned(),
        of_kind.len().to_string(),
        count(&|answer| answer.exact),
        count(&|answer| answer.passes && !answer.exact),
        count(&|answer| answer.passes),
        count(&|answer| answer.answer.is_none()),
    ])
}
