//! Where results go.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::error::CliError;

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    Table,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
}

/// Standard output, or a file.
///
/// A file is written beside its place and takes it at the end, so that an input of the same name is read before it is
/// replaced, and a failed run replaces nothing. A reader of standard output that has read enough is no error.
pub(crate) struct Output {
    path: Option<PathBuf>,
    writer: Box<dyn Write>,
    pending: Option<TempPath>,
    is_closed: bool,
}

impl Output {
    /// Opens the output before any work is done, so that a wrong path costs no time.
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self, CliError> {
        let Some(file) = path.clone() else {
            let writer = Box::new(BufWriter::new(std::io::stdout()));
            return Ok(Self { path, writer, pending: None, is_closed: false });
        };
        let opened = if std::fs::metadata(&file).is_ok_and(|metadata| !metadata.is_file()) {
            File::create(&file).map(|file| (file, None))
        } else {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::metadata(folder)
                // The library's own message names the temporary file, which means nothing to a user.
                .and_then(|_| new_file().tempfile_in(folder).map_err(|error| error.kind().into()))
                .map(|file| file.into_parts())
                .map(|(file, path)| (file, Some(path)))
        };
        match opened {
            Ok((file, pending)) => Ok(Self { path, writer: Box::new(BufWriter::new(file)), pending, is_closed: false }),
            Err(source) => Err(CliError::Output { path, source }),
        }
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), CliError> {
        self.with(|writer| writer.write_all(text.as_bytes()))
    }

    /// Writes what a function writes.
    pub(crate) fn write(&mut self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), CliError> {
        self.with(write)
    }

    /// Writes a value as one line of JSON.
    pub(crate) fn json_line(&mut self, value: &impl serde::Serialize) -> Result<(), CliError> {
        self.with(|writer| {
            serde_json::to_writer(&mut *writer, value)?;
            writer.write_all(b"\n")
        })
    }

    /// Writes a value as a JSON document.
    pub(crate) fn json(&mut self, value: &impl serde::Serialize) -> Result<(), CliError> {
        self.with(|writer| {
            serde_json::to_writer_pretty(&mut *writer, value)?;
            writer.write_all(b"\n")
        })
    }

    /// Writes records as comma-separated values, with their field names as header.
    pub(crate) fn csv<T: serde::Serialize>(&mut self, rows: &[T]) -> Result<(), CliError> {
        self.with(|writer| {
            let mut csv = csv::Writer::from_writer(writer);
            for row in rows {
                csv.serialize(row).map_err(std::io::Error::other)?;
            }
            csv.flush()
        })
    }

    /// Ends the output; what was buffered is written now.
    pub(crate) fn finish(mut self) -> Result<(), CliError> {
        self.with(|writer| writer.flush())?;
        match (self.pending.take(), &self.path) {
            (Some(pending), Some(path)) => {
                pending.persist(path).map_err(|error| CliError::Output { path: self.path.clone(), source: error.error })
            }
            _ => Ok(()),
        }
    }

    /// Lets a function write.
    pub(crate) fn with(&mut self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), CliError> {
        if self.is_closed {
            return Ok(());
        }
        match write(&mut *self.writer) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe && self.path.is_none() => {
                self.is_closed = true;
                Ok(())
            }
            result => result.map_err(|source| CliError::Output { path: self.path.clone(), source }),
        }
    }
}

/// A file beside the output, with the permissions of any new file: the system takes off what the user's mask forbids.
fn new_file() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder
}
