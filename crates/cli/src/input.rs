//! Traces from the paths that a user named.

use std::path::{Path, PathBuf};

use condenser_traces::{Candidate, Trace, find, read_path};

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
    /// Trace files, trace folders, or folders of traces.
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
        for path in &self.paths {
            match find(path) {
                Ok(found) => candidates.extend(found),
                Err(error) => {
                    note(&format!("error: {}", chain(&error)));
                    met.unreadable = true;
                }
            }
        }
        Ok((candidates, met))
    }

    /// Reads all traces of a candidate, and reports what was odd on standard error.
    pub(crate) fn read(&self, candidate: &Candidate) -> (Vec<Trace>, Met) {
        match read_path(&candidate.path, self.input_format.as_deref()) {
            Ok(traces) => {
                let diagnostics = report(&candidate.path, &traces);
                (traces, Met { unreadable: false, diagnostics })
            }
            Err(error) if candidate.named => {
                note(&format!("error: {}", chain(&error)));
                (Vec::new(), Met { unreadable: true, diagnostics: 0 })
            }
            Err(error) => {
                note(&format!("skipped: {}", chain(&error)));
                (Vec::new(), Met { unreadable: false, diagnostics: 1 })
            }
        }
    }
}

fn report(path: &Path, traces: &[Trace]) -> usize {
    let diagnostics: Vec<_> = traces.iter().flat_map(|trace| &trace.diagnostics).collect();
    for diagnostic in diagnostics.iter().take(SHOWN_DIAGNOSTICS) {
        note(&format!("{}: {diagnostic}", path.display()));
    }
    if diagnostics.len() > SHOWN_DIAGNOSTICS {
        note(&format!("{}: {} more diagnostics", path.display(), diagnostics.len() - SHOWN_DIAGNOSTICS));
    }
    diagnostics.len()
}
