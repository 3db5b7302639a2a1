//! The Python module `condenser._native`: conversions between Python and the crates of the workspace, and no logic of
//! its own.

mod compare;
mod condenser;
mod error;
mod event;
mod log;
mod policy;
mod state;
mod tokens;
mod trace;
mod view;

use pyo3::prelude::*;

/// The native half of the Python module `condenser`.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::compare::{compare, means};
    #[pymodule_export]
    use crate::condenser::{Condenser, NeedSummary, Outcome, ShadowReport};
    #[pymodule_export]
    use crate::error::{CondenserError, InvalidInput, LogError, NoPlan, ReadError, StaleError, SummarizerError};
    #[pymodule_export]
    use crate::event::{Condensation, Event};
    #[pymodule_export]
    use crate::log::Log;
    #[pymodule_export]
    use crate::policy::{Plan, Policy, Summary, SummaryRequest, policies};
    #[pymodule_export]
    use crate::state::State;
    #[pymodule_export]
    use crate::tokens::TokenCounter;
    #[pymodule_export]
    use crate::trace::{Trace, find_traces, read_traces, write_traces};
    #[pymodule_export]
    use crate::view::{Entry, View};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// A value as Python data.
fn to_python<'py>(py: Python<'py>, value: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    Ok(pythonize::pythonize(py, value)?)
}

/// A name as the crates' own JSON writes it.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
