//! SQLite event log.
mod append;
mod chain;
mod error;
mod header;
mod id;
mod log;
mod read;
mod recall;
mod schema;
mod verify;

pub use append::{Appended, MAX_EVENT_BYTES, MAX_EVENT_DEPTH};
pub use error::{AppendError, Cause, OpenError, ReadError, SessionError, StorageError};
pub use log::{Access, Journal, Log, NewSession, Options, RuleSet, SessionId, SessionInfo, Sync};
pub use read::{Branch, Events, Headers, StoredHeader};
pub use recall::SessionRecall;
pub use verify::{Fault, MAX_PROBLEMS, Problem, Verification};
