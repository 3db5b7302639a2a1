//! `craft`: everything is sorted into what stays word for word, what a ledger keeps, what a model may summarize, and
//! what goes.
//!
//! - *Word for word*: what the user said, in the order it was said, beside system prompts and messages. It stays where it
//!   stands; what another record took out of the view is put back from the log. All of it together is at most
//!   `pinned_share` of the limit: the task comes first, then what is newest. A digest of the whole stands in the notes.
//! - *Ledger*: files with what was done to them, commands with how they ended, what results say was written and where,
//!   and claims of the agent that are marked as unverified. It is read off the stored events, each time anew, by the
//!   rules of the module `ledger`; no model touches it.
//! - *Summary*: goal, decisions, what was rejected, open problems, next step, artifacts; by a model that is told to
//!   repeat neither of the two.
//! - *Raw tail*: the newest entries, and every open call with what belongs to it.
//!
//! **When.** On request and over the trigger, as all policies; before that at a boundary, once the request has
//! `boundary_share` of the limit: the agent has answered, no call is open, and the user speaks.
//!
//! **Failures.** A summary that makes nothing smaller, or two failed calls, end the step: the view stays as it is, and
//! the attempt is on record. Only where somebody asked, or the request is over its limit, the ledger alone takes the place,
//! with the notes from before.

pub mod cost;
mod ledger;
mod pinned;

use std::collections::HashSet;

use condenser::condensation::clip;
use condenser::event::{EventKind, Role};
use condenser::{Edit, EventId, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, Tokens};
use serde::{Deserialize, Serialize};

use crate::layout::{self, Layout, offset_behind};
use crate::summarizing::{LlmSummarizing, SummarizingSettings};

use ledger::ledger;
pub use pinned::PinnedBlock;

const PROMPT: &str = include_str!("../prompts/craft-v1.md");
const PROMPT_VERSION: &str = "craft-v1";
/// Calls of the summarizer for one step.
const CALLS: usize = 2;
/// Tries without a model, each with a quarter of the ledger.
const LEDGERS: usize = 3;
/// What each failed call leaves of the longest event that the summarizer is shown.
const SCALING: usize = 2;
/// The largest share of the limit that the task has a right to.
const TASK_SHARE: f64 = 0.5;
/// The sections, where no model has filled them.
const EMPTY_SECTIONS: &str = "GOAL:\nDECISIONS:\nREJECTED:\nOPEN:\nNEXT:\nARTIFACTS: see the ledger";
const HEAD: &str = "[Notes in place of ";
const LEDGER_HEAD: &str = "\n\n[Ledger, kept by rule and not by a model]";

/// Settings of [`Craft`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CraftSettings {
    /// A boundary counts once the request has this share of the limit. 0: off.
    pub boundary_share: f64,
    /// Nothing happens at a boundary that would take out a smaller share of the request.
    pub boundary_progress: f64,
    /// Nothing happens otherwise that would, unless it must.
    pub minimum_progress: f64,
    /// The newest entries that stay.
    pub keep_last: usize,
    /// The most of the limit that they may fill.
    pub tail_share: f64,
    /// What the request is brought down to when it is too large, as a share of the limit.
    pub target_share: f64,
    /// The most of the limit that stays word for word.
    pub pinned_share: f64,
    /// The most tokens of the ledger, and never more than an eighth of the limit or half of what it replaces.
    pub ledger_tokens: Tokens,
    /// The most tokens of the summary, and never more than an eighth of the limit.
    pub summary_tokens: Tokens,
    /// The most characters of one event that the summarizer is shown.
    pub event_characters: usize,
}

impl Default for CraftSettings {
    fn default() -> Self {
        Self {
            boundary_share: 0.5,
            boundary_progress: 0.25,
            minimum_progress: 0.1,
            keep_last: 20,
            tail_share: 0.25,
            target_share: 0.5,
            pinned_share: 0.25,
            ledger_tokens: Tokens(1500),
            summary_tokens: Tokens(1000),
            event_characters: 10_000,
        }
    }
}

/// Sorts a history into what stays, what is kept by rule, what is summarized and what goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Craft {
    settings: CraftSettings,
}

impl Craft {
    /// The policy with these settings.
    pub fn new(settings: CraftSettings) -> Self {
        Self { settings }
    }

    fn summarizer(&self) -> LlmSummarizing {
        LlmSummarizing::new(SummarizingSettings {
            max_events: None,
            event_characters: self.settings.event_characters,
            summary_tokens: self.settings.summary_tokens,
            prompt: Some(PROMPT.to_owned()),
            ..SummarizingSettings::default()
        })
    }

    /// The range from which everything leaves that may.
    fn range(&self, layout: &Layout<'_, '_>) -> (usize, usize) {
        let state = layout.state;
        let n = layout.len();
        let start = layout.head(0);
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let mut naive = n.saturating_sub(self.settings.keep_last);
        if let Some(most) = limit.map(|limit| limit.share(self.settings.tail_share)) {
            let mut size = Tokens::ZERO;
            let fits = |tokens: &&Tokens| {
                size += **tokens;
                size <= most
            };
            naive = naive.max(n - state.entry_tokens().iter().rev().take_while(fits).count());
        }
        if state.view.has_unhandled_request() {
            naive = naive.max(n - n.saturating_sub(start) / 2);
        }
        let is_large = state.budgets.trigger.tokens.is_some_and(|trigger| state.tokens() > trigger);
        let target = layout::target(state, self.settings.target_share).filter(|_| is_large);
        let summary = self.settings.summary_tokens + self.settings.ledger_tokens;
        let summary = limit.map_or(summary, |limit| summary.min(limit.share(0.25)));
        (start, layout.tail(start, naive, summary, target, limit))
    }

    /// The most tokens of the ledger in place of this range.
    fn ledger_tokens(&self, layout: &Layout<'_, '_>, start: usize, end: usize) -> Tokens {
        let most = self.settings.ledger_tokens.min(layout.leaving(start, end).share(0.5));
        layout.state.budget.limit().map_or(most, |limit| most.min(limit.share(0.125)))
    }

    fn summarize(
        &self,
        layout: &Layout<'_, '_>,
        (start, end): (usize, usize),
        n_failed: usize,
    ) -> Result<Plan, NoPlan> {
        let state = layout.state;
        let cap = (self.settings.event_characters / SCALING.pow(n_failed as u32)).max(200);
        let plan = self.summarizer().summarize(layout, start, end, cap)?;
        let Plan::Summarize { edit, mut request, .. } = plan else { return Ok(plan) };
        let frame = self.frame(layout, &edit, self.ledger_tokens(layout, start, end));
        request.frame = Some(Box::new(frame));
        request.prompt_version = PROMPT_VERSION.to_owned();
        let offset = offset_behind(state, &edit.forget);
        Ok(Plan::Summarize { edit, offset, request })
    }

    /// The same without a model: the notes from before stay.
    fn fold(&self, layout: &Layout<'_, '_>, (start, end): (usize, usize), n_tried: usize) -> Plan {
        let state = layout.state;
        let mut edit = Edit { forget: layout.forget(start, end), fallback: Some("ledger"), ..Edit::default() };
        let most = self.ledger_tokens(layout, start, end);
        let Frame { before, after, .. } = self.frame(layout, &edit, Tokens(most.0 >> (2 * n_tried)));
        let leaving = layout.members(start, end).filter_map(|index| state.view.get(index)?.summary());
        let notes = leaving.map(notes).filter(|notes| !notes.is_empty()).collect::<Vec<_>>().join("\n\n");
        let room = self.settings.summary_tokens.min(layout.leaving(start, end).share(0.25));
        let most = (room.0 as usize * 4) >> (2 * n_tried);
        let notes = clip(&notes, most - most / 4, most / 4).unwrap_or(notes);
        let notes = if notes.is_empty() { EMPTY_SECTIONS } else { &notes };
        edit.summary = Some((format!("{before}{notes}{after}"), offset_behind(state, &edit.forget)));
        Plan::Edit(edit)
    }

    /// What stands around the summary.
    fn frame(&self, layout: &Layout<'_, '_>, edit: &Edit, most: Tokens) -> Frame {
        let state = layout.state;
        let stays: HashSet<&EventId> = state.view.ids().filter(|id| !edit.forget.contains(*id)).collect();
        let pinned = PinnedBlock::of(state, self.settings.pinned_share);
        let n_left = (0..state.view.n_pushed())
            .filter_map(|seq| state.bodies.event(seq))
            .filter(|event| event.kind.is_shown() && !stays.contains(&event.id))
            .count();
        let mut before = format!(
            "{HEAD}{n_left} earlier events. What the user said stands word for word: {} messages, digest {}.]\n",
            pinned.n_said, pinned.digest
        );
        before.push_str(&pinned.missing(state, &stays));
        let lines = ledger(state, &stays, &pinned.beyond, most);
        let after = if lines.is_empty() { String::new() } else { format!("{LEDGER_HEAD}\n{lines}") };
        Frame { before, after, next: None }
    }
}

/// What a model wrote of earlier notes.
fn notes(text: &str) -> &str {
    let text = text.split_once(LEDGER_HEAD).map_or(text, |(notes, _)| notes);
    let notes = text.strip_prefix(HEAD).and_then(|rest| rest.split_once("]\n")).map_or(text, |(_, notes)| notes);
    let notes = notes.rsplit_once(pinned::END).map_or(notes, |(_, notes)| notes);
    if notes == EMPTY_SECTIONS { "" } else { notes }
}

/// The agent has answered, no call is open, and the user speaks.
fn is_boundary(state: &State<'_>) -> bool {
    let role = |index: usize| match state.event(index).map(|event| &event.kind) {
        Some(EventKind::Message(message)) => Some(message.role),
        _ => None,
    };
    let n = state.view.len();
    n > 1
        && role(n - 1) == Some(Role::User)
        && role(n - 2) == Some(Role::Assistant)
        && state.view.iter().all(|entry| !entry.is_open() || entry.is_abandoned())
}

impl Policy for Craft {
    fn name(&self) -> &str {
        "craft"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        let requirement = layout::requirement(state, None, state.budgets.trigger.tokens);
        let share = self.settings.boundary_share;
        let is_due = || state.budget.limit().is_some_and(|limit| share > 0.0 && state.tokens() >= limit.share(share));
        if requirement.is_some() || !is_due() || !is_boundary(state) {
            return requirement;
        }
        Requirement::Soft(vec![Reason::Policy])
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let pinned = PinnedBlock::of(state, self.settings.pinned_share);
        let layout =
            Layout::keeping(state, |index| state.view.get(index).is_some_and(|entry| pinned.holds(entry.id())));
        let range = self.range(&layout);
        let (start, end) = range;
        if end <= start || layout.n_events(start, end) == 0 {
            return Err(NoPlan::NoLegalCut);
        }
        let must_act = layout.must_act(start);
        let is_boundary = self.requirement(state).reasons() == [Reason::Policy];
        let least = if is_boundary { self.settings.boundary_progress } else { self.settings.minimum_progress };
        if layout.leaving(start, end) < state.counted().share(least) && !must_act {
            return Err(NoPlan::TooLittle);
        }
        let n_failed = tried.iter().take_while(|failure| matches!(failure, Failure::Summarizer(_))).count();
        let mut n_asked = n_failed.min(CALLS);
        if tried.len() == n_failed && n_failed < CALLS {
            match self.summarize(&layout, range, n_failed) {
                Err(no_plan) if !must_act => return Err(no_plan),
                Err(_) => {}
                plan => return plan,
            }
        } else if n_failed < CALLS {
            // The summary was there, and made nothing smaller.
            n_asked += 1;
        }
        let n_folded = tried.len().saturating_sub(n_asked);
        if !must_act || n_folded >= LEDGERS {
            return Err(NoPlan::Exhausted);
        }
        Ok(self.fold(&layout, range, n_folded))
    }
}
