//! Conditions under which a comparison fails a build.

use std::collections::HashMap;
use std::path::PathBuf;

use condenser_harness::probes::{ProbeKind, Verdict};
use condenser_harness::statistics::{metric, metrics};
use condenser_harness::{Manifest, Row, RowKey, SavedRun, SavedSteps, Status, TraceFacts};
use condenser_policies::nearest;
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::commands::compare::{metric_names, read_error};
use crate::error::CliError;
use crate::output::Output;
use crate::terminal::{note, printable};

/// Rows that are named per condition before the others are counted.
const SHOWN_ROWS: usize = 20;
/// What has to hold against a baseline where nothing else is asked for.
const AGAINST_BASELINE: [&str; 2] = ["change(evidence_lost)>0", "change(invalid_requests)>0"];

#[derive(clap::Args, Debug)]
pub(crate) struct GateArguments {
    /// Exit with 1 where a row fulfils this, as `invalid_requests>0`, `in_view<0.8`, `lost(constraint)>0` (probes of a
    /// kind) or `change(cost_usd)>0.05` (against --baseline). May be repeated.
    #[arg(long, value_name = "CONDITION")]
    fail_on: Vec<String>,
    /// An earlier run. Without --fail-on, more lost evidence and more invalid requests than there fail.
    #[arg(long, value_name = "FOLDER")]
    baseline: Option<PathBuf>,
    /// Write what passed and what failed as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

impl GateArguments {
    /// Whether nothing is asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.fail_on.is_empty() && self.baseline.is_none() && self.junit.is_none()
    }
}

/// The conditions, with all that they need.
pub(crate) struct Gate {
    conditions: Vec<Condition>,
    baseline: Option<HashMap<RowKey, Row>>,
    junit: Option<PathBuf>,
}

/// Whether a value stands to a bound as an operator says.
type Compares = fn(f64, f64) -> bool;

struct Condition {
    text: String,
    of: Of,
    compares: Compares,
    bound: f64,
}

enum Of {
    Metric(&'static str),
    Change(&'static str),
    Probes(ProbeKind),
}

/// What a condition says of a row.
struct Found {
    value: f64,
    /// Where it shows first.
    place: Option<String>,
}

impl Gate {
    /// Reads the conditions, and the run that they compare with.
    pub(crate) fn read(arguments: &GateArguments, manifest: &Manifest) -> Result<Self, CliError> {
        let mut texts: Vec<&str> = arguments.fail_on.iter().map(String::as_str).collect();
        if texts.is_empty() && arguments.baseline.is_some() {
            texts.extend(AGAINST_BASELINE);
        }
        let conditions: Vec<Condition> =
            texts.into_iter().map(Condition::parse).collect::<Result<_, _>>().map_err(CliError::Usage)?;
        for condition in &conditions {
            let missing = match condition.of {
                Of::Change(_) if arguments.baseline.is_none() => "--baseline",
                Of::Probes(_) if manifest.probes.is_none() => "--probes",
                _ => continue,
            };
            return Err(CliError::Usage(format!("`{}` needs {missing}", condition.text)));
        }
        let baseline = arguments.baseline.as_deref().map(SavedRun::open).transpose().map_err(read_error)?;
        if let Some(run) = &baseline
            && let Some(field) = manifest.other_measure(&run.manifest)
        {
            let path = run.path.display();
            return Err(CliError::Usage(format!("{path}: this baseline was made with another `{field}`")));
        }
        let baseline = baseline.map(|run| run.rows.into_iter().map(|row| (RowKey::of(&row), row)).collect());
        Ok(Self { conditions, baseline, junit: arguments.junit.clone() })
    }

    /// Holds a run against the conditions, says what fails, and writes the report. Whether all passed.
    pub(crate) fn judge(&self, run: &SavedRun) -> Result<bool, CliError> {
        let mut report = Report::new("condenser compare");
        let mut passed = true;
        for condition in &self.conditions {
            let mut suite = TestSuite::new(condition.text.clone());
            let (mut n_failed, mut n_judged) = (0, 0);
            for row in &run.rows {
                let Some(found) = self.found(condition, row, run) else { continue };
                n_judged += 1;
                let name = format!("{}{}", row.policy, window(row));
                let mut status = TestCaseStatus::success();
                if (condition.compares)(found.value, condition.bound) {
                    n_failed += 1;
                    let place = found.place.map_or_else(String::new, |place| format!(", {place}"));
                    let message = format!("{}: {name}: {} is {}{place}", row.trace, condition.what(), found.value);
                    if n_failed <= SHOWN_ROWS {
                        note(&format!("failed: {}: {}", condition.text, printable(&message)));
                    }
                    status = TestCaseStatus::non_success(NonSuccessKind::Failure);
                    status.set_message(message);
                }
                let mut case = TestCase::new(name, status);
                case.set_classname(row.trace.clone());
                suite.add_test_case(case);
            }
            if n_failed > SHOWN_ROWS {
                note(&format!("failed: {}: {} more rows", condition.text, n_failed - SHOWN_ROWS));
            }
            if n_judged > 0 && n_judged < run.rows.len() {
                let n_left_out = run.rows.len() - n_judged;
                note(&format!("{}: {n_left_out} rows could not be held against it", condition.text));
            }
            if n_judged == 0 {
                // A condition that nothing was held against did not pass.
                passed = false;
                note(&format!("failed: {}: no row could be held against it", condition.text));
            }
            passed &= n_failed == 0;
            report.add_test_suite(suite);
        }
        if let Some(path) = &self.junit {
            let mut output = Output::open(Some(path.clone()))?;
            let text = report.to_string().map_err(|error| CliError::Input(error.to_string()))?;
            output.text(&text)?;
            output.finish()?;
        }
        Ok(passed)
    }

    fn found(&self, condition: &Condition, row: &Row, run: &SavedRun) -> Option<Found> {
        let key = RowKey::of(row);
        let (facts, saved) = (run.traces.get(&row.trace), run.steps.get(&key));
        match condition.of {
            Of::Metric(name) => Some(Found { value: metric(name)?.of(row)?, place: lost(name, facts, saved) }),
            Of::Change(name) => {
                let before = metric(name)?.of(self.baseline.as_ref()?.get(&key)?)?;
                let value = metric(name)?.of(row)? - before;
                Some(Found { value, place: lost(name, facts, saved) })
            }
            Of::Probes(kind) => {
                let verdicts: Vec<&Verdict> = saved?.probes.iter().filter(|verdict| verdict.kind == kind).collect();
                let failed: Vec<&&Verdict> = verdicts.iter().filter(|verdict| !verdict.passes()).collect();
                let place = failed.first().map(|verdict| format!("the first of them `{}`", verdict.probe));
                (!verdicts.is_empty()).then_some(Found { value: failed.len() as f64, place })
            }
        }
    }
}

/// The first step at which evidence was lost, and what it was.
fn lost(name: &str, facts: Option<&TraceFacts>, saved: Option<&SavedSteps>) -> Option<String> {
    let is_far = name.contains("far");
    if !name.contains("lost") && !name.contains("in_view") {
        return None;
    }
    let mut uses = facts?.uses.iter().zip(saved?.steps.uses.chars());
    let (found, _) = uses.find(|(found, letter)| *letter == Status::Lost.letter() && (found.far || !is_far))?;
    Some(format!("the first at step {}: `{}`, from event {}", found.step + 1, found.item, found.source))
}

fn window(row: &Row) -> String {
    let window = row.window.map_or_else(String::new, |window| format!(", window {window}"));
    if row.seed > 0 { format!("{window}, seed {}", row.seed) } else { window }
}

impl Condition {
    fn what(&self) -> &str {
        self.text.split(['<', '>', '=', '!']).next().unwrap_or_default().trim()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let shown: String = text.chars().take(80).collect();
        let explain = || format!("`{shown}` is no condition; one is like `invalid_requests>0` or `lost(constraint)>0`");
        let operators: [(&str, Compares); 6] = [
            (">=", |a, b| a >= b),
            ("<=", |a, b| a <= b),
            ("==", |a, b| a == b),
            ("!=", |a, b| a != b),
            (">", |a, b| a > b),
            ("<", |a, b| a < b),
        ];
        let at = |(operator, compares): (&'static str, Compares)| {
            text.split_once(operator).map(|(name, bound)| (name.trim(), bound.trim(), compares))
        };
        let (name, bound, compares) = operators.into_iter().find_map(at).ok_or_else(explain)?;
        let bound: f64 = bound.parse().ok().filter(|bound: &f64| bound.is_finite()).ok_or_else(explain)?;
        let inside = |prefix: &str| name.strip_prefix(prefix)?.strip_prefix('(')?.strip_suffix(')').map(str::trim);
        let known = |name: &str| match metric(name) {
            Some(metric) => Ok(metric.name),
            None => Err(match nearest(name, metrics().map(|metric| metric.name)) {
                Some(nearest) => format!("`{shown}`: unknown metric; did you mean `{nearest}`?"),
                None => format!("`{shown}`: unknown metric; there are {}", metric_names()),
            }),
        };
        let of = if let Some(kind) = inside("lost") {
            let kinds = ProbeKind::ALL;
            let found = kinds.into_iter().find(|known| known.name() == kind);
            Of::Probes(found.ok_or_else(|| {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                format!("`{shown}`: unknown kind of probe; there are {}", names.join(", "))
            })?)
        } else if let Some(name) = inside("change") {
            Of::Change(known(name)?)
        } else {
            Of::Metric(known(name)?)
        };
        Ok(Self { text: shown, of, compares, bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_a_metric_with_a_number() {
        for (text, value, holds) in [
            ("invalid_requests>0", 1.0, true),
            ("invalid_requests > 0", 0.0, false),
            ("in_view<0.8", 0.8, false),
            ("in_view<=0.8", 0.8, true),
            ("change(cost_usd)>=-0.5", -0.5, true),
            ("lost(constraint)>0", 2.0, true),
            ("evidence_lost!=3", 3.0, false),
            ("evidence_lost==3", 3.0, true),
        ] {
            let condition = Condition::parse(text).map_err(|error| panic!("{error}")).unwrap();
            assert_eq!((condition.compares)(value, condition.bound), holds, "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused_with_a_way_out() {
        for (text, said) in [
            ("invalid_requests", "is no condition"),
            ("invalid_requests>many", "is no condition"),
            ("invalid_request>0", "did you mean `invalid_requests`?"),
            ("lost(rules)>0", "there are"),
            ("change(cost)>0", "unknown metric"),
        ] {
            let error = Condition::parse(text).err().unwrap();
            assert!(error.contains(said), "{error}");
        }
    }
}
