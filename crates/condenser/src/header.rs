//! What a view needs to know of an event: its header, with ids interned to integers.

use std::hash::BuildHasher as _;
use std::sync::{Arc, OnceLock};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::condensation::{Condensation, Rewrite};
use crate::event::{Event, EventId, EventKind};
use crate::tokens::Tokens;

/// What an event means to a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The system prompt; shown.
    SystemPrompt,
    /// A message of any role; shown.
    Message,
    /// A tool call; shown.
    Action,
    /// An answer to a tool call, errors and refusals included; shown.
    Observation,
    /// A condensation record.
    Condensation,
    /// A wish for a condensation.
    CondensationRequest,
    /// Takes a condensation back.
    Undo,
    /// Pins events.
    Pin,
    /// Unpins events.
    Unpin,
    /// Anything a view ignores.
    Other,
}

impl Class {
    /// Whether entries of this class are shown to the model.
    pub fn is_shown(self) -> bool {
        matches!(self, Self::SystemPrompt | Self::Message | Self::Action | Self::Observation)
    }
}

/// All that a view asks of an event. A host implements it for its own type and keeps its own bodies.
pub trait EventHeader {
    /// The event's id.
    fn id(&self) -> &str;
    /// What the event means to a view.
    fn class(&self) -> Class;
    /// The call that an action makes or an observation answers.
    fn call_id(&self) -> Option<&str> {
        None
    }
    /// The model response an action belongs to. `None`: a response of its own.
    fn response_id(&self) -> Option<&str> {
        None
    }
    /// Whether an action carries thinking blocks.
    fn has_thinking(&self) -> bool {
        false
    }
    /// Whether a later answer to the same call replaces this observation.
    fn is_interim(&self) -> bool {
        false
    }
    /// The size of the shown event, where known.
    fn tokens(&self) -> Option<Tokens> {
        None
    }
    /// The record of a condensation.
    fn condensation(&self) -> Option<&Condensation> {
        None
    }
    /// Calls `visit` with each id that an undo, pin or unpin names.
    fn named_ids(&self, visit: &mut dyn FnMut(&str)) {
        let _ = visit;
    }
}

impl EventHeader for Event {
    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn class(&self) -> Class {
        match self.kind {
            EventKind::SystemPrompt(_) => Class::SystemPrompt,
            EventKind::Message(_) => Class::Message,
            EventKind::Action(_) => Class::Action,
            EventKind::Observation(_) => Class::Observation,
            EventKind::Condensation(_) => Class::Condensation,
            EventKind::CondensationRequest(_) => Class::CondensationRequest,
            EventKind::Undo(_) => Class::Undo,
            EventKind::Pin(_) => Class::Pin,
            EventKind::Unpin(_) => Class::Unpin,
            EventKind::CondensationFailed(_) | EventKind::Unknown(_) => Class::Other,
        }
    }

    fn call_id(&self) -> Option<&str> {
        match &self.kind {
            EventKind::Action(action) => Some(&action.call_id),
            EventKind::Observation(observation) => Some(&observation.call_id),
            _ => None,
        }
    }

    fn response_id(&self) -> Option<&str> {
        Event::response_id(self)
    }

    fn has_thinking(&self) -> bool {
        matches!(&self.kind, EventKind::Action(action) if !action.thinking.is_empty())
    }

    fn is_interim(&self) -> bool {
        matches!(&self.kind, EventKind::Observation(observation) if observation.interim)
    }

    fn condensation(&self) -> Option<&Condensation> {
        match &self.kind {
            EventKind::Condensation(record) => Some(record),
            _ => None,
        }
    }

    fn named_ids(&self, visit: &mut dyn FnMut(&str)) {
        match &self.kind {
            EventKind::Undo(undo) => visit(undo.condensation.as_str()),
            EventKind::Pin(pin) | EventKind::Unpin(pin) => pin.ids.iter().for_each(|id| visit(id.as_str())),
            _ => {}
        }
    }
}

/// "No id" in the integer fields of a header.
pub(crate) const NONE: u32 = u32::MAX;

/// A header with its ids interned in [`Names`]. Made by [`Names::header`].
#[derive(Clone, Debug)]
pub struct Header {
    pub(crate) id: u32,
    pub(crate) call: u32,
    pub(crate) response: u32,
    pub(crate) class: Class,
    pub(crate) thinking: bool,
    pub(crate) interim: bool,
    pub(crate) tokens: Option<u32>,
    pub(crate) payload: Option<Arc<Payload>>,
}

/// The rare part of a header.
#[derive(Debug)]
pub(crate) enum Payload {
    Record(RecordHeader),
    Named(Vec<u32>),
}

/// A condensation with its ids interned.
#[derive(Debug)]
pub(crate) struct RecordHeader {
    pub(crate) forgotten: Vec<u32>,
    pub(crate) rewrites: Vec<(u32, Arc<Rewrite>)>,
    pub(crate) summary: Option<(Arc<str>, usize)>,
    pub(crate) summary_id: u32,
}

/// One id space: text to dense integers and back.
///
/// The text lies in one piece. An [`EventId`] is made when somebody asks for it, the index when a name is looked up, so
/// that names read back from a log cost no more than their bytes.
#[derive(Clone, Debug, Default)]
struct Table {
    text: String,
    /// Where each name ends.
    ends: Vec<usize>,
    ids: OnceLock<Vec<OnceLock<EventId>>>,
    index: OnceLock<HashTable<Key>>,
    hasher: DefaultHashBuilder,
}

/// A number by its name, with the name's hash so that growing reads no text.
#[derive(Clone, Copy, Debug)]
struct Key {
    hash: u32,
    number: u32,
}

impl Key {
    /// Both ends of what a table wants of a hash, from the half that is kept.
    fn spread(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.hash)
    }
}

impl Table {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn name(&self, number: u32) -> &str {
        name_at(&self.text, &self.ends, number)
    }

    fn hash(&self, name: &str) -> u32 {
        self.hasher.hash_one(name) as u32
    }

    fn push(&mut self, name: &str) -> u32 {
        let number = self.ends.len() as u32;
        self.text.push_str(name);
        self.ends.push(self.text.len());
        if let Some(ids) = self.ids.get_mut() {
            ids.push(OnceLock::new());
        }
        number
    }

    /// Adds a name that is not there.
    fn add(&mut self, name: &str) -> u32 {
        let number = self.push(name);
        if self.index.get().is_some() {
            let key = Key { hash: self.hash(name), number };
            if let Some(index) = self.index.get_mut() {
                index.insert_unique(key.spread(), key, |key| key.spread());
            }
        }
        number
    }

    fn id(&self, number: u32) -> &EventId {
        let ids = self.ids.get_or_init(|| vec![OnceLock::new(); self.len()]);
        ids[number as usize].get_or_init(|| EventId::new(self.name(number)))
    }

    fn index(&self) -> &HashTable<Key> {
        self.index.get_or_init(|| {
            let mut index = HashTable::with_capacity(self.len());
            for number in 0..self.len() as u32 {
                let key = Key { hash: self.hash(self.name(number)), number };
                index.insert_unique(key.spread(), key, |key| key.spread());
            }
            index
        })
    }

    fn find(&self, name: &str) -> Option<u32> {
        let wanted = Key { hash: self.hash(name), number: NONE };
        let is_it = |key: &Key| key.hash == wanted.hash && self.name(key.number) == name;
        self.index().find(wanted.spread(), is_it).map(|key| key.number)
    }

    fn intern(&mut self, name: &str) -> u32 {
        self.index();
        let new = Key { hash: self.hash(name), number: self.len() as u32 };
        let Self { text, ends, index, .. } = self;
        let Some(index) = index.get_mut() else { return new.number };
        let is_it = |key: &Key| key.hash == new.hash && name_at(text, ends, key.number) == name;
        match index.entry(new.spread(), is_it, |key| key.spread()) {
            Entry::Occupied(entry) => entry.get().number,
            Entry::Vacant(entry) => {
                entry.insert(new);
                self.push(name)
            }
        }
    }
}

fn name_at<'t>(text: &'t str, ends: &[usize], number: u32) -> &'t str {
    let number = number as usize;
    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
    &text[start..ends[number]]
}

/// A header as a store keeps it: integers alone, the numbers of names in [`Names`].
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The event.
    pub id: u32,
    /// The call that an action makes or an observation answers.
    pub call: Option<u32>,
    /// The response an action belongs to.
    pub response: Option<u32>,
    /// What the event means to a view.
    pub class: Class,
    /// Whether an action carries thinking blocks.
    pub thinking: bool,
    /// Whether a later answer to the same call replaces this observation.
    pub interim: bool,
    /// The size of the shown event, where known.
    pub tokens: Option<u32>,
}

/// What the header of a condensation, undo, pin or unpin holds beyond [`Numbers`], its ids as numbers of events.
#[derive(Clone, Debug)]
pub enum Held {
    /// Of a condensation.
    Record {
        /// The entries that leave the view; distinct.
        forgotten: Vec<u32>,
        /// The entries whose content changes.
        rewrites: Vec<(u32, Rewrite)>,
        /// The summary and its offset, where both exist.
        summary: Option<(String, usize)>,
        /// The name of the summary's entry, whether it has a summary or not.
        summary_id: u32,
    },
    /// Of the others: the ids they name.
    Ids(Vec<u32>),
}

impl Header {
    /// The header as integers; the record of a condensation and the ids that an undo or a pin names are not in it.
    pub fn numbers(&self) -> Numbers {
        let some = |number: u32| (number != NONE).then_some(number);
        Numbers {
            id: self.id,
            call: some(self.call),
            response: some(self.response),
            class: self.class,
            thinking: self.thinking,
            interim: self.interim,
            tokens: self.tokens,
        }
    }
}

/// The interned ids of one log: events, calls and responses are separate spaces.
#[derive(Clone, Debug, Default)]
pub struct Names {
    events: Table,
    calls: Table,
    responses: Table,
}

impl Names {
    /// Adds the id of a store's next event, which must not be there yet, and gives its number. Unlike
    /// [`Names::header`], it looks nothing up. What a record forgets, rewrites or shows as its summary counts among the
    /// events too.
    pub fn add_event(&mut self, id: &str) -> u32 {
        self.events.add(id)
    }

    /// The number of a call, a new one where its id was not there.
    pub fn intern_call(&mut self, id: &str) -> u32 {
        self.calls.intern(id)
    }

    /// The number of a response, a new one where its id was not there.
    pub fn intern_response(&mut self, id: &str) -> u32 {
        self.responses.intern(id)
    }

    /// The header that a store kept as integers, without touching any text. `None` where a number is beyond the names,
    /// and for the classes whose header holds more: condensation, undo, pin and unpin; those go through
    /// [`Names::header_with`] or [`Names::header`].
    pub fn header_of(&self, numbers: Numbers) -> Option<Header> {
        let has_more = matches!(numbers.class, Class::Condensation | Class::Undo | Class::Pin | Class::Unpin);
        if has_more { None } else { self.plain(numbers) }
    }

    /// As [`Names::header_of`], of a condensation, undo, pin or unpin, with the ids that it holds as numbers of events.
    /// `None` where a number is beyond the names, or `held` does not belong to the class.
    pub fn header_with(&self, numbers: Numbers, held: Held) -> Option<Header> {
        let known = |number: u32| (number as usize) < self.events.len();
        let payload = match (numbers.class, held) {
            (Class::Condensation, Held::Record { forgotten, rewrites, summary, summary_id }) => {
                let rewritten = rewrites.iter().map(|(id, _)| *id);
                if !forgotten.iter().copied().chain(rewritten).chain([summary_id]).all(known) {
                    return None;
                }
                let rewrites = rewrites.into_iter().map(|(id, rewrite)| (id, Arc::new(rewrite))).collect();
                let summary = summary.map(|(text, offset)| (Arc::from(text), offset));
                Payload::Record(RecordHeader { forgotten, rewrites, summary, summary_id })
            }
            (Class::Undo | Class::Pin | Class::Unpin, Held::Ids(ids)) if ids.iter().copied().all(known) => {
                Payload::Named(ids)
            }
            _ => return None,
        };
        Some(Header { payload: Some(Arc::new(payload)), ..self.plain(numbers)? })
    }

    fn plain(&self, numbers: Numbers) -> Option<Header> {
        let within = |number: Option<u32>, table: &Table| match number {
            Some(number) => ((number as usize) < table.len()).then_some(number),
            None => Some(NONE),
        };
        Some(Header {
            id: within(Some(numbers.id), &self.events)?,
            call: within(numbers.call, &self.calls)?,
            response: within(numbers.response, &self.responses)?,
            class: numbers.class,
            thinking: numbers.thinking,
            interim: numbers.interim,
            tokens: numbers.tokens,
            payload: None,
        })
    }

    /// The names of events, summaries and whatever records name, by number.
    pub fn event_names(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.events.len() as u32).map(|number| self.events.name(number))
    }

    /// Interns the ids of an event and gives its header.
    pub fn header<E: EventHeader + ?Sized>(&mut self, event: &E) -> Header {
        let class = event.class();
        let id = self.events.intern(event.id());
        let mut header = Header {
            id,
            call: NONE,
            response: NONE,
            class,
            thinking: false,
            interim: false,
            tokens: event.tokens().map(|tokens| u32::try_from(tokens.0).unwrap_or(u32::MAX)),
            payload: None,
        };
        match class {
            Class::Action | Class::Observation => {
                header.call = event.call_id().map_or(NONE, |call| self.calls.intern(call));
                if class == Class::Action {
                    header.response = event.response_id().map_or(NONE, |response| self.responses.intern(response));
                    header.thinking = event.has_thinking();
                } else {
                    header.interim = event.is_interim();
                }
            }
            Class::Condensation => {
                if let Some(record) = event.condensation() {
                    header.payload = Some(Arc::new(Payload::Record(self.record(event.id(), record))));
                }
            }
            Class::Undo | Class::Pin | Class::Unpin => {
                let mut named = Vec::new();
                event.named_ids(&mut |id| named.push(self.events.intern(id)));
                header.payload = Some(Arc::new(Payload::Named(named)));
            }
            _ => {}
        }
        header
    }

    pub(crate) fn record(&mut self, id: &str, record: &Condensation) -> RecordHeader {
        RecordHeader {
            forgotten: record.forgotten_event_ids.iter().map(|id| self.events.intern(id.as_str())).collect(),
            rewrites: record
                .rewrites
                .iter()
                .map(|(id, rewrite)| (self.events.intern(id.as_str()), Arc::new(rewrite.clone())))
                .collect(),
            summary: record.shown_summary().map(|(text, offset)| (Arc::from(text), offset)),
            summary_id: self.events.intern(&format!("{id}-summary")),
        }
    }

    /// The text of an interned event id.
    pub(crate) fn event(&self, number: u32) -> &EventId {
        self.events.id(number)
    }

    pub(crate) fn find_event(&self, id: &str) -> Option<u32> {
        self.events.find(id)
    }

    /// How many names of events there are.
    pub fn n_events(&self) -> usize {
        self.events.len()
    }

    /// The name of an event, by number. `None` beyond [`Names::n_events`].
    pub fn event_name(&self, number: u32) -> Option<&str> {
        ((number as usize) < self.n_events()).then(|| self.events.name(number))
    }

    pub(crate) fn n_calls(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn n_responses(&self) -> usize {
        self.responses.len()
    }
}
