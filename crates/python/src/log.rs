//! The event log.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use condenser_log::{Access, CondensationError, NewSession, Options, Query, RuleSet, SessionId};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value, json};

use crate::error::{LogError, StaleError, chain, invalid, log_error};
use crate::event::{Body, Condensation, Event, Kept};
use crate::to_python;
use crate::view::{Shot, View, rules_arg};

/// Sessions of events in one SQLite file, appended and never changed. Without a path, in memory.
///
/// One connection: threads that share it wait for each other.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct Log(Mutex<Option<condenser_log::Log>>);

struct Open<'l>(MutexGuard<'l, Option<condenser_log::Log>>);

impl Open<'_> {
    fn get(&self) -> PyResult<&condenser_log::Log> {
        self.0.as_ref().ok_or_else(|| LogError::new_err("the log is closed"))
    }
}

impl Log {
    fn lock(&self) -> Open<'_> {
        Open(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `work` with the log, and without the interpreter lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&condenser_log::Log) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(self.lock().get()?))
    }
}

fn ids(ids: Vec<String>) -> Vec<condenser::EventId> {
    ids.into_iter().map(Into::into).collect()
}

#[pymethods]
impl Log {
    #[new]
    #[pyo3(signature = (path = None, *, read_only = false))]
    fn py_new(py: Python<'_>, path: Option<PathBuf>, read_only: bool) -> PyResult<Self> {
        let access = if read_only { Access::Read } else { Access::Create };
        let log = py.detach(|| match path {
            Some(path) => condenser_log::Log::open(path, Options { access, ..Options::default() }),
            None => condenser_log::Log::open_in_memory(),
        });
        log.map(|log| Self(Mutex::new(Some(log)))).map_err(log_error)
    }

    /// Makes a session; its id. `meta` is whatever the host keeps with it.
    #[pyo3(signature = (name, *, rules = "sound", meta = None))]
    fn create_session(
        &self,
        py: Python<'_>,
        name: String,
        rules: &str,
        meta: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<String> {
        let rules = RuleSet::of(rules_arg(rules)?);
        let meta: Map<String, Value> =
            meta.map_or(Ok(Map::new()), |meta| pythonize::depythonize(meta)).map_err(invalid)?;
        self.with(py, |log| {
            let session = log.create_session(NewSession { name, rules, meta }).map_err(log_error)?;
            Ok(session.as_str().to_owned())
        })
    }

    /// The sessions: `id`, `name`, `rules` and `meta` of each.
    fn sessions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let list = self.with(py, |log| {
            let sessions = log.sessions().map_err(log_error)?;
            let described = sessions.into_iter().map(|session| {
                json!({
                    "id": session.id.as_str(), "name": session.name, "rules": session.rules.name, "meta": session.meta,
                })
            });
            Ok(Value::Array(described.collect()))
        })?;
        to_python(py, &list)
    }

    /// A fresh event id, larger than those before it.
    fn new_event_id(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |log| Ok(log.new_event_id().map_err(log_error)?.to_string()))
    }

    /// Appends events after the session's head: all of them, durably, or none.
    fn append(&self, py: Python<'_>, session: &str, events: Vec<Bound<'_, Event>>) -> PyResult<()> {
        let events: Vec<condenser::Event> = events.iter().map(|event| event.get().get().clone()).collect();
        self.with(py, |log| log.append(&SessionId::new(session), &events).map(drop).map_err(log_error))
    }

    /// Appends a condensation; the id of its event. `StaleError` where the log has moved on in a way that matters.
    fn append_condensation(&self, py: Python<'_>, session: &str, record: &Bound<'_, Condensation>) -> PyResult<String> {
        let record = &record.get().0;
        let basis = record.provenance.as_ref().and_then(|provenance| provenance.basis.as_ref());
        self.with(py, |log| match log.append_condensation(&SessionId::new(session), record, basis) {
            Ok(id) => Ok(id.to_string()),
            Err(error @ CondensationError::Stale { .. }) => Err(StaleError::new_err(chain(&error))),
            Err(error) => Err(log_error(error)),
        })
    }

    /// All events of a session, in log order.
    fn events(&self, py: Python<'_>, session: &str) -> PyResult<Vec<Event>> {
        self.with(py, |log| {
            let events = log.events(&SessionId::new(session)).map_err(log_error)?;
            events.map(|event| event.map(Event::own).map_err(log_error)).collect()
        })
    }

    /// The events from the root to `head`, or to the session's head.
    #[pyo3(signature = (session, head = None))]
    fn branch(&self, py: Python<'_>, session: &str, head: Option<String>) -> PyResult<Vec<Event>> {
        self.with(py, |log| {
            let head = head.map(condenser::EventId::from);
            let events = log.branch(&SessionId::new(session), head.as_ref()).map_err(log_error)?;
            events.map(|event| event.map(Event::own).map_err(log_error)).collect()
        })
    }

    /// The event with this id; `None` where the session has none.
    fn event(&self, py: Python<'_>, session: &str, id: &str) -> PyResult<Option<Event>> {
        self.with(py, |log| {
            let event = log.event(&SessionId::new(session), &id.into()).map_err(log_error)?;
            Ok(event.map(Event::own))
        })
    }

    /// The view of the active branch, under the rules stored with the session.
    #[pyo3(signature = (session, head = None))]
    fn view(&self, py: Python<'_>, session: &str, head: Option<String>) -> PyResult<View> {
        self.with(py, |log| {
            let session = SessionId::new(session);
            let head = head.map(condenser::EventId::from);
            let view = log.view(&session, head.as_ref()).map_err(log_error)?;
            let bodies = log.branch(&session, head.as_ref()).map_err(log_error)?.map(|event| {
                let event = event.map_err(log_error)?;
                Ok(Body::Whole(Kept::Own(std::sync::Arc::new(event))))
            });
            Ok(View::of(Shot { view, bodies: bodies.collect::<PyResult<_>>()? }))
        })
    }

    /// Moves the session's head to an event of it, or to before its first event.
    #[pyo3(signature = (session, head))]
    fn set_head(&self, py: Python<'_>, session: &str, head: Option<String>) -> PyResult<()> {
        let head = head.map(condenser::EventId::from);
        self.with(py, |log| log.set_head(&SessionId::new(session), head.as_ref()).map_err(log_error))
    }

    /// Takes a condensation back, the newest in force without an id; the id of the condensation.
    #[pyo3(signature = (session, condensation = None))]
    fn undo(&self, py: Python<'_>, session: &str, condensation: Option<String>) -> PyResult<String> {
        let condensation = condensation.map(condenser::EventId::from);
        self.with(py, |log| {
            let (undone, _) = log.undo(&SessionId::new(session), condensation.as_ref()).map_err(log_error)?;
            Ok(undone.to_string())
        })
    }

    /// Pins events, so that no policy may forget or rewrite them.
    fn pin(&self, py: Python<'_>, session: &str, events: Vec<String>) -> PyResult<String> {
        self.with(py, |log| Ok(log.pin(&SessionId::new(session), &ids(events)).map_err(log_error)?.to_string()))
    }

    /// Unpins events.
    fn unpin(&self, py: Python<'_>, session: &str, events: Vec<String>) -> PyResult<String> {
        self.with(py, |log| Ok(log.unpin(&SessionId::new(session), &ids(events)).map_err(log_error)?.to_string()))
    }

    /// The text of a stored event, forgotten ones included; `None` where the session has no such event.
    fn text(&self, py: Python<'_>, session: &str, id: &str) -> PyResult<Option<String>> {
        self.with(py, |log| {
            let text = log.text(&SessionId::new(session), &id.into(), None).map_err(log_error)?;
            text.map(|text| String::from_utf8(text).map_err(log_error)).transpose()
        })
    }

    /// Events that hold all words, best first: `id`, `kind` and `snippet` of each.
    #[pyo3(signature = (session, words, *, limit = 10))]
    fn search<'py>(&self, py: Python<'py>, session: &str, words: &str, limit: u32) -> PyResult<Bound<'py, PyAny>> {
        let found = self.with(py, |log| {
            let query = Query { limit, ..Query::new(words) };
            let hits = log.search(&SessionId::new(session), &query).map_err(log_error)?.hits;
            let hits = hits.iter().map(|hit| json!({"id": hit.id, "kind": hit.kind, "snippet": hit.snippet}));
            Ok(Value::Array(hits.collect()))
        })?;
        to_python(py, &found)
    }

    /// The number of problems that a check of the whole session finds: 0 where every event is as it was appended.
    fn verify(&self, py: Python<'_>, session: &str) -> PyResult<u64> {
        self.with(py, |log| Ok(log.verify(&SessionId::new(session)).map_err(log_error)?.n_problems))
    }

    /// Closes the file. Every later call fails.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.lock().0.take()));
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        match self.lock().get() {
            Ok(log) => format!("Log({:?})", log.path().display().to_string()),
            Err(_) => "Log(closed)".to_owned(),
        }
    }
}
