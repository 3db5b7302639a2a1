//! What can go wrong, as exceptions.

use std::error::Error;

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(condenser, CondenserError, PyException, "Whatever goes wrong in condenser.");
create_exception!(
    condenser,
    InvalidInput,
    CondenserError,
    "An argument, an event or a setting is not as it has to be."
);
create_exception!(condenser, ReadError, CondenserError, "A trace cannot be read or written.");
create_exception!(condenser, LogError, CondenserError, "The event log refuses, or cannot be read or written.");
create_exception!(condenser, StaleError, LogError, "The log has moved on: a condensation has to be decided anew.");
create_exception!(
    condenser,
    SummarizerError,
    CondenserError,
    "Raised by a summarizer: no summary this time; the policy is asked again."
);
create_exception!(condenser, NoPlan, CondenserError, "Raised by a policy: nothing can be done.");

/// An error with its causes, each said once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        source = cause.source();
    }
    message
}

pub(crate) fn invalid(error: impl Error) -> PyErr {
    InvalidInput::new_err(chain(&error))
}

pub(crate) fn unreadable(error: impl Error) -> PyErr {
    ReadError::new_err(chain(&error))
}

pub(crate) fn log_error(error: impl Error) -> PyErr {
    LogError::new_err(chain(&error))
}
