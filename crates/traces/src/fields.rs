//! Moving typed fields out of JSON objects.
//!
//! What has the expected type is moved out; anything else stays where it is, so that what remains in
//! the object at the end is what the event has no place for.

use condenser::event::{ContentBlock, Usage};
use serde_json::{Map, Value};

/// Moves a text out.
pub(crate) fn take_text(map: &mut Map<String, Value>, key: &str) -> Option<String> {
    if !map.get(key)?.is_string() {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Moves a list out.
pub(crate) fn take_list(map: &mut Map<String, Value>, key: &str) -> Option<Vec<Value>> {
    if !map.get(key)?.is_array() {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::Array(items)) => Some(items),
        _ => None,
    }
}

/// Moves an object out.
pub(crate) fn take_object(map: &mut Map<String, Value>, key: &str) -> Option<Map<String, Value>> {
    if !map.get(key)?.is_object() {
        return None;
    }
    match map.shift_remove(key) {
        Some(Value::Object(object)) => Some(object),
        _ => None,
    }
}

/// Moves the name and arguments of a stored tool call out, flat or inside `function`.
///
/// An emptied `function` stays as the sign of that shape. Arguments that are not text stay too and are
/// returned as JSON text.
pub(crate) fn take_call(call: &mut Map<String, Value>) -> (Option<String>, Option<String>) {
    let inner = match call.get("function") {
        Some(Value::Object(_)) => call.get_mut("function").and_then(Value::as_object_mut),
        _ => None,
    };
    let from = match inner {
        Some(function) => function,
        None => call,
    };
    let arguments = take_text(from, "arguments").or_else(|| match from.get("arguments") {
        None | Some(Value::Null) => None,
        Some(other) => Some(other.to_string()),
    });
    (take_text(from, "name"), arguments)
}

/// Moves content out of `key`: a list of parts, one part, or plain text.
///
/// `part` turns one part into a block and says whether the block tells everything that the part did;
/// where one does not, the raw value stays as well. Plain text leaves `<key>_shape` behind, and null
/// and empty text stay as they are.
pub(crate) fn take_content(
    map: &mut Map<String, Value>,
    key: &str,
    part: fn(&Value) -> (ContentBlock, bool),
) -> Vec<ContentBlock> {
    let Some(value) = map.get_mut(key) else { return Vec::new() };
    let (blocks, exact) = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => return Vec::new(),
        Value::String(text) => {
            if text.is_empty() {
                return Vec::new();
            }
            let text = std::mem::take(text);
            map.shift_remove(key);
            map.insert(format!("{key}_shape"), Value::from("string"));
            return vec![ContentBlock::text(text)];
        }
        Value::Object(_) => {
            let (block, exact) = part(value);
            (vec![block], exact)
        }
        Value::Array(parts) => {
            let converted: Vec<_> = parts.iter().map(part).collect();
            let exact = converted.iter().all(|(_, exact)| *exact);
            (converted.into_iter().map(|(block, _)| block).collect(), exact)
        }
    };
    if exact {
        map.shift_remove(key);
    }
    blocks
}

/// Token figures of a chat completion or of a metrics entry of the same words.
///
/// `prompt_tokens` includes what was read from the cache; what was written to it is included by some
/// writers only, and taken to be where the figures allow it.
pub(crate) fn usage(figures: &Value, model: Option<&str>) -> Option<Usage> {
    let number = |key: &str| figures.get(key).and_then(Value::as_u64);
    let detail = |key: &str| figures.get("prompt_tokens_details").and_then(|details| details.get(key)?.as_u64());
    let prompt = number("prompt_tokens")?;
    let read =
        number("cache_read_tokens").or_else(|| number("cache_read_input_tokens")).or_else(|| detail("cached_tokens"));
    let write = number("cache_write_tokens").or_else(|| number("cache_creation_input_tokens"));
    let fresh = prompt.saturating_sub(read.unwrap_or(0));
    Some(Usage {
        input_tokens: Some(fresh.checked_sub(write.unwrap_or(0)).unwrap_or(fresh)),
        cache_read_tokens: read,
        cache_write_tokens: write,
        output_tokens: number("completion_tokens"),
        model: figures.get("model").and_then(Value::as_str).or(model).map(str::to_owned),
    })
}

/// Token figures in Anthropic's words; `input_tokens` excludes what was read from and written to the cache.
pub(crate) fn anthropic_usage(figures: &Value, model: Option<&str>) -> Option<Usage> {
    let figures = figures.as_object()?;
    let count = |key: &str| figures.get(key).and_then(Value::as_u64);
    Some(Usage {
        input_tokens: count("input_tokens"),
        cache_read_tokens: count("cache_read_input_tokens"),
        cache_write_tokens: count("cache_creation_input_tokens"),
        output_tokens: count("output_tokens"),
        model: model.map(str::to_owned),
    })
}
