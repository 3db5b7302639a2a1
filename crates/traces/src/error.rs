//! Why a path gave no traces.

use std::io;
use std::path::PathBuf;

/// Why a path gave no traces.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Nothing is at this path.
    #[error("{}: no such file or folder", path.display())]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{}: cannot be read", path.display())]
    Io {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A pipe, a device or a socket: reading it could wait for ever.
    #[error("{}: neither a file nor a folder; save it as a file first", path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// The file has no content, or only white space.
    #[error("{}: the file is empty", path.display())]
    Empty {
        /// The path as given.
        path: PathBuf,
    },
    /// The file is not text.
    #[error("{}: {what}, not JSON text; unpack or convert it first", path.display())]
    Binary {
        /// The path as given.
        path: PathBuf,
        /// What it seems to be.
        what: &'static str,
    },
    /// The file is larger than this build reads at once.
    #[error("{}: {size} bytes are more than the {limit} this build reads at once; split it by line", path.display())]
    TooLarge {
        /// The path as given.
        path: PathBuf,
        /// Size of the file, in bytes.
        size: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The file holds no JSON value that can be decoded.
    #[error("{}: {place}: {reason}", path.display())]
    Malformed {
        /// The path as given.
        path: PathBuf,
        /// Where decoding stopped.
        place: String,
        /// Why it stopped.
        reason: String,
    },
    /// No reader knows the file.
    #[error("{}: not a known trace format ({seen}); `condenser formats` lists the known ones", path.display())]
    Unrecognized {
        /// The path as given.
        path: PathBuf,
        /// What was seen first, usually the first keys.
        seen: String,
    },
    /// The file is not what the asked-for format requires.
    #[error("{}: not {format}: {reason}", path.display())]
    Unfit {
        /// The path as given.
        path: PathBuf,
        /// The format that was tried.
        format: &'static str,
        /// What is missing or wrong.
        reason: String,
    },
    /// No format has this name.
    #[error("no trace format is called {asked:?}; {hint}")]
    UnknownFormat {
        /// The name as given.
        asked: String,
        /// The nearest name, or all of them.
        hint: String,
    },
    /// A folder that holds nothing to read.
    #[error("{}: the folder holds no files to read", path.display())]
    NoFiles {
        /// The path as given.
        path: PathBuf,
    },
}
