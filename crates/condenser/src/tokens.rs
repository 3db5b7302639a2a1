//! Token amounts and counters.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

use crate::request::TOKENS_PER_IMAGE;

/// A number of tokens. Addition saturates; subtraction stops at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tokens(pub u64);

impl Tokens {
    /// No tokens.
    pub const ZERO: Self = Self(0);

    /// The share of this amount, rounded down. A share outside 0 to 1 is clamped.
    pub fn share(self, share: f64) -> Self {
        Self((self.0 as f64 * share.clamp(0.0, 1.0)) as u64)
    }
}

impl Add for Tokens {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Tokens {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Tokens {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the tokens of a text.
///
/// An implementation is deterministic and linear in the length of any input.
pub trait TokenCounter: Send + Sync {
    /// A stable name, stored beside every count.
    fn name(&self) -> &str;
    /// The tokens of `text`; 0 for the empty text.
    fn count(&self, text: &str) -> Tokens;
    /// The tokens of an image, given its URL or data: the same for all, unless the counter knows its model's rule.
    fn image(&self, url: &str) -> Tokens {
        let _ = url;
        TOKENS_PER_IMAGE
    }
    /// Whether the counts are an estimate and not a tokenizer's own.
    fn is_estimate(&self) -> bool {
        false
    }
}

/// Characters (Unicode scalar values) divided by four, rounded up.
#[derive(Clone, Copy, Debug, Default)]
pub struct CharsPer4;

impl TokenCounter for CharsPer4 {
    fn name(&self) -> &str {
        "chars/4"
    }
    fn count(&self, text: &str) -> Tokens {
        Tokens((text.chars().count() as u64).div_ceil(4))
    }
    fn is_estimate(&self) -> bool {
        true
    }
}

/// UTF-8 bytes divided by four, rounded up.
#[derive(Clone, Copy, Debug, Default)]
pub struct BytesPer4;

impl TokenCounter for BytesPer4 {
    fn name(&self) -> &str {
        "bytes/4"
    }
    fn count(&self, text: &str) -> Tokens {
        Tokens((text.len() as u64).div_ceil(4))
    }
    fn is_estimate(&self) -> bool {
        true
    }
}
