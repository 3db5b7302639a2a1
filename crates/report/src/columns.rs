//! The columns of the comparison, in the words of the command's tables.

use condenser::profile::Prices;
use condenser_harness::{Basis, PolicyMeans, Row};
use serde::Serialize;
use serde_json::{Value, json};

/// A column: how it is called, what it says, in which unit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Column {
    pub(crate) label: &'static str,
    /// In the table of means, where it is called otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean: Option<&'static str>,
    pub(crate) unit: Unit,
    /// The prices it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) basis: Option<&'static str>,
    pub(crate) about: &'static str,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Records of a row; of means, the rows in which the policy acted.
    Fired,
    Tokens,
    Share,
    Dollars,
    Count,
}

const fn column(label: &'static str, unit: Unit, about: &'static str) -> Column {
    Column { label, mean: None, unit, basis: None, about }
}

const fn cost(label: &'static str, basis: &'static str, about: &'static str) -> Column {
    Column { label, mean: None, unit: Unit::Dollars, basis: Some(basis), about }
}

/// The columns, in the order of the command's tables. Those after policy and window.
pub(crate) const COLUMNS: [Column; 16] = [
    Column {
        mean: Some("fired on"),
        ..column("records", Unit::Fired, "condensations; a dash where the policy never acted")
    },
    column("peak", Unit::Tokens, "tokens of the largest request"),
    column("input", Unit::Tokens, "tokens of all requests together"),
    column("cached", Unit::Share, "share of the input that the prefix cache held"),
    cost("$ uncached", "uncached", "all input at the full price"),
    cost("$ discount", "discount", "cached input at a tenth, the rest at the full price"),
    cost("$ tiered", "tiered", "cached input at a tenth, the rest at the full price and a quarter"),
    cost("$ profile", "profile", "under the run's profile"),
    column("in view", Unit::Share, "of what an action used, the share that its request showed outside summaries"),
    column("+ summary", Unit::Share, "the same, or in a summary"),
    column("recoverable", Unit::Share, "of what an action used, the share behind an address in the request"),
    column("far in view", Unit::Share, "in view, of what the agent had seen five steps back or more"),
    column("re-reads", Unit::Count, "reads of what the policy had removed"),
    column("over", Unit::Count, "steps whose request was larger than the window less the reserve"),
    column("failed", Unit::Count, "condensations that came to nothing"),
    column("invalid", Unit::Count, "checked requests that break a rule of the API"),
];

fn share(part: u64, whole: u64) -> Value {
    if whole > 0 { rounded(part as f64 / whole as f64, 1e5) } else { Value::Null }
}

/// Fewer digits, and never up to a whole that is not reached.
fn rounded(number: f64, digits: f64) -> Value {
    let cut = (number * digits).round() / digits;
    json!(if cut == 1.0 && number < 1.0 { 1.0 - 1.0 / digits } else { cut })
}

fn dollars(cost: Option<f64>) -> Value {
    cost.map_or(Value::Null, |cost| rounded(cost, 1e6))
}

/// The cells of a row, and then what its cost is made of.
pub(crate) fn row(row: &Row, prices: Option<&Prices>) -> Vec<Value> {
    let mut cells = vec![json!(row.condensations), json!(row.peak_tokens), json!(row.input_tokens)];
    cells.push(share(row.cached_tokens, row.input_tokens));
    cells.extend(Basis::ALL.map(|basis| dollars(prices.map(|prices| row.price(&basis.prices(prices))))));
    cells.push(dollars(row.cost_usd));
    cells.push(share(row.evidence_in_view, row.evidence_total));
    cells.push(share(row.evidence_in_view + row.evidence_in_summary, row.evidence_total));
    cells.push(share(row.evidence_recoverable, row.evidence_total));
    cells.push(share(row.evidence_far_in_view, row.evidence_far_total));
    let counts = [row.rereads_exposed, row.over_window_steps, row.failed_condensations, row.invalid_requests];
    cells.extend(counts.map(|count| json!(count)));
    cells.extend(parts(row).map(|tokens| json!(tokens)));
    cells
}

/// Tokens that are charged: cached input, other input, output, the summarizer's input and output.
fn parts(row: &Row) -> [u64; 5] {
    [
        row.cached_tokens,
        row.input_tokens.saturating_sub(row.cached_tokens),
        row.output_tokens,
        row.summarizer_input_tokens,
        row.summarizer_output_tokens,
    ]
}

/// The cells of a policy's means over `rows`, which are its own.
pub(crate) fn mean(mean: &PolicyMeans, rows: &[Row], has_prices: bool) -> Vec<Value> {
    let mut cells = vec![json!([mean.fired, mean.n])];
    cells.extend([mean.peak_tokens, mean.input_tokens].map(|tokens| json!(tokens.round())));
    let share = |share: Option<f64>| share.map_or(Value::Null, |share| rounded(share, 1e5));
    cells.push(share(mean.cached_share));
    cells.extend(mean.cost.map(|cost| dollars(has_prices.then_some(cost))));
    cells.push(dollars(mean.cost_usd));
    cells.extend([mean.in_view, mean.in_view_or_summary, mean.recoverable, mean.far_in_view].map(share));
    let counts = [mean.rereads_exposed, mean.over_window_steps, mean.failed_condensations, mean.invalid_requests];
    cells.extend(counts.map(|count| json!(count)));
    let mut sums = [0u64; 5];
    for row in rows.iter().filter(|row| row.policy == mean.policy) {
        sums.iter_mut().zip(parts(row)).for_each(|(sum, tokens)| *sum += tokens);
    }
    cells.extend(sums.map(|sum| json!((sum as f64 / mean.n.max(1) as f64).round())));
    cells
}
