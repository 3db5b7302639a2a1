//! `condenser log erase`, `drop`, `export` and `backup`.

use std::path::PathBuf;

use condenser_log::{Access, ExportError, Log};

use super::{SessionArguments, event_ids, failed, find_session, open, say};
use crate::error::{CliError, Exit};
use crate::output::Output;
use crate::terminal::note;

#[derive(clap::Args, Debug)]
pub(crate) struct EraseArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// The events.
    #[arg(required = true)]
    ids: Vec<String>,
}

pub(super) fn erase(arguments: &EraseArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.session.db, Access::Write)?;
    let session = arguments.session.find(&log)?;
    let ids = event_ids(&arguments.ids);
    for id in &ids {
        log.erase(&session, id).map_err(failed)?;
    }
    compact(&log)?;
    say(&format!("{} events erased; their hashes stay", ids.len()))?;
    Ok(Exit::Ok)
}

#[derive(clap::Args, Debug)]
pub(crate) struct DropArguments {
    /// The log's file.
    db: PathBuf,
    /// The session: its id, the beginning of its id, or its name.
    #[arg(long, value_name = "ID")]
    session: String,
}

pub(super) fn drop_session(arguments: &DropArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.db, Access::Write)?;
    let session = find_session(&log, Some(&arguments.session))?;
    log.drop_session(&session).map_err(failed)?;
    compact(&log)?;
    say(&format!("session {session} dropped"))?;
    Ok(Exit::Ok)
}

/// Takes what was erased out of the file too.
fn compact(log: &Log) -> Result<(), CliError> {
    if !log.compact().map_err(failed)? {
        note("another process is reading the log: old pages stay in its -wal file until it is written over");
    }
    Ok(())
}

#[derive(clap::Args, Debug)]
pub(crate) struct ExportArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// Where to write [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn export(arguments: &ExportArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.session.db, Access::Read)?;
    let session = arguments.session.find(&log)?;
    let n_problems = log.verify(&session).map_err(failed)?.n_problems;
    let mut output = Output::open(arguments.output.clone())?;
    let mut unreadable = None;
    output.with(|writer| match log.export(&session, writer) {
        Ok(_) => Ok(()),
        Err(ExportError::Io(error)) => Err(error),
        Err(error) => {
            unreadable = Some(failed(error));
            Ok(())
        }
    })?;
    match unreadable {
        Some(error) => return Err(error),
        None => output.finish()?,
    }
    if n_problems > 0 {
        note(&format!("{n_problems} events are damaged, and exported as they are (`condenser log verify` lists them)"));
    }
    Ok(if n_problems > 0 { Exit::Check } else { Exit::Ok })
}

#[derive(clap::Args, Debug)]
pub(crate) struct BackupArguments {
    /// The log's file.
    db: PathBuf,
    /// The copy; it must not exist yet.
    to: PathBuf,
}

pub(super) fn backup(arguments: &BackupArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.db, Access::Read)?;
    let bytes = log.backup(&arguments.to).map_err(|error| match error {
        condenser_log::BackupError::Exists { .. } => CliError::Usage(error.to_string()),
        error => failed(error),
    })?;
    say(&format!("{} {bytes} bytes", arguments.to.display()))?;
    Ok(Exit::Ok)
}
