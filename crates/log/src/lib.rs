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
//! # The file
//!
//! `application_id` is `0x434f4e44` ("COND"), `user_version` the format's major version, 1. A build reads its
//! own major and refuses a newer one; the minor version counts additions that an older build may ignore, and
//! no build lowers it. All tables are `STRICT`. A *position* counts the events of a session from 0 in the
//! order they were appended, on whatever branch; a *row* is `session << 32 | position`, so that a session's
//! rows lie together and reading it is one range scan.
//!
//! | table | column | meaning |
//! | --- | --- | --- |
//! | `format` | | one row |
//! | | `minor` | minor version of the format |
//! | | `creator` | crate and version that created the file |
//! | `session` | `session` | number of the session, from 1; internal |
//! | | `id` | its public id, a ULID |
//! | | `name` | a name for people, not unique |
//! | | `created` | milliseconds since 1970 |
//! | | `rules`, `rules_version` | the rule set that reads it, and its version |
//! | | `meta` | what the host keeps with it, a JSON object |
//! | | `events`, `branches` | how many it has; the next position and the next branch number |
//! | | `head` | position of the event that the next one follows; null at the very beginning |
//! | `branch` | `session`, `branch` | a run of events each of which follows the one before; numbered from 0 per session |
//! | | `fork` | position of the event that its first one follows; null where that is a root |
//! | | `first`, `tip` | positions of its first and its newest event |
//! | `name` | `name`, `text` | every id of an event, call or response once, and its number |
//! | `event` | `row` | the header of an event |
//! | | `session`, `branch` | where it belongs |
//! | | `parent` | position of the event it follows; null for a root |
//! | | `id` | its id, a `name`; unique in the session |
//! | | `kind` | 1 system prompt, 2 message, 3 action, 4 observation, 5 condensation, 6 condensation request, 7 condensation failed, 8 undo, 9 pin, 10 unpin, 11 unknown |
//! | | `flags` | 1: an action with thinking blocks; 2: an interim observation |
//! | | `call`, `response` | the call it makes or answers, the model response it belongs to, each a `name` or null |
//! | `body` | `row` | the rest of an event |
//! | | `hash` | BLAKE3 of the parent's hash followed by the BLAKE3 digest of `json`; a root follows the BLAKE3 of `condenser-log 1 session ` and the session's id |
//! | | `json` | the event's JSON, exactly as appended |
//!
//! Header columns repeat what the body says, so that a view is built without reading bodies;
//! [`Log::verify`] compares the two. Undo, pins and condensations are ordinary events.
//!
//! # Promises
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
