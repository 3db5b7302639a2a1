//! What can go wrong.

use std::time::Duration;

use condenser::{Rejection, SummarizeError, Tokens};

use crate::cassette::CassetteError;

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The base URL cannot be used.
    #[error("the base URL {url:?} cannot be used: {reason}")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The environment has no key.
    #[error("the environment variable {0} holds no key; set it, or set `key_env = \"\"` for a server that takes none")]
    NoKey(String),
    /// The key is nothing that a header can hold.
    #[error("the key holds characters that no header can")]
    BadKey,
    /// A number is out of its range.
    #[error("`{name}` is {value}; it has to be more than 0 and at most {most}")]
    Number {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The largest value.
        most: f64,
    },
    /// The HTTP client or its runtime cannot be set up.
    #[error("cannot set up HTTP: {0}")]
    Setup(String),
}

/// Why a call gave no answer. What a server said is cut to 200 characters, without the key and without secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request is longer than the model takes.
    #[error("the request is too long for the model{}: {said}", limit.map_or(String::new(), |limit| format!(" ({limit} tokens are the most)")))]
    TooLong {
        /// The most tokens, where the server named it.
        limit: Option<Tokens>,
        /// What the server said.
        said: String,
    },
    /// The server cannot answer now.
    #[error("the server answered {status}, after {tries} tries: {said}")]
    Busy {
        /// The HTTP status.
        status: u16,
        /// How long it wants to be left alone, where it said so.
        retry_after: Option<Duration>,
        /// How often it was asked.
        tries: u32,
        /// What the server said.
        said: String,
    },
    /// The server does not answer this request.
    #[error("the server answered {status}: {said}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What the server said.
        said: String,
    },
    /// No answer came in time.
    #[error("no answer came within {} seconds", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The connection failed.
    #[error("the connection failed, after {tries} tries: {reason}")]
    Connection {
        /// How often it was tried.
        tries: u32,
        /// Why.
        reason: String,
    },
    /// The answer is not what the API promises.
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
    /// The cassette does not have the answer, or cannot be written.
    #[error(transparent)]
    Cassette(#[from] CassetteError),
}

impl CallError {
    /// What [`State::rejected`](condenser::State::rejected) takes, where the request was too long.
    pub fn rejection(&self) -> Option<Rejection> {
        match self {
            Self::TooLong { limit, .. } => Some(Rejection { limit: *limit }),
            _ => None,
        }
    }

    /// Whether the same call may go better a little later.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Self::Busy { .. } | Self::Connection { .. })
    }

    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The same error after so many tries.
    pub(crate) fn after(mut self, n: u32) -> Self {
        if let Self::Busy { tries, .. } | Self::Connection { tries, .. } = &mut self {
            *tries = n;
        }
        self
    }
}

impl From<CallError> for SummarizeError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::TimedOut(_) => Self::TimedOut,
            other => Self::Failed(other.to_string()),
        }
    }
}
