//! Policies and summarizers: those of the crates by name, and those that are written in Python.

use std::sync::{Arc, Mutex, PoisonError};

use condenser::event::ContentBlock;
use condenser::lower::openhands::ChatMessage;
use condenser::{Failure, Reason, Requirement, SummarizeError, Tokens};
use condenser_policies::openhands::{MessageCounter, OpenHands, OpenHandsSettings};
use condenser_policies::{Extractive, Heuristic, PolicyInfo, find};
use pyo3::exceptions::{PyBaseException, PyTimeoutError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use serde_json::{Map, Value, json};

use crate::error::{InvalidInput, NoPlan, SummarizerError, invalid};
use crate::event::rewrites_arg;
use crate::state::asking;
use crate::to_python;

/// The first exception that Python code raised; after it nothing further is asked.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn set(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// The exception, where there was one.
    pub(crate) fn check(&self) -> PyResult<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// The result of Python code, or `otherwise` once anything was raised.
    fn attempt<T>(&self, otherwise: T, ask: impl FnOnce(Python<'_>) -> PyResult<T>) -> T {
        if self.is_set() {
            return otherwise;
        }
        Python::attach(ask).unwrap_or_else(|error| {
            self.set(error);
            otherwise
        })
    }
}

/// A policy by name: `Policy("recent-events", max_events=40)`; `policies()` lists names and settings.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct Policy {
    inner: Arc<dyn condenser::Policy>,
    /// How to make it again; `None` for one that holds Python objects.
    settings: Option<Map<String, Value>>,
    /// What a policy inside raised.
    raised: Raised,
}

fn built(name: &str, settings: &Map<String, Value>) -> PyResult<Box<dyn condenser::Policy>> {
    find(&condenser_policies::policies(), name).map_err(invalid)?.build(settings).map_err(invalid)
}

/// A policy to run, and what it raises.
pub(crate) struct Chosen {
    pub(crate) policy: Arc<dyn condenser::Policy>,
    pub(crate) raised: Raised,
}

/// A name, a [`Policy`], or an object with `name`, `requirement` and `plan`.
pub(crate) fn policy_arg(policy: &Bound<'_, PyAny>) -> PyResult<Chosen> {
    if let Ok(name) = policy.extract::<String>() {
        return Ok(Chosen { policy: built(&name, &Map::new())?.into(), raised: Raised::default() });
    }
    if let Ok(policy) = policy.cast::<Policy>() {
        let policy = policy.get();
        return Ok(Chosen { policy: Arc::clone(&policy.inner), raised: policy.raised.clone() });
    }
    let raised = Raised::default();
    let written =
        Written { name: policy.getattr("name")?.extract()?, object: policy.clone().unbind(), raised: raised.clone() };
    for method in ["requirement", "plan"] {
        if !policy.getattr(method)?.is_callable() {
            return Err(InvalidInput::new_err(format!("`{method}` of policy {:?} cannot be called", written.name)));
        }
    }
    Ok(Chosen { policy: Arc::new(written), raised })
}

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (name, /, **settings))]
    fn py_new(name: &str, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let settings: Map<String, Value> =
            settings.map_or(Ok(Map::new()), |settings| pythonize::depythonize(settings)).map_err(invalid)?;
        let inner = built(name, &settings)?.into();
        Ok(Self { inner, settings: Some(settings), raised: Raised::default() })
    }

    /// Policies one after the other: the first that wants to act is asked.
    #[classmethod]
    fn pipeline(_: &Bound<'_, PyType>, name: &str, members: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        // One slot for all: each member's own exceptions end in it.
        let raised = Raised::default();
        let members = members.iter().map(|member| {
            let chosen = policy_arg(member)?;
            Ok(Arc::new(Member { chosen, raised: raised.clone() }) as Arc<dyn condenser::Policy>)
        });
        let members = members.collect::<PyResult<Vec<_>>>()?;
        let inner = Arc::new(condenser_policies::Pipeline::new(name, members));
        Ok(Self { inner, settings: None, raised })
    }

    /// The port of the OpenHands SDK's summarizing condenser with a counter of the host: `count_messages(messages,
    /// tools)` gives the tokens of the SDK's own messages, as lists of dictionaries.
    #[classmethod]
    #[pyo3(signature = (count_messages, **settings))]
    fn openhands(
        _: &Bound<'_, PyType>,
        count_messages: Py<PyAny>,
        settings: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let settings: OpenHandsSettings = settings
            .map_or(Ok(OpenHandsSettings::default()), |settings| pythonize::depythonize(settings))
            .map_err(invalid)?;
        let raised = Raised::default();
        let counter = Arc::new(HostCounter { count: count_messages, raised: raised.clone() });
        let inner = Arc::new(OpenHands::new(settings).map_err(invalid)?.with_counter(counter));
        Ok(Self { inner, settings: None, raised })
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// A digest of the settings, as records carry it.
    #[getter]
    fn config_digest(&self) -> Option<String> {
        self.inner.config_digest()
    }

    fn __repr__(&self) -> String {
        format!("Policy({:?})", self.inner.name())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let policy = slf.get();
        let Some(settings) = &policy.settings else {
            return Err(PyTypeError::new_err("a policy that holds Python objects cannot be pickled"));
        };
        let arguments = (policy.inner.name(), to_python(slf.py(), settings)?);
        (slf.get_type().getattr("_of")?, arguments).into_pyobject(slf.py())
    }

    #[classmethod]
    fn _of(_: &Bound<'_, PyType>, name: &str, settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        Self::py_new(name, Some(settings))
    }
}

/// All policies by name: kind, description and settings.
#[pyfunction]
pub(crate) fn policies(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let list: Vec<PolicyInfo> = condenser_policies::policies();
    to_python(py, &list)
}

/// A member of a pipeline, whose exceptions are the pipeline's.
struct Member {
    chosen: Chosen,
    raised: Raised,
}

impl Member {
    fn ask<T>(&self, otherwise: T, ask: impl FnOnce(&dyn condenser::Policy) -> T) -> T {
        if self.raised.is_set() {
            return otherwise;
        }
        let answer = ask(&*self.chosen.policy);
        if let Err(error) = self.chosen.raised.check() {
            self.raised.set(error);
        }
        answer
    }
}

impl condenser::Policy for Member {
    fn name(&self) -> &str {
        self.chosen.policy.name()
    }

    fn requirement(&self, state: &condenser::State<'_>) -> Requirement {
        self.ask(Requirement::None, |policy| policy.requirement(state))
    }

    fn plan(&self, state: &condenser::State<'_>, tried: &[Failure]) -> Result<condenser::Plan, condenser::NoPlan> {
        self.ask(Err(condenser::NoPlan::Exhausted), |policy| policy.plan(state, tried))
    }

    fn config_digest(&self) -> Option<String> {
        self.chosen.policy.config_digest()
    }

    fn is_port(&self) -> bool {
        self.chosen.policy.is_port()
    }
}

/// A policy written in Python.
struct Written {
    name: String,
    object: Py<PyAny>,
    raised: Raised,
}

impl condenser::Policy for Written {
    fn name(&self) -> &str {
        &self.name
    }

    fn requirement(&self, state: &condenser::State<'_>) -> Requirement {
        self.raised.attempt(Requirement::None, |py| {
            let answer = asking(state, |handle| self.object.bind(py).call_method1("requirement", (handle,)))?;
            requirement(&answer)
        })
    }

    fn plan(&self, state: &condenser::State<'_>, tried: &[Failure]) -> Result<condenser::Plan, condenser::NoPlan> {
        self.raised.attempt(Err(condenser::NoPlan::Exhausted), |py| {
            let tried: Vec<String> = tried.iter().map(ToString::to_string).collect();
            match asking(state, |handle| self.object.bind(py).call_method1("plan", (handle, tried))) {
                Ok(plan) if plan.is_none() => Ok(Ok(condenser::Plan::Keep)),
                Ok(plan) => Ok(Ok(plan.cast::<Plan>()?.get().0.clone())),
                Err(error) if error.is_instance_of::<NoPlan>(py) => Ok(Err(condenser::NoPlan::Exhausted)),
                Err(error) => Err(error),
            }
        })
    }
}

/// `None`, `"soft"`, `"hard"`, or one of the latter with a list of reasons.
fn requirement(answer: &Bound<'_, PyAny>) -> PyResult<Requirement> {
    if answer.is_none() {
        return Ok(Requirement::None);
    }
    let (word, reasons) = match answer.extract::<(String, Vec<String>)>() {
        Ok(both) => both,
        Err(_) => (answer.extract()?, Vec::new()),
    };
    let mut reasons = reasons
        .into_iter()
        .map(|reason| serde_json::from_value::<Reason>(reason.into()).map_err(invalid))
        .collect::<PyResult<Vec<_>>>()?;
    if reasons.is_empty() {
        reasons.push(Reason::Policy);
    }
    match word.as_str() {
        "soft" => Ok(Requirement::Soft(reasons)),
        "hard" => Ok(Requirement::Hard(reasons)),
        other => Err(InvalidInput::new_err(format!("a requirement is None, \"soft\" or \"hard\", and not {other:?}"))),
    }
}

/// What a policy decided: what to forget, what to rewrite, and the summary or whom to ask for it.
///
/// A policy that has nothing to do returns `None` instead.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct Plan(condenser::Plan);

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(signature = (*, forget = Vec::new(), rewrites = None, summary = None, offset = None, ask = None))]
    fn py_new(
        forget: Vec<String>,
        rewrites: Option<&Bound<'_, PyDict>>,
        summary: Option<String>,
        offset: Option<usize>,
        ask: Option<&Bound<'_, SummaryRequest>>,
    ) -> PyResult<Self> {
        let edit = condenser::Edit {
            forget: forget.into_iter().map(Into::into).collect(),
            rewrites: rewrites_arg(rewrites)?,
            summary: None,
            fallback: None,
        };
        match (summary, ask, offset) {
            (None, None, _) => Ok(Self(condenser::Plan::Edit(edit))),
            (Some(_), Some(_), _) => Err(InvalidInput::new_err("a plan has a summary, or asks for one; not both")),
            (_, _, None) => Err(InvalidInput::new_err("a summary needs its `offset` in the view after forgetting")),
            (Some(text), None, Some(offset)) => {
                Ok(Self(condenser::Plan::Edit(condenser::Edit { summary: Some((text, offset)), ..edit })))
            }
            (None, Some(ask), Some(offset)) => {
                let request = ask.get().0.clone();
                Ok(Self(condenser::Plan::Summarize { edit, offset, request }))
            }
        }
    }

    fn __repr__(&self) -> String {
        let (edit, asks) = match &self.0 {
            condenser::Plan::Edit(edit) => (edit, false),
            condenser::Plan::Summarize { edit, .. } => (edit, true),
            condenser::Plan::Keep => return "Plan()".to_owned(),
        };
        format!("Plan(forgets {}, rewrites {}, asks={asks})", edit.forget.len(), edit.rewrites.len())
    }
}

/// What a summarizer is asked.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct SummaryRequest(pub(crate) condenser::SummaryRequest);

fn texts(events: &[(condenser::EventId, String)]) -> Vec<(&str, &str)> {
    events.iter().map(|(id, text)| (id.as_str(), text.as_str())).collect()
}

#[pymethods]
impl SummaryRequest {
    #[new]
    #[pyo3(signature = (instructions, events, *, previous = None, kept = Vec::new(), guidance = None, max_tokens = None, prompt_version = String::new()))]
    fn py_new(
        instructions: String,
        events: Vec<(String, String)>,
        previous: Option<String>,
        kept: Vec<(String, String)>,
        guidance: Option<String>,
        max_tokens: Option<u64>,
        prompt_version: String,
    ) -> Self {
        let ids = |events: Vec<(String, String)>| events.into_iter().map(|(id, text)| (id.into(), text)).collect();
        Self(condenser::SummaryRequest {
            instructions,
            events: ids(events),
            previous,
            kept: ids(kept),
            guidance,
            max_tokens: max_tokens.map(Tokens),
            tool_call: false,
            prompt_version,
            frame: None,
        })
    }

    /// The text of the system message.
    #[getter]
    fn system(&self) -> String {
        self.0.system()
    }

    /// The text of the user message: everything fenced as data.
    #[getter]
    fn input(&self) -> String {
        self.0.input()
    }

    /// The instructions alone.
    #[getter]
    fn instructions(&self) -> &str {
        &self.0.instructions
    }

    /// The events to summarize, oldest first: their ids and their text as shown.
    #[getter]
    fn events(&self) -> Vec<(&str, &str)> {
        texts(&self.0.events)
    }

    /// The summary before this one.
    #[getter]
    fn previous(&self) -> Option<&str> {
        self.0.previous.as_deref()
    }

    /// Entries that stay visible after the summary.
    #[getter]
    fn kept(&self) -> Vec<(&str, &str)> {
        texts(&self.0.kept)
    }

    /// What the user wants the summary to care about.
    #[getter]
    fn guidance(&self) -> Option<&str> {
        self.0.guidance.as_deref()
    }

    /// The most tokens of the summary.
    #[getter]
    fn max_tokens(&self) -> Option<u64> {
        self.0.max_tokens.map(|tokens| tokens.0)
    }

    /// Whether the answer is to be a call of a tool that the host offers for it.
    #[getter]
    fn tool_call(&self) -> bool {
        self.0.tool_call
    }

    /// The version of the prompt.
    #[getter]
    fn prompt_version(&self) -> &str {
        &self.0.prompt_version
    }

    fn __repr__(&self) -> String {
        format!("SummaryRequest({} events)", self.0.events.len())
    }
}

/// A summarizer's answer, where it is more than a text.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct Summary(condenser::Summary);

#[pymethods]
impl Summary {
    #[new]
    #[pyo3(signature = (text, *, cut_by_length = false, tool_call = false, response_id = None, input_tokens = 0, output_tokens = 0))]
    fn py_new(
        text: String,
        cut_by_length: bool,
        tool_call: bool,
        response_id: Option<String>,
        input_tokens: u64,
        output_tokens: u64,
    ) -> Self {
        Self(condenser::Summary {
            text,
            cut_by_length,
            tool_call,
            response_id,
            input_tokens: Tokens(input_tokens),
            output_tokens: Tokens(output_tokens),
        })
    }

    /// The text.
    #[getter]
    fn text(&self) -> &str {
        &self.0.text
    }

    fn __repr__(&self) -> String {
        format!("Summary({:?})", self.0.text.chars().take(60).collect::<String>())
    }
}

/// An answer: a text, a [`Summary`], or an exception of ours or of time that says why there is none.
pub(crate) fn answer_arg(answer: &Bound<'_, PyAny>) -> PyResult<Result<condenser::Summary, SummarizeError>> {
    if let Ok(summary) = answer.cast::<Summary>() {
        return Ok(Ok(summary.get().0.clone()));
    }
    if let Ok(text) = answer.extract::<String>() {
        return Ok(Ok(condenser::Summary { text, ..condenser::Summary::default() }));
    }
    if answer.is_instance_of::<PyBaseException>() {
        return failed(&PyErr::from_value(answer.clone()), answer.py()).map(Err);
    }
    Err(InvalidInput::new_err("a summarizer answers with a text, a Summary, or an exception that says why it has none"))
}

/// An exception that says why there is no summary; any other is given back.
fn failed(error: &PyErr, py: Python<'_>) -> PyResult<SummarizeError> {
    if error.is_instance_of::<SummarizerError>(py) {
        Ok(SummarizeError::Failed(error.value(py).to_string()))
    } else if error.is_instance_of::<PyTimeoutError>(py) {
        Ok(SummarizeError::TimedOut)
    } else {
        Err(error.clone_ref(py))
    }
}

/// Who writes summaries, and what is raised there.
pub(crate) struct Summarizer {
    pub(crate) inner: Box<dyn condenser::Summarizer>,
    pub(crate) raised: Raised,
}

/// `"extractive"`, `"heuristic"`, or a function of a [`SummaryRequest`].
pub(crate) fn summarizer_arg(summarizer: &Bound<'_, PyAny>) -> PyResult<Summarizer> {
    let raised = Raised::default();
    if let Ok(name) = summarizer.extract::<String>() {
        let inner: Box<dyn condenser::Summarizer> = match name.as_str() {
            "extractive" => Box::new(Extractive::default()),
            "heuristic" => Box::new(Heuristic::default()),
            other => {
                return Err(InvalidInput::new_err(format!(
                    "unknown summarizer {other:?}; there are extractive, heuristic, and any function of a SummaryRequest"
                )));
            }
        };
        return Ok(Summarizer { inner, raised });
    }
    if !summarizer.is_callable() {
        return Err(InvalidInput::new_err("a summarizer is a name or a function of a SummaryRequest"));
    }
    let name = ["name", "__name__"].iter().find_map(|name| summarizer.getattr(*name).ok()?.extract::<String>().ok());
    let name = name.unwrap_or_else(|| "python".to_owned());
    let inner = Box::new(Function { name, function: summarizer.clone().unbind(), raised: raised.clone() });
    Ok(Summarizer { inner, raised })
}

/// A summarizer written in Python.
struct Function {
    name: String,
    function: Py<PyAny>,
    raised: Raised,
}

impl condenser::Summarizer for Function {
    fn name(&self) -> &str {
        &self.name
    }

    fn summarize(&self, request: &condenser::SummaryRequest) -> Result<condenser::Summary, SummarizeError> {
        self.raised.attempt(Err(SummarizeError::Cancelled), |py| {
            match self.function.bind(py).call1((SummaryRequest(request.clone()),)) {
                Ok(answer) => answer_arg(&answer),
                Err(error) => failed(&error, py).map(Err),
            }
        })
    }
}

/// Counts the SDK's messages by a function of the host.
struct HostCounter {
    count: Py<PyAny>,
    raised: Raised,
}

impl MessageCounter for HostCounter {
    fn tokens(&self, messages: &[ChatMessage], tools: &[Value]) -> i64 {
        let messages: Vec<Value> = messages.iter().map(message).collect();
        self.raised
            .attempt(0, |py| self.count.bind(py).call1((to_python(py, &messages)?, to_python(py, &tools)?))?.extract())
    }
}

/// A message with the SDK's names.
fn message(message: &ChatMessage) -> Value {
    let block = |block: &ContentBlock| match block {
        ContentBlock::Image { urls, .. } => json!({"type": "image", "image_urls": urls}),
        ContentBlock::Text { text, .. } => json!({"type": "text", "text": text}),
        other => json!(other),
    };
    json!({
        "role": message.role,
        "content": message.content.iter().map(block).collect::<Vec<_>>(),
        "tool_calls": message.tool_calls,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
        "reasoning_content": message.reasoning,
        "thinking_blocks": message.thinking,
    })
}
