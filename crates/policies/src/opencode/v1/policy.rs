//! The peer as a policy.

use condenser::event::EventKind;
use condenser::{
    Edit, EventId, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest, Tokens,
};

use super::adapter::Session;
use super::peer::{self, Model, QUESTION, Selection, Settings};
use crate::opencode::output_limit;
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, label, unfenced};
use crate::turns::{self, Turn, begins_run, has_new_answer, n_prompts, size, turns};

const PROMPT: &str = include_str!("../../../prompts/opencode-v1-v1.md");
const PROMPT_VERSION: &str = "opencode-v1-v1";

/// OpenCode's compaction service.
#[derive(Clone, Debug, Default)]
pub struct OpencodeV1 {
    settings: Settings,
}

impl OpencodeV1 {
    /// The policy with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    fn model(state: &State<'_>) -> Model {
        let context = state.budget.window.map_or(0, |window| window.0);
        Model { context, input: None, output: output_limit(state) }
    }

    /// Why to compact, and whether the provider would have refused the request first.
    fn compaction(&self, state: &State<'_>, turns: &[Turn]) -> (Requirement, bool) {
        if state.view.has_unhandled_request() {
            return (Requirement::Hard(vec![Reason::Request]), false);
        }
        if !self.settings.auto {
            return (Requirement::None, false);
        }
        let is_due = has_new_answer(state, turns)
            && peer::is_overflow(answered(state, turns), &Self::model(state), &self.settings);
        let is_refused = state.budget.limit().is_some_and(|limit| size(state) > limit.0);
        let requirement = match (is_refused, is_due) {
            (true, _) => Requirement::Hard(vec![Reason::Tokens]),
            (false, true) => Requirement::Soft(vec![Reason::Tokens]),
            (false, false) => Requirement::None,
        };
        (requirement, is_refused && !is_due)
    }

    fn compact(&self, state: &State<'_>, turns: &[Turn], session: &Session, is_overflow: bool) -> Option<Plan> {
        let selection = peer::select(&session.asked(is_overflow), is_overflow, &Self::model(state), &self.settings);
        let events = self.events(state, session, &selection);
        if events.is_empty() {
            return None;
        }
        let mut edit = Edit { forget: session.forget(state, &selection), ..Edit::default() };
        if begins_run(turns) {
            edit.rewrites = session.prune(state, &self.settings, &edit.forget);
        }
        if let Some(replay) = selection.replay {
            edit.rewrites.extend(session.relabel(state, replay));
        }
        let request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            events,
            previous: selection.previous.map(unfenced),
            guidance: guidance(state),
            prompt_version: PROMPT_VERSION.to_owned(),
            frame: Some(Box::new(Frame { before: format!("{QUESTION}\n\n"), ..Frame::default() })),
            ..SummaryRequest::default()
        };
        Some(Plan::Summarize { edit, offset: n_prompts(state), request })
    }

    fn events(&self, state: &State<'_>, session: &Session, selection: &Selection) -> Vec<(EventId, String)> {
        let event = |index: usize| {
            let kind = turns::kind(state, index)?;
            let text = match &*kind {
                EventKind::Action(action) => {
                    let said = turns::text(&kind);
                    let line = if said.is_empty() { "" } else { "\n" };
                    format!("{said}{line}{}({})", action.tool_name, action.arguments)
                }
                EventKind::Observation(_) => peer::cut(&turns::text(&kind), self.settings.result_characters),
                _ => turns::text(&kind),
            };
            Some((state.view.get(index)?.id().clone(), unfenced(format!("{}\n{text}", label(&kind)))))
        };
        session.summarized(selection).filter_map(event).collect()
    }
}

/// The size up to the newest answer: it is looked at before anything that came after it.
fn answered(state: &State<'_>, turns: &[Turn]) -> u64 {
    let last = turns.iter().rev().find_map(|turn| match turn {
        Turn::Answer(members) => members.last().copied(),
        _ => None,
    });
    let after = last.map_or(0, |last| last + 1);
    (Tokens(size(state)) - state.entry_tokens()[after..].iter().copied().sum()).0
}

impl Policy for OpencodeV1 {
    fn name(&self) -> &str {
        "opencode-v1"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        let turns = turns(state);
        let (compaction, _) = self.compaction(state, &turns);
        if compaction.is_some() || !begins_run(&turns) {
            return compaction;
        }
        let prunes = !Session::new(state, &turns).prune(state, &self.settings, &Default::default()).is_empty();
        if prunes { Requirement::Soft(vec![Reason::Policy]) } else { Requirement::None }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !matches!(tried, [] | [Failure::Summarizer(_)]) {
            return Err(NoPlan::Exhausted);
        }
        let turns = turns(state);
        let session = Session::new(state, &turns);
        let (compaction, is_overflow) = self.compaction(state, &turns);
        if compaction.is_some()
            && tried.is_empty()
            && let Some(plan) = self.compact(state, &turns, &session, is_overflow)
        {
            return Ok(plan);
        }
        if begins_run(&turns) {
            let rewrites = session.prune(state, &self.settings, &Default::default());
            if !rewrites.is_empty() {
                return Ok(Plan::Edit(Edit { rewrites, ..Edit::default() }));
            }
        }
        match (tried, compaction.is_some()) {
            ([], false) => Ok(Plan::Keep),
            ([], true) => Err(NoPlan::NoLegalCut),
            _ => Err(NoPlan::Exhausted),
        }
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "OpenCode 31e22f65 and before";

const TEXTS: &[SettingText] = &[
    ("auto", "switch", "whether anything is compacted but on request", SOURCE),
    ("reserved", "tokens", "what stays free of a named input limit; null is the output limit", SOURCE),
    ("reserved_most", "tokens", "the most of that where nothing is configured", SOURCE),
    ("output_most", "tokens", "the most of an answer, whatever the model's limit", SOURCE),
    ("reserves_from_context", "switch", "whether it is taken off the context too, as later releases do", SOURCE),
    ("prune", "switch", "whether old tool results are marked; later releases ask for it", SOURCE),
    ("prune_turns", "turns", "the newest turns of the user whose results are never marked", SOURCE),
    ("prune_protect_tokens", "tokens", "the newest results behind them that are not marked", SOURCE),
    ("prune_minimum_tokens", "tokens", "nothing is marked for a gain of no more", SOURCE),
    ("protected_tools", "names", "tools whose results are never marked", SOURCE),
    ("tail_turns", "turns", "the newest turns that stay; null is as many as fit, as in later releases", SOURCE),
    ("preserve_recent_tokens", "tokens", "the most of what stays; null is a share within bounds", SOURCE),
    ("preserve_recent_share", "share of the context less an answer", "the most of what stays", SOURCE),
    ("preserve_recent_least", "tokens", "the lower bound of that", SOURCE),
    ("preserve_recent_most", "tokens", "its upper bound; 15,000 in later releases", SOURCE),
    ("result_characters", "characters", "the most of one tool result that the summarizer is shown", SOURCE),
];

/// The policy, as lists show it.
pub(crate) fn info() -> PolicyInfo {
    PolicyInfo::new(
        "opencode-v1",
        PolicyKind::Port,
        "OpenCode's app: marks old results where a run ends, and keeps the newest two turns behind a summary",
        &Settings::default(),
        TEXTS,
        |_, settings| Ok(Box::new(OpencodeV1::new(settings))),
    )
}
