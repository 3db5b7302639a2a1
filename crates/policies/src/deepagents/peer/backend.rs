//! Where the original stores what leaves.

use serde_json::Value;

/// How a write ended that did not throw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is stored.
    Done,
    /// The backend returned an error.
    Refused,
    /// The backend returned nothing.
    Nothing,
}

/// What the backend threw.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the backend failed: {0}")]
pub struct Thrown(pub String);

/// A file system of the original, and what it takes from its surroundings.
pub trait Backend {
    /// A file's bytes; `None` where there is none, or an error was returned.
    ///
    /// # Errors
    /// Whatever is thrown.
    fn read(&mut self, path: &str) -> Result<Option<Vec<u8>>, Thrown>;

    /// Writes a new file.
    ///
    /// # Errors
    /// Whatever is thrown.
    fn write(&mut self, path: &str, text: &str) -> Result<Stored, Thrown>;

    /// Replaces a text in a file.
    ///
    /// # Errors
    /// Whatever is thrown.
    fn edit(&mut self, path: &str, old: &str, new: &str) -> Result<Stored, Thrown>;

    /// What the model is told of where the text of a message is.
    fn address(&self, path: &str, message: &Value) -> String {
        let _ = message;
        path.to_owned()
    }

    /// The time in UTC, as ISO 8601.
    fn now(&mut self) -> String;

    /// 32 random hexadecimal digits.
    fn random(&mut self) -> String;
}
