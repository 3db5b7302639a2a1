//! The default rules. What may be cut, and what is left out, is decided from the log alone and when an
//! event or record arrives, so a live view and a rebuilt one are the same.
//!
//! - An answer belongs to the newest call with its id. Without such a call in the view it is left out; a call
//!   id used again is a new call. A final answer takes the place of an interim one; any other further answer
//!   is left out.
//! - A batch is a run of calls with one response id, answers between them included; any other entry ends it.
//! - A batch that begins with thinking begins a loop. Batches without thinking join it until another entry than
//!   calls and answers is shown. What the view does not show does not end it.
//! - A group is a loop, or a batch outside loops. The view may be cut where no group has entries on both sides.
//!   A call that is still open strikes nothing, and its group is protected from forgetting, until
//!   [`ABANDONED_AFTER`] later runs of calls have begun: nobody waits for its answer any more.
//! - Where a record forgets a part of a pair or batch, the rest of the batch leaves too; where it forgets the
//!   head of a loop, the rest of the loop does.

use std::collections::{HashSet, VecDeque};

use super::{Pushed, Slot, View};
use crate::cuts::Cuts;
use crate::header::{Class, NONE};

/// An open call is abandoned once so many later runs of calls have begun. Pinning a call protects it for longer.
const ABANDONED_AFTER: u32 = 16;

/// What the rules remember between events.
///
/// Positions count only while `generation` is the current one: a condensation starts a new one.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    generation: u32,
    /// Ids of all shown events and records so far, as a bit set.
    seen: Vec<u64>,
    /// By call id: the newest call with it.
    calls: Vec<Call>,
    batches: Vec<Batch>,
    groups: Vec<Group>,
    pinned_groups: HashSet<u32>,
    /// Positions of the calls that were open and not abandoned when last looked at, oldest first.
    waiting: VecDeque<u32>,
    /// How often what is left of batches was counted.
    counting: u32,
    /// The batch that the next call of the same response joins.
    run: Option<u32>,
    /// The loop that the next batch without thinking joins.
    current_loop: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    generation: u32,
    action: u32,
    answer: u32,
}

#[derive(Clone, Copy, Debug)]
struct Batch {
    generation: u32,
    response: u32,
    group: u32,
    n_members: u32,
    /// The entries left after forgetting, counted in `counting`.
    n_left: u32,
    counting: u32,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    generation: u32,
    /// The batch without which the others cannot be sent.
    head: u32,
    last: u32,
    /// Open calls that are not abandoned.
    n_open: u32,
}

impl Scan {
    fn mark_seen(&mut self, id: u32) -> bool {
        let (word, bit) = (id as usize / 64, id % 64);
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let before = self.seen[word];
        self.seen[word] |= 1 << bit;
        before >> bit & 1 == 0
    }

    fn call(&self, call: u32) -> Option<Call> {
        self.calls.get(call as usize).copied().filter(|found| found.generation == self.generation)
    }

    fn set_call(&mut self, call: u32, action: u32, answer: u32) {
        let index = call as usize;
        if index >= self.calls.len() {
            self.calls.resize(index + 1, Call { generation: u32::MAX, action: NONE, answer: NONE });
        }
        self.calls[index] = Call { generation: self.generation, action, answer };
    }

    fn n_members(&self, batch: u32) -> u32 {
        let batch = &self.batches[batch as usize];
        if batch.generation == self.generation { batch.n_members } else { 0 }
    }

    /// The batch that an action joins or begins.
    fn batch_for(&mut self, slot: &Slot) -> u32 {
        if let Some(run) = self.run
            && slot.response != NONE
            && self.batches[run as usize].response == slot.response
            && self.n_members(run) > 0
        {
            return run;
        }
        let number = self.batches.len() as u32;
        let joined = if slot.thinking { None } else { self.current_loop };
        let group = joined.filter(|&group| self.n_members(self.groups[group as usize].head) > 0);
        let group = group.unwrap_or_else(|| {
            self.groups.push(Group { generation: self.generation, head: number, last: NONE, n_open: 0 });
            (self.groups.len() - 1) as u32
        });
        self.batches.push(Batch {
            generation: self.generation,
            response: slot.response,
            group,
            n_members: 0,
            n_left: 0,
            counting: 0,
        });
        self.current_loop = if slot.thinking || joined == Some(group) { Some(group) } else { None };
        number
    }

    fn is_protected(&self, group: u32) -> bool {
        let found = &self.groups[group as usize];
        found.generation == self.generation && found.n_open > 0 || self.pinned_groups.contains(&group)
    }
}

impl View {
    pub(super) fn push_sound(&mut self, slot: Slot) -> Pushed {
        if self.is_duplicate(slot.id) {
            return Pushed::LeftOut;
        }
        match slot.class {
            Class::Action => self.push_action(slot),
            Class::Observation => return self.push_observation(slot),
            _ => {
                self.sound.run = None;
                self.sound.current_loop = None;
                self.add(slot);
            }
        }
        self.cuts.push(true);
        Pushed::Shown
    }

    /// Whether an earlier entry or record has this id; counted.
    pub(super) fn is_duplicate(&mut self, id: u32) -> bool {
        let is_new = self.sound.mark_seen(id);
        self.diagnostics.duplicate_ids += u64::from(!is_new);
        !is_new
    }

    fn push_action(&mut self, mut slot: Slot) {
        let position = self.slots.len() as u32;
        let batch = self.sound.batch_for(&slot);
        let group = self.sound.batches[batch as usize].group;
        slot.batch = batch;
        slot.group = group;
        if slot.call != NONE {
            if let Some(older) = self.sound.call(slot.call) {
                self.supersede(older);
            }
            self.sound.set_call(slot.call, position, NONE);
            slot.open = true;
        }
        let last = self.sound.groups[group as usize].last;
        if last != NONE {
            self.strike(last as usize + 1..=position as usize);
        }
        let found = &mut self.sound.groups[group as usize];
        found.last = position;
        found.n_open += u32::from(slot.open);
        self.sound.batches[batch as usize].n_members += 1;
        self.sound.run = Some(batch);
        self.note_pinned(&slot);
        self.add(slot);
        if slot.open {
            self.sound.waiting.push_back(position);
        }
        self.abandon();
    }

    /// Gives up the open calls that too many later runs have left behind.
    fn abandon(&mut self) {
        let newest = self.sound.batches.len() as u32;
        while let Some(&position) = self.sound.waiting.front() {
            let call = &mut self.slots[position as usize];
            if call.open && newest - call.batch <= ABANDONED_AFTER {
                break;
            }
            self.sound.waiting.pop_front();
            if call.is_waiting() {
                self.sound.groups[call.group as usize].n_open -= 1;
            }
            call.abandoned = call.open;
        }
    }

    /// A pin may name an event that comes later.
    fn note_pinned(&mut self, slot: &Slot) {
        if !self.pinned.is_empty() && self.pinned.contains(&slot.id) {
            self.sound.pinned_groups.insert(slot.group);
        }
    }

    /// A call id that is used again: nothing can answer its older call any more.
    fn supersede(&mut self, older: Call) {
        let action = &mut self.slots[older.action as usize];
        action.superseded = true;
        if action.is_waiting() {
            self.sound.groups[action.group as usize].n_open -= 1;
        }
        action.open = false;
        if older.answer != NONE {
            self.slots[older.answer as usize].superseded = true;
        }
    }

    fn push_observation(&mut self, mut slot: Slot) -> Pushed {
        let Some(call) = self.sound.call(slot.call) else {
            self.diagnostics.orphan_answers += 1;
            return Pushed::LeftOut;
        };
        let action = self.slots[call.action as usize];
        slot.batch = action.batch;
        slot.group = action.group;
        if call.answer != NONE {
            return self.answer_again(slot, call.answer as usize);
        }
        let position = self.slots.len();
        self.strike(call.action as usize + 1..=position);
        self.sound.set_call(slot.call, call.action, position as u32);
        let group = &mut self.sound.groups[slot.group as usize];
        group.last = position as u32;
        group.n_open -= u32::from(action.is_waiting());
        self.sound.batches[slot.batch as usize].n_members += 1;
        self.slots[call.action as usize].open = false;
        self.note_pinned(&slot);
        self.add(slot);
        self.cuts.push(true);
        Pushed::Shown
    }

    fn answer_again(&mut self, slot: Slot, position: usize) -> Pushed {
        let older = self.slots[position];
        if !older.interim {
            self.diagnostics.duplicate_answers += 1;
            return Pushed::LeftOut;
        }
        if self.pinned.contains(&older.id) {
            self.diagnostics.pinned_refused += 1;
            return Pushed::LeftOut;
        }
        self.diagnostics.replaced_answers += 1;
        self.tokens = self.tokens - u64::from(older.tokens) + u64::from(slot.tokens);
        self.unsized_entries = self.unsized_entries + usize::from(!slot.sized) - usize::from(!older.sized);
        self.slots[position] = slot;
        self.note_pinned(&slot);
        Pushed::Shown
    }

    /// After forgetting: takes out what is left of torn batches, and of loops without their head.
    pub(super) fn drop_torn(&mut self) {
        let (slots, sound) = (&mut self.slots, &mut self.sound);
        sound.counting += 1;
        for slot in slots.iter().filter(|slot| slot.batch != NONE) {
            let batch = &mut sound.batches[slot.batch as usize];
            if std::mem::replace(&mut batch.counting, sound.counting) != sound.counting {
                batch.n_left = 0;
            }
            batch.n_left += 1;
        }
        let n_before = slots.len();
        let sound = &*sound;
        let is_whole = |number: u32| {
            let batch = &sound.batches[number as usize];
            batch.counting == sound.counting && batch.n_left == sound.n_members(number)
        };
        slots.retain(|slot| {
            slot.batch == NONE || is_whole(slot.batch) && is_whole(sound.groups[slot.group as usize].head)
        });
        self.diagnostics.torn_apart += (n_before - slots.len()) as u64;
    }

    pub(super) fn rescan_sound(&mut self) {
        let scan = &mut self.sound;
        scan.waiting.clear();
        scan.generation += 1;
        let generation = scan.generation;
        for (position, slot) in self.slots.iter().enumerate() {
            if slot.batch == NONE {
                continue;
            }
            let batch = &mut scan.batches[slot.batch as usize];
            if batch.generation != generation {
                batch.generation = generation;
                batch.n_members = 0;
            }
            batch.n_members += 1;
            let group = &mut scan.groups[slot.group as usize];
            if group.generation != generation {
                group.generation = generation;
                group.n_open = 0;
            }
            group.last = position as u32;
            if slot.is_waiting() {
                group.n_open += 1;
                scan.waiting.push_back(position as u32);
            }
            if slot.call == NONE || slot.superseded {
                continue;
            }
            let action = if slot.class == Class::Action {
                position as u32
            } else {
                scan.call(slot.call).map_or(NONE, |call| call.action)
            };
            let answer = if slot.class == Class::Action { NONE } else { position as u32 };
            if action != NONE {
                scan.set_call(slot.call, action, answer);
            }
        }
        self.cuts = Cuts::new();
        let mut reaches = 0;
        for (position, slot) in self.slots.iter().enumerate() {
            if slot.group != NONE {
                reaches = reaches.max(self.sound.groups[slot.group as usize].last as usize);
            }
            self.cuts.push(reaches <= position);
        }
        self.find_pinned_groups();
    }

    pub(super) fn find_pinned_groups(&mut self) {
        self.sound.pinned_groups.clear();
        if !self.pinned.is_empty() {
            let pinned = self.slots.iter().filter(|slot| slot.group != NONE && self.pinned.contains(&slot.id));
            self.sound.pinned_groups = pinned.map(|slot| slot.group).collect();
        }
    }

    pub(super) fn is_group_protected(&self, group: u32) -> bool {
        group != NONE && self.sound.is_protected(group)
    }
}
