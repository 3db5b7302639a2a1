//! The original's own arithmetic: sizes, marks, the tail, and the order of what is sent.
//!
//! A message is an object with `info` and `parts`, as sessions are exported. Lengths are UTF-16 code units.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::{estimate, tokens};
use crate::exact::{js_json_len, js_trim, utf16_len, utf16_slice};

/// When to act, and what stays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether anything is compacted but on request.
    pub auto: bool,
    /// Tokens that stay free where the model names the most of its input. `None`: the output limit, up to
    /// `reserved_most`.
    pub reserved: Option<u64>,
    /// The most that is reserved where nothing is configured.
    pub reserved_most: u64,
    /// The most tokens of an answer, whatever the model's limit.
    pub output_most: u64,
    /// Whether what is reserved is also taken off where the model does not name the most of its input.
    pub reserves_from_context: bool,
    /// Whether old tool results are marked.
    pub prune: bool,
    /// The newest turns of the user whose results are never marked.
    pub prune_turns: usize,
    /// Tokens of the newest tool results behind them that are not marked.
    pub prune_protect_tokens: u64,
    /// Nothing is marked for a gain of no more tokens.
    pub prune_minimum_tokens: u64,
    /// Tools whose results are never marked.
    pub protected_tools: Vec<String>,
    /// The newest turns of the user that stay. `None`: as many as fit; 0 or less: none.
    pub tail_turns: Option<i64>,
    /// The most tokens of the tail. `None`: a share of what is usable, within bounds.
    pub preserve_recent_tokens: Option<u64>,
    /// That share.
    pub preserve_recent_share: f64,
    /// Its lower bound.
    pub preserve_recent_least: u64,
    /// Its upper bound.
    pub preserve_recent_most: u64,
    /// The most characters of one tool result that the summarizer is shown.
    pub result_characters: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            auto: true,
            reserved: None,
            reserved_most: 20_000,
            output_most: 32_000,
            reserves_from_context: false,
            prune: true,
            prune_turns: 2,
            prune_protect_tokens: 40_000,
            prune_minimum_tokens: 20_000,
            protected_tools: vec!["skill".to_owned()],
            tail_turns: Some(2),
            preserve_recent_tokens: None,
            preserve_recent_share: 0.25,
            preserve_recent_least: 2_000,
            preserve_recent_most: 8_000,
            result_characters: 2_000,
        }
    }
}

/// A model's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// The context. 0: unknown.
    pub context: u64,
    /// The most of the input, where it is named.
    pub input: Option<u64>,
    /// The most of an answer.
    pub output: u64,
}

/// What a provider reported for one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All of it, where it is reported.
    pub total: u64,
    /// Input outside the cache.
    pub input: u64,
    /// Output without reasoning.
    pub output: u64,
    /// Input read from the cache.
    pub cache_read: u64,
    /// Input written to the cache.
    pub cache_write: u64,
}

impl Usage {
    /// The size that counts.
    pub fn count(&self) -> u64 {
        if self.total != 0 {
            return self.total;
        }
        [self.output, self.cache_read, self.cache_write].into_iter().fold(self.input, u64::saturating_add)
    }
}

/// What stands for a marked result.
pub const CLEARED: &str = "[Old tool result content cleared]";
/// What stands for the result of a call that has none.
pub const INTERRUPTED: &str = "[Tool execution was interrupted]";
/// The question that a summary answers.
pub const QUESTION: &str = "What did we do so far?";
/// The line behind a result that was cut.
pub const TRUNCATED: &str = "\n[truncated]";
/// What is said for the user where no message is put again.
pub const GO_ON: &str =
    "Go on with the next step, or ask where something has to be decided first. Stop if nothing is left to do.";
/// The same after a request that was too long.
pub const GO_ON_WITHOUT_MEDIA: &str = "The request was too long for the model, so attached media were taken out of the \
                                       conversation. Say so if the answer depends on them.\n\n";

/// The tokens that a request may have before it is compacted. `is_capped`: whether the app's own limit of answers
/// counts; the budget of the tail is taken without.
pub fn usable(model: &Model, settings: &Settings, is_capped: bool) -> u64 {
    if model.context == 0 {
        return 0;
    }
    let output = if is_capped { model.output.min(settings.output_most) } else { model.output };
    let reserved = settings.reserved.unwrap_or_else(|| settings.reserved_most.min(output));
    match model.input {
        Some(input) => input.saturating_sub(reserved),
        None if settings.reserves_from_context => model.context.saturating_sub(output).saturating_sub(reserved),
        None => model.context.saturating_sub(output),
    }
}

/// Whether an answer of this size calls for a compaction.
pub fn is_overflow(size: u64, model: &Model, settings: &Settings) -> bool {
    settings.auto && model.context != 0 && size >= usable(model, settings, true)
}

/// The most tokens of the tail.
pub fn tail_budget(model: &Model, settings: &Settings) -> u64 {
    settings.preserve_recent_tokens.unwrap_or_else(|| {
        let share = (usable(model, settings, false) as f64 * settings.preserve_recent_share) as u64;
        share.max(settings.preserve_recent_least).min(settings.preserve_recent_most)
    })
}

fn parts(message: &Value) -> &[Value] {
    message["parts"].as_array().map_or(&[], Vec::as_slice)
}

fn id(message: &Value) -> &str {
    message["info"]["id"].as_str().unwrap_or_default()
}

fn is_user(message: &Value) -> bool {
    message["info"]["role"] == "user"
}

fn compaction(message: &Value) -> Option<&Value> {
    parts(message).iter().find(|part| part["type"] == "compaction").filter(|_| is_user(message))
}

/// Whether a user's message begins a turn, and is no request to compact.
fn is_ordinary(message: &Value) -> bool {
    is_user(message) && compaction(message).is_none()
}

fn is_summary(message: &Value) -> bool {
    message["info"]["role"] == "assistant" && message["info"]["summary"] == true
}

/// Whether a compaction came to its end with this message.
fn is_completed(message: &Value) -> bool {
    let info = &message["info"];
    is_summary(message) && is_truthy(&info["finish"]) && !is_truthy(&info["error"])
}

/// JavaScript's truth.
fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(bool) => *bool,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

fn is_marked(part: &Value) -> bool {
    is_truthy(&part["state"]["time"]["compacted"])
}

/// The results to mark, as positions of messages and their parts, newest first.
pub fn prune(messages: &[Value], settings: &Settings) -> Vec<(usize, usize)> {
    if !settings.prune {
        return Vec::new();
    }
    let (mut n_turns, mut total, mut gain) = (0, 0u64, 0u64);
    let mut found = Vec::new();
    'walk: for (at, message) in messages.iter().enumerate().rev() {
        n_turns += usize::from(is_user(message));
        if n_turns < settings.prune_turns {
            continue;
        }
        if is_summary(message) {
            break;
        }
        for (number, part) in parts(message).iter().enumerate().rev() {
            if part["type"] != "tool" || part["state"]["status"] != "completed" {
                continue;
            }
            let tool = part["tool"].as_str().unwrap_or_default();
            if settings.protected_tools.iter().any(|name| name == tool) {
                continue;
            }
            if is_marked(part) {
                break 'walk;
            }
            let size = estimate(part["state"]["output"].as_str().unwrap_or_default());
            total = total.saturating_add(size);
            if total > settings.prune_protect_tokens {
                gain = gain.saturating_add(size);
                found.push((at, number));
            }
        }
    }
    if gain > settings.prune_minimum_tokens { found } else { Vec::new() }
}

/// How messages are put to a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lowering {
    /// Whether labels stand for files.
    pub labels: bool,
    /// The most characters of one result.
    pub result_characters: Option<usize>,
}

/// Messages as a model is sent them.
pub fn lower(messages: &[Value], how: Lowering) -> Vec<Value> {
    let mut lowered = Vec::new();
    for message in messages {
        if is_user(message) {
            let content: Vec<Value> = parts(message).iter().filter_map(|part| user_part(part, how)).collect();
            if !content.is_empty() {
                lowered.push(json!({"role": "user", "content": content}));
            }
        } else if !is_left_out(message) {
            lower_answer(message, how, &mut lowered);
        }
    }
    lowered
}

fn user_part(part: &Value, how: Lowering) -> Option<Value> {
    match part["type"].as_str()? {
        "text" if !is_truthy(&part["ignored"]) => Some(json!({"type": "text", "text": part["text"]})),
        "file" if how.labels && is_media(part) => Some(json!({"type": "text", "text": label(part)})),
        "file" => Some(json!({
            "type": "file",
            "mediaType": part["mime"],
            "filename": part["filename"],
            "data": part["url"],
        })),
        "compaction" => Some(json!({"type": "text", "text": QUESTION})),
        _ => None,
    }
}

/// What stands for a file.
pub fn label(part: &Value) -> String {
    let text = |name: &str, default: &str| part[name].as_str().unwrap_or(default).to_owned();
    format!("[Attached {}: {}]", text("mime", "application/octet-stream"), text("filename", "file"))
}

/// Whether an answer failed without saying anything.
fn is_left_out(message: &Value) -> bool {
    let error = &message["info"]["error"];
    let is_real = |part: &Value| part["type"] != "step-start" && part["type"] != "reasoning";
    is_truthy(error) && !(error["name"] == "MessageAbortedError" && parts(message).iter().any(is_real))
}

fn lower_answer(message: &Value, how: Lowering, lowered: &mut Vec<Value>) {
    let (mut content, mut results) = (Vec::new(), Vec::new());
    for part in parts(message) {
        match part["type"].as_str() {
            Some(kind @ ("text" | "reasoning")) => content.push(json!({"type": kind, "text": part["text"]})),
            Some("tool") => {
                let (call, tool, state) = (&part["callID"], &part["tool"], &part["state"]);
                content
                    .push(json!({"type": "tool-call", "toolCallId": call, "toolName": tool, "input": state["input"]}));
                let output = output(part, how);
                results.push(json!({"type": "tool-result", "toolCallId": call, "toolName": tool, "output": output}));
            }
            _ => {}
        }
    }
    if !content.is_empty() {
        lowered.push(json!({"role": "assistant", "content": content}));
    }
    if !results.is_empty() {
        lowered.push(json!({"role": "tool", "content": results}));
    }
}

/// The result of a call: every call has one.
fn output(part: &Value, how: Lowering) -> Value {
    let state = &part["state"];
    match state["status"].as_str() {
        Some("completed") if is_marked(part) => json!({"type": "text", "value": CLEARED}),
        Some("completed") => {
            let text = state["output"].as_str().unwrap_or_default();
            let text = how.result_characters.map_or_else(|| text.to_owned(), |most| cut(text, most));
            let attachments = state["attachments"].as_array().map_or(&[][..], Vec::as_slice);
            if attachments.is_empty() {
                return json!({"type": "text", "value": text});
            }
            let file = |file: &Value| {
                if how.labels {
                    json!({"type": "text", "text": label(file)})
                } else {
                    json!({"type": "media", "mediaType": file["mime"], "data": file["url"]})
                }
            };
            let text = json!({"type": "text", "text": text});
            json!({"type": "content", "value": std::iter::once(text).chain(attachments.iter().map(file)).collect::<Value>()})
        }
        Some("error") => json!({"type": "error-text", "value": state["error"]}),
        _ => json!({"type": "error-text", "value": INTERRUPTED}),
    }
}

/// The beginning of a text that is too long, and a line that says so.
pub fn cut(text: &str, most: usize) -> String {
    if utf16_len(text) <= most { text.to_owned() } else { utf16_slice(text, 0, most) + TRUNCATED }
}

/// The sizes of parts of a history: those of the JSON that a model is sent of them.
struct Sizes {
    /// Of the first so many messages, the length of what is sent and the number of messages that it is.
    before: Vec<(usize, usize)>,
}

impl Sizes {
    fn of(messages: &[Value]) -> Self {
        let mut before = vec![(0, 0)];
        let (mut length, mut n) = (0, 0);
        for message in messages {
            let sent = lower(std::slice::from_ref(message), Lowering::default());
            length += sent.iter().map(js_json_len).sum::<usize>();
            n += sent.len();
            before.push((length, n));
        }
        Self { before }
    }

    /// The tokens of a list of these messages.
    fn tokens(&self, from: usize, to: usize) -> u64 {
        let (start, end) = (self.before[from], self.before[to]);
        let n_commas = (end.1 - start.1).saturating_sub(1);
        tokens(2 + n_commas + end.0 - start.0)
    }
}

/// What a model is sent of these messages, sized.
pub fn size(messages: &[Value]) -> u64 {
    Sizes::of(messages).tokens(0, messages.len())
}

/// What is to be compacted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The messages to summarize, as positions.
    pub head: Vec<usize>,
    /// Where the messages begin that stay, and its id.
    pub tail: Option<(usize, String)>,
    /// The summary before.
    pub previous: Option<String>,
    /// The message that is put again behind the summary.
    pub replay: Option<usize>,
}

/// What to summarize of a history whose last message asks for it. `is_overflow`: the provider refused the request.
pub fn select(messages: &[Value], is_overflow: bool, model: &Model, settings: &Settings) -> Selection {
    let end = messages.iter().rposition(|message| compaction(message).is_some()).unwrap_or(messages.len());
    let replay = messages[..end].iter().rposition(is_ordinary).filter(|&replay| {
        // Without an ordinary message before it, nothing is put again.
        is_overflow && messages[..replay].iter().any(is_ordinary)
    });
    let history = &messages[..replay.unwrap_or(end)];
    let completed: HashSet<&str> = history
        .iter()
        .filter(|message| is_completed(message))
        .filter_map(|summary| summary["info"]["parentID"].as_str())
        .collect();
    let is_of_compaction =
        |message: &Value| is_completed(message) || compaction(message).is_some() && completed.contains(id(message));
    let open: Vec<usize> = (0..history.len()).filter(|&at| !is_of_compaction(&history[at])).collect();
    let rest: Vec<Value> = open.iter().map(|&at| history[at].clone()).collect();
    let start = tail_start(&rest, tail_budget(model, settings), settings).filter(|&start| start > 0);
    let head = open[..start.unwrap_or(open.len())].to_vec();
    let tail = start.map(|start| (open[start], id(&rest[start]).to_owned()));
    let previous = history.iter().rev().find(|message| is_completed(message)).map(summary_text);
    Selection { head, tail, previous: previous.filter(|text| !text.is_empty()), replay }
}

/// The text of a summary.
pub fn summary_text(message: &Value) -> String {
    let texts = parts(message).iter().filter(|part| part["type"] == "text");
    let texts = texts.filter_map(|part| part["text"].as_str()).map(js_trim).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
}

fn tail_start(messages: &[Value], budget: u64, settings: &Settings) -> Option<usize> {
    let starts: Vec<usize> = (0..messages.len()).filter(|&at| is_ordinary(&messages[at])).collect();
    let n_turns = match settings.tail_turns {
        None => starts.len(),
        Some(turns) => usize::try_from(turns).unwrap_or(0).min(starts.len()),
    };
    let sizes = Sizes::of(messages);
    let (mut kept, mut total, mut end) = (None, 0u64, messages.len());
    for &start in starts[starts.len() - n_turns..].iter().rev() {
        let turn = sizes.tokens(start, end);
        if total.saturating_add(turn) <= budget {
            (kept, total, end) = (Some(start), total + turn, start);
            continue;
        }
        let remaining = budget - total;
        let split = (start + 1..end).find(|&from| remaining > 0 && sizes.tokens(from, end) <= remaining);
        return split.or(kept);
    }
    kept
}

/// What the next requests show of a session, oldest first. `newest_first` is the whole session.
pub fn filter(newest_first: &[Value]) -> Vec<Value> {
    let mut completed: HashSet<&str> = HashSet::new();
    let mut first: Option<&str> = None;
    let mut messages: Vec<Value> = Vec::new();
    for message in newest_first {
        messages.push(message.clone());
        if let Some(first) = first {
            if id(message) == first {
                break;
            }
            continue;
        }
        if let Some(part) = compaction(message).filter(|_| completed.contains(id(message))) {
            match part["tail_start_id"].as_str() {
                Some(tail) if tail != id(message) => first = Some(tail),
                _ => break,
            }
        }
        if is_completed(message) {
            completed.extend(message["info"]["parentID"].as_str());
        }
    }
    messages.reverse();
    reorder(messages)
}

/// Puts the newest compaction with a tail before its tail.
fn reorder(messages: Vec<Value>) -> Vec<Value> {
    let tail_id =
        |message: &Value| compaction(message).and_then(|part| part["tail_start_id"].as_str().map(str::to_owned));
    let Some(request) = messages.iter().rposition(|message| tail_id(message).is_some()) else { return messages };
    // Whether it ended, and how, is not looked at.
    let is_its_summary =
        |message: &Value| is_summary(message) && message["info"]["parentID"].as_str() == Some(id(&messages[request]));
    let summary = (request + 1..messages.len()).find(|&at| is_its_summary(&messages[at]));
    let tail = tail_id(&messages[request]).and_then(|tail| messages.iter().position(|message| id(message) == tail));
    match (tail, summary) {
        (Some(tail), Some(summary)) if tail < request => {
            [&messages[request..=summary], &messages[tail..request], &messages[summary + 1..]].concat()
        }
        _ => messages,
    }
}

/// How the processor of a summary ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It asked for a compaction: the summary's own request was too long.
    Compact,
    /// With an error.
    Error,
    /// With a summary.
    Done,
}

/// What is written once a compaction has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// Whether the session goes on.
    pub goes_on: bool,
    /// The error that the summary gets.
    pub error: Option<&'static str>,
    /// The parts of a new message of the user.
    pub parts: Vec<Value>,
}

/// What follows. `auto_continue`: whether no plugin keeps the session from going on.
pub fn outcome(ended: Ended, replay: Option<&Value>, auto: bool, is_overflow: bool, auto_continue: bool) -> Written {
    match ended {
        Ended::Compact => Written { error: Some("ContextOverflowError"), ..Written::default() },
        Ended::Error => Written::default(),
        Ended::Done if !auto => Written { goes_on: true, ..Written::default() },
        Ended::Done => {
            let parts = match replay {
                Some(replay) => replayed(replay),
                None if auto_continue => {
                    let before = if is_overflow { GO_ON_WITHOUT_MEDIA } else { "" };
                    vec![json!({"type": "text", "synthetic": true, "text": format!("{before}{GO_ON}")})]
                }
                None => Vec::new(),
            };
            Written { goes_on: true, error: None, parts }
        }
    }
}

/// The parts of a message that is put again.
pub fn replayed(message: &Value) -> Vec<Value> {
    let part = |part: &Value| match part["type"].as_str() {
        Some("compaction") => None,
        Some("file") if is_media(part) => Some(json!({"type": "text", "text": label(part)})),
        _ => Some(part.clone()),
    };
    parts(message).iter().filter_map(part).collect()
}

fn is_media(part: &Value) -> bool {
    let mime = part["mime"].as_str().unwrap_or_default();
    mime.starts_with("image/") || mime == "application/pdf"
}
