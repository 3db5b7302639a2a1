//! OpenAI Chat Completions: the request as JSON, and the rules of the API as a validator.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Body, ERROR_PREFIX, Part, REJECTED_PREFIX, Request, Speaker, Turn};
use crate::event::Outcome;

/// Longest name of a function that the API takes, in bytes.
const MAX_NAME: usize = 64;

impl Request<'_> {
    /// The request for OpenAI Chat Completions: an object with `messages` and, where there are any, `tools`.
    ///
    /// A single text is sent as a string, anything else as a list of parts. Images stand in user messages only;
    /// elsewhere a marker says that there was one. Thinking is not sent. Names are made to fit the API's pattern.
    pub fn to_openai_chat(&self) -> Value {
        let messages: Vec<Value> = self.turns.iter().map(message).collect();
        match self.tools {
            Some((_, tools)) => json!({"messages": messages, "tools": tools.iter().map(tool).collect::<Vec<_>>()}),
            None => json!({"messages": messages}),
        }
    }
}

fn message(turn: &Turn<'_>) -> Value {
    match &turn.speaker {
        Speaker::System => json!({"role": "system", "content": text_content(&turn.parts, "")}),
        Speaker::User => json!({"role": "user", "content": user_content(&turn.parts)}),
        Speaker::Tool { call_id, outcome, .. } => {
            let prefix = match outcome {
                Outcome::Ok => "",
                Outcome::Error => ERROR_PREFIX,
                Outcome::Rejected => REJECTED_PREFIX,
            };
            json!({"role": "tool", "tool_call_id": call_id, "content": text_content(&turn.parts, prefix)})
        }
        Speaker::Assistant => {
            let calls: Vec<Value> = turn
                .parts
                .iter()
                .filter_map(|part| match &part.body {
                    Body::Call { id, name, arguments } => Some(json!({
                        "id": id, "type": "function", "function": {"name": fit_name(name), "arguments": arguments}
                    })),
                    _ => None,
                })
                .collect();
            let says_something = turn.parts.iter().any(|part| matches!(part.body, Body::Text(_) | Body::Image(_)));
            let mut message = json!({"role": "assistant"});
            if says_something {
                message["content"] = text_content(&turn.parts, "");
            }
            if !calls.is_empty() {
                message["tool_calls"] = Value::Array(calls);
            }
            message
        }
    }
}

fn text_content(parts: &[Part<'_>], prefix: &str) -> Value {
    let mut texts: Vec<Cow<'_, str>> = parts
        .iter()
        .filter_map(|part| match &part.body {
            Body::Text(text) => Some(Cow::Borrowed(&**text)),
            Body::Image(_) => Some(Cow::Borrowed("[image]")),
            Body::Thinking(_) | Body::Call { .. } => None,
        })
        .collect();
    if !prefix.is_empty() {
        match texts.first_mut() {
            Some(first) => *first = Cow::Owned(format!("{prefix}{first}")),
            None => texts.push(Cow::Borrowed(prefix)),
        }
    }
    match texts.as_slice() {
        [] => json!(""),
        [text] => json!(text),
        texts => texts.iter().map(|text| json!({"type": "text", "text": text})).collect(),
    }
}

fn user_content(parts: &[Part<'_>]) -> Value {
    if !parts.iter().any(|part| matches!(part.body, Body::Image(_))) {
        return text_content(parts, "");
    }
    parts
        .iter()
        .filter_map(|part| match &part.body {
            Body::Text(text) => Some(json!({"type": "text", "text": text})),
            Body::Image(url) => Some(json!({"type": "image_url", "image_url": {"url": url}})),
            Body::Thinking(_) | Body::Call { .. } => None,
        })
        .collect()
}

/// A name that the API's pattern `[a-zA-Z0-9_-]{1,64}` takes.
fn fit_name(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let fitted: String = name.chars().map(|c| if fits(c) { c } else { '_' }).take(MAX_NAME).collect();
    Cow::Owned(if fitted.is_empty() { "unnamed".to_owned() } else { fitted })
}

/// A tool schema of any known spelling, as the API takes it.
pub(super) fn tool(schema: &Value) -> Value {
    let function = &schema["function"];
    let source = if function.is_object() { function } else { schema };
    let name = ["name", "title", "kind"].iter().find_map(|key| source[*key].as_str()).unwrap_or_default();
    let mut lowered = json!({"name": fit_name(name)});
    if let Some(description) = source["description"].as_str() {
        lowered["description"] = json!(description);
    }
    let parameters = ["parameters", "input_schema", "inputSchema"].iter().map(|key| &source[*key]);
    if let Some(parameters) = parameters.into_iter().find(|value| value.is_object()) {
        lowered["parameters"] = parameters.clone();
    }
    json!({"type": "function", "function": lowered})
}

/// A rule of the API that a request breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, as a path into the JSON: `messages[3].tool_calls[0].id`.
    pub place: String,
    /// The rule.
    pub rule: &'static str,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.rule)
    }
}

/// Checks a request for OpenAI Chat Completions against the API's published rules. Looks at shape, never at text.
///
/// Beyond what the API refuses, a request has to hold a user message, since models served behind the same API
/// refuse one without.
pub fn validate_openai_chat(request: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut fail = |place: String, rule: &'static str| found.push(Violation { place, rule });
    let Some(messages) = request["messages"].as_array() else {
        fail("messages".into(), "is a list");
        return found;
    };
    if messages.is_empty() {
        fail("messages".into(), "holds at least one message");
    }
    if !messages.iter().any(|message| message["role"] == "user") {
        fail("messages".into(), "holds a user message");
    }
    let mut open: Vec<&str> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let at = |field: &str| format!("messages[{i}]{field}");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            fail(at(""), "every call is answered before the next message of another role");
            open.clear();
        }
        match role {
            "system" | "developer" => check_content(&message["content"], &["text"], true, &at(".content"), &mut fail),
            "user" => check_content(
                &message["content"],
                &["text", "image_url", "input_audio", "file"],
                true,
                &at(".content"),
                &mut fail,
            ),
            "assistant" => {
                let calls = &message["tool_calls"];
                let required = calls.is_null();
                if required || !message["content"].is_null() {
                    check_content(&message["content"], &["text", "refusal"], required, &at(".content"), &mut fail);
                }
                check_calls(calls, &at(".tool_calls"), &mut open, &mut fail);
            }
            "tool" => {
                check_content(&message["content"], &["text"], false, &at(".content"), &mut fail);
                let answered = message["tool_call_id"].as_str().and_then(|id| open.iter().position(|call| *call == id));
                match answered {
                    Some(position) => {
                        open.remove(position);
                    }
                    None => fail(at(".tool_call_id"), "answers a call of the assistant message before it, once"),
                }
            }
            _ => fail(at(".role"), "is system, developer, user, assistant or tool"),
        }
    }
    if !open.is_empty() {
        fail("messages".into(), "every call is answered");
    }
    check_tools(&request["tools"], &mut fail);
    found
}

fn check_content(
    content: &Value,
    kinds: &[&str],
    required: bool,
    place: &str,
    fail: &mut impl FnMut(String, &'static str),
) {
    match content {
        Value::String(text) if required && text.trim().is_empty() => fail(place.into(), "is not blank"),
        Value::String(_) => {}
        Value::Array(parts) => {
            if parts.is_empty() {
                fail(place.into(), "holds at least one part");
            }
            for (i, part) in parts.iter().enumerate() {
                let kind = part["type"].as_str().unwrap_or_default();
                if !kinds.contains(&kind) {
                    fail(format!("{place}[{i}].type"), "is a kind of part that this role may send");
                } else if kind == "text" && part["text"].as_str().is_none_or(|text| text.trim().is_empty()) {
                    fail(format!("{place}[{i}].text"), "is text and not blank");
                } else if kind == "image_url" && part["image_url"]["url"].as_str().is_none_or(str::is_empty) {
                    fail(format!("{place}[{i}].image_url.url"), "is a URL");
                }
            }
        }
        _ => fail(place.into(), "is a string or a list of parts"),
    }
}

fn check_calls<'v>(
    calls: &'v Value,
    place: &str,
    open: &mut Vec<&'v str>,
    fail: &mut impl FnMut(String, &'static str),
) {
    match calls {
        Value::Null => {}
        Value::Array(calls) if !calls.is_empty() => {
            let mut seen = HashSet::new();
            for (i, call) in calls.iter().enumerate() {
                match call["id"].as_str() {
                    Some(id) if !id.is_empty() && seen.insert(id) => open.push(id),
                    _ => fail(format!("{place}[{i}].id"), "is text, not empty, and unique in its message"),
                }
                if call["type"] != "function" {
                    fail(format!("{place}[{i}].type"), "is function");
                }
                check_name(&call["function"]["name"], format!("{place}[{i}].function.name"), fail);
                if !call["function"]["arguments"].is_string() {
                    fail(format!("{place}[{i}].function.arguments"), "is JSON as text");
                }
            }
        }
        _ => fail(place.into(), "is a list of at least one call"),
    }
}

fn check_name(name: &Value, place: String, fail: &mut impl FnMut(String, &'static str)) {
    let fits = name.as_str().is_some_and(|name| {
        (1..=MAX_NAME).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    });
    if !fits {
        fail(place, "is 1 to 64 characters of a-z, A-Z, 0-9, _ and -");
    }
}

fn check_tools(tools: &Value, fail: &mut impl FnMut(String, &'static str)) {
    match tools {
        Value::Null => {}
        Value::Array(tools) if !tools.is_empty() => {
            for (i, tool) in tools.iter().enumerate() {
                if tool["type"] != "function" {
                    fail(format!("tools[{i}].type"), "is function");
                }
                check_name(&tool["function"]["name"], format!("tools[{i}].function.name"), fail);
            }
        }
        _ => fail("tools".into(), "is a list of at least one tool"),
    }
}
