//! OpenAI Chat Completions: the request as JSON, and the rules of the API as a validator.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::api::{Image, Lowering, ToolSchema, Violation, check_name, is_blank, is_object_schema, prefix};
use super::{Api, Body, IMAGE_MARKER, Part, Request, Speaker, Turn};

/// Longest call id, in characters: the least of what services behind this API take.
pub(super) const MAX_ID: usize = 40;

impl Request<'_> {
    /// The request for OpenAI Chat Completions: an object with `messages` and, where there are any, `tools`.
    ///
    /// A single text is sent as a string, anything else as a list of parts. Images stand in user messages only;
    /// elsewhere a marker says that there was one. Thinking is not sent. Names are made to fit the API's pattern.
    pub fn to_openai_chat(&self) -> Value {
        self.render(Api::OpenAiChat)
    }
}

pub(super) fn lower(request: &Request<'_>, lowering: &mut Lowering) -> Value {
    let messages: Vec<Value> = request.turns.iter().map(|turn| message(turn, lowering)).collect();
    match request.tools {
        Some((_, tools)) => {
            let tools: Vec<Value> = tools.iter().map(|schema| tool(schema, lowering)).collect();
            json!({"messages": messages, "tools": tools})
        }
        None => json!({"messages": messages}),
    }
}

fn message(turn: &Turn<'_>, lowering: &mut Lowering) -> Value {
    match &turn.speaker {
        Speaker::System => json!({"role": "system", "content": text_content(&turn.parts, "", lowering)}),
        Speaker::User => json!({"role": "user", "content": user_content(&turn.parts, lowering)}),
        Speaker::Tool { call_id, outcome, .. } => json!({
            "role": "tool",
            "tool_call_id": lowering.answered_id(call_id),
            "content": text_content(&turn.parts, prefix(*outcome), lowering),
        }),
        Speaker::Assistant => {
            lowering.begin_turn();
            let mut message = json!({"role": "assistant"});
            let content = text_content(&turn.parts, "", lowering);
            if content != "" {
                message["content"] = content;
            }
            let mut calls = Vec::new();
            for part in &turn.parts {
                if let Body::Call { id, name, arguments } = &part.body {
                    calls.push(json!({
                        "id": lowering.call_id(id),
                        "type": "function",
                        "function": {"name": lowering.tool_name(name), "arguments": arguments},
                    }));
                }
            }
            if !calls.is_empty() {
                message["tool_calls"] = Value::Array(calls);
            }
            message
        }
    }
}

fn text_content(parts: &[Part<'_>], prefix: &'static str, lowering: &mut Lowering) -> Value {
    match lowering.texts(parts, prefix).as_slice() {
        [] => json!(""),
        [text] => json!(text),
        texts => texts.iter().map(|text| json!({"type": "text", "text": text})).collect(),
    }
}

fn user_content(parts: &[Part<'_>], lowering: &mut Lowering) -> Value {
    if !parts.iter().any(|part| matches!(part.body, Body::Image(_))) {
        return text_content(parts, "", lowering);
    }
    let mut list = Vec::new();
    for part in parts {
        match &part.body {
            Body::Text(text) => list.push(json!({"type": "text", "text": text})),
            Body::Image(url) => list.push(match lowering.image(url) {
                Some(image) => json!({"type": "image_url", "image_url": {"url": image.to_url()}}),
                None => json!({"type": "text", "text": IMAGE_MARKER}),
            }),
            Body::Thinking(_) => lowering.thinking_left_out(),
            Body::Call { .. } => {}
        }
    }
    Value::Array(list)
}

/// A tool schema of any known spelling, as the API takes it.
pub(super) fn tool(schema: &Value, lowering: &mut Lowering) -> Value {
    let schema = ToolSchema::of(schema);
    let mut function = json!({"name": lowering.tool_name(schema.name)});
    if let Some(description) = schema.description {
        function["description"] = json!(description);
    }
    if let Some(parameters) = lowering.parameters(&schema) {
        function["parameters"] = parameters;
    }
    json!({"type": "function", "function": function})
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
                } else if kind == "text" && is_blank(&part["text"]) {
                    fail(format!("{place}[{i}].text"), "is text and not blank");
                } else if kind == "image_url" && part["image_url"]["url"].as_str().and_then(Image::parse).is_none() {
                    fail(
                        format!("{place}[{i}].image_url.url"),
                        "is a web address or base64 data of a known image type",
                    );
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
                    Some(id) if (1..=MAX_ID).contains(&id.chars().count()) && seen.insert(id) => open.push(id),
                    _ => fail(format!("{place}[{i}].id"), "is 1 to 40 characters, and no other call's of its message"),
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

fn check_tools(tools: &Value, fail: &mut impl FnMut(String, &'static str)) {
    match tools {
        Value::Null => {}
        Value::Array(tools) if !tools.is_empty() => {
            for (i, tool) in tools.iter().enumerate() {
                if tool["type"] != "function" {
                    fail(format!("tools[{i}].type"), "is function");
                }
                check_name(&tool["function"]["name"], format!("tools[{i}].function.name"), fail);
                let parameters = &tool["function"]["parameters"];
                if !parameters.is_null() && !is_object_schema(parameters) {
                    fail(format!("tools[{i}].function.parameters"), "is the schema of an object");
                }
            }
        }
        _ => fail("tools".into(), "is a list of at least one tool"),
    }
}
