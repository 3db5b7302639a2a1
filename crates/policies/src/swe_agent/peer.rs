//! The original's history processors, exact.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::exact::python_lines;

/// One entry of a history as the original stores it: `role`, `content` (text or blocks), `message_type`, and possibly
/// `is_demo`, `tags` and `tool_calls`.
pub type Entry = Map<String, Value>;

/// What a processor changes, by position in the history: the content that is sent, or `None` where the entry is left out.
pub type Changes = BTreeMap<usize, Option<Value>>;

/// The history with these changes, each entry with its position.
fn changed(history: Vec<Entry>, mut changes: Changes) -> impl Iterator<Item = (usize, Entry)> {
    history.into_iter().enumerate().filter_map(move |(at, mut entry)| {
        if let Some(content) = changes.remove(&at) {
            entry.insert("content".to_owned(), content?);
        }
        Some((at, entry))
    })
}

/// Why a processor gives no history: crashes of the original.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// Only outputs can be elided.
    #[error("entry {0} has a tag that removes its output, and is no observation")]
    NoObservation(usize),
}

fn text<'e>(entry: &'e Entry, name: &str) -> &'e str {
    entry.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_demo(entry: &Entry) -> bool {
    entry.get("is_demo").and_then(Value::as_bool).unwrap_or_default()
}

fn has_tag(entry: &Entry, wanted: &[String]) -> bool {
    let tags = entry.get("tags").and_then(Value::as_array).into_iter().flatten();
    tags.filter_map(Value::as_str).any(|tag| wanted.iter().any(|wanted| wanted == tag))
}

/// Elides old outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastN {
    /// The newest outputs that stay, beside the first. At least 1.
    pub n: usize,
    /// The edge moves every so many outputs. At least 1.
    pub polling: usize,
    /// Tags of outputs that stay.
    pub keep: Vec<String>,
    /// Tags of outputs that go, whatever else holds.
    pub remove: Vec<String>,
}

impl LastN {
    /// The entries old enough to be elided, tags aside.
    pub fn candidates(&self, history: &[impl Borrow<Entry>]) -> Vec<usize> {
        let is_output = |entry: &Entry| text(entry, "message_type") == "observation" && !is_demo(entry);
        let outputs: Vec<usize> = (0..history.len()).filter(|&at| is_output(history[at].borrow())).collect();
        let n_old = (outputs.len() / self.polling * self.polling).saturating_sub(self.n);
        outputs[..n_old].iter().skip(1).copied().collect()
    }

    /// The history as it is sent.
    ///
    /// # Errors
    /// [`ProcessError::NoObservation`].
    pub fn process(&self, history: Vec<Entry>) -> Result<Vec<Entry>, ProcessError> {
        let changes = self.changes(&history, |at| size(&history[at]))?;
        Ok(changed(history, changes).map(|(_, entry)| entry).collect())
    }

    /// What [`process`](Self::process) changes. `size` gives the lines and images of the entry at a position, as
    /// [`size`] does.
    ///
    /// # Errors
    /// [`ProcessError::NoObservation`].
    pub fn changes(
        &self,
        history: &[impl Borrow<Entry>],
        size: impl Fn(usize) -> (usize, usize),
    ) -> Result<Changes, ProcessError> {
        let candidates = self.candidates(history);
        let mut changes = Changes::new();
        for (at, entry) in history.iter().enumerate() {
            let entry = entry.borrow();
            let is_removed = has_tag(entry, &self.remove);
            if !is_removed && (candidates.binary_search(&at).is_err() || has_tag(entry, &self.keep)) {
                continue;
            }
            if text(entry, "message_type") != "observation" {
                return Err(ProcessError::NoObservation(at));
            }
            let (n_lines, n_images) = size(at);
            let images = if n_images > 0 { format!(" ({n_images} images omitted)") } else { String::new() };
            let line = format!("Old environment output: ({n_lines} lines omitted){images}");
            changes.insert(at, Some(Value::String(line)));
        }
        Ok(changes)
    }
}

/// Lines and images of what an entry holds.
pub fn size(entry: &Entry) -> (usize, usize) {
    match entry.get("content").unwrap_or(&Value::Null) {
        Value::String(text) => (python_lines(text).count(), 0),
        Value::Array(blocks) => blocks.iter().fold((0, 0), |(lines, images), block| match block["type"].as_str() {
            Some("text") => (lines + python_lines(block["text"].as_str().unwrap_or_default()).count(), images),
            Some("image_url") => (lines, images + 1),
            _ => (lines, images),
        }),
        _ => (0, 0),
    }
}

/// Tags entries of type action that call one of some functions. Despite its name in the original it does not tag what
/// they answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tagger {
    /// The tags.
    pub tags: Vec<String>,
    /// The functions.
    pub function_names: Vec<String>,
}

impl Tagger {
    /// The history with the tags.
    pub fn process(&self, mut history: Vec<Entry>) -> Vec<Entry> {
        let calls = |entry: &Entry| {
            let calls = entry.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
            let mut names = calls.filter_map(|call| call["function"]["name"].as_str());
            names.any(|name| self.function_names.iter().any(|wanted| wanted == name))
        };
        for entry in history.iter_mut().filter(|entry| text(entry, "message_type") == "action" && calls(entry)) {
            let Value::Array(tags) = entry.entry("tags").or_insert_with(|| Value::Array(Vec::new())) else { continue };
            for tag in self.tags.iter().cloned().map(Value::String) {
                if !tags.contains(&tag) {
                    tags.push(tag);
                }
            }
        }
        history
    }
}

/// Closes all but the newest window on each file.
#[derive(Clone, Debug)]
pub struct ClosedWindow {
    line: Regex,
    file: Regex,
}

impl ClosedWindow {
    /// The processor. It has no settings.
    ///
    /// # Errors
    /// Never; its patterns are constant.
    pub fn new() -> Result<Self, regex::Error> {
        Ok(Self {
            line: Regex::new(r"(?m)^\d+:.*?(?:\n|$)")?,
            file: Regex::new(r"\[File:\s+(.*)\s+\(\d+\s+lines total\)\]")?,
        })
    }

    /// The history as it is sent, each entry with its position in the full one.
    pub fn process(&self, history: Vec<Entry>) -> Vec<(usize, Entry)> {
        let changes = self.changes(&history);
        changed(history, changes).collect()
    }

    /// What [`process`](Self::process) changes.
    pub fn changes(&self, history: &[impl Borrow<Entry>]) -> Changes {
        let mut seen: Vec<String> = Vec::new();
        let mut changes = Changes::new();
        for (at, entry) in history.iter().enumerate().rev() {
            let entry = entry.borrow();
            if text(entry, "role") != "user" || is_demo(entry) {
                continue;
            }
            let content = text(entry, "content");
            let lines = || self.line.find_iter(content);
            let Some(first) = lines().next() else { continue };
            let Some(file) = self.file.captures(content).map(|found| found[1].to_owned()) else {
                changes.insert(at, None);
                continue;
            };
            if seen.contains(&file) {
                let (n_lines, end) = lines().fold((0, 0), |(n, _), line| (n + 1, line.end()));
                let closed = format!("{}{}{}", &content[..first.start()], closed_line(n_lines), &content[end..]);
                changes.insert(at, Some(Value::String(closed)));
            }
            seen.push(file);
        }
        changes
    }
}

/// What stands for the numbered lines of a closed window.
pub fn closed_line(n_lines: usize) -> String {
    format!("[an older window, {n_lines} lines left out]\n")
}

/// Deletes what matches from all texts but the newest.
#[derive(Clone, Debug)]
pub struct RemoveRegex {
    remove: Vec<Regex>,
    keep_last: usize,
}

/// The pattern that is removed where none is named: from the first opening to the last closing tag.
pub const DEFAULT_PATTERN: &str = "<diff>.*</diff>";

impl RemoveRegex {
    /// The processor. In patterns a dot matches line ends too.
    ///
    /// # Errors
    /// A pattern that is none, or uses what this engine has not: looking around, back references.
    pub fn new(patterns: &[String], keep_last: usize) -> Result<Self, regex::Error> {
        let compile = |pattern: &String| RegexBuilder::new(pattern).dot_matches_new_line(true).build();
        Ok(Self { remove: patterns.iter().map(compile).collect::<Result<_, _>>()?, keep_last })
    }

    /// The history as it is sent.
    pub fn process(&self, history: Vec<Entry>) -> Vec<Entry> {
        let changes = self.changes(&history);
        changed(history, changes).map(|(_, entry)| entry).collect()
    }

    /// What [`process`](Self::process) changes.
    pub fn changes(&self, history: &[impl Borrow<Entry>]) -> Changes {
        let n_old = history.len().saturating_sub(self.keep_last);
        let changes = history[..n_old].iter().enumerate();
        changes.filter_map(|(at, entry)| Some((at, Some(self.cleaned(entry.borrow().get("content")?)?)))).collect()
    }

    /// A content without what matches; `None` where nothing does.
    fn cleaned(&self, content: &Value) -> Option<Value> {
        let is_match = |text: &str| self.remove.iter().any(|pattern| pattern.is_match(text));
        match content {
            Value::String(text) => is_match(text).then(|| Value::String(self.clean(text))),
            Value::Array(blocks) => {
                let text = |block: &Value| {
                    if block["type"] == "text" { block["text"].as_str().map(str::to_owned) } else { None }
                };
                if !blocks.iter().filter_map(text).any(|text| is_match(&text)) {
                    return None;
                }
                let mut blocks = blocks.clone();
                for block in &mut blocks {
                    if let Some(text) = text(block) {
                        block["text"] = Value::String(self.clean(&text));
                    }
                }
                Some(Value::Array(blocks))
            }
            _ => None,
        }
    }

    fn clean(&self, text: &str) -> String {
        self.remove.iter().fold(text.to_owned(), |text, pattern| pattern.replace_all(&text, "").into_owned())
    }
}
