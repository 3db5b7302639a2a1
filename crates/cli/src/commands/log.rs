//! `condenser log`: event logs.

use std::path::PathBuf;

use condenser::Rules;
use condenser_log::{Access, Log, NewSession, Options, RuleSet};
use serde_json::{Map, json};

use crate::error::{CliError, Exit, chain};
use crate::input::InputArguments;
use crate::output::{Output, OutputFormat};
use crate::table::table;

#[derive(clap::Subcommand, Debug)]
pub(crate) enum LogCommand {
    /// Import traces into a log, a session per trace. The log is created where there is none.
    Import {
        /// The log's file.
        db: PathBuf,
        #[command(flatten)]
        input: InputArguments,
    },
    /// List the sessions of a log.
    List {
        /// The log's file.
        db: PathBuf,
        /// The form of the list.
        #[arg(long, value_enum, default_value = "table")]
        format: OutputFormat,
    },
}

pub(crate) fn run(command: LogCommand) -> Result<Exit, CliError> {
    match command {
        LogCommand::Import { db, input } => import(db, &input),
        LogCommand::List { db, format } => list(db, format),
    }
}

fn failed(error: impl std::error::Error) -> CliError {
    CliError::Input(chain(&error))
}

fn import(db: PathBuf, input: &InputArguments) -> Result<Exit, CliError> {
    let (candidates, mut met) = input.candidates()?;
    let mut log = None;
    let mut output = Output::open(None)?;
    // A report that cannot be written is no reason to stop half way.
    let mut reported = Ok(());
    for candidate in &candidates {
        let (traces, met_here) = input.read(candidate);
        met.add(met_here);
        for trace in traces {
            // The file is made once there is something to put in it.
            let log = match &mut log {
                Some(log) => log,
                none => none.insert(Log::open(&db, Options::default()).map_err(failed)?),
            };
            let mut meta = Map::new();
            meta.insert("format".into(), json!(trace.format));
            if let Some(task) = &trace.task {
                meta.insert("task".into(), json!(task));
            }
            let session = log
                .create_session(NewSession { name: trace.name.clone(), rules: default_rules(), meta })
                .map_err(failed)?;
            log.append(&session, &trace.events).map_err(failed)?;
            let line = format!("{session} {} {} events\n", crate::terminal::printable(&trace.name), trace.events.len());
            reported = reported.and_then(|()| output.text(&line));
        }
    }
    reported.and_then(|()| output.finish())?;
    Ok(met.exit(input.strict))
}

/// The rules that new sessions are read by.
fn default_rules() -> RuleSet {
    let name = serde_json::to_value(Rules::default()).ok().and_then(|name| name.as_str().map(str::to_owned));
    RuleSet { name: name.unwrap_or_default(), version: 1 }
}

#[derive(serde::Serialize)]
struct CsvLine<'s> {
    session: &'s str,
    name: &'s str,
    events: u64,
    branches: u64,
    rules: &'s str,
}

fn list(db: PathBuf, format: OutputFormat) -> Result<Exit, CliError> {
    if !db.exists() {
        return Err(CliError::Input(format!("{}: there is no such log", db.display())));
    }
    let log = Log::open(&db, Options { access: Access::Read, ..Options::default() }).map_err(failed)?;
    let sessions = log.sessions().map_err(failed)?;
    let mut output = Output::open(None)?;
    let rows: Vec<_> = sessions
        .iter()
        .map(|session| {
            json!({
                "session": session.id.as_str(),
                "name": session.name,
                "events": session.events,
                "branches": session.branches,
                "head": session.head.as_ref().map(|head| head.as_str()),
                "rules": session.rules.name,
                "created_ms": session.created_ms,
                "meta": session.meta,
            })
        })
        .collect();
    match format {
        OutputFormat::Table => output.text(&table(
            &["session", "name", "events", "branches", "rules"],
            sessions.iter().map(|session| {
                vec![
                    session.id.to_string(),
                    session.name.clone(),
                    session.events.to_string(),
                    session.branches.to_string(),
                    session.rules.name.clone(),
                ]
            }),
        ))?,
        OutputFormat::Json => output.json(&rows)?,
        OutputFormat::Jsonl => rows.iter().try_for_each(|row| output.json_line(row))?,
        OutputFormat::Csv => output.csv(
            &sessions
                .iter()
                .map(|session| CsvLine {
                    session: session.id.as_str(),
                    name: &session.name,
                    events: session.events,
                    branches: session.branches,
                    rules: &session.rules.name,
                })
                .collect::<Vec<_>>(),
        )?,
    }
    output.finish()?;
    Ok(Exit::Ok)
}
