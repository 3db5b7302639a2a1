//! The rules of the OpenHands SDK 1.58.2, defects included.

use std::collections::{HashMap, HashSet};

use super::{Dropped, Property, Pushed, Slot, View};
use crate::cuts::Cuts;
use crate::header::{Class, Header, NONE};

/// Where the incremental scan for cut points stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// By call: the generation in which it was opened.
    open: Vec<u32>,
    generation: u32,
    n_open: usize,
    in_loop: bool,
}

impl Scan {
    /// Which of the three striking properties strike, for the boundary before `slot` and the one after it.
    fn step(&mut self, slot: &Slot, previous: Option<&Slot>) -> Strikes {
        let batch_before = slot.class == Class::Action
            && slot.response != NONE
            && previous.is_some_and(|previous| previous.class == Class::Action && previous.response == slot.response);
        let mut loop_before = false;
        match slot.class {
            Class::Action if slot.thinking => self.in_loop = true,
            Class::Action | Class::Observation => loop_before = self.in_loop,
            _ => self.in_loop = false,
        }
        if slot.call != NONE {
            let call = slot.call as usize;
            if call >= self.open.len() {
                self.open.resize(call + 1, 0);
            }
            // Generation 0 marks a call that is not open.
            let is_open = self.open[call] == self.generation + 1;
            if slot.class == Class::Action && !is_open {
                self.open[call] = self.generation + 1;
                self.n_open += 1;
            } else if slot.class == Class::Observation && is_open {
                self.open[call] = 0;
                self.n_open -= 1;
            }
        }
        Strikes { batch_before, loop_before, open_after: self.n_open > 0 }
    }

    fn restart(&mut self) {
        self.generation += 1;
        self.n_open = 0;
        self.in_loop = false;
    }
}

struct Strikes {
    batch_before: bool,
    loop_before: bool,
    open_after: bool,
}

/// The indices that one property alone leaves.
pub(super) fn property_indices(slots: &[Slot], property: Property) -> Vec<usize> {
    let mut scan = Scan::default();
    let mut legal = vec![true];
    for (i, slot) in slots.iter().enumerate() {
        let strikes = scan.step(slot, i.checked_sub(1).map(|before| &slots[before]));
        match property {
            Property::ObservationUniqueness => {}
            Property::BatchAtomicity => legal[i] &= !strikes.batch_before,
            Property::ToolLoopAtomicity => legal[i] &= !strikes.loop_before,
            Property::ToolCallMatching => {
                legal.push(!strikes.open_after);
                continue;
            }
        }
        legal.push(true);
    }
    (0..legal.len()).filter(|&i| legal[i]).collect()
}

impl View {
    pub(super) fn push_openhands(&mut self, slot: Slot) -> Pushed {
        if self.replaying {
            self.slots.push(slot);
        } else {
            self.add(slot);
            self.scan_openhands(self.slots.len() - 1);
        }
        Pushed::Shown
    }

    fn scan_openhands(&mut self, i: usize) {
        let strikes = self.openhands.step(&self.slots[i], i.checked_sub(1).map(|before| &self.slots[before]));
        if strikes.batch_before || strikes.loop_before {
            self.strike(i..=i);
        }
        self.cuts.push(!strikes.open_after);
    }

    pub(super) fn rescan_openhands(&mut self) {
        self.cuts = Cuts::new();
        self.openhands.restart();
        for i in 0..self.slots.len() {
            self.scan_openhands(i);
        }
    }

    /// Removes what the four properties reject, in the peer's order, until none rejects anything.
    pub(super) fn enforce_openhands(&mut self, log: &[Header]) {
        if is_whole(&self.slots, log, &Sizes::of(self)) {
            return;
        }
        let dropped = Enforcement::new(&self.slots, log, Sizes::of(self)).run();
        let gone: HashSet<u32> = dropped.iter().flat_map(|(_, ids)| ids).copied().collect();
        self.slots.retain(|slot| !gone.contains(&slot.id));
        self.diagnostics.dropped = dropped
            .into_iter()
            .map(|(property, ids)| Dropped {
                property,
                ids: ids.into_iter().map(|id| self.names.event(id).clone()).collect(),
            })
            .collect();
    }
}

/// Whether one look at log and view shows that nothing can be rejected; that is so for nearly every log.
fn is_whole(slots: &[Slot], log: &[Header], sizes: &Sizes) -> bool {
    const ACTION: u8 = 1;
    const ANSWER: u8 = 2;
    const IN_LOG: u8 = 1;
    const IN_VIEW: u8 = 2;
    let mut ids = vec![0u8; sizes.events];
    let mut calls = vec![0u8; sizes.calls];
    for slot in slots {
        if std::mem::replace(&mut ids[slot.id as usize], IN_VIEW) != 0 {
            return false;
        }
        let of_call = match slot.class {
            Class::Action => ACTION,
            Class::Observation => ANSWER,
            _ => continue,
        };
        if slot.call != NONE {
            let call = &mut calls[slot.call as usize];
            if of_call == ANSWER && *call & ANSWER != 0 {
                return false;
            }
            *call |= of_call;
        }
    }
    if calls.iter().any(|&call| call == ACTION || call == ANSWER) {
        return false;
    }
    // By response: its actions in the log, and those of them that are in the view.
    let mut responses = vec![(0u32, 0u32); sizes.responses];
    // Of the loop at hand, likewise.
    let mut members = None;
    let is_torn = |(in_log, in_view): (u32, u32)| in_view > 0 && in_view != in_log;
    for header in log {
        let id = &mut ids[header.id as usize];
        if *id & IN_LOG != 0 {
            return false;
        }
        *id |= IN_LOG;
        let shown = u32::from(*id & IN_VIEW != 0);
        let is_action = header.class == Class::Action;
        if is_action && header.response != NONE {
            let (in_log, in_view) = &mut responses[header.response as usize];
            *in_log += 1;
            *in_view += shown;
        }
        let begins = is_action && header.thinking;
        if (begins || !(is_action || header.class == Class::Observation)) && members.take().is_some_and(is_torn) {
            return false;
        }
        if begins {
            members = Some((0, 0));
        }
        if let Some((in_log, in_view)) = &mut members {
            *in_log += 1;
            *in_view += shown;
        }
    }
    !members.is_some_and(is_torn) && !responses.into_iter().any(is_torn)
}

/// How many ids of each space there are.
struct Sizes {
    events: usize,
    calls: usize,
    responses: usize,
}

impl Sizes {
    fn of(view: &View) -> Self {
        Self { events: view.names.n_events(), calls: view.names.n_calls(), responses: view.names.n_responses() }
    }
}

/// The fixpoint. Each entry is removed once, and each removal marks only what it touches, so that all rounds
/// together are linear in the log.
struct Enforcement<'a> {
    slots: &'a [Slot],
    alive: Vec<bool>,
    /// Positions in the view by event id; nearly always one.
    by_id: Lists,
    /// Actions in the view by response, and calls and answers by call.
    by_response: Lists,
    by_call: Lists,
    /// Per response: distinct action ids in the log, and in the view.
    in_log: Vec<u32>,
    in_view: Vec<u32>,
    /// Per call: actions and answers in the view.
    actions: Vec<u32>,
    answers: Vec<u32>,
    /// Loops as ranges of the log, and those that an id belongs to.
    log: &'a [Header],
    loops: Vec<std::ops::Range<usize>>,
    loops_of: HashMap<u32, Vec<u32>>,
    loop_of: Vec<u32>,
    touched_responses: Vec<u32>,
    touched_calls: Vec<u32>,
    touched_loops: Vec<u32>,
}

/// Empties a list of keys, each given once.
fn distinct(keys: &mut Vec<u32>) -> Vec<u32> {
    let mut keys = std::mem::take(keys);
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Lists of positions by a dense key.
struct Lists {
    head: Vec<u32>,
    next: Vec<u32>,
}

impl Lists {
    fn new(n_keys: usize, keys: impl DoubleEndedIterator<Item = u32> + ExactSizeIterator) -> Self {
        let mut lists = Self { head: vec![NONE; n_keys], next: vec![NONE; keys.len()] };
        for (position, key) in keys.enumerate().rev() {
            if key != NONE {
                lists.next[position] = lists.head[key as usize];
                lists.head[key as usize] = position as u32;
            }
        }
        lists
    }

    fn of(&self, key: u32) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.head[key as usize];
        std::iter::from_fn(move || {
            let position = at;
            (position != NONE).then(|| {
                at = self.next[position as usize];
                position as usize
            })
        })
    }
}

/// Counts distinct ids per response: `add` is true for each pair once.
struct DistinctPairs {
    first: Vec<u32>,
    others: HashSet<(u32, u32)>,
}

impl DistinctPairs {
    fn new(n_ids: usize) -> Self {
        Self { first: vec![NONE; n_ids], others: HashSet::new() }
    }

    fn add(&mut self, id: u32, response: u32) -> bool {
        let first = &mut self.first[id as usize];
        if *first == NONE {
            *first = response;
            return true;
        }
        *first != response && self.others.insert((id, response))
    }
}

impl<'a> Enforcement<'a> {
    fn new(slots: &'a [Slot], log: &'a [Header], sizes: Sizes) -> Self {
        let mut enforcement = Self {
            slots,
            alive: vec![true; slots.len()],
            by_id: Lists::new(sizes.events, slots.iter().map(|slot| slot.id)),
            by_response: Lists::new(sizes.responses, slots.iter().map(|slot| slot.response)),
            by_call: Lists::new(sizes.calls, slots.iter().map(|slot| slot.call)),
            in_log: vec![0; sizes.responses],
            in_view: vec![0; sizes.responses],
            actions: vec![0; sizes.calls],
            answers: vec![0; sizes.calls],
            log,
            loops: Vec::new(),
            loops_of: HashMap::new(),
            loop_of: vec![NONE; sizes.events],
            touched_responses: Vec::new(),
            touched_calls: Vec::new(),
            touched_loops: Vec::new(),
        };
        enforcement.read_log(sizes.events);
        enforcement.read_view(sizes.events);
        enforcement
    }

    fn read_log(&mut self, n_ids: usize) {
        let mut pairs = DistinctPairs::new(n_ids);
        let mut open: Option<usize> = None;
        for (position, header) in self.log.iter().enumerate() {
            if header.class == Class::Action && header.response != NONE && pairs.add(header.id, header.response) {
                self.in_log[header.response as usize] += 1;
            }
            let begins = header.class == Class::Action && header.thinking;
            let joins = matches!(header.class, Class::Action | Class::Observation);
            if begins || !joins {
                self.loops.extend(open.take().map(|start| start..position));
            }
            if begins {
                open = Some(position);
            }
        }
        self.loops.extend(open.map(|start| start..self.log.len()));
        for (number, members) in self.loops.iter().enumerate() {
            for header in &self.log[members.clone()] {
                let first = &mut self.loop_of[header.id as usize];
                if *first == NONE {
                    *first = number as u32;
                } else if *first != number as u32 {
                    self.loops_of.entry(header.id).or_default().push(number as u32);
                }
            }
        }
    }

    fn read_view(&mut self, n_ids: usize) {
        let mut pairs = DistinctPairs::new(n_ids);
        for slot in self.slots {
            match slot.class {
                Class::Action => {
                    if slot.response != NONE && pairs.add(slot.id, slot.response) {
                        self.in_view[slot.response as usize] += 1;
                    }
                    if slot.call != NONE {
                        self.actions[slot.call as usize] += 1;
                    }
                }
                Class::Observation if slot.call != NONE => self.answers[slot.call as usize] += 1,
                _ => {}
            }
        }
        self.touched_responses.extend(0..self.in_log.len() as u32);
        self.touched_calls.extend(0..self.actions.len() as u32);
        self.touched_loops.extend(0..self.loops.len() as u32);
    }

    fn run(mut self) -> Vec<(Property, Vec<u32>)> {
        let mut dropped = Vec::new();
        let duplicates = self.duplicates();
        self.remove(Property::ObservationUniqueness, duplicates, &mut dropped);
        loop {
            let torn = self.torn_batches();
            if self.remove(Property::BatchAtomicity, torn, &mut dropped) {
                continue;
            }
            let unmatched = self.unmatched_calls();
            if self.remove(Property::ToolCallMatching, unmatched, &mut dropped) {
                continue;
            }
            let broken = self.broken_loops();
            if !self.remove(Property::ToolLoopAtomicity, broken, &mut dropped) {
                return dropped;
            }
        }
    }

    fn duplicates(&self) -> Vec<usize> {
        let mut answered = vec![false; self.answers.len()];
        (0..self.slots.len())
            .filter(|&position| {
                let slot = &self.slots[position];
                slot.class == Class::Observation
                    && slot.call != NONE
                    && std::mem::replace(&mut answered[slot.call as usize], true)
            })
            .collect()
    }

    fn torn_batches(&mut self) -> Vec<usize> {
        let mut torn = Vec::new();
        for response in distinct(&mut self.touched_responses) {
            let (log, view) = (self.in_log[response as usize], self.in_view[response as usize]);
            if view > 0 && log != view {
                torn.extend(self.by_response.of(response).filter(|&position| self.alive[position]));
            }
        }
        torn
    }

    fn unmatched_calls(&mut self) -> Vec<usize> {
        let mut unmatched = Vec::new();
        for call in distinct(&mut self.touched_calls) {
            if (self.actions[call as usize] > 0) != (self.answers[call as usize] > 0) {
                unmatched.extend(self.by_call.of(call).filter(|&position| self.alive[position]));
            }
        }
        unmatched
    }

    fn broken_loops(&mut self) -> Vec<usize> {
        let mut broken = Vec::new();
        for number in distinct(&mut self.touched_loops) {
            let members = &self.log[self.loops[number as usize].clone()];
            let positions = || members.iter().flat_map(|member| self.by_id.of(member.id));
            let is_shown = |member: &Header| self.by_id.of(member.id).any(|position| self.alive[position]);
            if members.iter().any(|member| !is_shown(member)) {
                broken.extend(positions().filter(|&position| self.alive[position]));
            }
        }
        broken
    }

    /// Removes entries, and all others with their ids. Whether there were any.
    fn remove(&mut self, property: Property, positions: Vec<usize>, dropped: &mut Vec<(Property, Vec<u32>)>) -> bool {
        let mut gone: Vec<usize> = Vec::new();
        for position in positions {
            let id = self.slots[position].id;
            for twin in self.by_id.of(id) {
                if std::mem::replace(&mut self.alive[twin], false) {
                    gone.push(twin);
                }
            }
        }
        gone.sort_unstable();
        let mut ids: Vec<u32> = Vec::new();
        let mut seen = HashSet::new();
        let mut seen_pairs = HashSet::new();
        for position in gone {
            let slot = &self.slots[position];
            match slot.class {
                Class::Action => {
                    if slot.response != NONE && seen_pairs.insert((slot.id, slot.response)) {
                        self.in_view[slot.response as usize] -= 1;
                        self.touched_responses.push(slot.response);
                    }
                    if slot.call != NONE {
                        self.actions[slot.call as usize] -= 1;
                        self.touched_calls.push(slot.call);
                    }
                }
                Class::Observation if slot.call != NONE => {
                    self.answers[slot.call as usize] -= 1;
                    self.touched_calls.push(slot.call);
                }
                _ => {}
            }
            if seen.insert(slot.id) {
                ids.push(slot.id);
                let first = self.loop_of[slot.id as usize];
                self.touched_loops.extend((first != NONE).then_some(first));
                self.touched_loops.extend(self.loops_of.get(&slot.id).into_iter().flatten());
            }
        }
        if ids.is_empty() {
            return false;
        }
        dropped.push((property, ids));
        true
    }
}
