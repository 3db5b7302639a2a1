//! `condenser merge`: the parts of a run as one.

use std::path::PathBuf;

use condenser_harness::SavedRun;

use super::compare::{RunFormat, read_error, run_error, show};
use crate::error::{CliError, Exit};
use crate::output::Output;

#[derive(clap::Args, Debug)]
pub(crate) struct MergeArguments {
    /// Runs that `condenser compare --shard` wrote.
    #[arg(required = true)]
    parts: Vec<PathBuf>,
    /// The folder for the whole.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// The form of the result.
    #[arg(long, value_enum, default_value = "table")]
    format: RunFormat,
}

pub(crate) fn run(arguments: &MergeArguments) -> Result<Exit, CliError> {
    let mut output = Output::open(None)?;
    let parts = arguments.parts.iter().map(|part| SavedRun::open(part)).collect::<Result<Vec<_>, _>>();
    let Some(mut run) = SavedRun::merge(parts.map_err(read_error)?).map_err(read_error)? else { return Ok(Exit::Ok) };
    run.path.clone_from(&arguments.out);
    if arguments.out.join("manifest.json").exists() {
        return Err(CliError::Usage(format!(
            "{}: there is a run already; name another folder",
            arguments.out.display()
        )));
    }
    run.write(&arguments.out).map_err(run_error)?;
    show(&run, arguments.format, &mut output)?;
    output.finish()?;
    Ok(Exit::Ok)
}
