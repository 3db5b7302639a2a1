//! `condenser convert`: traces in another format.

use std::path::PathBuf;

use condenser_traces::{Trace, WRITABLE, redact, write};

use crate::error::{CliError, Exit};
use crate::input::InputArguments;
use crate::output::Output;
use crate::terminal::note;

#[derive(clap::Args, Debug)]
pub(crate) struct ConvertArguments {
    #[command(flatten)]
    input: InputArguments,
    /// The format to write: openhands-v1, openai-chat, anthropic, pi or atif.
    #[arg(long, value_name = "FORMAT", value_parser = clap::builder::PossibleValuesParser::new(WRITABLE))]
    to: String,
    /// Only this row of a file that holds several traces, counted from 0.
    #[arg(long, value_name = "N")]
    row: Option<usize>,
    /// Replace secrets, mail addresses and user names, each by the same placeholder throughout a trace.
    #[arg(long)]
    redact: bool,
    /// Write to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ConvertArguments) -> Result<Exit, CliError> {
    let (candidates, mut met) = arguments.input.candidates()?;
    let mut output = Output::open(arguments.output.clone())?;
    let mut traces: Vec<Trace> = Vec::new();
    for candidate in &candidates {
        let (found, met_here) = arguments.input.read(candidate);
        met.add(met_here);
        traces.extend(found);
    }
    if let Some(row) = arguments.row {
        let n = traces.len();
        match traces.into_iter().nth(row) {
            Some(trace) => traces = vec![trace],
            None => {
                return Err(CliError::Usage(format!("there is no row {row}; rows are 0 to {}", n.saturating_sub(1))));
            }
        }
    }
    if arguments.redact {
        for trace in &mut traces {
            let redacted = redact(trace);
            note(&format!(
                "{}: replaced {} secrets, {} mail addresses, {} user names",
                trace.name, redacted.secrets, redacted.mails, redacted.users
            ));
        }
    }
    if traces.is_empty() {
        return Ok(met.exit(arguments.input.strict));
    }
    let written = write(&traces, &arguments.to).map_err(|error| CliError::Usage(error.to_string()))?;
    for diagnostic in &written.diagnostics {
        note(&diagnostic.to_string());
    }
    output.write(|writer| written.write_to(writer))?;
    output.finish()?;
    Ok(met.exit(arguments.input.strict))
}
