//! One stored event of the OpenHands SDK.

use std::borrow::Cow;
use std::collections::BTreeSet;

use condenser::Condensation;
use condenser::event::{
    Action, CondensationRequest, ContentBlock, Event, EventId, EventKind, Message, Observation, Outcome, Role, Source,
    SystemPrompt, ToolCall, Unknown,
};
use condenser::tree::ROOT;
use serde_json::Value;

use crate::fields::{take_call, take_content, take_list, take_object, take_text};
use crate::node::{Node, Object};

/// How much an event may deviate from what the SDK writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// What the SDK refuses is refused.
    Strict,
    /// Older shapes, odd fields and unknown kinds are kept; what cannot be used becomes `unknown`.
    Lenient,
}

/// Why a value is not a stored event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Events are objects.
    #[error("an event is a JSON object, and this is none")]
    NotAnObject,
    /// The id of roots' parents cannot be an event's.
    #[error("the id `{ROOT}` is reserved")]
    ReservedId,
    /// No event class has this name.
    #[error("unknown event kind {0:?}")]
    UnknownKind(String),
    /// A field without default is absent.
    #[error("{kind}: field `{field}` is missing")]
    Missing {
        /// The event's kind.
        kind: String,
        /// The field.
        field: &'static str,
    },
    /// The kind has no such field.
    #[error("{kind}: there is no field `{field}`")]
    Unexpected {
        /// The event's kind.
        kind: String,
        /// The field.
        field: String,
    },
    /// A field holds something else than it should.
    #[error("{kind}: field `{field}` must be {expected}")]
    Shape {
        /// The event's kind.
        kind: String,
        /// The field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
    },
}

/// Turns a stored event into an [`Event`].
///
/// Nothing is lost: what has no place in the event stays in `foreign`, under its own name and in its own
/// nesting, and `foreign["kind"]` is the class. Observations of older versions, which have fields instead of a `content` list, give their
/// texts as content and name the fields in `foreign["observation"]["content_from"]`.
///
/// # Errors
///
/// [`Mode::Strict`]: every [`LoadError`]. [`Mode::Lenient`]: only a value that is no object, or that has no
/// text as its `id`.
pub fn parse_event(value: Value, mode: Mode) -> Result<Event, LoadError> {
    parse(Node::from(value), mode)
}

/// As [`parse_event`].
pub(super) fn parse(node: Node<'_>, mode: Mode) -> Result<Event, LoadError> {
    let Node::Object(mut map) = node else { return Err(LoadError::NotAnObject) };
    let kind = match map.get("kind") {
        Some(Node::String(kind)) => kind.clone(),
        _ => Cow::Borrowed(""),
    };
    let class = CLASSES.iter().find(|class| class.name == kind);
    if mode == Mode::Strict {
        class.ok_or_else(|| LoadError::UnknownKind(kind.to_string()))?.check(&map)?;
    }
    let missing = || LoadError::Missing { kind: kind.to_string(), field: "id" };
    let id = EventId::from(&*take_str(&mut map, "id").ok_or_else(missing)?);
    let timestamp = take_text(&mut map, "timestamp");
    let parent = take_text(&mut map, "parent_id").map(EventId::from);
    let source = match map.get("source").and_then(Node::as_str) {
        Some("agent") => Some(Source::Agent),
        Some("user") => Some(Source::User),
        Some("environment") => Some(Source::Environment),
        Some("hook") => Some(Source::Hook),
        _ => None,
    };
    if source.is_some() {
        map.shift_remove("source");
    }
    let body = body(&kind, &mut map);
    let source = source.or(class.and_then(|class| class.source)).unwrap_or(match &body {
        EventKind::Message(Message { role: Role::User, .. }) => Source::User,
        EventKind::Message(Message { role: Role::Assistant, .. }) => Source::Agent,
        _ => Source::Environment,
    });
    Ok(Event { parent, timestamp, foreign: map.into_foreign(), ..Event::new(id, source, body) })
}

/// The event as one that is never shown, with everything it carries as payload.
pub(super) fn as_unknown(mut event: Event, value: Value) -> Event {
    if let Value::Object(mut payload) = value {
        payload.retain(|key, _| !["id", "timestamp", "kind", "parent_id", "source"].contains(&key.as_str()));
        event.foreign.retain(|key, _| ["kind", "parent_id", "source"].contains(&key.as_str()));
        let foreign_kind = event.foreign.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        event.kind = EventKind::Unknown(Unknown { foreign_kind, payload: Value::Object(payload) });
    }
    event
}

fn body(kind: &str, map: &mut Object<'_>) -> EventKind {
    let known = match kind {
        "SystemPromptEvent" => Some(EventKind::SystemPrompt(SystemPrompt {
            content: take_content(map, "system_prompt", part),
            dynamic_context: take_content(map, "dynamic_context", part),
            tools: take_list(map, "tools").unwrap_or_default().into_iter().map(Node::into_value).collect(),
        })),
        "MessageEvent" => message(map),
        "ActionEvent" => Some(EventKind::Action(action(map))),
        "ObservationEvent" => Some(EventKind::Observation(observation(map))),
        "UserRejectObservation" => {
            let reason = take_text(map, "rejection_reason").unwrap_or_else(|| "User rejected the action".to_owned());
            Some(EventKind::Observation(answer(map, reason, Outcome::Rejected)))
        }
        "AgentErrorEvent" => {
            let error = take_text(map, "error").unwrap_or_default();
            Some(EventKind::Observation(Observation { interim: true, ..answer(map, error, Outcome::Error) }))
        }
        "Condensation" => Some(EventKind::Condensation(condensation(map))),
        "CondensationRequest" => Some(EventKind::CondensationRequest(CondensationRequest::default())),
        "CondensationSummaryEvent" => {
            take_text(map, "summary").map(|summary| EventKind::Message(Message::text(Role::User, summary)))
        }
        _ => None,
    };
    known.unwrap_or_else(|| {
        let mut payload = std::mem::take(map);
        for key in ["kind", "parent_id", "source"] {
            if let Some(value) = payload.shift_remove(key) {
                map.insert(key, value);
            }
        }
        EventKind::Unknown(Unknown { foreign_kind: kind.to_owned(), payload: Value::Object(payload.into_map()) })
    })
}

fn message(map: &mut Object<'_>) -> Option<EventKind> {
    let role = match map.get("llm_message")?.get("role")?.as_str()? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        "tool" => Role::Tool,
        _ => return None,
    };
    let mut inner = take_object(map, "llm_message")?;
    inner.shift_remove("role");
    let mut content = take_content(&mut inner, "thinking_blocks", part);
    content.extend(take_content(&mut inner, "content", part));
    let message = Message {
        role,
        content,
        name: take_text(&mut inner, "name"),
        call_id: take_text(&mut inner, "tool_call_id"),
        response_id: take_text(map, "llm_response_id"),
        reasoning: take_text(&mut inner, "reasoning_content"),
        extended_content: take_content(map, "extended_content", part),
        tool_calls: tool_calls(&mut inner),
    };
    if !inner.is_empty() {
        map.insert("llm_message", Node::Object(inner));
    }
    Some(EventKind::Message(message))
}

/// Calls inside a message; what a call carries beside id, name and arguments stays, in order.
fn tool_calls(inner: &mut Object<'_>) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rests = Vec::new();
    let mut has_rest = false;
    for call in inner.get("tool_calls")?.as_array()? {
        let mut call = call.as_object()?.clone();
        let (name, arguments) = take_call(&mut call);
        let id = take_text(&mut call, "id").unwrap_or_default();
        calls.push(ToolCall { id, name: name.unwrap_or_default(), arguments: arguments.unwrap_or_default() });
        has_rest |= !call.is_empty();
        rests.push(Node::Object(call));
    }
    inner.shift_remove("tool_calls");
    if has_rest {
        inner.insert("tool_calls", Node::Array(rests));
    }
    Some(calls)
}

/// Moves a text out without a copy, where it is borrowed.
fn take_str<'a>(map: &mut Object<'a>, key: &str) -> Option<Cow<'a, str>> {
    if !map.get(key)?.is_string() {
        return None;
    }
    match map.shift_remove(key) {
        Some(Node::String(text)) => Some(text),
        _ => None,
    }
}

fn action(map: &mut Object<'_>) -> Action {
    let mut call = take_object(map, "tool_call");
    let (name, arguments) = call.as_mut().map(take_call).unwrap_or_default();
    let id = call.as_mut().and_then(|call| take_str(call, "id"));
    let name = name.map(Cow::Owned);
    let (call_id, id) = one_of(take_str(map, "tool_call_id"), id);
    let (tool_name, name) = one_of(take_str(map, "tool_name"), name);
    if let Some(mut call) = call {
        for (key, value) in [("id", id), ("name", name)] {
            if let Some(value) = value {
                call.insert(key, Node::String(value));
            }
        }
        if !call.is_empty() {
            map.insert("tool_call", Node::Object(call));
        }
    } else if !map.contains_key("tool_call") {
        map.insert("tool_call_shape", Node::from("absent"));
    }
    Action {
        call_id: call_id.into_owned(),
        tool_name: tool_name.into_owned(),
        arguments: arguments.unwrap_or_else(|| parsed_arguments(map.get("action"))),
        thought: take_content(map, "thought", part),
        reasoning: take_text(map, "reasoning_content"),
        thinking: take_content(map, "thinking_blocks", part),
        response_id: take_text(map, "llm_response_id"),
    }
}

/// The outer text, or the inner where there is none; and the inner again where it differs from the outer.
fn one_of<'a>(outer: Option<Cow<'a, str>>, inner: Option<Cow<'a, str>>) -> (Cow<'a, str>, Option<Cow<'a, str>>) {
    match (outer, inner) {
        (Some(outer), inner) => {
            let inner = inner.filter(|inner| *inner != outer);
            (outer, inner)
        }
        (None, inner) => (inner.unwrap_or_default(), None),
    }
}

/// The arguments as the SDK understood them, where what the model wrote is not stored.
fn parsed_arguments(action: Option<&Node<'_>>) -> String {
    match action {
        Some(Node::Object(fields)) => {
            let mut fields = fields.clone();
            fields.shift_remove("kind");
            Node::Object(fields).to_string()
        }
        _ => String::new(),
    }
}

fn answer(map: &mut Object<'_>, text: String, outcome: Outcome) -> Observation {
    Observation {
        call_id: take_text(map, "tool_call_id").unwrap_or_default(),
        tool_name: take_text(map, "tool_name").unwrap_or_default(),
        content: vec![ContentBlock::text(text)],
        outcome,
        ..Observation::default()
    }
}

fn observation(map: &mut Object<'_>) -> Observation {
    let mut inner = take_object(map, "observation").unwrap_or_default();
    let failed = match (inner.get("is_error"), inner.get("error")) {
        (Some(Node::Bool(failed)), _) | (_, Some(Node::Bool(failed))) => *failed,
        (_, Some(Node::String(error))) => !error.is_empty(),
        // The TypeScript port has no flag beside the exit code of a shell.
        _ => {
            inner.contains_key("stdout") && inner.get("exit_code").and_then(Node::as_i64).is_some_and(|code| code != 0)
        }
    };
    let content = match inner.get("content") {
        Some(Node::Array(_)) => take_content(&mut inner, "content", part),
        _ => texts_of_old_observation(&mut inner),
    };
    if !inner.is_empty() {
        map.insert("observation", Node::Object(inner));
    }
    Observation {
        call_id: take_text(map, "tool_call_id").unwrap_or_default(),
        tool_name: take_text(map, "tool_name").unwrap_or_default(),
        content,
        extended_content: take_content(map, "extended_content", part),
        outcome: if failed { Outcome::Error } else { Outcome::Ok },
        interim: false,
    }
}

/// The texts of an observation without content list; all of it as JSON text where no field is known.
fn texts_of_old_observation(inner: &mut Object<'_>) -> Vec<ContentBlock> {
    const TEXTS: [&str; 6] = ["content", "output", "stdout", "stderr", "message", "error"];
    if !TEXTS.iter().any(|key| inner.get(key).is_some_and(Node::is_string)) {
        if inner.keys().all(|key| key == "kind") {
            return Vec::new();
        }
        let text = Node::Object(inner.clone()).to_string();
        inner.insert("content_from", Node::Array(Vec::new()));
        return vec![ContentBlock::text(text)];
    }
    let mut blocks = Vec::new();
    let mut fields = Vec::new();
    for key in TEXTS {
        if inner.get(key).and_then(Node::as_str).is_some_and(|text| !text.is_empty()) {
            blocks.extend(take_text(inner, key).map(ContentBlock::text));
            fields.push(Node::from(key));
        }
    }
    inner.insert("content_from", Node::Array(fields));
    blocks
}

fn condensation(map: &mut Object<'_>) -> Condensation {
    let ids = map
        .get("forgotten_event_ids")
        .and_then(Node::as_array)
        .and_then(|ids| ids.iter().map(|id| id.as_str().map(EventId::from)).collect::<Option<BTreeSet<_>>>());
    if ids.is_some() {
        map.shift_remove("forgotten_event_ids");
    }
    let offset = map.get("summary_offset").and_then(Node::as_u64).and_then(|offset| usize::try_from(offset).ok());
    if offset.is_some() {
        map.shift_remove("summary_offset");
    }
    Condensation {
        forgotten_event_ids: ids.unwrap_or_default(),
        summary: take_text(map, "summary"),
        summary_offset: offset,
        llm_response_id: take_text(map, "llm_response_id"),
        ..Condensation::default()
    }
}

/// A content part as a block, and whether the block says everything that the part said.
///
/// An absent `cache_prompt` means false, but the SDK writes it.
pub(super) fn part(value: &Node<'_>) -> (ContentBlock, bool) {
    let other = || (ContentBlock::Other { value: value.clone().into_value() }, true);
    let Some(map) = value.as_object() else {
        return match value.as_str() {
            Some(text) => (ContentBlock::text(text), false),
            None => other(),
        };
    };
    let text = |key: &str| map.get(key).and_then(Node::as_str).map(str::to_owned);
    let only = |keys: &[&str]| map.keys().all(|key| keys.contains(&key));
    let cache = map.get("cache_prompt").and_then(Node::as_bool).unwrap_or(false);
    match map.get("type").and_then(Node::as_str) {
        Some("text") => match text("text") {
            Some(text) => {
                let exact = map.contains_key("cache_prompt") && only(&["type", "text", "cache_prompt"]);
                (ContentBlock::Text { text, cache }, exact)
            }
            None => other(),
        },
        Some("image") => {
            let urls = map
                .get("image_urls")
                .and_then(Node::as_array)
                .and_then(|urls| urls.iter().map(|url| url.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>());
            match urls {
                Some(urls) => {
                    let exact = map.contains_key("cache_prompt") && only(&["type", "image_urls", "cache_prompt"]);
                    (ContentBlock::Image { urls, cache }, exact)
                }
                None => other(),
            }
        }
        Some("thinking") => match text("thinking") {
            Some(thinking) => (
                ContentBlock::Thinking { thinking, signature: text("signature") },
                map.contains_key("signature") && only(&["type", "thinking", "signature"]),
            ),
            None => other(),
        },
        Some("redacted_thinking") => match text("data") {
            Some(data) => (ContentBlock::RedactedThinking { data }, only(&["type", "data"])),
            None => other(),
        },
        _ => other(),
    }
}

/// What a field may hold.
#[derive(Clone, Copy)]
enum Shape {
    Any,
    Text,
    Flag,
    Integer,
    /// An integer that is not negative.
    Count,
    List,
    Texts,
    Integers,
    Object,
    /// A text content.
    TextPart,
    /// A list of text contents.
    TextParts,
    /// A message.
    Message,
    /// A tool call.
    Call,
    /// One of the four sources.
    Source,
}

impl Shape {
    fn fits(self, value: &Node<'_>) -> bool {
        let all = |fits: fn(&Node<'_>) -> bool| value.as_array().is_some_and(|items| items.iter().all(fits));
        let is_integer = |value: &Node<'_>| value.as_i64().is_some() || value.as_u64().is_some();
        let is_text_part = |value: &Node<'_>| {
            value.get("type").is_none_or(|kind| kind.as_str() == Some("text"))
                && value.get("text").is_some_and(Node::is_string)
        };
        match self {
            Self::Any => true,
            Self::Text => value.is_string(),
            Self::Flag => value.as_bool().is_some(),
            Self::Integer => is_integer(value),
            Self::Count => value.as_u64().is_some(),
            Self::List => value.is_array(),
            Self::Texts => all(|value| value.is_string()),
            Self::Integers => all(is_integer),
            Self::Object => value.is_object(),
            Self::TextPart => is_text_part(value),
            Self::TextParts => value.as_array().is_some_and(|items| items.iter().all(is_text_part)),
            Self::Message => {
                matches!(value.get("role").and_then(Node::as_str), Some("user" | "system" | "assistant" | "tool"))
            }
            Self::Call => ["id", "name", "arguments"].iter().all(|key| value.get(key).is_some_and(Node::is_string)),
            Self::Source => matches!(value.as_str(), Some("agent" | "user" | "environment" | "hook")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Text => "a text",
            Self::Flag => "true or false",
            Self::Integer => "an integer",
            Self::Count => "an integer that is not negative",
            Self::List => "a list",
            Self::Texts => "a list of texts",
            Self::Integers => "a list of integers",
            Self::Object => "an object",
            Self::TextPart => "a text content",
            Self::TextParts => "a list of text contents",
            Self::Message => "a message with a known role",
            Self::Call => "a tool call with id, name and arguments",
            Self::Source => "agent, user, environment or hook",
        }
    }
}

/// Whether a field may be absent or null.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Required,
    /// May be absent, but not null.
    Default,
    /// May be absent or null.
    Nullable,
}

/// An event class of the SDK.
struct Class {
    name: &'static str,
    /// `None`: must be given.
    source: Option<Source>,
    fields: &'static [(&'static str, Shape, Need)],
}

impl Class {
    fn check(&self, map: &Object<'_>) -> Result<(), LoadError> {
        let source = ("source", Shape::Source, if self.source.is_some() { Need::Default } else { Need::Required });
        let all = || [source].into_iter().chain(COMMON.iter().copied()).chain(self.fields.iter().copied());
        if map.get("id").is_some_and(|id| id.as_str() == Some(ROOT)) {
            return Err(LoadError::ReservedId);
        }
        for (field, shape, need) in all() {
            match map.get(field) {
                None if need == Need::Required => {
                    return Err(LoadError::Missing { kind: self.name.to_owned(), field });
                }
                None => {}
                Some(Node::Null) if need == Need::Nullable => {}
                Some(value) if shape.fits(value) => {}
                Some(_) => {
                    return Err(LoadError::Shape { kind: self.name.to_owned(), field, expected: shape.name() });
                }
            }
        }
        match map.keys().find(|key| all().all(|(field, ..)| field != *key)) {
            Some(field) => Err(LoadError::Unexpected { kind: self.name.to_owned(), field: field.to_owned() }),
            None => Ok(()),
        }
    }
}

/// Fields of every event. The SDK makes up an absent id; here it is required, since an id made up would
/// differ from one reading to the next.
const COMMON: &[(&str, Shape, Need)] = &[
    ("id", Shape::Text, Need::Required),
    ("timestamp", Shape::Text, Need::Default),
    ("parent_id", Shape::Text, Need::Nullable),
    ("kind", Shape::Text, Need::Required),
];

const CLASSES: &[Class] = {
    use Need::{Default, Nullable, Required};
    use Shape::{Any, Call, Count, Flag, Integer, Integers, List, Message, Object, Text, TextPart, TextParts, Texts};
    &[
        Class {
            name: "SystemPromptEvent",
            source: Some(Source::Agent),
            fields: &[
                ("system_prompt", TextPart, Required),
                ("tools", List, Required),
                ("dynamic_context", TextPart, Nullable),
            ],
        },
        Class {
            name: "MessageEvent",
            source: None,
            fields: &[
                ("llm_message", Message, Required),
                ("llm_response_id", Text, Nullable),
                ("activated_skills", Texts, Default),
                ("extended_content", TextParts, Default),
                ("sender", Text, Nullable),
                ("critic_result", Object, Nullable),
            ],
        },
        Class {
            name: "ActionEvent",
            source: Some(Source::Agent),
            fields: &[
                ("thought", TextParts, Required),
                ("reasoning_content", Text, Nullable),
                ("thinking_blocks", List, Default),
                ("responses_reasoning_item", Object, Nullable),
                ("action", Object, Nullable),
                ("tool_name", Text, Required),
                ("tool_call_id", Text, Required),
                ("tool_call", Call, Required),
                ("llm_response_id", Text, Required),
                ("security_risk", Text, Default),
                ("critic_result", Object, Nullable),
                ("summary", Text, Nullable),
            ],
        },
        Class {
            name: "ObservationEvent",
            source: Some(Source::Environment),
            fields: &[
                ("tool_name", Text, Required),
                ("tool_call_id", Text, Required),
                ("observation", Object, Required),
                ("action_id", Text, Required),
                ("extended_content", TextParts, Default),
            ],
        },
        Class {
            name: "UserRejectObservation",
            source: Some(Source::Environment),
            fields: &[
                ("tool_name", Text, Required),
                ("tool_call_id", Text, Required),
                ("action_id", Text, Required),
                ("rejection_reason", Text, Default),
                ("rejection_source", Text, Default),
            ],
        },
        Class {
            name: "AgentErrorEvent",
            source: Some(Source::Agent),
            fields: &[
                ("tool_name", Text, Required),
                ("tool_call_id", Text, Required),
                ("error", Text, Required),
                ("classification", Object, Nullable),
            ],
        },
        Class {
            name: "CondensationSummaryEvent",
            source: Some(Source::Environment),
            fields: &[("summary", Text, Required)],
        },
        Class {
            name: "Condensation",
            source: Some(Source::Environment),
            fields: &[
                ("forgotten_event_ids", Texts, Default),
                ("summary", Text, Nullable),
                ("summary_offset", Count, Nullable),
                ("llm_response_id", Text, Required),
            ],
        },
        Class { name: "CondensationRequest", source: Some(Source::Environment), fields: &[] },
        Class { name: "PauseEvent", source: Some(Source::User), fields: &[] },
        Class { name: "InterruptEvent", source: Some(Source::User), fields: &[] },
        Class {
            name: "ConversationStateUpdateEvent",
            source: Some(Source::Environment),
            fields: &[("key", Text, Default), ("value", Any, Nullable)],
        },
        Class {
            name: "ConversationErrorEvent",
            source: None,
            fields: &[("code", Text, Required), ("detail", Text, Required), ("classification", Object, Nullable)],
        },
        Class {
            name: "HookExecutionEvent",
            source: Some(Source::Hook),
            fields: &[
                ("hook_event_type", Text, Required),
                ("hook_command", Text, Required),
                ("success", Flag, Required),
                ("exit_code", Integer, Required),
                ("tool_name", Text, Nullable),
                ("reason", Text, Nullable),
                ("additional_context", Text, Nullable),
                ("error", Text, Nullable),
                ("action_id", Text, Nullable),
                ("message_id", Text, Nullable),
                ("hook_input", Object, Nullable),
                ("blocked", Flag, Default),
                ("stdout", Text, Default),
                ("stderr", Text, Default),
            ],
        },
        Class {
            name: "SecurityAnalysisEvent",
            source: Some(Source::Environment),
            fields: &[
                ("analyzer", Text, Required),
                ("policy", Any, Required),
                ("risks", Object, Required),
                ("details", Object, Default),
            ],
        },
        Class {
            name: "TokenEvent",
            source: None,
            fields: &[("prompt_token_ids", Integers, Required), ("response_token_ids", Integers, Required)],
        },
        Class {
            name: "LLMCompletionLogEvent",
            source: Some(Source::Environment),
            fields: &[
                ("filename", Text, Required),
                ("log_data", Text, Required),
                ("model_name", Text, Default),
                ("usage_id", Text, Default),
            ],
        },
        Class {
            name: "ACPToolCallEvent",
            source: Some(Source::Agent),
            fields: &[
                ("tool_call_id", Text, Required),
                ("title", Text, Required),
                ("status", Text, Nullable),
                ("tool_kind", Text, Nullable),
                ("raw_input", Any, Nullable),
                ("raw_output", Any, Nullable),
                ("content", Any, Nullable),
                ("is_error", Flag, Default),
            ],
        },
        Class {
            name: "StreamingDeltaEvent",
            source: Some(Source::Agent),
            fields: &[("content", Text, Nullable), ("reasoning_content", Text, Nullable)],
        },
    ]
};
