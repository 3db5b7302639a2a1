//! Optional fields of nested objects that this version does not know.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Fields that a newer writer gave to objects inside an event or record, kept so that writing puts them back.
///
/// By the object's place, as a JSON pointer into the event's or record's own JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unread(BTreeMap<String, Map<String, Value>>);

const ORIGIN: &[&str] = &["record", "part"];
const USAGE: &[&str] = &["input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "model"];
const TOOL_CALL: &[&str] = &["id", "name", "arguments"];
const PROVENANCE: &[&str] = &[
    "policy",
    "config_digest",
    "reasons",
    "tokens_before",
    "tokens_after",
    "counter",
    "pinned_digest",
    "summarizer_calls",
    "summarizer_input_tokens",
    "summarizer_output_tokens",
    "summarizer",
    "prompt_version",
    "fallbacks",
    "extended",
    "basis",
];

fn block_fields(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "text" => &["type", "text", "cache"],
        "image" => &["type", "urls", "cache"],
        "thinking" => &["type", "thinking", "signature"],
        "redacted_thinking" => &["type", "data"],
        "other" => &["type", "value"],
        _ => return None,
    })
}

fn rewrite_fields(op: &str) -> Option<&'static [&'static str]> {
    Some(match op {
        "clear" | "note" | "arguments" => &["op", "tokens", "text"],
        "clip" => &["op", "tokens", "head", "tail"],
        "replace" => &["op", "tokens", "content"],
        "strip" => &["op", "tokens", "kinds"],
        _ => return None,
    })
}

/// Whether blocks of this type have a variant of their own.
pub(crate) fn is_block_type(kind: &str) -> bool {
    block_fields(kind).is_some()
}

impl Unread {
    /// Whether every field was known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The fields, by the JSON pointer of the object they belong to.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
        self.0.iter().map(|(place, fields)| (place.as_str(), fields))
    }

    /// Takes the unknown fields out of what an event holds beside the fields of its record.
    pub(crate) fn of_event(map: &mut Map<String, Value>) -> Self {
        let mut unread = Self::default();
        unread.object(map.get_mut("origin"), "/origin", ORIGIN);
        unread.object(map.get_mut("usage"), "/usage", USAGE);
        for key in ["content", "extended_content", "dynamic_context", "thought", "thinking"] {
            unread.blocks(map.get_mut(key), &format!("/{key}"));
        }
        let calls = map.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (at, call) in calls.into_iter().flatten().enumerate() {
            unread.object(Some(call), &format!("/tool_calls/{at}"), TOOL_CALL);
        }
        unread
    }

    /// Takes the unknown fields out of a record.
    pub(crate) fn of_record(map: &mut Map<String, Value>) -> Self {
        let mut unread = Self::default();
        unread.object(map.get_mut("provenance"), "/provenance", PROVENANCE);
        let rewrites = map.get_mut("rewrites").and_then(Value::as_object_mut);
        for (id, rewrite) in rewrites.into_iter().flatten() {
            let place = format!("/rewrites/{}", id.replace('~', "~0").replace('/', "~1"));
            if let Some(known) = rewrite.get("op").and_then(Value::as_str).and_then(rewrite_fields) {
                unread.object(Some(rewrite), &place, known);
            }
            unread.blocks(rewrite.get_mut("content"), &format!("{place}/content"));
        }
        unread
    }

    fn blocks(&mut self, blocks: Option<&mut Value>, place: &str) {
        let blocks = blocks.and_then(Value::as_array_mut);
        for (at, block) in blocks.into_iter().flatten().enumerate() {
            if let Some(known) = block.get("type").and_then(Value::as_str).and_then(block_fields) {
                self.object(Some(block), &format!("{place}/{at}"), known);
            }
        }
    }

    fn object(&mut self, object: Option<&mut Value>, place: &str, known: &[&str]) {
        let Some(Value::Object(map)) = object else { return };
        if map.keys().all(|key| known.contains(&key.as_str())) {
            return;
        }
        let (kept, unknown) = std::mem::take(map).into_iter().partition(|(key, _)| known.contains(&key.as_str()));
        *map = kept;
        self.0.insert(place.to_owned(), unknown);
    }

    /// Puts the fields back, as far as their objects are still there.
    pub(crate) fn put_into(&self, json: &mut Value) {
        for (place, fields) in &self.0 {
            if let Some(Value::Object(map)) = json.pointer_mut(place) {
                map.extend(fields.clone());
            }
        }
    }
}
