//! Compaction by a model's summary.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::notices::{answer_text, display_text, paths};
use super::{Settings, blocks, is_assistant, is_summary, is_typed, last_typed};
use crate::exact::{utf16_len, utf16_slice};

/// How many messages the summary stands for, so that about `preserve` tokens stay; 0 is none.
pub fn cut(messages: &[Value], preserve: u64, settings: &Settings) -> usize {
    let (mut index, mut tokens) = (messages.len(), 0);
    while index > 0 && tokens < preserve {
        index -= 1;
        tokens += settings.tokens(&messages[index]);
    }
    if index == 0 {
        return 0;
    }
    if let Some(typed) = last_typed(messages).filter(|typed| *typed > 0) {
        index = index.min(typed);
    }
    while index > 0 && messages.get(index).is_some_and(|message| !is_assistant(message) && !is_typed(message)) {
        index -= 1;
    }
    if index >= messages.len() { 0 } else { index }
}

/// The newest summary among messages, and the messages behind it.
pub fn fold(messages: &[Value]) -> (Option<&Value>, &[Value]) {
    match messages.iter().rposition(is_summary) {
        Some(at) => (messages.get(at), &messages[at + 1..]),
        None => (None, messages),
    }
}

/// The files that messages read and changed, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Read, or sent along with a prompt.
    pub read: Vec<String>,
    /// Changed.
    pub modified: Vec<String>,
}

impl Files {
    /// Those of messages, and of the summaries among them.
    pub fn of(messages: &[Value]) -> Self {
        let (mut read, mut modified) = (BTreeSet::new(), BTreeSet::new());
        for message in messages {
            let details = &message["metadata"]["details"];
            let named = |field: &str| details[field].as_array().into_iter().flatten().filter_map(Value::as_str);
            read.extend(named("readFiles").map(str::to_owned));
            modified.extend(named("modifiedFiles").map(str::to_owned));
            for block in blocks(message) {
                match (block["type"].as_str(), block["name"].as_str()) {
                    (Some("file"), _) => read.extend(block["path"].as_str().map(str::to_owned)),
                    (Some("tool_use"), Some("read_files")) => read.extend(read_paths(&block["input"])),
                    (Some("tool_use"), Some("editor" | "apply_patch")) => modified.extend(paths(&block["input"])),
                    _ => {}
                }
            }
        }
        let sorted = |files: BTreeSet<String>| {
            let mut files: Vec<String> = files.into_iter().collect();
            files.sort_by_cached_key(|file| collation(file));
            files
        };
        Self { read: sorted(read), modified: sorted(modified) }
    }
}

/// A key that sorts as a locale does: punctuation, digits, letters, and small letters before large ones.
fn collation(text: &str) -> (Vec<(usize, char)>, Vec<bool>) {
    const PUNCTUATION: &str = " _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
    let primary = |c: char| {
        let rank = PUNCTUATION.find(c).unwrap_or(PUNCTUATION.len());
        (rank, c.to_lowercase().next().unwrap_or(c))
    };
    (text.chars().map(primary).collect(), text.chars().map(char::is_uppercase).collect())
}

fn read_paths(input: &Value) -> Vec<String> {
    let files = input["files"].as_array().into_iter().flatten();
    files.filter_map(|file| file["path"].as_str()).map(str::to_owned).chain(paths(input)).collect()
}

/// A message as the summarizer is shown it: a line for each block, with the speaker's name.
pub fn serialize(message: &Value, settings: &Settings) -> Vec<String> {
    match &message["content"] {
        Value::String(text) => vec![format!("[{}] {}", speaker(message), display_text(text))],
        _ => blocks(message).iter().map(|block| line(speaker(message), block, settings)).collect(),
    }
}

fn speaker(message: &Value) -> &'static str {
    if is_assistant(message) { "assistant" } else { "user" }
}

fn line(role: &str, block: &Value, settings: &Settings) -> String {
    let most = settings.summarized_characters;
    let short = |text: &str| match utf16_len(text) > most {
        true => format!("{}...", utf16_slice(text, 0, most)),
        false => text.to_owned(),
    };
    let text = |field: &str| block[field].as_str().unwrap_or_default();
    match text("type") {
        "text" => format!("[{role}] {}", text("text")),
        "thinking" => format!("[{role}, thinking] {}", short(text("thinking"))),
        "tool_use" => format!("[{role}, call of {}] {}", text("name"), block["input"]),
        "tool_result" => format!("[result] {}", short(&result_text(&block["content"]))),
        "file" => format!("[file {}] {}", text("path"), short(text("content"))),
        kind => format!("[{role}] <{kind}>"),
    }
}

fn result_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        _ => {
            let text = |part: &Value| match part["type"].as_str() {
                Some("text") => part["text"].as_str().map(str::to_owned),
                Some("file") => part["content"].as_str().map(str::to_owned),
                Some("image") => Some("<image>".to_owned()),
                _ => None,
            };
            content.as_array().into_iter().flatten().filter_map(text).collect::<Vec<_>>().join("\n")
        }
    }
}

/// The text of an earlier summary.
pub fn summary_text(message: &Value) -> String {
    match message["metadata"]["summary"].as_str() {
        Some(summary) => summary.to_owned(),
        None => answer_text(message),
    }
}

/// What follows a summary that names no files itself.
pub fn file_section(files: &Files) -> String {
    let list = |title: &str, files: &[String]| match files.is_empty() {
        true => String::new(),
        false => format!("\n\n{title}\n{}", files.iter().map(|it| format!("- {it}")).collect::<Vec<_>>().join("\n")),
    };
    format!("{}{}", list(READ_TITLE, &files.read), list(MODIFIED_TITLE, &files.modified))
}

const READ_TITLE: &str = "## Files read";
const MODIFIED_TITLE: &str = "## Files modified";

impl Files {
    /// A summary without what [`file_section`] wrote at its end, and what that was.
    pub fn split_off(summary: &str) -> (&str, Self) {
        let starts = [READ_TITLE, MODIFIED_TITLE].map(|title| summary.find(&format!("\n\n{title}\n")));
        let start = starts.into_iter().flatten().min().unwrap_or(summary.len());
        let mut files = Self::default();
        let mut list = None;
        for line in summary[start..].lines() {
            match line.strip_prefix("- ") {
                _ if line == READ_TITLE => list = Some(&mut files.read),
                _ if line == MODIFIED_TITLE => list = Some(&mut files.modified),
                Some(file) => list.iter_mut().for_each(|list| list.push(file.to_owned())),
                None => {}
            }
        }
        (&summary[..start], files)
    }

    /// As the result's metadata carries them.
    pub fn details(&self) -> Value {
        json!({"readFiles": self.read, "modifiedFiles": self.modified})
    }
}
