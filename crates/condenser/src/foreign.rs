//! Fields of a foreign record that an event has no place for.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// Fields of a foreign record, by name, in its order: a map that may still be JSON text.
///
/// A reader fills one for nearly every event, and few are ever looked at. One made by [`Foreign::written`] is kept as
/// text and becomes a map when it is first used as one.
#[derive(Clone, Default)]
pub struct Foreign {
    /// What counts where nothing is written.
    map: Map<String, Value>,
    written: Option<Box<Written>>,
}

/// A JSON object, and the map that it is once somebody asked.
#[derive(Clone)]
struct Written {
    text: String,
    map: OnceLock<Map<String, Value>>,
}

impl Written {
    fn map(&self) -> &Map<String, Value> {
        // What serde_json wrote as an object it reads as a map.
        self.map.get_or_init(|| serde_json::from_str(&self.text).unwrap_or_default())
    }
}

impl Foreign {
    /// The fields as JSON text.
    ///
    /// # Errors
    ///
    /// What `serde_json` cannot write, and what it does not write as an object.
    pub fn written(fields: &impl Serialize) -> Result<Self, serde_json::Error> {
        let text = serde_json::to_string(fields)?;
        if text == "{}" {
            return Ok(Self::default());
        }
        if !text.starts_with('{') {
            return Err(serde::ser::Error::custom("foreign fields are an object"));
        }
        Ok(Self { map: Map::new(), written: Some(Box::new(Written { text, map: OnceLock::new() })) })
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        // An empty object is not kept as text.
        self.written.is_none() && self.map.is_empty()
    }

    /// The fields as a map.
    pub fn into_map(mut self) -> Map<String, Value> {
        std::mem::take(&mut *self)
    }
}

impl Deref for Foreign {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        self.written.as_ref().map_or(&self.map, |written| written.map())
    }
}

impl DerefMut for Foreign {
    fn deref_mut(&mut self) -> &mut Self::Target {
        if let Some(mut written) = self.written.take() {
            written.map();
            self.map = written.map.take().unwrap_or_default();
        }
        &mut self.map
    }
}

impl From<Map<String, Value>> for Foreign {
    fn from(map: Map<String, Value>) -> Self {
        Self { map, written: None }
    }
}

impl PartialEq for Foreign {
    fn eq(&self, other: &Self) -> bool {
        match (&self.written, &other.written) {
            (Some(one), Some(two)) if one.text == two.text => true,
            _ => **self == **other,
        }
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for Foreign {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Foreign {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Map::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_kept_as_text_are_the_map_they_were_written_from() {
        let texts =
            ["{}", r#"{"b":1,"a":{"x":[null,1.5e300,-0.0]},"":"\u0000 \" \\ 🙂"}"#, r#"{"long":18446744073709551615}"#];
        for text in texts {
            let map: Map<String, Value> = serde_json::from_str(text).unwrap();
            let mut written = Foreign::written(&map).unwrap();
            assert_eq!(written.is_empty(), map.is_empty());
            assert_eq!(written, Foreign::from(map.clone()));
            assert_eq!(serde_json::to_string(&written).unwrap(), serde_json::to_string(&map).unwrap());
            assert_eq!(written.clone().into_map(), map);
            written.insert("more".to_owned(), json!(1));
            assert_ne!(written, Foreign::from(map.clone()));
            written.shift_remove("more");
            assert_eq!(written.into_map(), map);
        }
        Foreign::written(&json!([1])).unwrap_err();
    }
}
