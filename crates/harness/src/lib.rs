//! Replays recorded agent traces under condensation policies and measures what each one costs and what it loses.
//!
//! Replay holds the recorded actions fixed. It answers what the recorded agent would have been shown at each step and
//! what that input would have cost. It does not estimate solve rates, run lengths or the detours a policy causes.
//!
//! [`Prepared`] holds what is the same for every policy of a trace: its steps, sizes, evidence and re-reads. [`run`]
//! replays it under one policy and gives a [`Row`].

pub mod canaries;
mod checks;
mod choice;
mod controls;
mod effect;
mod evidence;
mod items;
mod oracle;
pub mod pairs;
mod prefix;
pub mod probes;
mod random;
mod replay;
mod rereads;
mod row;
mod saved;
pub mod statistics;
mod table;
mod time;
mod trace;
mod views;

pub use choice::{Choice, Control};
pub use controls::{ForgetAll, RandomForgetting, RandomMasking};
pub use replay::{
    Replay, Seen, Settings, run, run_observed, run_oracle, run_oracle_observed, run_recorded, run_recorded_observed,
};
pub use row::{Basis, Row, Status, Steps, charged};
pub use saved::{
    Manifest, ManifestPolicy, RowKey, RunError, RunWriter, SavedRun, SavedSteps, SavedViews, TraceFacts, UseFact,
};
pub use table::{PolicyMeans, lift, means};
pub use trace::{Prepared, Subject, digest_of, replayed, without_repeats};
pub use views::{Change, RecordFacts, ViewText, Views};
