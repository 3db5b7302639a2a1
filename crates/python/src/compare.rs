//! Comparisons of policies on traces.

use std::sync::Arc;

use condenser::Tokens;
use condenser::profile::ModelProfile;
use condenser_harness::{
    ForgetAll, Prepared, RandomForgetting, RandomMasking, Row, Settings, Subject, charged, run, run_recorded,
};
use condenser_policies::{ObservationMasking, RecentEvents};
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::error::{CondenserError, InvalidInput, invalid};
use crate::policy::{Chosen, policy_arg, summarizer_arg};
use crate::to_python;
use crate::tokens::counter;
use crate::trace::Trace;
use crate::view::rules_arg;

/// What is run: a policy, or a control.
enum Choice {
    Policy(Chosen),
    ForgetAll,
    RandomMasking,
    RandomForgetting,
    Recorded,
}

impl Choice {
    fn of(policy: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(match policy.extract::<String>().as_deref() {
            Ok("forget-all") => Self::ForgetAll,
            Ok("random-masking") => Self::RandomMasking,
            Ok("random-forgetting") => Self::RandomForgetting,
            Ok("recorded") => Self::Recorded,
            _ => Self::Policy(policy_arg(policy)?),
        })
    }

    fn row(&self, prepared: &Prepared<'_>, settings: &Settings<'_>) -> Row {
        let seed = settings.seed;
        match self {
            Self::Policy(chosen) => run(prepared, &*chosen.policy, settings),
            Self::ForgetAll => run(prepared, &ForgetAll, settings),
            Self::RandomMasking => {
                let matched = run(prepared, &ObservationMasking::default(), settings);
                run(prepared, &RandomMasking::matching(prepared, &matched, seed), settings)
            }
            Self::RandomForgetting => {
                let matched = run(prepared, &RecentEvents::default(), settings);
                run(prepared, &RandomForgetting::matching(prepared, &matched, seed), settings)
            }
            Self::Recorded => run_recorded(prepared, settings),
        }
        .row
    }

    fn draws(&self) -> bool {
        matches!(self, Self::RandomMasking | Self::RandomForgetting)
    }
}

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
    let choices = policies.iter().map(Choice::of).collect::<PyResult<Vec<_>>>()?;
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
    let rows: Vec<Row> = py.detach(|| {
        let of_trace = |trace: &Arc<condenser_traces::Trace>| {
            let subject = Subject {
                trace: &trace.name,
                format: trace.format,
                task: trace.task.as_deref(),
                events: &trace.events,
            };
            let prepared = Prepared::new(subject, counter, rules);
            let row = |&(window, choice, seed): &(u64, &Choice, u64)| {
                let settings = Settings {
                    window: Some(Tokens(window)),
                    reserve: Tokens(reserve),
                    profile: &profile,
                    summarizer: &*summarizer.inner,
                    seed,
                    recall,
                };
                choice.row(&prepared, &settings)
            };
            runs.par_iter().map(row).collect::<Vec<Row>>()
        };
        threads.install(|| traces.par_iter().map(of_trace).flatten_iter().collect())
    });
    summarizer.raised.check()?;
    for choice in &choices {
        if let Choice::Policy(chosen) = choice {
            chosen.raised.check()?;
        }
    }
    to_python(py, &rows)
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
