//! The condenser: the same steps without I/O as in Rust.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use condenser::condenser::OutcomeKind;
use condenser::profile::ModelProfile;
use condenser::{
    Bound as Limit, BudgetSettings, Failure, Policy, Rejection, Requirement, Sizer, Step, SummarizeError, Tokens,
};
use condenser_traces::Secrets;
use pyo3::prelude::*;

use crate::error::{CondenserError, InvalidInput, invalid};
use crate::event::{Condensation, Event};
use crate::policy::{Chosen, Raised, Summarizer, SummaryRequest, answer_arg, policy_arg, summarizer_arg};
use crate::to_python;
use crate::tokens::counter;
use crate::view::{Shot, View};

/// What a condensation is decided with.
struct Setup {
    policy: Chosen,
    fallbacks: Vec<Chosen>,
    counter: &'static dyn condenser::TokenCounter,
    budgets: BudgetSettings,
    profile: Option<ModelProfile>,
    secrets: Option<Secrets>,
    guards: bool,
    recall: bool,
}

impl Setup {
    /// Calls `decide` with the condenser, the policy and the state.
    fn on<T>(
        &self,
        shot: &Shot,
        rejection: Option<Rejection>,
        policies: &[&dyn Policy],
        decide: impl FnOnce(&condenser::Condenser<'_>, &dyn Policy, &condenser::State<'_>) -> T,
    ) -> Option<T> {
        let (policy, fallbacks) = policies.split_first()?;
        let sizer = Sizer::new(self.counter);
        let budgets = self.budgets.resolve(self.profile.as_ref());
        let mut state = condenser::State::with_budgets(&shot.view, shot, &sizer, budgets);
        state.recall = self.recall;
        state.reported = state.reported_size();
        if let Some(rejection) = rejection {
            state = state.rejected(rejection);
        }
        let redact = self.secrets.as_ref().map(|secrets| secrets as &dyn condenser::recall::Redact);
        let condenser =
            condenser::Condenser { guards: self.guards, redact, fallbacks, ..condenser::Condenser::default() };
        Some(decide(&condenser, *policy, &state))
    }

    fn chosen(&self) -> impl Iterator<Item = &Chosen> {
        std::iter::once(&self.policy).chain(&self.fallbacks)
    }

    fn policies(&self) -> Vec<&dyn Policy> {
        self.chosen().map(|chosen| &*chosen.policy).collect()
    }

    /// What any of the policies, or the summarizer, raised.
    fn check(&self, summarizer: Option<&Raised>) -> PyResult<()> {
        self.chosen().map(|chosen| &chosen.raised).chain(summarizer).try_for_each(Raised::check)
    }
}

/// Carries out what a policy decides, with all guarantees checked.
///
/// Numbers of `window` and `reserve` are tokens; the other budgets are tokens as an integer, or a share of the window
/// as a float. Without a window, and without a `profile` that names a model, nothing is limited by tokens.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct Condenser(Arc<Setup>);

fn bounds(bound: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<Limit>> {
    let Some(bound) = bound else { return Ok(Vec::new()) };
    if let Ok(tokens) = bound.extract::<u64>() {
        return Ok(vec![Limit::Tokens(Tokens(tokens))]);
    }
    match bound.extract::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(vec![Limit::Share(share)]),
        _ => Err(InvalidInput::new_err("a budget is a number of tokens, or a share of the window from 0.0 to 1.0")),
    }
}

/// The provider's refusal of the request as too long, with its limit where that is known.
fn rejection(too_long: bool, limit: Option<u64>) -> Option<Rejection> {
    (too_long || limit.is_some()).then_some(Rejection { limit: limit.map(Tokens) })
}

#[pymethods]
impl Condenser {
    #[new]
    #[pyo3(signature = (
        policy, *, window = None, reserve = None, request = None, trigger = None, retained = None,
        summary_input = None, summary_output = None, profile = None, tokenizer = "o200k", fallbacks = Vec::new(),
        guards = true, redact = true, recall = true
    ))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword")]
    fn py_new(
        policy: &Bound<'_, PyAny>,
        window: Option<u64>,
        reserve: Option<u64>,
        request: Option<&Bound<'_, PyAny>>,
        trigger: Option<&Bound<'_, PyAny>>,
        retained: Option<&Bound<'_, PyAny>>,
        summary_input: Option<&Bound<'_, PyAny>>,
        summary_output: Option<&Bound<'_, PyAny>>,
        profile: Option<&str>,
        tokenizer: &str,
        fallbacks: Vec<Bound<'_, PyAny>>,
        guards: bool,
        redact: bool,
        recall: bool,
    ) -> PyResult<Self> {
        let budgets = BudgetSettings {
            window: window.map(Tokens),
            reserve: reserve.map(Tokens),
            request: bounds(request)?,
            trigger: bounds(trigger)?,
            retained: bounds(retained)?,
            summary_input: bounds(summary_input)?,
            summary_output: bounds(summary_output)?,
            summarizer_window: None,
        };
        Ok(Self(Arc::new(Setup {
            policy: policy_arg(policy)?,
            fallbacks: fallbacks.iter().map(policy_arg).collect::<PyResult<_>>()?,
            counter: counter(tokenizer)?,
            budgets,
            profile: profile.map(condenser_models::profile).transpose().map_err(invalid)?,
            secrets: redact.then(Secrets::default),
            guards,
            recall,
        })))
    }

    /// The policy's name.
    #[getter]
    fn policy(&self) -> &str {
        self.0.policy.policy.name()
    }

    /// The budgets in force, each with `tokens`, `events` and `origin`.
    #[getter]
    fn budgets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.budgets.resolve(self.0.profile.as_ref()))
    }

    /// Runs a condensation to its end with a summarizer at hand: `extractive`, `heuristic`, or a function of a
    /// `SummaryRequest` that gives a text or a `Summary`. The view does not change: push `outcome.record.event(id)`.
    ///
    /// `too_long`, or `limit` in tokens: the provider refused this very request.
    #[pyo3(signature = (view, summarizer = None, *, too_long = false, limit = None))]
    fn run(
        &self,
        py: Python<'_>,
        view: &Bound<'_, View>,
        summarizer: Option<&Bound<'_, PyAny>>,
        too_long: bool,
        limit: Option<u64>,
    ) -> PyResult<Outcome> {
        let summarizer = or_extractive(py, summarizer)?;
        let shot = view.get().shot();
        shot.check_bodies()?;
        let outcome = py.detach(|| {
            self.0.on(&shot, rejection(too_long, limit), &self.0.policies(), |condenser, policy, state| {
                condenser.run(policy, state, &*summarizer.inner)
            })
        });
        self.0.check(Some(&summarizer.raised))?;
        outcome.map(Outcome).ok_or_else(no_policy)
    }

    /// Starts a condensation on the view as it stands: an `Outcome`, or a `NeedSummary` to be answered.
    ///
    /// `summarizer` is the name that the record gets.
    #[pyo3(signature = (view, *, summarizer = None, too_long = false, limit = None))]
    fn begin<'py>(
        &self,
        py: Python<'py>,
        view: &Bound<'_, View>,
        summarizer: Option<String>,
        too_long: bool,
        limit: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let shot = view.get().shot();
        shot.check_bodies()?;
        let memories = self.0.chosen().map(|chosen| Memory::of(&chosen.policy)).collect();
        let rejection = rejection(too_long, limit);
        Machine { setup: Arc::clone(&self.0), shot, rejection, memories, summarizer, answers: Vec::new() }.advance(py)
    }

    /// What this condenser would do beside a host that condenses by itself, and what the host did. Nothing is recorded.
    #[pyo3(signature = (view, host = None, summarizer = None))]
    fn shadow(
        &self,
        py: Python<'_>,
        view: &Bound<'_, View>,
        host: Option<&Bound<'_, Condensation>>,
        summarizer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<ShadowReport> {
        let summarizer = or_extractive(py, summarizer)?;
        let shot = view.get().shot();
        shot.check_bodies()?;
        let host = host.map(|host| &host.get().0);
        let report = py.detach(|| {
            self.0.on(&shot, None, &self.0.policies(), |condenser, policy, state| {
                condenser::shadow::shadow(condenser, policy, state, &*summarizer.inner, host)
            })
        });
        let mut report = report.ok_or_else(no_policy)?;
        if let Err(error) = self.0.check(Some(&summarizer.raised)) {
            report.ours = Err(error.to_string());
        }
        Ok(ShadowReport(report))
    }

    fn __repr__(&self) -> String {
        format!("Condenser({:?})", self.policy())
    }
}

fn or_extractive(py: Python<'_>, summarizer: Option<&Bound<'_, PyAny>>) -> PyResult<Summarizer> {
    match summarizer {
        Some(summarizer) => summarizer_arg(summarizer),
        None => summarizer_arg(pyo3::intern!(py, "extractive").as_any()),
    }
}

fn no_policy() -> PyErr {
    CondenserError::new_err("there is no policy")
}

/// A policy and what it decided so far: it is asked once for each decision, however often the steps are taken again.
struct Memory {
    policy: Arc<dyn Policy>,
    requirement: Mutex<Option<Requirement>>,
    plans: Mutex<Vec<Result<condenser::Plan, condenser::NoPlan>>>,
    next: AtomicUsize,
}

impl Memory {
    fn of(policy: &Arc<dyn Policy>) -> Self {
        Self {
            policy: Arc::clone(policy),
            requirement: Mutex::default(),
            plans: Mutex::default(),
            next: AtomicUsize::new(0),
        }
    }
}

impl Policy for Memory {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn requirement(&self, state: &condenser::State<'_>) -> Requirement {
        let mut known = self.requirement.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_with(|| self.policy.requirement(state)).clone()
    }

    fn plan(&self, state: &condenser::State<'_>, tried: &[Failure]) -> Result<condenser::Plan, condenser::NoPlan> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(plan) = plans.get(next) {
            return plan.clone();
        }
        let plan = self.policy.plan(state, tried);
        plans.push(plan.clone());
        plan
    }

    fn config_digest(&self) -> Option<String> {
        self.policy.config_digest()
    }

    fn is_port(&self) -> bool {
        self.policy.is_port()
    }
}

/// A condensation under way. A step borrows its state, which Python cannot, so that each answer takes the steps anew:
/// with the answers given so far and the decisions made so far they end where they ended before.
struct Machine {
    setup: Arc<Setup>,
    shot: Arc<Shot>,
    rejection: Option<Rejection>,
    memories: Vec<Memory>,
    summarizer: Option<String>,
    answers: Vec<Result<condenser::Summary, SummarizeError>>,
}

impl Machine {
    fn advance(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let reached = py.detach(|| {
            self.memories.iter().for_each(|memory| memory.next.store(0, Ordering::Relaxed));
            let policies: Vec<&dyn Policy> = self.memories.iter().map(|memory| memory as &dyn Policy).collect();
            self.setup.on(&self.shot, self.rejection, &policies, |condenser, policy, state| {
                let mut answers = self.answers.iter();
                let mut step = condenser.begin(policy, state);
                loop {
                    match step {
                        Step::Done(outcome) => return Err(Box::new(outcome)),
                        Step::NeedSummary(pending) => match answers.next() {
                            Some(answer) => step = pending.answer(answer.clone()),
                            None => return Ok(pending.request().clone()),
                        },
                    }
                }
            })
        });
        self.setup.check(None)?;
        match reached.ok_or_else(no_policy)? {
            Ok(request) => {
                let request = Py::new(py, SummaryRequest(request))?;
                Ok(Bound::new(py, NeedSummary { request, machine: Mutex::new(Some(self)) })?.into_any())
            }
            Err(mut outcome) => {
                if let OutcomeKind::Applied(record) = &mut outcome.result
                    && let Some(provenance) = &mut record.provenance
                    && provenance.summarizer_calls > 0
                {
                    provenance.summarizer = self.summarizer;
                }
                Ok(Bound::new(py, Outcome(*outcome))?.into_any())
            }
        }
    }
}

/// A condensation that waits for its summary. Dropping it records nothing.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct NeedSummary {
    request: Py<SummaryRequest>,
    machine: Mutex<Option<Machine>>,
}

#[pymethods]
impl NeedSummary {
    /// What the summarizer is asked.
    #[getter]
    fn request(&self, py: Python<'_>) -> Py<SummaryRequest> {
        self.request.clone_ref(py)
    }

    /// Goes on with the answer: a text, a `Summary`, or a `SummarizerError` or `TimeoutError` that says why there is
    /// none. The next step, or the `Outcome`.
    fn answer<'py>(&self, py: Python<'py>, answer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let answer = answer_arg(answer)?;
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut machine = machine.ok_or_else(|| CondenserError::new_err("this step has been answered"))?;
        machine.answers.push(answer);
        machine.advance(py)
    }

    fn __repr__(&self) -> &'static str {
        "NeedSummary()"
    }
}

/// How a condensation ended.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct Outcome(condenser::Outcome);

#[pymethods]
impl Outcome {
    /// `applied`, `nothing_to_do`, `no_gain`, `failed` or `unachievable`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.0.result {
            OutcomeKind::Applied(_) => "applied",
            OutcomeKind::NothingToDo => "nothing_to_do",
            OutcomeKind::NoGain => "no_gain",
            OutcomeKind::Unachievable { .. } => "unachievable",
            _ => "failed",
        }
    }

    /// The record, to be appended to the log; `None` where nothing was condensed.
    #[getter]
    fn record(&self) -> Option<Condensation> {
        match &self.0.result {
            OutcomeKind::Applied(record) => Some(Condensation((**record).clone())),
            _ => None,
        }
    }

    /// The size of the complete request before; `None` where there was no reason to look.
    #[getter]
    fn tokens(&self) -> Option<u64> {
        self.0.facts.tokens.map(|tokens| tokens.0)
    }

    /// What was tried and failed, oldest first.
    #[getter]
    fn tried(&self) -> Vec<String> {
        self.0.facts.tried.iter().map(ToString::to_string).collect()
    }

    /// Calls of the summarizer, failed ones included.
    #[getter]
    fn summarizer_calls(&self) -> u64 {
        self.0.facts.summarizer_calls
    }

    /// What came of it, from the facts.
    fn explain(&self) -> String {
        self.0.explain()
    }

    /// The event that says that an attempt came to nothing, to be appended so that it is not made again at once.
    fn refusal(&self, id: &str) -> Option<Event> {
        let kind = condenser::EventKind::CondensationFailed(self.0.refusal()?);
        Some(Event::own(condenser::Event::new(id, condenser::event::Source::Environment, kind)))
    }

    fn __repr__(&self) -> String {
        format!("Outcome({:?}: {})", self.kind(), self.0.explain())
    }
}

/// Our decision beside the host's.
#[pyclass(frozen, module = "condenser")]
pub(crate) struct ShadowReport(condenser::shadow::ShadowReport);

fn ids(ids: &std::collections::BTreeSet<condenser::EventId>) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

#[pymethods]
impl ShadowReport {
    /// How our condensation would have ended; `None` where it raised.
    #[getter]
    fn ours(&self) -> Option<Outcome> {
        self.0.ours.as_ref().ok().cloned().map(Outcome)
    }

    /// What was raised.
    #[getter]
    fn error(&self) -> Option<&str> {
        self.0.ours.as_ref().err().map(String::as_str)
    }

    /// The size of the complete request as it stands.
    #[getter]
    fn before(&self) -> u64 {
        self.0.before.0
    }

    /// Its size after our record; as it stands where we made none.
    #[getter]
    fn after_ours(&self) -> u64 {
        self.0.after_ours.0
    }

    /// Its size after the host's record; as it stands where it made none.
    #[getter]
    fn after_host(&self) -> u64 {
        self.0.after_host.0
    }

    /// What both would forget.
    #[getter]
    fn both(&self) -> Vec<String> {
        ids(&self.0.both)
    }

    /// What only we would forget.
    #[getter]
    fn only_ours(&self) -> Vec<String> {
        ids(&self.0.only_ours)
    }

    /// What only the host forgets.
    #[getter]
    fn only_host(&self) -> Vec<String> {
        ids(&self.0.only_host)
    }

    fn __repr__(&self) -> String {
        format!("ShadowReport({} before, {} ours, {} host)", self.before(), self.after_ours(), self.after_host())
    }
}
