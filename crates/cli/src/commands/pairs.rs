//! `condenser pairs`: recorded arms of the same tasks, side by side.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use condenser::Rules;
use condenser_harness::pairs::{Arm, Contrast, Numbers, Pair, Pairs, contrast, pair};
use condenser_harness::{Prepared, Subject};
use condenser_traces::Trace;
use serde_json::Value;

use super::stats::{ResamplingArguments, difference_cells, number};
use crate::error::{CliError, Exit};
use crate::input::{InputArguments, Met};
use crate::models::{ModelArguments, Models};
use crate::output::{Output, OutputFormat};
use crate::table::table;
use crate::terminal::note;

#[derive(clap::Args, Debug)]
pub(crate) struct PairsArguments {
    /// The first arm: a folder of recorded runs, a file, or a pattern.
    a: PathBuf,
    /// The second arm.
    b: PathBuf,
    /// What pairs two runs: the task that a trace names, or the name of its file without the ending.
    #[arg(long, value_enum, default_value = "task")]
    by: By,
    /// The tasks that the first arm solved: JSON with a list `resolved_ids` or `resolved`, or an id a line.
    #[arg(long, value_name = "FILE")]
    resolved_a: Option<PathBuf>,
    /// The tasks that the second arm solved.
    #[arg(long, value_name = "FILE")]
    resolved_b: Option<PathBuf>,
    /// Read every file as this format instead of recognizing it.
    #[arg(long, value_name = "NAME")]
    input_format: Option<String>,
    #[command(flatten)]
    models: ModelArguments,
    #[command(flatten)]
    resampling: ResamplingArguments,
    /// The form of the result; jsonl and csv hold the pairs only.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
    /// Write the result to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum By {
    Task,
    Name,
}

#[derive(serde::Serialize)]
struct Report<'r> {
    #[serde(flatten)]
    pairs: &'r Pairs,
    contrasts: &'r [Contrast],
}

pub(crate) fn run(arguments: &PairsArguments) -> Result<Exit, CliError> {
    let models = arguments.models.resolve()?;
    let mut output = Output::open(arguments.output.clone())?;
    let (a, met) = arm(arguments, &models, &arguments.a, arguments.resolved_a.as_deref())?;
    let (b, met_b) = arm(arguments, &models, &arguments.b, arguments.resolved_b.as_deref())?;
    let pairs = pair(a, b);
    if pairs.pairs.is_empty() {
        note("no task has a run in both arms; --by name pairs runs by their files' names");
    }
    let contrasts = contrast(&pairs.pairs, arguments.resampling.get());
    match arguments.format {
        OutputFormat::Table => output.text(&tables(arguments, &models, &pairs, &contrasts))?,
        OutputFormat::Json => output.json(&Report { pairs: &pairs, contrasts: &contrasts })?,
        OutputFormat::Jsonl => pairs.pairs.iter().try_for_each(|pair| output.json_line(pair))?,
        OutputFormat::Csv => output.csv(&pairs.pairs.iter().map(Flat::new).collect::<Vec<_>>())?,
    }
    output.finish()?;
    let mut all = met;
    all.add(met_b);
    // An input that cannot be read says more than that nothing was paired.
    Ok(match all.exit(false) {
        Exit::Ok if pairs.pairs.is_empty() => Exit::Check,
        exit => exit,
    })
}

/// The runs of an arm that name a task; the others are counted on standard error.
fn arm(
    arguments: &PairsArguments,
    models: &Models,
    path: &Path,
    resolved: Option<&Path>,
) -> Result<(Vec<Arm>, Met), CliError> {
    let input =
        InputArguments { paths: vec![path.to_owned()], input_format: arguments.input_format.clone(), strict: false };
    let resolved = resolved.map(read_resolved).transpose()?;
    let (candidates, mut met) = input.candidates()?;
    let (mut arms, mut without_task, mut sub_agents) = (Vec::new(), 0, 0);
    for candidate in &candidates {
        let (traces, met_here) = input.read(candidate);
        met.add(met_here);
        for trace in &traces {
            if trace.parent.is_some() {
                sub_agents += 1;
                continue;
            }
            let Some(task) = task(arguments.by, trace) else {
                without_task += 1;
                continue;
            };
            let subject =
                Subject { trace: &trace.name, format: trace.format, task: Some(&task), events: &trace.events };
            let prepared = Prepared::new(subject, models.counter, Rules::Sound);
            let is_resolved = resolved.as_ref().map(|ids| ids.contains(&task));
            arms.push(Arm::of(&prepared, &task, &models.profile, is_resolved));
        }
    }
    let shown = path.display();
    if without_task > 0 {
        note(&format!("{shown}: {without_task} traces name no task and are left out; --by name pairs them by name"));
    }
    if sub_agents > 0 {
        note(&format!("{shown}: {sub_agents} traces of sub-agents and continuations are left out"));
    }
    Ok((arms, met))
}

fn task(by: By, trace: &Trace) -> Option<String> {
    match by {
        By::Task => trace.task.clone(),
        // A row's number stands behind the ending.
        By::Name => {
            let (path, row) = trace.name.rsplit_once('#').unwrap_or((&trace.name, ""));
            let stem = Path::new(path).file_stem()?.to_string_lossy().into_owned();
            Some(if row.is_empty() { stem } else { format!("{stem}#{row}") })
        }
    }
}

fn read_resolved(path: &Path) -> Result<HashSet<String>, CliError> {
    let failed = |reason: &str| CliError::Input(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error.to_string()))?;
    let Ok(json) = serde_json::from_str::<Value>(&text) else {
        return Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect());
    };
    let list =
        [json.get("resolved_ids"), json.get("resolved"), Some(&json)].into_iter().flatten().find_map(Value::as_array);
    let list = list.ok_or_else(|| failed("it holds no list `resolved_ids` or `resolved`"))?;
    Ok(list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn tables(arguments: &PairsArguments, models: &Models, pairs: &Pairs, contrasts: &[Contrast]) -> String {
    let mut text = format!(
        "Recorded runs of the same tasks, first arm → second; tokens counted with {}, costs under {}\n\n",
        models.counter.name(),
        models.profile.name
    );
    let header =
        ["task", "steps", "input", "output", "reported input", "cost", "re-reads", "solved", "first divergent step"];
    text.push_str(&table(&header, pairs.pairs.iter().map(pair_cells)));
    text.push_str("\nSecond arm less first, task by task\n");
    let header = [
        "number",
        "pairs",
        "tasks",
        "first",
        "second",
        "difference",
        "interval",
        "median",
        "win/tie/loss",
        "top 5%",
        "detectable",
        "p",
    ];
    let rows = contrasts.iter().filter_map(|contrast| {
        let difference = contrast.difference.as_ref()?;
        let mut cells = vec![contrast.metric.to_owned()];
        cells.extend(difference_cells(difference));
        cells.push(difference.p.map_or_else(dash, |p| format!("{p:.4}")));
        Some(cells)
    });
    text.push_str(&table(&header, rows));
    text.push_str(&format!(
        "\n95% intervals from {} draws of whole tasks, seed {}; p are not adjusted: name the number that decides beforehand\n",
        arguments.resampling.get().resamples,
        arguments.resampling.get().seed
    ));
    for (arm, left) in [("first", &pairs.only_a), ("second", &pairs.only_b)] {
        if !left.is_empty() {
            text.push_str(&format!("{} runs of the {arm} arm have no partner and are left out\n", left.len()));
        }
    }
    if pairs.pairs.iter().any(|pair| pair.a.resolved.is_none() || pair.b.resolved.is_none()) {
        text.push_str("solved is not known of every run: traces seldom say; --resolved-a and --resolved-b do\n");
    }
    text
}

fn dash() -> String {
    "–".to_owned()
}

fn pair_cells(pair: &Pair) -> Vec<String> {
    fn shown(pair: &Pair, read: impl Fn(&Numbers) -> Option<String>) -> String {
        let word = |numbers| read(numbers).unwrap_or_else(dash);
        format!("{} → {}", word(&pair.a), word(&pair.b))
    }
    vec![
        pair.task.clone(),
        shown(pair, |it| Some(it.steps.to_string())),
        shown(pair, |it| Some(it.input_tokens.to_string())),
        shown(pair, |it| Some(it.output_tokens.to_string())),
        shown(pair, |it| it.reported_input_tokens.map(|tokens| tokens.to_string())),
        shown(pair, |it| it.cost_usd.map(number)),
        shown(pair, |it| Some(it.rereads.to_string())),
        shown(pair, |it| it.resolved.map(|resolved| if resolved { "yes" } else { "no" }.to_owned())),
        pair.first_divergent_step.map_or_else(dash, |step| step.to_string()),
    ]
}

/// A pair as one line of values.
#[derive(serde::Serialize)]
struct Flat<'p> {
    task: &'p str,
    trace_a: &'p str,
    trace_b: &'p str,
    steps_a: u64,
    steps_b: u64,
    input_tokens_a: u64,
    input_tokens_b: u64,
    output_tokens_a: u64,
    output_tokens_b: u64,
    reported_input_tokens_a: Option<u64>,
    reported_input_tokens_b: Option<u64>,
    cost_usd_a: Option<f64>,
    cost_usd_b: Option<f64>,
    rereads_a: u64,
    rereads_b: u64,
    resolved_a: Option<bool>,
    resolved_b: Option<bool>,
    first_divergent_step: Option<u64>,
}

impl<'p> Flat<'p> {
    fn new(pair: &'p Pair) -> Self {
        let (a, b) = (&pair.a, &pair.b);
        Self {
            task: &pair.task,
            trace_a: &pair.trace_a,
            trace_b: &pair.trace_b,
            steps_a: a.steps,
            steps_b: b.steps,
            input_tokens_a: a.input_tokens,
            input_tokens_b: b.input_tokens,
            output_tokens_a: a.output_tokens,
            output_tokens_b: b.output_tokens,
            reported_input_tokens_a: a.reported_input_tokens,
            reported_input_tokens_b: b.reported_input_tokens,
            cost_usd_a: a.cost_usd,
            cost_usd_b: b.cost_usd,
            rereads_a: a.rereads,
            rereads_b: b.rereads,
            resolved_a: a.resolved,
            resolved_b: b.resolved,
            first_divergent_step: pair.first_divergent_step,
        }
    }
}
