//! The original's own selection. An event has `invocation_id`, `timestamp`, parts of `content`, and as a compaction
//! `actions.compaction` with its range.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// When to compact, and what stays. At least one of the two pairs has to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// New invocations that make a compaction.
    pub compaction_interval: Option<usize>,
    /// Invocations before them that are summarized again.
    pub overlap_size: Option<usize>,
    /// Tokens of the prompt that make one.
    pub token_threshold: Option<u64>,
    /// The newest events that stay then.
    pub event_retention_size: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { compaction_interval: Some(3), overlap_size: Some(1), token_threshold: None, event_retention_size: None }
    }
}

impl Settings {
    /// What is wrong with these, if anything is.
    ///
    /// # Errors
    /// Which pair is incomplete, or that none is there.
    pub fn check(&self) -> Result<(), String> {
        if self.compaction_interval.is_some() != self.overlap_size.is_some() {
            return Err("`compaction_interval` and `overlap_size` are set together or not at all".to_owned());
        }
        if self.token_threshold.is_some() != self.event_retention_size.is_some() {
            return Err("`token_threshold` and `event_retention_size` are set together or not at all".to_owned());
        }
        if self.compaction_interval.is_none() && self.token_threshold.is_none() {
            return Err(
                "set `compaction_interval` and `overlap_size`, or `token_threshold` and `event_retention_size`"
                    .to_owned(),
            );
        }
        if self.compaction_interval == Some(0) {
            return Err("`compaction_interval` must be at least 1".to_owned());
        }
        Ok(())
    }
}

/// What is to be summarized, as positions in the list of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The raw events.
    pub events: Vec<usize>,
    /// The compaction whose summary is fed in.
    pub previous: Option<usize>,
}

fn time(event: &Value) -> f64 {
    event["timestamp"].as_f64().unwrap_or_default()
}

/// The range of a compaction.
fn range(event: &Value) -> Option<(f64, f64)> {
    let compaction = &event["actions"]["compaction"];
    Some((compaction["start_timestamp"].as_f64()?, compaction["end_timestamp"].as_f64()?))
}

/// The newest compaction, and the end of the latest range.
fn compacted(events: &[Value]) -> Option<(usize, f64)> {
    let ranges = events.iter().enumerate().filter_map(|(at, event)| Some((at, range(event)?.1)));
    ranges.max_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
}

/// What the sliding window summarizes once an invocation has ended.
pub fn sliding_window(events: &[Value], interval: usize, overlap: usize) -> Option<Range> {
    let end = compacted(events).map(|(_, end)| end);
    // In the order they began, each with its first and last event.
    let mut invocations: Vec<(&str, usize, usize)> = Vec::new();
    for (at, event) in events.iter().enumerate().filter(|(_, event)| range(event).is_none()) {
        let id = event["invocation_id"].as_str().unwrap_or_default();
        match invocations.iter_mut().find(|(known, ..)| *known == id) {
            Some((_, _, last)) => *last = at,
            None => invocations.push((id, at, at)),
        }
    }
    let is_new = |(_, _, last): &(&str, usize, usize)| end.is_none_or(|end| time(&events[*last]) > end);
    let new: Vec<usize> = (0..invocations.len()).filter(|&at| is_new(&invocations[at])).collect();
    let (&first, &last) = (new.first()?, new.last()?);
    if new.len() < interval {
        return None;
    }
    let from = invocations[first.saturating_sub(overlap)].1;
    let to = invocations[last].2;
    let events = (from..=to).filter(|&at| range(&events[at]).is_none()).collect();
    Some(Range { events, previous: None })
}

fn parts<'e>(event: &'e Value, name: &str) -> Vec<&'e str> {
    let parts = event["content"]["parts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part[name]["id"].as_str()).collect()
}

/// What the token threshold summarizes of a prompt that has reached it.
pub fn token_threshold(events: &[Value], retention: usize) -> Option<Range> {
    let compacted = compacted(events);
    let is_raw = |event: &Value| range(event).is_none() && compacted.is_none_or(|(_, end)| time(event) > end);
    let raw: Vec<usize> = (0..events.len()).filter(|&at| is_raw(&events[at])).collect();
    let mut split = raw.len().saturating_sub(retention);
    while split > 0 {
        let kept = || raw[split..].iter().map(|&at| &events[at]);
        let calls: HashSet<&str> = kept().flat_map(|event| parts(event, "function_call")).collect();
        if kept().flat_map(|event| parts(event, "function_response")).all(|id| calls.contains(id)) {
            break;
        }
        split -= 1;
    }
    (split > 0).then(|| Range { events: raw[..split].to_vec(), previous: compacted.map(|(at, _)| at) })
}

/// Whether a prompt of so many tokens has reached the threshold. `reported`: as the model said, else a quarter of its
/// characters.
pub fn is_reached(reported: Option<u64>, n_characters: u64, threshold: u64) -> bool {
    reported.unwrap_or(n_characters / 4) >= threshold
}

/// What to summarize: where both rules ask for something, the tokens win.
pub fn select(events: &[Value], is_reached: bool, has_ended: bool, settings: &Settings) -> Option<Range> {
    let by_tokens = settings.event_retention_size.filter(|_| is_reached && settings.token_threshold.is_some());
    if let Some(range) = by_tokens.and_then(|retention| token_threshold(events, retention)) {
        return Some(range);
    }
    let (interval, overlap) = settings.compaction_interval.zip(settings.overlap_size).filter(|_| has_ended)?;
    sliding_window(events, interval, overlap)
}

/// What is shown of a session, as positions: raw events outside all compactions, and compactions where they ended.
pub fn view(events: &[Value]) -> Vec<usize> {
    let ranges: Vec<(usize, f64, f64)> =
        events.iter().enumerate().filter_map(|(at, event)| range(event).map(|(start, end)| (at, start, end))).collect();
    let is_inside = |(at, start, end): &(usize, f64, f64), (other, from, to): &(usize, f64, f64)| {
        at != other && from <= start && end <= to && ((from, to) != (start, end) || other > at)
    };
    let surviving: Vec<&(usize, f64, f64)> =
        ranges.iter().filter(|range| !ranges.iter().any(|other| is_inside(range, other))).collect();
    let is_hidden = |event: &Value| surviving.iter().any(|(_, from, to)| (*from..=*to).contains(&time(event)));
    let mut shown: Vec<(f64, usize)> = (0..events.len())
        .filter(|&at| range(&events[at]).is_none() && !is_hidden(&events[at]))
        .map(|at| (time(&events[at]), at))
        .chain(surviving.iter().map(|(at, _, end)| (*end, *at)))
        .collect();
    shown.sort_by(|a, b| a.0.total_cmp(&b.0));
    shown.into_iter().map(|(_, at)| at).collect()
}
