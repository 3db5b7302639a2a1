//! Recorded arms of the same tasks, side by side: what replay cannot tell, since here the agents really ran apart.

use std::collections::{BTreeMap, BTreeSet};

use condenser::event::{Event, EventKind};
use condenser::policy::{SummarizeError, Summarizer, Summary, SummaryRequest};
use condenser::profile::ModelProfile;
use condenser::tokens::Tokens;
use serde::Serialize;
use serde_json::Value;

use crate::replay::{Settings, run_recorded};
use crate::statistics::{Better, Difference, Paired, Resampling, difference};
use crate::trace::Prepared;

/// One recorded run.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// The task.
    pub task: String,
    /// The trace's name.
    pub trace: String,
    /// Its numbers.
    pub numbers: Numbers,
    /// By step: the calls, names and arguments.
    calls: Vec<Vec<(String, Value)>>,
}

/// What is compared between runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Numbers {
    /// Model responses.
    pub steps: u64,
    /// All requests together, as counted, with the recorded condensations applied.
    pub input_tokens: u64,
    /// What the agent wrote, as counted.
    pub output_tokens: u64,
    /// All input as the provider reported it. `None`: some step reports none.
    pub reported_input_tokens: Option<u64>,
    /// In US dollars, as counted, under the profile. `None`: the profile has no prices.
    pub cost_usd: Option<f64>,
    /// Actions that read again what had been read, with no write between.
    pub rereads: u64,
    /// Whether the task was solved, where that is known.
    pub resolved: Option<bool>,
}

/// Nothing is summarized where recorded condensations are applied.
struct Nobody;

impl Summarizer for Nobody {
    fn name(&self) -> &str {
        "none"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Err(SummarizeError::Failed("recorded runs are not summarized".to_owned()))
    }
}

impl Arm {
    /// Measures a recorded run. `resolved` overrides what the trace itself says.
    pub fn of(prepared: &Prepared<'_>, task: &str, profile: &ModelProfile, resolved: Option<bool>) -> Self {
        let settings =
            Settings { window: None, reserve: Tokens::ZERO, profile, summarizer: &Nobody, seed: 0, recall: false };
        let row = run_recorded(prepared, &settings).row;
        let reported = (0..prepared.n_steps()).map(|step| prepared.usage(step)?.total_input());
        let calls = prepared.steps.iter().map(|step| {
            let written = step.written.iter().map(|&event| &prepared.events[event].kind);
            written.filter_map(call).collect()
        });
        Self {
            task: task.to_owned(),
            trace: prepared.subject.trace.to_owned(),
            numbers: Numbers {
                steps: row.steps,
                input_tokens: row.input_tokens,
                output_tokens: row.output_tokens,
                reported_input_tokens: reported.sum::<Option<u64>>().filter(|_| row.steps > 0),
                cost_usd: row.cost_usd,
                rereads: row.rereads_exposed + row.rereads_habit,
                resolved: resolved.or_else(|| outcome(prepared.subject.events)),
            },
            calls: calls.collect(),
        }
    }
}

fn call(kind: &EventKind) -> Option<(String, Value)> {
    let EventKind::Action(action) = kind else { return None };
    let arguments = serde_json::from_str(&action.arguments).unwrap_or_else(|_| Value::String(action.arguments.clone()));
    Some((action.tool_name.clone(), arguments))
}

/// Whether a task was solved, as evaluations write it beside a trace: `resolved`, in the row or in its report.
fn outcome(events: &[Event]) -> Option<bool> {
    const PLACES: [&str; 4] =
        ["/resolved", "/report/resolved", "/test_result/resolved", "/test_result/report/resolved"];
    events.iter().find_map(|event| {
        let EventKind::Unknown(unknown) = &event.kind else { return None };
        PLACES.iter().find_map(|place| unknown.payload.pointer(place)?.as_bool())
    })
}

/// Two runs of one task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The task.
    pub task: String,
    /// The first arm's trace.
    pub trace_a: String,
    /// The second arm's trace.
    pub trace_b: String,
    /// The first arm's numbers.
    pub a: Numbers,
    /// The second arm's numbers.
    pub b: Numbers,
    /// The first step, counted from 1, whose calls differ in name or arguments, or that only one arm has. `None`: all
    /// calls are the same.
    pub first_divergent_step: Option<u64>,
}

/// The pairs of two arms, and what has no partner.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pairs {
    /// By task. Several runs of a task are paired in the order of their names.
    pub pairs: Vec<Pair>,
    /// Traces of the first arm without a partner.
    pub only_a: Vec<String>,
    /// Traces of the second arm without a partner.
    pub only_b: Vec<String>,
}

/// Pairs the runs of two arms by task.
pub fn pair(a: Vec<Arm>, b: Vec<Arm>) -> Pairs {
    let (mut a, mut b) = (by_task(a), by_task(b));
    let tasks: BTreeSet<String> = a.keys().chain(b.keys()).cloned().collect();
    let mut pairs = Pairs::default();
    for task in tasks {
        let mut of_a = a.remove(&task).unwrap_or_default().into_iter();
        let mut of_b = b.remove(&task).unwrap_or_default().into_iter();
        loop {
            match (of_a.next(), of_b.next()) {
                (Some(a), Some(b)) => pairs.pairs.push(Pair {
                    task: task.clone(),
                    first_divergent_step: first_divergent_step(&a.calls, &b.calls),
                    trace_a: a.trace,
                    trace_b: b.trace,
                    a: a.numbers,
                    b: b.numbers,
                }),
                (Some(a), None) => pairs.only_a.push(a.trace),
                (None, Some(b)) => pairs.only_b.push(b.trace),
                (None, None) => break,
            }
        }
    }
    pairs
}

fn by_task(arms: Vec<Arm>) -> BTreeMap<String, Vec<Arm>> {
    let mut tasks: BTreeMap<String, Vec<Arm>> = BTreeMap::new();
    arms.into_iter().for_each(|arm| tasks.entry(arm.task.clone()).or_default().push(arm));
    tasks.values_mut().for_each(|arms| arms.sort_by(|a, b| a.trace.cmp(&b.trace)));
    tasks
}

fn first_divergent_step<T: PartialEq>(a: &[T], b: &[T]) -> Option<u64> {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    (same < a.len().max(b.len())).then_some(same as u64 + 1)
}

/// One number of all pairs, second arm less first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contrast {
    /// The number's name in [`Numbers`].
    pub metric: &'static str,
    /// The comparison, over the pairs that have it on both sides; `None` where none has.
    pub difference: Option<Difference>,
}

type Read = fn(&Numbers) -> Option<f64>;

const CONTRASTS: [(&str, Better, Read); 7] = [
    ("steps", Better::Lower, |it| Some(it.steps as f64)),
    ("input_tokens", Better::Lower, |it| Some(it.input_tokens as f64)),
    ("output_tokens", Better::Lower, |it| Some(it.output_tokens as f64)),
    ("reported_input_tokens", Better::Lower, |it| it.reported_input_tokens.map(|tokens| tokens as f64)),
    ("cost_usd", Better::Lower, |it| it.cost_usd),
    ("rereads", Better::Lower, |it| Some(it.rereads as f64)),
    ("resolved", Better::Higher, |it| it.resolved.map(|resolved| f64::from(u8::from(resolved)))),
];

/// Compares the arms number by number, with whole tasks resampled.
pub fn contrast(pairs: &[Pair], resampling: Resampling) -> Vec<Contrast> {
    let of = |(metric, better, read): &(&'static str, Better, Read)| {
        let values = pairs.iter().filter_map(|pair| {
            Some(Paired { task: pair.task.clone(), baseline: read(&pair.a)?, value: read(&pair.b)? })
        });
        Contrast { metric, difference: difference(&values.collect::<Vec<_>>(), *better, resampling) }
    };
    CONTRASTS.iter().map(of).collect()
}
