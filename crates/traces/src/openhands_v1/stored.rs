//! A stored event that stays text.

use std::borrow::Cow;

use condenser::event::{Event, EventId};
use condenser::{Class, Condensation, EventHeader};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::event::{LoadError, Mode, parse_event};

/// A stored event of which only the header was read: all that a view needs, at a fraction of the cost of reading it
/// whole. [`StoredEvent::event`] reads the rest when a request needs it.
#[derive(Clone, Debug)]
pub struct StoredEvent<'t> {
    text: &'t str,
    id: Cow<'t, str>,
    class: Class,
    call: Option<Cow<'t, str>>,
    response: Option<Cow<'t, str>>,
    thinking: bool,
    interim: bool,
    record: Option<Box<Condensation>>,
}

/// Why a text is not a stored event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The text is not one JSON value.
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The value is not an event.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl<'t> StoredEvent<'t> {
    /// Reads the header of one event's JSON text, leniently: it is the header that [`parse_event`] with
    /// [`Mode::Lenient`] gives.
    ///
    /// # Errors
    ///
    /// [`StoredError`], as [`parse_event`] in that mode.
    pub fn read(text: &'t str) -> Result<Self, StoredError> {
        if let Ok(fields) = serde_json::from_str::<Fields<'t>>(text)
            && let Some(stored) = Self::of_usual(text, fields)
        {
            return Ok(stored);
        }
        let event = parse_event(serde_json::from_str(text)?, Mode::Lenient)?;
        let own = |text: Option<&str>| text.map(|text| Cow::Owned(text.to_owned()));
        Ok(Self {
            text,
            id: Cow::Owned(event.id.as_str().to_owned()),
            class: event.class(),
            call: own(event.call_id()),
            response: own(event.response_id()),
            thinking: event.has_thinking(),
            interim: event.is_interim(),
            record: event.condensation().cloned().map(Box::new),
        })
    }

    /// The header of an event in the SDK's own shape; `None` for any other.
    fn of_usual(text: &'t str, fields: Fields<'t>) -> Option<Self> {
        let mut stored = Self {
            text,
            id: fields.id.0,
            class: Class::Other,
            call: None,
            response: None,
            thinking: false,
            interim: false,
            record: None,
        };
        let response = fields.llm_response_id.map(|id| id.0);
        match &*fields.kind.0 {
            "SystemPromptEvent" => stored.class = Class::SystemPrompt,
            "MessageEvent" => {
                let role = fields.llm_message?.role.0;
                stored.class = matches!(&*role, "user" | "assistant" | "system" | "tool").then_some(Class::Message)?;
                stored.response = response;
            }
            "ActionEvent" => {
                stored.class = Class::Action;
                stored.call = Some(fields.tool_call_id?.0);
                stored.response = response;
                stored.thinking = fields.thinking_blocks.is_some_and(|blocks| !blocks.is_empty());
            }
            kind @ ("ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent") => {
                stored.class = Class::Observation;
                stored.call = Some(fields.tool_call_id?.0);
                stored.interim = kind == "AgentErrorEvent";
            }
            "Condensation" => {
                stored.class = Class::Condensation;
                stored.record = Some(Box::new(Condensation {
                    forgotten_event_ids: fields.forgotten_event_ids?.iter().map(|id| EventId::from(&*id.0)).collect(),
                    summary: fields.summary.map(|summary| summary.0.into_owned()),
                    summary_offset: fields.summary_offset,
                    llm_response_id: response.map(Cow::into_owned),
                    ..Condensation::default()
                }));
            }
            "CondensationRequest" => stored.class = Class::CondensationRequest,
            "CondensationSummaryEvent" => return None,
            _ => {}
        }
        Some(stored)
    }

    /// The text as it was given.
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// Reads the whole event.
    ///
    /// # Errors
    ///
    /// As [`parse_event`].
    pub fn event(&self, mode: Mode) -> Result<Event, StoredError> {
        Ok(parse_event(serde_json::from_str(self.text)?, mode)?)
    }
}

impl EventHeader for StoredEvent<'_> {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> Class {
        self.class
    }

    fn call_id(&self) -> Option<&str> {
        self.call.as_deref()
    }

    fn response_id(&self) -> Option<&str> {
        self.response.as_deref()
    }

    fn has_thinking(&self) -> bool {
        self.thinking
    }

    fn is_interim(&self) -> bool {
        self.interim
    }

    fn condensation(&self) -> Option<&Condensation> {
        self.record.as_deref()
    }
}

#[derive(Deserialize)]
struct Fields<'t> {
    #[serde(borrow)]
    id: Text<'t>,
    #[serde(borrow)]
    kind: Text<'t>,
    #[serde(borrow)]
    tool_call_id: Option<Text<'t>>,
    #[serde(borrow)]
    llm_response_id: Option<Text<'t>>,
    thinking_blocks: Option<Vec<IgnoredAny>>,
    #[serde(borrow)]
    llm_message: Option<MessageFields<'t>>,
    #[serde(borrow)]
    forgotten_event_ids: Option<Vec<Text<'t>>>,
    #[serde(borrow)]
    summary: Option<Text<'t>>,
    summary_offset: Option<usize>,
}

#[derive(Deserialize)]
struct MessageFields<'t> {
    #[serde(borrow)]
    role: Text<'t>,
}

/// Text that is borrowed where it has no escapes; serde does that for a [`Cow`] in a field, and not in an `Option`.
#[derive(Deserialize)]
struct Text<'t>(#[serde(borrow)] Cow<'t, str>);
