//! `condenser canaries`: how many rounds of condensation planted values survive.

use std::path::PathBuf;

use condenser_harness::canaries::{
    CanaryCell, CanaryKind, Planting, Survival, add_cells, first_under_half, full_tokens, plant,
};
use condenser_harness::{Choice, Prepared, Row, Subject};
use condenser_traces::Trace;
use rayon::prelude::*;

use crate::error::{CliError, Exit};
use crate::input::InputArguments;
use crate::output::{Output, OutputFormat};
use crate::subjects::{Measure, MeasureArguments, Policies};
use crate::table::table;
use crate::terminal::note;
use crate::window::{Window, parse_window};

#[derive(clap::Args, Debug)]
pub(crate) struct CanariesArguments {
    #[command(flatten)]
    input: InputArguments,
    /// Policies and controls by name.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "recent-events,llm-summarizing,craft")]
    policy: Vec<String>,
    /// A TOML file of policies with settings, and of pipelines.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// Context windows: shares of each trace's last request, as 20%, or tokens, as 32k.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "20%", value_parser = parse_window)]
    window: Vec<Window>,
    /// How many times values are planted anew, from seed 0.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// A canary of each kind at each of these depths, from 0 to 1. What comes late lives through fewer rounds.
    #[arg(long, value_name = "SHARES", value_delimiter = ',', default_value = "0.05,0.1,0.15,0.2")]
    depths: Vec<f64>,
    /// Rounds of condensation that are followed.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    rounds: u32,
    #[command(flatten)]
    measure: MeasureArguments,
    /// The form of the result; all but the table have a line per trace, policy, seed, kind and round.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
    /// Write the result to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// One kind after one round, on one trace, under one policy and seed.
#[derive(Clone, Debug, serde::Serialize)]
struct Line {
    trace: String,
    policy: String,
    window: u64,
    summarizer: String,
    seed: u64,
    kind: CanaryKind,
    round: u32,
    n: u64,
    in_view: u64,
    in_summary: u64,
    recoverable: u64,
    lost: u64,
    stale: u64,
    steps: u64,
}

impl Line {
    fn cell(&self) -> CanaryCell {
        let &Self { kind, round, n, in_view, in_summary, recoverable, lost, stale, steps, .. } = self;
        CanaryCell { kind, round, n, in_view, in_summary, recoverable, lost, stale, steps }
    }
}

pub(crate) fn run(arguments: &CanariesArguments) -> Result<Exit, CliError> {
    let measure = arguments.measure.resolve()?;
    let choices = Policies::read(arguments.policies.as_deref())?.choose(&arguments.policy)?;
    if let Some(depth) = arguments.depths.iter().find(|depth| !(0.0..=1.0).contains(*depth)) {
        return Err(CliError::Usage(format!("a depth is a number from 0 to 1, and not {depth}")));
    }
    let mut output = Output::open(arguments.output.clone())?;
    let (candidates, mut met) = arguments.input.candidates()?;
    // By window: its lines.
    let mut windows: Vec<Vec<Line>> = vec![Vec::new(); arguments.window.len()];
    let (mut planted, mut too_short) = (0, 0);
    for candidate in &candidates {
        let (traces, met_here) = arguments.input.read(candidate);
        met.add(met_here);
        for trace in &traces {
            match on_trace(arguments, &measure, &choices, trace) {
                Ok(lines) => {
                    planted += 1;
                    windows.iter_mut().zip(lines).for_each(|(all, lines)| all.extend(lines));
                }
                Err(reason) => {
                    too_short += 1;
                    note(&format!("{}: left out: {reason}", trace.name));
                }
            }
        }
    }
    let lines: Vec<&Line> = windows.iter().flatten().collect();
    match arguments.format {
        OutputFormat::Table => output.text(&tables(arguments, &measure, &choices, &windows, planted))?,
        OutputFormat::Json => output.json(&lines)?,
        OutputFormat::Jsonl => lines.iter().try_for_each(|line| output.json_line(line))?,
        OutputFormat::Csv => output.csv(&lines)?,
    }
    output.finish()?;
    let is_incomplete = measure.models.summarizer.note_missing() || (planted == 0 && too_short > 0);
    Ok(if is_incomplete { Exit::Check } else { met.exit(arguments.input.strict) })
}

/// The lines of each window.
fn on_trace(
    arguments: &CanariesArguments,
    measure: &Measure,
    choices: &[Choice],
    trace: &Trace,
) -> Result<Vec<Vec<Line>>, String> {
    let mut windows: Vec<Vec<Line>> = vec![Vec::new(); arguments.window.len()];
    for seed in 0..arguments.seeds {
        let planting = Planting { seed, depths: arguments.depths.clone() };
        let planted = plant(&trace.events, &planting).map_err(|error| error.to_string())?;
        let subject =
            Subject { trace: &trace.name, format: trace.format, task: trace.task.as_deref(), events: &planted.events };
        let prepared = Prepared::new(subject, measure.models.counter, measure.rules);
        let full = full_tokens(&prepared);
        for (lines, window) in windows.iter_mut().zip(&arguments.window) {
            let mut settings = measure.settings(Default::default(), seed);
            let (tokens, reserve) = window.of(full, settings.reserve);
            (settings.window, settings.reserve) = (Some(tokens), reserve);
            let of_choice = |choice: &Choice| {
                let mut survival = Survival::new(&prepared, &planted.canaries, arguments.rounds);
                let row = choice.replay(&prepared, &settings, None, Some(&mut |seen| survival.see(seen))).row;
                let cells = survival.cells().into_iter().filter(|cell| cell.n > 0);
                cells.map(|cell| line(&row, tokens.0, cell)).collect::<Vec<_>>()
            };
            lines.extend(choices.par_iter().flat_map_iter(of_choice).collect::<Vec<_>>());
        }
    }
    Ok(windows)
}

fn line(row: &Row, window: u64, cell: CanaryCell) -> Line {
    let CanaryCell { kind, round, n, in_view, in_summary, recoverable, lost, stale, steps } = cell;
    Line {
        trace: row.trace.clone(),
        policy: row.policy.clone(),
        window,
        summarizer: row.summarizer.clone(),
        seed: row.seed,
        kind,
        round,
        n,
        in_view,
        in_summary,
        recoverable,
        lost,
        stale,
        steps,
    }
}

fn tables(
    arguments: &CanariesArguments,
    measure: &Measure,
    choices: &[Choice],
    windows: &[Vec<Line>],
    n_traces: usize,
) -> String {
    let rounds: Vec<String> = (1..=arguments.rounds).map(|round| format!("round {round}")).collect();
    let mut header = vec!["policy", "kind", "n"];
    header.extend(rounds.iter().map(String::as_str));
    header.extend(["under half", "recoverable", "stale", "steps"]);
    let mut text = format!(
        "Planted values after rounds of condensation: the share that the agent still has before it, in view or in a summary.\n\
         {n_traces} traces, {} seeds, depths {}; summarizer {}, tokenizer {}\n",
        arguments.seeds,
        arguments.depths.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
        measure.models.summarizer.described(),
        measure.models.counter.name(),
    );
    for (window, lines) in arguments.window.iter().zip(windows) {
        text.push_str(&format!("\nwindow {window}\n"));
        let mut rows = Vec::new();
        for choice in choices {
            let of_policy = lines.iter().filter(|line| line.policy == choice.name());
            let cells = add_cells(of_policy.map(Line::cell));
            rows.extend(CanaryKind::ALL.into_iter().map(|kind| cells_of_row(choice.name(), kind, &cells, arguments)));
        }
        text.push_str(&table(&header, rows));
    }
    text.push_str(
        "\nunder half: the first round that less than half survives\n\
         recoverable, stale, steps: of the last round that any went through: behind addresses, superseded values that stand alone or in\n\
         a summary, and steps since planting, on average. A dash: no canary went through the round.\n",
    );
    text
}

fn cells_of_row(policy: &str, kind: CanaryKind, cells: &[CanaryCell], arguments: &CanariesArguments) -> Vec<String> {
    let dash = || "–".to_owned();
    let of_round = |round| cells.iter().find(|cell| cell.kind == kind && cell.round == round && cell.n > 0);
    let n = of_round(1).map_or(0, |cell| cell.n);
    let mut row = vec![policy.to_owned(), kind.name().to_owned(), n.to_string()];
    let share = |cell: &CanaryCell| cell.survived().map_or_else(dash, |share| format!("{:.0}%", share * 100.0));
    row.extend((1..=arguments.rounds).map(|round| of_round(round).map_or_else(dash, share)));
    row.push(first_under_half(cells, kind).map_or_else(dash, |round| round.to_string()));
    let last = (1..=arguments.rounds).rev().find_map(of_round);
    let part = |part: fn(&CanaryCell) -> u64| {
        last.map_or_else(dash, |cell| format!("{:.0}%", 100.0 * part(cell) as f64 / cell.n as f64))
    };
    row.extend([part(|cell| cell.recoverable), part(|cell| cell.stale)]);
    row.push(last.map_or_else(dash, |cell| (cell.steps / cell.n).to_string()));
    row
}
