//! The request: a view in the shape that a model's API takes. This is what is measured, budgeted and checked.
//!
//! [`Request::build`] gives turns that are neutral between APIs and repairs what no API would take: results stand
//! right after their call, a call without a result gets one, and a result without a call is left out. [`Facts`]
//! counts the repairs. A request made here is always valid, whatever the history.

pub mod anthropic;
mod api;
mod incremental;
pub mod openai;
pub mod responses;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use hashbrown::{Equivalent, HashMap};
use serde::Serialize;
use serde_json::Value;

use crate::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Outcome, Role};
use crate::tokens::{TokenCounter, Tokens};
use crate::view::{Entry, PREVIEW_SEQ, View};

use api::Lowering;
pub use api::{Api, IMAGE_MARKER, ToolSchema, UnknownApi, Violation, validate};
pub use incremental::{Incremental, Tail};

/// The result of a call that has none.
pub const NO_RESULT: &str = "[no result recorded]";
/// The user message of a request that would have none.
pub const NO_USER_MESSAGE: &str = "[no user message recorded]";
/// Stands before the content of a failed call, for APIs without a flag for it.
pub const ERROR_PREFIX: &str = "[An error occurred during execution.]\n";
/// Stands before the reason of a refused call, for APIs without a flag for it.
pub const REJECTED_PREFIX: &str = "Action rejected: ";
/// An estimate of what a message costs beside its text.
pub const TOKENS_PER_MESSAGE: Tokens = Tokens(4);
/// An estimate of an image, whatever its size.
pub const TOKENS_PER_IMAGE: Tokens = Tokens(765);

/// The bodies behind a view, by position in the log.
pub trait Bodies {
    /// The event at `seq`, counted over all events pushed into the view.
    fn event(&self, seq: usize) -> Option<&Event>;
}

impl Bodies for [Event] {
    fn event(&self, seq: usize) -> Option<&Event> {
        self.get(seq)
    }
}

impl Bodies for Vec<Event> {
    fn event(&self, seq: usize) -> Option<&Event> {
        self.get(seq)
    }
}

/// The content of an entry as the model is shown it.
#[derive(Clone, Debug)]
pub enum Shown<'a> {
    /// A stored event, rewritten where a record says so.
    Event(Cow<'a, EventKind>),
    /// A summary.
    Summary(&'a str),
}

impl<'a> Shown<'a> {
    /// The content of an entry, or `None` where `bodies` does not have it.
    pub fn of(entry: Entry<'a>, bodies: &'a (impl Bodies + ?Sized)) -> Option<Self> {
        if let Some(text) = entry.summary() {
            return Some(Self::Summary(text));
        }
        let kind = &bodies.event(entry.seq())?.kind;
        Some(Self::Event(match entry.rewrite() {
            Some((rewrite, _)) => Cow::Owned(rewrite.op.apply(kind)),
            None => Cow::Borrowed(kind),
        }))
    }

    /// All text of the content, one block a line: prompts, thoughts, arguments, answers. Thinking is left out.
    pub fn text(&self) -> String {
        match self {
            Self::Summary(text) => (*text).to_owned(),
            Self::Event(kind) => text_of(kind),
        }
    }
}

/// All text of an event that a request can show, one block a line. Thinking is left out.
pub fn text_of(kind: &EventKind) -> String {
    let mut lines: Vec<Cow<'_, str>> = Vec::new();
    let mut blocks = |blocks: &'_ [ContentBlock]| {
        for block in blocks {
            match block {
                ContentBlock::Text { text, .. } => lines.push(Cow::Owned(text.clone())),
                ContentBlock::Other { value } => lines.push(Cow::Owned(value.to_string())),
                _ => {}
            }
        }
    };
    match kind {
        EventKind::SystemPrompt(prompt) => {
            blocks(&prompt.content);
            blocks(&prompt.dynamic_context);
        }
        EventKind::Message(message) => {
            blocks(&message.content);
            blocks(&message.extended_content);
        }
        EventKind::Action(action) => {
            blocks(&action.thought);
            lines.push(Cow::Owned(action.arguments.clone()));
        }
        EventKind::Observation(observation) => {
            blocks(&observation.content);
            blocks(&observation.extended_content);
        }
        _ => {}
    }
    lines.join("\n")
}

/// A view as turns.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The tools of the first system prompt, and the log position they come from.
    pub tools: Option<(usize, &'a [Value])>,
    /// The turns, in order.
    pub turns: Vec<Turn<'a>>,
    /// What had to be repaired.
    pub facts: Facts,
}

/// What had to be repaired, counted. [`Request::build`] counts what no API takes, [`Request::render_counted`] also
/// what one API does not take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Calls that got [`NO_RESULT`].
    pub filled_results: u64,
    /// Results without a call, left out.
    pub orphan_results: u64,
    /// Messages and summaries without any content, left out.
    pub blank_messages: u64,
    /// Call ids that were empty, stood twice, or did not fit the API, exchanged.
    pub renamed_calls: u64,
    /// Entries whose body is missing, left out.
    pub missing_bodies: u64,
    /// [`NO_USER_MESSAGE`] stands in: no user message was left, or the API wants one first.
    pub added_user_messages: u64,
    /// Names of tools, on calls and schemas, that did not fit the API, exchanged.
    pub renamed_tools: u64,
    /// Tools with the name of an earlier one, left out.
    pub duplicate_tools: u64,
    /// Tools whose parameters were not the schema of an object, changed.
    pub changed_schemas: u64,
    /// Images that the API does not take there, or not in this form: [`IMAGE_MARKER`] stands for them.
    pub images_as_text: u64,
    /// Thinking that the API does not take, or not without a signature, left out.
    pub left_out_thinking: u64,
    /// Reasoning that came as plain text beside the content, which no API takes back, left out.
    pub left_out_reasoning: u64,
    /// Calls stored inside messages, which no result can be bound to, left out.
    pub left_out_calls: u64,
    /// System messages that stand as user text, marked by [`anthropic::SYSTEM_PREFIX`].
    pub system_as_user: u64,
    /// Arguments that are not a JSON object, kept as text under [`anthropic::RAW_ARGUMENTS`].
    pub wrapped_arguments: u64,
    /// Texts at the very end of a request that lost their trailing white space.
    pub trimmed_texts: u64,
}

/// Who speaks in a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// System prompt or system message.
    System,
    /// User, summaries included.
    User,
    /// Assistant: text and the calls of one response.
    Assistant,
    /// The result of one call.
    Tool {
        /// The call's id in the request.
        call_id: String,
        /// The tool.
        name: String,
        /// How it ended.
        outcome: Outcome,
    },
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn<'a> {
    /// Who speaks.
    pub speaker: Speaker,
    /// What is said, in order.
    pub parts: Vec<Part<'a>>,
}

/// One piece of a turn, and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Part<'a> {
    /// The view position of the entry, or `None` for text that stands in for something missing.
    pub entry: Option<usize>,
    /// The log position of the entry, and of the record that rewrote it: together they name the content. `None`
    /// for content that no log holds yet.
    pub key: Option<(usize, usize)>,
    /// The content.
    pub body: Body<'a>,
}

/// The content of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum Body<'a> {
    /// Text, never blank.
    Text(Cow<'a, str>),
    /// An image.
    Image(Cow<'a, str>),
    /// Thinking, plain or redacted, for APIs that want it back.
    Thinking(Cow<'a, ContentBlock>),
    /// A call.
    Call {
        /// The id in the request: unique in its turn, never empty.
        id: String,
        /// The tool.
        name: Cow<'a, str>,
        /// JSON text as the model wrote it.
        arguments: Cow<'a, str>,
    },
}

impl<'a> Request<'a> {
    /// Lowers a view. Never fails: what cannot be sent is repaired or left out, and counted.
    pub fn build(view: &'a View, bodies: &'a (impl Bodies + ?Sized)) -> Self {
        let mut builder = Builder::default();
        let entries = builder.entries(view, 0, bodies);
        builder.match_results(&entries);
        let mut index = 0;
        while index < entries.len() {
            index = builder.add(&entries, index);
        }
        builder.finish()
    }

    /// The number of turns before the first of the assistant.
    fn n_before_assistant(&self) -> usize {
        self.turns.iter().take_while(|turn| turn.speaker != Speaker::Assistant).count()
    }

    /// The size of the whole request: tools, system prompt and messages.
    pub fn tokens(&self, sizer: &Sizer<'_>) -> Tokens {
        let tools = self.tools.map_or(Tokens::ZERO, |tools| sizer.tools(tools));
        let parts: Tokens = self.turns.iter().map(|turn| sizer.turn(turn)).sum();
        tools + parts
    }

    /// The size of each entry of the view behind this request, by view position, without the cost per message.
    pub fn entry_tokens(&self, n_entries: usize, sizer: &Sizer<'_>) -> Vec<Tokens> {
        let mut sizes = vec![Tokens::ZERO; n_entries];
        for turn in &self.turns {
            sizer.each(&turn.parts, |part, tokens| {
                if let Some(size) = part.entry.and_then(|entry| sizes.get_mut(entry)) {
                    *size += tokens;
                }
            });
        }
        sizes
    }
}

/// Positions here are places among the entries that are lowered.
#[derive(Default)]
struct Builder<'a> {
    request: Request<'a>,
    /// The response whose assistant turn is the newest turn and may still grow.
    open_run: Option<String>,
    /// By position: the position of the call's result.
    results: Vec<Option<usize>>,
    /// By position: that of the last answer to the call, shown or not; 0: there is none.
    last_answer: Vec<usize>,
    /// Answers to no call among the entries.
    orphans: Vec<usize>,
    /// The last of the answers to the calls that were added.
    reach: usize,
    /// Whether a turn of the user was added.
    has_user: bool,
    /// Whether what was added last went into a turn that was there.
    joined: bool,
}

type Entries<'a> = [(Entry<'a>, Shown<'a>)];

impl<'a> Builder<'a> {
    /// The entries from a view position on, those with bodies.
    fn entries(
        &mut self,
        view: &'a View,
        from: usize,
        bodies: &'a (impl Bodies + ?Sized),
    ) -> Vec<(Entry<'a>, Shown<'a>)> {
        let with_body = |entry: Entry<'a>| {
            let shown = Shown::of(entry, bodies);
            self.request.facts.missing_bodies += u64::from(shown.is_none());
            shown.map(|shown| (entry, shown))
        };
        view.iter().skip(from).filter_map(with_body).collect()
    }

    /// Binds each result to the newest earlier call with its id; the first final answer wins over interim ones.
    fn match_results(&mut self, entries: &Entries<'a>) {
        self.results = vec![None; entries.len()];
        self.last_answer = vec![0; entries.len()];
        let mut newest: HashMap<&str, usize> = HashMap::new();
        for (position, (_, shown)) in entries.iter().enumerate() {
            let Shown::Event(kind) = shown else { continue };
            match &**kind {
                EventKind::Action(action) => {
                    newest.insert(&action.call_id, position);
                }
                EventKind::Observation(observation) => {
                    let Some(&call) = newest.get(observation.call_id.as_str()) else {
                        self.request.facts.orphan_results += 1;
                        self.orphans.push(position);
                        continue;
                    };
                    self.last_answer[call] = position;
                    let replaces = self.results[call].is_none_or(|older| is_interim(&entries[older].1));
                    let loser = if replaces { self.results[call].replace(position) } else { Some(position) };
                    self.request.facts.orphan_results += u64::from(loser.is_some());
                }
                _ => {}
            }
        }
    }

    /// Lowers the entry at `index`, and those that belong into the same turns. The position to go on from.
    fn add(&mut self, entries: &Entries<'a>, index: usize) -> usize {
        let (entry, shown) = &entries[index];
        match shown {
            Shown::Summary(text) => {
                let is_blank = text.trim().is_empty();
                self.user(if is_blank { Vec::new() } else { vec![part(*entry, Body::Text(Cow::Borrowed(text)))] });
            }
            Shown::Event(kind) => match &**kind {
                EventKind::SystemPrompt(_) => self.system_prompt(*entry, shown),
                EventKind::Message(message) => self.message(*entry, shown, message),
                EventKind::Action(_) => return self.batch(entries, index),
                _ => {}
            },
        }
        index + 1
    }

    fn system_prompt(&mut self, entry: Entry<'a>, shown: &Shown<'a>) {
        if self.request.tools.is_none()
            && let Shown::Event(Cow::Borrowed(EventKind::SystemPrompt(stored))) = shown
            && !stored.tools.is_empty()
        {
            self.request.tools = Some((entry.seq(), &stored.tools));
        }
        let mut parts = Vec::new();
        content(&mut parts, entry, shown, |kind| match kind {
            EventKind::SystemPrompt(prompt) => [&prompt.content[..], &prompt.dynamic_context[..]],
            _ => [&[], &[]],
        });
        self.push(Speaker::System, parts);
    }

    fn message(&mut self, entry: Entry<'a>, shown: &Shown<'a>, message: &Message) {
        let mut parts = Vec::new();
        self.request.facts.left_out_calls += message.tool_calls.as_ref().map_or(0, |calls| calls.len() as u64);
        self.reasoning(message.reasoning.as_deref());
        content(&mut parts, entry, shown, |kind| match kind {
            EventKind::Message(message) => [&message.content[..], &message.extended_content[..]],
            _ => [&[], &[]],
        });
        match message.role {
            Role::User => self.user(parts),
            Role::System => self.push(Speaker::System, parts),
            Role::Assistant => {
                self.push(Speaker::Assistant, parts);
                self.open_run.clone_from(&message.response_id);
            }
            // A result outside an observation names no call that a request could hold.
            Role::Tool => self.request.facts.orphan_results += 1,
        }
    }

    fn reasoning(&mut self, text: Option<&str>) {
        self.request.facts.left_out_reasoning += u64::from(text.is_some_and(|text| !text.trim().is_empty()));
    }

    fn user(&mut self, parts: Vec<Part<'a>>) {
        match self.request.turns.last_mut() {
            Some(turn) if turn.speaker == Speaker::User => {
                self.request.facts.blank_messages += u64::from(parts.is_empty());
                turn.parts.extend(parts);
                self.joined = true;
            }
            _ => self.push(Speaker::User, parts),
        }
    }

    fn push(&mut self, speaker: Speaker, parts: Vec<Part<'a>>) {
        self.open_run = None;
        if parts.iter().all(|part| matches!(part.body, Body::Thinking(_))) {
            self.request.facts.blank_messages += 1;
        } else {
            self.request.turns.push(Turn { speaker, parts });
        }
    }

    /// One assistant turn for the calls of one response that stand together, then their results.
    fn batch(&mut self, entries: &Entries<'a>, start: usize) -> usize {
        let response = action(&entries[start].1).and_then(|action| action.response_id.clone());
        let mut calls = Vec::new();
        let mut end = start;
        while let Some((_, shown)) = entries.get(end) {
            match action(shown) {
                Some(_) if end == start => calls.push(end),
                Some(next) if response.is_some() && next.response_id == response => calls.push(end),
                Some(_) => break,
                None if is_observation(shown) => {}
                None => break,
            }
            end += 1;
        }
        let mut parts = Vec::new();
        let mut ids: Vec<(usize, String)> = Vec::new();
        for &call in &calls {
            let (entry, shown) = &entries[call];
            content(&mut parts, *entry, shown, |kind| match kind {
                EventKind::Action(action) => [&action.thinking[..], &action.thought[..]],
                _ => [&[], &[]],
            });
            let Some(action) = action(shown) else { continue };
            self.reasoning(action.reasoning.as_deref());
            let mut id = action.call_id.clone();
            let is_taken = |id: &str| id.is_empty() || ids.iter().any(|(_, taken)| *taken == id);
            if is_taken(&id) {
                id = format!("call_{}", entry.seq());
                while is_taken(&id) {
                    id.push('_');
                }
                self.request.facts.renamed_calls += 1;
            }
            let (name, arguments) = match shown {
                Shown::Event(Cow::Borrowed(EventKind::Action(stored))) => {
                    (Cow::Borrowed(stored.tool_name.as_str()), Cow::Borrowed(stored.arguments.as_str()))
                }
                _ => (Cow::Owned(action.tool_name.clone()), Cow::Owned(action.arguments.clone())),
            };
            parts.push(part(*entry, Body::Call { id: id.clone(), name, arguments }));
            ids.push((call, id));
        }
        let joins = response.is_some() && self.open_run == response;
        match self.request.turns.last_mut() {
            Some(turn) if joins && turn.speaker == Speaker::Assistant => {
                turn.parts.extend(parts);
                self.joined = true;
            }
            _ => self.request.turns.push(Turn { speaker: Speaker::Assistant, parts }),
        }
        self.open_run = None;
        for (call, id) in ids {
            let turn = self.result(entries, call, id);
            self.request.turns.push(turn);
        }
        end
    }

    fn result(&mut self, entries: &Entries<'a>, call: usize, call_id: String) -> Turn<'a> {
        let name = action(&entries[call].1).map(|action| action.tool_name.clone()).unwrap_or_default();
        let mut parts = Vec::new();
        let mut outcome = Outcome::Ok;
        if let Some(result) = self.results[call] {
            let (entry, shown) = &entries[result];
            outcome = observation(shown).map_or(Outcome::Ok, |observation| observation.outcome);
            content(&mut parts, *entry, shown, |kind| match kind {
                EventKind::Observation(observation) => [&observation.content[..], &observation.extended_content[..]],
                _ => [&[], &[]],
            });
        } else {
            self.request.facts.filled_results += 1;
            parts.push(Part { entry: None, key: None, body: Body::Text(Cow::Borrowed(NO_RESULT)) });
        }
        Turn { speaker: Speaker::Tool { call_id, name, outcome }, parts }
    }

    fn finish(mut self) -> Request<'a> {
        let turns = &mut self.request.turns;
        if !turns.iter().any(|turn| turn.speaker == Speaker::User) {
            let at = turns.iter().take_while(|turn| turn.speaker == Speaker::System).count();
            let body = Body::Text(Cow::Borrowed(NO_USER_MESSAGE));
            turns.insert(at, Turn { speaker: Speaker::User, parts: vec![Part { entry: None, key: None, body }] });
            self.request.facts.added_user_messages += 1;
        }
        self.request
    }
}

fn action<'s>(shown: &'s Shown<'_>) -> Option<&'s Action> {
    match shown {
        Shown::Event(kind) => match &**kind {
            EventKind::Action(action) => Some(action),
            _ => None,
        },
        Shown::Summary(_) => None,
    }
}

fn observation<'s>(shown: &'s Shown<'_>) -> Option<&'s Observation> {
    match shown {
        Shown::Event(kind) => match &**kind {
            EventKind::Observation(observation) => Some(observation),
            _ => None,
        },
        Shown::Summary(_) => None,
    }
}

fn is_observation(shown: &Shown<'_>) -> bool {
    observation(shown).is_some()
}

fn is_interim(shown: &Shown<'_>) -> bool {
    observation(shown).is_some_and(|observation| observation.interim)
}

fn part<'a>(entry: Entry<'a>, body: Body<'a>) -> Part<'a> {
    Part { entry: Some(entry.index()), key: key_of(entry), body }
}

/// What names the content of an entry: see [`Part::key`].
fn key_of(entry: Entry<'_>) -> Option<(usize, usize)> {
    let rewritten_by = entry.rewrite().map_or(entry.seq(), |(_, seq)| seq);
    (rewritten_by != PREVIEW_SEQ).then_some((entry.seq(), rewritten_by))
}

/// Adds the blocks of an entry, borrowed where it is stored as shown. Blank text is left out.
fn content<'a>(
    parts: &mut Vec<Part<'a>>,
    entry: Entry<'a>,
    shown: &Shown<'a>,
    blocks: impl for<'k> Fn(&'k EventKind) -> [&'k [ContentBlock]; 2],
) {
    match shown {
        Shown::Summary(_) => {}
        Shown::Event(Cow::Borrowed(kind)) => {
            for block in blocks(kind).into_iter().flatten() {
                match block {
                    ContentBlock::Text { text, .. } if text.trim().is_empty() => {}
                    ContentBlock::Text { text, .. } => parts.push(part(entry, Body::Text(Cow::Borrowed(text)))),
                    ContentBlock::Image { urls, .. } => {
                        parts.extend(urls.iter().map(|url| part(entry, Body::Image(Cow::Borrowed(url)))));
                    }
                    ContentBlock::Other { value } => {
                        parts.push(part(entry, Body::Text(Cow::Owned(value.to_string()))));
                    }
                    thinking => parts.push(part(entry, Body::Thinking(Cow::Borrowed(thinking)))),
                }
            }
        }
        Shown::Event(Cow::Owned(kind)) => {
            for block in blocks(kind).into_iter().flatten() {
                match block {
                    ContentBlock::Text { text, .. } if text.trim().is_empty() => {}
                    ContentBlock::Text { text, .. } => parts.push(part(entry, Body::Text(Cow::Owned(text.clone())))),
                    ContentBlock::Image { urls, .. } => {
                        parts.extend(urls.iter().map(|url| part(entry, Body::Image(Cow::Owned(url.clone())))));
                    }
                    ContentBlock::Other { value } => {
                        parts.push(part(entry, Body::Text(Cow::Owned(value.to_string()))));
                    }
                    thinking => parts.push(part(entry, Body::Thinking(Cow::Owned(thinking.clone())))),
                }
            }
        }
    }
}

/// The content of an entry, as [`Part::key`] names it, and the number of the part in it.
type PartKey = ((usize, usize), u32);

/// What is derived, and from which content of which entries.
type DerivedKey = (TypeId, Box<[(usize, usize)]>);

/// The same, to look it up with.
#[derive(Hash)]
struct DerivedFrom<'k>(TypeId, &'k [(usize, usize)]);

impl Equivalent<DerivedKey> for DerivedFrom<'_> {
    fn equivalent(&self, key: &DerivedKey) -> bool {
        self.0 == key.0 && *self.1 == *key.1
    }
}

/// Counts requests with one counter and counts each piece of content once.
pub struct Sizer<'c> {
    counter: &'c dyn TokenCounter,
    parts: RefCell<HashMap<PartKey, Tokens>>,
    tools: RefCell<HashMap<usize, Tokens>>,
    newest: RefCell<Sizes>,
    derived: RefCell<HashMap<DerivedKey, Rc<dyn Any>>>,
}

/// The sizes of the request that was measured last.
#[derive(Default)]
struct Sizes {
    lowering: Incremental,
    turns: Vec<Tokens>,
    entries: Vec<Tokens>,
}

impl std::fmt::Debug for Sizer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sizer").field("counter", &self.counter.name()).finish_non_exhaustive()
    }
}

impl<'c> Sizer<'c> {
    /// A sizer for the requests of one log.
    pub fn new(counter: &'c dyn TokenCounter) -> Self {
        Self {
            counter,
            parts: RefCell::default(),
            tools: RefCell::default(),
            newest: RefCell::default(),
            derived: RefCell::default(),
        }
    }

    /// The size of a view's whole request, and of each entry of the view, as [`Request::tokens`] and
    /// [`Request::entry_tokens`] give them. Only what is not as in the view measured before is lowered.
    pub fn sizes(&self, view: &View, bodies: &(impl Bodies + ?Sized)) -> (Tokens, Vec<Tokens>) {
        let Sizes { lowering, turns, entries } = &mut *self.newest.borrow_mut();
        let tail = lowering.next(view, bodies);
        turns.truncate(tail.n_turns);
        entries.truncate(tail.n_entries);
        entries.resize(view.len(), Tokens::ZERO);
        for turn in &tail.request.turns {
            let mut size = TOKENS_PER_MESSAGE;
            self.each(&turn.parts, |part, tokens| {
                size += tokens;
                if let Some(entry) = part.entry.and_then(|entry| entries.get_mut(entry)) {
                    *entry += tokens;
                }
            });
            turns.push(size);
        }
        let tools = tail.request.tools.map_or(Tokens::ZERO, |tools| self.tools(tools));
        (tools + turns.iter().copied().sum(), entries.clone())
    }

    /// The counter.
    pub fn counter(&self) -> &'c dyn TokenCounter {
        self.counter
    }

    /// What `make` gives for what entries show together, made once for a log, whatever views they are in. `T` says what
    /// it is; it depends on nothing but the entries and their bodies.
    pub fn derived<T: 'static>(&self, entries: &[Entry<'_>], make: impl FnOnce() -> T) -> Rc<T> {
        let (one, several);
        let keys = match entries {
            [entry] => {
                one = key_of(*entry);
                one.as_ref().map(std::slice::from_ref)
            }
            entries => {
                several = entries.iter().map(|entry| key_of(*entry)).collect::<Option<Vec<_>>>();
                several.as_deref()
            }
        };
        let Some(keys) = keys else { return Rc::new(make()) };
        let key = DerivedFrom(TypeId::of::<T>(), keys);
        let known = self.derived.borrow().get(&key).and_then(|known| Rc::clone(known).downcast().ok());
        known.unwrap_or_else(|| {
            let made = Rc::new(make());
            self.derived.borrow_mut().insert((key.0, keys.into()), made.clone());
            made
        })
    }

    /// The size of a text.
    pub fn text(&self, text: &str) -> Tokens {
        self.counter.count(text)
    }

    fn count(&self, body: &Body<'_>) -> Tokens {
        match body {
            Body::Text(text) => self.counter.count(text),
            Body::Image(url) => self.counter.image(url),
            Body::Thinking(_) => Tokens::ZERO,
            Body::Call { name, arguments, .. } => self.counter.count(name) + self.counter.count(arguments),
        }
    }

    /// The size of one turn, [`TOKENS_PER_MESSAGE`] included. Thinking counts nothing: the API that sizes refer to
    /// is not sent any.
    pub fn turn(&self, turn: &Turn<'_>) -> Tokens {
        let mut total = TOKENS_PER_MESSAGE;
        self.each(&turn.parts, |_, tokens| total += tokens);
        total
    }

    /// Calls `visit` with each part and its size.
    pub fn each<'p>(&self, parts: &'p [Part<'p>], mut visit: impl FnMut(&'p Part<'p>, Tokens)) {
        let mut cache = self.parts.borrow_mut();
        let mut ordinal = 0;
        let mut previous = None;
        for part in parts {
            ordinal = if previous == part.key { ordinal + 1 } else { 0 };
            previous = part.key;
            let tokens = match part.key {
                None => self.count(&part.body),
                Some(key) => *cache.entry((key, ordinal)).or_insert_with(|| self.count(&part.body)),
            };
            visit(part, tokens);
        }
    }

    /// The size of tool schemas as the OpenAI API takes them.
    pub fn tools(&self, (seq, tools): (usize, &[Value])) -> Tokens {
        *self.tools.borrow_mut().entry(seq).or_insert_with(|| {
            let mut lowering = Lowering::new(Facts::default(), Api::OpenAiChat);
            tools.iter().map(|tool| self.counter.count(&openai::tool(tool, &mut lowering).to_string())).sum()
        })
    }
}
