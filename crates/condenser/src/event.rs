//! Events: what happened, in order, and never changed afterwards.
//!
//! An [`Event`] is a stored record with public fields. Its JSON is flat, tagged by `kind`, and carries
//! the schema version; optional fields that this version does not know survive reading and writing.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::condensation::Condensation;
pub use crate::foreign::Foreign;
use crate::unread::{Unread, is_block_type};

/// Major version of the event and record JSON. A reader refuses a newer one.
pub const SCHEMA_VERSION: u32 = 1;

/// The identity of an event: opaque text, a ULID when the log made it, the source's own id when imported.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct EventId(Arc<str>);

impl EventId {
    /// Wraps an id as given; no shape is required.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the entry that shows the summary of the condensation with this id.
    pub fn summary_id(&self) -> EventId {
        EventId::new(format!("{}-summary", self.0))
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for EventId {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

impl From<String> for EventId {
    fn from(id: String) -> Self {
        Self::new(id)
    }
}

impl Borrow<str> for EventId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// One thing that happened.
///
/// Order is the order of the log along a branch; `timestamp` is shown and never compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Unique in its log.
    pub id: EventId,
    /// The event before it on its branch; `None` for a root, or where the log order is the branch.
    pub parent: Option<EventId>,
    /// The foreign record an imported event came from.
    pub origin: Option<Origin>,
    /// When it happened, as the source wrote it.
    pub timestamp: Option<String>,
    /// Who made it.
    pub source: Source,
    /// What happened.
    pub kind: EventKind,
    /// What the provider reported for the response; on the first event of a response only.
    pub usage: Option<Usage>,
    /// Fields of the foreign record that have no place here, kept so that a writer can put them back.
    pub foreign: Foreign,
    /// Fields of our own JSON that this version does not know, kept unchanged.
    pub extra: Map<String, Value>,
    /// Likewise, of the objects inside; those inside a condensation stand with the record.
    pub unread: Unread,
}

/// Which foreign record an event came from, and which part of it.
///
/// One record may become several events. The first takes the record's id, the others `<id>#<n>`;
/// a writer joins events with equal `record` again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Origin {
    /// The record's own id, or its position in the file where it has none.
    pub record: String,
    /// 0 for the first event of the record.
    #[serde(default)]
    pub part: u32,
}

/// Who made an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Source {
    /// The model, or the loop around it.
    Agent,
    /// A person.
    User,
    /// Tools and the system around the agent.
    Environment,
    /// A configured hook.
    Hook,
}

/// Tokens that a provider reported for one response. The input counters are disjoint: their sum is the whole input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Input neither read from nor written to a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Input read from the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_tokens: Option<u64>,
    /// Input written to the prefix cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Output, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Usage {
    /// The whole input, or `None` where nothing, or only zeros, was reported: zero means "not reported".
    pub fn total_input(&self) -> Option<u64> {
        let total = [self.input_tokens, self.cache_read_tokens, self.cache_write_tokens]
            .into_iter()
            .flatten()
            .fold(0u64, u64::saturating_add);
        (total > 0).then_some(total)
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// The system prompt and the tools the model was offered.
    SystemPrompt(SystemPrompt),
    /// Text from a user or an assistant.
    Message(Message),
    /// One tool call of the model.
    Action(Action),
    /// One answer to a tool call.
    Observation(Observation),
    /// A decision about what later views leave out, rewrite and summarize.
    Condensation(Condensation),
    /// Somebody asked for a condensation.
    CondensationRequest(CondensationRequest),
    /// A condensation was tried and failed.
    CondensationFailed(CondensationFailed),
    /// A condensation that no longer applies.
    Undo(Undo),
    /// Events that no policy may forget or rewrite.
    Pin(Pin),
    /// Events that are no longer pinned.
    Unpin(Pin),
    /// A foreign kind, kept unchanged and never shown.
    Unknown(Unknown),
}

impl EventKind {
    /// The JSON tag.
    pub fn name(&self) -> &'static str {
        match self {
            Self::SystemPrompt(_) => "system_prompt",
            Self::Message(_) => "message",
            Self::Action(_) => "action",
            Self::Observation(_) => "observation",
            Self::Condensation(_) => "condensation",
            Self::CondensationRequest(_) => "condensation_request",
            Self::CondensationFailed(_) => "condensation_failed",
            Self::Undo(_) => "undo",
            Self::Pin(_) => "pin",
            Self::Unpin(_) => "unpin",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Whether a view shows events of this kind to the model.
    pub fn is_shown(&self) -> bool {
        matches!(self, Self::SystemPrompt(_) | Self::Message(_) | Self::Action(_) | Self::Observation(_))
    }
}

/// The system prompt with what belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SystemPrompt {
    /// The prompt, usually one text block.
    pub content: Vec<ContentBlock>,
    /// Text that may change from run to run, shown after the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dynamic_context: Vec<ContentBlock>,
    /// Tool schemas, as the source wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
}

/// Who speaks in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A system or developer instruction outside the system prompt.
    System,
    /// A tool; only in imported messages, results are [`Observation`]s.
    Tool,
}

/// Text from a user or an assistant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, thinking blocks included.
    #[serde(default)]
    pub content: Vec<ContentBlock>,
    /// A participant name, where the source gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The call that a message of role tool names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The model response this message is, shared with the actions of the same response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Reasoning that came as plain text beside the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Content that the host appended; shown after `content`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_content: Vec<ContentBlock>,
    /// Calls stored inside the message instead of as actions. `None` and empty differ for one peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Vec<ToolCall>>,
}

impl Message {
    /// A message of one text block.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            content: vec![ContentBlock::text(text)],
            name: None,
            call_id: None,
            response_id: None,
            reasoning: None,
            extended_content: Vec::new(),
            tool_calls: None,
        }
    }
}

/// A call stored inside a [`Message`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCall {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// JSON text, as the model wrote it.
    pub arguments: String,
}

/// One tool call of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action {
    /// The call's id: unique among open calls, and possibly used again later.
    pub call_id: String,
    /// The tool.
    pub tool_name: String,
    /// The arguments exactly as the model wrote them: JSON text, possibly broken.
    pub arguments: String,
    /// What the model said before the call. With parallel calls only the first carries it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thought: Vec<ContentBlock>,
    /// Reasoning that came as plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// Thinking blocks, signed or redacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<ContentBlock>,
    /// The model response, shared by all its actions. `None`: a response of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It ran.
    #[default]
    Ok,
    /// The tool, or the agent, reported an error.
    Error,
    /// A user or hook refused it.
    Rejected,
}

/// One answer to a tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observation {
    /// The call it answers.
    pub call_id: String,
    /// The tool.
    #[serde(default)]
    pub tool_name: String,
    /// The answer.
    #[serde(default)]
    pub content: Vec<ContentBlock>,
    /// Content that the host appended; shown after `content`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_content: Vec<ContentBlock>,
    /// How the call ended.
    #[serde(default)]
    pub outcome: Outcome,
    /// Whether a later answer to the same call replaces this one (a placeholder, a partial or a made-up answer).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interim: bool,
}

/// Somebody asked for a condensation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CondensationRequest {
    /// Who asked: `user`, `overflow`, or a host's own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// What the summary should care about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guidance: Option<String>,
}

/// A condensation that was tried and changed nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CondensationFailed {
    /// The policy that tried.
    pub policy: String,
    /// Why it failed, from facts.
    pub reason: String,
    /// Size of the complete request at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_before: Option<u64>,
    /// The limit that was to be met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// Takes one condensation back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Undo {
    /// The condensation that no longer applies.
    pub condensation: EventId,
}

/// Events named by a pin or unpin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pin {
    /// The events.
    pub ids: Vec<EventId>,
}

/// A foreign kind, kept unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unknown {
    /// The kind's name in its own format.
    pub foreign_kind: String,
    /// Everything it carried.
    pub payload: Value,
}

/// A piece of content.
///
/// In JSON, a block of a type beyond these stands for itself: it is `Other` here, and is written as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(transform = crate::schema::allow_foreign_blocks))]
#[serde(tag = "type", rename_all = "snake_case", remote = "Self")]
#[non_exhaustive]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Whether the source marked the prompt cache to end here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cache: bool,
    },
    /// One or more images.
    Image {
        /// References or `data:` URLs.
        urls: Vec<String>,
        /// Whether the source marked the prompt cache to end here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cache: bool,
    },
    /// Thinking, with the provider's signature where it has one.
    Thinking {
        /// The thinking text.
        thinking: String,
        /// The signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Thinking that the provider encrypted.
    RedactedThinking {
        /// The encrypted data.
        data: String,
    },
    /// Any other block, kept verbatim.
    Other {
        /// The block as the source wrote it.
        value: Value,
    },
}

fn is_foreign_block(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str).is_some_and(|kind| !is_block_type(kind))
}

impl Serialize for ContentBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Other { value } if is_foreign_block(value) => value.serialize(serializer),
            _ => Self::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ContentBlock {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if is_foreign_block(&value) {
            return Ok(Self::Other { value });
        }
        Self::deserialize(value).map_err(D::Error::custom)
    }
}

impl ContentBlock {
    /// A text block without a cache mark.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), cache: false }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Whether this is thinking, plain or redacted.
    pub fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::RedactedThinking { .. })
    }
}

impl Event {
    /// An event with an id, a source and a kind, and nothing else.
    pub fn new(id: impl Into<EventId>, source: Source, kind: EventKind) -> Self {
        Self {
            id: id.into(),
            parent: None,
            origin: None,
            timestamp: None,
            source,
            kind,
            usage: None,
            foreign: Foreign::default(),
            extra: Map::new(),
            unread: Unread::default(),
        }
    }

    /// The model response this event belongs to.
    pub fn response_id(&self) -> Option<&str> {
        match &self.kind {
            EventKind::Action(action) => action.response_id.as_deref(),
            EventKind::Message(message) => message.response_id.as_deref(),
            _ => None,
        }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Wire<'a> {
            schema: u32,
            id: &'a EventId,
            #[serde(skip_serializing_if = "Option::is_none")]
            parent: &'a Option<EventId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            origin: &'a Option<Origin>,
            #[serde(skip_serializing_if = "Option::is_none")]
            timestamp: &'a Option<String>,
            source: Source,
            #[serde(flatten)]
            kind: &'a EventKind,
            #[serde(skip_serializing_if = "Option::is_none")]
            usage: &'a Option<Usage>,
            #[serde(skip_serializing_if = "Foreign::is_empty")]
            foreign: &'a Foreign,
            #[serde(flatten)]
            extra: &'a Map<String, Value>,
        }
        let wire = Wire {
            schema: SCHEMA_VERSION,
            id: &self.id,
            parent: &self.parent,
            origin: &self.origin,
            timestamp: &self.timestamp,
            source: self.source,
            kind: &self.kind,
            usage: &self.usage,
            foreign: &self.foreign,
            extra: &self.extra,
        };
        if self.unread.is_empty() {
            return wire.serialize(serializer);
        }
        let mut json = serde_json::to_value(wire).map_err(S::Error::custom)?;
        self.unread.put_into(&mut json);
        json.serialize(serializer)
    }
}

/// A kind's own fields, and what is left over.
#[derive(Deserialize)]
struct Rest<T> {
    #[serde(flatten)]
    body: T,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn field<T: DeserializeOwned, E: serde::de::Error>(
            map: &mut Map<String, Value>,
            name: &'static str,
        ) -> Result<Option<T>, E> {
            match map.shift_remove(name) {
                None | Some(Value::Null) => Ok(None),
                Some(value) => serde_json::from_value(value)
                    .map(Some)
                    .map_err(|error| E::custom(format!("field `{name}`: {error}"))),
            }
        }
        fn body<T: DeserializeOwned, E: serde::de::Error>(
            map: Map<String, Value>,
            kind: &str,
            wrap: fn(T) -> EventKind,
        ) -> Result<(EventKind, Map<String, Value>), E> {
            serde_json::from_value::<Rest<T>>(Value::Object(map))
                .map(|rest| (wrap(rest.body), rest.rest))
                .map_err(|error| E::custom(format!("kind `{kind}`: {error}")))
        }

        let mut map = Map::<String, Value>::deserialize(deserializer)?;
        let schema: Option<u32> = field(&mut map, "schema")?;
        if schema.is_some_and(|version| version > SCHEMA_VERSION) {
            return Err(D::Error::custom(format!(
                "event schema {} is newer than {SCHEMA_VERSION}, the newest this build reads",
                schema.unwrap_or_default()
            )));
        }
        let unread = Unread::of_event(&mut map);
        let id = field(&mut map, "id")?.ok_or_else(|| D::Error::missing_field("id"))?;
        let parent = field(&mut map, "parent")?;
        let origin = field(&mut map, "origin")?;
        let timestamp = field(&mut map, "timestamp")?;
        let source = field(&mut map, "source")?.ok_or_else(|| D::Error::missing_field("source"))?;
        let usage = field(&mut map, "usage")?;
        let foreign = field(&mut map, "foreign")?.unwrap_or_default();
        let kind: String = field(&mut map, "kind")?.ok_or_else(|| D::Error::missing_field("kind"))?;
        let (kind, extra) = match kind.as_str() {
            "system_prompt" => body(map, &kind, EventKind::SystemPrompt)?,
            "message" => body(map, &kind, EventKind::Message)?,
            "action" => body(map, &kind, EventKind::Action)?,
            "observation" => body(map, &kind, EventKind::Observation)?,
            // A condensation keeps its own unknown fields, since it also travels without its event.
            "condensation" => {
                let record: Condensation = serde_json::from_value(Value::Object(map))
                    .map_err(|error| D::Error::custom(format!("kind `{kind}`: {error}")))?;
                (EventKind::Condensation(record), Map::new())
            }
            "condensation_request" => body(map, &kind, EventKind::CondensationRequest)?,
            "condensation_failed" => body(map, &kind, EventKind::CondensationFailed)?,
            "undo" => body(map, &kind, EventKind::Undo)?,
            "pin" => body(map, &kind, EventKind::Pin)?,
            "unpin" => body(map, &kind, EventKind::Unpin)?,
            "unknown" => body(map, &kind, EventKind::Unknown)?,
            _ => (EventKind::Unknown(Unknown { foreign_kind: kind, payload: Value::Object(map) }), Map::new()),
        };
        Ok(Self { id, parent, origin, timestamp, source, kind, usage, foreign, extra, unread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check_round_trip(json: Value) {
        let event: Event = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&event).unwrap(), json);
    }

    #[test]
    fn event_json_is_read_and_written_unchanged_with_its_unknown_optional_fields() {
        check_round_trip(json!({
            "schema": 1, "id": "e1", "parent": "e0", "origin": {"record": "17", "part": 2},
            "timestamp": "2026-01-01T00:00:00Z", "source": "agent", "kind": "action",
            "call_id": "c1", "tool_name": "shell", "arguments": "{\"command\": \"ls\"}",
            "thought": [{"type": "text", "text": "look"}],
            "response_id": "r1", "usage": {"input_tokens": 3}, "foreign": {"risk": 1}, "mood": "calm"
        }));
        check_round_trip(json!({
            "schema": 1, "id": "c", "source": "environment", "kind": "condensation",
            "forgotten_event_ids": ["a", "b"], "summary": "s", "summary_offset": 1,
            "rewrites": {"z": {"op": "clear", "text": "gone", "tokens": 2}}, "future": [1]
        }));
        check_round_trip(json!({
            "schema": 1, "id": "m", "source": "user", "kind": "message", "role": "user",
            "content": [{"type": "image", "urls": ["u"], "cache": true}, {"type": "other", "value": {"x": null}}]
        }));
    }

    #[test]
    fn an_event_of_a_newer_schema_is_refused_by_number() {
        let error = serde_json::from_value::<Event>(json!({"schema": 2, "id": "e", "source": "user", "kind": "pin"}))
            .unwrap_err();
        assert!(error.to_string().contains("event schema 2 is newer than 1"), "{error}");
    }

    #[test]
    fn a_kind_of_the_future_is_kept_as_unknown() {
        let event: Event =
            serde_json::from_value(json!({"id": "e", "source": "user", "kind": "dream", "depth": 3})).unwrap();
        assert_eq!(
            event.kind,
            EventKind::Unknown(Unknown { foreign_kind: "dream".into(), payload: json!({"depth": 3}) })
        );
    }
}
