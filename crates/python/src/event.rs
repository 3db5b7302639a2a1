//! Events and condensation records.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use condenser::event::EventKind;
use condenser::request::text_of;
use condenser_traces::openhands_v1::{Mode, StoredEvent, parse_event};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple, PyType};
use serde_json::Value;

use crate::error::{InvalidInput, invalid};
use crate::to_python;

/// A whole event, wherever it is kept.
#[derive(Clone)]
pub(crate) enum Kept {
    Own(Arc<condenser::Event>),
    /// A trace and the position of an event in it.
    OfTrace(Arc<condenser_traces::Trace>, usize),
}

impl Kept {
    pub(crate) fn get(&self) -> &condenser::Event {
        match self {
            Self::Own(event) => event,
            Self::OfTrace(trace, index) => &trace.events[*index],
        }
    }
}

/// The body behind an entry of a view.
#[derive(Clone)]
pub(crate) enum Body {
    Whole(Kept),
    /// Part of a text of OpenHands events, read when it is asked for.
    Text(Arc<Text>),
    /// Only its header is known.
    Header,
}

pub(crate) struct Text {
    lines: Arc<str>,
    line: Range<usize>,
    event: OnceLock<Option<condenser::Event>>,
}

impl Body {
    pub(crate) fn text(lines: Arc<str>, line: Range<usize>) -> Self {
        Self::Text(Arc::new(Text { lines, line, event: OnceLock::new() }))
    }

    pub(crate) fn get(&self) -> Option<&condenser::Event> {
        match self {
            Self::Whole(event) => Some(event.get()),
            Self::Text(text) => text.event.get_or_init(|| text.read()).as_ref(),
            Self::Header => None,
        }
    }

    pub(crate) fn event(&self) -> Option<Event> {
        match self {
            Self::Whole(event) => Some(Event(event.clone())),
            _ => self.get().cloned().map(Event::own),
        }
    }
}

impl Text {
    /// The header was read leniently, and so is the rest.
    fn read(&self) -> Option<condenser::Event> {
        StoredEvent::read(&self.lines[self.line.clone()]).ok()?.event(Mode::Lenient).ok()
    }
}

/// Text or bytes.
pub(crate) fn text_arg(json: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(bytes) = json.cast::<PyBytes>() {
        let text = std::str::from_utf8(bytes.as_bytes());
        return Ok(text.map_err(|error| InvalidInput::new_err(format!("not UTF-8: {error}")))?.to_owned());
    }
    json.extract()
}

/// A JSON value from text, bytes or Python data.
fn value_arg(data: &Bound<'_, PyAny>) -> PyResult<Value> {
    if data.is_instance_of::<PyString>() || data.is_instance_of::<PyBytes>() {
        return serde_json::from_str(&text_arg(data)?).map_err(invalid);
    }
    pythonize::depythonize(data).map_err(invalid)
}

/// One thing that happened: a message, a tool call, its result, a condensation. Never changed afterwards.
///
/// `Event(id, kind, source=..., **fields)` takes the fields of the event's JSON; a text as `content` or `thought`
/// stands for one text block.
#[pyclass(frozen, module = "condenser")]
#[derive(Clone)]
pub(crate) struct Event(pub(crate) Kept);

impl Event {
    pub(crate) fn own(event: condenser::Event) -> Self {
        Self(Kept::Own(Arc::new(event)))
    }

    pub(crate) fn get(&self) -> &condenser::Event {
        self.0.get()
    }
}

/// Text in the place of content blocks.
fn with_blocks(mut fields: serde_json::Map<String, Value>) -> serde_json::Map<String, Value> {
    for name in ["content", "thought"] {
        if let Some(Value::String(text)) = fields.get_mut(name) {
            let text = std::mem::take(text);
            fields.insert(name.to_owned(), serde_json::json!([{"type": "text", "text": text}]));
        }
    }
    fields
}

fn parse(value: Value) -> PyResult<Event> {
    serde_json::from_value(value).map(Event::own).map_err(invalid)
}

#[pymethods]
impl Event {
    #[new]
    #[pyo3(signature = (id, kind, *, source, **fields))]
    fn py_new(id: &str, kind: &str, source: &str, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut map = match fields {
            Some(fields) => with_blocks(pythonize::depythonize(fields).map_err(invalid)?),
            None => serde_json::Map::new(),
        };
        for (name, value) in [("id", id), ("kind", kind), ("source", source)] {
            map.insert(name.to_owned(), value.into());
        }
        parse(Value::Object(map))
    }

    /// An event from its JSON as Python data.
    #[classmethod]
    fn from_dict(_: &Bound<'_, PyType>, data: &Bound<'_, PyAny>) -> PyResult<Self> {
        parse(pythonize::depythonize(data).map_err(invalid)?)
    }

    /// An event from its JSON text.
    #[classmethod]
    fn from_json(_: &Bound<'_, PyType>, json: &Bound<'_, PyAny>) -> PyResult<Self> {
        serde_json::from_str(&text_arg(json)?).map(Self::own).map_err(invalid)
    }

    /// An event from one of the OpenHands SDK, as JSON text or as data. `strict` refuses what the SDK refuses.
    #[classmethod]
    #[pyo3(signature = (event, *, strict = false))]
    fn from_openhands(_: &Bound<'_, PyType>, event: &Bound<'_, PyAny>, strict: bool) -> PyResult<Self> {
        let mode = if strict { Mode::Strict } else { Mode::Lenient };
        parse_event(value_arg(event)?, mode).map(Self::own).map_err(invalid)
    }

    /// The id.
    #[getter]
    fn id(&self) -> &str {
        self.get().id.as_str()
    }

    /// The kind: `message`, `action`, `observation`, `condensation` and so on.
    #[getter]
    fn kind(&self) -> &'static str {
        self.get().kind.name()
    }

    /// Who made it: `agent`, `user`, `environment` or `hook`.
    #[getter]
    fn source(&self) -> String {
        crate::word(&self.get().source)
    }

    /// The event before it on its branch; `None` for a root, or where the log order is the branch.
    #[getter]
    fn parent(&self) -> Option<&str> {
        self.get().parent.as_ref().map(|id| id.as_str())
    }

    /// When it happened, as the source wrote it.
    #[getter]
    fn timestamp(&self) -> Option<&str> {
        self.get().timestamp.as_deref()
    }

    /// The call that an action makes or an observation answers.
    #[getter]
    fn call_id(&self) -> Option<&str> {
        condenser::EventHeader::call_id(self.get())
    }

    /// The tool of an action or an observation.
    #[getter]
    fn tool_name(&self) -> Option<&str> {
        match &self.get().kind {
            EventKind::Action(action) => Some(&action.tool_name),
            EventKind::Observation(observation) => Some(&observation.tool_name),
            _ => None,
        }
    }

    /// The model response that it belongs to.
    #[getter]
    fn response_id(&self) -> Option<&str> {
        self.get().response_id()
    }

    /// All text that a request can show of it, one block a line; thinking is left out.
    #[getter]
    fn text(&self) -> String {
        text_of(&self.get().kind)
    }

    /// The record of a condensation, else `None`.
    #[getter]
    fn condensation(&self) -> Option<Condensation> {
        match &self.get().kind {
            EventKind::Condensation(record) => Some(Condensation(record.clone())),
            _ => None,
        }
    }

    /// Its JSON as Python data.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, self.get())
    }

    /// Its JSON text.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(self.get()).map_err(invalid)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.get() == other.get().get())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.get().id.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("Event({:?}, {:?}, source={:?})", self.id(), self.kind(), self.source())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let json = slf.get().to_json()?;
        Ok((slf.get_type().getattr("from_json")?, PyTuple::new(slf.py(), [json])?))
    }
}

/// A record: what later views leave out, rewrite and summarize.
#[pyclass(frozen, module = "condenser")]
#[derive(Clone)]
pub(crate) struct Condensation(pub(crate) condenser::Condensation);

#[pymethods]
impl Condensation {
    #[new]
    #[pyo3(signature = (forgotten_event_ids = None, summary = None, summary_offset = None, *, llm_response_id = None, rewrites = None))]
    fn py_new(
        forgotten_event_ids: Option<BTreeSet<String>>,
        summary: Option<String>,
        summary_offset: Option<usize>,
        llm_response_id: Option<String>,
        rewrites: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self(condenser::Condensation {
            forgotten_event_ids: forgotten_event_ids.unwrap_or_default().into_iter().map(Into::into).collect(),
            summary,
            summary_offset,
            llm_response_id,
            rewrites: rewrites_arg(rewrites)?,
            ..condenser::Condensation::default()
        }))
    }

    /// A record from its JSON as Python data.
    #[classmethod]
    fn from_dict(_: &Bound<'_, PyType>, data: &Bound<'_, PyAny>) -> PyResult<Self> {
        pythonize::depythonize(data).map(Self).map_err(invalid)
    }

    /// A record from its JSON text.
    #[classmethod]
    fn from_json(_: &Bound<'_, PyType>, json: &Bound<'_, PyAny>) -> PyResult<Self> {
        serde_json::from_str(&text_arg(json)?).map(Self).map_err(invalid)
    }

    /// The ids of the entries that leave the view, sorted.
    #[getter]
    fn forgotten_event_ids(&self) -> Vec<&str> {
        self.0.forgotten_event_ids.iter().map(|id| id.as_str()).collect()
    }

    /// What stands for them.
    #[getter]
    fn summary(&self) -> Option<&str> {
        self.0.summary.as_deref()
    }

    /// Where the summary goes, counted in the view after forgetting.
    #[getter]
    fn summary_offset(&self) -> Option<usize> {
        self.0.summary_offset
    }

    /// The response that wrote the summary.
    #[getter]
    fn llm_response_id(&self) -> Option<&str> {
        self.0.llm_response_id.as_deref()
    }

    /// The changes of content, by id.
    #[getter]
    fn rewrites<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.rewrites)
    }

    /// How the record came to be: policy, sizes, reasons, basis; `None` where that is not recorded.
    #[getter]
    fn provenance<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.provenance)
    }

    /// The event that carries this record.
    fn event(&self, id: &str) -> Event {
        let kind = EventKind::Condensation(self.0.clone());
        Event::own(condenser::Event::new(id, condenser::event::Source::Environment, kind))
    }

    /// Its JSON as Python data.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0)
    }

    /// Its JSON text.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.0).map_err(invalid)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| self.0 == other.get().0)
    }

    fn __repr__(&self) -> String {
        format!(
            "Condensation(forgets {}, rewrites {}, {})",
            self.0.forgotten_event_ids.len(),
            self.0.rewrites.len(),
            if self.0.shown_summary().is_some() { "with a summary" } else { "without a summary" }
        )
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let json = slf.get().to_json()?;
        Ok((slf.get_type().getattr("from_json")?, PyTuple::new(slf.py(), [json])?))
    }
}

/// Changes of content by id, each as its JSON: `{"op": "clear", "text": "…"}` and the like.
pub(crate) fn rewrites_arg(
    rewrites: Option<&Bound<'_, PyDict>>,
) -> PyResult<BTreeMap<condenser::EventId, condenser::Rewrite>> {
    match rewrites {
        Some(rewrites) => pythonize::depythonize(rewrites).map_err(invalid),
        None => Ok(BTreeMap::new()),
    }
}
