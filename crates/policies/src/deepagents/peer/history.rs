//! The file that evicted messages go to.

use serde_json::Value;

use super::message::{calls, is_assistant, is_summary, role, shortened};
use super::{Backend, Stored};
use crate::exact::{PythonJson, python_json};

/// Where history files are, below the root for artifacts.
pub const HISTORY_FOLDER: &str = "/conversation_history/";
/// Characters of a call's id that are shown.
const ID_CHARACTERS: usize = 64;

/// Appends messages to a session's file. `None` where that failed.
pub fn offload(messages: &[Value], session: &str, backend: &mut dyn Backend) -> Option<String> {
    let path = format!("{HISTORY_FOLDER}{session}.md");
    let shown: Vec<String> = messages.iter().filter(|message| !is_summary(message)).map(xml).collect();
    let section = format!("## Summarized at {}\n\n{}\n\n", backend.now(), shown.join("\n"));
    let old = backend.read(&path).ok().flatten().and_then(|bytes| String::from_utf8(bytes).ok());
    let stored = match old.filter(|old| !old.is_empty()) {
        Some(old) => backend.edit(&path, &old, &format!("{old}{section}")),
        None => backend.write(&path, &section),
    };
    (stored == Ok(Stored::Done)).then_some(path)
}

fn xml(message: &Value) -> String {
    let kind = match role(message) {
        "user" => "human",
        "assistant" => "ai",
        other => other,
    };
    let content = content(&message["content"]);
    let mut calls = calls(message).peekable();
    if !is_assistant(message) || calls.peek().is_none() {
        return format!("<message type=\"{kind}\">{content}</message>");
    }
    let mut lines = vec![format!("<message type=\"{kind}\">")];
    if !content.is_empty() {
        lines.push(format!("  <content>{content}</content>"));
    }
    for call in calls {
        let style = PythonJson { unicode: true, ..PythonJson::default() };
        let arguments = escaped(&python_json(&Value::Object(call.arguments()), style));
        let (id, name) = (attribute(&shortened(call.id(), ID_CHARACTERS)), attribute(call.name()));
        lines.push(format!("  <tool_call id=\"{id}\" name=\"{name}\">{arguments}</tool_call>"));
    }
    lines.push("</message>".to_owned());
    lines.join("\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn attribute(text: &str) -> String {
    escaped(text).replace('"', "&quot;")
}

fn content(content: &Value) -> String {
    match content {
        Value::String(text) => escaped(text),
        Value::Array(blocks) => blocks.iter().filter_map(block).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

/// A block; none for data inside the message, and for what is not known.
fn block(block: &Value) -> Option<String> {
    let kind = match block {
        Value::String(text) => return Some(escaped(text)),
        block => block["type"].as_str()?,
    };
    match kind {
        "text" => block["text"].as_str().map(escaped),
        "reasoning" => block["reasoning"].as_str().map(|text| format!("<reasoning>{}</reasoning>", escaped(text))),
        "image" | "image_url" | "audio" | "video" => {
            let name = if kind == "image_url" { "image" } else { kind };
            let url = block["url"].as_str().or_else(|| block["image_url"]["url"].as_str());
            match (url.filter(|url| !url.starts_with("data:")), block["file_id"].as_str()) {
                (Some(url), _) => Some(format!("<{name} url=\"{}\" />", attribute(url))),
                (None, Some(id)) => Some(format!("<{name} file_id=\"{}\" />", attribute(id))),
                (None, None) => None,
            }
        }
        _ => None,
    }
}
