//! Views and their entries.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use condenser::render::{Mode, Rendering};
use condenser::request::{Api, Bodies, validate};
use condenser::{Class, Condensation as Record, EventHeader, Pushed, Request, Rules, Shown, Sizer};
use condenser_traces::openhands_v1::StoredEvent;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice, PyString, PyType};

use crate::error::{InvalidInput, invalid};
use crate::event::{Body, Condensation, Event, text_arg};
use crate::state::with_state;
use crate::to_python;
use crate::tokens::counter;

/// A view with the bodies behind it, one for each event pushed.
#[derive(Clone)]
pub(crate) struct Shot {
    pub(crate) view: condenser::View,
    pub(crate) bodies: Vec<Body>,
}

impl Bodies for Shot {
    fn event(&self, seq: usize) -> Option<&condenser::Event> {
        self.bodies.get(seq)?.get()
    }
}

impl Shot {
    fn new(rules: Rules) -> Self {
        Self { view: condenser::View::new(rules), bodies: Vec::new() }
    }

    /// What headers alone cannot give.
    pub(crate) fn check_bodies(&self) -> PyResult<()> {
        match self.view.iter().find(|entry| !entry.is_summary() && self.event(entry.seq()).is_none()) {
            None => Ok(()),
            Some(entry) => Err(InvalidInput::new_err(format!(
                "the body of event {:?} is not known: the view was made from headers",
                entry.id().as_str()
            ))),
        }
    }
}

pub(crate) fn rules_arg(rules: &str) -> PyResult<Rules> {
    match rules {
        "sound" => Ok(Rules::Sound),
        "openhands" => Ok(Rules::OpenHands),
        _ => Err(InvalidInput::new_err(format!("unknown rules {rules:?}; there are sound and openhands"))),
    }
}

/// The entries that a model is shown, oldest first: a log's events once its condensations have been applied.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct View(Mutex<Arc<Shot>>);

impl View {
    pub(crate) fn of(shot: Shot) -> Self {
        Self(Mutex::new(Arc::new(shot)))
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Shot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The view as it stands: later pushes do not change it.
    pub(crate) fn shot(&self) -> Arc<Shot> {
        Arc::clone(&self.lock())
    }
}

/// The header of an event of the OpenHands SDK, read from the object itself.
struct SdkHeader {
    id: String,
    class: Class,
    call: Option<String>,
    response: Option<String>,
    thinking: bool,
    interim: bool,
    record: Option<Record>,
}

impl SdkHeader {
    fn read(event: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event.py();
        let text = |name: &Bound<'_, PyString>| event.getattr(name)?.extract::<Option<String>>();
        let kind = event.get_type().name()?;
        let mut header = Self {
            id: event.getattr(pyo3::intern!(py, "id"))?.extract()?,
            class: Class::Other,
            call: None,
            response: None,
            thinking: false,
            interim: false,
            record: None,
        };
        match kind.to_str()? {
            "SystemPromptEvent" => header.class = Class::SystemPrompt,
            "MessageEvent" => {
                header.class = Class::Message;
                header.response = text(pyo3::intern!(py, "llm_response_id"))?;
            }
            "CondensationSummaryEvent" => header.class = Class::Message,
            "ActionEvent" => {
                header.class = Class::Action;
                header.call = text(pyo3::intern!(py, "tool_call_id"))?;
                header.response = text(pyo3::intern!(py, "llm_response_id"))?;
                header.thinking = event.getattr(pyo3::intern!(py, "thinking_blocks"))?.is_truthy()?;
            }
            kind @ ("ObservationEvent" | "UserRejectObservation" | "AgentErrorEvent") => {
                header.class = Class::Observation;
                header.call = text(pyo3::intern!(py, "tool_call_id"))?;
                header.interim = kind == "AgentErrorEvent";
            }
            "Condensation" => {
                header.class = Class::Condensation;
                let forgotten = event.getattr(pyo3::intern!(py, "forgotten_event_ids"))?;
                let mut record = Record {
                    summary: text(pyo3::intern!(py, "summary"))?,
                    summary_offset: event.getattr(pyo3::intern!(py, "summary_offset"))?.extract()?,
                    ..Record::default()
                };
                for id in forgotten.try_iter()? {
                    record.forgotten_event_ids.insert(id?.extract::<String>()?.into());
                }
                header.record = Some(record);
            }
            "CondensationRequest" => header.class = Class::CondensationRequest,
            _ => {}
        }
        Ok(header)
    }
}

impl EventHeader for SdkHeader {
    fn id(&self) -> &str {
        &self.id
    }

    fn class(&self) -> Class {
        self.class
    }

    fn call_id(&self) -> Option<&str> {
        self.call.as_deref()
    }

    fn response_id(&self) -> Option<&str> {
        self.response.as_deref()
    }

    fn has_thinking(&self) -> bool {
        self.thinking
    }

    fn is_interim(&self) -> bool {
        self.interim
    }

    fn condensation(&self) -> Option<&Record> {
        self.record.as_ref()
    }
}

#[pymethods]
impl View {
    #[new]
    #[pyo3(signature = (events = None, *, rules = "sound"))]
    fn py_new(py: Python<'_>, events: Option<&Bound<'_, PyAny>>, rules: &str) -> PyResult<Self> {
        let rules = rules_arg(rules)?;
        let Some(events) = events else { return Ok(Self::of(Shot::new(rules))) };
        let mut bodies = Vec::new();
        for event in events.try_iter()? {
            bodies.push(Body::Whole(event?.cast::<Event>()?.get().0.clone()));
        }
        py.detach(|| {
            let view = condenser::View::replay(bodies.iter().filter_map(Body::get), rules);
            Ok(Self::of(Shot { view, bodies }))
        })
    }

    /// The view of OpenHands SDK events, from their JSON text, one a line. Only headers are read; the rest of an event
    /// is read once it is asked for.
    #[classmethod]
    #[pyo3(signature = (lines, *, rules = "openhands"))]
    fn from_openhands_json(
        _: &Bound<'_, PyType>,
        py: Python<'_>,
        lines: &Bound<'_, PyAny>,
        rules: &str,
    ) -> PyResult<Self> {
        let rules = rules_arg(rules)?;
        let text = text_arg(lines)?;
        py.detach(|| {
            let text: Arc<str> = text.into();
            let mut headers = Vec::new();
            let mut bodies = Vec::new();
            let mut start = 0;
            for (number, line) in text.split_inclusive('\n').enumerate() {
                let range = start..start + line.trim_end().len();
                start += line.len();
                if range.is_empty() {
                    continue;
                }
                let header = StoredEvent::read(&text[range.clone()])
                    .map_err(|error| InvalidInput::new_err(format!("line {}: {error}", number + 1)))?;
                headers.push(header);
                bodies.push(Body::text(Arc::clone(&text), range));
            }
            let view = condenser::View::replay(&headers, rules);
            Ok(Self::of(Shot { view, bodies }))
        })
    }

    /// The view of event objects of the OpenHands SDK. Only their headers are read, and so there are no requests and
    /// no texts: an entry's `seq` is the position of its event in the list.
    #[classmethod]
    #[pyo3(signature = (events, *, rules = "openhands"))]
    fn from_openhands_objects(
        _: &Bound<'_, PyType>,
        py: Python<'_>,
        events: &Bound<'_, PyAny>,
        rules: &str,
    ) -> PyResult<Self> {
        let rules = rules_arg(rules)?;
        let mut headers = Vec::new();
        for event in events.try_iter()? {
            headers.push(SdkHeader::read(&event?)?);
        }
        py.detach(|| {
            let view = condenser::View::replay(&headers, rules);
            Ok(Self::of(Shot { view, bodies: vec![Body::Header; headers.len()] }))
        })
    }

    /// Adds the next event of the log: `shown`, `hidden`, `left_out` or `condensed`.
    fn push(&self, py: Python<'_>, event: &Bound<'_, Event>) -> PyResult<&'static str> {
        let event = event.get().0.clone();
        if matches!(self.shot().bodies.first(), Some(Body::Header)) {
            return Err(InvalidInput::new_err("a view that was made from headers takes no further events"));
        }
        Ok(py.detach(|| {
            let mut shot = self.lock();
            let shot = Arc::make_mut(&mut *shot);
            let pushed = shot.view.push(event.get());
            shot.bodies.push(Body::Whole(event));
            match pushed {
                Pushed::Shown => "shown",
                Pushed::LeftOut => "left_out",
                Pushed::Condensed => "condensed",
                Pushed::ReplayNeeded => {
                    shot.view = condenser::View::replay(shot.bodies.iter().filter_map(Body::get), shot.view.rules());
                    "hidden"
                }
                _ => "hidden",
            }
        }))
    }

    /// The view as it would be with one more condensation; this one does not change.
    #[pyo3(signature = (record, *, id = "preview"))]
    fn preview(&self, record: &Bound<'_, Condensation>, id: &str) -> Self {
        let mut shot = (*self.shot()).clone();
        shot.view = shot.view.preview(&id.into(), &record.get().0);
        Self::of(shot)
    }

    /// A copy that goes its own way.
    fn copy(&self) -> Self {
        Self(Mutex::new(self.shot()))
    }

    /// `sound` or `openhands`.
    #[getter]
    fn rules(&self) -> String {
        crate::word(&self.shot().view.rules())
    }

    /// The ids of the entries, oldest first.
    #[getter]
    fn ids(&self) -> Vec<String> {
        self.shot().view.ids().map(ToString::to_string).collect()
    }

    /// The ids of the condensations in force, oldest first.
    #[getter]
    fn records(&self) -> Vec<String> {
        self.shot().view.records().map(ToString::to_string).collect()
    }

    /// Events pushed so far, hidden and forgotten ones included.
    #[getter]
    fn n_pushed(&self) -> usize {
        self.shot().view.n_pushed()
    }

    /// Whether somebody asked for a condensation and none has followed.
    #[getter]
    fn unhandled_condensation_request(&self) -> bool {
        self.shot().view.has_unhandled_request()
    }

    /// The positions before which the view may be cut.
    #[getter]
    fn manipulation_indices(&self) -> Vec<usize> {
        self.shot().view.manipulation_indices().collect()
    }

    /// The smallest manipulation index at or above a position.
    fn next_index(&self, position: usize) -> Option<usize> {
        self.shot().view.next_index(position)
    }

    /// The largest manipulation index at or below a position.
    fn previous_index(&self, position: usize) -> Option<usize> {
        self.shot().view.previous_index(position)
    }

    /// What was odd in the log, counted by kind.
    #[getter]
    fn diagnostics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.shot().view.diagnostics())
    }

    /// What the rules `openhands` dropped on the rebuild, in order: the property and the ids.
    #[getter]
    fn dropped(&self) -> Vec<(String, Vec<String>)> {
        let shot = self.shot();
        let dropped = shot.view.diagnostics().dropped.iter();
        dropped
            .map(|dropped| (crate::word(&dropped.property), dropped.ids.iter().map(ToString::to_string).collect()))
            .collect()
    }

    /// What differs in another view of the same log.
    fn diff<'py>(&self, other: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (ours, theirs) = (self.shot(), other.get().shot());
        let diff = ours.view.diff(&theirs.view);
        to_python(
            other.py(),
            &serde_json::json!({
                "left": diff.left, "came": diff.came, "rewritten": diff.rewritten, "common_prefix": diff.common_prefix,
            }),
        )
    }

    /// The request in the shape of an API: `openai`, `responses` or `anthropic`. It is always valid.
    #[pyo3(signature = (api = "openai"))]
    fn request<'py>(&self, py: Python<'py>, api: &str) -> PyResult<Bound<'py, PyAny>> {
        let api: Api = api.parse().map_err(invalid)?;
        let shot = self.shot();
        shot.check_bodies()?;
        let rendered = py.detach(|| Request::build(&shot.view, &*shot).render(api));
        to_python(py, &rendered)
    }

    /// What is wrong with a request by the rules of its API; empty where nothing is.
    #[staticmethod]
    #[pyo3(signature = (request, api = "openai"))]
    fn validate(request: &Bound<'_, PyAny>, api: &str) -> PyResult<Vec<String>> {
        let api: Api = api.parse().map_err(invalid)?;
        let request = pythonize::depythonize(request).map_err(invalid)?;
        Ok(validate(api, &request).iter().map(ToString::to_string).collect())
    }

    /// The tokens of the complete request: system prompt, tools and messages.
    #[pyo3(signature = (tokenizer = "o200k"))]
    fn tokens(&self, py: Python<'_>, tokenizer: &str) -> PyResult<u64> {
        let counter = counter(tokenizer)?;
        let shot = self.shot();
        shot.check_bodies()?;
        Ok(py.detach(|| Request::build(&shot.view, &*shot).tokens(&Sizer::new(counter)).0))
    }

    /// The view as stable text for snapshot tests. `mode` is `full`, `kinds`, `redacted`, or the number of characters
    /// of each text.
    #[pyo3(signature = (mode = None, *, tokenizer = None))]
    fn render(&self, py: Python<'_>, mode: Option<&Bound<'_, PyAny>>, tokenizer: Option<&str>) -> PyResult<String> {
        let mode = mode_arg(mode)?;
        let counter = tokenizer.map(counter).transpose()?;
        let shot = self.shot();
        Ok(py.detach(|| match counter.map(Sizer::new) {
            Some(sizer) => Rendering::new(mode).with_tokens(&sizer).view(&shot.view, &*shot),
            None => Rendering::new(mode).view(&shot.view, &*shot),
        }))
    }

    fn __len__(&self) -> usize {
        self.shot().view.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let shot = self.shot();
        let entry = |index| Entry { source: Source::View(Arc::clone(&shot)), index };
        items(py, shot.view.len(), index, entry)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shot = self.shot();
        let entries = (0..shot.view.len()).map(|index| Entry { source: Source::View(Arc::clone(&shot)), index });
        Ok(PyList::new(py, entries.collect::<Vec<_>>())?.try_iter()?.into_any())
    }

    fn __repr__(&self) -> String {
        let shot = self.shot();
        format!(
            "View({} of {} events, rules={:?})",
            shot.view.len(),
            shot.view.n_pushed(),
            crate::word(&shot.view.rules())
        )
    }
}

fn mode_arg(mode: Option<&Bound<'_, PyAny>>) -> PyResult<Mode> {
    let Some(mode) = mode else { return Ok(Mode::Full) };
    if let Ok(n) = mode.extract::<usize>() {
        return Ok(Mode::Prefix(n));
    }
    match mode.extract::<String>()?.as_str() {
        "full" => Ok(Mode::Full),
        "kinds" => Ok(Mode::Kinds),
        "redacted" => Ok(Mode::Redacted),
        other => Err(InvalidInput::new_err(format!(
            "unknown mode {other:?}; there are full, kinds, redacted, and a number of characters"
        ))),
    }
}

/// One entry for a number, a list for a slice.
pub(crate) fn items<'py>(
    py: Python<'py>,
    length: usize,
    index: &Bound<'py, PyAny>,
    entry: impl Fn(usize) -> Entry,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(slice) = index.cast::<PySlice>() {
        let range = slice.indices(length as isize)?;
        let positions = (0..range.slicelength).map(|n| (range.start + n as isize * range.step) as usize);
        return Ok(PyList::new(py, positions.map(entry).collect::<Vec<_>>())?.into_any());
    }
    let at: isize = index.extract()?;
    let at = if at < 0 { at + length as isize } else { at };
    if (0..length as isize).contains(&at) {
        Ok(Bound::new(py, entry(at as usize))?.into_any())
    } else {
        Err(PyIndexError::new_err("the view has no such entry"))
    }
}

/// Where an entry is looked up.
pub(crate) enum Source {
    View(Arc<Shot>),
    /// The state with this number, while its policy is asked.
    State(u64),
}

/// One entry of a view.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct Entry {
    pub(crate) source: Source,
    pub(crate) index: usize,
}

impl Entry {
    fn with<T>(&self, read: impl FnOnce(condenser::Entry<'_>, &dyn Bodies) -> T) -> PyResult<T> {
        let gone = || PyIndexError::new_err("the view has no such entry");
        match &self.source {
            Source::View(shot) => Ok(read(shot.view.get(self.index).ok_or_else(gone)?, &**shot)),
            Source::State(number) => {
                with_state(*number, |state| Ok(read(state.view.get(self.index).ok_or_else(gone)?, state.bodies)))?
            }
        }
    }
}

#[pymethods]
impl Entry {
    /// The event's id, or `<condensation id>-summary`.
    #[getter]
    fn id(&self) -> PyResult<String> {
        self.with(|entry, _| entry.id().to_string())
    }

    /// The position in the view.
    #[getter]
    fn index(&self) -> usize {
        self.index
    }

    /// The position in the log of the event, or of the condensation that made the summary.
    #[getter]
    fn seq(&self) -> PyResult<usize> {
        self.with(|entry, _| entry.seq())
    }

    /// `system_prompt`, `message`, `action` or `observation`; a summary is a message.
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        self.with(|entry, _| match entry.class() {
            Class::SystemPrompt => "system_prompt",
            Class::Action => "action",
            Class::Observation => "observation",
            _ => "message",
        })
    }

    /// Whether this is a summary.
    #[getter]
    fn is_summary(&self) -> PyResult<bool> {
        self.with(|entry, _| entry.is_summary())
    }

    /// Whether a record changed its content.
    #[getter]
    fn is_rewritten(&self) -> PyResult<bool> {
        self.with(|entry, _| entry.rewrite().is_some())
    }

    /// Whether it is pinned.
    #[getter]
    fn is_pinned(&self) -> PyResult<bool> {
        self.with(|entry, _| entry.is_pinned())
    }

    /// Whether no policy may forget it.
    #[getter]
    fn is_protected(&self) -> PyResult<bool> {
        self.with(|entry, _| entry.is_protected())
    }

    /// Whether this is a call without an answer.
    #[getter]
    fn is_open(&self) -> PyResult<bool> {
        self.with(|entry, _| entry.is_open())
    }

    /// The number of the batch or loop that it can only leave with, under the rules `sound`.
    #[getter]
    fn group(&self) -> PyResult<Option<u32>> {
        self.with(|entry, _| entry.group())
    }

    /// Its text as the model is shown it.
    #[getter]
    fn text(&self) -> PyResult<String> {
        self.with(|entry, bodies| Some(Shown::of(entry, bodies)?.text()))?.ok_or_else(no_body)
    }

    /// The stored event behind it; `None` for a summary.
    #[getter]
    fn event(&self) -> PyResult<Option<Event>> {
        let seq = match &self.source {
            Source::View(shot) => {
                let entry = shot.view.get(self.index).filter(|entry| !entry.is_summary());
                return Ok(entry.and_then(|entry| shot.bodies.get(entry.seq())?.event()));
            }
            Source::State(_) => {
                self.with(|entry, bodies| if entry.is_summary() { None } else { bodies.event(entry.seq()).cloned() })?
            }
        };
        Ok(seq.map(Event::own))
    }

    /// What the model is shown of it, as the JSON of an event's kind; a summary gives `{"summary": text}`.
    fn shown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.with(|entry, bodies| match Shown::of(entry, bodies)? {
            Shown::Event(kind) => serde_json::to_value(&*kind).ok(),
            Shown::Summary(text) => Some(serde_json::json!({ "summary": text })),
        })?;
        to_python(py, &value.ok_or_else(no_body)?)
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("Entry({}, {:?}, {:?})", self.index, self.id()?, self.kind()?))
    }
}

fn no_body() -> PyErr {
    InvalidInput::new_err("the body of the event is not known: the view was made from headers")
}
