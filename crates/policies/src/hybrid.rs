//! `hybrid`: old results are masked first, and only where that cannot reach the budget a summary takes the middle.
//!
//! **When.** On request and over the trigger. Below it nothing is masked, so that a request that fits keeps its prefix.
//!
//! **Masks.** As in `observation-masking`: all but the newest `attention_window` results, in steps of `polling`, each once
//! and for good. If the request then has at most `target_share` of the limit, that is all. What is asked for by somebody
//! ends here too, unless nothing is left to mask.
//!
//! **Summary.** Else, as in `llm-summarizing`, the middle of what the masks leave is summarized, from the results as they
//! were before this pass where they fit. Masks and summary stand in one record: the prefix changes once. Where there is
//! no summary, the masks stand alone.

use condenser::request::Request;
use condenser::{Edit, Failure, NoPlan, Plan, Policy, Requirement, State, SummaryRequest, Tokens, View};
use serde::{Deserialize, Serialize};

use crate::layout;
use crate::masking::{MaskingSettings, ObservationMasking};
use crate::pipeline;
use crate::summarizing::{LlmSummarizing, SummarizingSettings, show};

/// Settings of [`Hybrid`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HybridSettings {
    /// The newest results that stay as they are.
    pub attention_window: usize,
    /// The edge between old and new moves every so many results. 0 counts as 1.
    pub polling: usize,
    /// What masks have to bring the request down to, as a share of the limit.
    pub target_share: f64,
    /// Nothing is masked for a gain of a smaller share of the request, unless a summary follows.
    pub minimum_progress: f64,
    /// The first entries that stay in front of a summary.
    pub keep_first: usize,
    /// The most tokens of the summary, and never more than an eighth of the limit.
    pub summary_tokens: Tokens,
    /// The most characters of one event that the summarizer is shown.
    pub event_characters: usize,
}

impl Default for HybridSettings {
    fn default() -> Self {
        Self {
            attention_window: 10,
            polling: 5,
            target_share: 0.5,
            minimum_progress: 0.1,
            keep_first: 2,
            summary_tokens: Tokens(1000),
            event_characters: 10_000,
        }
    }
}

/// Masks old results, and summarizes only where that is not enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hybrid {
    settings: HybridSettings,
}

impl Hybrid {
    /// The policy with these settings.
    pub fn new(settings: HybridSettings) -> Self {
        Self { settings }
    }

    fn masks(&self, state: &State<'_>) -> Edit {
        let HybridSettings { attention_window, polling, .. } = self.settings;
        let settings = MaskingSettings { attention_window, polling, ..MaskingSettings::default() };
        ObservationMasking::new(settings).edit(state)
    }

    /// Whether the masks are enough.
    fn reaches_budget(&self, state: &State<'_>, masked: &View) -> bool {
        let size = Request::build(masked, state.bodies).tokens(state.sizer);
        let gain = state.counted() - size;
        if gain < state.counted().share(self.settings.minimum_progress) {
            return false;
        }
        let is_large = state.budgets.trigger.tokens.is_some_and(|trigger| state.tokens() > trigger);
        match layout::target(state, self.settings.target_share).filter(|_| is_large) {
            Some(target) => size <= target,
            None => true,
        }
    }

    fn summarizer(&self) -> LlmSummarizing {
        LlmSummarizing::new(SummarizingSettings {
            max_events: None,
            keep_first: self.settings.keep_first,
            summary_tokens: self.settings.summary_tokens,
            event_characters: self.settings.event_characters,
            ..SummarizingSettings::default()
        })
    }

    /// Shows the summarizer what this pass would mask, as far as it has room.
    fn unmask(&self, state: &State<'_>, masks: &Edit, request: &mut SummaryRequest) {
        let room = state.budgets.summary_input.tokens;
        let mut size = state.sizer.text(&request.input()) + state.sizer.text(&request.instructions);
        for (id, text) in request.events.iter_mut().rev().filter(|(id, _)| masks.rewrites.contains_key(id)) {
            let kind = state.view.position(id).and_then(|index| state.event(index)).map(|event| &event.kind);
            let Some(kind) = kind else { continue };
            let whole = show(kind, id, state.recall, self.settings.event_characters);
            let grown = size - state.sizer.text(text) + state.sizer.text(&whole);
            if room.is_none_or(|room| grown <= room) {
                *text = whole;
                size = grown;
            }
        }
    }
}

impl Policy for Hybrid {
    fn name(&self) -> &str {
        "hybrid"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        layout::requirement(state, None, state.budgets.trigger.tokens)
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let masks = self.masks(state);
        let masked = pipeline::preview(state, &masks);
        let is_enough = !masks.is_empty() && self.reaches_budget(state, &masked);
        if is_enough {
            return if tried.is_empty() { Ok(Plan::Edit(masks)) } else { Err(NoPlan::Exhausted) };
        }
        let after = pipeline::after(state, &masked);
        match self.summarizer().plan(&after, tried) {
            Ok(Plan::Summarize { edit, offset, mut request }) => {
                self.unmask(state, &masks, &mut request);
                Ok(Plan::Summarize { edit: pipeline::joined(masks, edit), offset, request })
            }
            Ok(Plan::Edit(edit)) => Ok(Plan::Edit(pipeline::joined(masks, edit))),
            Ok(Plan::Keep) => Ok(Plan::Keep),
            // The masks alone, once.
            Err(_)
                if !masks.is_empty()
                    && !matches!(tried.last(), Some(Failure::NoGain { .. } | Failure::TooLarge { .. })) =>
            {
                Ok(Plan::Edit(masks))
            }
            Err(no_plan) => Err(no_plan),
        }
    }
}
