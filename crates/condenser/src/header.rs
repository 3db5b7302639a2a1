//! What a view needs to know of an event: its header, with ids interned to integers.

use std::collections::HashMap;
use std::sync::Arc;

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
#[derive(Clone, Debug, Default)]
struct Table {
    by_name: HashMap<EventId, u32>,
    names: Vec<EventId>,
}

impl Table {
    fn intern(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.by_name.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        let name = EventId::new(name);
        self.names.push(name.clone());
        self.by_name.insert(name, number);
        number
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
        &self.events.names[number as usize]
    }

    pub(crate) fn find_event(&self, id: &str) -> Option<u32> {
        self.events.by_name.get(id).copied()
    }

    pub(crate) fn n_events(&self) -> usize {
        self.events.names.len()
    }

    pub(crate) fn n_calls(&self) -> usize {
        self.calls.names.len()
    }

    pub(crate) fn n_responses(&self) -> usize {
        self.responses.names.len()
    }
}
