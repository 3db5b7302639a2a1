//! What the page knows before a trace is opened.

use std::collections::{BTreeMap, BTreeSet};

use condenser::policy::Budget;
use condenser::profile::Prices;
use condenser::tokens::Tokens;
use condenser_harness::{Basis, Control, Row, RowKey, SavedRun, Status, charged, means};
use serde_json::{Value, json};

use crate::CanaryLine;
use crate::columns::{self, COLUMNS};
use crate::text::name;

/// The most characters of a policy's and a trace's name.
const MAX_POLICY: usize = 80;
const MAX_TRACE: usize = 200;

/// The numbers by which windows and policies are named in the data.
#[derive(Debug)]
pub(crate) struct Names {
    windows: Vec<Option<u64>>,
    policies: Vec<String>,
}

impl Names {
    /// Windows and policies in the order of the manifest, then those that only rows or canaries name.
    pub(crate) fn new(run: &SavedRun, canaries: &[CanaryLine]) -> Self {
        let mut windows: Vec<Option<u64>> = run.manifest.windows.iter().copied().map(Some).collect();
        let mut policies: Vec<String> = run.manifest.policies.iter().map(|policy| policy.name.clone()).collect();
        let of_rows = run.rows.iter().map(|row| (row.window, &row.policy));
        for (window, policy) in of_rows.chain(canaries.iter().map(|line| (Some(line.window), &line.policy))) {
            if !windows.contains(&window) {
                windows.push(window);
            }
            if !policies.contains(policy) {
                policies.push(policy.clone());
            }
        }
        Self { windows, policies }
    }

    pub(crate) fn window(&self, window: Option<u64>) -> Option<usize> {
        self.windows.iter().position(|it| *it == window)
    }

    /// The controls. No policy is held against them as an equal.
    fn controls(&self) -> Vec<usize> {
        let is_control = |name: &str| Control::named(name.split('(').next().unwrap_or(name)).is_some();
        let numbers = self.policies.iter().enumerate().filter(|(_, name)| is_control(name));
        numbers.map(|(number, _)| number).collect()
    }

    pub(crate) fn policy(&self, policy: &str) -> Option<usize> {
        self.policies.iter().position(|it| it == policy)
    }
}

/// The most that a request may hold.
fn limit(window: Option<u64>, reserve: u64) -> Option<u64> {
    let budget = Budget { window: window.map(Tokens), reserve: Tokens(reserve) };
    budget.limit().map(|limit| limit.0)
}

/// `950`, `12.3k`, `1.25M`.
fn tokens(n: u64) -> String {
    let trim = |number: f64, digits: usize| {
        format!("{number:.digits$}").trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{}k", trim(n as f64 / 1e3, 1)),
        _ => format!("{}M", trim(n as f64 / 1e6, 2)),
    }
}

/// What the run was made with, for the head of the page.
pub(crate) fn facts(run: &SavedRun) -> Vec<(&'static str, String)> {
    let manifest = &run.manifest;
    let windows: Vec<String> = manifest.windows.iter().map(|window| tokens(*window)).collect();
    let mut facts = vec![
        ("traces", run.traces.len().to_string()),
        ("policies", manifest.policies.len().to_string()),
        ("window", windows.join(", ")),
        ("reserve", tokens(manifest.reserve)),
        ("tokenizer", format!("{}{}", manifest.tokenizer, if manifest.is_estimate { " (an estimate)" } else { "" })),
        (
            "summarizer",
            format!("{}{}", manifest.summarizer, if manifest.is_model { "" } else { " (not an LLM summary)" }),
        ),
        ("recall", if manifest.recall { "on" } else { "off" }.to_owned()),
        ("rules", manifest.rules.clone()),
    ];
    if let Some(prices) = charged(&manifest.profile) {
        let Prices { input, cache_read, cache_write, output } = prices;
        facts.push((
            "profile",
            format!(
                "{}: USD per million tokens, input {input:.2}, cache read {cache_read:.2}, cache write {cache_write:.2}, \
                 output {output:.2}",
                manifest.profile.name
            ),
        ));
    } else {
        facts.push(("profile", format!("{} (without prices)", manifest.profile.name)));
    }
    facts.push(("version", format!("condenser {}", manifest.condenser)));
    facts.into_iter().map(|(fact, value)| (fact, name(&value, 200))).collect()
}

/// The document `data` of the page. `missing` says by trace why its events are not there.
pub(crate) fn data(run: &SavedRun, canaries: &[CanaryLine], names: &Names, missing: &[Option<String>]) -> Value {
    let prices = charged(&run.manifest.profile);
    let trace_numbers: BTreeMap<&str, usize> =
        run.traces.keys().enumerate().map(|(number, trace)| (trace.as_str(), number)).collect();
    let steps_of: BTreeMap<&str, u64> = run.rows.iter().map(|row| (row.trace.as_str(), row.steps)).collect();
    let traces: Vec<Value> = run
        .traces
        .values()
        .zip(missing)
        .map(|(facts, missing)| {
            json!({
                "name": name(&facts.trace, MAX_TRACE),
                "format": name(&facts.format, MAX_POLICY),
                "task": facts.task.as_deref().map(|task| name(task, MAX_POLICY)),
                "events": facts.events,
                "steps": steps_of.get(facts.trace.as_str()),
                "uses": facts.uses.len(),
                "condensed": facts.has_condensations,
                "missing": missing,
            })
        })
        .collect();
    let rows: Vec<Value> = run
        .rows
        .iter()
        .filter_map(|row| {
            let trace = trace_numbers.get(row.trace.as_str())?;
            let mut cells =
                vec![json!(trace), json!(names.window(row.window)), json!(names.policy(&row.policy)), json!(row.seed)];
            cells.extend(columns::row(row, prices.as_ref()));
            Some(Value::Array(cells))
        })
        .collect();
    let mut mean_rows = Vec::new();
    for (number, window) in names.windows.iter().enumerate() {
        let of_window: Vec<Row> = run.rows.iter().filter(|row| row.window == *window).cloned().collect();
        let no_prices = Prices { input: 0.0, cache_read: 0.0, cache_write: 0.0, output: 0.0 };
        for mean in means(&of_window, &prices.unwrap_or(no_prices)) {
            let mut cells = vec![Value::Null, json!(number), json!(names.policy(&mean.policy)), json!(0)];
            cells.extend(columns::mean(&mean, &of_window, prices.is_some()));
            mean_rows.push(Value::Array(cells));
        }
    }
    let bases: serde_json::Map<String, Value> = prices
        .map(|prices| {
            let mut bases: serde_json::Map<String, Value> =
                Basis::ALL.iter().map(|basis| (basis.name().to_owned(), json!(basis.prices(&prices)))).collect();
            bases.insert("profile".to_owned(), json!(prices));
            bases
        })
        .unwrap_or_default();
    json!({
        "columns": COLUMNS,
        "windows": names.windows.iter().map(|window| window.map_or("–".to_owned(), tokens)).collect::<Vec<_>>(),
        "policies": names.policies.iter().map(|policy| name(policy, MAX_POLICY)).collect::<Vec<_>>(),
        "limits": names.windows.iter().map(|window| limit(*window, run.manifest.reserve)).collect::<Vec<_>>(),
        "controls": names.controls(),
        "traces": traces,
        "rows": rows,
        "means": mean_rows,
        "bases": bases,
        "probes": probes(run, names),
        "canaries": planted(canaries, names),
    })
}

/// More condensations than this are counted as so many: some policies condense before every step.
const MAX_ROUND: u64 = 10;
/// More kinds of planted values than this are none that this program planted.
const MAX_KINDS: usize = 50;

/// By window, policy, kind and round: how many there are, in view, in a summary, recoverable and lost, and how many are
/// stale.
type Cells<'k> = BTreeMap<(Option<usize>, Option<usize>, &'k str, u64), [u64; 6]>;

fn cells(cells: &Cells<'_>) -> Vec<Value> {
    let cell = |(&(window, policy, kind, round), counts): (&(_, _, &str, _), &[u64; 6])| {
        let mut cell = vec![json!(window), json!(policy), json!(name(kind, 40)), json!(round)];
        cell.extend(counts.map(|count| json!(count)));
        Value::Array(cell)
    };
    cells.iter().map(cell).collect()
}

/// Answers of one kind after one number of condensations.
fn probes(run: &SavedRun, names: &Names) -> Vec<Value> {
    let mut found = Cells::new();
    for row in &run.rows {
        let Some(saved) = run.steps.get(&RowKey::of(row)) else { continue };
        for verdict in &saved.probes {
            let Some(step) = verdict.step else { continue };
            // A record is made before the request of its step.
            let round = saved.steps.records.partition_point(|record| *record <= step) as u64;
            let key = (names.window(row.window), names.policy(&row.policy), verdict.kind.name(), round.min(MAX_ROUND));
            let cell = found.entry(key).or_default();
            cell[0] += 1;
            cell[1 + Status::ALL.iter().position(|status| *status == verdict.status).unwrap_or_default()] += 1;
            cell[5] += u64::from(verdict.stale.is_failure());
        }
    }
    cells(&found)
}

/// The same of planted values.
fn planted(canaries: &[CanaryLine], names: &Names) -> Vec<Value> {
    let kinds: BTreeSet<&str> = canaries.iter().map(|line| line.kind.as_str()).collect();
    let mut found = Cells::new();
    for line in canaries.iter().filter(|line| line.n > 0 && kinds.len() <= MAX_KINDS) {
        let window = names.window(Some(line.window));
        let key = (window, names.policy(&line.policy), line.kind.as_str(), u64::from(line.round));
        let counts = [line.n, line.in_view, line.in_summary, line.recoverable, line.lost, line.stale];
        found.entry(key).or_default().iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    cells(&found)
}
