//! One module per command.

pub(crate) mod canaries;
pub(crate) mod compare;
pub(crate) mod condense;
pub(crate) mod convert;
pub(crate) mod formats;
#[cfg(feature = "inspect")]
pub(crate) mod inspect;
pub(crate) mod log;
pub(crate) mod merge;
pub(crate) mod pairs;
pub(crate) mod policies;
pub(crate) mod probe;
pub(crate) mod profiles;
pub(crate) mod report;
pub(crate) mod reprice;
pub(crate) mod score;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod traces;
pub(crate) mod view;
