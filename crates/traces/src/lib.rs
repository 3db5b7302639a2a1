//! Readers and writers of public agent trace formats.
//!
//! A reader turns foreign records into [`Event`]s and keeps everything: what has no place in an event
//! stays in its `foreign` fields, and what the model never saw becomes an `unknown` event. A damaged
//! record is reported as a [`Diagnostic`] with its place and never silently skipped.
//!
//! [`find`] expands a path into [`Candidate`]s. A [`Reader`] reads one item by item; [`read_path`] reads it whole.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use condenser::event::Event;

mod answer;
mod anthropic;
mod atif;
mod blocks;
mod builder;
mod claude_code;
mod cline;
mod codex;
mod document;
mod error;
mod eval;
mod fields;
mod gemini;
mod history;
mod ids;
mod input;
mod inspect;
pub mod json;
mod langchain;
mod mini_swe_agent;
mod node;
mod openai_chat;
mod opencode;
mod openhands_v0;
pub mod openhands_v1;
mod otel;
mod pi;
mod reader;
mod redact;
mod responses;
mod swe_agent;
#[cfg(feature = "parquet")]
mod table;
mod write;

pub use document::{Content, Document, MAX_BYTES};
pub use error::ReadError;
pub use reader::{Item, Reader};
pub use redact::{BadPattern, Redacted, Secrets, redact};
pub use write::{WRITABLE, WriteError, Written, write};

/// One session's active branch, as events.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The path as given, plus `#<row>` (from 0) where a file holds several traces.
    pub name: String,
    /// The format's stable name, as `condenser formats` lists it.
    pub format: &'static str,
    /// The task the trace belongs to, where the source names one (an instance or task id).
    pub task: Option<String>,
    /// The id that the source gives the session, where it gives one.
    pub session: Option<String>,
    /// What started this trace, where it is a sub-agent's or continues another.
    pub parent: Option<Link>,
    /// The events, in the order of the active branch. Ids are unique.
    pub events: Vec<Event>,
    /// Foreign records of the whole file.
    pub records: u64,
    /// What was odd. File-level diagnostics stand on the first trace of a file.
    pub diagnostics: Vec<Diagnostic>,
}

/// The trace that another one hangs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The [name](Trace::name) of a trace in the same file, else the source's [id](Trace::session) of a session.
    pub to: String,
    /// The call in that trace whose work this is, where the source says so.
    pub call_id: Option<String>,
}

/// Something odd in a file, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Line, row or record, in the source's own counting: `line 12`, `row 3`, `messages[4]`.
    pub place: String,
    /// What was found and what was done. At most a short excerpt of the content.
    pub message: String,
}

impl Diagnostic {
    /// A diagnostic of a place and a message.
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A trace format that this crate reads.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The stable name.
    pub name: &'static str,
    /// One line on what it is and where it is found.
    pub description: &'static str,
    /// Whether a document is of this format. Cheap, and never true on a guess.
    pub sniff: fn(&Document) -> bool,
    /// Turns a document into traces. It may be asked without a sniff, when a user names the format.
    ///
    /// The document's own diagnostics go to the first trace.
    pub read: fn(Document) -> Result<Vec<Trace>, ReadError>,
}

/// The formats, in the order in which they are tried: the first that fits wins.
///
/// The narrow ones come first; chat messages, which many things look like, come last.
pub static FORMATS: &[Format] = &[
    openhands_v1::FORMAT,
    openhands_v0::FORMAT,
    atif::FORMAT,
    swe_agent::FORMAT,
    pi::FORMAT,
    claude_code::FORMAT,
    codex::FORMAT,
    gemini::FORMAT,
    langchain::FORMAT,
    inspect::FORMAT,
    otel::FORMAT,
    opencode::FORMAT,
    mini_swe_agent::FORMAT,
    cline::FORMAT,
    responses::FORMAT,
    anthropic::FORMAT,
    openai_chat::FORMAT,
];

/// The format with this name.
///
/// # Errors
///
/// [`ReadError::UnknownFormat`], with the nearest name.
pub fn format(name: &str) -> Result<&'static Format, ReadError> {
    FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
        let nearest = FORMATS
            .iter()
            .map(|format| (strsim::jaro_winkler(name, format.name), format.name))
            .filter(|(likeness, _)| *likeness > 0.7)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let hint = match nearest {
            Some((_, near)) => format!("did you mean {near:?}?"),
            None => {
                format!("known are {}", FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", "))
            }
        };
        ReadError::UnknownFormat { asked: json::excerpt(name, 60), hint }
    })
}

/// Reads all traces of one file or one trace directory, as the named format or as the one that fits.
///
/// # Errors
///
/// Any [`ReadError`]; [`ReadError::Unrecognized`] where no format fits. A folder of several files is
/// not a trace: [`find`] expands it.
pub fn read_path(path: &Path, format: Option<&str>) -> Result<Vec<Trace>, ReadError> {
    Reader::open(path, format)?.into_traces()
}

/// Reads all traces of a document that is already open.
///
/// # Errors
///
/// As [`read_path`].
pub fn read_document(document: Document, format: Option<&Format>) -> Result<Vec<Trace>, ReadError> {
    match format.or_else(|| FORMATS.iter().find(|format| (format.sniff)(&document))) {
        Some(format) => (format.read)(document),
        None => Err(ReadError::Unrecognized { seen: document.seen(), path: document.path }),
    }
}

/// A path that may hold traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The path as given, joined with what was found below it. Traces are named after it.
    pub path: PathBuf,
    /// Whether the user named this very path. What is found in a folder may be something else, and is
    /// reported then; what was named must be readable.
    pub named: bool,
}

/// Expands a path: a file or a trace directory is itself, any other folder is all that is in it. What is no path may be
/// a pattern with `*`, `?`, `[…]` and `**`, and is then all that fits.
///
/// Folders are searched to the bottom, in order of names. Hidden files and folders are left out, a
/// trace directory is not searched.
///
/// # Errors
///
/// [`ReadError::NotFound`], [`ReadError::Io`], or [`ReadError::NoFiles`] for a folder without files.
pub fn find(path: &Path) -> Result<Vec<Candidate>, ReadError> {
    let is_trace = |path: &Path| {
        let document = Document { path: path.to_owned(), content: Content::Directory, diagnostics: Vec::new() };
        FORMATS.iter().any(|format| (format.sniff)(&document))
    };
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            return matching(path).ok_or_else(|| ReadError::NotFound { path: path.to_owned() });
        }
        Err(source) => return Err(ReadError::Io { path: path.to_owned(), source }),
    };
    if !metadata.is_dir() || is_trace(path) {
        return Ok(vec![Candidate { path: path.to_owned(), named: true }]);
    }
    let mut found = Vec::new();
    let mut open = vec![path.to_owned()];
    // Links can lead back up.
    let mut seen = HashSet::new();
    while let Some(next) = open.pop() {
        if !next.is_dir() || (next != path && is_trace(&next)) {
            found.push(Candidate { path: next, named: false });
            continue;
        }
        if !fs::canonicalize(&next).is_ok_and(|real| seen.insert(real)) {
            continue;
        }
        let Ok(listing) = fs::read_dir(&next) else {
            // Reading it says why.
            found.push(Candidate { path: next, named: false });
            continue;
        };
        let mut entries: Vec<PathBuf> = listing
            .flatten()
            .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
            .map(|entry| entry.path())
            .collect();
        entries.sort_unstable_by(|a, b| b.cmp(a));
        open.extend(entries);
    }
    if found.is_empty() {
        return Err(ReadError::NoFiles { path: path.to_owned() });
    }
    Ok(found)
}

/// What fits a pattern, each expanded as a path; `None` where nothing does.
fn matching(pattern: &Path) -> Option<Vec<Candidate>> {
    let paths = glob::glob(pattern.to_str()?).ok()?.flatten();
    let found: Vec<Candidate> = paths.filter_map(|path| find(&path).ok()).flatten().collect();
    (!found.is_empty()).then_some(found)
}
