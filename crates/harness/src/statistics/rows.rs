//! Rows of many runs, policy by policy against a baseline.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::Serialize;

use super::metric::{Metric, metric, metrics};
use super::{Difference, Paired, Resampling, deviation, difference, holm};
use crate::row::Row;

/// The level at which a difference is one.
const ALPHA: f64 = 0.05;

/// What rows are asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// The policy that the others are compared with.
    pub baseline: String,
    /// The metric that decides, named beforehand.
    pub primary: String,
    /// Further metrics that are tested; their p are adjusted together, after Holm.
    pub secondary: Vec<String>,
    /// Metrics that are looked at and not tested.
    pub exploratory: Vec<String>,
    /// Up to which difference of the primary metric two policies are equal. Without it nothing is called equal.
    pub margin: Option<f64>,
    /// How resampling is done.
    pub resampling: Resampling,
}

/// What a metric is in a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The one that decides.
    Primary,
    /// Tested, and adjusted with the others.
    Secondary,
    /// Not tested.
    Exploratory,
}

/// What a comparison came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The policy is better: primary, the interval leaves out 0; secondary, the adjusted p is below 0.05.
    Better,
    /// The policy is worse.
    Worse,
    /// The whole interval lies within the margin.
    Equal,
    /// This sample does not tell.
    Undecided,
    /// It was not tested.
    Untested,
}

/// One policy against the baseline, by one metric, under one window, tokenizer and summarizer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// The policy.
    pub policy: String,
    /// The metric.
    pub metric: String,
    /// What the metric is in this study.
    pub role: Role,
    /// The window.
    pub window: Option<u64>,
    /// The token counter.
    pub tokenizer: String,
    /// The summarizer.
    pub summarizer: String,
    /// The comparison; `None` where no trace has both values.
    pub difference: Option<Difference>,
    /// p, adjusted together with those of all secondary findings. `None` for other roles.
    pub p_adjusted: Option<f64>,
    /// What it came to.
    pub verdict: Verdict,
    /// Traces of the policy that the baseline does not have, or on which the metric has no value.
    pub unpaired: usize,
    /// Compared traces that name no task. Each is a task of its own.
    pub without_task: usize,
}

/// Why rows cannot be compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// There is no such metric.
    #[error("there is no metric {name:?}; known are {}", known_metrics())]
    UnknownMetric {
        /// As asked, cut to 60 characters.
        name: String,
    },
    /// A metric is named twice.
    #[error("the metric {name:?} is named twice; a metric is primary, secondary or exploratory")]
    NamedTwice {
        /// The metric.
        name: String,
    },
    /// No row is the baseline's.
    #[error("no row has the policy {name:?}; name one of {known} as the baseline")]
    NoBaseline {
        /// As asked, cut to 60 characters.
        name: String,
        /// The policies of the rows.
        known: String,
    },
    /// The margin is no margin.
    #[error("a margin is a number above 0, and not {0}")]
    Margin(f64),
}

fn known_metrics() -> String {
    metrics().map(|metric| metric.name).collect::<Vec<_>>().join(", ")
}

/// What rows have to share before they are compared.
type Setting<'r> = (Option<u64>, &'r str, &'r str);

fn setting(row: &Row) -> Setting<'_> {
    (row.window, &row.tokenizer, &row.summarizer)
}

/// Compares every policy of the rows with the baseline, by every metric of the study. Rows of one trace, policy and
/// setting (seeds, samples of a summarizer) are averaged first. Findings stand in the order of the metrics, then of
/// settings, then of policies as the rows first name them.
///
/// # Errors
/// [`StudyError`] where a name is not known.
pub fn compare_rows(rows: &[Row], study: &Study) -> Result<Vec<Finding>, StudyError> {
    if let Some(margin) = study.margin
        && !(margin > 0.0 && margin.is_finite())
    {
        return Err(StudyError::Margin(margin));
    }
    let metrics = named(study)?;
    let mut policies: Vec<&str> = Vec::new();
    rows.iter().for_each(|row| {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    });
    if !policies.contains(&study.baseline.as_str()) {
        let name = study.baseline.chars().take(60).collect();
        return Err(StudyError::NoBaseline { name, known: policies.join(", ") });
    }
    let mut by_policy: BTreeMap<(Setting<'_>, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by_policy.entry((setting(row), &row.policy)).or_default().push(row);
    }
    let settings: BTreeSet<Setting<'_>> = by_policy.keys().map(|(setting, _)| *setting).collect();
    let mut findings = Vec::new();
    for (role, metric) in metrics {
        for &setting in &settings {
            let of = |policy| by_policy.get(&(setting, policy)).map_or(&[][..], Vec::as_slice);
            for policy in policies.iter().filter(|policy| **policy != study.baseline) {
                if !of(*policy).is_empty() {
                    findings.push(finding(role, metric, setting, policy, of(&study.baseline), of(policy), study));
                }
            }
        }
    }
    adjust(&mut findings);
    Ok(findings)
}

fn named(study: &Study) -> Result<Vec<(Role, Metric)>, StudyError> {
    let primary = std::iter::once((Role::Primary, &study.primary));
    let others = study.secondary.iter().map(|name| (Role::Secondary, name));
    let named = primary.chain(others).chain(study.exploratory.iter().map(|name| (Role::Exploratory, name)));
    let mut seen = HashSet::new();
    named
        .map(|(role, name)| {
            if !seen.insert(name) {
                return Err(StudyError::NamedTwice { name: name.clone() });
            }
            let unknown = || StudyError::UnknownMetric { name: name.chars().take(60).collect() };
            metric(name).map(|metric| (role, metric)).ok_or_else(unknown)
        })
        .collect()
}

fn finding(
    role: Role,
    metric: Metric,
    setting: Setting<'_>,
    policy: &str,
    baseline: &[&Row],
    treated: &[&Row],
    study: &Study,
) -> Finding {
    let before = by_trace(baseline, metric);
    let after = by_trace(treated, metric);
    let n_traces = treated.iter().map(|row| row.trace.as_str()).collect::<HashSet<_>>().len();
    let mut without_task = 0;
    let mut pairs = Vec::new();
    for (trace, (task, values)) in &after {
        let Some((_, others)) = before.get(trace) else { continue };
        without_task += usize::from(task.is_none());
        pairs.push(Paired {
            // A trace without a task cannot meet a task of its name.
            task: task.map_or_else(|| format!("trace {trace}"), |task| format!("task {task}")),
            baseline: mean(others),
            value: mean(values),
        });
    }
    let difference = difference(&pairs, metric.better, study.resampling);
    let verdict = match (role, &difference) {
        (Role::Primary, Some(difference)) => of_interval(difference, metric, study.margin),
        (Role::Exploratory, _) => Verdict::Untested,
        _ => Verdict::Undecided,
    };
    Finding {
        policy: policy.to_owned(),
        metric: metric.name.to_owned(),
        role,
        window: setting.0,
        tokenizer: setting.1.to_owned(),
        summarizer: setting.2.to_owned(),
        unpaired: n_traces - pairs.len(),
        without_task,
        difference,
        p_adjusted: None,
        verdict,
    }
}

type Values<'r> = BTreeMap<&'r str, (Option<&'r str>, Vec<f64>)>;

fn by_trace<'r>(rows: &[&'r Row], metric: Metric) -> Values<'r> {
    let mut values: Values<'r> = BTreeMap::new();
    for row in rows {
        if let Some(value) = (metric.read)(row).filter(|value| value.is_finite()) {
            values.entry(&row.trace).or_insert_with(|| (row.task.as_deref(), Vec::new())).1.push(value);
        }
    }
    values
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn of_interval(difference: &Difference, metric: Metric, margin: Option<f64>) -> Verdict {
    let Some([low, high]) = difference.interval else { return Verdict::Undecided };
    if margin.is_some_and(|margin| low >= -margin && high <= margin) {
        Verdict::Equal
    } else if low <= 0.0 && high >= 0.0 {
        Verdict::Undecided
    } else {
        of_sign(low * metric.better.sign())
    }
}

fn of_sign(good: f64) -> Verdict {
    if good > 0.0 { Verdict::Better } else { Verdict::Worse }
}

/// Adjusts the secondary findings together and judges them.
fn adjust(findings: &mut [Finding]) {
    let p = |finding: &Finding| finding.difference.as_ref().and_then(|difference| difference.p);
    let mut tested: Vec<&mut Finding> =
        findings.iter_mut().filter(|finding| finding.role == Role::Secondary && p(finding).is_some()).collect();
    let ps: Vec<f64> = tested.iter().filter_map(|finding| p(finding)).collect();
    for (finding, adjusted) in tested.iter_mut().zip(holm(&ps)) {
        finding.p_adjusted = Some(adjusted);
        let mean = finding.difference.as_ref().map_or(0.0, |difference| difference.mean);
        if adjusted < ALPHA
            && let Some(metric) = metric(&finding.metric)
        {
            finding.verdict = of_sign(mean * metric.better.sign());
        }
    }
}

/// How far samples of one trace lie apart, beside how far traces do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The policy.
    pub policy: String,
    /// The metric.
    pub metric: String,
    /// The window.
    pub window: Option<u64>,
    /// The token counter.
    pub tokenizer: String,
    /// The summarizer.
    pub summarizer: String,
    /// Traces with at least two samples.
    pub n_traces: usize,
    /// Their samples, all together.
    pub n_samples: usize,
    /// The standard deviation between samples of a trace: the root of the mean variance, weighted by degrees of freedom.
    pub between_samples: f64,
    /// The standard deviation between the means of these traces; `None` for one trace.
    pub between_traces: Option<f64>,
}

/// The spread between samples: rows of the same trace, policy and setting, of several seeds or several samples on a
/// cassette. Policies without two samples of any trace are left out.
///
/// # Errors
/// [`StudyError::UnknownMetric`].
pub fn spread(rows: &[Row], name: &str) -> Result<Vec<Spread>, StudyError> {
    let unknown = || StudyError::UnknownMetric { name: name.chars().take(60).collect() };
    let metric = metric(name).ok_or_else(unknown)?;
    let mut groups: BTreeMap<(&str, Setting<'_>), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        groups.entry((&row.policy, setting(row))).or_default().push(row);
    }
    let mut spreads = Vec::new();
    for ((policy, (window, tokenizer, summarizer)), rows) in groups {
        let traces = by_trace(&rows, metric);
        let sampled: Vec<&Vec<f64>> = traces.values().map(|(_, values)| values).filter(|it| it.len() > 1).collect();
        if sampled.is_empty() {
            continue;
        }
        let n_samples: usize = sampled.iter().map(|values| values.len()).sum();
        let squares: f64 = sampled.iter().map(|values| deviation(values).powi(2) * (values.len() - 1) as f64).sum();
        let means: Vec<f64> = sampled.iter().map(|values| mean(values)).collect();
        spreads.push(Spread {
            policy: policy.to_owned(),
            metric: metric.name.to_owned(),
            window,
            tokenizer: tokenizer.to_owned(),
            summarizer: summarizer.to_owned(),
            n_traces: sampled.len(),
            n_samples,
            between_samples: (squares / (n_samples - sampled.len()) as f64).sqrt(),
            between_traces: (means.len() > 1).then(|| deviation(&means)),
        });
    }
    Ok(spreads)
}
