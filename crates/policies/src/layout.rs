//! What may leave a view and where it may be cut, for all policies that forget.

use std::collections::BTreeSet;

use condenser::budget::Origin;
use condenser::event::{EventKind, Role};
use condenser::{Class, EventId, Reason, Requirement, State, Tokens};

/// Why to act: somebody asked, the request is larger than `max_tokens`, or the view is longer than `max_events`.
/// As in OpenHands, too many entries alone are a soft reason. The trigger of the budgets may lower both.
pub(crate) fn requirement(state: &State<'_>, max_events: Option<usize>, max_tokens: Option<Tokens>) -> Requirement {
    let mut reasons = Vec::new();
    if state.view.has_unhandled_request() {
        reasons.push(Reason::Request);
    }
    if max_tokens.is_some_and(|limit| state.tokens() > limit) {
        reasons.push(Reason::Tokens);
    }
    let is_hard = !reasons.is_empty();
    let max_events = [max_events, state.budgets.trigger.events].into_iter().flatten().min();
    if max_events.is_some_and(|limit| state.view.len() > limit) {
        reasons.push(Reason::Events);
    }
    match (is_hard, reasons.is_empty()) {
        (true, _) => Requirement::Hard(reasons),
        (false, false) => Requirement::Soft(reasons),
        (false, true) => Requirement::None,
    }
}

/// A limit in counted tokens: where the provider reported more than was counted, it shrinks by the same factor.
pub(crate) fn as_counted(state: &State<'_>, limit: Tokens) -> Tokens {
    let (counted, reported) = (state.counted(), state.tokens());
    if reported > counted { limit.share(counted.0 as f64 / reported.0 as f64) } else { limit }
}

/// What a request that is too large is brought down to: a share of the limit, or what the host wants retained.
pub(crate) fn target(state: &State<'_>, share: f64) -> Option<Tokens> {
    let limit = state.budget.limit().map(|limit| as_counted(state, limit).share(share));
    let retained = state.budgets.retained;
    let retained = retained.tokens.filter(|_| retained.origin >= Origin::Set).map(|tokens| as_counted(state, tokens));
    [limit, retained].into_iter().flatten().min()
}

/// Where a text goes that stands for what leaves: behind all that stays before the last of it.
pub(crate) fn offset_behind(state: &State<'_>, forget: &BTreeSet<EventId>) -> usize {
    let last = state.view.ids().rposition(|id| forget.contains(id)).map_or(0, |last| last + 1);
    state.view.ids().take(last).filter(|id| !forget.contains(*id)).count()
}

/// A view, seen as what stays and what may leave.
///
/// System prompts, system messages and protected entries always stay. So does the newest user message, unless it
/// fills more than a quarter of the limit. Groups stay or leave whole between any two legal cuts, because the
/// protection of a group covers all of it.
pub(crate) struct Layout<'s, 'a> {
    pub(crate) state: &'s State<'a>,
    may_leave: Vec<bool>,
    /// Tokens of the entries before each position that may leave.
    leaving: Vec<Tokens>,
    /// How many of them are no summaries.
    events: Vec<usize>,
    n_prompts: usize,
    first_summary: usize,
}

impl<'s, 'a> Layout<'s, 'a> {
    pub(crate) fn new(state: &'s State<'a>) -> Self {
        Self::keeping(state, |_| false)
    }

    /// The same with further entries that stay.
    pub(crate) fn keeping(state: &'s State<'a>, stays: impl Fn(usize) -> bool) -> Self {
        let n = state.view.len();
        let role = |index: usize| match state.event(index).map(|event| &event.kind) {
            Some(EventKind::Message(message)) => Some(message.role),
            _ => None,
        };
        let is_prompt = |index: usize| {
            let class = state.view.get(index).map(|entry| entry.class());
            class == Some(Class::SystemPrompt) || role(index) == Some(Role::System)
        };
        let tokens = state.entry_tokens();
        let largest = state.budget.limit().map(|limit| limit.share(0.25));
        let newest_user = (0..n)
            .rev()
            .find(|&index| role(index) == Some(Role::User))
            .filter(|&index| largest.is_none_or(|largest| tokens[index] <= largest));
        let may_leave: Vec<bool> = state
            .view
            .iter()
            .map(|entry| {
                let index = entry.index();
                !entry.is_protected() && !is_prompt(index) && newest_user != Some(index) && !stays(index)
            })
            .collect();
        let mut leaving = vec![Tokens::ZERO];
        let mut sum = Tokens::ZERO;
        let mut events = vec![0];
        let mut n_events = 0;
        for (entry, (&leaves, &size)) in state.view.iter().zip(may_leave.iter().zip(tokens)) {
            sum += if leaves { size } else { Tokens::ZERO };
            leaving.push(sum);
            n_events += usize::from(leaves && !entry.is_summary());
            events.push(n_events);
        }
        Self {
            state,
            may_leave,
            leaving,
            events,
            n_prompts: (0..n).take_while(|&index| is_prompt(index)).count(),
            first_summary: state.view.iter().position(|entry| entry.is_summary()).unwrap_or(n),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.may_leave.len()
    }

    /// The end of what stays in front: the prompts and the first `keep_first` entries, down to a legal cut: a batch
    /// or loop that reaches over the end may be of any size. An older summary is never part of it, so that the next
    /// one takes it up.
    pub(crate) fn head(&self, keep_first: usize) -> usize {
        let wanted = keep_first.min(self.first_summary).max(self.n_prompts).min(self.len());
        let start = self.state.view.previous_index(wanted).unwrap_or(0);
        self.skip_staying(start, self.len())
    }

    /// Moves a start over entries that stay anyway: what stays in front of a summary keeps its place.
    fn skip_staying(&self, mut start: usize, end: usize) -> usize {
        while start < end && !self.may_leave[start] && self.state.view.is_cut(start + 1) {
            start += 1;
        }
        start
    }

    /// Where the last unit begins: the entry, batch or loop that a request ends with.
    pub(crate) fn last_unit(&self) -> usize {
        self.len().checked_sub(1).and_then(|last| self.state.view.previous_index(last)).unwrap_or(0)
    }

    /// What leaves with the range.
    pub(crate) fn leaving(&self, start: usize, end: usize) -> Tokens {
        self.leaving[end.max(start)] - self.leaving[start]
    }

    /// The size of the request once the range is gone, as counted and without anything in its place.
    pub(crate) fn left(&self, start: usize, end: usize) -> Tokens {
        self.state.counted() - self.leaving(start, end)
    }

    /// Whether the minimum gain is waived: somebody asked, or the next request would not fit and can be made to.
    pub(crate) fn must_act(&self, start: usize) -> bool {
        let state = self.state;
        state.view.has_unhandled_request()
            || state
                .budget
                .limit()
                .is_some_and(|limit| state.tokens() > limit && self.left(start, self.len()) <= as_counted(state, limit))
    }

    /// The entries of the range that leave, by position.
    pub(crate) fn members(&self, start: usize, end: usize) -> impl Iterator<Item = usize> + '_ {
        (start..end).filter(|&index| self.may_leave[index])
    }

    /// Their ids.
    pub(crate) fn forget(&self, start: usize, end: usize) -> BTreeSet<EventId> {
        self.members(start, end).filter_map(|index| self.state.view.get(index)).map(|e| e.id().clone()).collect()
    }

    /// How many entries of the range leave that are not summaries.
    pub(crate) fn n_events(&self, start: usize, end: usize) -> usize {
        self.events[end.max(start)] - self.events[start]
    }

    /// The start of the newest part that stays: the first legal cut at or above `naive` that leaves a request of at
    /// most `target`, `summary` included. The last unit stays, unless the request cannot be within `limit` with it.
    pub(crate) fn tail(
        &self,
        start: usize,
        naive: usize,
        summary: Tokens,
        target: Option<Tokens>,
        limit: Option<Tokens>,
    ) -> usize {
        let last = self.last_unit();
        let fits = |end: usize, most: Option<Tokens>| {
            let size = match self.n_events(start, end) {
                0 => self.state.counted(),
                _ => self.left(start, end) + summary,
            };
            most.is_none_or(|most| size <= most)
        };
        let kept = self.state.budgets.retained.events.map_or(0, |events| self.len().saturating_sub(events));
        let mut from = naive.max(kept).min(last).max(start);
        while let Some(end) = self.state.view.next_index(from).filter(|&end| end <= last) {
            if target.is_none() || fits(end, target) {
                return end;
            }
            from = end + 1;
        }
        if last >= start && fits(last, limit) { last } else { self.len() }
    }
}
