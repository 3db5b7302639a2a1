//! Conversations of which each request repeats the whole: what is new in each, and what became of the rest.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};

use condenser::condensation::{Condensation, Rewrite, RewriteOp};
use condenser::event::{ContentBlock, EventId, EventKind, Message, Observation, Role, Source, SystemPrompt};
use serde_json::{Map, Value};

use crate::answer::Answer;
use crate::builder::Builder;

/// One message of a request or an answer, whatever the API.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// The system prompt, or a later instruction.
    System(Vec<ContentBlock>),
    /// The user.
    User(Vec<ContentBlock>),
    /// The model: what it said and called.
    Assistant(Vec<Said>),
    /// The result of a call.
    Result(Observation),
}

/// One part of what the model said.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// Text, thinking or another block.
    Block(ContentBlock),
    /// Reasoning as plain text.
    Reasoning(String),
    /// A call: id, tool, arguments.
    Call(String, String, String),
}

impl Turn {
    /// Two numbers: who it is, where that can be told without the content; and all it says.
    fn keys(&self) -> (Option<u64>, u64) {
        let hash = |parts: &[&str]| {
            let mut hasher = DefaultHasher::new();
            parts.hash(&mut hasher);
            hasher.finish()
        };
        // Content is compared as text: a list of one text is that text.
        let text = |blocks: &[ContentBlock]| {
            let texts = blocks.iter().filter(|block| !block.is_thinking());
            let texts = texts.map(|block| block.as_text().map_or_else(|| format!("{block:?}"), str::to_owned));
            texts.collect::<Vec<_>>().join("\n")
        };
        match self {
            Self::System(content) => (None, hash(&["system", &text(content)])),
            Self::User(content) => (None, hash(&["user", &text(content)])),
            Self::Assistant(parts) => {
                let blocks = parts.iter().filter_map(|part| match part {
                    Said::Block(block) => Some(block.clone()),
                    _ => None,
                });
                let calls = parts.iter().filter_map(|part| match part {
                    // The same arguments may be written otherwise when they are sent back.
                    Said::Call(id, name, arguments) if id.is_empty() => Some(format!("{name}\n{arguments}")),
                    Said::Call(id, ..) => Some(id.clone()),
                    _ => None,
                });
                let said = text(&blocks.collect::<Vec<_>>());
                let calls = calls.collect::<Vec<_>>().join("\n");
                (None, hash(&["assistant", said.trim(), &calls]))
            }
            Self::Result(result) => {
                let id = (!result.call_id.is_empty()).then(|| hash(&["result", &result.call_id]));
                (id, hash(&["result", &result.call_id, &text(&result.content)]))
            }
        }
    }
}

/// Who the system prompt is, whatever it says.
const PROMPT: u64 = 0;

/// What the last request showed.
#[derive(Debug, Default)]
pub(crate) struct History {
    shown: Vec<Shown>,
    has_system: bool,
    /// Tools for the system prompt to come.
    tools: Vec<Value>,
    /// Entries before the first turn: the event of tools that no system prompt came with.
    n_lead: usize,
}

#[derive(Debug)]
struct Shown {
    identity: Option<u64>,
    content: u64,
    events: Vec<EventId>,
}

impl History {
    /// Tools of the first system prompt.
    pub(crate) fn set_tools(&mut self, tools: Vec<Value>) {
        if !self.has_system && self.tools.is_empty() {
            self.tools = tools;
        }
    }

    /// Adds what a request shows beyond what is shown already, to the builder's current record.
    ///
    /// What it no longer shows becomes a condensation: forgotten, or rewritten where a result has another
    /// content. One new text among the old is the summary; where more is new, the rest is added anew.
    pub(crate) fn request(&mut self, builder: &mut Builder, turns: Vec<Turn>) {
        if !self.has_system && !self.tools.is_empty() && !matches!(turns.first(), Some(Turn::System(_))) {
            (self.has_system, self.n_lead) = (true, 1);
            let prompt = SystemPrompt { tools: std::mem::take(&mut self.tools), ..SystemPrompt::default() };
            builder.add(Source::Agent, EventKind::SystemPrompt(prompt));
        }
        let mut keys: Vec<_> = turns.iter().map(Turn::keys).collect();
        // A prompt that changes from request to request, by a date for instance, is still the prompt.
        if let (Some((identity, _)), Some(Turn::System(_))) = (keys.first_mut(), turns.first()) {
            *identity = Some(PROMPT);
        }
        // Where each turn stands among what is shown, in order.
        let mut known: HashMap<(Option<u64>, u64), Vec<usize>> = HashMap::new();
        let key = |identity: Option<u64>, content| (identity, if identity.is_some() { 0 } else { content });
        for (place, shown) in self.shown.iter().enumerate() {
            known.entry(key(shown.identity, shown.content)).or_default().push(place);
        }
        let mut places = Vec::with_capacity(keys.len());
        let mut from = 0;
        for (identity, content) in &keys {
            let same = known.get(&key(*identity, *content)).map_or(&[][..], Vec::as_slice);
            let place = same.get(same.partition_point(|place| *place < from)).copied();
            from = place.map_or(from, |place| place + 1);
            places.push(place);
        }
        let n_old = places.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let among: Vec<usize> = (0..n_old).filter(|at| places[*at].is_none()).collect();
        let summary = match among.as_slice() {
            [at] => match &turns[*at] {
                Turn::User(content) | Turn::System(content) => {
                    let texts: Option<Vec<&str>> = content.iter().map(ContentBlock::as_text).collect();
                    texts.map(|texts| (*at, texts.join("\n")))
                }
                _ => None,
            },
            _ => None,
        };
        // With more than one new turn among the old, only those before the first can stay where they are.
        let n_kept = match (&summary, among.first()) {
            (None, Some(first)) => *first,
            _ => n_old,
        };

        let mut record = Condensation::default();
        let mut kept: Vec<Shown> = Vec::new();
        let mut stays = vec![false; self.shown.len()];
        places[..n_kept].iter().flatten().for_each(|place| stays[*place] = true);
        let mut old: Vec<Option<Shown>> = std::mem::take(&mut self.shown).into_iter().map(Some).collect();
        let mut forgotten = BTreeSet::new();
        for (place, shown) in old.iter_mut().enumerate() {
            if !stays[place] {
                forgotten.extend(shown.take().into_iter().flat_map(|shown| shown.events));
            }
        }
        let mut rewrites: BTreeMap<EventId, Rewrite> = BTreeMap::new();
        for at in 0..n_kept {
            if let Some((_, text)) = summary.as_ref().filter(|(summary_at, _)| *summary_at == at) {
                record.summary_offset = Some(self.n_lead + kept.iter().map(|shown| shown.events.len()).sum::<usize>());
                record.summary = Some(text.clone());
                kept.push(Shown { identity: None, content: keys[at].1, events: Vec::new() });
                continue;
            }
            let Some(mut shown) = places[at].and_then(|place| old[place].take()) else { continue };
            let new = match &turns[at] {
                Turn::Result(result) => Some(&result.content),
                Turn::System(content) => Some(content),
                _ => None,
            };
            if let Some(content) = new.filter(|_| shown.content != keys[at].1).cloned() {
                rewrites.extend(shown.events.first().map(|id| (id.clone(), RewriteOp::Replace { content }.into())));
                shown.content = keys[at].1;
            }
            kept.push(shown);
        }
        record.forgotten_event_ids = forgotten;
        record.rewrites = rewrites;
        if !record.is_empty() {
            let id = builder.add_condensation(record).id.clone();
            // The summary is an entry like others from here on.
            if let Some(shown) = kept.iter_mut().find(|shown| shown.events.is_empty()) {
                shown.events.push(id.summary_id());
            }
        }
        self.shown = kept;
        for turn in turns.into_iter().skip(n_kept) {
            self.add(builder, turn, None, Map::new());
        }
    }

    /// Adds what the model answered, to the builder's current record.
    pub(crate) fn answer(&mut self, builder: &mut Builder, turn: Turn, response: &str, rest: Map<String, Value>) {
        self.add(builder, turn, Some(response), rest);
    }

    fn add(&mut self, builder: &mut Builder, turn: Turn, response: Option<&str>, rest: Map<String, Value>) {
        let (mut identity, content) = turn.keys();
        let from = builder.events().len();
        match turn {
            Turn::System(content) if !self.has_system && self.shown.is_empty() => {
                self.has_system = true;
                identity = Some(PROMPT);
                let prompt =
                    SystemPrompt { content, tools: std::mem::take(&mut self.tools), ..SystemPrompt::default() };
                builder.add(Source::Environment, EventKind::SystemPrompt(prompt)).foreign = rest.into();
            }
            Turn::System(content) => {
                let message = Message { content, ..Message::text(Role::System, "") };
                builder.add(Source::Environment, EventKind::Message(message)).foreign = rest.into();
            }
            Turn::User(content) => {
                let message = Message { content, ..Message::text(Role::User, "") };
                builder.add(Source::User, EventKind::Message(message)).foreign = rest.into();
            }
            Turn::Assistant(parts) => {
                // An answer that only a later request tells of is a response of its own.
                let response = response.map_or_else(|| format!("{}#{from}", builder.record()), str::to_owned);
                let mut answer = Answer::new(response);
                for part in parts {
                    match part {
                        Said::Block(block) => answer.say([block]),
                        Said::Reasoning(text) => answer.reason(text),
                        Said::Call(id, name, arguments) => answer.call(id, name, arguments, Map::new()),
                    }
                }
                answer.add_to(builder, None, rest);
            }
            Turn::Result(observation) => {
                builder.add(Source::Environment, EventKind::Observation(observation)).foreign = rest.into();
            }
        }
        let events = builder.events()[from..].iter().map(|event| event.id.clone()).collect();
        self.shown.push(Shown { identity, content, events });
    }
}
