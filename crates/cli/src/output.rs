//! Where results go.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

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
pub(crate) struct Output {
    path: Option<PathBuf>,
    writer: Box<dyn Write>,
}

impl Output {
    /// Opens the output before any work is done, so that a wrong path costs no time.
    pub(crate) fn open(path: Option<PathBuf>) -> Result<Self, CliError> {
        let writer: Box<dyn Write> = match &path {
            None => Box::new(BufWriter::new(std::io::stdout())),
            Some(file) => match File::create(file) {
                Ok(file) => Box::new(BufWriter::new(file)),
                Err(source) => return Err(CliError::Output { path, source }),
            },
        };
        Ok(Self { path, writer })
    }

    /// Writes a text.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), CliError> {
        self.with(|writer| writer.write_all(text.as_bytes()))
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
        self.with(|writer| writer.flush())
    }

    fn with(&mut self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), CliError> {
        write(&mut *self.writer).map_err(|source| CliError::Output { path: self.path.clone(), source })
    }
}
