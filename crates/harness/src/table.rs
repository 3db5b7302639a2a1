//! What tables show of many rows.

use condenser::profile::Prices;

use crate::row::{Basis, Row};

/// Means over the traces of one policy. Shares are taken per trace and then averaged over the traces that have any
/// evidence; `None` where none has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyMeans {
    /// The policy.
    pub policy: String,
    /// Rows.
    pub n: usize,
    /// Rows in which the policy acted.
    pub fired: usize,
    /// Mean number of records.
    pub condensations: f64,
    /// Mean size of the largest request.
    pub peak_tokens: f64,
    /// Mean input of all requests.
    pub input_tokens: f64,
    /// Share of all input of these rows that was read from the cache.
    pub cached_share: Option<f64>,
    /// Mean cost on each [`Basis`], in their order.
    pub cost: [f64; 3],
    /// Mean cost under the rows' profile, where every row has one.
    pub cost_usd: Option<f64>,
    /// First uses in view.
    pub in_view: Option<f64>,
    /// First uses in view or in a summary.
    pub in_view_or_summary: Option<f64>,
    /// First uses behind an address.
    pub recoverable: Option<f64>,
    /// Far first uses in view.
    pub far_in_view: Option<f64>,
    /// Far first uses in view or in a summary.
    pub far_in_view_or_summary: Option<f64>,
    /// Far first uses behind an address.
    pub far_recoverable: Option<f64>,
    /// Exposed re-reads, all rows together.
    pub rereads_exposed: u64,
    /// Steps over the window, all rows together.
    pub over_window_steps: u64,
    /// Failed condensations, all rows together.
    pub failed_condensations: u64,
    /// Invalid requests, all rows together.
    pub invalid_requests: u64,
}

/// One entry per policy, in the order in which the policies first appear. The bases are priced with the input and
/// output prices of `prices`.
pub fn means(rows: &[Row], prices: &Prices) -> Vec<PolicyMeans> {
    let mut policies: Vec<&str> = Vec::new();
    for row in rows {
        if !policies.contains(&row.policy.as_str()) {
            policies.push(&row.policy);
        }
    }
    policies.into_iter().map(|policy| of_policy(policy, rows, prices)).collect()
}

fn of_policy(policy: &str, rows: &[Row], prices: &Prices) -> PolicyMeans {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.policy == policy).collect();
    let n = rows.len();
    let sum = |field: fn(&Row) -> u64| rows.iter().map(|row| field(row)).sum::<u64>();
    let mean = |field: fn(&Row) -> u64| sum(field) as f64 / n as f64;
    let cost = Basis::ALL.map(|basis| {
        let prices = basis.prices(prices);
        rows.iter().map(|row| row.price(&prices)).sum::<f64>() / n as f64
    });
    let share = |total: fn(&Row) -> u64, held: fn(&Row) -> u64| {
        let shares = rows.iter().filter(|row| total(row) > 0).map(|row| held(row) as f64 / total(row) as f64);
        mean_of(shares)
    };
    let all = |held| share(|row| row.evidence_total, held);
    let far = |held| share(|row| row.evidence_far_total, held);
    let costs: Option<Vec<f64>> = rows.iter().map(|row| row.cost_usd).collect();
    PolicyMeans {
        policy: policy.to_owned(),
        n,
        fired: rows.iter().filter(|row| row.fired()).count(),
        condensations: mean(|row| row.condensations),
        peak_tokens: mean(|row| row.peak_tokens),
        input_tokens: mean(|row| row.input_tokens),
        cached_share: (sum(|row| row.input_tokens) > 0)
            .then(|| sum(|row| row.cached_tokens) as f64 / sum(|row| row.input_tokens) as f64),
        cost,
        cost_usd: costs.and_then(|costs| mean_of(costs.into_iter())),
        in_view: all(|row| row.evidence_in_view),
        in_view_or_summary: all(|row| row.evidence_in_view + row.evidence_in_summary),
        recoverable: all(|row| row.evidence_recoverable),
        far_in_view: far(|row| row.evidence_far_in_view),
        far_in_view_or_summary: far(|row| row.evidence_far_in_view + row.evidence_far_in_summary),
        far_recoverable: far(|row| row.evidence_far_recoverable),
        rereads_exposed: sum(|row| row.rereads_exposed),
        over_window_steps: sum(|row| row.over_window_steps),
        failed_condensations: sum(|row| row.failed_condensations),
        invalid_requests: sum(|row| row.invalid_requests),
    }
}

fn mean_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0u32), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

/// How far a policy is above its random control, as a share of what the control left open. `None` where the control
/// kept everything.
pub fn lift(policy: f64, random: f64) -> Option<f64> {
    (random < 1.0).then(|| (policy - random) / (1.0 - random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_taken_per_trace_and_then_averaged() {
        let row = |policy: &str, total, in_view, condensations| Row {
            policy: policy.to_owned(),
            evidence_total: total,
            evidence_in_view: in_view,
            condensations,
            input_tokens: 1_000_000,
            cost_usd: Some(2.0),
            ..Row::default()
        };
        let rows = [row("b", 10, 10, 0), row("a", 100, 50, 3), row("a", 2, 2, 0), row("a", 0, 0, 0)];
        let prices = Prices { input: 3.0, cache_read: 0.3, cache_write: 3.75, output: 15.0 };
        let means = means(&rows, &prices);
        assert_eq!(means.iter().map(|mean| mean.policy.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!((means[1].n, means[1].fired), (3, 1));
        assert_eq!(means[1].in_view, Some(0.75));
        assert_eq!(means[1].far_in_view, None);
        assert_eq!(means[1].cost, [3.0, 3.0, 3.75]);
        assert_eq!(means[1].cost_usd, Some(2.0));
    }

    #[test]
    fn lift_compares_with_what_chance_left_open() {
        assert_eq!(lift(0.75, 0.5), Some(0.5));
        assert_eq!(lift(0.25, 0.5), Some(-0.5));
        assert_eq!(lift(1.0, 1.0), None);
    }
}
