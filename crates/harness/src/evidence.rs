//! Evidence: what each action used, and where the agent had it from. The same for every policy of a trace.
//!
//! An item of an action is evidence unless it stands in a system prompt, a tool schema, the first user message or an
//! event pinned at that step, or in more than a fifth of the earlier shown events, and if it has a source: an
//! observation, or a user message after the first, that came before the step and stands in its request under `none`.
//!
//! It is a first use unless what the agent wrote in earlier steps holds it: arguments, thoughts and messages, but not
//! thinking, which requests do not repeat. What the same response says beside the action does not count, since both
//! answer one request. A source is as many steps back as its observation; what stands before the first step is one
//! step back there.

use condenser::event::{Event, EventId, EventKind, Role};
use condenser::recall::Recall;
use condenser::request::text_of;
use hashbrown::{HashMap, HashSet};

use crate::items::{ItemId, Items};
use crate::trace::{ById, Presence, StepSpan, is_written};

/// From this many steps back on, a source is far.
const FAR: usize = 5;

/// The items of a trace and who holds them.
#[derive(Debug)]
pub(crate) struct Evidence {
    items: Items,
    /// By event: the items it holds, sorted.
    held: Vec<Vec<ItemId>>,
    /// By event: the events whose addresses its text holds.
    addresses: Vec<Vec<usize>>,
    /// By item: the events that hold it, oldest first.
    holders: Vec<Vec<usize>>,
    /// By event: whether it can be a source: an observation, or a user message after the first.
    sources: Vec<bool>,
}

/// The uses of evidence of one step.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// First uses.
    pub(crate) first: Vec<Use>,
    /// How many later uses there are.
    pub(crate) self_carried: u64,
}

/// One item that an action used for the first time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) item: ItemId,
    pub(crate) is_far: bool,
}

/// What an entry that is not shown as stored holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holding {
    pub(crate) items: Vec<ItemId>,
    pub(crate) addresses: Vec<usize>,
}

impl Evidence {
    pub(crate) fn find(
        events: &[&Event],
        by_id: &ById<'_>,
        steps: &[StepSpan],
        presence: &Presence,
    ) -> (Self, Vec<Uses>) {
        let mut items = Items::default();
        let mut used: HashMap<usize, Vec<ItemId>> = HashMap::new();
        for &event in steps.iter().flat_map(|step| &step.written) {
            if let EventKind::Action(action) = &events[event].kind {
                used.insert(event, items.add_arguments(&action.arguments));
            }
        }
        let mut evidence = Self {
            held: events.iter().map(|event| held_by_kind(&items, &event.kind)).collect(),
            addresses: events.iter().map(|event| addresses(&text_of(&event.kind), by_id)).collect(),
            holders: vec![Vec::new(); items.len()],
            sources: Vec::new(),
            items,
        };
        for (event, held) in evidence.held.iter().enumerate() {
            held.iter().for_each(|&item| evidence.holders[item as usize].push(event));
        }
        let first_user = events.iter().position(|event| is_user_message(event));
        evidence.sources = events
            .iter()
            .enumerate()
            .map(|(index, event)| {
                matches!(event.kind, EventKind::Observation(_)) || is_user_message(event) && Some(index) != first_user
            })
            .collect();
        let uses = evidence.uses(events, by_id, steps, presence, first_user, &used);
        (evidence, uses)
    }

    fn uses(
        &self,
        events: &[&Event],
        by_id: &ById<'_>,
        steps: &[StepSpan],
        presence: &Presence,
        first_user: Option<usize>,
        used: &HashMap<usize, Vec<ItemId>>,
    ) -> Vec<Uses> {
        let standing = self.standing(events, first_user);
        let mut pinned: HashSet<usize> = HashSet::new();
        let (mut n_pushed, mut n_shown) = (0, 0);
        let mut step_of = vec![None; events.len()];
        let mut all = Vec::with_capacity(steps.len());
        for (step, span) in steps.iter().enumerate() {
            for event in &events[n_pushed..span.events.start] {
                n_shown += usize::from(event.kind.is_shown());
                match &event.kind {
                    EventKind::Pin(pin) => pinned.extend(pin.ids.iter().filter_map(|id| by_id.get(id))),
                    EventKind::Unpin(pin) => pin.ids.iter().filter_map(|id| by_id.get(id)).for_each(|event| {
                        pinned.remove(event);
                    }),
                    _ => {}
                }
            }
            n_pushed = span.events.start;
            step_of[span.events.clone()].fill(Some(step));
            let mut uses = Uses::default();
            for &item in span.written.iter().filter_map(|event| used.get(event)).flatten() {
                let holders = &self.holders[item as usize];
                let earlier = &holders[..holders.partition_point(|&event| event < span.events.start)];
                let is_common = earlier.len() * 5 > n_shown;
                if is_common || standing.contains(&item) || earlier.iter().any(|event| pinned.contains(event)) {
                    continue;
                }
                let Some(newest) = self.shown_sources(item, span.events.start, step, presence).next() else { continue };
                if earlier.iter().any(|&event| is_written(events[event])) {
                    uses.self_carried += 1;
                } else {
                    // What stands before the first step is one step back at the first step.
                    let steps_back = step_of[newest].map_or(step + 1, |answered: usize| step - answered);
                    uses.first.push(Use { item, is_far: steps_back >= FAR });
                }
            }
            all.push(uses);
        }
        all
    }

    /// By item: its text.
    pub(crate) fn texts(&self) -> Vec<&str> {
        self.items.texts()
    }

    /// Items of system prompts, tool schemas and the first user message.
    fn standing(&self, events: &[&Event], first_user: Option<usize>) -> HashSet<ItemId> {
        let mut standing: HashSet<ItemId> = first_user.into_iter().flat_map(|event| self.held[event].clone()).collect();
        for (event, held) in events.iter().zip(&self.held) {
            if let EventKind::SystemPrompt(prompt) = &event.kind {
                standing.extend(held);
                standing.extend(prompt.tools.iter().flat_map(|tool| self.items.held_by(&tool.to_string())));
            }
        }
        standing
    }

    /// The sources of an item that stand in the step's request under `none`, newest first.
    pub(crate) fn shown_sources<'s>(
        &'s self,
        item: ItemId,
        before: usize,
        step: usize,
        presence: &'s Presence,
    ) -> impl Iterator<Item = usize> + 's {
        self.sources_before(item, before).filter(move |&event| presence.shows(event, step))
    }

    /// The events before `before` that can be sources of an item, newest first.
    pub(crate) fn sources_before(&self, item: ItemId, before: usize) -> impl Iterator<Item = usize> + '_ {
        self.holders_before(item, before).filter(|&event| self.sources[event])
    }

    /// The events before `before` that hold an item, newest first.
    pub(crate) fn holders_before(&self, item: ItemId, before: usize) -> impl Iterator<Item = usize> + '_ {
        let holders = &self.holders[item as usize];
        holders[..holders.partition_point(|&event| event < before)].iter().rev().copied()
    }

    /// The events whose addresses an event's own text holds.
    pub(crate) fn addresses(&self, event: usize) -> &[usize] {
        &self.addresses[event]
    }

    /// What a rewritten entry holds.
    pub(crate) fn of_kind(&self, kind: &EventKind, by_id: &ById<'_>) -> Holding {
        Holding { items: held_by_kind(&self.items, kind), addresses: addresses(&text_of(kind), by_id) }
    }

    /// What a summary holds.
    pub(crate) fn of_text(&self, text: &str, by_id: &ById<'_>) -> Holding {
        Holding { items: self.items.held_by(text), addresses: addresses(text, by_id) }
    }

    /// The items that following an event's address gives, sorted.
    pub(crate) fn behind(&self, id: &EventId, recall: &dyn Recall) -> Vec<ItemId> {
        recall.bytes(id, None).map_or_else(Vec::new, |bytes| self.items.held_by(&String::from_utf8_lossy(&bytes)))
    }
}

pub(crate) fn is_user_message(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Message(message) if message.role == Role::User)
}

fn held_by_kind(items: &Items, kind: &EventKind) -> Vec<ItemId> {
    let EventKind::Action(action) = kind else { return items.held_by(&text_of(kind)) };
    // As decoded: in the JSON text, `\n` would stick to the word after it.
    let mut held = items.held_by_arguments(&action.arguments);
    held.extend(action.thought.iter().filter_map(|block| block.as_text()).flat_map(|text| items.held_by(text)));
    held.sort_unstable();
    held.dedup();
    held
}

/// The events that a text names as `[event <id>]`.
pub(crate) fn addresses(text: &str, by_id: &ById<'_>) -> Vec<usize> {
    let named = text.split("[event ").skip(1).filter_map(|rest| rest.split_once(']'));
    let mut found: Vec<usize> = named.filter_map(|(id, _)| by_id.get(&EventId::from(id)).copied()).collect();
    found.sort_unstable();
    found.dedup();
    found
}
