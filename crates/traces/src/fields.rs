//! Moving typed fields out of JSON objects.
//!
//! What has the expected type is moved out; anything else stays where it is, so that what remains in
//! the object at the end is what the event has no place for.

use condenser::event::{ContentBlock, Usage};
use serde_json::{Map, Value};

/// A JSON value, as a tree of its own or borrowing from its text.
pub(crate) trait Tree: Sized {
    type Members: Members<Item = Self>;

    fn text(&self) -> Option<&str>;
    fn number(&self) -> Option<u64>;
    fn flag(&self) -> Option<bool>;
    fn list(&self) -> Option<&[Self]>;
    fn members(&self) -> Option<&Self::Members>;
    fn members_mut(&mut self) -> Option<&mut Self::Members>;
    fn is_null(&self) -> bool;
    fn from_text(text: &str) -> Self;
    fn into_text(self) -> Result<String, Self>;
    fn into_list(self) -> Result<Vec<Self>, Self>;
    fn into_members(self) -> Result<Self::Members, Self>;
    fn to_value(&self) -> Value;

    /// The value under a key of an object.
    fn at(&self, key: &str) -> Option<&Self> {
        self.members()?.get(key)
    }
}

/// A JSON object.
pub(crate) trait Members: Sized {
    type Item: Tree<Members = Self>;

    fn get(&self, key: &str) -> Option<&Self::Item>;
    fn get_mut(&mut self, key: &str) -> Option<&mut Self::Item>;
    fn take(&mut self, key: &str) -> Option<Self::Item>;
    fn put(&mut self, key: &str, value: Self::Item);
    fn all(&self, holds: impl FnMut(&str, &Self::Item) -> bool) -> bool;
}

impl Tree for Value {
    type Members = Map<String, Value>;

    fn text(&self) -> Option<&str> {
        self.as_str()
    }

    fn number(&self) -> Option<u64> {
        self.as_u64()
    }

    fn flag(&self) -> Option<bool> {
        self.as_bool()
    }

    fn list(&self) -> Option<&[Self]> {
        self.as_array().map(Vec::as_slice)
    }

    fn members(&self) -> Option<&Map<String, Value>> {
        self.as_object()
    }

    fn members_mut(&mut self) -> Option<&mut Map<String, Value>> {
        self.as_object_mut()
    }

    fn is_null(&self) -> bool {
        self.is_null()
    }

    fn from_text(text: &str) -> Self {
        Self::from(text)
    }

    fn into_text(self) -> Result<String, Self> {
        match self {
            Self::String(text) => Ok(text),
            other => Err(other),
        }
    }

    fn into_list(self) -> Result<Vec<Self>, Self> {
        match self {
            Self::Array(items) => Ok(items),
            other => Err(other),
        }
    }

    fn into_members(self) -> Result<Map<String, Value>, Self> {
        match self {
            Self::Object(map) => Ok(map),
            other => Err(other),
        }
    }

    fn to_value(&self) -> Value {
        self.clone()
    }
}

impl Members for Map<String, Value> {
    type Item = Value;

    fn get(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.get_mut(key)
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.shift_remove(key)
    }

    fn put(&mut self, key: &str, value: Value) {
        self.insert(key.to_owned(), value);
    }

    fn all(&self, mut holds: impl FnMut(&str, &Value) -> bool) -> bool {
        self.iter().all(|(key, value)| holds(key, value))
    }
}

/// Moves out what `into` accepts; anything else stays, at its place as far as the object keeps one.
fn take_as<M: Members, T>(
    map: &mut M,
    key: &str,
    is: fn(&M::Item) -> bool,
    into: fn(M::Item) -> Result<T, M::Item>,
) -> Option<T> {
    if !is(map.get(key)?) {
        return None;
    }
    map.take(key).and_then(|value| into(value).ok())
}

/// Moves a text out.
pub(crate) fn take_text<M: Members>(map: &mut M, key: &str) -> Option<String> {
    take_as(map, key, |value| value.text().is_some(), Tree::into_text)
}

/// Moves a list out.
pub(crate) fn take_list<M: Members>(map: &mut M, key: &str) -> Option<Vec<M::Item>> {
    take_as(map, key, |value| value.list().is_some(), Tree::into_list)
}

/// Moves an object out.
pub(crate) fn take_object<M: Members>(map: &mut M, key: &str) -> Option<M> {
    take_as(map, key, |value| value.members().is_some(), Tree::into_members)
}

/// Moves the name and arguments of a stored tool call out, flat or inside `function`.
///
/// An emptied `function` stays as the sign of that shape. Arguments that are not text stay too and are
/// returned as JSON text.
pub(crate) fn take_call<M: Members>(call: &mut M) -> (Option<String>, Option<String>) {
    let is_nested = call.get("function").is_some_and(|function| function.members().is_some());
    let inner = if is_nested { call.get_mut("function").and_then(Tree::members_mut) } else { None };
    let from = match inner {
        Some(function) => function,
        None => call,
    };
    let arguments = take_text(from, "arguments")
        .or_else(|| from.get("arguments").filter(|other| !other.is_null()).map(|other| other.to_value().to_string()));
    (take_text(from, "name"), arguments)
}

/// Moves content out of `key`: a list of parts, one part, or plain text.
///
/// `part` turns one part into a block and says whether the block tells everything that the part did;
/// where one does not, the raw value stays as well. Plain text and one part leave `<key>_shape` behind, and null,
/// empty text and empty lists stay as they are.
pub(crate) fn take_content<M: Members>(
    map: &mut M,
    key: &str,
    part: fn(&M::Item) -> (ContentBlock, bool),
) -> Vec<ContentBlock> {
    let Some(value) = map.get(key) else { return Vec::new() };
    let (blocks, exact): (Vec<ContentBlock>, bool) = if let Some(text) = value.text() {
        if text.is_empty() {
            return Vec::new();
        }
        let text = take_text(map, key).unwrap_or_default();
        map.put(&format!("{key}_shape"), M::Item::from_text("string"));
        return vec![ContentBlock::text(text)];
    } else if let Some(parts) = value.list() {
        if parts.is_empty() {
            return Vec::new();
        }
        let converted: Vec<_> = parts.iter().map(part).collect();
        let exact = converted.iter().all(|(_, exact)| *exact);
        (converted.into_iter().map(|(block, _)| block).collect(), exact)
    } else if value.members().is_some() {
        let (block, exact) = part(value);
        if exact {
            map.take(key);
            map.put(&format!("{key}_shape"), M::Item::from_text("object"));
        }
        return vec![block];
    } else {
        return Vec::new();
    };
    if exact {
        map.take(key);
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
pub(crate) fn anthropic_usage<T: Tree>(figures: &T, model: Option<&str>) -> Option<Usage> {
    let figures = figures.members()?;
    let count = |key: &str| figures.get(key).and_then(Tree::number);
    Some(Usage {
        input_tokens: count("input_tokens"),
        cache_read_tokens: count("cache_read_input_tokens"),
        cache_write_tokens: count("cache_creation_input_tokens"),
        output_tokens: count("output_tokens"),
        model: model.map(str::to_owned),
    })
}
