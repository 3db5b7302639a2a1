//! Controls: policies that say what a measured difference means.

use std::collections::{BTreeSet, HashMap};

use condenser::condensation::{Rewrite, RewriteOp};
use condenser::event::{EventId, EventKind, Role};
use condenser::header::Class;
use condenser::policy::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State};
use condenser::recall::address;
use condenser::tokens::Tokens;
use condenser::view::Entry;

use crate::random::SplitMix64;
use crate::replay::Replay;
use crate::trace::{Prepared, is_written};

/// Forgets before each step all that can be forgotten but the system prompt, the first user message and the newest
/// step. The lower bound of what a view can hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct ForgetAll;

impl Policy for ForgetAll {
    fn name(&self) -> &str {
        "forget-all"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if forgettable(state).next().is_some() { Requirement::Soft(vec![Reason::Policy]) } else { Requirement::None }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let forget: BTreeSet<EventId> = forgettable(state).map(|entry| entry.id().clone()).collect();
        if forget.is_empty() {
            return Ok(Plan::Keep);
        }
        Ok(Plan::Edit(Edit { forget, ..Edit::default() }))
    }
}

/// The entries before the newest step that may leave, the system prompt and the first user message excepted.
pub(crate) fn forgettable<'s>(state: &'s State<'_>) -> impl Iterator<Item = Entry<'s>> {
    let first_user = state.view.iter().position(|entry| is_first_kind(state, &entry));
    let end = state.view.previous_index(newest_step(state)).unwrap_or(0);
    state.view.iter().take(end).filter(move |entry| {
        Some(entry.index()) != first_user && entry.class() != Class::SystemPrompt && !entry.is_protected()
    })
}

fn is_first_kind(state: &State<'_>, entry: &Entry<'_>) -> bool {
    let kind = state.event(entry.index()).map(|event| &event.kind);
    matches!(kind, Some(EventKind::Message(message)) if message.role == Role::User)
}

/// The position where the newest model response begins; the end where there is none.
fn newest_step(state: &State<'_>) -> usize {
    let written = |index: &usize| state.event(*index).is_some_and(is_written);
    let Some(last) = (0..state.view.len()).rev().find(written) else { return state.view.len() };
    let response = |index: usize| state.event(index).and_then(|event| event.response_id());
    let Some(id) = response(last) else { return last };
    let mut first = last;
    for index in (0..last).rev().filter(written) {
        if response(index) != Some(id) {
            break;
        }
        first = index;
    }
    first
}

/// Masks random observations until the request is as small as under another policy, step by step.
///
/// What has been masked stays masked. An observation is masked only where that brings the size nearer to the other
/// policy's.
#[derive(Clone, Debug)]
pub struct RandomMasking {
    name: String,
    targets: Targets,
    seed: u64,
}

/// Forgets random batches and messages until the request is as small as under another policy, step by step. System
/// prompt, first user message and newest step stay.
#[derive(Clone, Debug)]
pub struct RandomForgetting {
    name: String,
    targets: Targets,
    seed: u64,
}

/// The other policy's request sizes, by the number of the trace's events before the step.
#[derive(Clone, Debug)]
struct Targets(HashMap<usize, Tokens>);

impl Targets {
    fn new(prepared: &Prepared<'_>, matched: &Replay) -> Self {
        let sizes = matched.steps.tokens.iter().map(|&size| Tokens(size));
        Self(prepared.steps.iter().zip(sizes).map(|(step, size)| (step.events.start, size)).collect())
    }

    /// By how much the request is larger than the other policy's. Nothing at a state outside the trace.
    fn excess(&self, state: &State<'_>) -> Tokens {
        let n_events = state.view.n_pushed() - state.view.records().len();
        self.0.get(&n_events).map_or(Tokens::ZERO, |size| state.counted() - *size)
    }
}

pub(crate) fn control_name(control: &str, default: &str, matched: &Replay) -> String {
    let policy = &matched.row.policy;
    if policy == default { control.to_owned() } else { format!("{control}({policy})") }
}

impl RandomMasking {
    /// Matches a finished run over the same trace. The name is `random-masking`, with the matched policy's name in
    /// parentheses unless that is `observation-masking`.
    pub fn matching(prepared: &Prepared<'_>, matched: &Replay, seed: u64) -> Self {
        let name = control_name("random-masking", "observation-masking", matched);
        Self { name, targets: Targets::new(prepared, matched), seed }
    }
}

impl Policy for RandomMasking {
    fn name(&self) -> &str {
        &self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        needed(self.targets.excess(state))
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let sizes = state.entry_tokens();
        let mut candidates: Vec<(Tokens, EventId, RewriteOp)> = Vec::new();
        for entry in state.view.iter() {
            if entry.class() != Class::Observation || entry.is_pinned() || entry.rewrite().is_some() {
                continue;
            }
            let text = placeholder(sizes[entry.index()], entry.id(), state.recall);
            let gain = sizes[entry.index()] - state.sizer.text(&text);
            if gain > Tokens::ZERO {
                candidates.push((gain, entry.id().clone(), RewriteOp::Clear { text }));
            }
        }
        let drawn = draw(candidates, |candidate| candidate.0, self.targets.excess(state), self.seed, state);
        let rewrites = drawn.into_iter().map(|(_, id, op)| (id, Rewrite::from(op))).collect();
        edit(Edit { rewrites, ..Edit::default() })
    }
}

impl RandomForgetting {
    /// Matches a finished run over the same trace. The name is `random-forgetting`, with the matched policy's name in
    /// parentheses unless that is `recent-events`.
    pub fn matching(prepared: &Prepared<'_>, matched: &Replay, seed: u64) -> Self {
        let name = control_name("random-forgetting", "recent-events", matched);
        Self { name, targets: Targets::new(prepared, matched), seed }
    }
}

impl Policy for RandomForgetting {
    fn name(&self) -> &str {
        &self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        needed(self.targets.excess(state))
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let sizes = state.entry_tokens();
        let mut units: Vec<(Tokens, Vec<EventId>)> = Vec::new();
        let mut by_group: HashMap<u32, usize> = HashMap::new();
        for entry in forgettable(state) {
            let unit = match entry.group() {
                Some(group) => *by_group.entry(group).or_insert(units.len()),
                None => units.len(),
            };
            if unit == units.len() {
                units.push((Tokens::ZERO, Vec::new()));
            }
            units[unit].0 += sizes[entry.index()] + condenser::request::TOKENS_PER_MESSAGE;
            units[unit].1.push(entry.id().clone());
        }
        let drawn = draw(units, |unit| unit.0, self.targets.excess(state), self.seed, state);
        edit(Edit { forget: drawn.into_iter().flat_map(|(_, ids)| ids).collect(), ..Edit::default() })
    }
}

fn needed(excess: Tokens) -> Requirement {
    if excess > Tokens::ZERO { Requirement::Soft(vec![Reason::Policy]) } else { Requirement::None }
}

fn edit(edit: Edit) -> Result<Plan, NoPlan> {
    if edit.is_empty() { Ok(Plan::Keep) } else { Ok(Plan::Edit(edit)) }
}

fn placeholder(size: Tokens, id: &EventId, recall: bool) -> String {
    let place = if recall { format!(" {}", address(id)) } else { String::new() };
    format!("[{size} tokens of output left out{place}]")
}

/// Takes candidates in random order, each if it brings the excess nearer to zero. The same for the same seed and state.
fn draw<T>(
    mut candidates: Vec<T>,
    gain: impl Fn(&T) -> Tokens,
    excess: Tokens,
    seed: u64,
    state: &State<'_>,
) -> Vec<T> {
    let mut random = SplitMix64(seed ^ (state.view.n_pushed() as u64).rotate_left(32));
    let mut left = excess.0 as i64;
    let mut drawn = Vec::new();
    while left > 0 && !candidates.is_empty() {
        let candidate = candidates.swap_remove(random.below(candidates.len()));
        let after = left - gain(&candidate).0 as i64;
        if after.abs() < left {
            left = after;
            drawn.push(candidate);
        }
    }
    drawn
}
