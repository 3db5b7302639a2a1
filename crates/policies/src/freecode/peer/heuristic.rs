//! The summarizer that asks no model.

use std::collections::HashSet;

use super::{Message, Settings, estimate, tokens};
use crate::exact::{is_js_space, utf16_len, utf16_slice};

/// A summary, and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The text.
    pub content: String,
    /// The number of messages.
    pub n_messages: usize,
    /// Their size.
    pub tokens_before: u64,
    /// The size of the text.
    pub tokens: u64,
}

const FOLDERS: [&str; 3] = ["apps", "packages", "docs"];
const BLOCKED: [&str; 6] = ["blocked", "waiting", "error", "errors", "failed", "failing"];
const NEGATIONS: [&str; 5] = ["no", "without", "zero", "resolved", "fixed"];
const NEGATED: [&str; 6] = ["error", "errors", "blocker", "blockers", "issue", "issues"];
const IN_PROGRESS: [&str; 3] = ["working on", "in progress", "currently"];
const DONE: [&str; 3] = ["completed", "done", "finished"];
const DEFAULT_GOAL: &str = "Continue the current coding session.";

/// Summarizes messages, and hands the summary before on.
pub fn heuristic(messages: &[Message], previous: Option<&str>, settings: &Settings) -> Summary {
    let goal = messages.iter().find(|message| message.role == "user").map_or(DEFAULT_GOAL, |m| m.content.as_str());
    let mut sections = vec![format!("## Goal\n- {}", clip(goal, settings.goal_chars))];
    if let Some(previous) = previous.filter(|previous| !previous.is_empty()) {
        sections.push(format!("## Previous Summary\n{}", clip(previous, settings.previous_chars)));
    }
    let mut states = [
        ("Done", settings.done_entries, Vec::new()),
        ("In Progress", settings.in_progress_entries, Vec::new()),
        ("Blocked", settings.blocked_entries, Vec::new()),
    ];
    for message in messages {
        let text = message.content.to_lowercase();
        let has = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
        let state = match () {
            () if is_blocked(&text) => 2,
            () if has(&IN_PROGRESS) => 1,
            () if has(&DONE) => 0,
            () => continue,
        };
        let (_, most, entries) = &mut states[state];
        let entry = clip(&message.content, settings.entry_chars);
        if entries.len() < *most && !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    sections.extend(states.into_iter().map(|(title, _, entries)| section(title, entries.into_iter())));
    let tools = unique(messages, tools);
    let decisions = (!tools.is_empty())
        .then(|| [format!("Tools used: {}", tools.join(", ")), "(see Recent Progress for details)".to_owned()]);
    sections.push(section("Decisions", decisions.into_iter().flatten()));
    let answers: Vec<&Message> = messages.iter().filter(|message| message.role == "assistant").collect();
    let newest = answers[answers.len().saturating_sub(settings.progress_entries)..].iter();
    sections.push(section("Recent Progress", newest.map(|message| clip(&message.content, settings.progress_chars))));
    sections.push(section(
        "Relevant Files",
        unique(messages, files).into_iter().take(settings.file_entries).map(str::to_owned),
    ));
    let replaced = format!("This summary replaces {} older messages that were compacted away", messages.len());
    let go_on = (!answers.is_empty()).then(|| "Continue from where the session left off".to_owned());
    sections.push(section("Next Steps", std::iter::once(replaced).chain(go_on)));
    let content = sections.join("\n\n");
    Summary {
        n_messages: messages.len(),
        tokens_before: tokens(messages),
        tokens: estimate(&content, settings),
        content,
    }
}

fn clip(text: &str, most: usize) -> String {
    if utf16_len(text) <= most { text.to_owned() } else { utf16_slice(text, 0, most) + "..." }
}

fn section(title: &str, entries: impl Iterator<Item = String>) -> String {
    let bullets: Vec<String> = entries.map(|entry| format!("- {entry}")).collect();
    let body = if bullets.is_empty() { "- (none)".to_owned() } else { bullets.join("\n") };
    format!("## {title}\n{body}")
}

fn unique<'m, I: Iterator<Item = &'m str>>(messages: &'m [Message], of: fn(&'m str) -> I) -> Vec<&'m str> {
    let mut seen = HashSet::new();
    messages.iter().flat_map(|message| of(&message.content)).filter(|item| seen.insert(*item)).collect()
}

/// Paths below the three folders: no word boundary before them, and up to white space, a quote or `)`.
fn files(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| is_js_space(c) || matches!(c, ')' | '`' | '\'' | '"');
    let mut from = 0;
    text.match_indices('/').filter_map(move |(slash, _)| {
        let before = text.get(from..slash)?;
        let folder = FOLDERS.iter().find(|folder| before.ends_with(**folder))?;
        let behind = &text[slash + 1..];
        let length = behind.find(ends).unwrap_or(behind.len());
        let start = slash - folder.len();
        (length > 0).then(|| {
            from = slash + 1 + length;
            &text[start..from]
        })
    })
}

/// The names in `Tool name:`.
fn tools(text: &str) -> impl Iterator<Item = &str> {
    text.split("Tool ").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !is_word(c))?;
        (end > 0 && rest[end..].starts_with(':')).then(|| &rest[..end])
    })
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Whether a lower-case text holds a word of trouble, and no trouble that is denied anywhere.
fn is_blocked(text: &str) -> bool {
    let mut words: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    for run in text.split(|c| !is_word(c)) {
        if !run.is_empty() {
            words.push((at, run));
        }
        at += run.len();
        at += text[at..].chars().next().map_or(0, char::len_utf8);
    }
    let is_denied = |pair: &[(usize, &str)]| {
        let between = &text[pair[0].0 + pair[0].1.len()..pair[1].0];
        NEGATIONS.contains(&pair[0].1) && NEGATED.contains(&pair[1].1) && between.chars().all(is_js_space)
    };
    words.iter().any(|(_, word)| BLOCKED.contains(word)) && !words.windows(2).any(is_denied)
}
