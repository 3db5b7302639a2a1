//! What follows when a provider says that a request is too large.

/// Parts of the messages that providers send then, in lower case.
const PHRASES: [&str; 7] = [
    "context window exceeds",
    "context length",
    "context_length_exceeded",
    "prompt is too long",
    "prompt_too_long",
    "input token count",
    "too many total tokens",
];

/// Whether an error says that the request is too large.
pub fn is_overflow(status: Option<u16>, message: &str) -> bool {
    let message = message.to_lowercase();
    matches!(status, None | Some(400 | 413)) && PHRASES.iter().any(|phrase| message.contains(phrase))
}

/// Counts compactions that overflows caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    used: u32,
}

impl Retry {
    /// After an overflow: whether to compact and, if that changed something, to send once more. `most` bounds how
    /// often, counted until [`Retry::succeed`].
    pub fn compact(&mut self, most: u32) -> bool {
        let may = self.used < most;
        self.used += u32::from(may);
        may
    }

    /// After a request that was answered at the first attempt. A retry that is answered does not count.
    pub fn succeed(&mut self) {
        self.used = 0;
    }
}
