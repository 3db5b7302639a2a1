//! The original's view and condensers, exact, with the model calls as a trait.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// An event of the agent's history, as far as condensers look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its id; an event that a condenser made has none, which counts as −1.
    pub id: Option<i64>,
    /// `agent`, `user` or `environment`.
    pub source: String,
    /// What it is.
    pub kind: Kind,
    /// The action that an observation answers.
    pub cause: Option<i64>,
    /// Its position in the list that the first condenser was given, so that a decision leads back to it; `None` for
    /// an event that was not there. The original has no such field.
    pub at: Option<usize>,
}

/// What an event is.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// An action, by its type name.
    Action {
        /// The name.
        name: String,
        /// The text of a message, or the query of a recall.
        text: String,
    },
    /// An observation, by its type name.
    Observation {
        /// The name.
        name: String,
        /// Its content.
        content: String,
        /// The address of a page.
        url: String,
    },
    /// A stored condensation.
    Condensation(Condensation),
    /// Somebody asked for one.
    Request,
}

/// The type name of what stands for events that a condenser took out.
pub const CONDENSE: &str = "condense";
/// The content of a masked observation.
pub const MASKED: &str = "<MASKED>";

/// A stored condensation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Condensation {
    /// What leaves.
    pub forgotten: Forgotten,
    /// The summary and its position in the final view.
    pub summary: Option<(String, usize)>,
}

/// What a condensation takes out.
#[derive(Clone, Debug, PartialEq)]
pub enum Forgotten {
    /// These ids.
    Ids(Vec<i64>),
    /// Every id from the first to the second, both included.
    Range(i64, i64),
}

impl Default for Forgotten {
    fn default() -> Self {
        Self::Ids(Vec::new())
    }
}

impl Forgotten {
    /// Whether an id leaves.
    pub fn contains(&self, id: i64) -> bool {
        match self {
            Self::Ids(ids) => ids.contains(&id),
            Self::Range(start, end) => (*start..=*end).contains(&id),
        }
    }
}

/// Why an event is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Neither an action nor an observation.
    #[error("an event has a name under either `action` or `observation`")]
    NoKind,
    /// Both a list and a range, or neither.
    #[error("a condensation gives either a list of ids or both ends of a range")]
    Forgotten,
    /// One without the other.
    #[error("a condensation gives a summary and an offset, or neither")]
    Summary,
}

impl Event {
    /// Reads an event as the original stores it.
    ///
    /// # Errors
    /// [`LoadError`] where the original cannot make it.
    pub fn parse(value: &Value) -> Result<Self, LoadError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let args = &value["args"];
        let kind = match (value["action"].as_str(), value["observation"].as_str()) {
            (Some("condensation_request"), None) => Kind::Request,
            (Some("condensation"), None) => Kind::Condensation(Condensation::parse(args)?),
            (Some(name), None) => {
                let key = if name == "recall" { "query" } else { "content" };
                Kind::Action { name: name.to_owned(), text: text(&args[key]) }
            }
            (None, Some(name)) => Kind::Observation {
                name: name.to_owned(),
                content: text(&value["content"]),
                url: text(&value["extras"]["url"]),
            },
            _ => return Err(LoadError::NoKind),
        };
        Ok(Self {
            id: value["id"].as_i64(),
            source: text(&value["source"]),
            kind,
            cause: value["cause"].as_i64(),
            at: None,
        })
    }

    /// What stands for an event that a condenser took out.
    fn condensed(content: String, at: Option<usize>) -> Self {
        let kind = Kind::Observation { name: CONDENSE.to_owned(), content, url: String::new() };
        Self { id: None, source: "environment".to_owned(), kind, cause: None, at }
    }

    fn number(&self) -> i64 {
        self.id.unwrap_or(-1)
    }

    fn is_observation(&self) -> bool {
        matches!(self.kind, Kind::Observation { .. })
    }

    /// The content of an observation with this type name.
    fn observed(&self, wanted: &str) -> Option<&str> {
        match &self.kind {
            Kind::Observation { name, content, .. } if name == wanted => Some(content),
            _ => None,
        }
    }

    /// The text of an action with this type name.
    fn acted(&self, wanted: &str) -> Option<&str> {
        match &self.kind {
            Kind::Action { name, text } if name == wanted => Some(text),
            _ => None,
        }
    }
}

impl Condensation {
    fn parse(args: &Value) -> Result<Self, LoadError> {
        let ids = args["forgotten_event_ids"].as_array();
        let ends = [&args["forgotten_events_start_id"], &args["forgotten_events_end_id"]].map(Value::as_i64);
        let forgotten = match (ids, ends) {
            (Some(ids), [None, None]) => Forgotten::Ids(ids.iter().filter_map(Value::as_i64).collect()),
            (None, [Some(start), Some(end)]) => Forgotten::Range(start, end),
            _ => return Err(LoadError::Forgotten),
        };
        let summary = match (args["summary"].as_str(), args["summary_offset"].as_u64()) {
            (Some(text), Some(offset)) => Some((text.to_owned(), offset as usize)),
            (None, None) => None,
            _ => return Err(LoadError::Summary),
        };
        Ok(Self { forgotten, summary })
    }
}

/// What condensers are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// The events, oldest first.
    pub events: Vec<Event>,
    /// Whether somebody asked for a condensation and none has followed.
    pub unhandled_request: bool,
}

impl View {
    /// The view of a history: forgetting reaches everything whenever it was decided, and only the newest summary
    /// shows, at its offset in the final list.
    pub fn of(history: &[Event]) -> Self {
        let records = || {
            history.iter().filter_map(|event| match &event.kind {
                Kind::Condensation(record) => Some(record),
                _ => None,
            })
        };
        let is_shown = |event: &&Event| {
            !matches!(event.kind, Kind::Condensation(_) | Kind::Request)
                && !records().any(|record| record.forgotten.contains(event.number()))
        };
        let mut events: Vec<Event> = history.iter().filter(is_shown).cloned().collect();
        if let Some((text, offset)) = records().filter_map(|record| record.summary.as_ref()).next_back() {
            let at = (*offset).min(events.len());
            events.insert(at, Event::condensed(text.clone(), None));
        }
        let newest = history.iter().rev().find(|event| matches!(event.kind, Kind::Condensation(_) | Kind::Request));
        Self { events, unhandled_request: newest.is_some_and(|event| event.kind == Kind::Request) }
    }
}

/// The fields of a structured summary, in the order of the original. The first three are required.
pub const STATE_FIELDS: [&str; 18] = [
    "user_context",
    "completed_tasks",
    "pending_tasks",
    "current_state",
    "files_modified",
    "function_changes",
    "data_structures",
    "tests_written",
    "tests_passing",
    "failing_tests",
    "error_messages",
    "branch_created",
    "branch_name",
    "commits_made",
    "pr_created",
    "pr_status",
    "dependencies",
    "other_relevant_context",
];

/// The sections of a structured summary, with the fields under each.
pub const STATE_SECTIONS: [(&str, &[&str]); 5] = [
    ("Core", &["user_context", "completed_tasks", "pending_tasks", "current_state"]),
    ("Code", &["files_modified", "function_changes", "data_structures", "dependencies"]),
    ("Tests", &["tests_written", "tests_passing", "failing_tests", "error_messages"]),
    ("Version control", &["branch_created", "branch_name", "commits_made", "pr_created", "pr_status"]),
    ("More", &["other_relevant_context"]),
];

/// A structured summary as text: a title, then sections with a bold label per field, empty ones included. The layout
/// is the original's, the words of title and labels are not.
pub fn render_state(fields: &Map<String, Value>) -> String {
    let mut blocks = vec!["# State".to_owned()];
    for (section, names) in STATE_SECTIONS {
        blocks.push(format!("## {section}"));
        blocks.extend(names.iter().map(|name| {
            let text = fields.get(*name).and_then(Value::as_str).unwrap_or_default();
            format!("**{}**: {text}", name.replace('_', " "))
        }));
    }
    blocks.join("\n\n")
}

/// The models behind condensers.
pub trait Models {
    /// A summary of these events, in view order, and of the one before it.
    ///
    /// # Errors
    /// [`CallFailed`]; the original lets it escape.
    fn summarize(&mut self, previous: Option<&str>, events: &[Event]) -> Result<String, CallFailed>;
    /// The fields of a structured summary; empty where the answer held no readable call.
    ///
    /// # Errors
    /// As [`Models::summarize`].
    fn state(&mut self, previous: Option<&str>, events: &[Event]) -> Result<Map<String, Value>, CallFailed>;
    /// All ids, the most important first.
    ///
    /// # Errors
    /// As [`Models::summarize`].
    fn rank(&mut self, events: &[Event]) -> Result<Vec<i64>, CallFailed>;
}

/// A model gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model did not answer")]
pub struct CallFailed;

/// Why there is no decision: all of them crashes of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CondenseError {
    /// The smallest id of no ids at all: the kept parts cover the view.
    #[error("nothing lies between the head and the tail that stay")]
    NothingToForget,
    /// The view has no event at the place where a summary would stand.
    #[error("the view is no longer than the head that stays")]
    NoSummaryPlace,
    /// The model's call failed.
    #[error(transparent)]
    CallFailed(#[from] CallFailed),
}

/// A condenser with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Condenser {
    /// Gives the view back.
    NoOp,
    /// The first and the newest events.
    Recent {
        /// The first events that stay.
        keep_first: usize,
        /// The most events.
        max_events: usize,
    },
    /// Masks old observations.
    Masking {
        /// Positions at the end that stay as they are.
        attention_window: usize,
    },
    /// Masks old pages of a browser.
    Browser {
        /// The newest pages that stay.
        attention_window: usize,
    },
    /// Forgets the middle.
    Amortized(Sizes),
    /// Forgets the older half when asked.
    Window,
    /// Summarizes the middle.
    Summarizing(Sizes),
    /// Keeps what a model finds important.
    Attention(Sizes),
    /// Summarizes the middle into named fields.
    Structured(Sizes),
    /// Members in order, up to the first condensation.
    Pipeline(Vec<Condenser>),
}

/// Sizes of a rolling condenser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// A longer view is condensed to half of this.
    pub max_size: usize,
    /// The first events that stay.
    pub keep_first: usize,
}

/// Sizes that the original refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SizesError(pub &'static str);

impl Sizes {
    /// Checks the bounds.
    ///
    /// # Errors
    /// What is out of bounds.
    pub fn check(self) -> Result<(), SizesError> {
        if self.max_size < 1 {
            Err(SizesError("`max_size` must be at least 1"))
        } else if self.keep_first >= self.max_size / 2 {
            Err(SizesError("`keep_first` must be less than half of `max_size`"))
        } else {
            Ok(())
        }
    }

    fn are_exceeded(self, view: &View) -> bool {
        view.unhandled_request || view.events.len() > self.max_size
    }
}

/// What a condenser gives: the view after all plain members, and the condensation to store, if any.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What the model is shown, unless there is a condensation.
    pub view: View,
    /// What is stored instead.
    pub condensation: Option<Condensation>,
}

impl Condenser {
    /// Decides on a view.
    ///
    /// # Errors
    /// [`CondenseError`] where the original crashes.
    pub fn condense(&self, view: View, models: &mut dyn Models) -> Result<Decision, CondenseError> {
        let plain = |events| Ok(Decision { view: View { events, unhandled_request: false }, condensation: None });
        let condensation = match self {
            Self::NoOp => None,
            Self::Recent { keep_first, max_events } => return plain(recent(view.events, *keep_first, *max_events)),
            Self::Masking { attention_window } => return plain(mask(view.events, *attention_window)),
            Self::Browser { attention_window } => return plain(mask_pages(view.events, *attention_window)),
            Self::Window => view.unhandled_request.then(|| window(&view.events)),
            Self::Amortized(sizes) if sizes.are_exceeded(&view) => Some(amortize(&view.events, *sizes)?),
            Self::Attention(sizes) if sizes.are_exceeded(&view) => Some(attend(&view.events, *sizes, models)?),
            Self::Summarizing(sizes) if sizes.are_exceeded(&view) => {
                Some(summarize(&view.events, *sizes, |previous, events| models.summarize(previous, events))?)
            }
            Self::Structured(sizes) if sizes.are_exceeded(&view) => {
                let state =
                    |previous: Option<&str>, events: &[Event]| Ok(render_state(&models.state(previous, events)?));
                Some(summarize(&view.events, *sizes, state)?)
            }
            Self::Amortized(_) | Self::Attention(_) | Self::Summarizing(_) | Self::Structured(_) => None,
            Self::Pipeline(members) => {
                let mut decision = Decision { view, condensation: None };
                for member in members {
                    decision = member.condense(decision.view, models)?;
                    if decision.condensation.is_some() {
                        break;
                    }
                }
                return Ok(decision);
            }
        };
        Ok(Decision { view, condensation })
    }
}

/// The first and the newest. They overlap where the view is short, and a tail of none is all of them.
fn recent(events: Vec<Event>, keep_first: usize, max_events: usize) -> Vec<Event> {
    let head = &events[..keep_first.min(events.len())];
    let tail = &events[last(events.len(), max_events.saturating_sub(head.len()))..];
    [head, tail].concat()
}

/// Where the slice of the last `n` of `len` begins, in Python: the last 0 are all.
fn last(len: usize, n: usize) -> usize {
    if n == 0 { 0 } else { len.saturating_sub(n) }
}

fn mask(mut events: Vec<Event>, attention_window: usize) -> Vec<Event> {
    let n_old = events.len().saturating_sub(attention_window);
    for event in events[..n_old].iter_mut().filter(|event| event.is_observation()) {
        *event = Event::condensed(MASKED.to_owned(), event.at);
    }
    events
}

fn mask_pages(mut events: Vec<Event>, attention_window: usize) -> Vec<Event> {
    let mut n_seen = 0;
    for event in events.iter_mut().rev() {
        let Kind::Observation { name, url, .. } = &event.kind else { continue };
        if name != "browse" {
            continue;
        }
        n_seen += 1;
        if n_seen > attention_window {
            *event = Event::condensed(format!("Visited {url}; the page's content is left out here."), event.at);
        }
    }
    events
}

fn range(ids: &BTreeSet<i64>) -> Result<Forgotten, CondenseError> {
    match (ids.first(), ids.last()) {
        (Some(first), Some(last)) => Ok(Forgotten::Range(*first, *last)),
        _ => Err(CondenseError::NothingToForget),
    }
}

fn amortize(events: &[Event], sizes: Sizes) -> Result<Condensation, CondenseError> {
    let n_head = sizes.keep_first.min(events.len());
    let tail = last(events.len(), sizes.max_size / 2 - n_head);
    let ids = |events: &[Event]| events.iter().map(Event::number).collect::<BTreeSet<i64>>();
    let kept = &ids(&events[..n_head]) | &ids(&events[tail..]);
    Ok(Condensation { forgotten: range(&(&ids(events) - &kept))?, summary: None })
}

fn window(events: &[Event]) -> Condensation {
    let is_user = |event: &&Event| event.source == "user" && event.acted("message").is_some();
    let Some(user) = events.iter().position(|event| is_user(&event)) else { return Condensation::default() };
    let content = events[user].acted("message");
    let mut essential: BTreeSet<i64> = BTreeSet::from([events[user].number()]);
    essential.extend(events.iter().find(|event| event.acted("system").is_some()).map(Event::number));
    if let Some(recall) =
        events[user + 1..].iter().find(|event| event.acted("recall").is_some_and(|it| Some(it) == content))
    {
        essential.insert(recall.number());
        let answer =
            events.iter().find(|event| event.is_observation() && event.cause.is_some() && event.cause == recall.id);
        essential.extend(answer.map(Event::number));
    }
    let n_other = events.len() - events.iter().filter(|event| essential.contains(&event.number())).count();
    let newest = &events[last(events.len(), (n_other / 2).max(1))..];
    let first = newest.iter().position(|event| !event.is_observation()).unwrap_or(newest.len());
    essential.extend(newest[first..].iter().map(Event::number));
    let ids: Vec<i64> = events.iter().map(Event::number).filter(|id| !essential.contains(id)).collect();
    let has_hole = ids.windows(2).any(|pair| pair[1] != pair[0] + 1);
    let forgotten = match ids.as_slice() {
        [first, .., last] if !has_hole => Forgotten::Range(*first, *last),
        _ => Forgotten::Ids(ids),
    };
    Condensation { forgotten, summary: None }
}

fn summarize(
    events: &[Event],
    sizes: Sizes,
    ask: impl FnOnce(Option<&str>, &[Event]) -> Result<String, CallFailed>,
) -> Result<Condensation, CondenseError> {
    let n_head = sizes.keep_first.min(events.len());
    let previous = events.get(sizes.keep_first).ok_or(CondenseError::NoSummaryPlace)?.observed(CONDENSE);
    // Python's slice up to minus zero is empty.
    let end = match sizes.max_size / 2 - n_head - 1 {
        0 => 0,
        n_tail => events.len().saturating_sub(n_tail),
    };
    let middle = events.get(sizes.keep_first..end).unwrap_or_default();
    let middle: Vec<Event> = middle.iter().filter(|event| event.observed(CONDENSE).is_none()).cloned().collect();
    let forgotten = range(&middle.iter().map(Event::number).collect())?;
    Ok(Condensation { forgotten, summary: Some((ask(previous, &middle)?, sizes.keep_first)) })
}

fn attend(events: &[Event], sizes: Sizes, models: &mut dyn Models) -> Result<Condensation, CondenseError> {
    let head: Vec<i64> = events.iter().take(sizes.keep_first).map(Event::number).collect();
    let n_chosen = sizes.max_size / 2 - head.len();
    let mut chosen = models.rank(events)?;
    chosen.retain(|id| !head.contains(id));
    chosen.truncate(n_chosen);
    for event in events.iter().rev() {
        if chosen.len() >= n_chosen {
            break;
        }
        if !chosen.contains(&event.number()) {
            chosen.push(event.number());
        }
    }
    let stays = |id: &i64| chosen.contains(id) || head.contains(id);
    let ids = events.iter().map(Event::number).filter(|id| !stays(id)).collect();
    Ok(Condensation { forgotten: Forgotten::Ids(ids), summary: None })
}

/// A printed event, cut to about `limit` characters: half from each end, a marker between them.
pub fn cut(text: &str, limit: usize) -> String {
    let length = text.chars().count();
    if length <= limit {
        return text.to_owned();
    }
    let half = limit / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(length - half).collect();
    format!("{head}\n[... cut here ...]\n{tail}")
}
