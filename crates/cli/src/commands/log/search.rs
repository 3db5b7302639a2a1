//! `condenser log search` and `index`.

use std::path::PathBuf;

use condenser_log::{Access, Query, SearchError};
use serde::Serialize;

use super::{SessionArguments, failed, find_session, open, open_as_allowed, say, write_rows};
use crate::error::{CliError, Exit};
use crate::output::OutputFormat;
use crate::terminal::note;

#[derive(clap::Args, Debug)]
pub(crate) struct SearchArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// Words that must all occur; "two words" in quotes stand side by side, compil* is a beginning.
    #[arg(required = true)]
    words: Vec<String>,
    /// Hits of a page, at most 100.
    #[arg(long, default_value_t = 10)]
    limit: u32,
    /// The page, from 1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    page: u32,
    /// The form of the hits.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(Serialize)]
struct HitRow {
    id: String,
    kind: &'static str,
    position: u64,
    at: Option<u64>,
    snippet: String,
}

pub(super) fn search(arguments: &SearchArguments) -> Result<Exit, CliError> {
    let log = open_as_allowed(&arguments.session.db)?;
    let session = arguments.session.find(&log)?;
    let limit = arguments.limit.clamp(1, condenser_log::MAX_HITS);
    let query = Query { words: arguments.words.join(" "), limit, offset: (arguments.page - 1).saturating_mul(limit) };
    let found = log.search(&session, &query).map_err(|error| match error {
        SearchError::NoWords => CliError::Usage(error.to_string()),
        error => failed(error),
    })?;
    let rows: Vec<HitRow> = found
        .hits
        .into_iter()
        .map(|hit| HitRow {
            id: hit.id.to_string(),
            kind: hit.kind,
            position: hit.position,
            at: hit.at,
            snippet: hit.snippet,
        })
        .collect();
    write_rows(arguments.format, &["id", "kind", "at", "snippet"], &rows, |row| {
        let at = row.at.map_or_else(|| "–".to_owned(), |at| at.to_string());
        let snippet = row.snippet.split_whitespace().collect::<Vec<_>>().join(" ");
        vec![row.id.clone(), row.kind.to_owned(), at, snippet]
    })?;
    if found.has_more {
        note(&format!("there are more hits; --page {}", arguments.page + 1));
    }
    if found.not_indexed > 0 {
        note(&format!("{} events were not searched: the log is read-only and its index is behind", found.not_indexed));
    }
    Ok(Exit::Ok)
}

#[derive(clap::Args, Debug)]
pub(crate) struct IndexArguments {
    /// The log's file.
    db: PathBuf,
    /// Only this session: its id, the beginning of its id, or its name.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Drop the index first. It is made of the events, so nothing is lost.
    #[arg(long)]
    rebuild: bool,
}

pub(super) fn index(arguments: &IndexArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.db, Access::Write)?;
    let sessions = match &arguments.session {
        Some(_) => vec![find_session(&log, arguments.session.as_deref())?],
        None => log.sessions().map_err(failed)?.into_iter().map(|session| session.id).collect(),
    };
    if arguments.rebuild {
        log.drop_index().map_err(failed)?;
    }
    let mut added = 0;
    for session in sessions {
        added += log.index(&session).map_err(failed)?;
    }
    say(&format!("{added} events indexed"))?;
    Ok(Exit::Ok)
}
