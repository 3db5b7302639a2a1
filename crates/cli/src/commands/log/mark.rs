//! `condenser log branch`, `undo` and `pin`.

use condenser::EventId;
use condenser_log::Access;
use serde::Serialize;

use super::{SessionArguments, event_ids, failed, open, say, write_rows};
use crate::error::{CliError, Exit};
use crate::output::OutputFormat;

#[derive(clap::Args, Debug)]
pub(crate) struct BranchArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// Move the head to this event: the next event follows it.
    #[arg(long, value_name = "ID")]
    to: Option<String>,
    /// Move the head to the very beginning.
    #[arg(long, conflicts_with = "to")]
    to_root: bool,
    /// The form of the list.
    #[arg(long, value_enum, default_value = "table")]
    format: OutputFormat,
}

#[derive(Serialize)]
struct BranchRow {
    tip: String,
    fork: Option<String>,
    active: bool,
}

pub(super) fn branch(arguments: &BranchArguments) -> Result<Exit, CliError> {
    let moves = arguments.to.is_some() || arguments.to_root;
    let log = open(&arguments.session.db, if moves { Access::Write } else { Access::Read })?;
    let session = arguments.session.find(&log)?;
    if moves {
        let head = arguments.to.as_deref().map(EventId::from);
        log.set_head(&session, head.as_ref()).map_err(failed)?;
    }
    let rows: Vec<BranchRow> = log
        .branches(&session)
        .map_err(failed)?
        .into_iter()
        .map(|branch| BranchRow {
            tip: branch.tip.to_string(),
            fork: branch.fork.map(|fork| fork.to_string()),
            active: branch.is_active,
        })
        .collect();
    write_rows(arguments.format, &["tip", "forks off", "head"], &rows, |row| {
        let fork = row.fork.clone().unwrap_or_else(|| "–".to_owned());
        vec![row.tip.clone(), fork, if row.active { "here".to_owned() } else { String::new() }]
    })?;
    Ok(Exit::Ok)
}

#[derive(clap::Args, Debug)]
pub(crate) struct UndoArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// The condensation [default: the newest in force].
    condensation: Option<String>,
}

pub(super) fn undo(arguments: &UndoArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.session.db, Access::Write)?;
    let session = arguments.session.find(&log)?;
    let condensation = arguments.condensation.as_deref().map(EventId::from);
    let (condensation, event) = log.undo(&session, condensation.as_ref()).map_err(failed)?;
    say(&format!("{event} takes back {condensation}"))?;
    Ok(Exit::Ok)
}

#[derive(clap::Args, Debug)]
pub(crate) struct PinArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// The events.
    #[arg(required = true)]
    ids: Vec<String>,
    /// Take pins back instead.
    #[arg(long)]
    undo: bool,
}

pub(super) fn pin(arguments: &PinArguments) -> Result<Exit, CliError> {
    let log = open(&arguments.session.db, Access::Write)?;
    let session = arguments.session.find(&log)?;
    let ids = event_ids(&arguments.ids);
    let (event, does) = match arguments.undo {
        true => (log.unpin(&session, &ids), "unpins"),
        false => (log.pin(&session, &ids), "pins"),
    };
    say(&format!("{} {does} {}", event.map_err(failed)?, arguments.ids.join(" ")))?;
    Ok(Exit::Ok)
}
