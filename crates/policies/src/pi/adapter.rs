//! A view as the entries of a session, and a plan of the peer as an edit.
//!
//! A session keeps an answer with its calls in one entry, each result in one, and a compaction where it was made. What
//! the view does not show and a session would hold (settings, edits, excluded commands) is taken from the log, because
//! the peer's cut looks at it. What an import kept of an entry says what the entry was; where there is nothing, a
//! message in the user's place that no user wrote is a custom message.

use std::collections::{BTreeSet, HashSet};

use condenser::event::{ContentBlock, Event, EventKind, Outcome};
use condenser::{Class, EventId, State};
use serde_json::{Map, Value, json};

use super::peer::{self, BRANCH_BEFORE, Release, SUMMARY_AFTER, SUMMARY_BEFORE};
use crate::turns::{self, Turn, turns};

/// Entries from a root to the leaf, each with the positions in the view that it stands for.
#[derive(Debug, Default)]
pub(super) struct Path {
    pub(super) entries: Vec<Value>,
    members: Vec<Vec<usize>>,
    ids: HashSet<String>,
    /// The entries that an edit took out.
    omitted: HashSet<String>,
}

/// Kinds of entries that show nothing.
const HIDDEN: [&str; 9] = [
    "message",
    "branch_summary",
    "thinking_level_change",
    "model_change",
    "custom",
    "label",
    "session_info",
    "usage",
    "context_edit",
];

impl Path {
    pub(super) fn new(state: &State<'_>, release: Release) -> Self {
        let turns = turns(state);
        let mut path = Self::default();
        if release == Release::V1 {
            path.omitted = omitted(state);
        }
        let seq = |index: usize| state.view.get(index).map_or(0, |entry| entry.seq());
        let compaction = turns.iter().rev().find_map(|turn| match turn {
            Turn::Summary(index) => Some(seq(*index)),
            _ => None,
        });
        let shown: Vec<&Turn> = turns.iter().filter(|turn| is_entry(turn, release, compaction.is_some())).collect();
        let mut next = match compaction {
            None => 0,
            Some(made) => first_kept(state, shown.first().map_or(made, |turn| seq(turn.members()[0])).min(made)),
        };
        for turn in shown {
            let at = seq(turn.members()[0]);
            path.add_hidden(state, next..at, compaction, &turns, release);
            next = next.max(at + 1);
            path.add_turn(state, turn);
        }
        path.add_hidden(state, next..state.view.n_pushed(), compaction, &turns, release);
        path
    }

    fn push(&mut self, record: &str, mut entry: Value, members: Vec<usize>) {
        let mut id = record.to_owned();
        while !self.ids.insert(id.clone()) {
            id.push('+');
        }
        entry["id"] = json!(id);
        self.entries.push(entry);
        self.members.push(members);
    }

    fn add_turn(&mut self, state: &State<'_>, turn: &Turn) {
        let members = turn.members();
        let Some(event) = state.event(members[0]) else { return };
        let entry = match turn {
            Turn::Answer(_) => message(json!({"role": "assistant", "content": answer(state, members)})),
            Turn::Result(_) => result(state, members[0]),
            Turn::System(_) => {
                let text = turns::kind(state, members[0]).map(|kind| turns::text(&kind)).unwrap_or_default();
                message(json!({"role": "system", "content": text}))
            }
            _ => user(state, members[0], event),
        };
        self.push(record(event), entry, members.to_vec());
    }

    /// The entries between two positions of the log that show nothing, and the compaction where it stands among them.
    fn add_hidden(
        &mut self,
        state: &State<'_>,
        between: std::ops::Range<usize>,
        compaction: Option<usize>,
        turns: &[Turn],
        release: Release,
    ) {
        for seq in between {
            let Some(event) = state.bodies.event(seq) else { continue };
            let made_of = event.foreign.get("type").and_then(Value::as_str);
            match &event.kind {
                EventKind::Condensation(_) if Some(seq) == compaction => {
                    let (entry, members) = self.compaction(state, turns, event);
                    self.push(record(event), entry, members);
                }
                EventKind::Condensation(_) if made_of == Some("context_edit") && release == Release::V1 => {
                    self.push(record(event), Value::Object(event.foreign.clone().into_map()), Vec::new());
                }
                EventKind::Condensation(it) if it.summary.is_some() && is_in_force(state, event) => {
                    self.push(record(event), json!({"type": "compaction"}), Vec::new());
                }
                EventKind::Unknown(unknown) if HIDDEN.contains(&unknown.foreign_kind.as_str()) => {
                    let mut entry = unknown.payload.clone();
                    if entry.is_object() {
                        entry["type"] = json!(unknown.foreign_kind);
                        self.push(record(event), entry, Vec::new());
                    }
                }
                kind if kind.is_shown() && self.omitted.contains(record(event)) && self.is_new(event) => {
                    let role = match kind {
                        EventKind::Action(_) => "assistant",
                        EventKind::Message(message) if message.role == condenser::event::Role::Assistant => "assistant",
                        _ => continue,
                    };
                    self.push(record(event), message(json!({"role": role, "content": []})), Vec::new());
                }
                _ => {}
            }
        }
    }

    /// Whether no entry stands for the event's record yet.
    fn is_new(&self, event: &Event) -> bool {
        !self.ids.contains(record(event))
    }

    /// The newest compaction, with every summary that the view shows.
    fn compaction(&self, state: &State<'_>, turns: &[Turn], event: &Event) -> (Value, Vec<usize>) {
        let members: Vec<usize> = turns
            .iter()
            .filter_map(|turn| match turn {
                Turn::Summary(index) => Some(*index),
                _ => None,
            })
            .collect();
        let text =
            |index: &usize| state.view.get(*index)?.summary().map(|text| inside(text, SUMMARY_BEFORE, SUMMARY_AFTER));
        let summary = members.iter().filter_map(text).collect::<Vec<_>>().join("\n\n");
        let details = event.foreign.get("details").cloned().unwrap_or_else(|| peer::Files::read_block(&summary));
        let entry = json!({
            "type": "compaction",
            "summary": summary,
            "firstKeptEntryId": self.entries.first().map_or(&Value::Null, |entry| &entry["id"]),
            "details": details,
            "fromHook": event.foreign.get("fromHook"),
        });
        (entry, members)
    }

    /// Where an entry stands in the view.
    pub(super) fn members(&self, entry: usize) -> &[usize] {
        self.members.get(entry).map_or(&[], Vec::as_slice)
    }

    /// What leaves the view where the entry at `first_kept` is the first that stays: what is before it, every earlier
    /// summary, and at 1.6 all but the newest system prompt.
    pub(super) fn forget(&self, state: &State<'_>, first_kept: usize, release: Release) -> BTreeSet<EventId> {
        let mut forget: BTreeSet<EventId> = BTreeSet::new();
        let mut add = |index: usize| forget.extend(state.view.get(index).map(|entry| entry.id().clone()));
        let is_prompt = |index: usize| state.view.get(index).is_some_and(|entry| entry.class() == Class::SystemPrompt);
        for members in &self.members[..first_kept.min(self.members.len())] {
            members.iter().copied().filter(|&index| !is_prompt(index)).for_each(&mut add);
        }
        state.view.iter().filter(|entry| entry.is_summary()).for_each(|entry| add(entry.index()));
        if release == Release::V1 {
            let prompts: Vec<usize> = (0..state.view.len()).filter(|&index| is_prompt(index)).collect();
            prompts[..prompts.len().saturating_sub(1)].iter().copied().for_each(&mut add);
        }
        forget
    }
}

/// System prompts are no entries at 0.73, and at 1.6 belong to the compaction once there is one. Nor are
/// summaries: they come where their record stands.
fn is_entry(turn: &Turn, release: Release, is_compacted: bool) -> bool {
    match turn {
        Turn::System(_) => release == Release::V1 && !is_compacted,
        Turn::Summary(_) => false,
        _ => true,
    }
}

/// The first position of the log that the entry at `shown` stands for: what shows nothing and stands right before it
/// was kept with it.
fn first_kept(state: &State<'_>, shown: usize) -> usize {
    let is_hidden = |seq: &usize| {
        state.bodies.event(*seq).is_some_and(|event| {
            matches!(&event.kind, EventKind::Unknown(unknown) if HIDDEN.contains(&unknown.foreign_kind.as_str()))
        })
    };
    (0..shown).rev().take_while(is_hidden).last().unwrap_or(shown)
}

/// The entries that edits take out, by id.
fn omitted(state: &State<'_>) -> HashSet<String> {
    let edit = |seq: usize| {
        let foreign = &state.bodies.event(seq)?.foreign;
        let is_edit = foreign.get("type").and_then(Value::as_str) == Some("context_edit");
        let target = foreign.get("targetId").and_then(Value::as_str)?;
        (is_edit && foreign.get("replacement") == Some(&Value::Null)).then(|| target.to_owned())
    };
    (0..state.view.n_pushed()).filter_map(edit).collect()
}

fn is_in_force(state: &State<'_>, record: &Event) -> bool {
    state.view.records().any(|id| *id == record.id)
}

/// The foreign record that an event came from, else its own id.
fn record(event: &Event) -> &str {
    event.origin.as_ref().map_or(event.id.as_str(), |origin| origin.record.as_str())
}

fn message(message: Value) -> Value {
    json!({"type": "message", "message": message})
}

/// What stands between two texts, if both are there.
fn inside<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    text.strip_prefix(before).and_then(|text| text.strip_suffix(after)).unwrap_or(text)
}

fn blocks<'k>(content: impl Iterator<Item = &'k ContentBlock>) -> Vec<Value> {
    let mut blocks = Vec::new();
    for block in content {
        match block {
            ContentBlock::Text { text, .. } => blocks.push(json!({"type": "text", "text": text})),
            ContentBlock::Image { urls, .. } => blocks.extend(urls.iter().map(|_| json!({"type": "image"}))),
            ContentBlock::Thinking { thinking, .. } => blocks.push(json!({"type": "thinking", "thinking": thinking})),
            ContentBlock::Other { value } => blocks.push(json!({"type": "text", "text": value.to_string()})),
            _ => {}
        }
    }
    blocks
}

fn answer(state: &State<'_>, members: &[usize]) -> Vec<Value> {
    let mut all = Vec::new();
    for kind in members.iter().filter_map(|&index| turns::kind(state, index)) {
        let thinking =
            |reasoning: &Option<String>| reasoning.as_ref().map(|text| json!({"type": "thinking", "thinking": text}));
        match &*kind {
            EventKind::Action(action) => {
                all.extend(blocks(action.thinking.iter()));
                all.extend(thinking(&action.reasoning));
                all.extend(blocks(action.thought.iter()));
                let arguments = serde_json::from_str(&action.arguments).unwrap_or_else(|_| json!(action.arguments));
                all.push(json!({"type": "toolCall", "name": action.tool_name, "arguments": arguments}));
            }
            EventKind::Message(message) => {
                all.extend(thinking(&message.reasoning));
                all.extend(blocks(turns::content(&kind)));
            }
            _ => {}
        }
    }
    all
}

fn result(state: &State<'_>, index: usize) -> Value {
    let Some(kind) = turns::kind(state, index) else { return Value::Null };
    let is_error = matches!(&*kind, EventKind::Observation(it) if it.outcome != Outcome::Ok);
    message(json!({"role": "toolResult", "content": blocks(turns::content(&kind)), "isError": is_error}))
}

/// A message in the user's place, as what it was in the session that it was imported from.
fn user(state: &State<'_>, index: usize, event: &Event) -> Value {
    let Some(kind) = turns::kind(state, index) else { return Value::Null };
    let content = blocks(turns::content(&kind));
    let stored = event.foreign.get("message").and_then(Value::as_object);
    let made_of = event.foreign.get("type").and_then(Value::as_str);
    let role = stored.and_then(|message| message.get("role")).and_then(Value::as_str);
    match (made_of, role) {
        (Some("branch_summary"), _) => {
            let text = turns::text(&kind);
            json!({"type": "branch_summary", "summary": inside(&text, BRANCH_BEFORE, "</summary>")})
        }
        (_, Some("bashExecution")) => match stored.and_then(|stored| command(stored, &turns::text(&kind))) {
            Some(command) => message(command),
            None => message(json!({"role": "user", "content": content})),
        },
        (_, Some("custom" | "hookMessage")) => message(json!({"role": "custom", "content": content})),
        (_, Some("branchSummary" | "compactionSummary")) => {
            let text = turns::text(&kind);
            message(json!({"role": role, "summary": inside(&text, BRANCH_BEFORE, "</summary>")}))
        }
        (Some("custom_message"), _) => json!({"type": "custom_message", "content": content}),
        (None, None) if event.source != condenser::event::Source::User => {
            json!({"type": "custom_message", "content": content})
        }
        _ => message(json!({"role": "user", "content": content})),
    }
}

/// A command of the user with its output, which stands in the text that the model was told.
fn command(stored: &Map<String, Value>, told: &str) -> Option<Value> {
    let with = |output: &str| {
        let mut message = Value::Object(stored.clone());
        message["output"] = json!(output);
        let text = peer::lower(&message).map(|lowered| peer::text(&lowered)).unwrap_or_default();
        (message, text)
    };
    let (message, text) = with("");
    if text == told {
        return Some(message);
    }
    let (_, text) = with("\u{0}");
    let (before, after) = text.split_once('\u{0}')?;
    let output = told.strip_prefix(before)?.strip_suffix(after)?;
    Some(with(output).0)
}
