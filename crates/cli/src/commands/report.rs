//! `condenser report`: a run as one HTML page.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use condenser_harness::{SavedRun, digest_of};
use condenser_report::{CanaryLine, Source};
use condenser_traces::{Candidate, Trace, find, read_path};

use super::compare::read_error;
use crate::error::{CliError, Exit, chain};
use crate::output::Output;
use crate::terminal::note;

#[derive(clap::Args, Debug)]
pub(crate) struct ReportArguments {
    /// A run that `condenser compare --out` wrote.
    run: PathBuf,
    /// Where the run's traces are now, files or folders. Without it, where they were when the run was made.
    traces: Vec<PathBuf>,
    /// The page to write.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// What `condenser canaries --format jsonl` wrote, for the curves of planted values.
    #[arg(long, value_name = "FILE")]
    canaries: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReportArguments) -> Result<Exit, CliError> {
    let run = SavedRun::open(&arguments.run).map_err(read_error)?;
    let canaries = arguments.canaries.as_deref().map_or(Ok(Vec::new()), read_canaries)?;
    let mut output = Output::open(Some(arguments.html.clone()))?;
    let traces = Traces::new(&arguments.traces)?;
    let mut n_missing = 0;
    let mut events = |name: &str| {
        let digest = run.traces.get(name).map(|facts| facts.digest.as_str());
        traces.find(name, digest.unwrap_or_default()).unwrap_or_else(|reason| {
            n_missing += 1;
            if n_missing <= 5 {
                note(&format!("{name}: {reason}; its texts are left out"));
            }
            Source::Missing(reason)
        })
    };
    output.write(|writer| condenser_report::write(&run, &canaries, &mut events, writer))?;
    output.finish()?;
    if n_missing > 5 {
        note(&format!("{} more traces were not to be had", n_missing - 5));
    }
    if run.views.is_empty() && !run.rows.is_empty() {
        note("an earlier version made this run and kept no views; `condenser compare --out` with another folder does");
    }
    Ok(if n_missing > 0 { Exit::Input } else { Exit::Ok })
}

fn read_canaries(path: &Path) -> Result<Vec<CanaryLine>, CliError> {
    let failed = |reason: &dyn std::fmt::Display| CliError::Input(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| failed(&format!("line {}: not a line of canaries: {error}", number + 1)))
    };
    lines.map(line).collect()
}

/// The traces of a run, read again when they are asked for. Only those of the newest file are in memory.
struct Traces {
    /// Other places, by the name of the file.
    elsewhere: HashMap<String, Vec<PathBuf>>,
    newest: RefCell<(PathBuf, Vec<Trace>)>,
}

impl Traces {
    fn new(paths: &[PathBuf]) -> Result<Self, CliError> {
        let mut elsewhere: HashMap<String, Vec<PathBuf>> = HashMap::new();
        for path in paths {
            for Candidate { path, .. } in find(path).map_err(|error| CliError::Input(chain(&error)))? {
                elsewhere.entry(file_name(&path)).or_default().push(path);
            }
        }
        Ok(Self { elsewhere, newest: RefCell::default() })
    }

    /// The events of a trace, or why they are not to be had.
    fn find(&self, name: &str, digest: &str) -> Result<Source, String> {
        // A name is a path, with `#` and a number behind it where a file holds several traces.
        let (path, row) = match name.rsplit_once('#') {
            Some((path, row)) if !Path::new(name).exists() => (Path::new(path), Some(row)),
            _ => (Path::new(name), None),
        };
        let mut reason = "it is not there any more".to_owned();
        let others = self.elsewhere.get(&file_name(path)).into_iter().flatten().map(PathBuf::as_path);
        for path in others.chain(path.exists().then_some(path)) {
            if let Err(error) = self.read(path) {
                reason = format!("it cannot be read: {error}");
                continue;
            }
            let newest = self.newest.borrow();
            let is_named = |trace: &&Trace| match (row, trace.name.rsplit_once('#')) {
                (Some(row), Some((_, number))) => row == number,
                (None, _) => newest.1.len() == 1 || trace.name == name,
                _ => false,
            };
            match newest.1.iter().find(is_named) {
                Some(trace) if digest_of(&trace.events) == digest => return Ok(Source::Found(trace.events.clone())),
                _ => reason = "it has changed since the run was made".to_owned(),
            }
        }
        Err(reason)
    }

    fn read(&self, path: &Path) -> Result<(), String> {
        if self.newest.borrow().0 != path {
            let traces = read_path(path, None).map_err(|error| chain(&error))?;
            *self.newest.borrow_mut() = (path.to_owned(), traces);
        }
        Ok(())
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
