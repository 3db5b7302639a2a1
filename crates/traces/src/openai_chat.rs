//! OpenAI chat messages: a list, JSON lines, dataset rows, logged requests, stored completions.

use crate::{Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "openai-chat",
    description: "OpenAI chat messages: a list, JSON lines, dataset rows, logged requests, stored completions",
    sniff,
    read,
};

fn sniff(_document: &Document) -> bool {
    false
}

fn read(document: Document) -> Result<Vec<Trace>, ReadError> {
    Err(document.unfit(FORMAT.name, "not read yet"))
}
