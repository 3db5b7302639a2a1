//! What each request of a replay shows, kept as differences from the request before.

use std::collections::HashMap;

use condenser::condensation::{Condensation, Provenance};
use serde::{Deserialize, Serialize};

/// The most characters that are kept of a text.
const MAX_TEXT: usize = 2_000;
/// The most characters of a reason, and the most reasons of a record.
const MAX_REASON: usize = 300;
const MAX_REASONS: usize = 10;

/// What the requests of one row show, step by step, and why that changed.
///
/// An entry of a request is a number: `n` from 0 up is the event of that number, counted over
/// [`replayed`](crate::replayed), shown as it was stored; `-1 - n` is the text of that number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Views {
    /// Summaries and rewritten events, each once.
    pub texts: Vec<ViewText>,
    /// By step: what changes.
    pub steps: Vec<Change>,
    /// The records, oldest first.
    pub records: Vec<RecordFacts>,
    /// Attempts that made no record: the step, and what came of it.
    pub refused: Vec<(u64, String)>,
}

/// A text that a request shows and no event stores.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ViewText {
    /// The event that it stands for; `None` for a summary.
    pub event: Option<u32>,
    /// The text, 2,000 characters at most.
    pub text: String,
    /// How many more characters there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

/// How the entries of a request come from those of the one before: the first `kept`, then `entries`, then the last
/// `same`, then `more`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, Vec<i32>, u32, Vec<i32>)", into = "(u32, Vec<i32>, u32, Vec<i32>)")]
pub struct Change {
    /// Entries of the request before that stay at the beginning.
    pub kept: u32,
    /// Entries that come after them.
    pub entries: Vec<i32>,
    /// Entries that ended the request before and follow now.
    pub same: u32,
    /// Entries that come last.
    pub more: Vec<i32>,
}

impl From<(u32, Vec<i32>, u32, Vec<i32>)> for Change {
    fn from((kept, entries, same, more): (u32, Vec<i32>, u32, Vec<i32>)) -> Self {
        Self { kept, entries, same, more }
    }
}

impl From<Change> for (u32, Vec<i32>, u32, Vec<i32>) {
    fn from(change: Change) -> Self {
        (change.kept, change.entries, change.same, change.more)
    }
}

/// What a record did, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordFacts {
    /// The step before which it was made.
    pub step: u64,
    /// The reasons that the policy had.
    pub reasons: Vec<String>,
    /// Entries that it forgot.
    pub forgotten: u64,
    /// Entries that it rewrote.
    pub rewritten: u64,
    /// Whether it wrote a summary.
    pub summarized: bool,
    /// The size of the complete request before, where it was counted.
    pub tokens_before: Option<u64>,
    /// The size of the complete request after, where it was counted.
    pub tokens_after: Option<u64>,
    /// The fallbacks that were taken, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
}

impl RecordFacts {
    pub(crate) fn of(step: usize, record: &Condensation) -> Self {
        let nothing = Provenance::default();
        let provenance = record.provenance.as_deref().unwrap_or(&nothing);
        let short = |texts: &[String]| texts.iter().take(MAX_REASONS).map(|text| head(text, MAX_REASON).0).collect();
        Self {
            step: step as u64,
            reasons: short(&provenance.reasons),
            forgotten: record.forgotten_event_ids.len() as u64,
            rewritten: record.rewrites.len() as u64,
            summarized: record.shown_summary().is_some(),
            tokens_before: provenance.tokens_before,
            tokens_after: provenance.tokens_after,
            fallbacks: short(&provenance.fallbacks),
        }
    }
}

impl Views {
    /// Takes note of an attempt that made no record.
    pub(crate) fn refuse(&mut self, step: usize, reason: &str) {
        self.refused.push((step as u64, head(reason, MAX_REASON).0));
    }

    /// By step: the entries that its request shows.
    pub fn shown(&self) -> impl Iterator<Item = Vec<i32>> + '_ {
        let mut shown: Vec<i32> = Vec::new();
        self.steps.iter().map(move |change| {
            let last = shown.len().saturating_sub(change.same as usize);
            let same = shown.split_off(last);
            shown.truncate(change.kept as usize);
            shown.extend(&change.entries);
            shown.extend(same);
            shown.extend(&change.more);
            shown.clone()
        })
    }
}

/// Collects [`Views`].
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub(crate) views: Views,
    /// The entries of the newest request.
    now: Vec<i32>,
    /// The text that stands for the content of this name.
    named: HashMap<(usize, usize), i32>,
    by_text: HashMap<ViewText, i32>,
}

impl Collector {
    /// The entry of an event that is shown as stored.
    pub(crate) fn stored(event: usize) -> i32 {
        i32::try_from(event).unwrap_or(i32::MAX)
    }

    /// The entry of a text; `key` names its content.
    pub(crate) fn text(&mut self, key: (usize, usize), event: Option<usize>, text: impl FnOnce() -> String) -> i32 {
        if let Some(entry) = self.named.get(&key) {
            return *entry;
        }
        let (text, left_out) = head(&text(), MAX_TEXT);
        let event = event.and_then(|event| u32::try_from(event).ok());
        let text = ViewText { event, text, left_out };
        let entry = *self.by_text.entry(text).or_insert_with_key(|text| {
            self.views.texts.push(text.clone());
            -i32::try_from(self.views.texts.len()).unwrap_or(i32::MAX)
        });
        self.named.insert(key, entry);
        entry
    }

    /// The next request: the first `n_kept` entries of the newest one, and then `tail`.
    pub(crate) fn step(&mut self, n_kept: usize, tail: &[i32]) {
        let before = self.now.split_off(n_kept.min(self.now.len()));
        let n_more_kept = before.iter().zip(tail).take_while(|(old, new)| old == new).count();
        let (before, rest) = (&before[n_more_kept..], &tail[n_more_kept..]);
        // What came last before is looked for, since new events follow it.
        let end = before.last().and_then(|last| rest.iter().rposition(|entry| entry == last)).map_or(0, |at| at + 1);
        let same = before.iter().rev().zip(rest[..end].iter().rev()).take_while(|(old, new)| old == new).count();
        let change = Change {
            kept: (self.now.len() + n_more_kept) as u32,
            entries: rest[..end - same].to_vec(),
            same: same as u32,
            more: rest[end..].to_vec(),
        };
        self.views.steps.push(change);
        self.now.extend(tail);
    }
}

fn head(text: &str, n: usize) -> (String, u64) {
    match text.char_indices().nth(n) {
        Some((at, _)) => (text[..at].to_owned(), text[at..].chars().count() as u64),
        None => (text.to_owned(), 0),
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn changes(requests: &[Vec<i32>]) -> Views {
        let mut collector = Collector::default();
        for request in requests {
            collector.step(0, request);
        }
        collector.views
    }

    #[test]
    fn a_change_in_the_middle_is_kept_without_what_follows_it() {
        let views = changes(&[vec![0, 1, 2, 3, 4], vec![0, -1, 2, 3, 4, 5, 6], vec![0, -2, 6, 7], vec![7, 8]]);
        let json = serde_json::to_string(&views.steps).unwrap();
        assert_eq!(json, "[[0,[],0,[0,1,2,3,4]],[1,[-1],3,[5,6]],[1,[-2],1,[7]],[0,[],1,[8]]]");
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_counted() {
        let mut collector = Collector::default();
        let long = "é".repeat(MAX_TEXT + 7);
        assert_eq!(collector.text((4, 9), Some(2), || long.clone()), -1);
        assert_eq!(collector.text((4, 11), Some(2), || long.clone()), -1, "the same text under another record");
        assert_eq!(collector.text((5, 11), Some(3), || long.clone()), -2);
        let kept = &collector.views.texts[0];
        assert_eq!((kept.event, kept.text.chars().count(), kept.left_out), (Some(2), MAX_TEXT, 7));
    }

    proptest! {
        #[test]
        fn changes_give_back_every_request(requests in prop::collection::vec(prop::collection::vec(-4..9i32, 0..12), 0..9)) {
            prop_assert_eq!(changes(&requests).shown().collect::<Vec<_>>(), requests);
        }
    }
}
