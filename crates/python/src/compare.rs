//! Comparisons of policies on traces.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use condenser::Tokens;
use condenser::profile::ModelProfile;
use condenser_harness::{Choice, Control, Prepared, Row, Settings, Subject, charged};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::error::{CondenserError, InvalidInput, invalid};
use crate::policy::{Chosen, Raised, policy_arg, summarizer_arg};
use crate::to_python;
use crate::tokens::counter;
use crate::trace::Trace;
use crate::view::rules_arg;

/// What is run, and what its Python code raised.
fn choice_arg(policy: &Bound<'_, PyAny>) -> PyResult<(Choice, Raised)> {
    let control = policy.extract::<String>().ok().and_then(|name| Control::named(&name));
    Ok(match control {
        Some(control) => (Choice::Control(control), Raised::default()),
        None => {
            let Chosen { policy, raised } = policy_arg(policy)?;
            (Choice::Policy(policy), raised)
        }
    })
}

/// How often a running comparison looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

fn profile_arg(name: &str) -> PyResult<ModelProfile> {
    condenser_models::profile(name).map_err(invalid)
}

/// Replays traces under policies: a row for each trace, window, policy and seed, in this order.
#[pyfunction]
#[pyo3(signature = (
    traces, policies, *, windows, reserve, tokenizer, profile, summarizer, rules, recall, seeds, jobs
))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword")]
pub(crate) fn compare<'py>(
    py: Python<'py>,
    traces: Vec<Bound<'py, Trace>>,
    policies: Vec<Bound<'py, PyAny>>,
    windows: Vec<u64>,
    reserve: u64,
    tokenizer: &str,
    profile: &str,
    summarizer: &Bound<'py, PyAny>,
    rules: &str,
    recall: bool,
    seeds: u64,
    jobs: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let (choices, raised): (Vec<Choice>, Vec<Raised>) =
        policies.iter().map(choice_arg).collect::<PyResult<Vec<_>>>()?.into_iter().unzip();
    let summarizer = summarizer_arg(summarizer)?;
    let counter = counter(tokenizer)?;
    let profile = profile_arg(profile)?;
    let rules = rules_arg(rules)?;
    let traces: Vec<_> = traces.iter().map(|trace| Arc::clone(&trace.get().0)).collect();
    let runs: Vec<(u64, &Choice, u64)> = windows
        .iter()
        .flat_map(|&window| choices.iter().map(move |choice| (window, choice)))
        .flat_map(|(window, choice)| {
            (0..if choice.draws() { seeds } else { 1 }).map(move |seed| (window, choice, seed))
        })
        .collect();
    let threads = rayon::ThreadPoolBuilder::new().num_threads(jobs).build();
    let threads = threads.map_err(|error| CondenserError::new_err(error.to_string()))?;
    let is_interrupted = AtomicBool::new(false);
    let work = || -> Vec<Row> {
        let of_trace = |trace: &Arc<condenser_traces::Trace>| {
            let subject = Subject {
                trace: &trace.name,
                format: trace.format,
                task: trace.task.as_deref(),
                events: &trace.events,
            };
            let prepared = Prepared::new(subject, counter, rules);
            let row = |&(window, choice, seed): &(u64, &Choice, u64)| {
                if is_interrupted.load(Ordering::Relaxed) {
                    return None;
                }
                let settings = Settings {
                    window: Some(Tokens(window)),
                    reserve: Tokens(reserve),
                    profile: &profile,
                    summarizer: &*summarizer.inner,
                    seed,
                    recall,
                };
                Some(choice.replay(&prepared, &settings, None, None).row)
            };
            runs.par_iter().filter_map(row).collect::<Vec<Row>>()
        };
        threads.install(|| traces.par_iter().map(of_trace).flatten_iter().collect())
    };
    let rows = py.detach(|| until_interrupted(work, &is_interrupted))?;
    summarizer.raised.check()?;
    raised.iter().try_for_each(Raised::check)?;
    to_python(py, &rows)
}

/// Does the work on a thread of its own, and looks for Ctrl-C meanwhile. Rows that have begun are still finished then.
fn until_interrupted<T: Send>(work: impl FnOnce() -> T + Send, is_interrupted: &AtomicBool) -> PyResult<T> {
    std::thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        let worker = scope.spawn(move || {
            let result = work();
            // Nobody waits any more after an interruption.
            let _ = done.send(());
            result
        });
        let mut interruption = Ok(());
        while interruption.is_ok() && is_done.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
            interruption = Python::attach(|py| py.check_signals());
            is_interrupted.store(interruption.is_err(), Ordering::Relaxed);
        }
        let result = worker.join();
        interruption?;
        result.map_err(|_| CondenserError::new_err("the comparison came to an unexpected end"))
    })
}

/// Means over the traces of each policy, from rows; costs on the bases `uncached`, `discount` and `tiered`.
#[pyfunction]
pub(crate) fn means<'py>(py: Python<'py>, rows: &Bound<'py, PyAny>, profile: &str) -> PyResult<Bound<'py, PyAny>> {
    let rows: Vec<Row> = pythonize::depythonize(rows).map_err(invalid)?;
    let prices = charged(&profile_arg(profile)?)
        .ok_or_else(|| InvalidInput::new_err(format!("profile {profile:?} has no prices")))?;
    let means: Vec<_> = condenser_harness::means(&rows, &prices)
        .into_iter()
        .map(|mean| {
            serde_json::json!({
                "policy": mean.policy, "traces": mean.n, "fired": mean.fired, "peak_tokens": mean.peak_tokens,
                "input_tokens": mean.input_tokens, "cached_share": mean.cached_share, "cost_uncached": mean.cost[0],
                "cost_discount": mean.cost[1], "cost_tiered": mean.cost[2], "cost_usd": mean.cost_usd,
                "in_view": mean.in_view, "in_view_or_summary": mean.in_view_or_summary,
                "recoverable": mean.recoverable, "far_in_view": mean.far_in_view,
                "rereads_exposed": mean.rereads_exposed, "over_window_steps": mean.over_window_steps,
                "failed_condensations": mean.failed_condensations, "invalid_requests": mean.invalid_requests,
            })
        })
        .collect();
    to_python(py, &means)
}
