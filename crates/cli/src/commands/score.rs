//! `condenser score`: what a text that another product compacted still holds.

use std::path::{Path, PathBuf};

use condenser_harness::Status;
use condenser_harness::probes::{Probes, Stale, Verdict, grade_text};

use crate::error::{CliError, Exit};
use crate::output::{Output, OutputFormat};
use crate::table::table;

#[derive(clap::Args, Debug)]
pub(crate) struct ScoreArguments {
    /// What the product made of a session: text, or JSON (or JSON lines), whose strings are read.
    #[arg(long, value_name = "FILE")]
    compacted: PathBuf,
    /// The probes of that session.
    #[arg(long, value_name = "FILE")]
    probes: PathBuf,
    /// Exit with 1 where an answer is missing or a stale value stands.
    #[arg(long)]
    check: bool,
    /// The form of the result.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
    /// Write the result to a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ScoreArguments) -> Result<Exit, CliError> {
    let probes = read_probes(&arguments.probes)?;
    let text = read(&arguments.compacted)?;
    let verdicts = grade_text(&probes.probes, &text);
    let mut output = Output::open(arguments.output.clone())?;
    match arguments.format {
        OutputFormat::Table => output.text(&shown(&verdicts))?,
        OutputFormat::Json => output.json(&verdicts)?,
        OutputFormat::Jsonl => verdicts.iter().try_for_each(|verdict| output.json_line(verdict))?,
        OutputFormat::Csv => output.csv(&verdicts)?,
    }
    output.finish()?;
    let fails = arguments.check && verdicts.iter().any(|verdict| !verdict.passes());
    Ok(if fails { Exit::Check } else { Exit::Ok })
}

/// Reads a file of probes.
pub(crate) fn read_probes(path: &Path) -> Result<Probes, CliError> {
    Probes::parse(&read(path)?).map_err(|error| CliError::Input(format!("{}: {error}", path.display())))
}

fn read(path: &Path) -> Result<String, CliError> {
    let bytes = std::fs::read(path).map_err(|error| CliError::Input(format!("{}: {error}", path.display())))?;
    String::from_utf8(bytes).map_err(|_| CliError::Input(format!("{}: it is no UTF-8 text", path.display())))
}

fn shown(verdicts: &[Verdict]) -> String {
    let header = ["probe", "kind", "answer", "values", "stale value"];
    let row = |verdict: &Verdict| {
        let answer = match verdict.status {
            Status::Lost if verdict.lacks_polarity => "lost, value without its polarity",
            Status::Lost | Status::Recoverable => "lost",
            Status::InView | Status::InSummary => "there",
        };
        vec![
            verdict.probe.clone(),
            verdict.kind.name().to_owned(),
            answer.to_owned(),
            format!("{} of {}", verdict.found, verdict.wanted),
            stale_word(verdict.stale).to_owned(),
        ]
    };
    let n_passing = verdicts.iter().filter(|verdict| verdict.passes()).count();
    let table = table(&header, verdicts.iter().map(row));
    format!("{table}\n{n_passing} of {} probes are answered, without a stale value\n", verdicts.len())
}

/// What became of stale values, in a word.
pub(crate) fn stale_word(stale: Stale) -> &'static str {
    match stale {
        Stale::Absent => "–",
        Stale::Corrected => "corrected",
        Stale::Summarized => "repeated",
        Stale::Alone => "alone",
    }
}
