//! JSON values that borrow from their text.
//!
//! A record becomes events by moving fields out. A [`Node`] costs less than a [`Value`] to make: texts without escapes
//! are borrowed and objects are plain lists, so that only what stays foreign is ever put into a map.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use condenser::event::Foreign;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::{Map, Number, Value};

use crate::fields::{Members, Tree};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node<'a> {
    Null,
    Bool(bool),
    Number(Number),
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Object<'a>),
}

/// A JSON object: its members in order, each key once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, Node<'a>)>);

impl<'a> Node<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&Node<'a>> {
        self.as_object()?.get(key)
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    pub(crate) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    pub(crate) fn as_array(&self) -> Option<&Vec<Node<'a>>> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    pub(crate) fn as_object(&self) -> Option<&Object<'a>> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    pub(crate) fn as_object_mut(&mut self) -> Option<&mut Object<'a>> {
        match self {
            Self::Object(object) => Some(object),
            _ => None,
        }
    }

    pub(crate) fn is_string(&self) -> bool {
        matches!(self, Self::String(_))
    }

    pub(crate) fn is_array(&self) -> bool {
        matches!(self, Self::Array(_))
    }

    pub(crate) fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The value on its own.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(flag) => Value::Bool(flag),
            Self::Number(number) => Value::Number(number),
            Self::String(text) => Value::String(text.into_owned()),
            Self::Array(items) => Value::Array(items.into_iter().map(Node::into_value).collect()),
            Self::Object(object) => Value::Object(object.into_map()),
        }
    }

    /// A value as it is; with keys, only those members of an object.
    pub(crate) fn of_value<'v>(value: &'v Value, keys: Option<&[&str]>) -> Node<'v> {
        match (value, keys) {
            (Value::Object(map), Some(keys)) => {
                let wanted = map.iter().filter(|(key, _)| keys.contains(&key.as_str()));
                Node::Object(Object(
                    wanted.map(|(key, value)| (Cow::from(key.as_str()), Node::borrow(value))).collect(),
                ))
            }
            (other, _) => Node::borrow(other),
        }
    }

    fn borrow(value: &Value) -> Node<'_> {
        match value {
            Value::Null => Node::Null,
            Value::Bool(flag) => Node::Bool(*flag),
            Value::Number(number) => Node::Number(number.clone()),
            Value::String(text) => Node::String(Cow::from(text.as_str())),
            Value::Array(items) => Node::Array(items.iter().map(Node::borrow).collect()),
            Value::Object(map) => Node::Object(Object(
                map.iter().map(|(key, value)| (Cow::from(key.as_str()), Node::borrow(value))).collect(),
            )),
        }
    }
}

impl From<Value> for Node<'_> {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(flag),
            Value::Number(number) => Self::Number(number),
            Value::String(text) => Self::String(Cow::Owned(text)),
            Value::Array(items) => Self::Array(items.into_iter().map(Node::from).collect()),
            Value::Object(map) => {
                Self::Object(Object(map.into_iter().map(|(key, value)| (Cow::Owned(key), value.into())).collect()))
            }
        }
    }
}

impl From<&str> for Node<'_> {
    fn from(text: &str) -> Self {
        Self::String(Cow::Owned(text.to_owned()))
    }
}

impl From<String> for Node<'_> {
    fn from(text: String) -> Self {
        Self::String(Cow::Owned(text))
    }
}

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(flag) => serializer.serialize_bool(*flag),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// JSON text.
impl fmt::Display for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.clone().into_value(), f)
    }
}

impl<'a> Object<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&Node<'a>> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node<'a>> {
        self.0.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn shift_remove(&mut self, key: &str) -> Option<Node<'a>> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    pub(crate) fn insert(&mut self, key: impl Into<Cow<'a, str>>, value: Node<'a>) {
        let key = key.into();
        match self.get_mut(&key) {
            Some(old) => *old = value,
            None => self.0.push((key, value)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_ref())
    }

    /// The fields that an event has no place for.
    pub(crate) fn into_foreign(self) -> Foreign {
        // Keys are texts and numbers finite, so that writing does not fail.
        Foreign::written(&self).unwrap_or_else(|_| self.into_map().into())
    }

    /// The object on its own.
    pub(crate) fn into_map(self) -> Map<String, Value> {
        self.0.into_iter().map(|(key, value)| (key.into_owned(), value.into_value())).collect()
    }

    /// As a map has it: of members with one key, the last value at the first place.
    fn unique(&mut self) {
        const FEW: usize = 24;
        let members = &self.0;
        let is_unique = members.len() <= FEW
            && members.iter().enumerate().all(|(at, (key, _))| members[..at].iter().all(|(other, _)| other != key));
        if is_unique {
            return;
        }
        let mut places: HashMap<Cow<'a, str>, usize> = HashMap::with_capacity(self.0.len());
        let mut kept: Vec<(Cow<'a, str>, Node<'a>)> = Vec::with_capacity(self.0.len());
        for (key, value) in std::mem::take(&mut self.0) {
            match places.get(&key) {
                Some(at) => kept[*at].1 = value,
                None => {
                    places.insert(key.clone(), kept.len());
                    kept.push((key, value));
                }
            }
        }
        self.0 = kept;
    }
}

/// Decodes a node; with keys, only those members of the outermost object.
#[derive(Clone, Copy)]
pub(crate) struct Seed<'k> {
    pub(crate) keys: Option<&'k [&'k str]>,
    pub(crate) is_top: bool,
}

const NESTED: Seed<'static> = Seed { keys: None, is_top: false };

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node<'de>, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node<'de>, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node<'de>, E> {
        Ok(Number::from_f64(number).map_or(Node::Null, Node::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::String(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node<'de>, E> {
        Ok(Node::String(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(NESTED)? {
            items.push(item);
        }
        Ok(Node::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node<'de>, A::Error> {
        let mut object = Object(Vec::with_capacity(if self.is_top { 16 } else { 4 }));
        while let Some(key) = access.next_key_seed(Key)? {
            if self.keys.is_none_or(|keys| keys.contains(&key.as_ref())) {
                object.0.push((key, access.next_value_seed(NESTED)?));
            } else {
                access.next_value::<serde::de::IgnoredAny>()?;
            }
        }
        object.unique();
        Ok(Node::Object(object))
    }
}

/// Decodes a key.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

impl<'a> Tree for Node<'a> {
    type Members = Object<'a>;

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

    fn members(&self) -> Option<&Object<'a>> {
        self.as_object()
    }

    fn members_mut(&mut self) -> Option<&mut Object<'a>> {
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
            Self::String(text) => Ok(text.into_owned()),
            other => Err(other),
        }
    }

    fn into_list(self) -> Result<Vec<Self>, Self> {
        match self {
            Self::Array(items) => Ok(items),
            other => Err(other),
        }
    }

    fn into_members(self) -> Result<Object<'a>, Self> {
        match self {
            Self::Object(object) => Ok(object),
            other => Err(other),
        }
    }

    fn to_value(&self) -> Value {
        self.clone().into_value()
    }
}

impl<'a> Members for Object<'a> {
    type Item = Node<'a>;

    fn get(&self, key: &str) -> Option<&Node<'a>> {
        self.get(key)
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Node<'a>> {
        self.get_mut(key)
    }

    fn take(&mut self, key: &str) -> Option<Node<'a>> {
        self.shift_remove(key)
    }

    fn put(&mut self, key: &str, value: Node<'a>) {
        self.insert(key.to_owned(), value);
    }

    fn all(&self, mut holds: impl FnMut(&str, &Node<'a>) -> bool) -> bool {
        self.0.iter().all(|(key, value)| holds(key, value))
    }
}
