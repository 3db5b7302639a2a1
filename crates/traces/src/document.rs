//! What a reader is given: one decoded file, or one directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::input::Input;
use crate::json::{self, Record};
use crate::{Diagnostic, ReadError};

/// The largest document that is read at once, unpacked, in bytes. Where a format is read line by line, files may be larger.
pub const MAX_BYTES: u64 = 4 << 30;

/// One input: a file, decoded, or a directory, not yet looked into.
#[derive(Debug)]
pub struct Document {
    /// The path as given.
    pub path: PathBuf,
    /// What is there.
    pub content: Content,
    /// What was odd in decoding, with places.
    pub diagnostics: Vec<Diagnostic>,
}

/// What is at a path.
#[derive(Debug)]
#[non_exhaustive]
pub enum Content {
    /// The JSON values of a file, in order: one for a whole-file document, else as a rule one a line. Never empty.
    Records(Vec<Record>),
    /// A directory; [`Document::file_names`] lists it.
    Directory,
}

impl Document {
    /// Reads and decodes the file at `path`, unpacked where it is a gzip or zstd archive, or takes the directory there.
    ///
    /// # Errors
    ///
    /// [`ReadError::NotFound`], [`ReadError::Io`], [`ReadError::NotAFile`], [`ReadError::Empty`], [`ReadError::Binary`],
    /// [`ReadError::TooLarge`], or [`ReadError::Malformed`] where not one JSON value can be decoded.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => ReadError::NotFound { path: path.to_owned() },
            _ => ReadError::Io { path: path.to_owned(), source },
        };
        let metadata = fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            fs::read_dir(path).map_err(failed)?;
            return Ok(Self { path: path.to_owned(), content: Content::Directory, diagnostics: Vec::new() });
        }
        Self::from_input(&Input::file(path)?)
    }

    pub(crate) fn from_input(input: &Input) -> Result<Self, ReadError> {
        Self::from_bytes(input.path(), input.read_all()?)
    }

    /// Decodes the bytes of a file that is called `path`.
    ///
    /// # Errors
    ///
    /// As [`Document::open`].
    pub fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, ReadError> {
        let path = path.to_owned();
        if let Some(what) = binary(&bytes) {
            return Err(ReadError::Binary { path, what });
        }
        match json::decode(bytes) {
            Ok(Some(decoded)) => {
                Ok(Self { path, content: Content::Records(decoded.records), diagnostics: decoded.diagnostics })
            }
            Ok(None) => Err(ReadError::Empty { path }),
            Err(fault) => Err(ReadError::Malformed { path, place: fault.place, reason: fault.message }),
        }
    }

    /// The name of the document's only trace: the path as given.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The name of the trace in one row, counted from 0.
    pub fn row_name(&self, row: usize) -> String {
        format!("{}#{row}", self.path.display())
    }

    /// The records of a file; empty for a directory.
    pub fn records(&self) -> &[Record] {
        match &self.content {
            Content::Records(records) => records,
            Content::Directory => &[],
        }
    }

    /// Moves the records out.
    pub fn take_records(&mut self) -> Vec<Record> {
        match &mut self.content {
            Content::Records(records) => std::mem::take(records),
            Content::Directory => Vec::new(),
        }
    }

    /// The value of a file that holds exactly one, be it a whole document or a single line.
    pub fn single(&self) -> Option<&Value> {
        match self.records() {
            [record] => Some(&record.value),
            _ => None,
        }
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory)
    }

    /// Names of the plain files in a directory, or in its folder `sub`, sorted; empty where there is none.
    ///
    /// Names that are not Unicode are left out: no format has such.
    pub fn file_names(&self, sub: Option<&str>) -> Vec<String> {
        if !self.is_directory() {
            return Vec::new();
        }
        let folder = sub.map_or_else(|| self.path.clone(), |sub| self.path.join(sub));
        let mut names: Vec<String> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().is_file())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }

    /// An error that says why this document is not of a format.
    pub fn unfit(&self, format: &'static str, reason: impl Into<String>) -> ReadError {
        ReadError::Unfit { path: self.path.clone(), format, reason: reason.into() }
    }

    /// What is seen first, for a reader of messages: the keys of the first value.
    pub(crate) fn seen(&self) -> String {
        match self.records().first().map(|record| &record.value) {
            None => "a folder without files of a known layout".to_owned(),
            Some(Value::Object(map)) => format!("first keys: {}", keys(map)),
            Some(Value::Array(items)) => match items.first() {
                Some(Value::Object(map)) => format!("a list; first keys: {}", keys(map)),
                Some(other) => format!("a list of {}", type_name(other)),
                None => "an empty list".to_owned(),
            },
            Some(other) => format!("a bare {}", type_name(other)),
        }
    }
}

fn keys(map: &serde_json::Map<String, Value>) -> String {
    const SHOWN: usize = 8;
    if map.is_empty() {
        return "none".to_owned();
    }
    let mut names: Vec<String> = map.keys().take(SHOWN).map(|key| json::excerpt(key, 40)).collect();
    if map.len() > SHOWN {
        names.push("…".to_owned());
    }
    names.join(", ")
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// What a file that is not text seems to be.
///
/// Zero bytes count on the first line only: after a crash the end of a file may be zeros.
pub(crate) fn binary(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 7] = [
        (b"PAR1", "a Parquet file, which builds with the feature `parquet` read"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "a gzip archive inside an archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive inside an archive"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
    ];
    MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, what)| *what).or_else(|| {
        bytes.iter().take(4096).take_while(|byte| **byte != b'\n').any(|byte| *byte == 0).then_some("a binary file")
    })
}
