//! The state that a policy written in Python is shown.
//!
//! The state belongs to the condenser and lives only while the policy is asked. Python holds a number; the state itself
//! is found on the thread that asks, under that number, and nowhere else.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyList;
use scoped_tls_hkt::scoped_thread_local;

use crate::error::CondenserError;
use crate::to_python;
use crate::view::{Entry, Source, items};

/// A state and its number.
#[derive(Clone, Copy)]
struct Numbered<'a> {
    number: u64,
    state: &'a condenser::State<'a>,
}

scoped_thread_local!(static ASKED: for<'a> Numbered<'a>);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Calls `ask` with a handle on the state.
pub(crate) fn asking<T>(state: &condenser::State<'_>, ask: impl FnOnce(State) -> T) -> T {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    ASKED.set(Numbered { number, state }, || ask(State(number)))
}

pub(crate) fn with_state<T>(number: u64, read: impl FnOnce(&condenser::State<'_>) -> T) -> PyResult<T> {
    let gone = || {
        CondenserError::new_err("this state is gone: it can be read only while the policy is asked, and on its thread")
    };
    if !ASKED.is_set() {
        return Err(gone());
    }
    ASKED.with(|asked| if asked.number == number { Ok(read(asked.state)) } else { Err(gone()) })
}

/// All that a policy may look at: a sequence of the view's entries, with sizes and budgets.
///
/// It can be read only while the policy is asked.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct State(u64);

impl State {
    fn with<T>(&self, read: impl FnOnce(&condenser::State<'_>) -> T) -> PyResult<T> {
        with_state(self.0, read)
    }
}

#[pymethods]
impl State {
    /// The size of the complete request: as the provider reported it, else as counted.
    #[getter]
    fn tokens(&self) -> PyResult<u64> {
        self.with(|state| state.tokens().0)
    }

    /// The size of each entry, by position.
    #[getter]
    fn entry_tokens(&self) -> PyResult<Vec<u64>> {
        self.with(|state| state.entry_tokens().iter().map(|tokens| tokens.0).collect())
    }

    /// The budgets in force: `window`, `reserve`, `request`, `trigger`, `retained`, `summary_input` and
    /// `summary_output`, each with `tokens`, `events` and `origin`.
    #[getter]
    fn budgets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.with(|state| state.budgets)?)
    }

    /// The size above which policies act; `None` where no window is known.
    #[getter]
    fn trigger(&self) -> PyResult<Option<u64>> {
        self.with(|state| state.budgets.trigger.tokens.map(|tokens| tokens.0))
    }

    /// What a condensation should leave; `None` where no window is known.
    #[getter]
    fn retained(&self) -> PyResult<Option<u64>> {
        self.with(|state| state.budgets.retained.tokens.map(|tokens| tokens.0))
    }

    /// Whether policies write the addresses of what they remove, `[event ID]`.
    #[getter]
    fn recall(&self) -> PyResult<bool> {
        self.with(|state| state.recall)
    }

    /// The ids of the entries, oldest first.
    #[getter]
    fn ids(&self) -> PyResult<Vec<String>> {
        self.with(|state| state.view.ids().map(ToString::to_string).collect())
    }

    /// Whether somebody asked for a condensation and none has followed.
    #[getter]
    fn unhandled_condensation_request(&self) -> PyResult<bool> {
        self.with(|state| state.view.has_unhandled_request())
    }

    /// The positions before which the view may be cut.
    #[getter]
    fn manipulation_indices(&self) -> PyResult<Vec<usize>> {
        self.with(|state| state.view.manipulation_indices().collect())
    }

    /// The smallest manipulation index at or above a position.
    fn next_index(&self, position: usize) -> PyResult<Option<usize>> {
        self.with(|state| state.view.next_index(position))
    }

    /// The largest manipulation index at or below a position.
    fn previous_index(&self, position: usize) -> PyResult<Option<usize>> {
        self.with(|state| state.view.previous_index(position))
    }

    fn __len__(&self) -> PyResult<usize> {
        self.with(|state| state.view.len())
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let entry = |index| Entry { source: Source::State(self.0), index };
        items(py, self.__len__()?, index, entry)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let entries = (0..self.__len__()?).map(|index| Entry { source: Source::State(self.0), index });
        Ok(PyList::new(py, entries.collect::<Vec<_>>())?.try_iter()?.into_any())
    }

    fn __repr__(&self) -> String {
        match self.__len__() {
            Ok(n) => format!("State({n} entries)"),
            Err(_) => "State(gone)".to_owned(),
        }
    }
}
