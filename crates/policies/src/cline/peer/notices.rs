//! What is said of messages that were dropped, without a model.

use std::collections::HashMap;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::{Settings, blocks, is_assistant, is_kind, is_typed};
use crate::exact::{js_trim, utf16_len, utf16_slice};

/// What happened in a span of messages, each thing once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// Files that were read.
    pub files_read: Vec<String>,
    /// Files that were edited, with their lines.
    pub files_edited: Vec<String>,
    /// Commands.
    pub commands: Vec<String>,
    /// Answers, word for word.
    pub responses: Vec<String>,
}

impl Notice {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// As a block that [`Notice::text`] gives the words of.
    fn block(&self) -> Value {
        json!({
            "type": "notice",
            "files_read": self.files_read,
            "files_edited": self.files_edited,
            "commands": self.commands,
            "responses": self.responses,
        })
    }

    /// The words of a notice's block.
    pub fn text(block: &Value) -> String {
        let mut text = "<SYSTEM_NOTICE>\nMessages that stood here were left out to save room.".to_owned();
        let fields = [
            ("files_read", "Files read"),
            ("files_edited", "Files edited"),
            ("commands", "Commands run"),
            ("responses", "What the assistant said"),
        ];
        for (field, title) in fields {
            let entries: Vec<&str> = block[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if !entries.is_empty() {
                text.push_str(&format!("\n{title}:"));
                entries.iter().for_each(|entry| text.push_str(&format!("\n- {entry}")));
            }
        }
        text.push_str("\n</SYSTEM_NOTICE>");
        text
    }
}

pub(super) const PATH_FIELDS: [&str; 5] = ["path", "file_path", "target_file", "new_file_path", "old_file_path"];

/// The files that a call's input names.
pub(super) fn paths(input: &Value) -> Vec<String> {
    let one = PATH_FIELDS.iter().filter_map(|field| input[*field].as_str());
    let many = input["file_paths"].as_array().into_iter().flatten().filter_map(Value::as_str);
    one.chain(many).filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

/// The files of a reading call, with their lines.
pub(super) fn files_read(input: &Value) -> Vec<String> {
    let named = |file: &Value| {
        let path = file["path"].as_str()?;
        Some(match (file["start_line"].as_u64(), file["end_line"].as_u64()) {
            (Some(start), Some(end)) => format!("{path}:{start}-{end}"),
            _ => path.to_owned(),
        })
    };
    let files: Vec<String> = input["files"].as_array().into_iter().flatten().filter_map(named).collect();
    if files.is_empty() { paths(input) } else { files }
}

/// The lines of a numbered diff in an edit's result, least and largest.
fn edited_lines(result: &Value) -> Option<(u64, u64)> {
    let text = match result {
        Value::String(text) => text.clone(),
        other => other.as_array()?.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
    };
    let inner = serde_json::from_str::<Value>(&text).ok().and_then(|json| Some(json["result"].as_str()?.to_owned()));
    let text = inner.unwrap_or(text);
    // At the start of a line, also where a line end is written as two characters.
    let numbered = Regex::new(r"(?:^|\n|\\n)[+-](\d+):").ok()?;
    let lines: Vec<u64> = numbered.captures_iter(&text).filter_map(|found| found[1].parse().ok()).collect();
    Some((*lines.iter().min()?, *lines.iter().max()?))
}

fn add(list: &mut Vec<String>, entry: String) {
    if !list.contains(&entry) {
        list.push(entry);
    }
}

/// The texts of an answer.
pub(super) fn answer_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => js_trim(text).to_owned(),
        _ => {
            let texts =
                blocks(message).iter().filter(|block| is_kind(block, "text")).filter_map(|it| it["text"].as_str());
            js_trim(&texts.collect::<Vec<_>>().join("\n")).to_owned()
        }
    }
}

/// The words that a user wrote, without what the client puts around them.
pub fn display_text(text: &str) -> String {
    let mut text = js_trim(text).to_owned();
    for tag in ["user_input", "user_command", "user_message"] {
        if let Ok(wrapper) = Regex::new(&format!(r"(?s)^<{tag}(?:\s[^>]*)?>(.*)</{tag}>$"))
            && let Some(inner) = wrapper.captures(&text).map(|found| js_trim(&found[1]).to_owned())
        {
            text = inner;
        }
    }
    text
}

struct Notices<'m> {
    original: &'m [Value],
    /// The positions of the newest answers that are repeated.
    responses: Vec<usize>,
    settings: &'m Settings,
}

impl<'m> Notices<'m> {
    fn new(original: &'m [Value], settings: &'m Settings) -> Self {
        let has_text = |at: &usize| is_assistant(&original[*at]) && !answer_text(&original[*at]).is_empty();
        let responses = (0..original.len()).rev().filter(has_text).take(settings.notice_responses).collect();
        Self { original, responses, settings }
    }

    fn of(&self, span: std::ops::Range<usize>) -> Option<Value> {
        let mut notice = Notice::default();
        let mut edits: Vec<(&str, String)> = Vec::new();
        for at in span {
            let Some(message) = self.original.get(at) else { break };
            if self.responses.contains(&at) {
                add(&mut notice.responses, answer_text(message));
            }
            for block in blocks(message) {
                match block["type"].as_str() {
                    Some("tool_use") => self.add_call(block, &mut notice, &mut edits),
                    Some("tool_result") => {
                        let id = block["tool_use_id"].as_str().unwrap_or_default();
                        if let Some(number) = edits.iter().position(|(call, _)| *call == id) {
                            let (_, path) = edits.remove(number);
                            add(
                                &mut notice.files_edited,
                                match edited_lines(&block["content"]) {
                                    Some((first, last)) => format!("{path}:{first}-{last}"),
                                    None => path,
                                },
                            );
                        }
                    }
                    _ => {}
                }
            }
        }
        edits.into_iter().for_each(|(_, path)| add(&mut notice.files_edited, path));
        (!notice.is_empty()).then(|| notice.block())
    }

    fn add_call(&self, block: &'m Value, notice: &mut Notice, edits: &mut Vec<(&'m str, String)>) {
        let input = &block["input"];
        match block["name"].as_str() {
            Some("read_files") => files_read(input).into_iter().for_each(|file| add(&mut notice.files_read, file)),
            Some("editor" | "apply_patch") => {
                if let Some(path) = paths(input).into_iter().next() {
                    edits.push((block["id"].as_str().unwrap_or_default(), path));
                }
            }
            Some("run_commands") => {
                for command in input["commands"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    let command = js_trim(command);
                    let most = self.settings.command_characters;
                    if utf16_len(command) > most {
                        add(&mut notice.commands, format!("{}...", utf16_slice(command, 0, most)));
                    } else if !command.is_empty() {
                        add(&mut notice.commands, command.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
}

/// How many messages of the user one stands for.
pub(super) fn run_span(message: &Value) -> u64 {
    let metadata = &message["metadata"];
    let stored = metadata["userRunSpan"].as_u64();
    if message["role"] != "user" {
        return 0;
    }
    match metadata["kind"].as_str() {
        Some("compaction" | "compaction_summary") => return stored.unwrap_or(1),
        Some(_) if stored.is_none() => return 0,
        _ => {}
    }
    let is_empty = match &message["content"] {
        Value::String(text) => js_trim(text).is_empty(),
        content => content.as_array().is_none_or(Vec::is_empty),
    };
    stored.unwrap_or(u64::from(!is_empty))
}

/// What is said behind each kept message of the user that messages of the original are missing behind.
pub(super) fn notices(kept: &[Value], original: &[Value], settings: &Settings) -> Vec<Option<Value>> {
    let ids: HashMap<&str, usize> =
        original.iter().enumerate().filter_map(|(at, message)| Some((message["id"].as_str()?, at))).collect();
    let place = |message: &Value| ids.get(message["id"].as_str()?).copied();
    let notices = Notices::new(original, settings);
    let behind = |(at, message): (usize, &Value)| {
        let next = match kept.get(at + 1) {
            Some(next) => place(next)?,
            None => original.len(),
        };
        is_typed(message).then(|| notices.of(place(message)? + 1..next))?
    };
    kept.iter().enumerate().map(behind).collect()
}

/// The kept messages with their notices. Prompts that follow each other become one.
pub(super) fn joined(kept: &[Value], notices: &[Option<Value>]) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    let mut n_members = 0;
    for (message, notice) in kept.iter().zip(notices) {
        if !is_typed(message) {
            joined.push(message.clone());
            n_members = 0;
            continue;
        }
        let mut member = message.clone();
        match joined.last_mut().filter(|_| n_members > 0) {
            Some(first) => {
                let span = |message: &Value| {
                    if n_members == 1 {
                        run_span(message)
                    } else {
                        message["metadata"]["userRunSpan"].as_u64().unwrap_or(0)
                    }
                };
                let span = span(first) + run_span(&member);
                append(first, take_blocks(&mut member));
                metadata(first)["userRunSpan"] = json!(span);
            }
            None => joined.push(member),
        }
        n_members += 1;
        if let (Some(notice), Some(message)) = (notice, joined.last_mut()) {
            append(message, [notice.clone()]);
        }
    }
    joined
}

/// The content as blocks, taken out.
fn take_blocks(message: &mut Value) -> Vec<Value> {
    match message["content"].take() {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks,
        _ => Vec::new(),
    }
}

fn append(message: &mut Value, blocks: impl IntoIterator<Item = Value>) {
    let mut list = take_blocks(message);
    list.extend(blocks);
    message["content"] = Value::Array(list);
}

/// The metadata, made where there is none.
pub(super) fn metadata(message: &mut Value) -> &mut Value {
    if !message["metadata"].is_object() {
        message["metadata"] = Value::Object(Map::new());
    }
    &mut message["metadata"]
}
