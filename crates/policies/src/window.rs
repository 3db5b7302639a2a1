//! `conversation-window`: when asked, or when the request grows too large, the older half leaves; the prompts and the
//! task stay.
//!
//! As in OpenHands, with what goes wrong there mended: what stays begins at a legal cut, the half is smaller where it
//! would not bring the request below its limit, and a pending request is not needed. The task is the first user
//! message, unless it fills more than a quarter of the limit. While recall is on, a line says how many events left, as
//! in `recent-events`.

use condenser::event::{EventKind, Role};
use condenser::{Failure, NoPlan, Plan, Policy, Requirement, State, Tokens};
use serde::{Deserialize, Serialize};

use crate::layout::{self, Layout};
use crate::recent;

/// Settings of [`ConversationWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WindowSettings {
    /// The share of the events that stays, counted from the newest.
    pub keep_share: f64,
    /// The most addresses in the line that stands for what left.
    pub max_addresses: usize,
}

impl Default for WindowSettings {
    fn default() -> Self {
        Self { keep_share: 0.5, max_addresses: 10 }
    }
}

/// Forgets the older half.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConversationWindow {
    settings: WindowSettings,
}

impl ConversationWindow {
    /// The policy with these settings.
    pub fn new(settings: WindowSettings) -> Self {
        Self { settings }
    }
}

impl Policy for ConversationWindow {
    fn name(&self) -> &str {
        "conversation-window"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        layout::requirement(state, None, state.budget.trigger())
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let layout = Layout::new(state);
        let start = layout.head(0);
        let n = layout.len();
        let n_kept = (layout.members(start, n).count() as f64 * self.settings.keep_share.clamp(0.0, 1.0)) as usize;
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let target = state.budget.trigger().map(|trigger| layout::as_counted(state, trigger));
        let end = layout.tail(start, n - n_kept.max(1).min(n), Tokens::ZERO, target, limit);
        recent::forget(&layout, start, end, task(state, limit), self.settings.max_addresses, tried)
    }
}

/// The position of the first user message, unless it is too large to stay.
fn task(state: &State<'_>, limit: Option<Tokens>) -> Option<usize> {
    let is_user = |index: &usize| matches!(state.event(*index).map(|event| &event.kind), Some(EventKind::Message(message)) if message.role == Role::User);
    let first = (0..state.view.len()).find(is_user)?;
    limit.is_none_or(|limit| state.entry_tokens()[first] <= limit.share(0.25)).then_some(first)
}
