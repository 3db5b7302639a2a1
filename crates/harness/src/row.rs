//! One result, and what it costs under any prices.

use condenser::profile::{ModelProfile, Prices};
use condenser::tokens::Tokens;
use serde::{Deserialize, Serialize};

/// What one policy did to one trace. Tokens are counted with `tokenizer`; only `wall_ms` differs between two runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The trace's name.
    pub trace: String,
    /// The trace's format.
    pub format: String,
    /// The task the trace belongs to.
    pub task: Option<String>,
    /// The policy.
    pub policy: String,
    /// The context window, where one was set.
    pub window: Option<u64>,
    /// The token counter.
    pub tokenizer: String,
    /// The summarizer.
    pub summarizer: String,
    /// The seed.
    pub seed: u64,
    /// Model responses.
    pub steps: u64,
    /// Records made.
    pub condensations: u64,
    /// Tries that ended in `Failed` or `Unachievable`.
    pub failed_condensations: u64,
    /// Records whose edit was extended to a legal one.
    pub extended: u64,
    /// The largest request.
    pub peak_tokens: u64,
    /// All requests together.
    pub input_tokens: u64,
    /// The part of the input that is read from the prefix cache.
    pub cached_tokens: u64,
    /// The part of the input that is written to the prefix cache; 0 where the profile charges no writes.
    pub cache_write_tokens: u64,
    /// What the agent wrote: text, reasoning as far as it is recorded in the clear, tool names and arguments.
    pub output_tokens: u64,
    /// Steps whose request was larger than the window less the reserve.
    pub over_window_steps: u64,
    /// Calls of the summarizer, failed ones included.
    pub summarizer_calls: u64,
    /// Tokens those calls read.
    pub summarizer_input_tokens: u64,
    /// Tokens those calls wrote.
    pub summarizer_output_tokens: u64,
    /// Agent and summarizer, in US dollars under the profile. `None`: the profile has no prices.
    pub cost_usd: Option<f64>,
    /// First uses of evidence.
    pub evidence_total: u64,
    /// Of these, held by an entry that is not a summary.
    pub evidence_in_view: u64,
    /// Of the others, held by a summary.
    pub evidence_in_summary: u64,
    /// Of the others, behind an address in the request.
    pub evidence_recoverable: u64,
    /// The rest.
    pub evidence_lost: u64,
    /// First uses whose newest source is at least 5 steps back.
    pub evidence_far_total: u64,
    /// Of these, held by an entry that is not a summary.
    pub evidence_far_in_view: u64,
    /// Of the others, held by a summary.
    pub evidence_far_in_summary: u64,
    /// Of the others, behind an address in the request.
    pub evidence_far_recoverable: u64,
    /// The rest.
    pub evidence_far_lost: u64,
    /// Uses of evidence that the agent's own earlier words hold as well.
    pub self_carried: u64,
    /// Actions that read again what the policy had removed.
    pub rereads_exposed: u64,
    /// Actions that read again what was still in view.
    pub rereads_habit: u64,
    /// Checked requests that break a rule of the API.
    pub invalid_requests: u64,
    /// Plans refused because they touched a pinned event.
    pub pinned_changes: u64,
    /// Plans refused because the request would not have got smaller.
    pub inflations: u64,
    /// Time taken, in milliseconds.
    pub wall_ms: f64,
}

/// Where an item was when an action used it, or the answer of a probe when it was asked. Best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// In an entry of the view that is not a summary.
    InView,
    /// In a summary.
    InSummary,
    /// Behind an address in the request.
    Recoverable,
    /// Nowhere.
    Lost,
}

impl Status {
    /// All of them, best first.
    pub const ALL: [Self; 4] = [Self::InView, Self::InSummary, Self::Recoverable, Self::Lost];

    /// The letter of [`Steps::uses`].
    pub fn letter(self) -> char {
        match self {
            Self::InView => 'v',
            Self::InSummary => 's',
            Self::Recoverable => 'r',
            Self::Lost => 'l',
        }
    }
}

/// What a row sums up, step by step. Steps count from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// By step: the size of the request.
    pub tokens: Vec<u64>,
    /// By step: the tokens that the request shares with the one before, at its beginning.
    pub shared: Vec<u64>,
    /// The steps before which a record was made.
    pub records: Vec<u64>,
    /// A step before which a summarizer was called, what it read and what it wrote, in tokens.
    pub summaries: Vec<[u64; 3]>,
    /// By first use of evidence, in the order of the trace's: the letter of its [`Status`].
    pub uses: String,
}

impl Steps {
    /// By step: the part of the request that is read from the cache. `idle` says how many seconds after the one
    /// before it was sent, where that is known.
    pub fn cached<'s>(
        &'s self,
        idle: &'s [Option<f64>],
        profile: &'s ModelProfile,
    ) -> impl Iterator<Item = Tokens> + 's {
        let parts = self.shared.iter().zip(idle.iter().chain(std::iter::repeat(&None)));
        parts.map(|(&shared, &idle)| cached(Tokens(shared), idle, profile))
    }
}

/// The part of a common prefix that is read from the cache. `idle` is how many seconds ago the request before was
/// sent, where that is known.
pub(crate) fn cached(shared: Tokens, idle: Option<f64>, profile: &ModelProfile) -> Tokens {
    let Some(cache) = profile.cache else { return Tokens::ZERO };
    let is_gone = cache.expiry_seconds.zip(idle).is_some_and(|(expiry, idle)| idle > expiry as f64);
    if is_gone { Tokens::ZERO } else { cache.cached(shared) }
}

/// The bases on which tables show costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// All input at the full price.
    Uncached,
    /// Cached input at a tenth, the rest at the full price.
    Discount,
    /// Cached input at a tenth, the rest at the full price and a quarter.
    Tiered,
}

impl Basis {
    /// All bases, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Uncached, Self::Discount, Self::Tiered];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uncached => "uncached",
            Self::Discount => "discount",
            Self::Tiered => "tiered",
        }
    }

    /// Prices on this basis: input and output are those given.
    pub fn prices(self, prices: &Prices) -> Prices {
        let (read, write) = match self {
            Self::Uncached => (1.0, 1.0),
            Self::Discount => (0.1, 1.0),
            Self::Tiered => (0.1, 1.25),
        };
        Prices { cache_read: prices.input * read, cache_write: prices.input * write, ..*prices }
    }
}

/// The prices by which a profile charges, `None` where it has none. Where writes are no tier of their own they cost
/// what other input costs.
pub fn charged(profile: &ModelProfile) -> Option<Prices> {
    let mut prices = profile.prices?;
    if !profile.cache.is_some_and(|cache| cache.charges_writes) {
        prices.cache_write = prices.input;
    }
    Some(prices)
}

impl Row {
    /// Whether the policy ever acted on the trace.
    pub fn fired(&self) -> bool {
        self.condensations > 0
    }

    /// Sets what depends on the profile: cached and written tokens and the cost.
    ///
    /// `idle` says for each step how many seconds after the one before it was sent, where that is known.
    pub fn charge(&mut self, steps: &Steps, idle: &[Option<f64>], profile: &ModelProfile) {
        self.cached_tokens = steps.cached(idle, profile).map(|tokens| tokens.0).sum();
        let charges_writes = profile.cache.is_some_and(|cache| cache.charges_writes);
        let uncached = self.input_tokens.saturating_sub(self.cached_tokens);
        self.cache_write_tokens = if charges_writes { uncached } else { 0 };
        self.cost_usd = charged(profile).map(|prices| self.price(&prices));
    }

    /// What the run costs under these prices, in US dollars.
    ///
    /// Input that is not read from the cache is charged as written to it. Summarizer calls are requests of their
    /// own, outside the agent's prefix: all their input is charged at the plain price.
    pub fn price(&self, prices: &Prices) -> f64 {
        let uncached = self.input_tokens.saturating_sub(self.cached_tokens);
        let parts = [
            (self.cached_tokens, prices.cache_read),
            (uncached, prices.cache_write),
            (self.output_tokens, prices.output),
            (self.summarizer_input_tokens, prices.input),
            (self.summarizer_output_tokens, prices.output),
        ];
        parts.iter().map(|&(tokens, price)| tokens as f64 * price).sum::<f64>() / 1e6
    }

    /// The share of first uses still in view, all or only far ones; `None` where there are none.
    pub fn in_view_share(&self, far: bool) -> Option<f64> {
        let (total, held) = if far {
            (self.evidence_far_total, self.evidence_far_in_view)
        } else {
            (self.evidence_total, self.evidence_in_view)
        };
        (total > 0).then(|| held as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_priced_on_every_basis() {
        let row = Row {
            input_tokens: 1_000_000,
            cached_tokens: 600_000,
            output_tokens: 100_000,
            summarizer_input_tokens: 200_000,
            summarizer_output_tokens: 10_000,
            ..Row::default()
        };
        let prices = Prices { input: 3.0, cache_read: 0.3, cache_write: 3.75, output: 15.0 };
        let beside = 0.1 * 15.0 + 0.2 * 3.0 + 0.01 * 15.0;
        for (prices, input) in [
            (Basis::Uncached.prices(&prices), 3.0),
            (Basis::Discount.prices(&prices), 0.6 * 0.3 + 0.4 * 3.0),
            (Basis::Tiered.prices(&prices), 0.6 * 0.3 + 0.4 * 3.75),
            (prices, 0.6 * 0.3 + 0.4 * 3.75),
        ] {
            assert!((row.price(&prices) - input - beside).abs() < 1e-9);
        }
    }

    #[test]
    fn fields_are_written_in_their_fixed_order() {
        let json = serde_json::to_value(Row::default()).unwrap();
        let names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = "trace format task policy window tokenizer summarizer seed steps condensations \
            failed_condensations extended peak_tokens input_tokens cached_tokens cache_write_tokens output_tokens \
            over_window_steps summarizer_calls summarizer_input_tokens summarizer_output_tokens cost_usd \
            evidence_total evidence_in_view evidence_in_summary evidence_recoverable evidence_lost \
            evidence_far_total evidence_far_in_view evidence_far_in_summary evidence_far_recoverable \
            evidence_far_lost self_carried rereads_exposed rereads_habit invalid_requests pinned_changes inflations \
            wall_ms";
        assert_eq!(names, expected.split_whitespace().collect::<Vec<_>>());
    }
}
