//! The peer as policies.

use std::fmt;
use std::sync::Arc;

use condenser::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::adapter;
use super::peer::{CallFailed, CondenseError, Condenser, Decision, Event, Kind, Models, STATE_SECTIONS, Sizes, cut};
use crate::registry::{OWN, PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, label, unfenced};

const PROMPT: &str = include_str!("../../prompts/openhands-v0-v1.md");
const PROMPT_VERSION: &str = "openhands-v0-v1";

/// Orders events by importance for `openhands-v0-attention`.
pub trait Ranker: Send + Sync {
    /// The ids of the events, the most important first.
    fn rank(&self, events: &[Event]) -> Vec<i64>;
}

/// What users say, then everything else; the newest first in both.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewestFirst;

impl Ranker for NewestFirst {
    fn rank(&self, events: &[Event]) -> Vec<i64> {
        let is_said = |event: &Event| event.source == "user" && matches!(event.kind, Kind::Action { .. });
        let ids =
            |said: bool| events.iter().rev().filter(move |event| is_said(event) == said).filter_map(|event| event.id);
        ids(true).chain(ids(false)).collect()
    }
}

/// A condenser of the older OpenHands application.
#[derive(Clone)]
pub struct OpenHandsV0 {
    name: String,
    condenser: Condenser,
    max_event_length: usize,
    request_on_overflow: bool,
    ranker: Arc<dyn Ranker>,
}

impl fmt::Debug for OpenHandsV0 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenHandsV0")
            .field("name", &self.name)
            .field("condenser", &self.condenser)
            .finish_non_exhaustive()
    }
}

impl OpenHandsV0 {
    /// A policy of this condenser, pipelines included, with the configuration's other defaults.
    pub fn new(name: impl Into<String>, condenser: Condenser) -> Self {
        Self {
            name: name.into(),
            condenser,
            max_event_length: 10_000,
            request_on_overflow: true,
            ranker: Arc::new(NewestFirst),
        }
    }

    /// Ranks events with this.
    #[must_use]
    pub fn with_ranker(self, ranker: Arc<dyn Ranker>) -> Self {
        Self { ranker, ..self }
    }

    fn decide(&self, state: &State<'_>) -> Result<Decided, CondenseError> {
        let before = adapter::view(state, self.request_on_overflow);
        let mut models = Asked { ranker: &*self.ranker, request: None };
        let decision = self.condenser.condense(before.clone(), &mut models)?;
        let (edit, summary) = adapter::edit(state, &before, &decision);
        Ok(Decided { decision, edit, summary, request: models.request })
    }

    /// What the summarizer is asked. It sees events as they are shown.
    fn request(&self, state: &State<'_>, asked: Question, edit: &Edit) -> SummaryRequest {
        let mut instructions = PROMPT.to_owned();
        if asked.is_structured {
            instructions.push_str("\nThe summary has these sections, each with its fields:\n");
            for (section, fields) in STATE_SECTIONS {
                instructions.push_str(&format!("\n{section}: {}.", fields.join(", ").replace('_', " ")));
            }
        }
        let text = |at: usize| {
            let entry = state.view.get(at)?;
            let text = match edit.rewrites.get(entry.id()) {
                Some(rewrite) => condenser::request::text_of(&rewrite.op.apply(&state.event(at)?.kind)),
                None => state.shown(at)?.text(),
            };
            let label = state.event(at).map_or_else(|| "[event]".to_owned(), |event| label(&event.kind));
            Some((entry.id().clone(), unfenced(format!("{label}\n{}", cut(&text, self.max_event_length)))))
        };
        SummaryRequest {
            instructions,
            events: asked.events.into_iter().filter_map(text).collect(),
            previous: asked.previous.map(unfenced),
            guidance: guidance(state),
            // The original has the model call a tool with the fields.
            tool_call: asked.is_structured,
            prompt_version: PROMPT_VERSION.to_owned(),
            ..SummaryRequest::default()
        }
    }
}

struct Decided {
    decision: Decision,
    edit: Edit,
    summary: Option<(String, usize)>,
    request: Option<Question>,
}

/// What the peer asked of the summarizer.
struct Question {
    is_structured: bool,
    previous: Option<String>,
    /// By position in the view.
    events: Vec<usize>,
}

struct Asked<'r> {
    ranker: &'r dyn Ranker,
    request: Option<Question>,
}

impl Asked<'_> {
    fn ask(&mut self, is_structured: bool, previous: Option<&str>, events: &[Event]) {
        let events = events.iter().filter_map(|event| event.at).collect();
        self.request = Some(Question { is_structured, previous: previous.map(str::to_owned), events });
    }
}

impl Models for Asked<'_> {
    fn summarize(&mut self, previous: Option<&str>, events: &[Event]) -> Result<String, CallFailed> {
        self.ask(false, previous, events);
        Ok(String::new())
    }

    fn state(&mut self, previous: Option<&str>, events: &[Event]) -> Result<Map<String, Value>, CallFailed> {
        self.ask(true, previous, events);
        Ok(Map::new())
    }

    fn rank(&mut self, events: &[Event]) -> Result<Vec<i64>, CallFailed> {
        Ok(self.ranker.rank(events))
    }
}

impl Policy for OpenHandsV0 {
    fn name(&self) -> &str {
        &self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        match self.decide(state) {
            Ok(decided) if decided.decision.condensation.is_some() => {
                let is_asked = state.view.has_unhandled_request();
                let is_over = state.budget.limit().is_some_and(|limit| state.tokens() > limit);
                match (is_asked, is_over && self.request_on_overflow) {
                    (true, _) => Requirement::Hard(vec![Reason::Request]),
                    (false, true) => Requirement::Hard(vec![Reason::Tokens]),
                    (false, false) => Requirement::Soft(vec![Reason::Events]),
                }
            }
            Ok(decided) if decided.edit.is_empty() => Requirement::None,
            Ok(_) => Requirement::Soft(vec![Reason::Policy]),
            // Where the peer crashes it wanted to act.
            Err(_) => Requirement::Hard(vec![Reason::Request]),
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let Decided { edit, summary, request, .. } = self.decide(state).map_err(|_| NoPlan::NoLegalCut)?;
        Ok(match (request, summary) {
            (Some(asked), Some((_, offset))) => {
                let request = self.request(state, asked, &edit);
                Plan::Summarize { edit, offset, request }
            }
            _ if edit.is_empty() => Plan::Keep,
            _ => Plan::Edit(edit),
        })
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "OpenHands 0.x, configuration";

const KEEP_FIRST: SettingText = ("keep_first", "events", "the first events that stay", SOURCE);
const MAX_SIZE: SettingText = ("max_size", "events", "a longer view is condensed to half of this", SOURCE);
const MAX_EVENT_LENGTH: SettingText =
    ("max_event_length", "characters", "the most of one event that the summarizer is shown", SOURCE);
const OVERFLOW: SettingText = (
    "request_on_overflow",
    "switch",
    "a request over its limit counts as asked to condense, as the agent asks then",
    OWN,
);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recent {
    keep_first: usize,
    max_events: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attention {
    attention_window: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    request_on_overflow: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sized {
    max_size: usize,
    keep_first: usize,
    request_on_overflow: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Summarizing {
    max_size: usize,
    keep_first: usize,
    max_event_length: usize,
    request_on_overflow: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    attention_window: usize,
    max_size: usize,
    keep_first: usize,
    max_event_length: usize,
    request_on_overflow: bool,
}

const SIZED: Sized = Sized { max_size: 100, keep_first: 1, request_on_overflow: true };
const SUMMARIZING: Summarizing =
    Summarizing { max_size: 100, keep_first: 1, max_event_length: 10_000, request_on_overflow: true };

type Built = Result<Box<dyn Policy>, String>;

fn sized(name: &str, settings: Sized, condenser: fn(Sizes) -> Condenser) -> Built {
    let Sized { max_size, keep_first, request_on_overflow } = settings;
    summarizing(name, Summarizing { max_size, keep_first, max_event_length: 10_000, request_on_overflow }, condenser)
}

fn summarizing(name: &str, settings: Summarizing, condenser: fn(Sizes) -> Condenser) -> Built {
    let Summarizing { max_size, keep_first, max_event_length, request_on_overflow } = settings;
    let sizes = Sizes { max_size, keep_first };
    sizes.check().map_err(|error| error.to_string())?;
    Ok(Box::new(OpenHandsV0 { max_event_length, request_on_overflow, ..OpenHandsV0::new(name, condenser(sizes)) }))
}

fn plain(name: &str, condenser: Condenser) -> Built {
    Ok(Box::new(OpenHandsV0::new(name, condenser)))
}

/// The condensers, and the pipeline of the web server.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    use PolicyKind::Port;
    let sizes = &[MAX_SIZE, KEEP_FIRST, OVERFLOW];
    let summary_sizes = &[MAX_SIZE, KEEP_FIRST, MAX_EVENT_LENGTH, OVERFLOW];
    vec![
        PolicyInfo::new(
            "openhands-v0-recent",
            Port,
            "OpenHands 0.x: the first and the newest events",
            &Recent { keep_first: 1, max_events: 100 },
            &[KEEP_FIRST, ("max_events", "events", "the most events of a view", SOURCE)],
            |name, Recent { keep_first, max_events }| plain(name, Condenser::Recent { keep_first, max_events }),
        ),
        PolicyInfo::new(
            "openhands-v0-masking",
            Port,
            "OpenHands 0.x: masks observations before the newest events",
            &Attention { attention_window: 100 },
            &[("attention_window", "events", "the newest events, whose observations stay", SOURCE)],
            |name, Attention { attention_window }| plain(name, Condenser::Masking { attention_window }),
        ),
        PolicyInfo::new(
            "openhands-v0-browser",
            Port,
            "OpenHands 0.x: leaves out the content of older pages",
            &Attention { attention_window: 1 },
            &[("attention_window", "pages", "the newest pages that stay", SOURCE)],
            |name, Attention { attention_window }| plain(name, Condenser::Browser { attention_window }),
        ),
        PolicyInfo::new(
            "openhands-v0-amortized",
            Port,
            "OpenHands 0.x: forgets the middle, without a summary",
            &SIZED,
            sizes,
            |name, settings| sized(name, settings, Condenser::Amortized),
        ),
        PolicyInfo::new(
            "openhands-v0-window",
            Port,
            "OpenHands 0.x: when asked, forgets the older half but the task",
            &Window { request_on_overflow: true },
            &[OVERFLOW],
            |name, Window { request_on_overflow }| {
                Ok(Box::new(OpenHandsV0 { request_on_overflow, ..OpenHandsV0::new(name, Condenser::Window) }))
            },
        ),
        PolicyInfo::new(
            "openhands-v0-summarizing",
            Port,
            "OpenHands 0.x: a summary for the middle",
            &SUMMARIZING,
            summary_sizes,
            |name, settings| summarizing(name, settings, Condenser::Summarizing),
        ),
        PolicyInfo::new(
            "openhands-v0-attention",
            Port,
            "OpenHands 0.x: keeps the most important events; here ranked without a model",
            &SIZED,
            sizes,
            |name, settings| sized(name, settings, Condenser::Attention),
        ),
        PolicyInfo::new(
            "openhands-v0-structured",
            Port,
            "OpenHands 0.x: a summary of named fields for the middle",
            &SUMMARIZING,
            summary_sizes,
            |name, settings| summarizing(name, settings, Condenser::Structured),
        ),
        PolicyInfo::new(
            "openhands-v0-server",
            Port,
            "OpenHands 0.x: the web server's pipeline of window, browser and summarizing",
            &Server {
                attention_window: 2,
                max_size: 120,
                keep_first: 4,
                max_event_length: 10_000,
                request_on_overflow: true,
            },
            &[
                ("attention_window", "pages", "the newest pages that stay", SERVER),
                ("max_size", "events", "a longer view is condensed to half of this", SERVER),
                ("keep_first", "events", "the first events that stay", SERVER),
                MAX_EVENT_LENGTH,
                OVERFLOW,
            ],
            |name, settings| {
                let Server { attention_window, max_size, keep_first, max_event_length, request_on_overflow } = settings;
                let sizes = Sizes { max_size, keep_first };
                sizes.check().map_err(|error| error.to_string())?;
                let members =
                    vec![Condenser::Window, Condenser::Browser { attention_window }, Condenser::Summarizing(sizes)];
                let pipeline = OpenHandsV0::new(name, Condenser::Pipeline(members));
                Ok(Box::new(OpenHandsV0 { max_event_length, request_on_overflow, ..pipeline }))
            },
        ),
    ]
}

const SERVER: &str = "OpenHands 0.x, web server";
