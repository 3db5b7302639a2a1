//! `condenser log`: event logs.

mod import;
mod keep;
mod mark;
mod read;
mod search;

use std::path::{Path, PathBuf};

use condenser::EventId;
use condenser_log::{Access, Log, OpenError, Options, SessionId, SessionInfo, StorageError};
use serde::Serialize;

use crate::error::{CliError, Exit, chain};
use crate::output::{Output, OutputFormat};
use crate::table::table;

#[derive(clap::Subcommand, Debug)]
pub(crate) enum LogCommand {
    /// Import traces and exported sessions into a log, a session each. The log is created where there is none.
    Import(import::ImportArguments),
    /// List the sessions of a log.
    List(read::ListArguments),
    /// Show the events of a session, its view, or one event.
    Show(read::ShowArguments),
    /// Search the events of a session, forgotten ones included.
    Search(search::SearchArguments),
    /// List the branches of a session, or move its head.
    Branch(mark::BranchArguments),
    /// Take a condensation back, by an appended event.
    Undo(mark::UndoArguments),
    /// Pin events, so that no policy forgets or rewrites them.
    Pin(mark::PinArguments),
    /// Check every event against the hash chain, and the file's structure. Exits with 1 where anything is wrong.
    Verify(read::VerifyArguments),
    /// Bring the search index up to date.
    Index(search::IndexArguments),
    /// Replace the bodies of events by tombstones, and take their texts out of the file.
    Erase(keep::EraseArguments),
    /// Take a session out of the log.
    Drop(keep::DropArguments),
    /// Write a session as JSON lines.
    Export(keep::ExportArguments),
    /// Copy a log to a new file, also while it is in use.
    Backup(keep::BackupArguments),
    /// Say what a log holds, in numbers.
    Stats(read::StatsArguments),
}

pub(crate) fn run(command: LogCommand) -> Result<Exit, CliError> {
    match command {
        LogCommand::Import(arguments) => import::run(&arguments),
        LogCommand::List(arguments) => read::list(&arguments),
        LogCommand::Show(arguments) => read::show(&arguments),
        LogCommand::Search(arguments) => search::search(&arguments),
        LogCommand::Branch(arguments) => mark::branch(&arguments),
        LogCommand::Undo(arguments) => mark::undo(&arguments),
        LogCommand::Pin(arguments) => mark::pin(&arguments),
        LogCommand::Verify(arguments) => read::verify(&arguments),
        LogCommand::Index(arguments) => search::index(&arguments),
        LogCommand::Erase(arguments) => keep::erase(&arguments),
        LogCommand::Drop(arguments) => keep::drop_session(&arguments),
        LogCommand::Export(arguments) => keep::export(&arguments),
        LogCommand::Backup(arguments) => keep::backup(&arguments),
        LogCommand::Stats(arguments) => read::stats(&arguments),
    }
}

fn failed(error: impl std::error::Error) -> CliError {
    CliError::Input(chain(&error))
}

/// Opens a log that must be there.
fn open(db: &Path, access: Access) -> Result<Log, CliError> {
    if !db.exists() {
        return Err(CliError::Input(format!("{}: there is no such log", db.display())));
    }
    Log::open(db, Options { access, ..Options::default() }).map_err(failed)
}

/// Opens a log for writing, or for reading where it allows no more.
fn open_as_allowed(db: &Path) -> Result<Log, CliError> {
    match Log::open(db, Options { access: Access::Write, ..Options::default() }) {
        Err(OpenError::Storage { source: StorageError::ReadOnly(_) | StorageError::Permission(_), .. }) => {
            open(db, Access::Read)
        }
        Err(OpenError::NotFound { .. }) => open(db, Access::Read),
        opened => opened.map_err(failed),
    }
}

/// A log, and a session in it.
#[derive(clap::Args, Debug)]
struct SessionArguments {
    /// The log's file.
    db: PathBuf,
    /// The session: its id, the beginning of its id, or its name. Not needed where the log has only one.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

impl SessionArguments {
    fn find(&self, log: &Log) -> Result<SessionId, CliError> {
        find_session(log, self.session.as_deref())
    }
}

fn find_session(log: &Log, wanted: Option<&str>) -> Result<SessionId, CliError> {
    let sessions = log.sessions().map_err(failed)?;
    let db = log.path().display();
    let matching = |fits: &dyn Fn(&SessionInfo) -> bool| -> Vec<SessionId> {
        sessions.iter().filter(|session| fits(session)).map(|session| session.id.clone()).collect()
    };
    let mut found = match wanted {
        None => matching(&|_| true),
        Some(wanted) => {
            let by_id = matching(&|session| session.id.as_str().starts_with(wanted));
            if by_id.is_empty() { matching(&|session| session.name == wanted) } else { by_id }
        }
    };
    match (found.len(), wanted) {
        (1, _) => Ok(found.remove(0)),
        (0, Some(wanted)) => {
            Err(CliError::Usage(format!("{db}: no session {wanted:?}; `condenser log list` names them")))
        }
        (0, None) => Err(CliError::Input(format!("{db}: the log has no session"))),
        (n, Some(wanted)) => {
            Err(CliError::Usage(format!("{db}: {n} sessions are called {wanted:?}; give a longer id")))
        }
        (n, None) => Err(CliError::Usage(format!("{db}: the log has {n} sessions; choose one with --session"))),
    }
}

fn event_ids(ids: &[String]) -> Vec<EventId> {
    ids.iter().map(|id| EventId::from(id.as_str())).collect()
}

/// Writes rows to standard output in the form that was asked for.
fn write_rows<T: Serialize>(
    format: OutputFormat,
    header: &[&str],
    rows: &[T],
    cells: impl Fn(&T) -> Vec<String>,
) -> Result<(), CliError> {
    let mut output = Output::open(None)?;
    match format {
        OutputFormat::Table => output.text(&table(header, rows.iter().map(cells)))?,
        OutputFormat::Json => output.json(&rows)?,
        OutputFormat::Jsonl => rows.iter().try_for_each(|row| output.json_line(row))?,
        OutputFormat::Csv => output.csv(rows)?,
    }
    output.finish()
}

/// Writes one line to standard output.
fn say(line: &str) -> Result<(), CliError> {
    let mut output = Output::open(None)?;
    output.text(&format!("{}\n", crate::terminal::printable(line)))?;
    output.finish()
}
