//! A view as the messages of a session, and what is selected of them as an edit.
//!
//! An answer is one message with its calls and their results. All summaries of a view are one completed compaction.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use condenser::event::{ContentBlock, EventKind, Outcome};
use condenser::{EventId, Rewrite, RewriteOp, State};
use serde_json::{Map, Value, json};

use super::peer::{self, CLEARED, QUESTION, Selection, Settings};
use crate::turns::{self, Turn};

/// Messages, each with the positions in the view that it stands for.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) messages: Vec<Value>,
    members: Vec<Vec<usize>>,
    /// Of a part of a message, the position of the result in the view.
    results: HashMap<(usize, usize), usize>,
    summaries: Vec<usize>,
}

impl Session {
    pub(super) fn new(state: &State<'_>, turns: &[Turn]) -> Self {
        let mut session = Self::default();
        // Where the newest call with an id stands.
        let mut calls: HashMap<String, (usize, usize)> = HashMap::new();
        for turn in turns {
            let at = session.messages.len();
            match turn {
                // The system prompt is none of the messages.
                Turn::System(_) => {}
                Turn::Summary(index) => session.add_summary(state, *index),
                Turn::User(index) => {
                    let parts = turns::kind(state, *index).map_or_else(Vec::new, |kind| parts(&kind));
                    session.push("user", parts, vec![*index]);
                }
                Turn::Answer(members) => {
                    let mut parts = Vec::new();
                    for kind in members.iter().filter_map(|&index| turns::kind(state, index)) {
                        answer(&kind, &mut parts);
                        if let EventKind::Action(action) = &*kind {
                            calls.insert(action.call_id.clone(), (at, parts.len() - 1));
                        }
                    }
                    session.push("assistant", parts, members.clone());
                }
                Turn::Result(index) => session.add_result(state, *index, &calls),
            }
        }
        session
    }

    fn push(&mut self, role: &str, parts: Vec<Value>, members: Vec<usize>) {
        let id = format!("m{}", self.messages.len());
        self.messages.push(json!({"info": {"id": id, "role": role}, "parts": parts}));
        self.members.push(members);
    }

    fn add_summary(&mut self, state: &State<'_>, index: usize) {
        let text = state.view.get(index).and_then(|entry| entry.summary()).unwrap_or_default();
        let text = text.strip_prefix(QUESTION).unwrap_or(text);
        let part = json!({"type": "text", "text": text});
        if let Some(summary) = self.messages.iter_mut().find(|message| message["info"]["summary"] == true) {
            summary["parts"].as_array_mut().into_iter().for_each(|parts| parts.push(part.clone()));
        } else {
            self.push("user", vec![json!({"type": "compaction", "auto": true})], Vec::new());
            let request = self.messages.len() - 1;
            self.push("assistant", vec![part], Vec::new());
            let info = &mut self.messages[request + 1]["info"];
            info["summary"] = json!(true);
            info["finish"] = json!("stop");
            info["parentID"] = json!(format!("m{request}"));
        }
        self.summaries.push(index);
    }

    fn add_result(&mut self, state: &State<'_>, index: usize, calls: &HashMap<String, (usize, usize)>) {
        let Some(kind) = turns::kind(state, index) else { return };
        let call = match &*kind {
            EventKind::Observation(observation) => observation.call_id.as_str(),
            EventKind::Message(message) => message.call_id.as_deref().unwrap_or_default(),
            _ => "",
        };
        // A result without a call goes with what is before it.
        let Some(last) = self.messages.len().checked_sub(1) else { return };
        let place = calls.get(call).copied();
        self.members[place.map_or(last, |(at, _)| at)].push(index);
        let Some((at, number)) = place else { return };
        self.results.insert((at, number), index);
        let is_error = matches!(&*kind, EventKind::Observation(it) if it.outcome != Outcome::Ok);
        let text = turns::text(&kind);
        let part_state = &mut self.messages[at]["parts"][number]["state"];
        part_state["status"] = json!(if is_error { "error" } else { "completed" });
        part_state[if is_error { "error" } else { "output" }] = json!(text);
        let files: Vec<Value> = parts(&kind).into_iter().filter(|part| part["type"] == "file").collect();
        if !files.is_empty() {
            part_state["attachments"] = json!(files);
        }
        if text == CLEARED && state.view.get(index).is_some_and(|entry| entry.rewrite().is_some()) {
            part_state["time"] = json!({"compacted": 1});
        }
    }

    /// With the message that asks for a compaction.
    pub(super) fn asked(&self, is_overflow: bool) -> Vec<Value> {
        let part = json!({"type": "compaction", "auto": true, "overflow": is_overflow});
        let mut messages = self.messages.clone();
        messages.push(json!({"info": {"id": "request", "role": "user"}, "parts": [part]}));
        messages
    }

    /// The entries to summarize, by position.
    pub(super) fn summarized<'s>(&'s self, selection: &'s Selection) -> impl Iterator<Item = usize> + 's {
        selection.head.iter().flat_map(|&at| self.members[at].iter().copied())
    }

    /// What leaves: the head, every summary, and behind a message that is put again all that no tail holds.
    pub(super) fn forget(&self, state: &State<'_>, selection: &Selection) -> BTreeSet<EventId> {
        let behind = match (selection.replay, &selection.tail) {
            (Some(replay), None) => replay + 1..self.members.len(),
            _ => 0..0,
        };
        let all = self.summarized(selection).chain(self.members[behind].iter().flatten().copied());
        all.chain(self.summaries.iter().copied())
            .filter_map(|index| state.view.get(index))
            .map(|entry| entry.id().clone())
            .collect()
    }

    /// Labels for the files of the message that is put again.
    pub(super) fn relabel(&self, state: &State<'_>, replay: usize) -> BTreeMap<EventId, Rewrite> {
        let rewrite = |&index: &usize| {
            let kind = turns::kind(state, index)?;
            let is_file = |block: &&ContentBlock| matches!(block, ContentBlock::Image { .. });
            turns::content(&kind).find(is_file)?;
            let label = |block: &ContentBlock| match block {
                ContentBlock::Image { .. } => {
                    files(block).iter().map(|file| ContentBlock::text(peer::label(file))).collect()
                }
                _ => vec![block.clone()],
            };
            let content = turns::content(&kind).flat_map(label).collect();
            Some((state.view.get(index)?.id().clone(), RewriteOp::Replace { content }.into()))
        };
        self.members[replay].iter().filter_map(rewrite).collect()
    }

    /// Marks for the results that the peer would mark once the run before the newest messages of the user has ended.
    pub(super) fn prune(
        &self,
        state: &State<'_>,
        settings: &Settings,
        gone: &BTreeSet<EventId>,
    ) -> BTreeMap<EventId, Rewrite> {
        let is_user = |message: &Value| message["info"]["role"] == "user";
        let end = self.messages.iter().rposition(|message| !is_user(message)).map_or(0, |last| last + 1);
        let marks = peer::prune(&self.messages[..end], settings);
        let mark = |place: &(usize, usize)| {
            let id = state.view.get(*self.results.get(place)?)?.id();
            (!gone.contains(id)).then(|| (id.clone(), RewriteOp::Clear { text: CLEARED.to_owned() }.into()))
        };
        marks.iter().filter_map(mark).collect()
    }
}

fn parts(kind: &EventKind) -> Vec<Value> {
    let part = |block: &ContentBlock| match block {
        ContentBlock::Text { text, .. } => vec![json!({"type": "text", "text": text})],
        block => files(block),
    };
    turns::content(kind).flat_map(part).collect()
}

/// The files of a block; of a block that is neither file nor text, its JSON as text.
fn files(block: &ContentBlock) -> Vec<Value> {
    match block {
        ContentBlock::Image { urls, .. } => {
            let mime = |url: &str| {
                let mime = url.strip_prefix("data:").and_then(|rest| rest.split([';', ',']).next());
                mime.unwrap_or("image/png").to_owned()
            };
            urls.iter().map(|url| json!({"type": "file", "mime": mime(url), "url": url})).collect()
        }
        ContentBlock::Other { value } if value["type"] == "file" && value["mime"].is_string() => vec![value.clone()],
        ContentBlock::Other { value } => vec![json!({"type": "text", "text": value.to_string()})],
        _ => Vec::new(),
    }
}

/// The parts of an answer; a call comes last.
fn answer(kind: &EventKind, answer: &mut Vec<Value>) {
    let reasoning = match kind {
        EventKind::Action(action) => &action.reasoning,
        EventKind::Message(message) => &message.reasoning,
        _ => &None,
    };
    answer.extend(reasoning.iter().map(|text| json!({"type": "reasoning", "text": text})));
    answer.extend(parts(kind));
    if let EventKind::Action(action) = kind {
        let input = serde_json::from_str(&action.arguments).unwrap_or_else(|_| json!(action.arguments));
        let state = Map::from_iter([("status".to_owned(), json!("running")), ("input".to_owned(), input)]);
        answer.push(json!({"type": "tool", "callID": action.call_id, "tool": action.tool_name, "state": state}));
    }
}
