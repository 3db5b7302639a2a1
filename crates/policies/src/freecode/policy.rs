//! The peer as a policy.

use condenser::event::EventKind;
use condenser::{Edit, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest, Tokens};
use serde::{Deserialize, Serialize};

use super::adapter::{SUMMARY_LABEL, Store};
use super::peer::{Message, Settings, heuristic, select, should_compact};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, label, unfenced};
use crate::turns::{n_prompts, size};

const PROMPT: &str = include_str!("../../prompts/freecode-v1.md");
const PROMPT_VERSION: &str = "freecode-v1";

/// Settings of [`Freecode`]: the peer's, and which of its summarizers is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreecodeSettings {
    /// The peer's.
    #[serde(flatten)]
    pub peer: Settings,
    /// Whether a model is asked, and the summary without a model is left for its failures.
    pub asks_model: bool,
}

impl Default for FreecodeSettings {
    fn default() -> Self {
        Self { peer: Settings::default(), asks_model: true }
    }
}

/// FreeCode's pruning, compaction and overflow retry.
#[derive(Clone, Copy, Debug)]
pub struct Freecode {
    name: &'static str,
    settings: FreecodeSettings,
}

impl Freecode {
    /// The policy with these settings, as `freecode`.
    pub fn new(settings: FreecodeSettings) -> Self {
        Self { name: "freecode", settings }
    }

    fn peer(&self) -> &Settings {
        &self.settings.peer
    }

    /// Whether the newest try came to nothing, and the context has not grown enough since.
    fn is_blocked(&self, state: &State<'_>) -> bool {
        for seq in (0..state.view.n_pushed()).rev() {
            match state.bodies.event(seq).map(|event| &event.kind) {
                Some(EventKind::Condensation(_)) => return false,
                Some(EventKind::CondensationFailed(failed)) if failed.policy == self.name => {
                    let growth = self.peer().retry_growth_tokens;
                    return failed.tokens_before.is_some_and(|before| size(state) < before.saturating_add(growth));
                }
                _ => {}
            }
        }
        false
    }

    fn is_overflow(state: &State<'_>) -> bool {
        state.budget.limit().is_some_and(|limit| size(state) > limit.0)
    }

    /// Why to compact, and whether it has to be.
    fn compaction(&self, state: &State<'_>, store: &Store) -> Requirement {
        if state.view.has_unhandled_request() {
            return Requirement::Hard(vec![Reason::Request]);
        }
        if Self::is_overflow(state) {
            return Requirement::Hard(vec![Reason::Tokens]);
        }
        let limit = state.budget.limit().map(|limit| limit.0);
        let is_due = store.begins_run() && should_compact(size(state), limit, self.peer());
        if is_due && !self.is_blocked(state) { Requirement::Soft(vec![Reason::Tokens]) } else { Requirement::None }
    }

    fn compact(&self, state: &State<'_>, store: &Store, tried: &[Failure]) -> Option<Plan> {
        let service = store.transcript(state, *self.peer());
        let selection = select(&service.messages, self.peer());
        if selection.summarize.is_empty() {
            return None;
        }
        // The original has one summary at most; a view may hold more, and all of them leave.
        let previous = (!service.summaries.is_empty()).then(|| service.summaries.join("\n\n"));
        let mut edit = Edit { forget: store.forget(state, self.peer()), ..Edit::default() };
        if store.begins_run() {
            edit.rewrites = store.prune(state, self.peer(), &edit.forget);
        }
        let offset = n_prompts(state);
        if !self.settings.asks_model || !tried.is_empty() {
            let content = heuristic(selection.summarize, previous.as_deref(), self.peer()).content;
            edit.summary = Some((format!("{SUMMARY_LABEL}{content}"), offset));
            edit.fallback = (!tried.is_empty()).then_some("heuristic");
            return Some(Plan::Edit(edit));
        }
        let event = |message: &Message| {
            let index = store.position(message)?;
            let label = label(&state.event(index)?.kind);
            let text = unfenced(format!("{label}\n{}: {}", message.role, message.content));
            Some((state.view.get(index)?.id().clone(), text))
        };
        let request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            events: selection.summarize.iter().filter_map(event).collect(),
            previous: previous.map(unfenced),
            guidance: guidance(state),
            max_tokens: Some(Tokens(self.peer().summary_tokens)),
            prompt_version: PROMPT_VERSION.to_owned(),
            frame: Some(Box::new(Frame { before: SUMMARY_LABEL.to_owned(), ..Frame::default() })),
            ..SummaryRequest::default()
        };
        Some(Plan::Summarize { edit, offset, request })
    }
}

impl Policy for Freecode {
    fn name(&self) -> &str {
        self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        let store = Store::new(state, false);
        let compaction = self.compaction(state, &store);
        if compaction.is_some() {
            return compaction;
        }
        let prunes = store.begins_run() && !store.prune(state, self.peer(), &Default::default()).is_empty();
        if prunes { Requirement::Soft(vec![Reason::Policy]) } else { Requirement::None }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !matches!(tried, [] | [Failure::Summarizer(_)]) {
            return Err(NoPlan::Exhausted);
        }
        let store = Store::new(state, Self::is_overflow(state));
        let compaction = self.compaction(state, &store);
        if compaction.is_some()
            && let Some(plan) = self.compact(state, &store, tried)
        {
            return Ok(plan);
        }
        if store.begins_run() {
            let rewrites = store.prune(state, self.peer(), &Default::default());
            if !rewrites.is_empty() {
                return Ok(Plan::Edit(Edit { rewrites, ..Edit::default() }));
            }
        }
        // The error is the provider's again where nothing was compacted.
        if compaction.is_hard() { Err(NoPlan::NoLegalCut) } else { Ok(Plan::Keep) }
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "FreeCode 3d0b6ef";

const TEXTS: &[SettingText] = &[
    ("asks_model", "switch", "whether a model writes the summary, and the one without is for its failures", SOURCE),
    ("auto_compact_buffer_tokens", "tokens", "how far below the limit it compacts", SOURCE),
    ("auto_compact_tokens", "tokens", "the size at which it compacts, whatever the limits; null is off", SOURCE),
    ("compact_target_tokens", "tokens", "the size that costs ask for", SOURCE),
    ("default_limit_tokens", "tokens", "the limit where none is known", SOURCE),
    ("retry_growth_tokens", "tokens", "what the context grows by before a refused compaction is tried again", SOURCE),
    ("preserve_recent_turns", "turns", "the newest turns of the user that stay", SOURCE),
    ("max_preserve_recent_tokens", "tokens", "the most of what is not summarized, but for one message", SOURCE),
    ("max_tool_output_chars", "characters", "a longer tool text is cut in the transcript", SOURCE),
    ("characters_per_token", "characters", "what counts for a token when texts are sized", SOURCE),
    ("tool_result_budget_chars", "characters", "the most of all tool results where a run begins", SOURCE),
    ("summary_tokens", "tokens", "the most of a model's summary", SOURCE),
    ("overflow_retries", "compactions", "the most that overflows cause in a row; counted by the host", SOURCE),
    ("goal_chars", "characters", "without a model: the most of the goal", SOURCE),
    ("previous_chars", "characters", "without a model: the most of the summary before", SOURCE),
    ("entry_chars", "characters", "without a model: the most of a state", SOURCE),
    ("progress_chars", "characters", "without a model: the most of an answer", SOURCE),
    ("done_entries", "entries", "without a model: what is done", SOURCE),
    ("in_progress_entries", "entries", "without a model: what is in progress", SOURCE),
    ("blocked_entries", "entries", "without a model: what is blocked", SOURCE),
    ("progress_entries", "entries", "without a model: the newest answers", SOURCE),
    ("file_entries", "entries", "without a model: files", SOURCE),
];

/// The policy, and the preset that asks no model.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    let entry = |name, description, asks_model| {
        let settings = FreecodeSettings { asks_model, ..FreecodeSettings::default() };
        PolicyInfo::new(name, PolicyKind::Port, description, &settings, TEXTS, |name, settings| {
            Ok(Box::new(Freecode { name, settings }))
        })
    };
    vec![
        entry(
            "freecode",
            "FreeCode: prunes results where a run begins, and keeps the newest turns behind a summary",
            true,
        ),
        entry("freecode-heuristic", "the same with the summary that needs no model", false),
    ]
}
