//! Traces from the paths that a user named.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use condenser_traces::{Candidate, Diagnostic, Item, ReadError, Reader, Trace, find};

use crate::error::{CliError, Exit, chain};
use crate::terminal::note;

/// Diagnostics shown per file before the rest is only counted.
const SHOWN_DIAGNOSTICS: usize = 5;

/// What reading has met so far, besides traces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Met {
    /// A named input could not be read.
    pub(crate) unreadable: bool,
    /// Something was odd and was reported.
    pub(crate) diagnostics: usize,
}

impl Met {
    /// The exit code of a command that did everything else.
    pub(crate) fn exit(self, strict: bool) -> Exit {
        if self.unreadable {
            Exit::Input
        } else if strict && self.diagnostics > 0 {
            Exit::Diagnostics
        } else {
            Exit::Ok
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.unreadable |= other.unreadable;
        self.diagnostics += other.diagnostics;
    }
}

/// Where traces come from.
#[derive(clap::Args, Debug)]
pub(crate) struct InputArguments {
    /// Trace files, trace folders, folders of traces, patterns such as 'runs/**/*.jsonl', or - for standard input.
    ///
    /// Files may be gzip or zstd archives.
    #[arg(required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Read every file as this format instead of recognizing it (see `condenser formats`).
    #[arg(long, value_name = "NAME")]
    pub(crate) input_format: Option<String>,
    /// Exit with 4 where anything in the input was odd.
    #[arg(long)]
    pub(crate) strict: bool,
}

impl InputArguments {
    /// Expands the named paths. What cannot be found is reported, and the others go on.
    pub(crate) fn candidates(&self) -> Result<(Vec<Candidate>, Met), CliError> {
        if let Some(name) = &self.input_format {
            condenser_traces::format(name).map_err(|error| CliError::Usage(error.to_string()))?;
        }
        let mut met = Met::default();
        let mut candidates = Vec::new();
        let mut seen = HashSet::new();
        for path in &self.paths {
            let found = match path.as_os_str() == "-" {
                true => Ok(vec![Candidate { path: path.clone(), named: true }]),
                false => find(path),
            };
            match found {
                // A file that is named twice, or found again in a folder, is read once.
                Ok(found) => candidates.extend(found.into_iter().filter(|candidate| {
                    let real = std::fs::canonicalize(&candidate.path);
                    seen.insert(real.unwrap_or_else(|_| candidate.path.clone()))
                })),
                Err(error) => {
                    note(&format!("error: {}", chain(&error)));
                    met.unreadable = true;
                }
            }
        }
        Ok((candidates, met))
    }

    /// Opens a candidate. What cannot be read is reported.
    pub(crate) fn open(&self, candidate: &Candidate) -> Result<Reader, Met> {
        let format = self.input_format.as_deref();
        let opened = match candidate.path.as_os_str() == "-" {
            true => Reader::of_stream(&candidate.path, std::io::stdin().lock(), format),
            false => Reader::open(&candidate.path, format),
        };
        opened.map_err(|error| {
            let mut notes = Notes::new(&candidate.path);
            notes.fail(&error, candidate.named);
            notes.finish()
        })
    }

    /// Takes the traces of a candidate one by one, and reports what was odd on standard error. Only one trace is in
    /// memory, and its number of records is not known.
    pub(crate) fn each(&self, candidate: &Candidate, take: &mut dyn FnMut(Trace)) -> Met {
        let mut notes = Notes::new(&candidate.path);
        let reader = match self.open(candidate) {
            Ok(reader) => reader,
            Err(met) => return met,
        };
        let mut newest: Option<Trace> = None;
        for item in reader {
            match item {
                Ok(Item::Begin(trace)) => newest.replace(*trace).into_iter().for_each(&mut *take),
                Ok(Item::Event(event)) => {
                    if let Some(trace) = &mut newest {
                        trace.events.push(event);
                    }
                }
                Ok(Item::Diagnostic(odd) | Item::FileDiagnostic(odd)) => notes.add(&odd),
                Ok(_) => {}
                Err(error) => {
                    // What could not be read to its end is no trace.
                    newest = None;
                    notes.fail(&error, candidate.named);
                }
            }
        }
        newest.into_iter().for_each(take);
        notes.finish()
    }

    /// Reads all traces of a candidate, and reports what was odd on standard error.
    pub(crate) fn read(&self, candidate: &Candidate) -> (Vec<Trace>, Met) {
        let mut notes = Notes::new(&candidate.path);
        let traces = match self.open(candidate).map(Reader::into_traces) {
            Ok(Ok(traces)) => traces,
            Ok(Err(error)) => {
                notes.fail(&error, candidate.named);
                Vec::new()
            }
            Err(met) => return (Vec::new(), met),
        };
        traces.iter().flat_map(|trace| &trace.diagnostics).for_each(|diagnostic| notes.add(diagnostic));
        (traces, notes.finish())
    }
}

/// What was odd in a file: the first few are said, the others counted.
pub(crate) struct Notes<'p> {
    path: &'p Path,
    met: Met,
}

impl<'p> Notes<'p> {
    pub(crate) fn new(path: &'p Path) -> Self {
        Self { path, met: Met::default() }
    }

    pub(crate) fn add(&mut self, diagnostic: &Diagnostic) {
        self.met.diagnostics += 1;
        if self.met.diagnostics <= SHOWN_DIAGNOSTICS {
            note(&format!("{}: {diagnostic}", self.path.display()));
        }
    }

    /// The file cannot be read on. Where the user did not name it, that is only odd.
    pub(crate) fn fail(&mut self, error: &ReadError, is_named: bool) {
        if is_named {
            note(&format!("error: {}", chain(error)));
            self.met.unreadable = true;
        } else {
            note(&format!("skipped: {}", chain(error)));
            self.met.diagnostics += 1;
        }
    }

    /// Says how many there were.
    pub(crate) fn finish(self) -> Met {
        if self.met.diagnostics > SHOWN_DIAGNOSTICS {
            note(&format!("{}: {} more diagnostics", self.path.display(), self.met.diagnostics - SHOWN_DIAGNOSTICS));
        }
        self.met
    }
}
