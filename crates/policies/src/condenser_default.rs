//! `condenser-default`: the policy to begin with. It asks no model.
//!
//! **When.** On request and over the trigger; never below it, since a request that fits costs least with its prefix as it
//! is. Then the request comes down to `target_share` of the limit at once, so that the prefix changes seldom.
//!
//! **What stays.** System prompts, the first `keep_first` entries, what is pinned or waits for an answer, the newest part,
//! and the user's own words: later messages of the user hold constraints and corrections that nothing else repeats. Of
//! these the newest stay, up to `user_share` of the limit in all and none longer than a quarter of that.
//!
//! **What leaves** is named: while recall is on, a line gives the addresses of the newest `max_addresses` results among
//! it.
//!
//! Why so: `docs/COMPARISON.md`. On recorded traces, forgetting the middle half at once costs less than any policy that
//! keeps as much evidence, an extract from what leaves adds next to nothing to what the next action needs, and masking
//! changes the prefix again and again.

use std::collections::BTreeSet;

use condenser::event::Role;
use condenser::{EventKind, Failure, NoPlan, Plan, Policy, Requirement, State, Tokens};
use serde::{Deserialize, Serialize};

use crate::layout::{self, Layout};
use crate::recent;

/// Settings of [`CondenserDefault`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DefaultSettings {
    /// The first entries that stay.
    pub keep_first: usize,
    /// What the request is brought down to when it is too large, as a share of the limit.
    pub target_share: f64,
    /// How much of the limit later messages of the user may fill, as a share.
    pub user_share: f64,
    /// The most addresses in the line that stands for what left.
    pub max_addresses: usize,
}

impl Default for DefaultSettings {
    fn default() -> Self {
        Self { keep_first: 2, target_share: 0.5, user_share: 0.125, max_addresses: 40 }
    }
}

/// Forgets the middle but for the user's words.
#[derive(Clone, Copy, Debug, Default)]
pub struct CondenserDefault {
    settings: DefaultSettings,
}

impl CondenserDefault {
    /// The policy with these settings.
    pub fn new(settings: DefaultSettings) -> Self {
        Self { settings }
    }

    /// The messages of the user that stay, by position.
    fn words(&self, state: &State<'_>) -> BTreeSet<usize> {
        let Some(limit) = state.budget.limit().map(|limit| layout::as_counted(state, limit)) else {
            return BTreeSet::new();
        };
        let most = limit.share(self.settings.user_share);
        let sizes = state.entry_tokens();
        let is_users = |index: &usize| match state.event(*index).map(|event| &event.kind) {
            Some(EventKind::Message(message)) => message.role == Role::User,
            _ => false,
        };
        let mut left = most;
        let mut words = BTreeSet::new();
        for index in (0..state.view.len()).rev().filter(is_users) {
            let size = sizes[index];
            if size <= most.share(0.25) && size <= left {
                left = left - size;
                words.insert(index);
            }
        }
        words
    }
}

impl Policy for CondenserDefault {
    fn name(&self) -> &str {
        "condenser-default"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        layout::requirement(state, None, state.budgets.trigger.tokens)
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let words = self.words(state);
        let layout = Layout::keeping(state, |index| words.contains(&index));
        let start = layout.head(self.settings.keep_first);
        let n = layout.len();
        let keep = match state.view.has_unhandled_request() {
            true => layout.members(0, n).count() / 2,
            false => n,
        };
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let is_large = state.budgets.trigger.tokens.is_some_and(|trigger| state.tokens() > trigger);
        let target = layout::target(state, self.settings.target_share).filter(|_| is_large);
        let end = layout.tail(start, n.saturating_sub(keep), Tokens::ZERO, target, limit);
        recent::forget(&layout, start, end, None, self.settings.max_addresses, tried)
    }
}
