//! The numbers of a row that can be compared.

use crate::row::Row;

/// Which way a number should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Up.
    Higher,
    /// Down.
    Lower,
}

impl Better {
    pub(crate) fn sign(self) -> f64 {
        match self {
            Self::Higher => 1.0,
            Self::Lower => -1.0,
        }
    }
}

/// A number that each row has.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The stable name.
    pub name: &'static str,
    /// Which way it should go.
    pub better: Better,
    /// Its value; `None` where the row has none, as a share of no evidence.
    pub read: fn(&Row) -> Option<f64>,
}

impl Metric {
    /// Its value; `None` where the row has none.
    pub fn of(&self, row: &Row) -> Option<f64> {
        (self.read)(row)
    }
}

macro_rules! counts {
    ($better:ident: $($field:ident)+) => {
        [$(Metric { name: stringify!($field), better: Better::$better, read: |row| Some(row.$field as f64) }),+]
    };
}

static COUNTS: [Metric; 15] = counts!(Lower: input_tokens peak_tokens cache_write_tokens over_window_steps
    failed_condensations summarizer_calls summarizer_input_tokens summarizer_output_tokens evidence_lost
    evidence_far_lost rereads_exposed invalid_requests pinned_changes inflations wall_ms);

static HELD: [Metric; 1] = counts!(Higher: cached_tokens);

static SHARES: [Metric; 7] = [
    Metric { name: "cost_usd", better: Better::Lower, read: |row| row.cost_usd },
    Metric { name: "in_view", better: Better::Higher, read: |row| row.in_view_share(false) },
    Metric { name: "far_in_view", better: Better::Higher, read: |row| row.in_view_share(true) },
    Metric {
        name: "in_view_or_summary",
        better: Better::Higher,
        read: |row| share(row.evidence_in_view + row.evidence_in_summary, row.evidence_total),
    },
    Metric {
        name: "far_in_view_or_summary",
        better: Better::Higher,
        read: |row| share(row.evidence_far_in_view + row.evidence_far_in_summary, row.evidence_far_total),
    },
    Metric { name: "lost", better: Better::Lower, read: |row| share(row.evidence_lost, row.evidence_total) },
    Metric {
        name: "far_lost",
        better: Better::Lower,
        read: |row| share(row.evidence_far_lost, row.evidence_far_total),
    },
];

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// All of them: the cost, shares of first uses of evidence, then counts of a row under their own names.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    SHARES.iter().chain(&COUNTS).chain(&HELD)
}

/// The metric with this name.
pub fn metric(name: &str) -> Option<Metric> {
    metrics().find(|metric| metric.name == name).copied()
}
