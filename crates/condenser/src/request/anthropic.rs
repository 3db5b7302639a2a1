//! Anthropic Messages: the request as JSON, and the rules of the API as a validator.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::api::{
    Image, Lowering, ToolSchema, Violation, is_base64, is_blank, is_media_type, is_object_schema, is_plain, is_web_url,
    prefix,
};
use super::{Api, Body, IMAGE_MARKER, NO_USER_MESSAGE, Part, Request, Speaker, Turn};
use crate::event::{ContentBlock, Outcome};

/// Stands before a system message in its place, which the API takes from users and assistants only.
pub const SYSTEM_PREFIX: &str = "[System message]\n";
/// Holds arguments that are not a JSON object.
pub const RAW_ARGUMENTS: &str = "raw_arguments";

/// Longest name of a tool, in bytes.
const MAX_NAME: usize = 128;
/// Most cache marks in a request.
const MAX_CACHE_MARKS: usize = 4;

impl Request<'_> {
    /// The request for Anthropic Messages: an object with `messages` and, where there are any, `system` and `tools`.
    ///
    /// Roles alternate and a user begins. System text before the first assistant turn stands in `system`, later as
    /// marked user text in its place. A message of the assistant holds thinking first, then text, then calls; the
    /// message after it holds their results first. Thinking is sent where it is signed or redacted. Arguments that
    /// are not a JSON object are kept as text under [`RAW_ARGUMENTS`].
    pub fn to_anthropic(&self) -> Value {
        self.render(Api::Anthropic)
    }
}

/// One message. Blocks are collected apart, since their kinds have a fixed order in a message.
struct Draft {
    is_user: bool,
    /// Results of a user, thinking of an assistant.
    first: Vec<Value>,
    /// Text and images.
    middle: Vec<Value>,
    /// Calls.
    last: Vec<Value>,
}

impl Draft {
    fn new(is_user: bool) -> Self {
        Self { is_user, first: Vec::new(), middle: Vec::new(), last: Vec::new() }
    }

    fn into_json(self) -> Value {
        let content: Vec<Value> = self.first.into_iter().chain(self.middle).chain(self.last).collect();
        json!({"role": if self.is_user { "user" } else { "assistant" }, "content": content})
    }
}

pub(super) fn lower(request: &Request<'_>, lowering: &mut Lowering) -> Value {
    let n_leading = request.n_before_assistant();
    let mut system = Vec::new();
    let mut messages: Vec<Draft> = Vec::new();
    for (position, turn) in request.turns.iter().enumerate() {
        if turn.speaker == Speaker::System && position < n_leading {
            system.extend(lowering.texts(&turn.parts, "").iter().map(|content| text(content)));
            continue;
        }
        let is_user = turn.speaker != Speaker::Assistant;
        if messages.last().is_none_or(|message| message.is_user != is_user) {
            if messages.is_empty() && !is_user {
                let mut first = Draft::new(true);
                first.middle.push(text(NO_USER_MESSAGE));
                messages.push(first);
                lowering.facts.added_user_messages += 1;
            }
            messages.push(Draft::new(is_user));
        }
        if let Some(message) = messages.last_mut() {
            add(turn, lowering, message);
        }
    }
    if let Some(message) = messages.last_mut().filter(|message| !message.is_user && message.last.is_empty()) {
        trim_end(message, lowering);
    }
    let mut json = json!({});
    if let Some((_, tools)) = request.tools {
        json["tools"] = lower_tools(tools, lowering);
    }
    if !system.is_empty() {
        json["system"] = Value::Array(system);
    }
    json["messages"] = messages.into_iter().map(Draft::into_json).collect();
    json
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn add(turn: &Turn<'_>, lowering: &mut Lowering, message: &mut Draft) {
    match &turn.speaker {
        Speaker::System => {
            lowering.facts.system_as_user += 1;
            let texts = lowering.texts(&turn.parts, SYSTEM_PREFIX);
            message.middle.extend(texts.iter().map(|content| text(content)));
        }
        Speaker::User => {
            for part in &turn.parts {
                message.middle.extend(text_or_image(part, lowering));
            }
        }
        Speaker::Assistant => {
            lowering.begin_turn();
            for part in &turn.parts {
                match &part.body {
                    Body::Text(content) => message.middle.push(text(content)),
                    Body::Image(_) => message.middle.push(text(lowering.image_left_out())),
                    Body::Thinking(block) => match thinking(block) {
                        Some(block) => message.first.push(block),
                        None => lowering.thinking_left_out(),
                    },
                    Body::Call { id, name, arguments } => message.last.push(json!({
                        "type": "tool_use",
                        "id": lowering.call_id(id),
                        "name": lowering.tool_name(name),
                        "input": input(arguments, lowering),
                    })),
                }
            }
        }
        Speaker::Tool { call_id, outcome, .. } => message.first.push(result(call_id, *outcome, &turn.parts, lowering)),
    }
}

fn text_or_image(part: &Part<'_>, lowering: &mut Lowering) -> Option<Value> {
    match &part.body {
        Body::Text(content) => Some(text(content)),
        Body::Image(url) => Some(match lowering.image(url) {
            Some(Image::Url(url)) => json!({"type": "image", "source": {"type": "url", "url": url}}),
            Some(Image::Data { media_type, data }) => {
                json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
            }
            None => text(IMAGE_MARKER),
        }),
        Body::Thinking(_) => {
            lowering.thinking_left_out();
            None
        }
        Body::Call { .. } => None,
    }
}

/// A block of thinking that the API can verify.
fn thinking(block: &ContentBlock) -> Option<Value> {
    match block {
        ContentBlock::Thinking { thinking, signature: Some(signature) } if !signature.is_empty() => {
            Some(json!({"type": "thinking", "thinking": thinking, "signature": signature}))
        }
        ContentBlock::RedactedThinking { data } if !data.is_empty() => {
            Some(json!({"type": "redacted_thinking", "data": data}))
        }
        _ => None,
    }
}

fn input(arguments: &str, lowering: &mut Lowering) -> Value {
    match serde_json::from_str::<Map<String, Value>>(arguments) {
        Ok(input) => Value::Object(input),
        Err(_) if arguments.trim().is_empty() => json!({}),
        Err(_) => {
            lowering.facts.wrapped_arguments += 1;
            json!({RAW_ARGUMENTS: arguments})
        }
    }
}

/// The API has a flag for failures, which it takes with text only; that a call was refused is said in words.
fn result(call_id: &str, outcome: Outcome, parts: &[Part<'_>], lowering: &mut Lowering) -> Value {
    let mut content: Vec<Value> = parts.iter().filter_map(|part| text_or_image(part, lowering)).collect();
    let is_text = content.iter().all(|block| block["type"] == "text");
    let flagged = outcome != Outcome::Ok && is_text;
    if outcome == Outcome::Rejected || (outcome == Outcome::Error && (!is_text || content.is_empty())) {
        match content.first_mut().filter(|block| block["type"] == "text") {
            Some(first) => {
                first["text"] = json!(format!("{}{}", prefix(outcome), first["text"].as_str().unwrap_or_default()));
            }
            None => content.insert(0, text(prefix(outcome))),
        }
    }
    let mut result = json!({"type": "tool_result", "tool_use_id": lowering.answered_id(call_id)});
    if !content.is_empty() {
        result["content"] = Value::Array(content);
    }
    if flagged {
        result["is_error"] = json!(true);
    }
    result
}

/// The newest message is continued by the model, and must not end with white space.
fn trim_end(message: &mut Draft, lowering: &mut Lowering) {
    if let Some(block) = message.middle.last_mut()
        && let Some(content) = block["text"].as_str()
        && content.trim_end().len() < content.len()
    {
        *block = text(content.trim_end());
        lowering.facts.trimmed_texts += 1;
    }
}

fn lower_tools(tools: &[Value], lowering: &mut Lowering) -> Value {
    let mut names = HashSet::new();
    let mut lowered = Vec::new();
    for schema in tools {
        let schema = ToolSchema::of(schema);
        let name = lowering.tool_name(schema.name);
        if !names.insert(name.clone().into_owned()) {
            lowering.facts.duplicate_tools += 1;
            continue;
        }
        let mut tool = json!({"name": name});
        if let Some(description) = schema.description {
            tool["description"] = json!(description);
        }
        tool["input_schema"] = lowering.parameters(&schema).unwrap_or_else(|| json!({"type": "object"}));
        lowered.push(tool);
    }
    Value::Array(lowered)
}

/// Checks a request for Anthropic Messages against the API's published rules. Looks at shape, never at text.
///
/// Stricter than the API in one point: it merges neighbouring messages of one role, and here all results of one
/// message of calls stand in the one message after it.
pub fn validate_anthropic(request: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut fail = |place: String, rule: &'static str| found.push(Violation { place, rule });
    match &request["system"] {
        Value::Null | Value::String(_) => {}
        Value::Array(blocks) => {
            for (i, block) in blocks.iter().enumerate() {
                if block["type"] != "text" || is_blank(&block["text"]) {
                    fail(format!("system[{i}]"), "is text and not blank");
                }
            }
        }
        _ => fail("system".into(), "is text or a list of text blocks"),
    }
    check_tools(&request["tools"], &mut fail);
    if cache_marks(request) > MAX_CACHE_MARKS {
        fail("".into(), "holds at most 4 cache marks");
    }
    let Some(messages) = request["messages"].as_array().filter(|messages| !messages.is_empty()) else {
        fail("messages".into(), "is a list of at least one message");
        return found;
    };
    if messages[0]["role"] != "user" {
        fail("messages[0].role".into(), "is user in the first message");
    }
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let place = format!("messages[{i}]");
        let is_user = match message["role"].as_str() {
            Some("user") => true,
            Some("assistant") => false,
            _ => {
                fail(format!("{place}.role"), "is user or assistant");
                continue;
            }
        };
        let is_last = i + 1 == messages.len();
        let content = &message["content"];
        let called = std::mem::take(&mut open);
        let mut answered: HashSet<&str> = HashSet::new();
        match content {
            Value::String(_) if !is_blank(content) => {}
            Value::Array(blocks) if !blocks.is_empty() => {
                let mut seen_other = false;
                for (j, block) in blocks.iter().enumerate() {
                    let at = format!("{place}.content[{j}]");
                    let kind = block["type"].as_str().unwrap_or_default();
                    match kind {
                        "text" if is_blank(&block["text"]) => fail(format!("{at}.text"), "is text and not blank"),
                        "text" => {}
                        "image" if is_user => check_source(&block["source"], &format!("{at}.source"), &mut fail),
                        "document" | "search_result" | "container_upload" if is_user => {}
                        "tool_result" if is_user => {
                            let id = block["tool_use_id"].as_str().unwrap_or_default();
                            if !called.contains(&id) || !answered.insert(id) {
                                fail(format!("{at}.tool_use_id"), "answers a call of the message before it, once");
                            }
                            if seen_other {
                                fail(at.clone(), "stands before the text of its message");
                            }
                            check_result(block, &at, &mut fail);
                        }
                        "thinking" | "redacted_thinking" if !is_user => {
                            if seen_other {
                                fail(at.clone(), "stands before the text and calls of its message");
                            }
                            check_thinking(block, &at, &mut fail);
                        }
                        "tool_use" if !is_user => {
                            let id = block["id"].as_str().unwrap_or_default();
                            if id.is_empty() || !id.chars().all(is_plain) {
                                fail(format!("{at}.id"), "is characters of a-z, A-Z, 0-9, _ and -");
                            } else if !ids.insert(id) {
                                fail(format!("{at}.id"), "is no other call's");
                            }
                            open.push(id);
                            check_name(&block["name"], format!("{at}.name"), &mut fail);
                            if !block["input"].is_object() {
                                fail(format!("{at}.input"), "is an object");
                            }
                        }
                        _ if !is_user && (kind == "server_tool_use" || kind.ends_with("_tool_result")) => {}
                        _ => fail(format!("{at}.type"), "is a kind of block that this role may send"),
                    }
                    seen_other |= !["tool_result", "thinking", "redacted_thinking"].contains(&kind);
                }
                if !is_user && !seen_other {
                    fail(format!("{place}.content"), "does not end with thinking");
                }
            }
            // The model goes on where the newest message ends, be it at its beginning.
            Value::Array(blocks) if blocks.is_empty() && !is_user && is_last => {}
            Value::String(text) if text.is_empty() && !is_user && is_last => {}
            _ => fail(format!("{place}.content"), "is text, not blank, or a list of at least one block"),
        }
        if called.iter().any(|id| !answered.contains(id)) {
            fail(place.clone(), "begins with a result for every call of the message before it");
        }
        if is_last && !open.is_empty() {
            fail(place.clone(), "is followed by a message with the results of its calls");
        }
        if is_last && !is_user {
            let last = content.as_array().and_then(|blocks| blocks.last()).map_or(content, |block| &block["text"]);
            if last.as_str().is_some_and(|text| text.ends_with(char::is_whitespace)) {
                fail(place, "does not end with white space, since the model goes on from there");
            }
        }
    }
    found
}

fn check_thinking(block: &Value, place: &str, fail: &mut impl FnMut(String, &'static str)) {
    let is_text = |key: &str| block[key].as_str().is_some_and(|text| !text.is_empty());
    if block["type"] == "redacted_thinking" {
        if !is_text("data") {
            fail(format!("{place}.data"), "is text, not empty");
        }
        return;
    }
    if !block["thinking"].is_string() {
        fail(format!("{place}.thinking"), "is text");
    }
    if !is_text("signature") {
        fail(format!("{place}.signature"), "is text, not empty");
    }
}

fn check_source(source: &Value, place: &str, fail: &mut impl FnMut(String, &'static str)) {
    match source["type"].as_str() {
        Some("base64") => {
            if !source["media_type"].as_str().is_some_and(is_media_type) {
                fail(format!("{place}.media_type"), "is image/jpeg, image/png, image/gif or image/webp");
            }
            if !source["data"].as_str().is_some_and(is_base64) {
                fail(format!("{place}.data"), "is base64");
            }
        }
        Some("url") => {
            if !source["url"].as_str().is_some_and(is_web_url) {
                fail(format!("{place}.url"), "is a web address");
            }
        }
        Some("file") if source["file_id"].is_string() => {}
        _ => fail(place.into(), "is base64, url or file"),
    }
}

fn check_result(block: &Value, place: &str, fail: &mut impl FnMut(String, &'static str)) {
    let is_error = &block["is_error"];
    if !is_error.is_null() && !is_error.is_boolean() {
        fail(format!("{place}.is_error"), "is true or false");
    }
    let failed = *is_error == true;
    let content = &block["content"];
    let is_empty = match content {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(blocks) => {
            for (i, block) in blocks.iter().enumerate() {
                let at = format!("{place}.content[{i}]");
                match block["type"].as_str().unwrap_or_default() {
                    "text" if is_blank(&block["text"]) => fail(format!("{at}.text"), "is text and not blank"),
                    "text" => {}
                    "image" | "document" | "search_result" if failed => {
                        fail(format!("{at}.type"), "is text in a result that is an error");
                    }
                    "image" => check_source(&block["source"], &format!("{at}.source"), fail),
                    "document" | "search_result" => {}
                    _ => fail(format!("{at}.type"), "is a kind of block that a result may hold"),
                }
            }
            blocks.is_empty()
        }
        _ => {
            fail(format!("{place}.content"), "is text or a list of blocks");
            false
        }
    };
    if failed && is_empty {
        fail(format!("{place}.content"), "is not empty in a result that is an error");
    }
}

fn check_name(name: &Value, place: String, fail: &mut impl FnMut(String, &'static str)) {
    let fits = name.as_str().is_some_and(|name| (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_plain));
    if !fits {
        fail(place, "is 1 to 128 characters of a-z, A-Z, 0-9, _ and -");
    }
}

fn check_tools(tools: &Value, fail: &mut impl FnMut(String, &'static str)) {
    match tools {
        Value::Null => {}
        Value::Array(tools) => {
            let mut names = HashSet::new();
            for (i, tool) in tools.iter().enumerate() {
                check_name(&tool["name"], format!("tools[{i}].name"), fail);
                if let Some(name) = tool["name"].as_str()
                    && !names.insert(name)
                {
                    fail(format!("tools[{i}].name"), "is no other tool's");
                }
                let is_own = tool["type"].as_str().is_none_or(|kind| kind == "custom");
                if is_own && !is_object_schema(&tool["input_schema"]) {
                    fail(format!("tools[{i}].input_schema"), "is the schema of an object");
                }
            }
        }
        _ => fail("tools".into(), "is a list"),
    }
}

/// The cache marks on tools, system blocks and message blocks; those inside of tool schemas and arguments are none.
fn cache_marks(request: &Value) -> usize {
    fn list(value: &Value) -> &[Value] {
        value.as_array().map(Vec::as_slice).unwrap_or_default()
    }
    let marked = |blocks: &[Value]| blocks.iter().filter(|block| block["cache_control"].is_object()).count();
    let messages = list(&request["messages"]).iter().flat_map(|message| list(&message["content"]));
    marked(list(&request["tools"]))
        + marked(list(&request["system"]))
        + messages.map(|block| marked(std::slice::from_ref(block)) + marked(list(&block["content"]))).sum::<usize>()
}
