//! Summaries by language models.
//!
//! A [`Client`] asks one model over one of three HTTP APIs: OpenAI Chat Completions and what copies it, OpenAI Responses,
//! Anthropic Messages. It is usually a cheaper model than the agent's own. [`condense`] drives a condensation to its
//! outcome with any [`AsyncSummarizer`]; dropping the future cancels it, and nothing is recorded. [`Blocking`] is the
//! same for callers without a runtime. A [`Cassette`] keeps what was answered, so that a run can be repeated offline.
//!
//! Keys come from the environment and go into one header. They stand in no error, cassette, record or debug output.
//! What a [`Redact`](condenser::recall::Redact) finds is taken out of everything that is sent.

mod blocking;
mod cassette;
mod client;
mod driver;
mod error;
mod http;
mod key;
mod settings;
mod structured;
mod wire;

pub use blocking::Blocking;
pub use cassette::{Cassette, CassetteError};
pub use client::Client;
pub use driver::{AsyncSummarizer, condense};
pub use error::{CallError, ClientError};
pub use key::Key;
pub use settings::ModelSettings;
pub use structured::{STRUCTURED_TOOL, structured_summary};
pub use wire::{Call, Finish, Reply};
