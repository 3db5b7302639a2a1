//! `condenser formats`: the trace formats that can be read, and which of them can be written.

use condenser_traces::{FORMATS, WRITABLE};

use crate::error::{CliError, Exit};
use crate::output::{Output, OutputFormat};
use crate::table::table;

#[derive(clap::Args, Debug)]
pub(crate) struct FormatsArguments {
    /// The form of the list.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(serde::Serialize)]
struct Line {
    format: &'static str,
    description: &'static str,
    /// Whether `condenser convert` writes it.
    written: bool,
}

pub(crate) fn run(arguments: &FormatsArguments) -> Result<Exit, CliError> {
    let mut output = Output::open(None)?;
    let rows: Vec<Line> = FORMATS
        .iter()
        .map(|format| Line {
            format: format.name,
            description: format.description,
            written: WRITABLE.contains(&format.name),
        })
        .collect();
    match arguments.format {
        OutputFormat::Table => output.text(&table(
            &["format", "written", "what it is"],
            rows.iter().map(|row| {
                let written = if row.written { "yes" } else { "–" };
                vec![row.format.to_owned(), written.to_owned(), row.description.to_owned()]
            }),
        ))?,
        OutputFormat::Json => output.json(&rows)?,
        OutputFormat::Jsonl => rows.iter().try_for_each(|row| output.json_line(row))?,
        OutputFormat::Csv => output.csv(&rows)?,
    }
    output.finish()?;
    Ok(Exit::Ok)
}
