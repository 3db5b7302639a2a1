//! The peer as a policy.

use std::collections::BTreeSet;
use std::rc::Rc;

use condenser::{Edit, EventId, Failure, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest};

use super::adapter::Session;
use super::peer::{self, Range, Settings};
use crate::layout::offset_behind;
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, show, unfenced};
use crate::turns::{Turn, begins_run, size, turns};

const PROMPT: &str = include_str!("../../prompts/adk-v1.md");
const PROMPT_VERSION: &str = "adk-v1";

/// The event compaction of ADK.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adk {
    settings: Settings,
}

impl Adk {
    /// The policy with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    fn selected(&self, state: &State<'_>) -> Rc<Option<(Session, Range)>> {
        state.once(&self.settings, || self.select(state))
    }

    fn select(&self, state: &State<'_>) -> Option<(Session, Range)> {
        let turns = turns(state);
        let has_ended = begins_run(&turns);
        let is_reached =
            self.settings.token_threshold.is_some_and(|threshold| peer::is_reached(Some(size(state)), 0, threshold));
        if is_reached {
            let session = Session::new(state, None);
            let range = peer::select(&session.events, true, false, &self.settings);
            if let Some(range) = range {
                return Some((session, range));
            }
        }
        if !has_ended {
            return None;
        }
        let running = turns.iter().rev().take_while(|turn| matches!(turn, Turn::User(_))).last()?;
        let session = Session::new(state, Some(state.view.get(running.members()[0])?.seq()));
        let range = peer::select(&session.events, false, true, &self.settings)?;
        Some((session, range))
    }
}

impl Policy for Adk {
    fn name(&self) -> &str {
        "adk"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        match &*self.selected(state) {
            Some(_) => Requirement::Soft(vec![Reason::Policy]),
            None => Requirement::None,
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let selected = self.selected(state);
        let Some((session, range)) = &*selected else { return Ok(Plan::Keep) };
        let shown: BTreeSet<&EventId> = state.view.ids().collect();
        let (mut events, mut forget) = (Vec::new(), BTreeSet::new());
        for event in range.events.iter().filter_map(|&at| state.bodies.event(session.places[at])) {
            // Overlapping events are not shown any more; the summarizer is told of them again.
            if shown.contains(&event.id) {
                forget.insert(event.id.clone());
            }
            events.push((event.id.clone(), show(&event.kind, &event.id, false, usize::MAX / 2)));
        }
        let previous = range.previous.and_then(|at| state.view.get(session.places[at]));
        forget.extend(previous.map(|entry| entry.id().clone()));
        if forget.is_empty() || events.is_empty() {
            return Err(NoPlan::NoLegalCut);
        }
        let request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            events,
            previous: previous.and_then(|entry| entry.summary()).map(|text| unfenced(text.to_owned())),
            guidance: guidance(state),
            prompt_version: PROMPT_VERSION.to_owned(),
            ..SummaryRequest::default()
        };
        let edit = Edit { forget, ..Edit::default() };
        Ok(Plan::Summarize { offset: offset_behind(state, &edit.forget), edit, request })
    }

    fn is_port(&self) -> bool {
        true
    }
}

const EXAMPLE: &str = "ADK's documentation, an example; it has no default";
const SOURCE: &str = "ADK, apps/compaction.py";

const TEXTS: &[SettingText] = &[
    ("compaction_interval", "invocations", "the new ones that make a compaction; null is off", EXAMPLE),
    ("overlap_size", "invocations", "those before them that are summarized again", EXAMPLE),
    ("token_threshold", "tokens", "the size that makes one; null is off", SOURCE),
    ("event_retention_size", "events", "the newest that stay then", SOURCE),
];

/// The policy.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    vec![PolicyInfo::new(
        "adk",
        PolicyKind::Port,
        "ADK: a summary for every few invocations, with an overlap; or for all but the newest events, above a size",
        &Settings::default(),
        TEXTS,
        |_, settings| {
            settings.check()?;
            Ok(Box::new(Adk::new(settings)))
        },
    )]
}
