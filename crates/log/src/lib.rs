//! The event log of condenser: sessions of events in one SQLite file, appended and never changed.
//!
//! A batch of events is one transaction. Events form a tree per session; the path from its root to the *head*
//! is the active branch. What a later view forgets stays here and is read back by id. There is no async, no
//! thread and no cache of events: a [`Log`] is one SQLite connection, and every process opens its own.
//!
//! ```
//! use condenser::event::{Event, EventKind, Message, Role, Source};
//! use condenser_log::{Log, NewSession, RuleSet};
//!
//! let log = Log::open_in_memory()?;
//! let session = log.create_session(NewSession {
//!     name: "demo".to_owned(),
//!     rules: RuleSet { name: "sound".to_owned(), version: 1 },
//!     meta: Default::default(),
//! })?;
//! let message = |text| EventKind::Message(Message::text(Role::User, text));
//! let first = Event::new(log.new_event_id()?, Source::User, message("hello"));
//! let second = Event::new(log.new_event_id()?, Source::User, message("again"));
//! log.append(&session, &[first.clone(), second])?;
//!
//! log.set_head(&session, Some(&first.id))?;
//! assert_eq!(log.branch(&session, None)?.count(), 1);
//! assert_eq!(log.events(&session)?.count(), 2);
//! assert!(log.verify(&session)?.problems.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What is promised, and the file's tables, are described in `docs/LOG.md`. In short:
//!
//! - An append is whole or absent, also when the process or the machine stops in the middle, and durable when
//!   it returns ([`Sync`]). Writers queue: their transactions take the write lock at their beginning.
//! - Readers hold no transaction between two calls of `next`, so the write-ahead log does not grow behind them.
//! - A new file can be read and written by its owner only.
//! - Nothing in a file makes a call panic; a damaged one gives [`StorageError::Corrupt`] or [`ReadError::Damaged`].

mod append;
mod chain;
mod condense;
mod counts;
mod erase;
mod error;
mod header;
mod id;
mod log;
mod read;
mod recall;
mod schema;
mod search;
mod segment;
mod stats;
mod tool;
mod transfer;
mod verify;
mod view;

pub use append::{Appended, MAX_EVENT_BYTES, MAX_EVENT_DEPTH};
pub use erase::ERASED;
pub use error::{
    AppendError, BackupError, Cause, CondensationError, ExportError, ImportError, MarkError, OpenError, ReadError,
    RecallError, SearchError, SessionError, Stale, StorageError, ViewError,
};
pub use log::{Access, Journal, Log, NewSession, Options, RuleSet, SessionId, SessionInfo, Sync};
pub use read::{Branch, Events, Headers, StoredHeader};
pub use recall::SessionRecall;
pub use search::{Hit, Hits, MAX_HITS, Query};
pub use stats::Stats;
pub use tool::{RECALL_TOOL, recall_tool};
pub use transfer::{Import, is_export};
pub use verify::{Fault, MAX_PROBLEMS, Problem, Verification};
