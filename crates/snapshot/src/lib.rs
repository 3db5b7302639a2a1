//! Pins what a condensation policy makes of recorded agent traces, for tests and CI.
//!
//! A snapshot is text that says for each step before which the policy acted why it did, what left the view, what was
//! rewritten and what came instead, and then what the model was shown at the last step. It reads the same on every
//! machine: ids are numbered, times and home folders replaced, control characters escaped. It is bounded: what does
//! not fit is counted, and named by a digest, so that a change of it is still a change of the snapshot.
//!
//! With `insta`, a test that pins the policy of a program is one line:
//!
//! ```no_run
//! # fn main() -> Result<(), condenser_snapshot::SnapshotError> {
//! # let policy = condenser_policies::RecentEvents::default();
//! insta::assert_snapshot!(condenser_snapshot::snapshot("tests/traces/session.jsonl", &policy, 32_000)?);
//! # Ok(())
//! # }
//! ```
//!
//! [`Setup`] says more than the window. [`Difference`] compares a snapshot with a file.

mod difference;
mod pages;
mod paper;
mod recorded;

use std::path::{Path, PathBuf};

use condenser::profile::ModelProfile;
use condenser::render::Mode;
use condenser::{Policy, Rules, Summarizer, TokenCounter, Tokens};
use condenser_harness::{Choice, Prepared, Replay, Seen, Settings, Subject, run_observed};
use condenser_models::Estimate;
use condenser_policies::Extractive;
use condenser_traces::{ReadError, Trace, read_path};

use crate::pages::Pages;

pub use difference::{Difference, MAX_BYTES};
pub use pages::{change, push};
pub use paper::printable;
pub use recorded::Against;

/// Characters of each text that are shown where nothing else is said.
pub const PREFIX: usize = 120;

static EXTRACTIVE: Extractive = Extractive { max_tokens: Tokens(1000) };

/// A snapshot shows no prices.
static NO_PRICES: ModelProfile = ModelProfile {
    name: String::new(),
    context_window: None,
    max_output: None,
    tokenizer: None,
    prices: None,
    cache: None,
};

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A snapshot is of one trace.
    #[error("{path}: the file holds {n} traces, and a snapshot is of one; `condenser snapshot` takes all of them", path = path.display())]
    SeveralTraces {
        /// The file.
        path: PathBuf,
        /// How many it holds.
        n: usize,
    },
    /// The trace itself recorded no condensation.
    #[error("{path}: the trace recorded no condensation", path = path.display())]
    NothingRecorded {
        /// The file.
        path: PathBuf,
    },
}

/// What a policy makes of the trace at `path`, in a context window of so many tokens: see [`Setup::of_policy`].
///
/// # Errors
///
/// [`SnapshotError`], where the path is not one trace.
pub fn snapshot(path: impl AsRef<Path>, policy: &dyn Policy, window: u64) -> Result<String, SnapshotError> {
    Ok(Setup::new(Tokens(window)).of_policy(&read(path.as_ref())?, policy))
}

/// Both sides of each condensation that the trace at `path` itself recorded: see [`Setup::of_recorded`].
///
/// # Errors
///
/// [`SnapshotError`], where the path is not one trace, or the trace recorded no condensation.
pub fn snapshot_recorded(path: impl AsRef<Path>) -> Result<String, SnapshotError> {
    let path = path.as_ref();
    let text = Setup::new(Tokens::ZERO).of_recorded(&read(path)?);
    text.ok_or_else(|| SnapshotError::NothingRecorded { path: path.to_owned() })
}

fn read(path: &Path) -> Result<Trace, SnapshotError> {
    let mut traces = read_path(path, None)?;
    match (traces.pop(), traces.len()) {
        (Some(trace), 0) => Ok(trace),
        (None, n) => Err(SnapshotError::SeveralTraces { path: path.to_owned(), n }),
        (Some(_), n) => Err(SnapshotError::SeveralTraces { path: path.to_owned(), n: n + 1 }),
    }
}

/// What a trace is replayed under, and how much of its texts is shown.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The model's context window.
    pub window: Tokens,
    /// Room kept for the answer; half the window at most.
    pub reserve: Tokens,
    /// What counts tokens.
    pub counter: &'a dyn TokenCounter,
    /// Who writes summaries. Snapshots of one that answers differently each time are worth nothing.
    pub summarizer: &'a dyn Summarizer,
    /// Whether policies write the addresses of what they remove.
    pub recall: bool,
    /// Where views may be cut.
    pub rules: Rules,
    /// How much of each text is shown.
    pub mode: Mode,
}

impl std::fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("settings", &self.settings()).field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Setup<'static> {
    /// What `condenser snapshot` does where it is told nothing but a window: 4,000 tokens are kept for the answer,
    /// `o200k` counts, [`Extractive`] summarizes, and [`PREFIX`] characters of each text are shown.
    pub fn new(window: Tokens) -> Self {
        Self {
            window,
            reserve: Tokens(4000),
            counter: condenser_models::tokenizer("o200k").unwrap_or(&Estimate),
            summarizer: &EXTRACTIVE,
            recall: true,
            rules: Rules::Sound,
            mode: Mode::Prefix(PREFIX),
        }
    }
}

impl<'a> Setup<'a> {
    /// The settings of a replay, without prices.
    pub fn settings(&self) -> Settings<'a> {
        Settings {
            window: Some(self.window),
            reserve: self.reserve,
            profile: &NO_PRICES,
            summarizer: self.summarizer,
            seed: 0,
            recall: self.recall,
        }
    }

    /// A trace made ready to be replayed under this setup.
    pub fn prepare<'t>(&self, trace: &'t Trace) -> Prepared<'t>
    where
        'a: 't,
    {
        let subject =
            Subject { trace: &trace.name, format: trace.format, task: trace.task.as_deref(), events: &trace.events };
        Prepared::new(subject, self.counter, self.rules)
    }

    /// What a policy makes of a trace: each change of the view with its reasons, and the view of the last step.
    pub fn of_policy(&self, trace: &Trace, policy: &dyn Policy) -> String {
        self.pages(trace, policy.name(), |prepared, see| run_observed(prepared, policy, &self.settings(), see))
    }

    /// The same of a policy or control. The control `oracle` takes its records back, and has no changes to show.
    pub fn of_choice(&self, trace: &Trace, choice: &Choice) -> String {
        self.pages(trace, choice.name(), |prepared, see| choice.replay(prepared, &self.settings(), None, Some(see)))
    }

    fn pages(
        &self,
        trace: &Trace,
        name: &str,
        replay: impl FnOnce(&Prepared<'_>, &mut dyn FnMut(&Seen<'_>)) -> Replay,
    ) -> String {
        let prepared = self.prepare(trace);
        let mut pages = Pages::new(self, name, prepared.n_steps());
        replay(&prepared, &mut |seen| pages.see(seen));
        pages.finish()
    }

    /// The view before and after each condensation that the trace itself recorded; `None` where it recorded none.
    pub fn of_recorded(&self, trace: &Trace) -> Option<String> {
        recorded::of_recorded(self, &trace.events)
    }

    /// Where a policy decides differently than the trace recorded: see [`Against`].
    pub fn against(&self, trace: &Trace, policy: &dyn Policy) -> Against {
        recorded::against(self, &trace.events, policy)
    }

    fn line(&self) -> String {
        format!(
            "window {}, reserve {}, tokens {}, summaries {}, recall {}, rules {}, content {}",
            self.window.0,
            self.reserve.0,
            paper::short(self.counter.name()),
            paper::short(self.summarizer.name()),
            if self.recall { "on" } else { "off" },
            if self.rules == Rules::Sound { "sound" } else { "openhands" },
            self.mode,
        )
    }
}
