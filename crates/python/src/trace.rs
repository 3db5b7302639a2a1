//! Recorded traces.

use std::path::PathBuf;
use std::sync::Arc;

use condenser_traces::Reader;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::error::{InvalidInput, invalid, unreadable};
use crate::event::{Event, Kept};

/// One recorded session, as events.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct Trace(pub(crate) Arc<condenser_traces::Trace>);

/// The name of a format that is known, since traces carry it as such.
fn known_format(name: &str) -> PyResult<&'static str> {
    if name == EVENTS {
        return Ok(EVENTS);
    }
    condenser_traces::format(name).map(|format| format.name).map_err(invalid)
}

/// The format of a trace that was made from events.
const EVENTS: &str = "events";

#[pymethods]
impl Trace {
    #[new]
    #[pyo3(signature = (events, *, name = "trace", format = "events", task = None, session = None))]
    fn py_new(
        events: Vec<Bound<'_, Event>>,
        name: &str,
        format: &str,
        task: Option<String>,
        session: Option<String>,
    ) -> PyResult<Self> {
        let events: Vec<_> = events.iter().map(|event| event.get().get().clone()).collect();
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = events.iter().find(|event| !seen.insert(&event.id)) {
            return Err(InvalidInput::new_err(format!("two events have the id {:?}", twice.id.as_str())));
        }
        Ok(Self(Arc::new(condenser_traces::Trace {
            name: name.to_owned(),
            format: known_format(format)?,
            task,
            session,
            parent: None,
            records: events.len() as u64,
            events,
            diagnostics: Vec::new(),
        })))
    }

    /// The path as given, plus `#<row>` where a file holds several traces.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The format's name.
    #[getter]
    fn format(&self) -> &str {
        self.0.format
    }

    /// The task it belongs to, where the source names one.
    #[getter]
    fn task(&self) -> Option<&str> {
        self.0.task.as_deref()
    }

    /// The id that the source gives the session.
    #[getter]
    fn session(&self) -> Option<&str> {
        self.0.session.as_deref()
    }

    /// Foreign records of the whole file.
    #[getter]
    fn records(&self) -> u64 {
        self.0.records
    }

    /// What was odd, each with its place.
    #[getter]
    fn diagnostics(&self) -> Vec<String> {
        self.0.diagnostics.iter().map(ToString::to_string).collect()
    }

    /// The events of the active branch, in order.
    #[getter]
    fn events(&self) -> Vec<Event> {
        (0..self.0.events.len()).map(|index| Event(Kept::OfTrace(Arc::clone(&self.0), index))).collect()
    }

    fn __len__(&self) -> usize {
        self.0.events.len()
    }

    fn __repr__(&self) -> String {
        format!("Trace({:?}, format={:?}, {} events)", self.0.name, self.0.format, self.0.events.len())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let trace = &slf.get().0;
        let events = serde_json::to_string(&trace.events).map_err(invalid)?;
        let arguments = (events, &trace.name, trace.format, &trace.task, &trace.session).into_pyobject(slf.py())?;
        Ok((slf.get_type().getattr("_from_parts")?, arguments))
    }

    #[classmethod]
    fn _from_parts(
        _: &Bound<'_, PyType>,
        events: &str,
        name: String,
        format: &str,
        task: Option<String>,
        session: Option<String>,
    ) -> PyResult<Self> {
        let events: Vec<condenser::Event> = serde_json::from_str(events).map_err(invalid)?;
        Ok(Self(Arc::new(condenser_traces::Trace {
            name,
            format: known_format(format)?,
            task,
            session,
            parent: None,
            records: events.len() as u64,
            events,
            diagnostics: Vec::new(),
        })))
    }
}

/// Reads all traces of files, folders and patterns, in any known format or as the one that is named.
///
/// A path that is named must be readable; what is found in a folder and is no trace is left out.
#[pyfunction]
#[pyo3(signature = (*paths, format = None))]
pub(crate) fn read_traces(py: Python<'_>, paths: Vec<PathBuf>, format: Option<&str>) -> PyResult<Vec<Trace>> {
    py.detach(|| {
        let mut traces = Vec::new();
        for path in &paths {
            for candidate in condenser_traces::find(path).map_err(unreadable)? {
                let read = Reader::open(&candidate.path, format).and_then(Reader::into_traces);
                match read {
                    Ok(read) => traces.extend(read.into_iter().map(|trace| Trace(Arc::new(trace)))),
                    Err(error) if candidate.named => return Err(unreadable(error)),
                    Err(_) => {}
                }
            }
        }
        Ok(traces)
    })
}

/// The files and trace folders behind paths, and whether each was named: what is only found may be something else.
#[pyfunction]
#[pyo3(signature = (*paths))]
pub(crate) fn find_traces(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Vec<(PathBuf, bool)>> {
    py.detach(|| {
        let mut found = Vec::new();
        for path in &paths {
            let candidates = condenser_traces::find(path).map_err(unreadable)?;
            found.extend(candidates.into_iter().map(|candidate| (candidate.path, candidate.named)));
        }
        Ok(found)
    })
}

/// Traces of one file as text in another format: `openhands-v1`, `openai-chat`, `anthropic`, `pi` or `atif`.
#[pyfunction]
pub(crate) fn write_traces(py: Python<'_>, traces: Vec<Bound<'_, Trace>>, format: &str) -> PyResult<String> {
    let traces: Vec<condenser_traces::Trace> = traces.iter().map(|trace| (*trace.get().0).clone()).collect();
    py.detach(|| {
        let mut text = Vec::new();
        let written = condenser_traces::write(&traces, format).map_err(unreadable)?;
        written.write_to(&mut text).map_err(unreadable)?;
        String::from_utf8(text).map_err(unreadable)
    })
}
