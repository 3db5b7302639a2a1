//! What basic compaction keeps.

use serde_json::{Value, json};

use super::{Settings, blocks, is_assistant, is_frozen, is_kind, is_typed, last_typed};
use crate::exact::js_trim;

/// The messages that stay, in order, and their size.
#[derive(Debug, PartialEq)]
pub(super) struct Selection {
    pub(super) messages: Vec<Value>,
    pub(super) used: u64,
}

/// `target` is a size that what is optional stays within. `None`: there is nothing to keep.
pub(super) fn select(messages: &[Value], target: u64, settings: &Settings) -> Option<Selection> {
    if messages.len() < 2 {
        return None;
    }
    let latest = last_typed(messages)?;
    let typed: Vec<usize> = (0..messages.len()).filter(|&at| is_typed(&messages[at])).collect();
    let mut kept: Vec<Option<Value>> = vec![None; messages.len()];
    let mut used = 0;
    for &at in &typed {
        if let Some(prompt) = cleaned(&messages[at]) {
            used += settings.tokens(&as_blocks(&prompt, at == latest));
            kept[at] = Some(prompt);
        }
    }
    if kept.iter().all(Option::is_none) {
        return None;
    }
    for (at, message) in messages.iter().enumerate() {
        if kept[at].is_none() && is_frozen(message) {
            used += settings.tokens(message);
            kept[at] = Some(message.clone());
        }
    }
    for at in active_turn(messages, latest, target.saturating_sub(used), settings) {
        used += settings.tokens(&messages[at]);
        kept[at] = Some(messages[at].clone());
    }
    for turn in typed.windows(2).rev() {
        if let Some((at, answer)) = answer(&messages[..turn[1]], turn[0] + 1) {
            let size = settings.tokens(&answer);
            if used + size <= target {
                used += size;
                kept[at] = Some(answer);
            }
        }
    }
    Some(Selection { messages: kept.into_iter().flatten().collect(), used })
}

/// A prompt without blank text. `None` where nothing is left.
fn cleaned(message: &Value) -> Option<Value> {
    let mut message = message.clone();
    match &mut message["content"] {
        Value::String(text) => {
            *text = js_trim(text).to_owned();
            if text.is_empty() {
                return None;
            }
        }
        Value::Array(blocks) => {
            for block in blocks.iter_mut().filter(|block| is_kind(block, "text")) {
                block["text"] = json!(js_trim(block["text"].as_str().unwrap_or_default()));
            }
            blocks.retain(|block| !is_kind(block, "text") || block["text"] != "");
            if blocks.is_empty() {
                return None;
            }
        }
        _ => return None,
    }
    Some(message)
}

/// A prompt as it will be: blocks, and files and images in the newest one only.
fn as_blocks(message: &Value, is_latest: bool) -> Value {
    let mut message = message.clone();
    if let Value::String(text) = &message["content"] {
        message["content"] = json!([{"type": "text", "text": text}]);
    }
    without_files(&mut message, is_latest);
    message
}

pub(super) fn without_files(message: &mut Value, is_latest: bool) {
    if let Value::Array(blocks) = &mut message["content"]
        && !is_latest
    {
        blocks.retain(|block| !is_kind(block, "file") && !is_kind(block, "image"));
    }
}

/// The newest messages behind the newest prompt that fit, from an answer on.
fn active_turn(messages: &[Value], latest: usize, mut room: u64, settings: &Settings) -> std::ops::Range<usize> {
    let mut start = messages.len();
    while start > latest + 1 && !is_frozen(&messages[start - 1]) {
        let size = settings.tokens(&messages[start - 1]);
        if size > room {
            break;
        }
        room -= size;
        start -= 1;
    }
    let first = messages[start..].iter().position(is_assistant);
    first.map_or(messages.len(), |first| start + first)..messages.len()
}

/// The last answer without calls of an earlier turn, without its thinking.
fn answer(messages: &[Value], start: usize) -> Option<(usize, Value)> {
    for at in (start..messages.len()).rev() {
        let message = &messages[at];
        if is_frozen(message) {
            return None;
        }
        if !is_assistant(message) || blocks(message).iter().any(|block| is_kind(block, "tool_use")) {
            continue;
        }
        let mut answer = message.clone();
        if let Value::Array(blocks) = &mut answer["content"] {
            blocks.retain(|block| !is_kind(block, "thinking"));
        }
        let has_text = match &answer["content"] {
            Value::String(text) => !js_trim(text).is_empty(),
            _ => blocks(&answer)
                .iter()
                .any(|block| is_kind(block, "text") && !js_trim(block["text"].as_str().unwrap_or_default()).is_empty()),
        };
        return has_text.then_some((at, answer));
    }
    None
}
