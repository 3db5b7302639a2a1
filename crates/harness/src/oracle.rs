//! A control that knows what comes next.
//!
//! At each step the oracle starts from everything there is and forgets what it may, until its request is as small as
//! another policy's. It takes back, line by line, what the coming action uses for the first time: the line first that
//! gives the most items per token, with the calls that the line cannot stand without, less their arguments. It writes no summary.
//!
//! Each step is chosen anew, so that what a later action uses can still be taken then, and nothing is gained by keeping
//! it now. No policy that only keeps or drops whole events shows more of the evidence at these sizes, except where an
//! item that fits by itself does not fit with the call it answers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use condenser::condensation::{Condensation, Rewrite, RewriteOp};
use condenser::event::{ContentBlock, EventId, EventKind};
use condenser::header::Class;
use condenser::policy::{Budget, State};
use condenser::request::{Sizer, TOKENS_PER_MESSAGE, text_of};
use condenser::tokens::{TokenCounter as _, Tokens};
use condenser::view::View;

use crate::controls::forgettable;
use crate::evidence::is_user_message;
use crate::items::ItemId;
use crate::trace::{Log, Prepared};

/// What stands for a result of which nothing is taken.
const LEFT_OUT: &str = "…";
/// What stands for the arguments of a call that a line needs.
const NO_ARGUMENTS: &str = "{}";
/// An item is looked for in so many of the events that hold it, the newest.
const MAX_HOLDERS: usize = 20;

/// Entries that can only leave together.
#[derive(Default)]
struct Unit {
    entries: Vec<usize>,
    /// What it costs without any line of a result.
    bare: Tokens,
    /// Whether it cannot leave.
    stays: bool,
}

/// A line that holds items, in the result or message of an event.
struct Line {
    unit: usize,
    entry: usize,
    number: usize,
    items: Vec<ItemId>,
    tokens: Tokens,
}

/// The record that the oracle makes before a step; `None` where the whole request is small enough.
///
/// `view` shows all events before the step and no record.
pub(crate) fn record(
    prepared: &Prepared<'_>,
    view: &View,
    log: &Log<'_>,
    sizer: &Sizer<'_>,
    step: usize,
    target: Tokens,
) -> Option<Condensation> {
    let state = State::new(view, log, sizer, Budget::default());
    if state.counted() <= target {
        return None;
    }
    let mut units = units(&state, prepared);
    let mut size = size_of(&state, &made(&units, &state, &[], &[]));
    if size > target {
        // What cannot be forgotten is too large, so it is cut too.
        units.push(staying(&state));
        size = size_of(&state, &made(&units, &state, &[], &[]));
    }
    let mut missing = missing(prepared, &units, &state, step);
    let lines = lines(prepared, &units, &state, &missing);
    let mut taken: Vec<usize> = Vec::new();
    let mut open: HashSet<usize> = (0..units.len()).filter(|unit| units[*unit].stays).collect();
    while !missing.is_empty() {
        let gain = |line: &Line| line.items.iter().filter(|item| missing.contains(item)).count();
        let cost = |line: &Line| {
            let bare = if open.contains(&line.unit) { Tokens::ZERO } else { units[line.unit].bare };
            bare + line.tokens
        };
        let best = (0..lines.len())
            .filter(|number| !taken.contains(number) && gain(&lines[*number]) > 0)
            .filter(|number| size + cost(&lines[*number]) <= target)
            .max_by(|a, b| {
                let worth = |line: &Line| gain(line) as f64 / cost(line).0.max(1) as f64;
                worth(&lines[*a]).total_cmp(&worth(&lines[*b])).then(b.cmp(a))
            });
        let Some(best) = best else { break };
        size += cost(&lines[best]);
        open.insert(lines[best].unit);
        lines[best].items.iter().for_each(|item| {
            missing.remove(item);
        });
        taken.push(best);
    }
    // Costs were added up; what counts is the request.
    loop {
        let record = made(&units, &state, &taken, &lines);
        if taken.is_empty() || size_of(&state, &record) <= target {
            return (!record.forgotten_event_ids.is_empty() || !record.rewrites.is_empty()).then_some(record);
        }
        taken.pop();
    }
}

fn units(state: &State<'_>, prepared: &Prepared<'_>) -> Vec<Unit> {
    let sizes = state.entry_tokens();
    let mut units: Vec<Unit> = Vec::new();
    let mut by_group: HashMap<u32, usize> = HashMap::new();
    let left_out = prepared.counter.count(LEFT_OUT);
    for entry in forgettable(state) {
        let unit = match entry.group() {
            Some(group) => *by_group.entry(group).or_insert(units.len()),
            None => units.len(),
        };
        if unit == units.len() {
            units.push(Unit::default());
        }
        let unit = &mut units[unit];
        unit.entries.push(entry.index());
        unit.bare += TOKENS_PER_MESSAGE;
        unit.bare += match state.event(entry.index()).map(|event| &event.kind) {
            Some(EventKind::Action(action)) => {
                sizes[entry.index()] - prepared.counter.count(&action.arguments) + prepared.counter.count(NO_ARGUMENTS)
            }
            _ if is_cut(entry.class()) => left_out,
            _ => sizes[entry.index()],
        };
    }
    units
}

/// The results and the user's messages that cannot be forgotten and may be rewritten.
fn staying(state: &State<'_>) -> Unit {
    let may_leave: HashSet<usize> = forgettable(state).map(|entry| entry.index()).collect();
    let may_be_cut = |index: &usize| {
        let of_user = state.event(*index).is_some_and(is_user_message);
        state.view.get(*index).is_some_and(|entry| {
            !entry.is_pinned() && (entry.class() == Class::Observation || of_user) && !may_leave.contains(index)
        })
    };
    let entries = (0..state.view.len()).filter(may_be_cut).collect();
    Unit { entries, bare: Tokens::ZERO, stays: true }
}

/// Whether single lines of such an entry can be taken. Of calls, only name and id stay.
fn is_cut(class: Class) -> bool {
    matches!(class, Class::Observation | Class::Message)
}

/// The items that the step uses for the first time and that only what can be forgotten holds.
fn missing(prepared: &Prepared<'_>, units: &[Unit], state: &State<'_>, step: usize) -> HashSet<ItemId> {
    let may_leave: HashSet<usize> = units
        .iter()
        .flat_map(|unit| &unit.entries)
        .filter_map(|index| state.view.get(*index))
        .map(|entry| entry.seq())
        .collect();
    let shown: HashSet<usize> = state.view.iter().map(|entry| entry.seq()).collect();
    let start = prepared.steps[step].events.start;
    let stays = |item| {
        prepared.evidence.holders_before(item, start).any(|event| shown.contains(&event) && !may_leave.contains(&event))
    };
    prepared.uses[step].first.iter().map(|found| found.item).filter(|item| !stays(*item)).collect()
}

/// All lines that hold any of the items.
fn lines(prepared: &Prepared<'_>, units: &[Unit], state: &State<'_>, missing: &HashSet<ItemId>) -> Vec<Line> {
    let mut place: HashMap<usize, (usize, usize)> = HashMap::new();
    for (number, unit) in units.iter().enumerate() {
        for &index in &unit.entries {
            if let Some(entry) = state.view.get(index).filter(|entry| is_cut(entry.class())) {
                place.insert(entry.seq(), (number, index));
            }
        }
    }
    let n_events = state.view.n_pushed();
    let mut events: BTreeSet<usize> = BTreeSet::new();
    for &item in missing {
        let holders = prepared.evidence.holders_before(item, n_events).filter(|event| place.contains_key(event));
        events.extend(holders.take(MAX_HOLDERS));
    }
    let mut lines = Vec::new();
    for event in events {
        let (unit, entry) = place[&event];
        for (number, line) in text_of(&prepared.events[event].kind).lines().enumerate() {
            let mut items = prepared.evidence.of_text(line, &prepared.by_id).items;
            items.retain(|item| missing.contains(item));
            if !items.is_empty() {
                // With the end of the line.
                let tokens = prepared.counter.count(line) + Tokens(1);
                lines.push(Line { unit, entry, number, items, tokens });
            }
        }
    }
    lines
}

/// The record that leaves these lines.
fn made(units: &[Unit], state: &State<'_>, taken: &[usize], lines: &[Line]) -> Condensation {
    let mut by_entry: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut open: HashSet<usize> = (0..units.len()).filter(|unit| units[*unit].stays).collect();
    for line in taken.iter().map(|number| &lines[*number]) {
        by_entry.entry(line.entry).or_default().insert(line.number);
        open.insert(line.unit);
    }
    let mut record = Condensation::default();
    let id = |index: &usize| state.view.get(*index).map(|entry| entry.id().clone());
    for (number, unit) in units.iter().enumerate() {
        if !open.contains(&number) {
            record.forgotten_event_ids.extend(unit.entries.iter().filter_map(id));
            continue;
        }
        for index in &unit.entries {
            let Some(entry) = state.view.get(*index) else { continue };
            let op = match (by_entry.get(index), state.event(*index)) {
                _ if entry.class() == Class::Action => RewriteOp::Arguments { text: NO_ARGUMENTS.to_owned() },
                _ if !is_cut(entry.class()) => continue,
                (Some(numbers), Some(event)) => {
                    let text = text_of(&event.kind);
                    let kept: Vec<&str> =
                        text.lines().enumerate().filter(|(n, _)| numbers.contains(n)).map(|(_, line)| line).collect();
                    RewriteOp::Replace { content: vec![ContentBlock::text(kept.join("\n"))] }
                }
                _ => RewriteOp::Clear { text: LEFT_OUT.to_owned() },
            };
            record.rewrites.insert(entry.id().clone(), Rewrite::from(op));
        }
    }
    record
}

fn size_of(state: &State<'_>, record: &Condensation) -> Tokens {
    state.sizer.sizes(&state.view.preview(&EventId::new("oracle"), record), state.bodies).0
}
