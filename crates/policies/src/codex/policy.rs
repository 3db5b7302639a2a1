//! The peer as a policy.

use condenser::{Edit, EventId, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest};

use super::adapter::History;
use super::peer::{self, SUMMARY_PREFIX, Settings};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, show, unfenced};
use crate::turns::size;

const PROMPT: &str = include_str!("../../prompts/codex-v1.md");
const PROMPT_VERSION: &str = "codex-v1";

/// The local compaction of Codex.
#[derive(Clone, Debug, Default)]
pub struct Codex {
    settings: Settings,
}

impl Codex {
    /// The policy with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }
}

impl Policy for Codex {
    fn name(&self) -> &str {
        "codex"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if state.view.has_unhandled_request() {
            return Requirement::Hard(vec![Reason::Request]);
        }
        let limit = peer::token_limit(state.budget.window.map(|window| window.0), &self.settings);
        let is_over = state.budget.limit().is_some_and(|limit| size(state) > limit.0);
        match (is_over, peer::should_compact(size(state), limit)) {
            (true, _) => Requirement::Hard(vec![Reason::Tokens]),
            (false, true) => Requirement::Soft(vec![Reason::Tokens]),
            (false, false) => Requirement::None,
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let history = History::new(state);
        let (forget, rewrites) = history.edit(state, &self.settings);
        let event = |&index: &usize| {
            let id = state.view.get(index)?.id().clone();
            let kind = crate::turns::kind(state, index)?;
            Some((id.clone(), show(&kind, &id, false, usize::MAX / 2)))
        };
        let mut events: Vec<(EventId, String)> = history.shown.iter().filter_map(event).collect();
        if forget.is_empty() || events.is_empty() {
            return Err(NoPlan::NoLegalCut);
        }
        if let Some(room) = state.budgets.summary_input.tokens {
            let sizes: Vec<u64> = events.iter().map(|(_, text)| state.sizer.text(text).0).collect();
            let room = room.0.saturating_sub(state.sizer.text(PROMPT).0);
            let n = peer::drop_oldest(events.len(), |from| sizes[from..].iter().sum::<u64>() <= room);
            events.drain(..n);
        }
        let previous = history.previous.join("\n\n");
        let request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            events,
            previous: (!previous.is_empty()).then(|| unfenced(previous)),
            guidance: guidance(state),
            prompt_version: PROMPT_VERSION.to_owned(),
            frame: Some(Box::new(Frame { before: format!("{SUMMARY_PREFIX}\n"), ..Frame::default() })),
            ..SummaryRequest::default()
        };
        let edit = Edit { forget, rewrites, ..Edit::default() };
        Ok(Plan::Summarize { edit, offset: state.view.len(), request })
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "Codex 0100b103";

const TEXTS: &[SettingText] = &[
    ("token_limit", "tokens", "the size at which it compacts, where that is smaller; null is off", SOURCE),
    ("window_share", "share of the window", "the size at which it compacts", SOURCE),
    ("user_tokens", "tokens", "the most of the user's messages that stay", SOURCE),
    ("bytes_per_token", "bytes", "what counts for a token when those are sized", SOURCE),
];

/// The policy.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    vec![PolicyInfo::new(
        "codex",
        PolicyKind::Port,
        "Codex: what the user said, newest first, and a handoff for everything else",
        &Settings::default(),
        TEXTS,
        |_, settings| Ok(Box::new(Codex::new(settings))),
    )]
}
