//! `condenser log import`.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use condenser::Rules;
use condenser_log::{Log, NewSession, Options, RuleSet, SessionId, is_export};
use condenser_traces::Trace;
use serde_json::{Map, json};

use super::failed;
use crate::error::{CliError, Exit, chain};
use crate::input::InputArguments;
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
    let mut log = None;
    let mut output = Output::open(None)?;
    // A report that cannot be written is no reason to stop half way.
    let mut reported = Ok(());
    let mut report = |session: &SessionId, name: &str, events: u64| {
        let line = format!("{session} {} {events} events\n", printable(name));
        reported = std::mem::replace(&mut reported, Ok(())).and_then(|()| output.text(&line));
    };
    for candidate in &candidates {
        if starts_as_export(&candidate.path) {
            let log = opened(&mut log, &arguments.db)?;
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
        let (traces, met_here) = arguments.input.read(candidate);
        met.add(met_here);
        for trace in traces {
            let log = opened(&mut log, &arguments.db)?;
            let name = trace.name.clone();
            let (session, events) = import(log, trace)?;
            report(&session, &name, events);
        }
    }
    reported.and_then(|()| output.finish())?;
    Ok(met.exit(arguments.input.strict))
}

/// The log; its file is made once there is something to put in it.
fn opened<'l>(log: &'l mut Option<Log>, db: &Path) -> Result<&'l Log, CliError> {
    match log {
        Some(log) => Ok(log),
        none => Ok(none.insert(Log::open(db, Options::default()).map_err(failed)?)),
    }
}

fn starts_as_export(path: &Path) -> bool {
    let mut beginning = Vec::new();
    File::open(path).and_then(|file| file.take(64).read_to_end(&mut beginning)).is_ok() && is_export(&beginning)
}

/// Imports a trace as a session; one that cannot be stored to its end leaves nothing.
fn import(log: &Log, trace: Trace) -> Result<(SessionId, u64), CliError> {
    let mut meta = Map::new();
    meta.insert("format".into(), json!(trace.format));
    if let Some(task) = &trace.task {
        meta.insert("task".into(), json!(task));
    }
    let new = NewSession { name: trace.name, rules: RuleSet::of(Rules::default()), meta };
    let mut import = log.import(new).map_err(failed)?;
    let session = import.session().clone();
    let pushed = trace.events.into_iter().try_for_each(|event| import.push(event));
    match pushed {
        Ok(()) => import.finish().map(|events| (session, events)).map_err(failed),
        Err(error) => {
            let _ = import.abandon();
            Err(failed(error))
        }
    }
}
