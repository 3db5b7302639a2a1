//! What a model costs and holds: values that siblings receive, without a table of their own.

use serde::{Deserialize, Serialize};

use crate::tokens::Tokens;

/// Prices in US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// Input neither read from nor written to the cache.
    pub input: f64,
    /// Input read from the prefix cache.
    pub cache_read: f64,
    /// Input written to the prefix cache; equal to `input` where writes cost nothing extra.
    pub cache_write: f64,
    /// Output.
    pub output: f64,
}

/// How a provider caches prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRules {
    /// A shorter common prefix is not read from the cache.
    pub minimum: Tokens,
    /// Cached lengths are multiples of this. At least 1.
    pub block: Tokens,
    /// Seconds after which an unused prefix is gone; `None`: never within a run.
    pub expiry_seconds: Option<u64>,
    /// Whether writing to the cache is charged as its own tier.
    pub charges_writes: bool,
}

impl CacheRules {
    /// The part of a common prefix that is read from the cache.
    pub fn cached(&self, common_prefix: Tokens) -> Tokens {
        let block = self.block.0.max(1);
        let whole = Tokens(common_prefix.0 / block * block);
        if whole < self.minimum { Tokens::ZERO } else { whole }
    }
}

/// A model as the harness and the budgets see it. Unknown is `None`, never zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelProfile {
    /// The profile's name.
    pub name: String,
    /// The most tokens of input and output together.
    pub context_window: Option<Tokens>,
    /// The most tokens of one answer.
    pub max_output: Option<Tokens>,
    /// The tokenizer's name.
    pub tokenizer: Option<String>,
    /// Prices, where known.
    pub prices: Option<Prices>,
    /// Cache rules, where known.
    pub cache: Option<CacheRules>,
}
