//! OpenAI Responses: the request as JSON, and the rules of the API as a validator.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::api::{Image, Lowering, ToolSchema, Violation, check_name, is_blank, is_object_schema, is_plain, prefix};
use super::{Api, Body, Part, Request, Speaker, Turn};

/// Longest call id, in characters.
pub(super) const MAX_ID: usize = 64;

impl Request<'_> {
    /// The request for OpenAI Responses: an object with `input` and, where there are any, `instructions` and `tools`.
    ///
    /// System text before the first assistant turn stands in `instructions`, later in its place with the role
    /// `system`. Call ids are unique in the request. Thinking is not sent: reasoning items are made by the API
    /// itself, and it refuses those of others. Tools are not strict, since their schemas are the source's own.
    pub fn to_openai_responses(&self) -> Value {
        self.render(Api::OpenAiResponses)
    }
}

pub(super) fn lower(request: &Request<'_>, lowering: &mut Lowering) -> Value {
    let n_leading = request.n_before_assistant();
    let mut instructions = Vec::new();
    let mut input = Vec::new();
    for (position, turn) in request.turns.iter().enumerate() {
        if turn.speaker == Speaker::System && position < n_leading {
            instructions.extend(lowering.texts(&turn.parts, ""));
        } else {
            items(turn, lowering, &mut input);
        }
    }
    let mut json = json!({});
    if !instructions.is_empty() {
        json["instructions"] = json!(instructions.join("\n\n"));
    }
    if let Some((_, tools)) = request.tools {
        json["tools"] = tools.iter().map(|schema| tool(schema, lowering)).collect();
    }
    json["input"] = Value::Array(input);
    json
}

fn items(turn: &Turn<'_>, lowering: &mut Lowering, input: &mut Vec<Value>) {
    match &turn.speaker {
        Speaker::System => input.push(message("system", texts(turn, "input_text", lowering))),
        Speaker::User => input.push(message("user", parts(&turn.parts, "", lowering))),
        Speaker::Assistant => {
            lowering.begin_turn();
            if turn.parts.iter().any(|part| matches!(part.body, Body::Text(_) | Body::Image(_))) {
                input.push(message("assistant", texts(turn, "output_text", lowering)));
            } else {
                turn.parts
                    .iter()
                    .filter(|part| matches!(part.body, Body::Thinking(_)))
                    .for_each(|_| lowering.thinking_left_out());
            }
            for part in &turn.parts {
                if let Body::Call { id, name, arguments } = &part.body {
                    input.push(json!({
                        "type": "function_call",
                        "call_id": lowering.call_id(id),
                        "name": lowering.tool_name(name),
                        "arguments": arguments,
                    }));
                }
            }
        }
        Speaker::Tool { call_id, outcome, .. } => input.push(json!({
            "type": "function_call_output",
            "call_id": lowering.answered_id(call_id),
            "output": parts(&turn.parts, prefix(*outcome), lowering),
        })),
    }
}

fn message(role: &str, content: Value) -> Value {
    json!({"type": "message", "role": role, "content": content})
}

/// A single text as a string, several as a list of parts.
fn texts(turn: &Turn<'_>, kind: &str, lowering: &mut Lowering) -> Value {
    match lowering.texts(&turn.parts, "").as_slice() {
        [text] => json!(text),
        texts => texts.iter().map(|text| json!({"type": kind, "text": text})).collect(),
    }
}

/// Content that may hold images.
fn parts(parts: &[Part<'_>], prefix: &'static str, lowering: &mut Lowering) -> Value {
    if !parts.iter().any(|part| matches!(part.body, Body::Image(_))) {
        return match lowering.texts(parts, prefix).as_slice() {
            [] => json!(""),
            [text] => json!(text),
            texts => texts.iter().map(|text| json!({"type": "input_text", "text": text})).collect(),
        };
    }
    let text = |text: &str| json!({"type": "input_text", "text": text});
    let mut list = Vec::new();
    if !prefix.is_empty() {
        list.push(text(prefix));
    }
    for part in parts {
        match &part.body {
            Body::Text(content) => list.push(text(content)),
            Body::Image(url) => list.push(match lowering.image(url) {
                Some(image) => json!({"type": "input_image", "image_url": image.to_url(), "detail": "auto"}),
                None => text(super::IMAGE_MARKER),
            }),
            Body::Thinking(_) => lowering.thinking_left_out(),
            Body::Call { .. } => {}
        }
    }
    Value::Array(list)
}

fn tool(schema: &Value, lowering: &mut Lowering) -> Value {
    let schema = ToolSchema::of(schema);
    let mut tool = json!({"type": "function", "name": lowering.tool_name(schema.name)});
    if let Some(description) = schema.description {
        tool["description"] = json!(description);
    }
    tool["parameters"] = json!(lowering.parameters(&schema));
    tool["strict"] = json!(false);
    tool
}

/// Items of the API's own tools, whose insides are not checked.
const OTHER_ITEMS: [&str; 20] = [
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction",
    "computer_call",
    "computer_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "file_search_call",
    "image_generation_call",
    "item_reference",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "shell_call",
    "shell_call_output",
    "web_search_call",
];

/// Checks a request for OpenAI Responses against the API's published rules. Looks at shape, never at text.
pub fn validate_openai_responses(request: &Value) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut fail = |place: String, rule: &'static str| found.push(Violation { place, rule });
    match &request["input"] {
        Value::String(_) if !is_blank(&request["input"]) => {}
        Value::Array(items) if !items.is_empty() => check_items(items, &mut fail),
        _ => fail("input".into(), "is text or a list of at least one item"),
    }
    if !request["instructions"].is_null() && !request["instructions"].is_string() {
        fail("instructions".into(), "is text");
    }
    check_tools(&request["tools"], &mut fail);
    found
}

fn check_items(items: &[Value], fail: &mut impl FnMut(String, &'static str)) {
    let mut called: HashSet<&str> = HashSet::new();
    let mut open: Vec<(&str, usize)> = Vec::new();
    for (i, item) in items.iter().enumerate() {
        let at = |field: &str| format!("input[{i}]{field}");
        let id = &item["id"];
        let has_id = id.as_str().is_some_and(|id| !id.is_empty() && id.len() <= MAX_ID && id.chars().all(is_plain));
        if !id.is_null() && !has_id {
            fail(at(".id"), "is 1 to 64 characters of a-z, A-Z, 0-9, _ and -");
        }
        match kind(item) {
            "message" => check_message(item, &at, fail),
            "function_call" => {
                match item["call_id"].as_str().filter(|id| (1..=MAX_ID).contains(&id.chars().count())) {
                    Some(id) if called.insert(id) => open.push((id, i)),
                    _ => fail(at(".call_id"), "is 1 to 64 characters, and no other call's"),
                }
                check_name(&item["name"], at(".name"), fail);
                if !item["arguments"].is_string() {
                    fail(at(".arguments"), "is JSON as text");
                }
            }
            "function_call_output" => {
                match item["call_id"].as_str().and_then(|id| open.iter().position(|(call, _)| *call == id)) {
                    Some(position) => {
                        open.remove(position);
                    }
                    None => fail(at(".call_id"), "answers a call before it, once"),
                }
                if item["output"] != "" {
                    check_content(&item["output"], &INPUT, &at(".output"), fail);
                }
            }
            "reasoning" => {
                if !has_id {
                    fail(at(".id"), "names the item");
                }
                if !item["summary"].is_array() {
                    fail(at(".summary"), "is a list");
                }
                let led_to = items.get(i + 1).is_some_and(|next| match kind(next) {
                    "message" => next["role"] == "assistant",
                    other => !other.ends_with("_output") && other != "compaction",
                });
                if !led_to {
                    fail(at(""), "stands directly before what the reasoning led to");
                }
            }
            other if OTHER_ITEMS.contains(&other) => {}
            _ => fail(at(".type"), "is a kind of item that the API takes"),
        }
    }
    for (_, i) in open {
        fail(format!("input[{i}]"), "is answered by an output");
    }
}

/// The kind of an item; an item with a role may leave it out.
fn kind(item: &Value) -> &str {
    match &item["type"] {
        Value::Null if item["role"].is_string() => "message",
        kind => kind.as_str().unwrap_or_default(),
    }
}

const INPUT: [&str; 3] = ["input_text", "input_image", "input_file"];

fn check_message(item: &Value, at: &impl Fn(&str) -> String, fail: &mut impl FnMut(String, &'static str)) {
    let kinds: &[&str] = match item["role"].as_str().unwrap_or_default() {
        "user" => &INPUT,
        "system" | "developer" => &["input_text"],
        "assistant" => &["output_text", "refusal"],
        _ => return fail(at(".role"), "is system, developer, user or assistant"),
    };
    check_content(&item["content"], kinds, &at(".content"), fail);
}

fn check_content(content: &Value, kinds: &[&str], place: &str, fail: &mut impl FnMut(String, &'static str)) {
    match content {
        Value::String(_) if is_blank(content) => fail(place.into(), "is not blank"),
        Value::String(_) => {}
        Value::Array(parts) if !parts.is_empty() => {
            for (i, part) in parts.iter().enumerate() {
                let kind = part["type"].as_str().unwrap_or_default();
                if !kinds.contains(&kind) {
                    fail(format!("{place}[{i}].type"), "is a kind of part that may stand here");
                } else if kind.ends_with("_text") && is_blank(&part["text"]) {
                    fail(format!("{place}[{i}].text"), "is text and not blank");
                } else if kind == "input_image"
                    && part["file_id"].is_null()
                    && part["image_url"].as_str().and_then(Image::parse).is_none()
                {
                    fail(format!("{place}[{i}].image_url"), "is a web address or base64 data of a known image type");
                }
            }
        }
        _ => fail(place.into(), "is text or a list of at least one part"),
    }
}

fn check_tools(tools: &Value, fail: &mut impl FnMut(String, &'static str)) {
    match tools {
        Value::Null => {}
        Value::Array(tools) => {
            for (i, tool) in tools.iter().enumerate() {
                match tool["type"].as_str() {
                    Some("function") => {
                        check_name(&tool["name"], format!("tools[{i}].name"), fail);
                        let parameters = &tool["parameters"];
                        if !parameters.is_null() && !is_object_schema(parameters) {
                            fail(format!("tools[{i}].parameters"), "is the schema of an object");
                        }
                        if !tool["strict"].is_null() && !tool["strict"].is_boolean() {
                            fail(format!("tools[{i}].strict"), "is true or false");
                        }
                    }
                    Some(_) => {}
                    None => fail(format!("tools[{i}].type"), "is text"),
                }
            }
        }
        _ => fail("tools".into(), "is a list"),
    }
}
