//! Puts canaries into a trace.

use std::collections::HashSet;

use condenser::event::{ContentBlock, Event, EventId, EventKind, Message, Role, Source};

use super::CanaryKind;
use super::values::{Said, say};
use crate::probes::{Unit, text};
use crate::random::SplitMix64;
use crate::trace::is_written;

/// The fewest places that a trace must have.
const MIN_PLACES: usize = 10;
/// How far a canary may stand from its depth, and how much later it is repeated or corrected.
const JITTER: f64 = 0.02;
const LATER: f64 = 0.03;

/// What is planted, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Planting {
    /// Where the random numbers start.
    pub seed: u64,
    /// A canary of each kind at each of these depths: shares of the trace, counted in steps, from 0 to 1.
    pub depths: Vec<f64>,
}

impl Default for Planting {
    /// Four of each kind in the first fifth, so that several rounds follow.
    fn default() -> Self {
        Self { seed: 0, depths: vec![0.05, 0.1, 0.15, 0.2] }
    }
}

/// One planted canary.
#[derive(Clone, Debug)]
pub struct Canary {
    /// The kind.
    pub kind: CanaryKind,
    /// The events that hold it.
    pub sources: Vec<EventId>,
    pub(crate) units: Vec<Unit>,
    pub(crate) stale: Vec<String>,
}

/// A trace with canaries.
#[derive(Clone, Debug)]
pub struct Planted {
    /// The events.
    pub events: Vec<Event>,
    /// What was planted, by depth, then by kind.
    pub canaries: Vec<Canary>,
}

/// Why nothing was planted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlantError {
    /// The trace is too short.
    #[error("the trace has {places} steps before which a user could speak; canaries need at least 10")]
    TooShort {
        /// The places.
        places: usize,
    },
    /// A depth is no share.
    #[error("a depth is a number from 0 to 1, and not {0}")]
    Depth(f64),
    /// There are no depths.
    #[error("name at least one depth")]
    NoDepth,
}

/// Plants canaries. The same seed, depths and trace give the same.
///
/// # Errors
/// [`PlantError`] where the trace is too short or a depth makes no sense.
pub fn plant(events: &[Event], planting: &Planting) -> Result<Planted, PlantError> {
    if planting.depths.is_empty() {
        return Err(PlantError::NoDepth);
    }
    if let Some(&depth) = planting.depths.iter().find(|depth| !(0.0..=1.0).contains(*depth)) {
        return Err(PlantError::Depth(depth));
    }
    let places = places(events);
    if places.len() < MIN_PLACES {
        return Err(PlantError::TooShort { places: places.len() });
    }
    let texts: Vec<String> = events.iter().map(|event| text::of_kind(&event.kind)).collect();
    let is_taken = |value: &str| texts.iter().any(|text| text.contains(value));
    let mut garden = Garden {
        random: SplitMix64(planting.seed ^ 0xc0ff_ee00_0000_0000),
        places,
        ids: events.iter().map(|event| &event.id).collect(),
        inserted: Vec::new(),
        events: events.to_vec(),
    };
    let mut canaries = Vec::new();
    for (number, depth) in planting.depths.iter().enumerate() {
        for kind in CanaryKind::ALL {
            let said = say(kind, &mut garden.random, &is_taken);
            canaries.push(garden.plant(kind, said, *depth, number));
        }
    }
    Ok(Planted { events: garden.grown(), canaries })
}

/// The events before which a user could speak: the first of each step after the first user message, all calls answered.
fn places(events: &[Event]) -> Vec<usize> {
    let mut open: HashSet<&str> = HashSet::new();
    let mut response: Option<&str> = None;
    let mut has_user = false;
    let mut places = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if is_written(event) {
            let goes_on = response.is_some() && response == event.response_id();
            if has_user && open.is_empty() && !goes_on {
                places.push(at);
            }
            response = event.response_id();
        }
        match &event.kind {
            EventKind::Action(action) => {
                open.insert(&action.call_id);
            }
            EventKind::Observation(observation) => {
                open.remove(observation.call_id.as_str());
            }
            EventKind::Message(message) => has_user |= message.role == Role::User,
            _ => {}
        }
    }
    places
}

struct Garden<'e> {
    random: SplitMix64,
    places: Vec<usize>,
    ids: HashSet<&'e EventId>,
    /// New events, each with the position before which it goes.
    inserted: Vec<(usize, Event)>,
    events: Vec<Event>,
}

impl Garden<'_> {
    fn plant(&mut self, kind: CanaryKind, said: Said, depth: f64, number: usize) -> Canary {
        let jitter = JITTER * (self.random.below(1_000) as f64 / 500.0 - 1.0);
        let depth = depth + jitter;
        let by_tool = matches!(kind, CanaryKind::Fact | CanaryKind::NearDuplicates | CanaryKind::ExactList)
            && (number + self.random.below(2)).is_multiple_of(2);
        if let Some(before) = said.before {
            self.say(&before, depth);
        }
        // A correction comes later than what it corrects, and so does what is said again.
        let first = if said.stale.is_empty() { depth } else { depth + LATER };
        let n_times = if self.random.below(3) == 0 { 2 } else { 1 };
        let start = self.random.below(said.wordings.len());
        let sources = (0..n_times).map(|time| {
            let wording = &said.wordings[(start + time) % said.wordings.len()];
            let depth = first + LATER * time as f64;
            let slipped = if by_tool { self.slip(wording, depth) } else { None };
            slipped.unwrap_or_else(|| self.say(wording, depth))
        });
        Canary { kind, sources: sources.collect(), units: said.units, stale: said.stale }
    }

    fn place(&self, depth: f64) -> usize {
        let last = self.places.len() - 1;
        self.places[((depth.clamp(0.0, 1.0) * last as f64) as usize).min(last)]
    }

    /// Lets the user say it.
    fn say(&mut self, text: &str, depth: f64) -> EventId {
        const AROUND: [(&str, &str); 4] = [
            ("", ""),
            ("Before you go on: ", ""),
            ("", " Now please continue."),
            ("Something else. ", " That is all."),
        ];
        let (before, after) = AROUND[self.random.below(AROUND.len())];
        let mut id = EventId::new(format!("planted-{}", self.inserted.len() + 1));
        while self.ids.contains(&id) {
            id = EventId::new(format!("{id}-"));
        }
        let message = Message::text(Role::User, format!("{before}{text}{after}"));
        let event = Event::new(id.clone(), Source::User, EventKind::Message(message));
        self.inserted.push((self.place(depth), event));
        id
    }

    /// Puts it into the next result as a line of its own, at the beginning, in the middle or at the end.
    fn slip(&mut self, text: &str, depth: f64) -> Option<EventId> {
        let from = self.place(depth);
        let place = self.random.below(3);
        let (id, block) = self.events[from..].iter_mut().find_map(first_text)?;
        let mut lines: Vec<&str> = block.split('\n').collect();
        let at = lines.len() * place / 2;
        lines.insert(at, text);
        *block = lines.join("\n");
        Some(id.clone())
    }

    /// The events with what was inserted.
    fn grown(mut self) -> Vec<Event> {
        // Stable: what was said first stands first.
        self.inserted.sort_by_key(|(at, _)| *at);
        let mut inserted = self.inserted.into_iter().peekable();
        let mut grown = Vec::with_capacity(self.events.len() + inserted.len());
        for (at, event) in self.events.into_iter().enumerate() {
            while let Some((_, new)) = inserted.next_if(|(place, _)| *place == at) {
                grown.push(new);
            }
            grown.push(event);
        }
        grown
    }
}

/// The first text of a result that is not blank, with the result's id.
fn first_text(event: &mut Event) -> Option<(&EventId, &mut String)> {
    let EventKind::Observation(observation) = &mut event.kind else { return None };
    let text = observation.content.iter_mut().find_map(|block| match block {
        ContentBlock::Text { text, .. } if !text.trim().is_empty() => Some(text),
        _ => None,
    })?;
    Some((&event.id, text))
}
