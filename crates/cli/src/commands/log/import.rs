//! `condenser log import`.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use condenser::Rules;
use condenser_log::{Import, Log, NewSession, Options, RuleSet, SessionId, is_export};
use condenser_traces::{Item, Trace};
use serde_json::{Map, json};

use super::failed;
use crate::error::{CliError, Exit, chain};
use crate::input::{InputArguments, Notes};
use crate::output::Output;
use crate::terminal::{note, printable};

#[derive(clap::Args, Debug)]
pub(crate) struct ImportArguments {
    /// The log's file.
    db: PathBuf,
    #[command(flatten)]
    input: InputArguments,
}

pub(super) fn run(arguments: &ImportArguments) -> Result<Exit, CliError> {
    let (candidates, mut met) = arguments.input.candidates()?;
    let log = OnceCell::new();
    let mut output = Output::open(None)?;
    // A report that cannot be written is no reason to stop half way.
    let mut reported = Ok(());
    let mut report = |session: &SessionId, name: &str, events: u64| {
        let line = format!("{session} {} {events} events\n", printable(name));
        reported = std::mem::replace(&mut reported, Ok(())).and_then(|()| output.text(&line));
    };
    for candidate in &candidates {
        if starts_as_export(&candidate.path) {
            let log = opened(&log, &arguments.db)?;
            let imported = File::open(&candidate.path)
                .map_err(condenser_log::ImportError::from)
                .and_then(|file| log.import_export(BufReader::new(file)));
            match imported {
                Ok((session, events)) => report(&session, &candidate.path.display().to_string(), events),
                Err(error) => {
                    note(&format!("error: {}: {}", candidate.path.display(), chain(&error)));
                    met.unreadable = true;
                }
            }
            continue;
        }
        let reader = match arguments.input.open(candidate) {
            Ok(reader) => reader,
            Err(met_here) => {
                met.add(met_here);
                continue;
            }
        };
        let mut notes = Notes::new(&candidate.path);
        let mut open: Option<Open<'_>> = None;
        for item in reader {
            match item {
                Ok(Item::Begin(trace)) => {
                    if let Some(open) = open.take() {
                        open.finish(&mut report)?;
                    }
                    open = Some(Open::begin(opened(&log, &arguments.db)?, *trace)?);
                }
                Ok(Item::Event(event)) => {
                    if let Some(mut trace) = open.take() {
                        if let Err(error) = trace.import.push(event) {
                            trace.abandon();
                            return Err(failed(error));
                        }
                        open = Some(trace);
                    }
                }
                Ok(Item::Diagnostic(odd) | Item::FileDiagnostic(odd)) => notes.add(&odd),
                Ok(_) => {}
                Err(error) => {
                    if let Some(trace) = open.take() {
                        trace.abandon();
                    }
                    notes.fail(&error, candidate.named);
                }
            }
        }
        if let Some(open) = open {
            open.finish(&mut report)?;
        }
        met.add(notes.finish());
    }
    reported.and_then(|()| output.finish())?;
    Ok(met.exit(arguments.input.strict))
}

/// The log; its file is made once there is something to put in it.
fn opened<'l>(log: &'l OnceCell<Log>, db: &Path) -> Result<&'l Log, CliError> {
    if let Some(log) = log.get() {
        return Ok(log);
    }
    let new = Log::open(db, Options::default()).map_err(failed)?;
    Ok(log.get_or_init(|| new))
}

fn starts_as_export(path: &Path) -> bool {
    let mut beginning = Vec::new();
    File::open(path).and_then(|file| file.take(64).read_to_end(&mut beginning)).is_ok() && is_export(&beginning)
}

/// A trace on its way into a session; one that cannot be stored to its end leaves nothing.
struct Open<'l> {
    name: String,
    import: Import<'l>,
}

impl<'l> Open<'l> {
    fn begin(log: &'l Log, trace: Trace) -> Result<Self, CliError> {
        let mut meta = Map::new();
        meta.insert("format".into(), json!(trace.format));
        if let Some(task) = &trace.task {
            meta.insert("task".into(), json!(task));
        }
        let new = NewSession { name: trace.name.clone(), rules: RuleSet::of(Rules::default()), meta };
        Ok(Self { name: trace.name, import: log.import(new).map_err(failed)? })
    }

    fn finish(self, report: &mut impl FnMut(&SessionId, &str, u64)) -> Result<(), CliError> {
        let session = self.import.session().clone();
        let n_events = self.import.finish().map_err(failed)?;
        report(&session, &self.name, n_events);
        Ok(())
    }

    fn abandon(self) {
        // It stays marked as incomplete where it cannot be dropped either.
        let _ = self.import.abandon();
    }
}
