//! What every plan and every summary is held against, whoever made it.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use crate::event::{ContentBlock, EventId, EventKind};
use crate::policy::{Edit, FENCES, Failure, State, SummarizeError, Summary, SummaryRequest, fenced};
use crate::request::{Bodies, Shown};
use crate::view::{Rules, View};

/// What an entry can only leave with.
#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    /// The calls of one response, with their answers.
    batch: Option<u32>,
    /// The batch, or the loop that it belongs to.
    group: Option<u32>,
    is_pinned: bool,
    /// A call whose answer may still come.
    is_waiting: bool,
}

/// The units of a view, by position.
fn units(state: &State<'_>) -> Vec<Unit> {
    let sound = |entry: crate::view::Entry<'_>| Unit {
        batch: entry.batch(),
        group: entry.group(),
        is_pinned: entry.is_pinned(),
        is_waiting: entry.is_open() && !entry.is_abandoned(),
    };
    match state.view.rules() {
        Rules::Sound => state.view.iter().map(sound).collect(),
        Rules::OpenHands => units_of_bodies(state),
    }
}

/// Under rules that number no batches: an answer belongs to the newest call with its id, a call to its response.
fn units_of_bodies(state: &State<'_>) -> Vec<Unit> {
    let mut units = Vec::with_capacity(state.view.len());
    let mut responses: HashMap<&str, u32> = HashMap::new();
    let mut calls: HashMap<&str, usize> = HashMap::new();
    for entry in state.view.iter() {
        let mut unit = Unit { is_pinned: entry.is_pinned(), ..Unit::default() };
        match state.event(entry.index()).map(|event| &event.kind) {
            Some(EventKind::Action(action)) => {
                let own = entry.index() as u32;
                unit.batch = Some(match &action.response_id {
                    Some(response) => *responses.entry(response).or_insert(own),
                    None => own,
                });
                unit.is_waiting = true;
                calls.insert(&action.call_id, entry.index());
            }
            Some(EventKind::Observation(observation)) => {
                if let Some(&call) = calls.get(observation.call_id.as_str()) {
                    let call: &mut Unit = &mut units[call];
                    call.is_waiting = false;
                    unit.batch = call.batch;
                }
            }
            _ => {}
        }
        unit.group = unit.batch;
        units.push(unit);
    }
    units
}

/// Refuses an edit that touches a pinned entry, tears a group, forgets what waits for an answer, or names what the
/// view does not hold.
pub(crate) fn check_legal(state: &State<'_>, edit: &Edit) -> Result<(), Failure> {
    let units = units(state);
    let groups = |wanted: &dyn Fn(&Unit) -> bool| -> HashSet<u32> {
        units.iter().filter(|unit| wanted(unit)).filter_map(|unit| unit.group).collect()
    };
    let protected = groups(&|unit| unit.is_pinned || unit.is_waiting);
    let mut unknown: BTreeSet<&EventId> = edit.forget.iter().chain(edit.rewrites.keys()).collect();
    let (mut pinned, mut torn) = (Vec::new(), Vec::new());
    let mut forgotten: HashSet<u32> = HashSet::new();
    for (entry, unit) in state.view.iter().zip(&units) {
        unknown.remove(entry.id());
        let is_forgotten = edit.forget.contains(entry.id());
        if unit.is_pinned && (is_forgotten || edit.rewrites.contains_key(entry.id())) {
            pinned.push(entry.id().clone());
        } else if is_forgotten && unit.group.is_some_and(|group| protected.contains(&group)) {
            torn.push(entry.id().clone());
        }
        forgotten.extend(unit.group.filter(|_| is_forgotten));
    }
    torn.extend(unknown.into_iter().cloned());
    let stays = |(entry, unit): &(crate::view::Entry<'_>, &Unit)| {
        !edit.forget.contains(entry.id()) && unit.group.is_some_and(|group| forgotten.contains(&group))
    };
    torn.extend(state.view.iter().zip(&units).filter(stays).map(|(entry, _)| entry.id().clone()));
    torn.sort();
    torn.dedup();
    if !pinned.is_empty() {
        Err(Failure::Pinned(pinned))
    } else if !torn.is_empty() {
        Err(Failure::Illegal(torn))
    } else {
        Ok(())
    }
}

/// How many ids a port's edit gained and lost on the way to a legal one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) extended: u64,
    pub(crate) clamped: u64,
}

/// Makes a port's edit legal. A batch goes whole, and the rest of a loop with its head; what is pinned, what belongs to
/// it, and a batch that waits for an answer stay, and so does the head of a loop in which one waits.
pub(crate) fn close(state: &State<'_>, edit: &mut Edit) -> Closed {
    let units = units(state);
    let mut heads: HashMap<u32, u32> = HashMap::new();
    let (mut pinned, mut waiting) = (HashSet::new(), HashSet::new());
    for unit in &units {
        let (Some(group), Some(batch)) = (unit.group, unit.batch) else { continue };
        heads.entry(group).or_insert(batch);
        if unit.is_pinned {
            pinned.insert(group);
        }
        if unit.is_waiting {
            waiting.insert(batch);
            waiting.insert(heads[&group]);
        }
    }
    let named: HashSet<u32> = state
        .view
        .iter()
        .zip(&units)
        .filter(|(entry, _)| edit.forget.contains(entry.id()))
        .filter_map(|(_, unit)| unit.batch)
        .filter(|batch| !waiting.contains(batch))
        .collect();
    let goes = |id: &EventId, unit: &Unit| match (unit.group, unit.batch) {
        (Some(group), Some(batch)) if !pinned.contains(&group) && !waiting.contains(&batch) => {
            named.contains(&batch) || named.contains(&heads[&group])
        }
        (None, _) => edit.forget.contains(id) && !unit.is_pinned,
        _ => false,
    };
    let mut forget = BTreeSet::new();
    let mut rewrites = std::collections::BTreeMap::new();
    for (entry, unit) in state.view.iter().zip(&units) {
        if goes(entry.id(), unit) {
            forget.insert(entry.id().clone());
        } else if let Some(rewrite) = edit.rewrites.get(entry.id()).filter(|_| !unit.is_pinned) {
            rewrites.insert(entry.id().clone(), rewrite.clone());
        }
    }
    let lost = |id: &&EventId| !forget.contains(*id) && !rewrites.contains_key(*id);
    let closed = Closed {
        extended: forget.difference(&edit.forget).count() as u64,
        clamped: (edit.forget.difference(&forget).count()
            + edit.rewrites.keys().filter(|id| !edit.forget.contains(*id)).filter(lost).count())
            as u64,
    };
    edit.forget = forget;
    edit.rewrites = rewrites;
    closed
}

/// The text of an answer, if it is a summary: no call instead of text, not cut, not blank, within its limit. The tags
/// around the data and a code fence around the whole are taken off.
///
/// Counters differ, so a summary that its own model counts within the limit may be up to twice as large by ours.
pub(crate) fn real(summary: &Summary, request: &SummaryRequest, state: &State<'_>) -> Result<String, SummarizeError> {
    if summary.tool_call && !request.tool_call {
        return Err(SummarizeError::ToolCall);
    }
    if summary.cut_by_length {
        return Err(SummarizeError::CutByLength);
    }
    let text = unfenced(&summary.text);
    if text.is_empty() {
        return Err(SummarizeError::Empty);
    }
    let limit = request.max_tokens.or(state
        .budgets
        .summary_output
        .tokens
        .filter(|_| state.budgets.summary_output.origin >= crate::budget::Origin::Set));
    if let Some(limit) = limit {
        let tokens = state.sizer.text(&text);
        let is_within = summary.output_tokens.0 > 0 && summary.output_tokens <= limit;
        if tokens > limit && !(is_within && tokens <= limit + limit) {
            return Err(SummarizeError::TooLong { tokens, limit });
        }
    }
    Ok(text)
}

/// The text without the tags of a summary request, however they are nested, and without a code fence around it.
fn unfenced(text: &str) -> String {
    let text = text.trim();
    let inside =
        text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")).and_then(|rest| rest.split_once('\n'));
    let text = match inside {
        Some((language, inside)) if !inside.contains("```") && !language.contains(' ') => inside.trim(),
        _ => text,
    };
    let mut kept = String::with_capacity(text.len());
    let mut opened: Vec<usize> = Vec::new();
    for character in text.chars() {
        if character == '<' {
            opened.push(kept.len());
        }
        kept.push(character);
        if character == '>' {
            // An attribute may hold a sign of its own.
            let tag = opened.iter().rev().take(4).position(|&at| is_tag(&kept[at + 1..kept.len() - 1]));
            if let Some(depth) = tag {
                opened.truncate(opened.len() - depth);
                kept.truncate(opened.pop().unwrap_or_default());
            }
        }
    }
    fenced(kept.trim()).into_owned()
}

fn is_tag(inside: &str) -> bool {
    let name = inside.strip_prefix('/').unwrap_or(inside);
    FENCES.iter().any(|tag| name.strip_prefix(tag).is_some_and(|rest| rest.is_empty() || rest.starts_with(' ')))
}

/// A digest of several texts in their order: FNV-1a of 128 bits. It tells changes, not forgeries.
pub fn digest(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for part in parts {
        for byte in part.as_ref().iter().chain(&[0]) {
            hash = (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
    format!("{hash:032x}")
}

/// A digest of the pinned entries as shown: the same as long as their bytes are. `None` where nothing is pinned.
pub fn pinned_digest(view: &View, bodies: &(impl Bodies + ?Sized)) -> Option<String> {
    let mut parts = Vec::new();
    for entry in view.iter().filter(|entry| entry.is_pinned()) {
        parts.push(entry.id().as_str().as_bytes().to_vec());
        parts.push(match Shown::of(entry, bodies) {
            Some(Shown::Event(kind)) => serde_json::to_vec(&*kind).unwrap_or_default(),
            Some(Shown::Summary(text)) => text.as_bytes().to_vec(),
            None => Vec::new(),
        });
    }
    (!parts.is_empty()).then(|| digest(parts))
}

/// The images among the entries that leave.
pub(crate) fn images(state: &State<'_>, forget: &BTreeSet<EventId>) -> u64 {
    let count = |kind: &Cow<'_, EventKind>| {
        let blocks = match &**kind {
            EventKind::Message(message) => [&message.content, &message.extended_content],
            EventKind::Observation(observation) => [&observation.content, &observation.extended_content],
            _ => return 0,
        };
        let images = |block: &ContentBlock| if let ContentBlock::Image { urls, .. } = block { urls.len() } else { 0 };
        blocks.into_iter().flatten().map(images).sum::<usize>() as u64
    };
    let leaving = state.view.iter().filter(|entry| forget.contains(entry.id()));
    leaving
        .map(|entry| match Shown::of(entry, state.bodies) {
            Some(Shown::Event(kind)) => count(&kind),
            _ => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tags_of_a_summary_request_do_not_survive_in_a_summary() {
        for (text, expected) in [
            ("  plain \n", "plain"),
            ("<EVENT id=\"e1\">\nwhat happened\n</EVENT>", "what happened"),
            ("<PREVIOUS SUMMARY>\na\n</PREVIOUS SUMMARY>\nb <KEPT id=\"a<b\">c</KEPT>", "a\n\nb c"),
            ("<EV<EVENT>ENT>x</EV</EVENT>ENT>", "x"),
            ("<EVENT id=\"e1\"", "< EVENT id=\"e1\""),
            ("```markdown\nnotes\n```", "notes"),
            ("```sh\na\n```\nand\n```sh\nb\n```", "```sh\na\n```\nand\n```sh\nb\n```"),
            ("a < b > c, <events> and Vec<T>", "a < b > c, <events> and Vec<T>"),
            ("</EVENT>\n<KEPT id=\"x\">", ""),
        ] {
            let stripped = unfenced(text);
            assert_eq!(stripped, expected, "{text}");
        }
    }
}
