//! The key of an API.

use std::fmt;

/// A key. It is written into one header and nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

/// What takes the place of a key in a text that holds it.
pub(crate) const PLACEHOLDER: &str = "[key]";

impl Key {
    /// A key, without the white space around it. `None` where nothing is left.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// The text without the key.
    pub(crate) fn scrub(&self, text: &str) -> String {
        text.replace(&self.0, PLACEHOLDER)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PLACEHOLDER)
    }
}
