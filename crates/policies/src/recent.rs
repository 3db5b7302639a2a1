//! `recent-events`: the first and the newest entries stay, all between them leaves without a summary.
//!
//! Too many entries: the view is brought down to `max_events`. Too many tokens: the largest newest part stays that
//! brings the request to `target_share` of the limit. A pending request: half of the entries leave.
//!
//! While recall is on, one line says how many events left and gives the addresses of the newest results among them.
//! The next line takes over the count and the addresses of the one before, and is bounded like it.

use condenser::recall::address;
use condenser::request::TOKENS_PER_MESSAGE;
use condenser::{Class, Edit, Failure, NoPlan, Plan, Policy, Requirement, State, Tokens};
use serde::{Deserialize, Serialize};

use crate::layout::{self, Layout};

/// Settings of [`RecentEvents`]. The first two defaults are those of OpenHands' configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecentSettings {
    /// The first entries that stay.
    pub keep_first: usize,
    /// The most entries of a view.
    pub max_events: usize,
    /// What the request is brought down to when it is too large, as a share of the limit.
    pub target_share: f64,
    /// The most addresses in the line that stands for what left.
    pub max_addresses: usize,
}

impl Default for RecentSettings {
    fn default() -> Self {
        Self { keep_first: 1, max_events: 100, target_share: 0.5, max_addresses: 10 }
    }
}

/// Keeps the first and the newest entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecentEvents {
    settings: RecentSettings,
}

impl RecentEvents {
    /// The policy with these settings.
    pub fn new(settings: RecentSettings) -> Self {
        Self { settings }
    }

    fn range(&self, layout: &Layout<'_, '_>) -> (usize, usize) {
        let state = layout.state;
        let start = layout.head(self.settings.keep_first);
        let n = layout.len();
        let mut keep = n;
        if n > self.settings.max_events {
            // One place is the marker's.
            keep = self.settings.max_events.saturating_sub(start + usize::from(state.recall));
        }
        if state.view.has_unhandled_request() {
            keep = keep.min(layout.members(0, n).count() / 2);
        }
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let is_large = state.budgets.trigger.tokens.is_some_and(|trigger| state.tokens() > trigger);
        let target = layout::target(state, self.settings.target_share).filter(|_| is_large);
        (start, layout.tail(start, n.saturating_sub(keep), Tokens::ZERO, target, limit))
    }
}

impl Policy for RecentEvents {
    fn name(&self) -> &str {
        "recent-events"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        layout::requirement(state, Some(self.settings.max_events), state.budgets.trigger.tokens)
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let layout = Layout::new(state);
        let (start, end) = self.range(&layout);
        forget(&layout, start, end, None, self.settings.max_addresses, tried)
    }
}

/// The plan that forgets what may leave of a range, but for one entry, with a line in its place while recall is on.
pub(crate) fn forget(
    layout: &Layout<'_, '_>,
    start: usize,
    end: usize,
    stays: Option<usize>,
    max_addresses: usize,
    tried: &[Failure],
) -> Result<Plan, NoPlan> {
    let mut forget = layout.forget(start, end);
    let stays = stays.and_then(|index| layout.state.view.get(index)).filter(|entry| forget.remove(entry.id()));
    if end <= start || layout.n_events(start, end) <= usize::from(stays.is_some()) {
        return Err(NoPlan::NoLegalCut);
    }
    // Without the line the second time: it may be all that was in the way.
    let summary = match tried.len() {
        0 if layout.state.recall => {
            let line = marker(layout, start, end, stays.map(|entry| entry.index()), max_addresses);
            // Behind what stays of the range, which may come first in it.
            line.map(|text| (text, start + usize::from(stays.is_some_and(|entry| entry.index() >= start))))
        }
        0 | 1 => None,
        _ => return Err(NoPlan::Exhausted),
    };
    Ok(Plan::Edit(Edit { forget, summary, ..Edit::default() }))
}

const MARKER: &str = " earlier events left out";

/// The line that stands for the range, smaller than what leaves; `None` where even the bare line is not.
fn marker(
    layout: &Layout<'_, '_>,
    start: usize,
    end: usize,
    stays: Option<usize>,
    max_addresses: usize,
) -> Option<String> {
    let state = layout.state;
    let mut n_events = layout.n_events(start, end) - usize::from(stays.is_some());
    let mut addresses: Vec<String> = Vec::new();
    for index in layout.members(start, end) {
        let Some(entry) = state.view.get(index) else { continue };
        if let Some((before, older)) = entry.summary().and_then(read_marker) {
            n_events = n_events.saturating_add(before);
            addresses.extend(older);
        } else if entry.class() == Class::Observation {
            let address = address(entry.id());
            if state.entry_tokens()[index].0 > 2 * state.sizer.text(&address).0 {
                addresses.push(address);
            }
        }
    }
    let staying = stays.map_or(Tokens::ZERO, |index| state.entry_tokens()[index]);
    let most = layout.leaving(start, end) - staying;
    let mut n_shown = addresses.len().min(max_addresses);
    loop {
        let shown = &addresses[addresses.len() - n_shown..];
        let text = match shown {
            [] => format!("[{n_events}{MARKER}]"),
            shown => format!("[{n_events}{MARKER}, among them: {}]", shown.join(" ")),
        };
        if state.sizer.text(&text) + TOKENS_PER_MESSAGE < most {
            return Some(text);
        }
        n_shown = n_shown.checked_sub(1)?;
    }
}

/// The count and the addresses of an earlier marker.
fn read_marker(text: &str) -> Option<(usize, Vec<String>)> {
    let (n_events, rest) = text.strip_prefix('[')?.split_once(MARKER)?;
    let addresses = rest.split("[event ").skip(1).filter_map(|rest| rest.split_once(']'));
    Some((n_events.parse().ok()?, addresses.map(|(id, _)| format!("[event {id}]")).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_back_with_its_count_and_addresses() {
        let read = read_marker("[7 earlier events left out, among them: [event a] [event b]]");
        assert_eq!(read, Some((7, vec!["[event a]".into(), "[event b]".into()])));
        assert_eq!(read_marker("[7 earlier events left out]"), Some((7, vec![])));
        assert_eq!(read_marker("The parser works."), None);
    }

    #[test]
    fn defaults_are_those_of_the_original_configuration() {
        let settings = RecentSettings::default();
        assert_eq!((settings.keep_first, settings.max_events), (1, 100));
    }
}
