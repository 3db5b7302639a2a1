//! `hybrid`: old results are masked first, and only where that cannot reach the budget a summary takes the middle.
//!
//! **When.** On request and over the trigger. Below it nothing is masked, so that a request that fits keeps its prefix.
//!
//! **Masks.** As in `observation-masking`: all but the newest `attention_window` results, in steps of `polling`, each once
//! and for good. If the request then has at most `target_share` of the limit, that is all. What is asked for by somebody
//! ends here too, unless nothing is left to mask.
//!
//! **Summary.** Else a summary takes the place of as much of the middle as brings the request down to the target, written
//! from the results as they were before this pass where they fit. Masks and summary stand in one record: the prefix
//! changes once. Where two calls give no summary, the masks stand alone; where the request would not fit even then, the
//! middle is folded as `folding` does.

use condenser::{Edit, Failure, NoPlan, Plan, Policy, Requirement, State, SummaryRequest, Tokens, View};
use serde::{Deserialize, Serialize};

use crate::folding::Folding;
use crate::layout::{self, Layout};
use crate::masking::{MaskingSettings, ObservationMasking};
use crate::pipeline;
use crate::summarizing::{LlmSummarizing, SummarizingSettings, show, size_up_to};

/// Calls of the summarizer for one pass.
const CALLS: usize = 2;

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
        let size = state.sizer.sizes(masked, state.bodies).0;
        let gain = state.counted() - size;
        if gain < state.counted().share(self.settings.minimum_progress) {
            return false;
        }
        match layout::target(state, self.settings.target_share).filter(|_| is_large(state)) {
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

    /// The range that a summary takes the place of, so that the request comes down to the target.
    fn range(&self, state: &State<'_>, layout: &Layout<'_, '_>) -> (usize, usize) {
        let n = layout.len();
        let start = layout.head(self.settings.keep_first);
        let naive = match state.view.has_unhandled_request() {
            true => n - (n / 2).saturating_sub(start + 1).max(1).min(n),
            false => start,
        };
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let summary = self.settings.summary_tokens;
        let summary = limit.map_or(summary, |limit| summary.min(limit.share(0.125)));
        let target = layout::target(state, self.settings.target_share).filter(|_| is_large(state));
        (start, layout.tail(start, naive, summary, target, limit))
    }

    /// Shows the summarizer what this pass would mask, as far as it has room.
    fn unmask(&self, state: &State<'_>, masks: &Edit, request: &mut SummaryRequest) {
        let room = state.budgets.summary_input.tokens;
        let mut size = size_up_to(Tokens(u64::MAX), state, request);
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

fn is_large(state: &State<'_>) -> bool {
    state.budgets.trigger.tokens.is_some_and(|trigger| state.tokens() > trigger)
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
        if !masks.is_empty() && self.reaches_budget(state, &masked) {
            return if tried.is_empty() { Ok(Plan::Edit(masks)) } else { Err(NoPlan::Exhausted) };
        }
        let after = pipeline::after(state, &masked);
        let layout = Layout::new(&after);
        let (start, end) = self.range(state, &layout);
        let n_failed = tried.iter().take_while(|failure| matches!(failure, Failure::Summarizer(_))).count();
        let mut n_tried = tried.len();
        if layout.n_events(start, end) > 0 {
            let cap = (self.settings.event_characters >> n_failed.min(CALLS)).max(200);
            match self.summarizer().summarize(&layout, start, end, cap) {
                Ok(Plan::Summarize { edit, offset, mut request }) => {
                    if n_failed < CALLS && n_tried == n_failed {
                        self.unmask(state, &masks, &mut request);
                        return Ok(Plan::Summarize { edit: pipeline::joined(masks, edit), offset, request });
                    }
                    // Its calls failed, or what it gave made nothing smaller.
                    n_tried -= if n_failed < CALLS { n_failed + 1 } else { CALLS };
                }
                other if tried.is_empty() && masks.is_empty() && !layout.must_act(start) => return other,
                _ => {}
            }
        }
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let fits = limit.is_none_or(|limit| after.counted() <= limit);
        let fold = || match Folding::default().plan(&after, &[]) {
            Ok(Plan::Edit(fold)) if layout.must_act(start) => {
                Some(Edit { fallback: Some("folding"), ..pipeline::joined(masks.clone(), fold) })
            }
            _ => None,
        };
        let alone = || Some(masks.clone()).filter(|masks| !masks.is_empty());
        let edits = if fits { [alone(), fold()] } else { [fold(), alone()] };
        match edits.into_iter().flatten().nth(n_tried) {
            Some(edit) => Ok(Plan::Edit(edit)),
            None if tried.is_empty() => Err(NoPlan::NoLegalCut),
            None => Err(NoPlan::Exhausted),
        }
    }
}
