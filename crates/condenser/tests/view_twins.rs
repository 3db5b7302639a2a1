//! The view against slow, obvious twins that search lists instead of keeping books.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod common;

use std::collections::HashSet;

use common::{log, ops};
use condenser::request::openai::validate_openai_chat;
use condenser::{Class, Event, EventHeader, EventId, EventKind, Property, Pushed, Request, Rules, View};
use proptest::prelude::*;

/// One entry of a twin.
#[derive(Clone, Debug)]
struct Item {
    id: EventId,
    class: Class,
    call: String,
    response: Option<String>,
    thinking: bool,
    interim: bool,
    batch: usize,
    group: usize,
    open: bool,
    superseded: bool,
}

const NO_GROUP: usize = usize::MAX;

impl Item {
    fn of(event: &Event) -> Self {
        Self {
            id: event.id.clone(),
            class: event.class(),
            call: event.call_id().unwrap_or_default().to_owned(),
            response: event.response_id().map(str::to_owned),
            thinking: event.has_thinking(),
            interim: event.is_interim(),
            batch: NO_GROUP,
            group: NO_GROUP,
            open: false,
            superseded: false,
        }
    }

    fn summary(id: EventId) -> Self {
        Self {
            id,
            class: Class::Message,
            call: String::new(),
            response: None,
            thinking: false,
            interim: false,
            batch: NO_GROUP,
            group: NO_GROUP,
            open: false,
            superseded: false,
        }
    }
}

#[derive(Default)]
struct SoundTwin {
    items: Vec<Item>,
    seen: HashSet<EventId>,
    pinned: HashSet<EventId>,
    n_batches: usize,
    /// Of each group, the batch it cannot do without.
    heads: Vec<usize>,
    last_batch: Option<usize>,
    current_loop: Option<usize>,
}

impl SoundTwin {
    fn replay(events: &[Event]) -> Self {
        let undone: HashSet<&EventId> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Undo(undo) => Some(&undo.condensation),
                _ => None,
            })
            .collect();
        let mut twin = Self::default();
        for event in events {
            match &event.kind {
                EventKind::Condensation(_) if undone.contains(&event.id) => {}
                EventKind::Condensation(_) if !twin.seen.insert(event.id.clone()) => {}
                EventKind::Condensation(record) => {
                    let mut forgotten: HashSet<EventId> = record.forgotten_event_ids.iter().cloned().collect();
                    let pinned_groups: HashSet<usize> = twin
                        .items
                        .iter()
                        .filter(|item| item.group != NO_GROUP && twin.pinned.contains(&item.id))
                        .map(|item| item.group)
                        .collect();
                    for item in &twin.items {
                        if twin.pinned.contains(&item.id) || pinned_groups.contains(&item.group) {
                            forgotten.remove(&item.id);
                        }
                    }
                    let before = twin.items.clone();
                    twin.items.retain(|item| !forgotten.contains(&item.id));
                    let after = twin.items.clone();
                    let count = |items: &[Item], batch| items.iter().filter(|item| item.batch == batch).count();
                    let whole = |batch| count(&after, batch) > 0 && count(&after, batch) == count(&before, batch);
                    let heads = twin.heads.clone();
                    twin.items.retain(|item| item.batch == NO_GROUP || (whole(item.batch) && whole(heads[item.group])));
                    if let Some((_, offset)) = record.shown_summary() {
                        let prompts = twin.items.iter().take_while(|item| item.class == Class::SystemPrompt).count();
                        let at = offset.min(twin.items.len()).max(prompts);
                        twin.items.insert(at, Item::summary(event.id.summary_id()));
                    }
                }
                EventKind::Pin(pin) => twin.pinned.extend(pin.ids.iter().cloned()),
                EventKind::Unpin(pin) => twin.pinned.retain(|id| !pin.ids.contains(id)),
                kind if kind.is_shown() => twin.push(Item::of(event)),
                _ => {}
            }
        }
        twin
    }

    fn push(&mut self, mut item: Item) {
        if !self.seen.insert(item.id.clone()) {
            return;
        }
        match item.class {
            Class::Action => {
                let has = |batch: usize| self.items.iter().any(|item| item.batch == batch);
                let joins = self.last_batch.filter(|&batch| {
                    has(batch)
                        && item.response.is_some()
                        && self.items.iter().any(|other| {
                            other.batch == batch && other.class == Class::Action && other.response == item.response
                        })
                });
                if let Some(batch) = joins {
                    item.batch = batch;
                    item.group = self.items.iter().find(|other| other.batch == batch).unwrap().group;
                } else {
                    item.batch = self.n_batches;
                    self.n_batches += 1;
                    let joined = self.current_loop.filter(|&group| !item.thinking && has(self.heads[group]));
                    item.group = joined.unwrap_or_else(|| {
                        self.heads.push(item.batch);
                        self.heads.len() - 1
                    });
                    self.current_loop = (item.thinking || joined.is_some()).then_some(item.group);
                }
                for other in self.items.iter_mut().filter(|other| other.call == item.call && other.batch != NO_GROUP) {
                    other.superseded = true;
                    other.open = false;
                }
                item.open = true;
                self.last_batch = Some(item.batch);
                self.items.push(item);
            }
            Class::Observation => {
                let newest = |class| {
                    self.items
                        .iter()
                        .rposition(|other| other.class == class && other.call == item.call && !other.superseded)
                };
                let Some(call) = newest(Class::Action) else { return };
                item.batch = self.items[call].batch;
                item.group = self.items[call].group;
                match newest(Class::Observation) {
                    Some(answer) if self.items[answer].interim && !self.pinned.contains(&self.items[answer].id) => {
                        self.items[answer] = item;
                    }
                    Some(_) => {}
                    None => {
                        self.items[call].open = false;
                        self.items.push(item);
                    }
                }
            }
            _ => {
                self.last_batch = None;
                self.current_loop = None;
                self.items.push(item);
            }
        }
    }

    fn ids(&self) -> Vec<EventId> {
        self.items.iter().map(|item| item.id.clone()).collect()
    }

    fn cuts(&self) -> Vec<usize> {
        (0..=self.items.len())
            .filter(|&cut| {
                let (before, after) = self.items.split_at(cut);
                !before.iter().any(|item| item.group != NO_GROUP && after.iter().any(|other| other.group == item.group))
            })
            .collect()
    }

    fn protected(&self) -> Vec<bool> {
        self.items
            .iter()
            .map(|item| {
                self.pinned.contains(&item.id)
                    || self.items.iter().any(|other| {
                        item.group != NO_GROUP
                            && other.group == item.group
                            && (other.open && self.n_batches - other.batch <= 16 || self.pinned.contains(&other.id))
                    })
            })
            .collect()
    }
}

fn view_ids(view: &View) -> Vec<EventId> {
    view.ids().cloned().collect()
}

fn one_at_a_time(events: &[Event], rules: Rules) -> (View, bool) {
    let mut view = View::new(rules);
    let mut needs_replay = false;
    for event in events {
        needs_replay |= view.push(event) == Pushed::ReplayNeeded;
    }
    (view, needs_replay)
}

/// The peer's enforcement, a property at a time over plain lists, from the start after each removal.
fn openhands_twin(events: &[Event]) -> (Vec<EventId>, Vec<(Property, Vec<EventId>)>) {
    let (view, _) = one_at_a_time(
        &events.iter().filter(|event| !matches!(event.kind, EventKind::Undo(_))).cloned().collect::<Vec<_>>(),
        Rules::OpenHands,
    );
    let mut items: Vec<Item> = view
        .iter()
        .map(|entry| {
            if entry.is_summary() {
                Item::summary(entry.id().clone())
            } else {
                Item::of(events_without_undo(events)[entry.seq()])
            }
        })
        .collect();
    let mut removed = Vec::new();
    'rounds: loop {
        for property in Property::ALL {
            let bad: HashSet<EventId> = match property {
                Property::ObservationUniqueness => {
                    let mut answered = HashSet::new();
                    items
                        .iter()
                        .filter(|item| item.class == Class::Observation && !answered.insert(item.call.clone()))
                        .map(|item| item.id.clone())
                        .collect()
                }
                Property::BatchAtomicity => items
                    .iter()
                    .filter(|item| item.class == Class::Action && item.response.is_some())
                    .filter(|item| {
                        let in_log: HashSet<&EventId> = events
                            .iter()
                            .filter(|event| {
                                event.class() == Class::Action && event.response_id() == item.response.as_deref()
                            })
                            .map(|event| &event.id)
                            .collect();
                        let in_view: HashSet<&EventId> = items
                            .iter()
                            .filter(|other| other.class == Class::Action && other.response == item.response)
                            .map(|other| &other.id)
                            .collect();
                        in_log != in_view
                    })
                    .map(|item| item.id.clone())
                    .collect(),
                Property::ToolCallMatching => {
                    let has = |class, call: &str| items.iter().any(|item| item.class == class && item.call == call);
                    items
                        .iter()
                        .filter(|item| match item.class {
                            Class::Action => !has(Class::Observation, &item.call),
                            Class::Observation => !has(Class::Action, &item.call),
                            _ => false,
                        })
                        .map(|item| item.id.clone())
                        .collect()
                }
                Property::ToolLoopAtomicity => {
                    let mut loops: Vec<Vec<&EventId>> = Vec::new();
                    let mut open = false;
                    for event in events {
                        match event.class() {
                            Class::Action if event.has_thinking() => {
                                loops.push(vec![&event.id]);
                                open = true;
                            }
                            Class::Action | Class::Observation if open => loops.last_mut().unwrap().push(&event.id),
                            Class::Action | Class::Observation => {}
                            _ => open = false,
                        }
                    }
                    let shown = |id: &EventId| items.iter().any(|item| item.id == *id);
                    loops
                        .iter()
                        .filter(|members| members.iter().any(|id| !shown(id)))
                        .flatten()
                        .filter(|id| shown(id))
                        .map(|id| (*id).clone())
                        .collect()
                }
                _ => HashSet::new(),
            };
            if !bad.is_empty() {
                let mut gone = Vec::new();
                items.retain(|item| {
                    let goes = bad.contains(&item.id);
                    if goes && !gone.contains(&item.id) {
                        gone.push(item.id.clone());
                    }
                    !goes
                });
                removed.push((property, gone));
                continue 'rounds;
            }
        }
        return (items.iter().map(|item| item.id.clone()).collect(), removed);
    }
}

fn events_without_undo(events: &[Event]) -> Vec<&Event> {
    events.iter().filter(|event| !matches!(event.kind, EventKind::Undo(_))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sound_view_agrees_with_its_twin(ops in ops(160)) {
        let events = log(&ops);
        let view = View::replay(&events, Rules::Sound);
        let twin = SoundTwin::replay(&events);
        prop_assert_eq!(view_ids(&view), twin.ids());
        prop_assert_eq!(view.manipulation_indices().collect::<Vec<_>>(), twin.cuts());
        let protected: Vec<bool> = view.iter().map(|entry| entry.is_protected()).collect();
        prop_assert_eq!(protected, twin.protected());
    }

    #[test]
    fn replaying_one_at_a_time_equals_replaying_the_whole(ops in ops(60)) {
        let events = log(&ops);
        let (live, needs_replay) = one_at_a_time(&events, Rules::Sound);
        if !needs_replay && !ops.iter().any(|op| matches!(op, common::Op::Undo(_))) {
            let rebuilt = View::replay(&events, Rules::Sound);
            prop_assert_eq!(view_ids(&live), view_ids(&rebuilt));
            prop_assert_eq!(
                live.manipulation_indices().collect::<Vec<_>>(),
                rebuilt.manipulation_indices().collect::<Vec<_>>()
            );
            prop_assert_eq!(live.diagnostics(), rebuilt.diagnostics());
            prop_assert_eq!(live.tokens(), rebuilt.tokens());
        }
    }

    #[test]
    fn an_undone_condensation_leaves_the_view_that_replay_without_it_gives(ops in ops(40), which in 0usize..40) {
        let mut events = log(&ops);
        events.retain(|event| !matches!(event.kind, EventKind::Undo(_)));
        let Some(record) = events.iter().filter(|event| event.class() == Class::Condensation).nth(which % 4) else {
            return Ok(());
        };
        let record = record.id.clone();
        let without: Vec<Event> = events
            .iter()
            .filter(|event| event.id != record || event.class() != Class::Condensation)
            .cloned()
            .collect();
        let undo = EventKind::Undo(condenser::event::Undo { condensation: record });
        events.push(Event::new("undo", condenser::event::Source::User, undo));
        let undone = View::replay(&events, Rules::Sound);
        prop_assert_eq!(view_ids(&undone), view_ids(&View::replay(&without, Rules::Sound)));
    }

    #[test]
    fn the_openhands_rebuild_agrees_with_its_twin(ops in ops(60)) {
        let mut events = log(&ops);
        events.retain(|event| !matches!(event.kind, EventKind::Undo(_)));
        let view = View::replay(&events, Rules::OpenHands);
        let (ids, removed) = openhands_twin(&events);
        prop_assert_eq!(view_ids(&view), ids);
        let dropped: Vec<(Property, Vec<EventId>)> =
            view.diagnostics().dropped.iter().map(|dropped| (dropped.property, dropped.ids.clone())).collect();
        prop_assert_eq!(dropped, removed);
    }

    #[test]
    fn every_history_lowers_to_a_valid_request(ops in ops(60)) {
        let events = log(&ops);
        for rules in [Rules::Sound, Rules::OpenHands] {
            let view = one_at_a_time(&events, rules).0;
            let request = Request::build(&view, &events).to_openai_chat();
            prop_assert_eq!(validate_openai_chat(&request), vec![], "{}", request);
        }
    }

    #[test]
    fn kept_entries_keep_the_order_of_the_log(ops in ops(60)) {
        let events = log(&ops);
        let view = View::replay(&events, Rules::Sound);
        let replaced = view.diagnostics().replaced_answers > 0;
        let seqs: Vec<usize> = view.iter().filter(|entry| !entry.is_summary()).map(|entry| entry.seq()).collect();
        prop_assert!(replaced || seqs.is_sorted(), "{:?}", seqs);
    }

    #[test]
    fn a_preview_shows_what_the_record_will_do(ops in ops(50)) {
        let events = log(&ops);
        let Some(last) = events.iter().rposition(|event| event.class() == Class::Condensation) else {
            return Ok(());
        };
        if events[..last].iter().any(|event| event.id == events[last].id) {
            // A second event with its id is refused, and a preview has an id of its own.
            return Ok(());
        }
        let view = View::replay(&events[..last], Rules::Sound);
        let preview = view.preview(&events[last].id, events[last].condensation().unwrap());
        let mut applied = view;
        applied.push(&events[last]);
        prop_assert_eq!(view_ids(&preview), view_ids(&applied));
        prop_assert_eq!(
            preview.manipulation_indices().collect::<Vec<_>>(),
            applied.manipulation_indices().collect::<Vec<_>>()
        );
    }
}
