//! The original's own arithmetic: context, sizes, cut, plan, and the text a summarizer is given.
//!
//! Entries and messages are the JSON objects of a session file. A field of another type than the original writes
//! counts as absent. Lengths are UTF-16 code units.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::exact::{js_json, js_json_len, utf16_len, utf16_slice};

/// Which of the two published generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// 0.73: no system messages and no edits in the log.
    V0,
    /// 1.6: entries are projected, edited, and carry the system message in force.
    V1,
}

/// The settings of a release.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether anything is compacted at all.
    pub enabled: bool,
    /// Tokens of the window that stay free.
    pub reserve_tokens: u64,
    /// Tokens of the newest messages that stay.
    pub keep_recent_tokens: u64,
    /// Characters that count for a token.
    pub characters_per_token: u64,
    /// Characters that count for an image.
    pub image_characters: u64,
    /// Characters that count for an image in a message of the user.
    pub user_image_characters: u64,
    /// The most characters of one tool result that the summarizer is shown.
    pub result_characters: usize,
    /// The most tokens of a summary, as a share of `reserve_tokens`. `None`: the model's own limit.
    pub summary_share: Option<f64>,
    /// The same for the beginning of a split turn.
    pub turn_prefix_share: Option<f64>,
    /// The share of a branch's budget up to which a summary may still exceed it.
    pub branch_summary_share: f64,
}

impl Settings {
    /// The defaults of a release.
    pub fn of(release: Release) -> Self {
        let v0 = Self {
            enabled: true,
            reserve_tokens: 16_384,
            keep_recent_tokens: 20_000,
            characters_per_token: 4,
            image_characters: 4_800,
            user_image_characters: 0,
            result_characters: 2_000,
            summary_share: Some(0.8),
            turn_prefix_share: Some(0.5),
            branch_summary_share: 0.9,
        };
        match release {
            Release::V0 => v0,
            Release::V1 => Self { user_image_characters: 4_800, summary_share: None, turn_prefix_share: None, ..v0 },
        }
    }
}

/// A release with its settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pi {
    /// The release.
    pub release: Release,
    /// The settings.
    pub settings: Settings,
}

impl Pi {
    /// A release with its defaults.
    pub fn new(release: Release) -> Self {
        Self { release, settings: Settings::of(release) }
    }
}

/// Parents that form a circle. The original walks it for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parents of entry {id:?} form a circle")]
pub struct Circle {
    /// The entry that was met twice.
    pub id: String,
}

/// A message, and the position of the entry it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed<'a> {
    /// Position among the entries given.
    pub entry: usize,
    /// The message.
    pub message: Cow<'a, Value>,
}

/// The entry that the context ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf<'a> {
    /// The last of the list.
    Last,
    /// Before the first: nothing is shown.
    Before,
    /// The entry with this id, or the last of the list where there is none.
    Id(&'a str),
}

/// What the model is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Context<'a> {
    /// The messages, before lowering.
    pub messages: Vec<Placed<'a>>,
    /// Positions of the entries that may show something, in order.
    pub entries: Vec<usize>,
    /// The thinking level, `off` where nothing set one.
    pub thinking_level: &'a str,
    /// Provider and model, where known.
    pub model: Option<(&'a str, &'a str)>,
}

/// An estimate of a list of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextTokens {
    /// The whole.
    pub tokens: u64,
    /// What a provider reported of it.
    pub usage_tokens: u64,
    /// What was estimated.
    pub trailing_tokens: u64,
    /// The message with the report.
    pub last_usage: Option<usize>,
}

/// Where a history is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Position of the first entry that stays.
    pub first_kept: usize,
    /// Position of the entry that began the turn that the cut splits.
    pub turn_start: Option<usize>,
    /// Whether the newest entries reached the size to keep.
    exceeded: bool,
}

/// A planned compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<'a> {
    /// Position of the first entry that stays; the number of entries where none does.
    pub first_kept: usize,
    /// Whether a turn is split.
    pub is_split: bool,
    /// Size of the context before.
    pub tokens_before: u64,
    /// The summary before this one.
    pub previous_summary: Option<&'a str>,
    /// What is summarized.
    pub summarize: Vec<Placed<'a>>,
    /// The beginning of the split turn, summarized apart.
    pub turn_prefix: Vec<Placed<'a>>,
    /// Files read and files changed.
    pub files: Files,
}

/// Files that tool calls named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    read: BTreeSet<Units>,
    changed: BTreeSet<Units>,
}

/// A text in the order of its UTF-16 code units.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Units(String);

impl PartialOrd for Units {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Units {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.encode_utf16().cmp(other.0.encode_utf16())
    }
}

impl Files {
    /// The files that were read and not changed, sorted.
    pub fn read(&self) -> Vec<&str> {
        self.read.difference(&self.changed).map(|file| file.0.as_str()).collect()
    }

    /// The files that were changed, sorted.
    pub fn changed(&self) -> Vec<&str> {
        self.changed.iter().map(|file| file.0.as_str()).collect()
    }

    /// The text that stands behind a summary.
    pub fn block(&self) -> String {
        let mut block = String::new();
        for (tag, files) in [("read-files", self.read()), ("modified-files", self.changed())] {
            if !files.is_empty() {
                block.push_str(&format!("\n\n<{tag}>\n{}\n</{tag}>", files.join("\n")));
            }
        }
        block
    }

    /// The lists of the block behind a summary, as an entry stores them.
    pub(super) fn read_block(summary: &str) -> Value {
        let list = |tag: &str| -> Vec<&str> {
            let (before, after) = (format!("\n\n<{tag}>\n"), format!("\n</{tag}>"));
            let files = summary.rsplit_once(&before).and_then(|(_, rest)| rest.split_once(&after));
            files.map_or_else(Vec::new, |(files, _)| files.lines().collect())
        };
        json!({"readFiles": list("read-files"), "modifiedFiles": list("modified-files")})
    }

    /// Takes over the lists that an earlier summary was stored with, unless an extension made it.
    fn add_details(&mut self, entry: &Value) {
        if truthy(&entry["fromHook"]) {
            return;
        }
        let list = |name: &str| {
            let files = entry["details"][name].as_array();
            files.into_iter().flatten().filter_map(Value::as_str).map(|file| Units(file.to_owned())).collect::<Vec<_>>()
        };
        self.read.extend(list("readFiles"));
        self.changed.extend(list("modifiedFiles"));
    }

    fn add_calls(&mut self, message: &Value) {
        if role(message) != "assistant" {
            return;
        }
        for call in blocks(message).iter().filter(|block| block["type"] == "toolCall") {
            let Some(path) = call["arguments"]["path"].as_str().filter(|path| !path.is_empty()) else { continue };
            match call["name"].as_str() {
                Some("read") => self.read.insert(Units(path.to_owned())),
                Some("write" | "edit") => self.changed.insert(Units(path.to_owned())),
                _ => false,
            };
        }
    }
}

/// What was left behind on a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch<'a> {
    /// The deepest entry on both paths.
    pub ancestor: Option<usize>,
    /// The entries behind it, oldest first.
    pub entries: Vec<usize>,
    /// The messages that fit the budget, oldest first.
    pub messages: Vec<Placed<'a>>,
    /// Their size.
    pub tokens: u64,
    /// Files read and files changed.
    pub files: Files,
}

/// What the model is shown before a summary.
pub const SUMMARY_BEFORE: &str =
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n";
/// What the model is shown behind a summary.
pub const SUMMARY_AFTER: &str = "\n</summary>";
/// What the model is shown before the summary of a branch.
pub const BRANCH_BEFORE: &str =
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n";
/// The first half of a summary where only the beginning of a turn was summarized.
const NO_HISTORY: &str = "No prior history.";

fn role(message: &Value) -> &str {
    message["role"].as_str().unwrap_or_default()
}

fn kind(entry: &Value) -> &str {
    entry["type"].as_str().unwrap_or_default()
}

fn id(entry: &Value) -> &str {
    entry["id"].as_str().unwrap_or_default()
}

fn blocks(message: &Value) -> &[Value] {
    message["content"].as_array().map_or(&[], Vec::as_slice)
}

fn truthy(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false)) && value.as_str() != Some("") && value.as_f64() != Some(0.0)
}

fn texts(message: &Value) -> impl Iterator<Item = &str> {
    let whole = message["content"].as_str();
    let parts = blocks(message).iter().filter(|block| block["type"] == "text").filter_map(|b| b["text"].as_str());
    whole.into_iter().chain(parts)
}

/// The text of a message as tests and lists show it: its texts, its summary or its command.
pub fn text(message: &Value) -> String {
    match role(message) {
        "branchSummary" | "compactionSummary" => message["summary"].as_str().unwrap_or_default().to_owned(),
        "bashExecution" => message["command"].as_str().unwrap_or_default().to_owned(),
        _ => texts(message).collect(),
    }
}

/// How many images a message holds.
pub fn n_images(message: &Value) -> usize {
    blocks(message).iter().filter(|block| block["type"] == "image").count()
}

/// The size of one message: its characters by those of a token, rounded up.
pub fn estimate(message: &Value, pi: &Pi) -> u64 {
    let own = |name: &str| message[name].as_str().map_or(0, utf16_len);
    let content = |image: u64| texts(message).map(utf16_len).sum::<usize>() as u64 + image * n_images(message) as u64;
    let (image, user_image) = (pi.settings.image_characters, pi.settings.user_image_characters);
    let characters = match role(message) {
        "user" => content(user_image),
        "assistant" => {
            let part = |block: &Value| match block["type"].as_str() {
                Some("thinking") => block["thinking"].as_str().map_or(0, utf16_len),
                Some("toolCall") => block["name"].as_str().map_or(0, utf16_len) + js_json_len(&block["arguments"]),
                _ => 0,
            };
            content(0) + blocks(message).iter().map(part).sum::<usize>() as u64
        }
        "toolResult" | "custom" => content(image),
        "bashExecution" => (own("command") + own("output")) as u64,
        "branchSummary" | "compactionSummary" => own("summary") as u64,
        "system" if pi.release == Release::V1 => {
            let sections = message["sections"].as_object();
            let sections = sections.into_iter().flat_map(Map::values).filter_map(Value::as_str);
            content(image) + sections.map(utf16_len).sum::<usize>() as u64
        }
        _ => 0,
    };
    characters.div_ceil(pi.settings.characters_per_token.max(1))
}

/// The size that a provider reported.
fn reported(usage: &Value) -> u64 {
    let counter = |name: &str| usage[name].as_u64().unwrap_or(0);
    match counter("totalTokens") {
        0 => ["input", "output", "cacheRead", "cacheWrite"].map(counter).into_iter().fold(0, u64::saturating_add),
        total => total,
    }
}

/// The report of a message, where it may be used.
fn usage(message: &Value, release: Release) -> Option<u64> {
    let is_answer = role(message) == "assistant" && message["usage"].is_object();
    let failed = matches!(message["stopReason"].as_str(), Some("aborted" | "error"));
    let tokens = reported(&message["usage"]);
    (is_answer && !failed && (release == Release::V0 || tokens > 0)).then_some(tokens)
}

/// The size of a list: the last usable report, and an estimate of what came after it.
pub fn context_tokens<'m>(messages: impl IntoIterator<Item = &'m Value>, pi: &Pi) -> ContextTokens {
    let mut tokens = ContextTokens::default();
    for (index, message) in messages.into_iter().enumerate() {
        if let Some(reported) = usage(message, pi.release) {
            tokens = ContextTokens { usage_tokens: reported, last_usage: Some(index), ..ContextTokens::default() };
        } else {
            tokens.trailing_tokens += estimate(message, pi);
        }
    }
    tokens.tokens = tokens.usage_tokens.saturating_add(tokens.trailing_tokens);
    tokens
}

/// Whether a context is too large for a window.
pub fn should_compact(tokens: u64, window: u64, settings: &Settings) -> bool {
    settings.enabled && i128::from(tokens) > i128::from(window) - i128::from(settings.reserve_tokens)
}

/// Positions by id; of equal ids the last.
fn positions(entries: &[Value]) -> HashMap<&str, usize> {
    entries.iter().enumerate().filter(|(_, entry)| entry["id"].is_string()).map(|(at, entry)| (id(entry), at)).collect()
}

/// The entries from a root to `leaf`. A parent that is not there ends the path.
fn path(entries: &[Value], positions: &HashMap<&str, usize>, leaf: usize) -> Result<Vec<usize>, Circle> {
    let mut path = vec![leaf];
    let mut seen = HashSet::from([leaf]);
    let mut at = leaf;
    while let Some(&parent) = entries[at]["parentId"].as_str().and_then(|parent| positions.get(parent)) {
        if !seen.insert(parent) {
            return Err(Circle { id: id(&entries[parent]).to_owned() });
        }
        path.push(parent);
        at = parent;
    }
    path.reverse();
    Ok(path)
}

fn latest_compaction(entries: &[Value], path: &[usize]) -> Option<usize> {
    path.iter().rposition(|&at| kind(&entries[at]) == "compaction")
}

/// What the model is shown of a tree of entries, in file order.
///
/// # Errors
/// [`Circle`].
pub fn context<'a>(entries: &'a [Value], leaf: Leaf<'_>, release: Release) -> Result<Context<'a>, Circle> {
    let empty = Context { messages: Vec::new(), entries: Vec::new(), thinking_level: "off", model: None };
    let positions = positions(entries);
    let leaf = match leaf {
        Leaf::Before => None,
        Leaf::Last => entries.len().checked_sub(1),
        Leaf::Id(id) => positions.get(id).copied().or(entries.len().checked_sub(1)),
    };
    let Some(leaf) = leaf else { return Ok(empty) };
    let path = path(entries, &positions, leaf)?;
    let mut context = empty;
    for &at in &path {
        let entry = &entries[at];
        match kind(entry) {
            "thinking_level_change" => {
                context.thinking_level = entry["thinkingLevel"].as_str().unwrap_or_default();
            }
            "model_change" => context.model = pair(entry, "provider", "modelId"),
            "message" if role(&entry["message"]) == "assistant" => {
                context.model = pair(&entry["message"], "provider", "model");
            }
            _ => {}
        }
    }
    context.entries = context_entries(entries, path, release);
    context.messages = project(entries, &context.entries, release);
    Ok(context)
}

fn pair<'a>(value: &'a Value, first: &str, second: &str) -> Option<(&'a str, &'a str)> {
    Some((value[first].as_str().unwrap_or_default(), value[second].as_str().unwrap_or_default()))
}

/// The path, or the latest compaction with what it keeps and what came after it.
fn context_entries(entries: &[Value], path: Vec<usize>, release: Release) -> Vec<usize> {
    let Some(at) = latest_compaction(entries, &path) else { return path };
    let first_kept = entries[path[at]]["firstKeptEntryId"].as_str();
    let kept = path[..at].iter().skip_while(|&&entry| first_kept != entries[entry]["id"].as_str());
    let is_shown = |entry: &usize| {
        release == Release::V0 || kind(&entries[*entry]) != "message" || role(&entries[*entry]["message"]) != "system"
    };
    let kept = kept.copied().filter(is_shown);
    std::iter::once(path[at]).chain(kept).chain(path[at + 1..].iter().copied()).collect()
}

/// The message that an entry stands for by itself, and for a compaction its summary.
fn message_of(entry: &Value) -> Option<Cow<'_, Value>> {
    match kind(entry) {
        "message" => Some(Cow::Borrowed(&entry["message"])),
        "custom_message" => Some(Cow::Owned(made("custom", entry, &["customType", "content", "display", "details"]))),
        "branch_summary" => Some(Cow::Owned(made("branchSummary", entry, &["summary", "fromId"]))),
        "compaction" => Some(Cow::Owned(made("compactionSummary", entry, &["summary", "tokensBefore"]))),
        _ => None,
    }
}

fn made(role: &str, entry: &Value, fields: &[&str]) -> Value {
    let mut message = Map::from_iter([("role".to_owned(), json!(role))]);
    message.extend(fields.iter().filter_map(|&name| Some((name.to_owned(), entry.get(name)?.clone()))));
    Value::Object(message)
}

fn is_blank_branch(entry: &Value) -> bool {
    kind(entry) == "branch_summary" && !truthy(&entry["summary"])
}

/// The messages of context entries, in order.
fn project<'a>(entries: &'a [Value], context: &[usize], release: Release) -> Vec<Placed<'a>> {
    let edits = match release {
        Release::V0 => HashMap::new(),
        Release::V1 => edits(entries, context),
    };
    let mut messages = Vec::new();
    for (index, &at) in context.iter().enumerate() {
        let entry = &entries[at];
        let edit = edits.get(id(entry)).copied();
        if edit == Some(&Value::Null) || is_blank_branch(entry) {
            continue;
        }
        if kind(entry) == "compaction" {
            if index > 0 {
                continue;
            }
            let system = &entry["systemMessage"];
            if release == Release::V1 && system.is_object() {
                messages.push(Placed { entry: at, message: Cow::Borrowed(system) });
            }
        }
        let Some(message) = message_of(entry) else { continue };
        messages.push(Placed { entry: at, message: edited(message, edit, release) });
    }
    messages
}

/// The last edit of each entry.
fn edits<'a>(entries: &'a [Value], context: &[usize]) -> HashMap<&'a str, &'a Value> {
    let edits = context.iter().map(|&at| &entries[at]).filter(|entry| kind(entry) == "context_edit");
    edits.map(|edit| (edit["targetId"].as_str().unwrap_or_default(), &edit["replacement"])).collect()
}

fn edited<'a>(message: Cow<'a, Value>, edit: Option<&Value>, release: Release) -> Cow<'a, Value> {
    let role = role(&message).to_owned();
    let content = match edit {
        Some(replacement) if matches!(role.as_str(), "user" | "assistant" | "toolResult" | "custom") => {
            match &replacement["content"] {
                Value::String(text) if role == "assistant" || role == "toolResult" => {
                    json!([{"type": "text", "text": text}])
                }
                content => content.clone(),
            }
        }
        _ if release == Release::V1 && message["content"].is_null() => match role.as_str() {
            "user" | "assistant" | "toolResult" => json!([]),
            "system" => json!(""),
            _ => return message,
        },
        _ => return message,
    };
    let mut message = message.into_owned();
    message["content"] = content;
    Cow::Owned(message)
}

/// An entry as the cut and the plan see it.
struct Item<'a> {
    at: usize,
    entry: &'a Value,
    messages: Vec<Cow<'a, Value>>,
}

impl Item<'_> {
    fn has(&self, roles: &[&str]) -> bool {
        self.messages.iter().any(|message| roles.contains(&role(message)))
    }
}

/// Entries by themselves: no edits, and a compaction stands for nothing.
fn raw_items(entries: &[Value]) -> Vec<Item<'_>> {
    let messages = |entry| match kind(entry) {
        "compaction" => None,
        _ => message_of(entry),
    };
    let item = |(at, entry)| Item { at, entry, messages: messages(entry).into_iter().collect() };
    entries.iter().enumerate().map(item).collect()
}

fn projected_items<'a>(entries: &'a [Value], context: &[usize]) -> Vec<Item<'a>> {
    let mut items: Vec<Item<'a>> =
        context.iter().map(|&at| Item { at, entry: &entries[at], messages: Vec::new() }).collect();
    let mut next = 0;
    for Placed { entry, message } in project(entries, context, Release::V1) {
        while items[next].at != entry {
            next += 1;
        }
        items[next].messages.push(message);
    }
    items
}

const STARTS_TURN: [&str; 5] = ["user", "bashExecution", "custom", "branchSummary", "compactionSummary"];

/// Where entries `start..end` are cut so that about `keep` tokens stay, for a list without edits.
pub fn cut(entries: &[Value], start: usize, end: usize, keep: u64, pi: &Pi) -> Cut {
    let mut items = raw_items(entries);
    if pi.release == Release::V1 {
        for item in items.iter_mut().filter(|item| is_blank_branch(item.entry)) {
            item.messages.clear();
        }
    }
    find_cut(&items, start, end.min(entries.len()), keep, pi)
}

fn find_cut(items: &[Item<'_>], start: usize, end: usize, keep: u64, pi: &Pi) -> Cut {
    let is_cut_point = |index: &usize| {
        let item = &items[*index];
        kind(item.entry) != "compaction" && (item.has(&STARTS_TURN) || item.has(&["assistant"]))
    };
    let points: Vec<usize> = (start..end).filter(is_cut_point).collect();
    let Some((&first, &last)) = points.first().zip(points.last()) else {
        return Cut { first_kept: start, turn_start: None, exceeded: false };
    };
    let mut cut = first;
    let mut tokens = 0u64;
    let mut exceeded = false;
    for index in (start..end).rev() {
        let item = &items[index];
        let size: u64 = item.messages.iter().map(|message| estimate(message, pi)).sum();
        let counts = match pi.release {
            Release::V0 => kind(item.entry) == "message",
            Release::V1 => size > 0,
        };
        if !counts {
            continue;
        }
        tokens += size;
        if tokens >= keep {
            exceeded = true;
            let otherwise = if pi.release == Release::V0 { first } else { last };
            cut = points.iter().copied().find(|&point| point >= index).unwrap_or(otherwise);
            break;
        }
    }
    while cut > start {
        let before = &items[cut - 1];
        let stops = match pi.release {
            Release::V0 => kind(before.entry) == "message",
            Release::V1 => !before.messages.is_empty(),
        };
        if stops || kind(before.entry) == "compaction" {
            break;
        }
        cut -= 1;
    }
    let starts_turn = |item: &Item<'_>| match pi.release {
        Release::V0 => match kind(item.entry) {
            "message" => item.has(&["user", "bashExecution"]),
            kind => matches!(kind, "branch_summary" | "custom_message"),
        },
        Release::V1 => item.has(&STARTS_TURN),
    };
    let is_whole = items.get(cut).is_some_and(|item| match pi.release {
        Release::V0 => kind(item.entry) == "message" && item.has(&["user"]),
        Release::V1 => starts_turn(item),
    });
    let turn_start = if is_whole { None } else { (start..=cut).rev().find(|&index| starts_turn(&items[index])) };
    Cut { first_kept: cut, turn_start, exceeded }
}

/// Plans the compaction of a path from a root to a leaf. `None` where there is none to make.
pub fn prepare<'a>(path: &'a [Value], pi: &Pi) -> Option<Plan<'a>> {
    if kind(path.last()?) == "compaction" {
        return None;
    }
    let all: Vec<usize> = (0..path.len()).collect();
    let latest = latest_compaction(path, &all);
    let context = context_entries(path, all, pi.release);
    let messages = project(path, &context, pi.release);
    let (items, start, tokens_before) = match pi.release {
        Release::V0 => {
            let kept = latest.map(|at| {
                let first_kept = path[at]["firstKeptEntryId"].as_str();
                path.iter()
                    .position(|entry| first_kept.is_some() && entry["id"].as_str() == first_kept)
                    .unwrap_or(at + 1)
            });
            let tokens = context_tokens(messages.iter().map(|placed| &*placed.message), pi).tokens;
            (raw_items(path), kept.unwrap_or(0), tokens)
        }
        Release::V1 => {
            (projected_items(path, &context), usize::from(latest.is_some()), projected_tokens(path, &messages, pi))
        }
    };
    let end = items.len();
    let mut cut = find_cut(&items, start, end, pi.settings.keep_recent_tokens, pi);
    if pi.release == Release::V1 && cut.exceeded && leaves_failed_attempt(&items, cut.first_kept + 1) {
        cut.first_kept += 1;
        cut.turn_start = None;
    }
    let to_place = |items: &[Item<'a>]| -> Vec<Placed<'a>> {
        let placed = |item: &Item<'a>| {
            let shown = item.messages.iter().filter(|message| pi.release == Release::V0 || role(message) != "system");
            shown.map(|message| Placed { entry: item.at, message: message.clone() }).collect::<Vec<_>>()
        };
        items.iter().flat_map(placed).collect()
    };
    let summarize = to_place(&items[start..cut.turn_start.unwrap_or(cut.first_kept).max(start)]);
    let turn_prefix = cut.turn_start.map_or_else(Vec::new, |turn| to_place(&items[turn..cut.first_kept]));
    if pi.release == Release::V1 && summarize.is_empty() && turn_prefix.is_empty() {
        return None;
    }
    let first_kept = items.get(cut.first_kept).map_or(path.len(), |item| item.at);
    if pi.release == Release::V0 && !truthy(&path.get(first_kept)?["id"]) {
        return None;
    }
    let mut files = Files::default();
    if let Some(at) = latest {
        files.add_details(&path[at]);
    }
    for placed in summarize.iter().chain(&turn_prefix) {
        files.add_calls(&placed.message);
    }
    Some(Plan {
        first_kept,
        is_split: cut.turn_start.is_some(),
        tokens_before,
        previous_summary: latest.and_then(|at| path[at]["summary"].as_str()),
        summarize,
        turn_prefix,
        files,
    })
}

/// Whether what stands from `from` on shows nothing, and an answer is among it that an edit took out.
fn leaves_failed_attempt(items: &[Item<'_>], from: usize) -> bool {
    let target = |item: &Item<'_>| item.entry["targetId"].as_str().map(str::to_owned).unwrap_or_default();
    let edits = || items.iter().filter(|item| kind(item.entry) == "context_edit");
    let omitted: HashSet<String> = edits().filter(|edit| edit.entry["replacement"].is_null()).map(target).collect();
    let behind = items.get(from..).unwrap_or_default();
    let ids: HashSet<&str> = behind.iter().map(|item| id(item.entry)).collect();
    let stays_inside = |item: &Item<'_>| {
        kind(item.entry) != "context_edit"
            || item.entry["replacement"].is_null()
            || ids.contains(item.entry["targetId"].as_str().unwrap_or_default())
    };
    let is_attempt = |item: &Item<'_>| {
        kind(item.entry) == "message" && role(&item.entry["message"]) == "assistant" && omitted.contains(id(item.entry))
    };
    behind.iter().all(|item| item.messages.is_empty() && kind(item.entry) != "compaction" && stays_inside(item))
        && behind.iter().any(is_attempt)
}

/// The size of a context, where a report counts only if nothing changed the context after it.
fn projected_tokens(path: &[Value], messages: &[Placed<'_>], pi: &Pi) -> u64 {
    let changed = path.iter().rposition(|entry| matches!(kind(entry), "context_edit" | "compaction"));
    let tokens = context_tokens(messages.iter().map(|placed| &*placed.message), pi);
    let owner = tokens.last_usage.map(|index| messages[index].entry);
    if owner.is_some_and(|owner| changed.is_none_or(|changed| owner > changed)) {
        return tokens.tokens;
    }
    let is_system = |placed: &&Placed<'_>| role(&placed.message) == "system";
    let others = messages.iter().filter(|placed| !is_system(placed));
    let system = messages.iter().rfind(is_system);
    others.chain(system).map(|placed| estimate(&placed.message, pi)).sum()
}

/// A message as the model is given it: `None` for an excluded command.
pub fn lower(message: &Value) -> Option<Cow<'_, Value>> {
    let user = |text: String| Some(Cow::Owned(json!({"role": "user", "content": [{"type": "text", "text": text}]})));
    let own = |name: &str| message[name].as_str().unwrap_or_default();
    match role(message) {
        "user" | "assistant" | "toolResult" | "system" => Some(Cow::Borrowed(message)),
        "custom" => match &message["content"] {
            Value::String(text) => user(text.clone()),
            content => Some(Cow::Owned(json!({"role": "user", "content": content}))),
        },
        "compactionSummary" => user(format!("{SUMMARY_BEFORE}{}{SUMMARY_AFTER}", own("summary"))),
        "branchSummary" => user(format!("{BRANCH_BEFORE}{}</summary>", own("summary"))),
        "bashExecution" if !truthy(&message["excludeFromContext"]) => {
            let mut told = format!("Ran `{}`\n", own("command"));
            match own("output") {
                "" => told.push_str("(no output)"),
                output => told.push_str(&format!("```\n{output}\n```")),
            }
            if truthy(&message["cancelled"]) {
                told.push_str("\n\n(command cancelled)");
            } else if let Some(code) = message["exitCode"].as_i64().filter(|code| *code != 0) {
                told.push_str(&format!("\n\nCommand exited with code {code}"));
            }
            if truthy(&message["truncated"]) && !own("fullOutputPath").is_empty() {
                told.push_str(&format!("\n\n[Output truncated. Full output: {}]", own("fullOutputPath")));
            }
            user(told)
        }
        _ => None,
    }
}

/// Messages as the text that a summarizer is given.
pub fn serialize<'m>(messages: impl IntoIterator<Item = &'m Value>, pi: &Pi) -> String {
    let mut parts: Vec<String> = Vec::new();
    for message in messages {
        let Some(message) = lower(message) else { continue };
        let text: String = texts(&message).collect();
        match role(&message) {
            "user" if !text.is_empty() => parts.push(format!("[User]: {text}")),
            "assistant" => parts.extend(serialize_answer(&message, pi.release)),
            "toolResult" if !text.is_empty() => parts.push(format!("[Tool result]: {}", shorten(&text, pi))),
            _ => {}
        }
    }
    parts.join("\n\n")
}

fn serialize_answer(message: &Value, release: Release) -> Vec<String> {
    let of = |kind: &'static str| blocks(message).iter().filter(move |block| block["type"] == kind);
    let joined = |label: &str, texts: Vec<String>, by: &str| {
        (!texts.is_empty()).then(|| format!("[{label}]: {}", texts.join(by)))
    };
    let texts = |kind| of(kind).map(|block| block[kind].as_str().unwrap_or_default().to_owned()).collect();
    let thinking = match release {
        Release::V0 => texts("thinking"),
        Release::V1 => Vec::new(),
    };
    let call = |call: &Value| {
        let arguments = call["arguments"].as_object();
        let arguments: Vec<String> =
            arguments.into_iter().flatten().map(|(name, value)| format!("{name}={}", js_json(value))).collect();
        format!("{}({})", call["name"].as_str().unwrap_or_default(), arguments.join(", "))
    };
    [
        joined("Assistant thinking", thinking, "\n"),
        joined("Assistant", texts("text"), "\n"),
        joined("Assistant tool calls", of("toolCall").map(call).collect(), "; "),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn shorten<'t>(text: &'t str, pi: &Pi) -> Cow<'t, str> {
    let most = pi.settings.result_characters;
    let n = utf16_len(text);
    if n <= most {
        return Cow::Borrowed(text);
    }
    let mut kept = utf16_slice(text, 0, most);
    // 1.6 leaves half a character out, where 0.73 keeps it.
    if pi.release == Release::V1 && !text.starts_with(&kept) {
        kept.pop();
    }
    Cow::Owned(format!("{kept}\n\n[... {} more characters truncated]", n - most))
}

/// A piece of a summary.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece<'p, 'a> {
    /// Fixed text.
    Text(String),
    /// What a summarizer answers about these messages.
    Answer {
        /// The messages.
        messages: &'p [Placed<'a>],
        /// The summary before this one.
        previous: Option<&'a str>,
        /// Whether only the beginning of a turn is to be summarized.
        is_turn_prefix: bool,
        /// The most tokens of the answer; `None` is the model's own limit.
        max_tokens: Option<u64>,
    },
}

/// The summary of a plan in pieces: the history, the beginning of a split turn, the lists of files.
pub fn pieces<'p, 'a>(plan: &'p Plan<'a>, pi: &Pi) -> Vec<Piece<'p, 'a>> {
    let reserve = pi.settings.reserve_tokens as f64;
    let limit = |share: Option<f64>| share.map(|share| (reserve * share) as u64);
    let history = Piece::Answer {
        messages: &plan.summarize,
        previous: plan.previous_summary,
        is_turn_prefix: false,
        max_tokens: limit(pi.settings.summary_share),
    };
    let mut pieces = Vec::new();
    if plan.is_split && !plan.turn_prefix.is_empty() {
        pieces.push(match plan.previous_summary {
            _ if !plan.summarize.is_empty() => history,
            Some(previous) if pi.release == Release::V1 => Piece::Text(previous.to_owned()),
            _ => Piece::Text(NO_HISTORY.to_owned()),
        });
        pieces.push(Piece::Text("\n\n---\n\n**Turn Context (split turn):**\n\n".to_owned()));
        pieces.push(Piece::Answer {
            messages: &plan.turn_prefix,
            previous: None,
            is_turn_prefix: true,
            max_tokens: limit(pi.settings.turn_prefix_share),
        });
    } else {
        pieces.push(history);
    }
    pieces.push(Piece::Text(plan.files.block()));
    pieces
}

/// What a summarizer answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Its text blocks.
    pub texts: Vec<String>,
    /// Why it stopped.
    pub stop_reason: String,
    /// What went wrong, where it says so.
    pub error: Option<String>,
    /// Whether it tried to call a tool.
    pub has_call: bool,
}

/// Why a compaction failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompactError {
    /// The call ended with an error.
    #[error("{what} failed: {reason}")]
    Failed {
        /// Which of the two.
        what: &'static str,
        /// What the summarizer said.
        reason: String,
    },
    /// The answer was cut by its length limit.
    #[error("{0} was cut by its length limit")]
    Length(&'static str),
    /// The answer tried to call a tool.
    #[error("{0} tried to call a tool")]
    Call(&'static str),
}

/// Writes the summary of a plan. `summarize` is asked for each piece that is no fixed text.
///
/// # Errors
/// [`CompactError`]; nothing is compacted then.
pub fn summary(
    plan: &Plan<'_>,
    pi: &Pi,
    summarize: &mut dyn FnMut(&Piece<'_, '_>) -> Reply,
) -> Result<String, CompactError> {
    let mut summary = String::new();
    for piece in pieces(plan, pi) {
        match &piece {
            Piece::Text(text) => summary.push_str(text),
            Piece::Answer { is_turn_prefix, .. } => {
                let what = if *is_turn_prefix { "the summary of the turn's beginning" } else { "the summary" };
                summary.push_str(&check(summarize(&piece), what, pi.release)?);
            }
        }
    }
    Ok(summary)
}

fn check(reply: Reply, what: &'static str, release: Release) -> Result<String, CompactError> {
    match reply.stop_reason.as_str() {
        "error" => {
            Err(CompactError::Failed { what, reason: reply.error.unwrap_or_else(|| "unknown error".to_owned()) })
        }
        "length" if release == Release::V1 => Err(CompactError::Length(what)),
        _ if release == Release::V1 && reply.has_call => Err(CompactError::Call(what)),
        _ => Ok(reply.texts.join("\n")),
    }
}

/// What is left behind when the conversation moves from one entry to another. A `budget` of 0 is none.
///
/// # Errors
/// [`Circle`].
pub fn branch<'a>(
    entries: &'a [Value],
    old: Option<&str>,
    target: &str,
    budget: u64,
    pi: &Pi,
) -> Result<Branch<'a>, Circle> {
    let positions = positions(entries);
    let to_root = |id: &str| positions.get(id).map_or(Ok(Vec::new()), |&leaf| path(entries, &positions, leaf));
    let mut branch =
        Branch { ancestor: None, entries: Vec::new(), messages: Vec::new(), tokens: 0, files: Files::default() };
    let Some(old) = old else { return Ok(branch) };
    let left = to_root(old)?;
    let other: HashSet<usize> = to_root(target)?.into_iter().collect();
    let shared = left.iter().rposition(|at| other.contains(at));
    branch.ancestor = shared.map(|index| left[index]);
    branch.entries = left[shared.map_or(0, |index| index + 1)..].to_vec();
    for &at in branch.entries.iter().filter(|&&at| kind(&entries[at]) == "branch_summary") {
        branch.files.add_details(&entries[at]);
    }
    for &at in branch.entries.iter().rev() {
        let entry = &entries[at];
        let Some(message) = message_of(entry).filter(|message| role(message) != "toolResult") else { continue };
        branch.files.add_calls(&message);
        let tokens = estimate(&message, pi);
        if budget > 0 && branch.tokens + tokens > budget {
            let is_summary = matches!(kind(entry), "compaction" | "branch_summary");
            if is_summary && (branch.tokens as f64) < budget as f64 * pi.settings.branch_summary_share {
                branch.tokens += tokens;
                branch.messages.push(Placed { entry: at, message });
            }
            break;
        }
        branch.tokens += tokens;
        branch.messages.push(Placed { entry: at, message });
    }
    branch.messages.reverse();
    Ok(branch)
}
