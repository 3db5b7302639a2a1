//! OpenHands SDK event logs: a conversation folder, JSON lines, a server page, or a benchmark's output.jsonl.

use crate::{Document, Format, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: "openhands-v1",
    description: "OpenHands SDK event logs: a conversation folder, JSON lines, a server page, or a benchmark's output.jsonl",
    sniff,
    read,
};

fn sniff(_document: &Document) -> bool {
    false
}

fn read(document: Document) -> Result<Vec<Trace>, ReadError> {
    Err(document.unfit(FORMAT.name, "not read yet"))
}
