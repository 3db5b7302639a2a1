//! `condenser status`: what may be held, what is held, and what the next condensation waits for.

use condenser::budget::Limit;
use condenser::{Attempts, Reason, Requirement, Sizer};
use condenser_log::Access;
use serde_json::{Value, json};

use crate::error::{CliError, Exit};
use crate::output::Output;
use crate::session::{Session, SessionArguments};
use crate::table::table;

#[derive(clap::Args, Debug)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    session: SessionArguments,
    /// The form.
    #[arg(long, value_enum, default_value = "table")]
    format: StatusFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatusFormat {
    Table,
    Json,
}

pub(crate) fn run(arguments: &StatusArguments) -> Result<Exit, CliError> {
    let models = arguments.session.models.resolve()?;
    let budgets = arguments.session.budgets(&models);
    let counter = models.counter;
    let session = Session::open(&arguments.session.db, &arguments.session.session, Access::Read)?;
    let sizer = Sizer::new(counter);
    let state = session.state(&sizer, budgets);
    let view = &session.view;
    let numbers: Vec<(&str, Limit)> =
        [("window", budgets.window), ("output reserve", budgets.reserve)].into_iter().chain(budgets.named()).collect();
    let attempts = Attempts::of(&state);
    let waits_for = attempts.wait(&state, &Requirement::Hard(vec![Reason::Tokens]));
    let (from, size) = match state.reported {
        Some(_) => ("reported by the provider, and what came since", state.tokens()),
        None if counter.is_estimate() => ("an estimate", state.tokens()),
        None => ("counted", state.tokens()),
    };
    let open = view.iter().filter(|entry| entry.is_open() && !entry.is_abandoned()).count();
    let abandoned = view.iter().filter(|entry| entry.is_abandoned()).count();
    let pinned = view.iter().filter(|entry| entry.is_pinned()).count();
    let facts: Vec<(&str, Value)> = vec![
        ("size of the next request", json!(size)),
        ("it is", json!(from)),
        ("as counted", json!(state.counted())),
        ("counter", json!(counter.name())),
        ("entries", json!(view.len())),
        ("pinned", json!(pinned)),
        ("open calls", json!(open)),
        ("abandoned calls", json!(abandoned)),
        ("condensations in force", json!(view.records().len())),
        ("asked for a condensation", json!(view.has_unhandled_request())),
        ("failed since", json!(attempts.failed)),
        ("overflows in a row", json!(attempts.overflows)),
        ("waits for", json!(waits_for)),
        ("rules", serde_json::to_value(session.rules).unwrap_or_default()),
    ];
    let mut output = Output::open(None)?;
    match arguments.format {
        StatusFormat::Json => {
            let budgets: serde_json::Map<_, _> =
                numbers.iter().map(|(name, limit)| ((*name).replace(' ', "_"), json!(limit))).collect();
            let facts: serde_json::Map<_, _> =
                facts.into_iter().map(|(name, value)| (name.replace(' ', "_"), value)).collect();
            output.json(&json!({"session": session.id.as_str(), "budgets": budgets, "state": facts}))?;
        }
        StatusFormat::Table => {
            let number = |number: Option<u64>| number.map_or("–".to_owned(), |number| number.to_string());
            let rows = numbers.iter().map(|(name, limit)| {
                let from =
                    if limit.tokens.is_none() && limit.events.is_none() { "unknown" } else { limit.origin.name() };
                let events = number(limit.events.map(|events| events as u64));
                vec![(*name).to_owned(), number(limit.tokens.map(|tokens| tokens.0)), events, from.to_owned()]
            });
            output.text(&table(&["budget", "tokens", "entries", "from"], rows))?;
            output.text("\n")?;
            let shown = |value: &Value| match value {
                Value::Null => "–".to_owned(),
                Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let rows = facts.iter().map(|(name, value)| vec![(*name).to_owned(), shown(value)]);
            output.text(&table(&["session", session.id.as_str()], rows))?;
        }
    }
    output.finish()?;
    Ok(Exit::Ok)
}
