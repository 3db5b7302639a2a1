//! A view as the rows of a session, and what is selected of them as an edit.

use std::collections::{BTreeSet, HashMap};

use condenser::event::{ContentBlock, EventKind, Outcome, Source};
use condenser::{Class, EventId, State};
use serde_json::{Value, json};

use super::peer::{Checkpoint, Selected, Settings, lines, serialize};
use crate::exact::{utf16_len, utf16_slice};
use crate::turns::{self, Turn, turns};

/// Rows, each with the position in the view that each of its lines comes from.
#[derive(Debug, Default)]
pub(super) struct Session {
    rows: Vec<Value>,
    owners: Vec<Vec<usize>>,
    pub(super) checkpoint: Option<Checkpoint>,
    /// The newest summary that the checkpoint was read from.
    pub(super) summary: Option<usize>,
    leaving: Vec<usize>,
}

impl Session {
    pub(super) fn new(state: &State<'_>) -> Self {
        let mut session = Self::default();
        // Where the newest call with an id stands.
        let mut calls: HashMap<String, (usize, usize)> = HashMap::new();
        // What the system said before the newest checkpoint is told anew, not written out.
        let baseline = state.view.iter().filter(|entry| entry.is_summary()).map(|entry| entry.seq()).max();
        let is_new = |index: usize| state.view.get(index).is_some_and(|entry| Some(entry.seq()) > baseline);
        for turn in turns(state) {
            match &turn {
                Turn::System(index) => {
                    let is_prompt = state.view.get(*index).is_none_or(|entry| entry.class() == Class::SystemPrompt);
                    if !is_prompt && is_new(*index) {
                        let text = turns::kind(state, *index).map(|kind| turns::text(&kind));
                        session.push("system", json!({"text": text}), vec![*index]);
                    }
                    continue;
                }
                Turn::Summary(index) => session.add_summary(state, *index),
                Turn::User(index) => {
                    let Some(kind) = turns::kind(state, *index) else { continue };
                    let is_user = state.event(*index).is_some_and(|event| event.source == Source::User);
                    let name = if is_user { "user" } else { "synthetic" };
                    let data = json!({"text": turns::text(&kind), "files": files(&kind)});
                    session.push(name, data, vec![*index]);
                }
                Turn::Answer(members) => session.add_answer(state, members, &mut calls),
                Turn::Result(index) => session.add_result(state, *index, &calls),
            }
            session.leaving.extend(turn.members());
        }
        for (row, owners) in session.rows.iter().zip(&mut session.owners) {
            owners.retain(|&owner| owner != NOBODY);
            debug_assert!(owners.len() >= lines(row, &Settings::default()).len());
        }
        session
    }

    fn push(&mut self, kind: &str, data: Value, owners: Vec<usize>) {
        self.rows.push(json!({"type": kind, "data": data}));
        self.owners.push(owners);
    }

    fn add_summary(&mut self, state: &State<'_>, index: usize) {
        let text = state.view.get(index).and_then(|entry| entry.summary()).unwrap_or_default();
        let read =
            Checkpoint::read(text).unwrap_or_else(|| Checkpoint { summary: text.to_owned(), recent: String::new() });
        let older = self.checkpoint.take().unwrap_or_default();
        let join = |a: String, b: String| if a.is_empty() || b.is_empty() { a + &b } else { format!("{a}\n\n{b}") };
        self.checkpoint =
            Some(Checkpoint { summary: join(older.summary, read.summary), recent: join(older.recent, read.recent) });
        self.summary = Some(index);
    }

    fn add_answer(&mut self, state: &State<'_>, members: &[usize], calls: &mut HashMap<String, (usize, usize)>) {
        let (mut content, mut owners) = (Vec::new(), Vec::new());
        for &index in members {
            let Some(kind) = turns::kind(state, index) else { continue };
            let reasoning = match &*kind {
                EventKind::Action(action) => &action.reasoning,
                EventKind::Message(message) => &message.reasoning,
                _ => &None,
            };
            for text in reasoning.iter().filter(|text| !text.is_empty()) {
                content.push(json!({"type": "reasoning", "text": text}));
                owners.push(index);
            }
            let text = turns::text(&kind);
            if !text.is_empty() {
                content.push(json!({"type": "text", "text": text}));
                owners.push(index);
            }
            if let EventKind::Action(action) = &*kind {
                calls.insert(action.call_id.clone(), (self.rows.len(), content.len()));
                let input = serde_json::from_str(&action.arguments).unwrap_or_else(|_| json!(action.arguments));
                let state = json!({"status": "running", "input": input});
                content.push(json!({"type": "tool", "name": action.tool_name, "state": state}));
                // The second place is the result's.
                owners.extend([index, NOBODY]);
            }
        }
        self.push("assistant", json!({"content": content}), owners);
    }

    fn add_result(&mut self, state: &State<'_>, index: usize, calls: &HashMap<String, (usize, usize)>) {
        let Some(kind) = turns::kind(state, index) else { return };
        let call = match &*kind {
            EventKind::Observation(observation) => observation.call_id.as_str(),
            EventKind::Message(message) => message.call_id.as_deref().unwrap_or_default(),
            _ => "",
        };
        let Some(&(row, number)) = calls.get(call) else { return };
        let content = &mut self.rows[row]["data"]["content"];
        let before = content.as_array().map_or(&[][..], |items| &items[..number]);
        // A tool has two places, everything else has one.
        let place = before.iter().map(|item| if item["type"] == "tool" { 2 } else { 1 }).sum::<usize>() + 1;
        if let Some(owner) = self.owners[row].get_mut(place) {
            *owner = index;
        }
        let state = &mut content[number]["state"];
        if matches!(&*kind, EventKind::Observation(it) if it.outcome != Outcome::Ok) {
            state["status"] = json!("error");
            state["error"] = json!({"message": turns::text(&kind)});
        } else {
            let text = json!({"type": "text", "text": turns::text(&kind)});
            state["status"] = json!("completed");
            state["content"] = std::iter::once(text).chain(files(&kind)).collect();
        }
    }

    /// The session as strings, each with the number of its row.
    pub(super) fn strings(&self, settings: &Settings) -> (Vec<usize>, Vec<String>) {
        let strings = self.rows.iter().enumerate();
        strings.filter_map(|(at, row)| Some((at, serialize(row, settings)?))).unzip()
    }

    /// The entries behind the older text, each with its part of it.
    pub(super) fn head(&self, rows: &[usize], selected: &Selected, settings: &Settings) -> Vec<(usize, String)> {
        let mut head: Vec<(usize, String)> = Vec::new();
        for (at, &row) in rows.iter().enumerate().take(selected.n_head + 1) {
            let mut room = if at < selected.n_head { usize::MAX } else { selected.n_cut };
            for (line, &owner) in lines(&self.rows[row], settings).iter().zip(&self.owners[row]) {
                if room == 0 {
                    break;
                }
                let text = utf16_slice(line, 0, room);
                room = room.saturating_sub(utf16_len(line) + 1);
                match head.iter_mut().find(|(other, _)| *other == owner) {
                    Some((_, said)) => *said = format!("{said}\n{text}"),
                    None => head.push((owner, text)),
                }
            }
        }
        head
    }

    /// Everything but what the system says.
    pub(super) fn forget(&self, state: &State<'_>) -> BTreeSet<EventId> {
        let entries = self.leaving.iter().filter_map(|&index| state.view.get(index));
        entries.map(|entry| entry.id().clone()).collect()
    }
}

/// The place of a result that has not come.
const NOBODY: usize = usize::MAX;

fn files(kind: &EventKind) -> Vec<Value> {
    let file = |block: &ContentBlock| match block {
        ContentBlock::Image { urls, .. } => {
            let file = |url: &String| {
                let data = url.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
                let uri = data.is_none().then_some(url);
                json!({"type": "file", "mime": data.unwrap_or("image/png"), "uri": uri})
            };
            urls.iter().map(file).collect()
        }
        _ => Vec::new(),
    };
    turns::content(kind).flat_map(file).collect()
}
