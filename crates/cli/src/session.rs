//! A session of a log as the policies see it.

use std::path::{Path, PathBuf};

use condenser::{Bound, BudgetSettings, Budgets, Class, Event, EventId, Rules, Sizer, State, Tokens, View};
use condenser_log::{Access, Log, Options, SessionId};

use crate::error::{CliError, chain};
use crate::models::{ModelArguments, Models};
use crate::subjects::parse_tokens;

/// Which session, and what its requests may hold.
#[derive(clap::Args, Debug)]
pub(crate) struct SessionArguments {
    /// The log's file.
    pub(crate) db: PathBuf,
    /// The session: its id, or its name where only one has it (`condenser log list`).
    #[arg(long, value_name = "ID|NAME")]
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) models: ModelArguments,
    /// The context window; stronger than the profile's.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<Tokens>,
    /// Room kept for the answer.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    reserve: Option<Tokens>,
    /// The most of a complete request: tokens, or a share of the window (`32k`, `80%`). Several: the strictest binds.
    #[arg(long, value_name = "BOUND", value_parser = parse_bound)]
    request: Vec<Bound>,
    /// When policies act: tokens, a share of the window, or a number of entries (`24k`, `80%`, `200e`).
    #[arg(long, value_name = "BOUND", value_parser = parse_bound)]
    trigger: Vec<Bound>,
    /// What a condensation leaves, in the same forms.
    #[arg(long, value_name = "BOUND", value_parser = parse_bound)]
    retained: Vec<Bound>,
    /// The most that the summarizer is shown.
    #[arg(long, value_name = "BOUND", value_parser = parse_bound)]
    summary_input: Vec<Bound>,
    /// The most of a summary.
    #[arg(long, value_name = "BOUND", value_parser = parse_bound)]
    summary_output: Vec<Bound>,
}

/// `32k`, `80%` or `200e`.
fn parse_bound(text: &str) -> Result<Bound, String> {
    let text = text.trim();
    let explain = || "a bound is like 32k (tokens), 80% (of the window) or 200e (entries)".to_owned();
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.trim().parse().map_err(|_| explain())?;
        return if (0.0..=100.0).contains(&percent) { Ok(Bound::Share(percent / 100.0)) } else { Err(explain()) };
    }
    if let Some(events) = text.strip_suffix('e') {
        return events.trim().parse().map(Bound::Events).map_err(|_| explain());
    }
    parse_tokens(text).map(Bound::Tokens).map_err(|_| explain())
}

impl SessionArguments {
    /// The budgets in force.
    pub(crate) fn budgets(&self, models: &Models) -> Budgets {
        let settings = BudgetSettings {
            window: self.window,
            reserve: self.reserve,
            request: self.request.clone(),
            trigger: self.trigger.clone(),
            retained: self.retained.clone(),
            summary_input: self.summary_input.clone(),
            summary_output: self.summary_output.clone(),
            summarizer_window: models.summarizer.window,
        };
        settings.resolve(Some(&models.profile))
    }
}

/// What a log's own error means to a user.
pub(crate) fn failed(error: impl std::error::Error) -> CliError {
    CliError::Input(chain(&error))
}

/// An open session, with the events of its active branch.
pub(crate) struct Session {
    pub(crate) log: Log,
    pub(crate) id: SessionId,
    pub(crate) rules: Rules,
    pub(crate) events: Vec<Event>,
    pub(crate) view: View,
}

impl Session {
    /// Opens a log that is there, and finds the session that the user named.
    pub(crate) fn open(db: &Path, named: &str, access: Access) -> Result<Self, CliError> {
        let log = Log::open(db, Options { access, ..Options::default() }).map_err(failed)?;
        let sessions = log.sessions().map_err(failed)?;
        let by_name = || {
            let mut found = sessions.iter().filter(|session| session.name == named);
            match (found.next(), found.count()) {
                (Some(session), 0) => Ok(session),
                (None, _) => {
                    Err(format!("{}: there is no session {named:?}; `condenser log list` lists them", db.display()))
                }
                (_, others) => {
                    Err(format!("{}: {} sessions are named {named:?}; give an id", db.display(), others + 1))
                }
            }
        };
        let by_id = sessions.iter().find(|session| session.id.as_str() == named);
        let info = by_id.map_or_else(by_name, Ok).map_err(CliError::Usage)?;
        let rules = info.rules.rules().ok_or_else(|| {
            CliError::Input(format!(
                "session {} is read by the rules {} version {}, which this build does not have; use a newer build",
                info.id, info.rules.name, info.rules.version
            ))
        })?;
        let id = info.id.clone();
        let events = log.branch(&id, None).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let view = View::replay(&events, rules);
        Ok(Self { log, id, rules, events, view })
    }

    /// Adds an event to what is shown, not to the log.
    pub(crate) fn show(&mut self, event: Event) {
        self.view.push(&event);
        self.events.push(event);
    }

    pub(crate) fn state<'s>(&'s self, sizer: &'s Sizer<'s>, budgets: Budgets) -> State<'s> {
        let mut state = State::with_budgets(&self.view, &self.events, sizer, budgets);
        state.reported = state.reported_size();
        state
    }

    /// What an entry is, in a word.
    pub(crate) fn kind(&self, id: &EventId) -> &'static str {
        let entry = self.view.position(id).and_then(|position| self.view.get(position));
        match entry.map(|entry| (entry.is_summary(), entry.class())) {
            Some((true, _)) => "summary",
            Some((_, Class::SystemPrompt)) => "system prompt",
            Some((_, Class::Message)) => "message",
            Some((_, Class::Action)) => "call",
            Some((_, Class::Observation)) => "result",
            _ => "entry",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_tokens_shares_or_entries() {
        assert_eq!(parse_bound("32k"), Ok(Bound::Tokens(Tokens(32_000))));
        assert_eq!(parse_bound(" 80% "), Ok(Bound::Share(0.8)));
        assert_eq!(parse_bound("200e"), Ok(Bound::Events(200)));
        for wrong in ["", "%", "120%", "-1e", "many"] {
            assert!(parse_bound(wrong).is_err(), "{wrong}");
        }
    }
}
