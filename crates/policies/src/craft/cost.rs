//! What a condensation saves, as input tokens that are read: the arithmetic behind the question of when to act.
//!
//! A run reads a prefix at each step, and what the steps before it added. Tokens that a summary takes to write are not
//! counted, and tokens are not time.

/// A run of steps that each add the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Tokens of the prefix.
    pub prefix: u64,
    /// Tokens that a step adds.
    pub step: u64,
    /// The number of steps.
    pub n_steps: u64,
}

/// What a run with one condensation reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The steps up to the condensation.
    pub before: u64,
    /// The call of the summarizer.
    pub call: u64,
    /// The steps behind it.
    pub after: u64,
    /// The last step.
    pub last: u64,
}

impl Reading {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.before + self.call + self.after
    }
}

impl Run {
    /// What step `i` reads, counted from 1.
    pub fn reads(&self, i: u64) -> u64 {
        self.prefix + self.step * i.saturating_sub(1)
    }

    /// What all steps read.
    pub fn total(&self) -> u64 {
        self.n_steps * self.prefix + self.step * (self.n_steps * self.n_steps.saturating_sub(1) / 2)
    }

    /// What is read where a condensation after step `after` leaves the prefix and a summary of together `prefix` tokens.
    pub fn condensed(&self, after: u64, prefix: u64) -> Reading {
        let rest = Self { prefix, step: self.step, n_steps: self.n_steps.saturating_sub(after) };
        Reading {
            before: Self { n_steps: after.min(self.n_steps), ..*self }.total(),
            call: self.reads(after + 1),
            after: rest.total(),
            last: rest.reads(rest.n_steps),
        }
    }
}

/// What a request costs of which `unchanged` tokens are read from a cache, at `ratio` of the price of the others.
pub fn price(size: u64, unchanged: u64, ratio: f64) -> f64 {
    let unchanged = unchanged.min(size);
    ratio * unchanged as f64 + (size - unchanged) as f64
}
