//! Chat messages as events.

use std::collections::{HashMap, HashSet, VecDeque};

use condenser::event::{
    Action, ContentBlock, Event, EventKind, Message, Observation, Origin, Role, Source, SystemPrompt, Unknown, Usage,
};
use serde_json::{Map, Value};

use crate::Diagnostic;
use crate::fields::{take_call, take_content, take_list, take_object, take_text};
use crate::reader::Out;

/// What is known of a message that came as a response.
pub(crate) struct Response {
    pub(crate) id: Option<String>,
    pub(crate) usage: Option<Usage>,
}

/// Turns the messages of one conversation into events, in order.
pub(crate) struct Mapper {
    /// Tools of the system prompt that is to come.
    tools: Vec<Value>,
    events: Vec<Event>,
    n_messages: usize,
    timestamp: Option<String>,
    calls: Calls,
    diagnostics: Vec<Diagnostic>,
}

impl Mapper {
    pub(crate) fn new(tools: Vec<Value>, diagnostics: Vec<Diagnostic>) -> Self {
        Self { tools, events: Vec::new(), n_messages: 0, timestamp: None, calls: Calls::default(), diagnostics }
    }

    pub(crate) fn finish(self) -> (Vec<Event>, Vec<Diagnostic>) {
        (self.events, self.diagnostics)
    }

    /// Hands out what was gathered so far.
    pub(super) fn drain(&mut self, out: &mut Out) {
        self.diagnostics.drain(..).for_each(|odd| out.note(odd));
        self.events.drain(..).for_each(|event| out.event(event));
    }

    /// Sets the time of the messages to come.
    pub(crate) fn set_time(&mut self, timestamp: Option<String>) {
        self.timestamp = timestamp;
    }

    /// Adds the next value of a list of messages, which may be none.
    pub(super) fn add_any(&mut self, place: &str, value: Value, response: Option<Response>) {
        if super::is_message_value(&value) {
            return self.add(place, value, response);
        }
        let odd = "not a chat message with a known role and content or calls; kept as unknown";
        self.diagnostics.push(Diagnostic::new(place, odd));
        self.add_unknown("message", value);
    }

    /// Adds the next message as one that no model saw.
    pub(crate) fn add_unknown(&mut self, kind: &str, payload: Value) {
        let record = format!("m{}", self.n_messages);
        self.n_messages += 1;
        let unknown = Unknown { foreign_kind: kind.to_owned(), payload };
        self.push(&record, 0, Source::Environment, EventKind::Unknown(unknown), Map::new());
    }

    /// Adds the next message.
    pub(crate) fn add(&mut self, place: &str, message: Value, response: Option<Response>) {
        let record = format!("m{}", self.n_messages);
        self.n_messages += 1;
        let Value::Object(mut map) = message else {
            self.diagnostics.push(Diagnostic::new(place, "a message that is no object; left out"));
            return;
        };
        let role = map.shift_remove("role").unwrap_or_default();
        let mut content = take_content(&mut map, "content", part);
        if content.is_empty() {
            content = take_content(&mut map, "content_parts", part);
        }
        // Text is the rule; where it was a list of parts, that is what has to be remembered.
        if map.shift_remove("content_shape").is_none() && !content.is_empty() {
            map.insert("content_shape".to_owned(), Value::from("list"));
        }
        match role.as_str().unwrap_or_default() {
            "assistant" => self.assistant(&record, content, map, response),
            name @ ("tool" | "function") => {
                if name == "function" {
                    map.insert("role".to_owned(), Value::from(name));
                }
                let kind = self.observation(place, content, &mut map);
                self.push(&record, 0, Source::Environment, kind, map);
            }
            name @ ("system" | "developer") => {
                if name == "developer" {
                    map.insert("role".to_owned(), Value::from(name));
                }
                let kind = if self.n_messages == 1 {
                    let tools = std::mem::take(&mut self.tools);
                    EventKind::SystemPrompt(SystemPrompt { content, tools, ..SystemPrompt::default() })
                } else {
                    message_of(Role::System, content, &mut map)
                };
                self.push(&record, 0, Source::Environment, kind, map);
            }
            _ => {
                let kind = message_of(Role::User, content, &mut map);
                self.push(&record, 0, Source::User, kind, map);
            }
        }
    }

    fn push(&mut self, record: &str, part: u32, source: Source, kind: EventKind, foreign: Map<String, Value>) {
        let id = if part == 0 { record.to_owned() } else { format!("{record}#{part}") };
        let origin = Some(Origin { record: record.to_owned(), part });
        let timestamp = self.timestamp.clone();
        self.events.push(Event { origin, timestamp, foreign: foreign.into(), ..Event::new(id, source, kind) });
    }

    /// One action per call, or one message where nothing is called. All share a response id.
    fn assistant(
        &mut self,
        record: &str,
        content: Vec<ContentBlock>,
        mut map: Map<String, Value>,
        response: Option<Response>,
    ) {
        let Response { id, usage } = response.unwrap_or(Response { id: None, usage: None });
        let response_id = id.unwrap_or_else(|| record.to_owned());
        let reasoning = take_text(&mut map, "reasoning_content").or_else(|| {
            let reasoning = take_text(&mut map, "reasoning")?;
            map.insert("reasoning_key".to_owned(), Value::from("reasoning"));
            Some(reasoning)
        });
        let mut thinking = take_content(&mut map, "thinking_blocks", part);
        let first = self.events.len();
        let calls = take_calls(&mut map);
        if calls.is_empty() {
            thinking.extend(content);
            let name = take_text(&mut map, "name");
            let message = Message {
                name,
                response_id: Some(response_id),
                reasoning,
                content: thinking,
                ..Message::text(Role::Assistant, "")
            };
            self.push(record, 0, Source::Agent, EventKind::Message(message), map);
        } else {
            let (also_thinking, mut thought): (Vec<_>, Vec<_>) =
                content.into_iter().partition(ContentBlock::is_thinking);
            thinking.extend(also_thinking);
            let mut reasoning = reasoning;
            self.calls.next_response();
            for (at, mut call) in (0u32..).zip(calls) {
                let (name, arguments) = take_call(&mut call);
                let tool_name = name.unwrap_or_default();
                let mut foreign = std::mem::take(&mut map);
                let call_id = match self.calls.open(take_text(&mut call, "id"), &tool_name) {
                    Opened::AsGiven(id) => id,
                    Opened::MadeUp { id, given } => {
                        foreign.insert("made_up_call_id".to_owned(), Value::Bool(true));
                        call.extend(given.map(|given| ("id".to_owned(), Value::from(given))));
                        id
                    }
                };
                foreign.insert("tool_call".to_owned(), Value::Object(call));
                let action = Action {
                    call_id,
                    tool_name,
                    arguments: arguments.unwrap_or_default(),
                    thought: std::mem::take(&mut thought),
                    reasoning: reasoning.take(),
                    thinking: std::mem::take(&mut thinking),
                    response_id: Some(response_id.clone()),
                };
                self.push(record, at, Source::Agent, EventKind::Action(action), foreign);
            }
        }
        if let Some(event) = self.events.get_mut(first) {
            event.usage = usage;
        }
    }

    fn observation(&mut self, place: &str, content: Vec<ContentBlock>, map: &mut Map<String, Value>) -> EventKind {
        let given = take_text(map, "tool_call_id");
        let name = take_text(map, "name");
        let (call_id, tool_name) = match self.calls.answer(given.as_deref(), name.as_deref()) {
            Answered::Open(call) => (call.id, call.tool_name),
            Answered::Again(call) => {
                self.diagnostics.push(Diagnostic::new(place, "a second result for a call; both are kept"));
                (call.id, call.tool_name)
            }
            Answered::Nothing => {
                self.diagnostics.push(Diagnostic::new(place, "a result that answers no earlier call; kept"));
                (given.clone().unwrap_or_default(), String::new())
            }
        };
        if given.as_ref().is_none_or(|given| *given != call_id) {
            map.insert("made_up_call_id".to_owned(), Value::Bool(true));
            map.extend(given.map(|given| ("tool_call_id".to_owned(), Value::from(given))));
        }
        let tool_name = match name {
            // What the message itself does not say is the call's.
            None => {
                map.insert("name_from_call".to_owned(), Value::Bool(true));
                tool_name
            }
            Some(name) => name,
        };
        EventKind::Observation(Observation { call_id, tool_name, content, ..Observation::default() })
    }
}

fn message_of(role: Role, content: Vec<ContentBlock>, map: &mut Map<String, Value>) -> EventKind {
    EventKind::Message(Message { content, name: take_text(map, "name"), ..Message::text(role, "") })
}

/// The calls of an assistant message. The old `function_call` is one call without id.
fn take_calls(map: &mut Map<String, Value>) -> Vec<Map<String, Value>> {
    let is_usable = map
        .get("tool_calls")
        .and_then(Value::as_array)
        .is_some_and(|calls| !calls.is_empty() && calls.iter().all(Value::is_object));
    if is_usable {
        let calls = take_list(map, "tool_calls").unwrap_or_default();
        return calls
            .into_iter()
            .filter_map(|call| match call {
                Value::Object(call) => Some(call),
                _ => None,
            })
            .collect();
    }
    let Some(function) = take_object(map, "function_call") else { return Vec::new() };
    map.insert("call_shape".to_owned(), Value::from("function_call"));
    vec![Map::from_iter([("function".to_owned(), Value::Object(function))])]
}

/// Which calls are open, and under which ids.
#[derive(Default)]
struct Calls {
    /// Ids in use as an action's call id.
    taken: HashSet<String>,
    /// By the id as given, those of the newest response that used it: the open ones, and the last answered.
    by_given: HashMap<String, Open>,
    /// Calls of the newest response, for results without id; and the same by tool.
    newest: VecDeque<Call>,
    newest_by_name: HashMap<String, VecDeque<Call>>,
    /// Calls of the newest response that have a result.
    answered: HashSet<String>,
    response: usize,
    n_made_up: usize,
}

#[derive(Clone)]
struct Call {
    id: String,
    tool_name: String,
}

#[derive(Default)]
struct Open {
    response: usize,
    open: VecDeque<Call>,
    last: Option<Call>,
}

enum Opened {
    AsGiven(String),
    MadeUp { id: String, given: Option<String> },
}

enum Answered {
    Open(Call),
    /// A call that has a result.
    Again(Call),
    Nothing,
}

impl Calls {
    fn next_response(&mut self) {
        self.response += 1;
        self.newest.clear();
        self.newest_by_name.clear();
        self.answered.clear();
    }

    /// Opens a call. An id that is missing, empty or used before is exchanged for one made up.
    fn open(&mut self, given: Option<String>, tool_name: &str) -> Opened {
        let id = match &given {
            Some(given) if !given.is_empty() && self.taken.insert(given.clone()) => given.clone(),
            _ => loop {
                self.n_made_up += 1;
                let id = format!("call_{}_made_up", self.n_made_up);
                if self.taken.insert(id.clone()) {
                    break id;
                }
            },
        };
        let call = Call { id: id.clone(), tool_name: tool_name.to_owned() };
        self.newest.push_back(call.clone());
        self.newest_by_name.entry(call.tool_name.clone()).or_default().push_back(call.clone());
        if let Some(given) = given.as_ref().filter(|given| !given.is_empty()) {
            let open = self.by_given.entry(given.clone()).or_default();
            if open.response != self.response {
                *open = Open { response: self.response, ..Open::default() };
            }
            open.open.push_back(call);
        }
        match given {
            Some(given) if given == id => Opened::AsGiven(id),
            given => Opened::MadeUp { id, given },
        }
    }

    /// The call a result answers: the newest open one with its id; without an id, the next open one of the
    /// newest response, of the result's name where it has one.
    fn answer(&mut self, given: Option<&str>, name: Option<&str>) -> Answered {
        let Some(given) = given.filter(|given| !given.is_empty()) else {
            let queue = match name {
                Some(name) => self.newest_by_name.get_mut(name),
                None => Some(&mut self.newest),
            };
            let answered = &mut self.answered;
            // Each call stands in both queues; the one that was answered through the other is passed over.
            let mut unanswered = queue.into_iter().flat_map(|queue| std::iter::from_fn(|| queue.pop_front()));
            return match unanswered.find(|call| answered.insert(call.id.clone())) {
                Some(call) => Answered::Open(call),
                None => Answered::Nothing,
            };
        };
        let Some(entry) = self.by_given.get_mut(given) else { return Answered::Nothing };
        match entry.open.pop_front() {
            Some(call) => {
                self.answered.insert(call.id.clone());
                entry.last = Some(call.clone());
                Answered::Open(call)
            }
            None => entry.last.clone().map_or(Answered::Nothing, Answered::Again),
        }
    }
}

/// A content part as a block, and whether the block says everything that the part said.
fn part(value: &Value) -> (ContentBlock, bool) {
    let other = || (ContentBlock::Other { value: value.clone() }, true);
    let Some(map) = value.as_object() else {
        return match value.as_str() {
            Some(text) => (ContentBlock::text(text), false),
            None => other(),
        };
    };
    let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    let only = |keys: &[&str]| map.keys().all(|key| keys.contains(&key.as_str()));
    let cache = map.get("cache_control").is_some_and(|mark| !mark.is_null());
    let block = match map.get("type").and_then(Value::as_str) {
        Some("text") => text("text").map(|text| ContentBlock::Text { text, cache }),
        Some("image_url") => {
            let url = map.get("image_url").and_then(|image| image.get("url").unwrap_or(image).as_str());
            url.map(|url| ContentBlock::Image { urls: vec![url.to_owned()], cache })
        }
        Some("thinking") => {
            text("thinking").map(|thinking| ContentBlock::Thinking { thinking, signature: text("signature") })
        }
        Some("redacted_thinking") => text("data").map(|data| ContentBlock::RedactedThinking { data }),
        _ => None,
    };
    let Some(block) = block else { return other() };
    let plain_mark = map.get("cache_control").is_none_or(|mark| *mark == serde_json::json!({"type": "ephemeral"}));
    let exact = plain_mark
        && match &block {
            ContentBlock::Text { .. } => only(&["type", "text", "cache_control"]),
            ContentBlock::Image { .. } => {
                let image = map.get("image_url").and_then(Value::as_object);
                image.is_some_and(|image| image.len() == 1) && only(&["type", "image_url", "cache_control"])
            }
            // It may stand in the content or beside it.
            _ => false,
        };
    (block, exact)
}
