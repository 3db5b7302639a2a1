//! Claude Code sessions: one JSON record a line, chained by `uuid` and `parentUuid`.
//!
//! | record | event |
//! | --- | --- |
//! | `user` text, typed or injected (`isMeta`) | a user message |
//! | `user` tool result | an observation a result |
//! | `assistant` | an action a call; the text and thinking before it go with it, what follows the last call is a message |
//! | `system/compact_boundary` with the `isCompactSummary` record after it | one condensation |
//! | `system/microcompact_boundary` | a condensation that clears the named results |
//! | all else: progress, snapshots, titles, errors written by the client | unknown |
//!
//! **One answer, many records.** Records with one `message.id` are one response. Text or thinking that
//! stands in a record of its own joins the next call of the response; the leftovers of its record are
//! then in that event's foreign field `merged`. An event has the id of the record that completed it.
//! Usage grows from record to record: the last one counts, and stands on the first event. An answer
//! of nothing but thinking is unknown, since the client does not send it back.
//!
//! **Live branch.** Walking up from the last user, assistant or system record gives the chain. A boundary
//! is crossed by `logicalParentUuid`, and a parent that is not in the file is bridged by the record before.
//! To the chain belong also the records beside it that are no branches: other records of an answer on
//! the chain (parallel calls), results of its calls, and text injected with one of its calls. Other user
//! and assistant records and boundaries were abandoned by a rewind or a retry: they are counted and left
//! out. What stays is in file order.
//!
//! **Sub-agents.** Records of a side chain, by their agent or their root, and messages that progress records carry
//! are linked traces of the same file, after the session's own; the call is the one that names the agent, or
//! whose prompt begins the chain. A progress record stays where it is, without the message. Where all records
//! of a file are a sub-agent's, they are the conversation, linked to the session they name.

use std::collections::{BTreeMap, HashMap, HashSet};

use condenser::condensation::{Condensation, Rewrite, RewriteOp};
use condenser::event::{ContentBlock, EventId, EventKind, Message, Observation, Outcome, Role, Source, Usage};
use serde_json::{Map, Value};

use crate::blocks::{block, is_visible, take_action};
use crate::builder::{Builder, Count};
use crate::fields::{Tree, anthropic_usage, take_content, take_list, take_object, take_text};
use crate::ids::{ByHash, Hashes, hash};
use crate::json::Found;
use crate::node::Node;
use crate::reader::{Out, Place, Records, Stream, read_values};
use crate::{Diagnostic, Document, Format, Link, ReadError, Trace};

/// The format.
pub(crate) const FORMAT: Format = Format {
    name: NAME,
    description: "Claude Code sessions: ~/.claude/projects/**/*.jsonl",
    sniff,
    read: |document| read_values(document, NAME, open),
};

const NAME: &str = "claude-code";

/// What stands for a result that the client no longer sends.
const CLEARED: &str = "[Old tool result content cleared]";

fn sniff(document: &Document) -> bool {
    document.records().iter().take(50).any(|record| is_own(&record.value))
}

fn is_own(record: &Value) -> bool {
    let has = |key: &str| record.get(key).is_some_and(Value::is_string);
    match record.get("type").and_then(Value::as_str) {
        Some("summary") => has("leafUuid") || has("sessionId"),
        Some(
            "user" | "assistant" | "system" | "progress" | "attachment" | "queue-operation" | "file-history-snapshot",
        ) => has("sessionId"),
        _ => false,
    }
}

/// A record that is read.
struct Record {
    line: u64,
    id: String,
    kind: Kind,
    value: Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    User,
    Assistant,
    Compact,
    Microcompact,
    /// Any other system record.
    System,
    /// Not part of the conversation.
    Noise,
}

impl Record {
    fn text(&self, key: &str) -> Option<&str> {
        self.value.get(key).and_then(Value::as_str)
    }

    fn is(&self, key: &str) -> bool {
        self.value.get(key).and_then(Value::as_bool) == Some(true)
    }

    fn place(&self) -> String {
        format!("line {}", self.line)
    }
}

/// Begins to read a session.
pub(crate) fn open(records: &Records<'_>, head: &Document, out: &mut Out) -> Result<Box<dyn Stream>, ReadError> {
    if !head.records().iter().any(|record| is_own(&record.value)) {
        return Err(head.unfit(NAME, "no record has a `sessionId` and a type of a session"));
    }
    let mut survey = Survey::default();
    records.each(None, |found| survey.add(&found))?;
    Ok(Box::new(begin(survey, head.name(), None, out)))
}

/// Begins the trace of a session, or of a sub-agent of one.
fn begin(mut survey: Survey, name: String, parent: Option<Parentage>, out: &mut Out) -> Session {
    survey.classify();
    let live = survey.live(out);
    let (session, agent) = (survey.session.take(), survey.agent.take());
    let (session, parent) = match parent {
        Some(Parentage { to, call_id }) => (agent, Some(Link { to, call_id })),
        // A file of its own names the session it belongs to.
        None if !survey.has_main && agent.is_some() => (agent, session.map(|to| Link { to, call_id: None })),
        None => (session, None),
    };
    out.begin(Trace { session, parent, ..Builder::new(Vec::new()).finish(name.clone(), NAME, 0) });
    Session::new(survey, live, name)
}

/// The trace of the same file that a sub-agent belongs to.
struct Parentage {
    to: String,
    call_id: Option<String>,
}

/// What the chain needs of a record. Ids are known by their hash.
struct Chained {
    place: Place,
    id: u64,
    kind: Kind,
    is_side: bool,
    parent: Parent,
    logical: Option<u64>,
    /// The response an assistant record belongs to.
    response: Option<u64>,
    /// Ids of calls in the message, or of the calls whose results it holds.
    calls: Vec<u64>,
    source_call: Option<u64>,
    is_summary: bool,
}

#[derive(Clone, Copy)]
enum Parent {
    None,
    Root,
    Id(Option<u64>),
}

/// All records of a file, gone through once.
#[derive(Default)]
struct Survey {
    links: Vec<Chained>,
    seen: Hashes,
    has_main: bool,
    responses: ByHash<Response>,
    /// Records that hold summaries, by position.
    summaries: HashMap<usize, Value>,
    session: Option<String>,
    agent: Option<String>,
    /// Calls that gave work to sub-agents: by their prompt, and by the agent that their result names.
    calls: ByHash<String>,
}

impl Survey {
    fn add(&mut self, found: &Found<'_>) {
        let record = &found.node;
        let text = |key: &str| record.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
        let is = |key: &str| record.get(key).and_then(Node::as_bool) == Some(true);
        let uuid = text("uuid").map(hash);
        // A record that was written twice counts once.
        let is_new = uuid.is_some_and(|uuid| self.seen.insert(uuid));
        let message = record.get("message").filter(|message| message.is_object());
        let is_side = is("isSidechain");
        if self.session.is_none() {
            self.session = text("sessionId").map(str::to_owned);
        }
        if self.agent.is_none() {
            self.agent = text("agentId").map(str::to_owned);
        }
        let kind = match text("type") {
            kind @ Some("user" | "assistant") => {
                self.has_main |= !is_side && record.get("uuid").is_some_and(Node::is_string);
                match message {
                    Some(_) if is_new && kind == Some("user") => Kind::User,
                    Some(_) if is_new => Kind::Assistant,
                    _ => Kind::Noise,
                }
            }
            Some("system") if is_new => match text("subtype") {
                Some("compact_boundary") => Kind::Compact,
                Some("microcompact_boundary") => Kind::Microcompact,
                _ => Kind::System,
            },
            _ => Kind::Noise,
        };
        let id = uuid.unwrap_or_else(|| hash(&format!("line-{}", found.line)));
        let blocks = message.and_then(|message| message.get("content")?.as_array());
        let calls = |kind: &str, key: &str| {
            let of_kind = blocks.into_iter().flatten().filter(|block| is_kind(*block, kind));
            of_kind.filter_map(|block| block.get(key).and_then(Node::as_str).map(hash)).collect()
        };
        if !is_side {
            for block in blocks.into_iter().flatten() {
                let text = |keys: [&str; 2]| block.get(keys[0])?.get(keys[1])?.as_str();
                let named = |key: &str| block.get(key).and_then(Node::as_str);
                if let (Some(prompt), Some(id)) = (text(["input", "prompt"]), named("id")) {
                    self.calls.insert(hash(prompt.trim()), id.to_owned());
                }
                let agent = record.get("toolUseResult").and_then(|result| result.get("agentId")?.as_str());
                if let (Some(agent), Some(id)) = (agent, named("tool_use_id")) {
                    self.calls.insert(hash(agent), id.to_owned());
                }
            }
        }
        let (mut response, mut its_calls) = (None, Vec::new());
        match kind {
            Kind::Assistant => {
                let of = response_of(record).map_or(id, hash);
                response = Some(of);
                its_calls = calls("tool_use", "id");
                if !is_from_client(record) {
                    let known = self.responses.entry(of).or_default();
                    known.last = found.place();
                    known.is_visible |= match message.and_then(|message| message.get("content")) {
                        Some(Node::String(text)) => !text.trim().is_empty(),
                        _ => blocks.into_iter().flatten().any(|part| is_visible(&block(part).0)),
                    };
                    known.usage = usage(record).or(known.usage.take());
                }
            }
            Kind::User => its_calls = calls("tool_result", "tool_use_id"),
            _ => {}
        }
        let is_summary = kind == Kind::User && is("isCompactSummary");
        if is_summary {
            self.summaries.insert(self.links.len(), record.clone().into_value());
        }
        self.links.push(Chained {
            place: found.place(),
            id,
            kind,
            is_side,
            parent: match record.get("parentUuid") {
                None => Parent::None,
                Some(Node::Null) => Parent::Root,
                Some(parent) => Parent::Id(parent.as_str().map(hash)),
            },
            logical: text("logicalParentUuid").map(hash),
            response,
            calls: its_calls,
            source_call: text("sourceToolUseID").map(hash),
            is_summary,
        });
    }

    /// Tells the conversation from the rest, which is known only now.
    fn classify(&mut self) {
        if self.has_main {
            for link in self.links.iter_mut().filter(|link| link.is_side) {
                (link.kind, link.response, link.is_summary) = (Kind::Noise, None, false);
                link.calls.clear();
            }
        }
    }

    /// Which records are on the live branch.
    fn live(&self, out: &mut Out) -> Vec<bool> {
        let links = &self.links;
        let mut live = vec![false; links.len()];
        let mut by_id: ByHash<usize> = ByHash::default();
        for (index, link) in links.iter().enumerate() {
            by_id.entry(link.id).or_insert(index);
        }
        let before = |index: usize| links[..index].iter().rposition(|link| link.kind != Kind::Noise);
        let place = |index: usize| format!("line {}", links[index].place.0);

        let mut bridged = Count::default();
        let mut next = before(links.len());
        while let Some(index) = next {
            if std::mem::replace(&mut live[index], true) {
                out.note(Diagnostic::new(place(index), "parents form a circle; the branch was cut here"));
                break;
            }
            let link = &links[index];
            let logical = link.logical.and_then(|id| by_id.get(&id).copied());
            next = match link.parent {
                Parent::Root if logical.is_some() || link.kind != Kind::Compact => logical,
                Parent::Root | Parent::None => before(index),
                Parent::Id(parent) => match parent.and_then(|id| by_id.get(&id).copied()).or(logical) {
                    Some(parent) => Some(parent),
                    None => {
                        bridged.add_earlier(place(index));
                        before(index)
                    }
                },
            };
        }
        let bridged = bridged.report("parents that are not in the file, bridged by the record before");
        bridged.into_iter().for_each(|odd| out.note(odd));

        let answers: Hashes =
            links.iter().zip(&live).filter(|(_, live)| **live).filter_map(|(link, _)| link.response).collect();
        let answers_of = |link: &Chained| link.response.is_some_and(|id| answers.contains(&id));
        for (link, live) in links.iter().zip(&mut live) {
            *live |= answers_of(link);
        }
        let calls: Hashes =
            links.iter().filter(|link| answers_of(link)).flat_map(|link| link.calls.iter().copied()).collect();
        for (link, live) in links.iter().zip(&mut live).filter(|(link, _)| link.kind == Kind::User) {
            *live |= link.calls.iter().chain(&link.source_call).any(|id| calls.contains(id));
        }
        live
    }
}

/// The id of the response that an assistant record names.
fn response_of<T: Tree>(record: &T) -> Option<&str> {
    record.at("message")?.at("id")?.text()
}

fn is_kind<T: Tree>(block: &T, kind: &str) -> bool {
    block.at("type").and_then(Tree::text) == Some(kind)
}

/// What is known of a response from all its records.
#[derive(Default)]
struct Response {
    last: Place,
    is_visible: bool,
    usage: Option<Usage>,
}

/// Text and thinking that wait for a call, and what is left of their records.
#[derive(Default)]
struct Pending {
    blocks: Vec<ContentBlock>,
    merged: Vec<Value>,
}

struct Session {
    name: String,
    builder: Builder,
    /// What is left of the survey, and the position of the next record in it.
    links: Vec<(Place, Kind, bool)>,
    /// Whether the records of sub-agents are not the conversation itself.
    has_main: bool,
    agents: Agents,
    next: usize,
    responses: ByHash<Response>,
    pending: ByHash<Pending>,
    /// The summary record of each boundary, by position.
    summaries: HashMap<usize, Value>,
    consumed: HashSet<usize>,
    /// Positions by record id, for the segments that compactions preserve.
    positions: ByHash<usize>,
    abandoned: Count,
    unmatched: Count,
}

impl Stream for Session {
    fn push(&mut self, found: Found<'_>, out: &mut Out) {
        let (line, place) = (found.line, found.place());
        while self.links.get(self.next).is_some_and(|(next, ..)| *next < place) {
            self.next += 1;
        }
        let index = self.next;
        self.next += 1;
        let Some((_, kind, is_live)) = self.links.get(index).copied() else { return };
        let mut value = found.node.into_value();
        if self.agents.take(line, &mut value, self.has_main) {
            return;
        }
        let uuid = value.get("uuid").and_then(Value::as_str).filter(|uuid| !uuid.is_empty());
        let id = uuid.map_or_else(|| format!("line-{line}"), str::to_owned);
        let mut builder = std::mem::replace(&mut self.builder, Builder::new(Vec::new()));
        self.add(&mut builder, index, Record { line, id, kind, value }, is_live, place);
        builder.drain(out);
        self.builder = builder;
    }

    fn finish(&mut self, out: &mut Out) {
        let odd = [
            std::mem::take(&mut self.abandoned).report("records abandoned by a rewind or a retry, left out"),
            std::mem::take(&mut self.unmatched).report("cleared results that are not in the file"),
        ];
        self.builder.note(odd.into_iter().flatten());
        self.builder.close(out);
        std::mem::take(&mut self.agents).finish(&self.name, out);
    }
}

/// The records of sub-agents, which are traces of their own. They are held until the end of the file.
#[derive(Default)]
struct Agents {
    groups: Vec<Agent>,
    by_name: HashMap<String, usize>,
    /// The group of each record, for those that name only their parent.
    of_record: ByHash<usize>,
    calls: ByHash<String>,
}

struct Agent {
    name: String,
    call_id: Option<String>,
    records: Vec<(Place, Value)>,
}

impl Agents {
    /// Takes the record of a sub-agent, if `has_main`, and out of a progress record the message of one. Whether
    /// that was all of the record.
    fn take(&mut self, line: u64, value: &mut Value, has_main: bool) -> bool {
        let text = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        if has_main && value.get("isSidechain").and_then(Value::as_bool) == Some(true) {
            let parent = text(value, "parentUuid").and_then(|parent| self.of_record.get(&hash(&parent)).copied());
            let group = match text(value, "agentId") {
                Some(name) => self.group(name, None),
                None => parent.unwrap_or_else(|| self.group(format!("side-{}", self.groups.len()), None)),
            };
            if let Some(uuid) = text(value, "uuid") {
                self.of_record.insert(hash(&uuid), group);
            }
            self.push(group, line, std::mem::take(value));
            return true;
        }
        let (session, call_id) = (text(value, "sessionId"), text(value, "parentToolUseID"));
        let Some(data) = value.get_mut("data").and_then(Value::as_object_mut) else { return false };
        let name = data.get("agentId").and_then(Value::as_str).map(str::to_owned);
        let is_progress = data.get("type").and_then(Value::as_str) == Some("agent_progress");
        if let (true, Some(name), Some(mut message)) = (is_progress, name, take_object(data, "message")) {
            message.insert("isSidechain".to_owned(), Value::Bool(true));
            message.insert("agentId".to_owned(), Value::from(name.as_str()));
            message.insert("sessionId".to_owned(), session.map_or(Value::Null, Value::from));
            let group = self.group(name, call_id);
            self.push(group, line, Value::Object(message));
        }
        false
    }

    fn group(&mut self, name: String, call_id: Option<String>) -> usize {
        let next = self.groups.len();
        let group = *self.by_name.entry(name.clone()).or_insert(next);
        if group == next {
            self.groups.push(Agent { name, call_id, records: Vec::new() });
        }
        group
    }

    fn push(&mut self, group: usize, line: u64, value: Value) {
        let Some(agent) = self.groups.get_mut(group) else { return };
        let nth = agent.records.last().filter(|((last, _), _)| *last == line).map_or(0, |((_, nth), _)| nth + 1);
        agent.records.push(((line, nth), value));
    }

    fn finish(self, to: &str, out: &mut Out) {
        for Agent { name, call_id, records } in self.groups {
            let content = records.first().and_then(|(_, first)| first.pointer("/message/content"));
            let prompt = content.and_then(|content| content.as_str().or_else(|| content.get(0)?.get("text")?.as_str()));
            let by_prompt = prompt.and_then(|prompt| self.calls.get(&hash(prompt.trim())));
            let call_id = call_id.or_else(|| self.calls.get(&hash(&name)).or(by_prompt).cloned());
            let mut survey = Survey::default();
            for ((line, nth), value) in &records {
                survey.add(&Found { line: *line, nth: *nth, node: Node::of_value(value, None) });
            }
            let parent = Parentage { to: to.to_owned(), call_id };
            let mut session = begin(survey, format!("{to}#agent-{name}"), Some(parent), out);
            for ((line, nth), value) in records {
                session.push(Found { line, nth, node: Node::from(value) }, out);
            }
            session.finish(out);
        }
    }
}

impl Session {
    fn new(mut survey: Survey, live: Vec<bool>, name: String) -> Self {
        let mut positions = ByHash::default();
        let mut summaries = HashMap::new();
        let mut consumed = HashSet::new();
        let mut boundary = None;
        for (index, link) in survey.links.iter().enumerate() {
            positions.entry(link.id).or_insert(index);
            match link.kind {
                _ if !live[index] => {}
                Kind::Compact => boundary = Some(index),
                Kind::User if link.is_summary => {
                    if let (Some(boundary), Some(summary)) = (boundary.take(), survey.summaries.remove(&index)) {
                        summaries.insert(boundary, summary);
                        consumed.insert(index);
                    }
                }
                _ => {}
            }
        }
        Self {
            name,
            builder: Builder::new(Vec::new()),
            has_main: survey.has_main,
            agents: Agents { calls: survey.calls, ..Agents::default() },
            links: survey.links.into_iter().zip(live).map(|(link, live)| (link.place, link.kind, live)).collect(),
            next: 0,
            responses: survey.responses,
            pending: ByHash::default(),
            summaries,
            consumed,
            positions,
            abandoned: Count::default(),
            unmatched: Count::default(),
        }
    }

    fn add(&mut self, builder: &mut Builder, index: usize, record: Record, is_live: bool, place: Place) {
        let is_message = matches!(record.kind, Kind::User | Kind::Assistant | Kind::Compact | Kind::Microcompact);
        if is_message && !is_live {
            self.abandoned.add(|| record.place());
            return;
        }
        if self.consumed.contains(&index) {
            return;
        }
        builder.begin(&record.id, record.place(), record.text("timestamp").map(str::to_owned));
        match record.kind {
            Kind::User if record.is("isCompactSummary") => self.add_compaction(builder, None, Some(record.value)),
            Kind::Compact => {
                let summary = self.summaries.remove(&index);
                self.add_compaction(builder, Some(record.value), summary);
            }
            Kind::Microcompact => self.add_clearing(builder, record.value),
            Kind::User if !record.is("isVisibleInTranscriptOnly") => add_user(builder, record.value),
            Kind::Assistant if !is_from_client(&record.value) => self.add_answer(builder, place, record),
            Kind::User => add_noise(builder, Source::User, record.value),
            Kind::Assistant => add_noise(builder, Source::Agent, record.value),
            Kind::System | Kind::Noise => add_noise(builder, Source::Environment, record.value),
        }
    }

    /// One record of an answer.
    fn add_answer(&mut self, builder: &mut Builder, place: Place, record: Record) {
        let id = response_of(&record.value).unwrap_or(&record.id).to_owned();
        let key = hash(&id);
        let Some(response) = self.responses.get_mut(&key) else { return };
        if !response.is_visible {
            let usage = response.usage.take();
            add_noise(builder, Source::Agent, record.value);
            builder.set_usage(usage);
            return;
        }
        let is_last = place == response.last;
        let Value::Object(mut map) = record.value else { return };
        let Some(message) = map.get_mut("message").and_then(Value::as_object_mut) else { return };
        let mut pending = self.pending.remove(&key).unwrap_or_default();
        let mut actions = Vec::new();
        match take_list(message, "content") {
            None => pending.blocks.extend(take_content(message, "content", block)),
            Some(parts) => {
                let mut inexact = Vec::new();
                for part in parts {
                    match part {
                        Value::Object(mut call) if call.get("type").and_then(Value::as_str) == Some("tool_use") => {
                            let before = std::mem::take(&mut pending);
                            let action = take_action(&mut call, "input", before.blocks, &id);
                            actions.push((action, call, before.merged));
                        }
                        part => {
                            let (converted, exact) = block(&part);
                            pending.blocks.push(converted);
                            if !exact {
                                inexact.push(part);
                            }
                        }
                    }
                }
                if !inexact.is_empty() {
                    message.insert("content".to_owned(), Value::Array(inexact));
                }
            }
        }

        let mut rest = Some(rest(map));
        for (action, call, merged) in actions {
            let event = builder.add(Source::Agent, EventKind::Action(action));
            event.usage = response.usage.take();
            event.foreign = rest.take().unwrap_or_default().into();
            if !call.is_empty() {
                event.foreign.insert("block".to_owned(), Value::Object(call));
            }
            if !merged.is_empty() {
                event.foreign.insert("merged".to_owned(), Value::Array(merged));
            }
        }
        if is_last && !pending.blocks.is_empty() {
            let content = pending.blocks;
            let message = Message { content, response_id: Some(id), ..Message::text(Role::Assistant, "") };
            let event = builder.add(Source::Agent, EventKind::Message(message));
            event.usage = response.usage.take();
            event.foreign = rest.take().unwrap_or_default().into();
            if !pending.merged.is_empty() {
                event.foreign.insert("merged".to_owned(), Value::Array(pending.merged));
            }
            return;
        }
        if let Some(mut rest) = rest {
            rest.insert("uuid".to_owned(), Value::String(record.id));
            rest.insert("timestamp".to_owned(), builder.timestamp().map_or(Value::Null, Value::from));
            pending.merged.push(Value::Object(rest));
        }
        if !pending.blocks.is_empty() || !pending.merged.is_empty() {
            self.pending.insert(key, pending);
        }
    }

    fn add_compaction(&self, builder: &mut Builder, boundary: Option<Value>, summary: Option<Value>) {
        let preserved = boundary.as_ref().map(|boundary| self.preserved(boundary)).unwrap_or_default();
        if summary.is_none() {
            builder.note([Diagnostic::new(builder.place().to_owned(), "no summary follows the compaction")]);
        }
        let mut foreign = Map::new();
        if let Some(boundary) = boundary {
            foreign.insert("boundary".to_owned(), boundary);
        }
        let mut text = None;
        if let Some(Value::Object(mut record)) = summary {
            if let Some(message) = record.get_mut("message").and_then(Value::as_object_mut) {
                let content = take_content(message, "content", block);
                let texts: Vec<&str> = content.iter().filter_map(ContentBlock::as_text).collect();
                text = Some(texts.join("\n"));
            }
            foreign.insert("summary_record".to_owned(), Value::Object(record));
        }
        builder.add_compaction(text, true, |record| preserved.contains(&hash(record))).foreign = foreign.into();
    }

    /// The records that stay in view: listed by id, or as the segment between two.
    fn preserved(&self, boundary: &Value) -> Hashes {
        let mut ids = Hashes::default();
        let messages = boundary.pointer("/compactMetadata/preservedMessages");
        let listed = messages.and_then(|kept| kept.get("allUuids").or_else(|| kept.get("uuids")).or(Some(kept)));
        for item in listed.and_then(Value::as_array).into_iter().flatten() {
            ids.extend(item.as_str().or_else(|| item.get("uuid").and_then(Value::as_str)).map(hash));
        }
        let position = |key: &str| {
            let id = boundary.pointer("/compactMetadata/preservedSegment")?.get(key)?.as_str()?;
            self.positions.get(&hash(id)).copied()
        };
        if let (true, Some(head), Some(tail)) = (ids.is_empty(), position("headUuid"), position("tailUuid")) {
            let segment = self.positions.iter().filter(|(_, at)| (head..=tail).contains(*at));
            ids.extend(segment.map(|(id, _)| *id));
        }
        ids
    }

    /// Results that the client no longer sends.
    fn add_clearing(&mut self, builder: &mut Builder, record: Value) {
        let ids = record.pointer("/microcompactMetadata/compactedToolIds").and_then(Value::as_array);
        let mut rewrites: BTreeMap<EventId, Rewrite> = BTreeMap::new();
        for id in ids.into_iter().flatten().filter_map(Value::as_str) {
            let answers = builder.answers(id);
            if answers.is_empty() {
                self.unmatched.add(|| builder.place().to_owned());
            }
            rewrites.extend(
                answers.iter().map(|answer| (answer.clone(), RewriteOp::Clear { text: CLEARED.to_owned() }.into())),
            );
        }
        let foreign = match record {
            Value::Object(map) => rest(map),
            _ => Map::new(),
        };
        builder.add_condensation(Condensation { rewrites, ..Condensation::default() }).foreign = foreign.into();
    }
}

/// Whether an assistant record was written by the client and not by a model.
fn is_from_client<T: Tree>(record: &T) -> bool {
    record.at("isApiErrorMessage").and_then(Tree::flag) == Some(true)
        || record.at("message").and_then(|message| message.at("model")?.text()) == Some("<synthetic>")
}

fn add_noise(builder: &mut Builder, source: Source, record: Value) {
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let kind = text("type").unwrap_or_default();
    let detail = match kind {
        "system" => text("subtype"),
        "progress" => record.pointer("/data/type").and_then(Value::as_str),
        _ => None,
    };
    let kind = detail.map_or_else(|| kind.to_owned(), |detail| format!("{kind}/{detail}"));
    builder.add_unknown(source, &kind, record);
}

/// A user record: text, or results, or both.
fn add_user(builder: &mut Builder, record: Value) {
    let source =
        if record.get("isMeta").and_then(Value::as_bool) == Some(true) { Source::Environment } else { Source::User };
    let is_rejected = record.get("toolUseResult").and_then(Value::as_str).is_some_and(is_rejection);
    let is_empty = match record.pointer("/message/content") {
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(parts)) => parts.is_empty(),
        _ => true,
    };
    let Value::Object(mut map) = record else { return };
    let Some(message) = map.get_mut("message").and_then(Value::as_object_mut).filter(|_| !is_empty) else {
        return add_noise(builder, source, Value::Object(map));
    };
    let mut kinds = Vec::new();
    match take_list(message, "content") {
        None => kinds.push((user_message(take_content(message, "content", block)), Map::new())),
        Some(parts) => {
            let mut text = Vec::new();
            let mut inexact = Vec::new();
            for part in parts {
                match part {
                    Value::Object(mut result) if result.get("type").and_then(Value::as_str) == Some("tool_result") => {
                        if !text.is_empty() {
                            kinds.push((user_message(std::mem::take(&mut text)), Map::new()));
                        }
                        let observation = take_observation(&mut result, is_rejected);
                        kinds.push((EventKind::Observation(observation), result));
                    }
                    part => {
                        let (converted, exact) = block(&part);
                        text.push(converted);
                        if !exact {
                            inexact.push(part);
                        }
                    }
                }
            }
            if !inexact.is_empty() {
                message.insert("content".to_owned(), Value::Array(inexact));
            }
            if !text.is_empty() {
                kinds.push((user_message(text), Map::new()));
            }
        }
    }
    let mut rest = Some(rest(map));
    for (kind, block) in kinds {
        let source = if matches!(kind, EventKind::Observation(_)) { Source::Environment } else { source };
        let event = builder.add(source, kind);
        event.foreign = rest.take().unwrap_or_default().into();
        if !block.is_empty() {
            event.foreign.insert("block".to_owned(), Value::Object(block));
        }
    }
}

fn user_message(content: Vec<ContentBlock>) -> EventKind {
    EventKind::Message(Message { content, ..Message::text(Role::User, "") })
}

fn take_observation(result: &mut Map<String, Value>, is_rejected: bool) -> Observation {
    result.shift_remove("type");
    let outcome = match result.get("is_error").and_then(Value::as_bool) {
        Some(true) if is_rejected => Outcome::Rejected,
        Some(true) => Outcome::Error,
        _ => Outcome::Ok,
    };
    Observation {
        call_id: take_text(result, "tool_use_id").unwrap_or_default(),
        content: take_content(result, "content", block),
        outcome,
        ..Observation::default()
    }
}

/// Whether the client's own account of a result says that the user refused the call.
fn is_rejection(account: &str) -> bool {
    account == "User rejected tool use" || account.starts_with("Error: The user doesn't want to proceed with this tool")
}

/// What one record reports.
fn usage<T: Tree>(record: &T) -> Option<Usage> {
    let message = record.at("message")?;
    anthropic_usage(message.at("usage")?, message.at("model").and_then(Tree::text))
}

/// What of a record the event has no place for.
fn rest(mut map: Map<String, Value>) -> Map<String, Value> {
    for key in ["uuid", "timestamp"] {
        if map.get(key).is_some_and(Value::is_string) {
            map.shift_remove(key);
        }
    }
    map
}
