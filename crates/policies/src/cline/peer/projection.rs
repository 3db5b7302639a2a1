//! Messages brought to a budget: unsafe blocks go, then texts get shorter, then messages go.

use std::cell::OnceCell;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Settings, blocks, is_kind, is_results, is_user};
use crate::exact::{js_json_len, utf16_len, utf16_slice};

/// What the messages are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// A summarizer is to read them.
    AgenticSummary,
    /// Basic compaction keeps them.
    BasicCompactionProjection,
    /// They are sent as they are: thinking and unsafe blocks stay.
    NormalProviderRequest,
}

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Action {
    /// `truncated_text`, `dropped_block`, `dropped_message` or `preserved`.
    pub kind: &'static str,
    /// Why.
    pub reason: &'static str,
    /// The message, by its position before.
    pub message: usize,
    /// The block, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<usize>,
    /// Characters of JSON before.
    pub from: usize,
    /// And after.
    pub to: usize,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// Whether the budget is met.
    pub is_ok: bool,
    /// The messages, to be used in any case.
    pub messages: Vec<Value>,
    /// Their size.
    pub tokens: u64,
    /// How the live tail fared.
    pub live_tail: &'static str,
    /// What is wrong.
    pub warnings: Vec<&'static str>,
    /// What was done, in order.
    pub actions: Vec<Action>,
}

/// A message with the places it had.
struct Item {
    at: usize,
    message: Value,
    /// Of each block.
    blocks: Vec<usize>,
    /// Characters of JSON, until the message changes.
    length: OnceCell<usize>,
}

impl Item {
    fn length(&self) -> usize {
        *self.length.get_or_init(|| js_json_len(&self.message))
    }
}

struct Projector<'s> {
    settings: &'s Settings,
    items: Vec<Item>,
    actions: Vec<Action>,
    first_typed: Option<usize>,
    latest_typed: Option<usize>,
    /// Where the messages begin that an open call protects.
    live_tail: usize,
}

/// Brings messages to at most `target` tokens.
pub fn project(messages: &[Value], target: i64, intent: Intent, settings: &Settings) -> Projection {
    if target <= 0 {
        return Projection {
            is_ok: false,
            messages: messages.to_vec(),
            tokens: settings.total(messages),
            live_tail: "preserved_out_of_band",
            warnings: vec!["budget_impossible"],
            actions: Vec::new(),
        };
    }
    let target = target as u64;
    // Here a summary counts for one that a user wrote.
    let is_typed = |message: &Value| is_user(message) && !is_results(message);
    let item = |(at, message): (usize, &Value)| Item {
        at,
        message: message.clone(),
        blocks: (0..blocks(message).len()).collect(),
        length: OnceCell::new(),
    };
    let mut projector = Projector {
        settings,
        items: messages.iter().enumerate().map(item).collect(),
        actions: Vec::new(),
        first_typed: messages.iter().position(is_typed),
        latest_typed: messages.iter().rposition(is_typed),
        live_tail: live_tail(messages),
    };
    if intent != Intent::NormalProviderRequest {
        projector.drop_thinking();
        projector.drop_unsafe();
    }
    if projector.total() > target {
        projector.truncate(target);
        projector.drop_messages(target);
    }
    let tokens = projector.total();
    let is_ok = tokens <= target;
    Projection {
        is_ok,
        tokens,
        live_tail: if projector.actions.is_empty() { "included_verbatim" } else { "included_degraded" },
        warnings: if is_ok { Vec::new() } else { vec!["budget_unachievable_with_protections"] },
        messages: projector.items.into_iter().map(|item| item.message).collect(),
        actions: projector.actions,
    }
}

/// The last message with a call that has no result; behind the end where there is none.
fn live_tail(messages: &[Value]) -> usize {
    let all = || messages.iter().flat_map(blocks);
    let answered: HashSet<&str> = all().filter_map(|block| result_of(block)).collect();
    let is_open = |message: &Value| blocks(message).iter().filter_map(call_of).any(|id| !answered.contains(id));
    messages.iter().rposition(is_open).unwrap_or(messages.len())
}

fn call_of(block: &Value) -> Option<&str> {
    is_kind(block, "tool_use").then(|| block["id"].as_str())?
}

fn result_of(block: &Value) -> Option<&str> {
    is_kind(block, "tool_result").then(|| block["tool_use_id"].as_str())?
}

fn tool_ids(message: &Value) -> HashSet<&str> {
    blocks(message).iter().filter_map(|block| call_of(block).or_else(|| result_of(block))).collect()
}

fn is_unsafe(block: &Value) -> bool {
    ["image", "media", "redacted_thinking"].iter().any(|kind| is_kind(block, kind))
}

impl Projector<'_> {
    fn total(&self) -> u64 {
        self.items.iter().map(|item| self.settings.tokens_of(item.length())).sum()
    }

    fn is_protected(&self, at: usize) -> bool {
        Some(at) == self.latest_typed || at >= self.live_tail
    }

    /// Takes blocks out of messages: of those that `is_meant` names, what `left` leaves. Messages that are left empty
    /// go too.
    fn drop_blocks(&mut self, is_meant: impl Fn(&Self, usize, &Value) -> bool, left: impl Fn(Value) -> Option<Value>) {
        let mut items = std::mem::take(&mut self.items);
        items.retain_mut(|item| {
            let Value::Array(content) = &mut item.message["content"] else { return true };
            if !content.iter().any(|block| is_meant(self, item.at, block)) {
                return true;
            }
            item.length.take();
            let (before, mut places) = (std::mem::take(content), Vec::new());
            for (block, place) in before.into_iter().zip(&item.blocks) {
                let kept = if is_meant(self, item.at, &block) {
                    let from = js_json_len(&block);
                    let kept = left(block);
                    let (kind, reason, to) =
                        ("dropped_block", "unsafe_to_truncate", kept.as_ref().map_or(0, js_json_len));
                    self.actions.push(Action { kind, reason, message: item.at, block: Some(*place), from, to });
                    kept
                } else {
                    Some(block)
                };
                if let Some(block) = kept {
                    content.push(block);
                    places.push(*place);
                }
            }
            item.blocks = places;
            let stays = !content.is_empty();
            if !stays {
                let (kind, reason, from) = ("dropped_message", "over_budget", item.length());
                self.actions.push(Action { kind, reason, message: item.at, block: None, from, to: 0 });
            }
            stays
        });
        self.items = items;
    }

    fn drop_thinking(&mut self) {
        self.drop_blocks(|_, _, block| is_kind(block, "thinking"), |_| None);
    }

    fn drop_unsafe(&mut self) {
        let has_unsafe = |block: &Value| {
            is_kind(block, "tool_result")
                && block["content"].as_array().is_some_and(|parts| parts.iter().any(is_unsafe))
        };
        self.drop_blocks(
            |this, at, block| !this.is_protected(at) && (is_unsafe(block) || has_unsafe(block)),
            |mut block| {
                if is_unsafe(&block) {
                    return None;
                }
                if let Value::Array(parts) = &mut block["content"] {
                    parts.retain(|part| !is_unsafe(part));
                }
                Some(block)
            },
        );
    }

    fn truncate(&mut self, target: u64) {
        let count = self.items.len();
        for index in (0..count).rev() {
            if self.total() <= target {
                return;
            }
            let item = &self.items[index];
            if self.is_protected(item.at) || !has_text(&item.message) {
                continue;
            }
            let from = item.length();
            let ratio = (from as f64 / self.settings.tokens_of(from).max(1) as f64).max(1.0);
            let most =
                ((target as f64 * ratio / count.max(1) as f64).floor() as usize).max(self.settings.least_characters);
            let message = truncated(&item.message, most, self.settings.least_characters);
            let (kind, reason, to) = ("truncated_text", "over_budget", js_json_len(&message));
            self.actions.push(Action { kind, reason, message: item.at, block: None, from, to });
            let item = &mut self.items[index];
            (item.message, item.length) = (message, to.into());
        }
    }

    fn drop_messages(&mut self, target: u64) {
        let mut index = 0;
        while index < self.items.len() && self.total() > target {
            let item = &self.items[index];
            let from = item.length();
            if Some(item.at) == self.first_typed || Some(item.at) == self.latest_typed {
                let (kind, reason) = ("preserved", "protected_live_tail");
                self.actions.push(Action { kind, reason, message: item.at, block: None, from, to: from });
                index += 1;
                continue;
            }
            let closure = self.closure(index);
            let stays = |&at: &usize| {
                let at = self.items[at].at;
                Some(at) == self.first_typed || self.is_protected(at)
            };
            if closure.iter().any(stays) {
                index += 1;
                continue;
            }
            // All of a closure go together, and what stood before in it has been looked at already.
            for &member in &closure {
                let item = &self.items[member];
                let is_pair = closure.len() > 1 || !tool_ids(&item.message).is_empty();
                let reason = if is_pair { "tool_pair_boundary" } else { "over_budget" };
                let from = item.length();
                self.actions.push(Action {
                    kind: "dropped_message",
                    reason,
                    message: item.at,
                    block: None,
                    from,
                    to: 0,
                });
            }
            for member in closure.into_iter().rev() {
                self.items.remove(member);
            }
        }
    }

    /// The messages that share calls with one, directly or by way of others, in order.
    fn closure(&self, index: usize) -> Vec<usize> {
        let mut members = vec![index];
        let mut ids = tool_ids(&self.items[index].message);
        loop {
            let n = members.len();
            for (at, item) in self.items.iter().enumerate() {
                let own = tool_ids(&item.message);
                if !members.contains(&at) && !own.is_disjoint(&ids) {
                    members.push(at);
                    ids.extend(own);
                }
            }
            if members.len() == n {
                members.sort_unstable();
                return members;
            }
        }
    }
}

fn has_text(message: &Value) -> bool {
    match &message["content"] {
        Value::String(text) => !text.is_empty(),
        _ => {
            blocks(message).iter().any(|block| ["text", "file", "tool_result"].iter().any(|kind| is_kind(block, kind)))
        }
    }
}

/// The message with its texts together of at most so many characters.
fn truncated(message: &Value, most: usize, least: usize) -> Value {
    let mut message = message.clone();
    let mut room = most;
    let mut cut = |text: &mut Value| {
        if let Value::String(whole) = text {
            let short = shortened(whole, room, least);
            room = room.saturating_sub(utf16_len(&short));
            *text = json!(short);
        }
    };
    match &mut message["content"] {
        content @ Value::String(_) => cut(content),
        Value::Array(blocks) => {
            for block in blocks {
                match block["type"].as_str() {
                    Some("text") => cut(&mut block["text"]),
                    Some("file") => cut(&mut block["content"]),
                    Some("tool_result") => match &mut block["content"] {
                        Value::Array(parts) => {
                            for part in parts {
                                match part["type"].as_str() {
                                    Some("text") => cut(&mut part["text"]),
                                    Some("file") => cut(&mut part["content"]),
                                    _ => {}
                                }
                            }
                        }
                        content => cut(content),
                    },
                    _ => {}
                }
            }
        }
        _ => {}
    }
    message
}

/// A text of at most `most` characters. A marker stands for the rest unless that leaves too little; counting again what
/// it left out, it may have a digit more.
fn shortened(text: &str, most: usize, least: usize) -> String {
    let length = utf16_len(text);
    if most == 0 {
        return String::new();
    }
    if length <= most {
        return text.to_owned();
    }
    if most <= least {
        return utf16_slice(text, 0, most);
    }
    let marker = |n: usize| format!("\n...[truncated {n} chars]");
    let kept = most.saturating_sub(utf16_len(&marker(length - most))).max(1);
    format!("{}{}", utf16_slice(text, 0, kept), marker(length - kept))
}
