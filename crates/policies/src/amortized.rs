//! `amortized-forgetting`: the middle leaves, half of the most at once, so that the beginning of the request stays the
//! same for many steps.
//!
//! As in OpenHands, with what goes wrong there mended: cuts are legal, the range holds what stands in the middle and
//! nothing before it, and a request on a short view lets half of it go instead of failing. Too many tokens: the
//! largest newest part stays that brings the request to `target_share` of the limit. While recall is on, a line says
//! how many events left, as in `recent-events`.

use condenser::{Failure, NoPlan, Plan, Policy, Requirement, State, Tokens};
use serde::{Deserialize, Serialize};

use crate::layout::{self, Layout};
use crate::recent;

/// Settings of [`AmortizedForgetting`]. The first two defaults are those of OpenHands' configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AmortizedSettings {
    /// The first entries that stay.
    pub keep_first: usize,
    /// A longer view is brought down to half of this.
    pub max_events: usize,
    /// What the request is brought down to when it is too large, as a share of the limit.
    pub target_share: f64,
    /// The most addresses in the line that stands for what left.
    pub max_addresses: usize,
}

impl Default for AmortizedSettings {
    fn default() -> Self {
        Self { keep_first: 1, max_events: 100, target_share: 0.5, max_addresses: 10 }
    }
}

/// Forgets the middle, much at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct AmortizedForgetting {
    settings: AmortizedSettings,
}

impl AmortizedForgetting {
    /// The policy with these settings.
    pub fn new(settings: AmortizedSettings) -> Self {
        Self { settings }
    }
}

impl Policy for AmortizedForgetting {
    fn name(&self) -> &str {
        "amortized-forgetting"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        layout::requirement(state, Some(self.settings.max_events), state.budget.trigger())
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let layout = Layout::new(state);
        let start = layout.head(self.settings.keep_first);
        let n = layout.len();
        let mut keep = n;
        if n > self.settings.max_events {
            // One place is the line's.
            keep = (self.settings.max_events / 2).saturating_sub(start + usize::from(state.recall));
        }
        if state.view.has_unhandled_request() {
            keep = keep.min(layout.members(0, n).count() / 2);
        }
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let is_large = state.budget.trigger().is_some_and(|trigger| state.tokens() > trigger);
        let target = limit.filter(|_| is_large).map(|limit| limit.share(self.settings.target_share));
        let end = layout.tail(start, n.saturating_sub(keep), Tokens::ZERO, target, limit);
        recent::forget(&layout, start, end, None, self.settings.max_addresses, tried)
    }
}
