//! Policies decide; the [condenser](crate::condenser) acts.
//!
//! A [`Policy`] is a plain, deterministic function of the [`State`]. Whatever it must remember stands in the
//! condensation records it made itself.

use std::any::Any;
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::attempts::{Attempts, Rejection};
pub use crate::budget::Budget;
use crate::budget::Budgets;
use crate::condensation::Rewrite;
use crate::event::{Event, EventId, EventKind};
use crate::request::{Bodies, Request, Shown, Sizer};
use crate::tokens::Tokens;
use crate::view::View;

/// All that a policy may look at.
pub struct State<'a> {
    /// What the model is shown now.
    pub view: &'a View,
    /// The bodies behind the view.
    pub bodies: &'a dyn Bodies,
    /// Sizes, each piece of content counted once.
    pub sizer: &'a Sizer<'a>,
    /// How much the next request may hold.
    pub budget: Budget,
    /// All budgets in force.
    pub budgets: Budgets,
    /// The size of the next request by the provider's own count; see [`State::reported_size`]. `None`: as counted.
    pub reported: Option<Tokens>,
    /// Whether policies write the addresses of what they remove, so that it can be recalled.
    pub recall: bool,
    overflow: Option<Overflow>,
    sizes: OnceCell<(Tokens, Vec<Tokens>)>,
    once: RefCell<Vec<Rc<dyn Any>>>,
}

/// What a request that the provider refused as too long has to come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overflow {
    pub(crate) in_a_row: u32,
    pub(crate) most: Tokens,
}

impl fmt::Debug for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("entries", &self.view.len()).field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl<'a> State<'a> {
    /// A state without reported usage and with recall on.
    pub fn new(view: &'a View, bodies: &'a dyn Bodies, sizer: &'a Sizer<'a>, budget: Budget) -> Self {
        let budgets = Budgets::from(budget);
        Self { budget, ..Self::with_budgets(view, bodies, sizer, budgets) }
    }

    /// The same with all budgets.
    pub fn with_budgets(view: &'a View, bodies: &'a dyn Bodies, sizer: &'a Sizer<'a>, budgets: Budgets) -> Self {
        Self {
            view,
            bodies,
            sizer,
            budget: budgets.budget(),
            budgets,
            reported: None,
            recall: true,
            overflow: None,
            sizes: OnceCell::new(),
            once: RefCell::default(),
        }
    }

    /// The state after the provider refused this very request as too long: budgets shrink to three quarters of what
    /// is known to be too much, and again with each refusal in a row. The condenser then takes nothing for a success
    /// that is not a tenth smaller and within the limit. The host appends [`Rejection::event`] first.
    pub fn rejected(mut self, rejection: Rejection) -> Self {
        let size = self.tokens();
        let in_a_row = Attempts::of(&self).overflows.max(1);
        let known = [self.budgets.request.tokens, rejection.limit].into_iter().flatten().min();
        let most = known.map_or(size.share(0.9), |known| known.min(size.share(0.9)));
        let harder = size.min(most).share(0.75_f64.powi(in_a_row.min(9) as i32));
        self.budgets = self.budgets.within(harder);
        self.budget = self.budgets.budget();
        self.overflow = Some(Overflow { in_a_row, most });
        self.once.take();
        self
    }

    /// What `make` gives, computed once for this state and key: [`Policy::requirement`] and [`Policy::plan`] often need
    /// the same. `key` holds all that it depends on besides the state, which are settings as a rule. The public fields
    /// are to be set before.
    pub fn once<K: PartialEq + Clone + 'static, T: 'static>(&self, key: &K, make: impl FnOnce() -> T) -> Rc<T> {
        let known = self.once.borrow().iter().find_map(|known| {
            let (of, known) = known.downcast_ref::<(K, Rc<T>)>()?;
            (of == key).then(|| Rc::clone(known))
        });
        known.unwrap_or_else(|| {
            let made = Rc::new(make());
            self.once.borrow_mut().push(Rc::new((key.clone(), Rc::clone(&made))));
            made
        })
    }

    pub(crate) fn overflow(&self) -> Option<Overflow> {
        self.overflow
    }

    /// The complete request as it stands.
    pub fn request(&self) -> Request<'a> {
        Request::build(self.view, self.bodies)
    }

    fn sizes(&self) -> &(Tokens, Vec<Tokens>) {
        self.sizes.get_or_init(|| self.sizer.sizes(self.view, self.bodies))
    }

    /// Size of the complete request, as counted.
    pub fn counted(&self) -> Tokens {
        self.sizes().0
    }

    /// Size of the complete request: as the provider reported it, else as counted.
    pub fn tokens(&self) -> Tokens {
        self.reported.unwrap_or_else(|| self.counted())
    }

    /// The size of the next request built on the newest usage in the log: the reported input, and as counted what
    /// has come since. `None` where nothing was reported, or a condensation or undo came after it.
    pub fn reported_size(&self) -> Option<Tokens> {
        for seq in (0..self.view.n_pushed()).rev() {
            let event = self.bodies.event(seq)?;
            if matches!(event.kind, EventKind::Condensation(_) | EventKind::Undo(_)) {
                return None;
            }
            if let Some(input) = event.usage.as_ref().and_then(|usage| usage.total_input()) {
                let since = self.view.iter().zip(self.entry_tokens()).filter(|(entry, _)| entry.seq() >= seq);
                return Some(Tokens(input) + since.map(|(_, tokens)| *tokens).sum());
            }
        }
        None
    }

    /// Size of each entry, by view position.
    pub fn entry_tokens(&self) -> &[Tokens] {
        &self.sizes().1
    }

    /// The stored event behind an entry; `None` for a summary.
    pub fn event(&self, index: usize) -> Option<&'a Event> {
        let entry = self.view.get(index)?;
        if entry.is_summary() { None } else { self.bodies.event(entry.seq()) }
    }

    /// The content of an entry as shown.
    pub fn shown(&self, index: usize) -> Option<Shown<'a>> {
        Shown::of(self.view.get(index)?, self.bodies)
    }
}

/// Why a policy wants to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Somebody asked.
    Request,
    /// The request is too large.
    Tokens,
    /// The view has too many entries.
    Events,
    /// The policy's own rule, at any size.
    Policy,
    /// The provider refused the request as too long.
    Overflow,
}

impl Reason {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Tokens => "tokens",
            Self::Events => "events",
            Self::Policy => "policy",
            Self::Overflow => "overflow",
        }
    }
}

/// Whether a policy has to act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Requirement {
    /// No.
    #[default]
    None,
    /// It should, and may go without.
    Soft(Vec<Reason>),
    /// It must.
    Hard(Vec<Reason>),
}

impl Requirement {
    /// The reasons, in a stable order.
    pub fn reasons(&self) -> &[Reason] {
        match self {
            Self::None => &[],
            Self::Soft(reasons) | Self::Hard(reasons) => reasons,
        }
    }

    /// Whether it must act.
    pub fn is_hard(&self) -> bool {
        matches!(self, Self::Hard(_))
    }

    /// Whether there is any reason to act.
    pub fn is_some(&self) -> bool {
        *self != Self::None
    }
}

/// What to change in a view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// The entries that leave.
    pub forget: BTreeSet<EventId>,
    /// The entries whose content changes. An id that is also forgotten is ignored here.
    pub rewrites: BTreeMap<EventId, Rewrite>,
    /// A text to put in, and its position in the view after forgetting.
    pub summary: Option<(String, usize)>,
    /// What the policy fell back to, where this is not what it would rather have done. Named in the record.
    pub fallback: Option<&'static str>,
}

impl Edit {
    /// Whether nothing would change.
    pub fn is_empty(&self) -> bool {
        self.forget.is_empty() && self.rewrites.is_empty() && self.summary.is_none()
    }
}

/// What a policy decided.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Nothing is to be done.
    Keep,
    /// Do this.
    Edit(Edit),
    /// Do this with a summary that has yet to be written.
    Summarize {
        /// What leaves. Its `summary` is filled in.
        edit: Edit,
        /// Where the summary goes, in the view after forgetting.
        offset: usize,
        /// What the summarizer is asked.
        request: SummaryRequest,
    },
}

/// Why a policy has no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlan {
    /// No legal cut leaves anything to forget.
    #[error("there is no legal cut with anything to forget")]
    NoLegalCut,
    /// The plan would forget less than the policy's own minimum.
    #[error("too little would be forgotten")]
    TooLittle,
    /// Everything the policy can do was tried.
    #[error("everything that the policy can do was tried")]
    Exhausted,
}

/// A try that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The edit names pinned entries.
    Pinned(Vec<EventId>),
    /// The edit would tear a batch, loop or open call, or names ids that are not in the view.
    Illegal(Vec<EventId>),
    /// The complete request would not get smaller.
    NoGain {
        /// Its size before.
        before: Tokens,
        /// Its size after.
        after: Tokens,
    },
    /// After a refusal by the provider: the complete request would get smaller, and still not small enough.
    TooLarge {
        /// Its size after.
        after: Tokens,
        /// The most it may be.
        most: Tokens,
    },
    /// The summarizer failed.
    Summarizer(SummarizeError),
    /// A hook of the host said no.
    Hook(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, ids: &[EventId]| {
            let shown: Vec<&str> = ids.iter().take(3).map(EventId::as_str).collect();
            let more = if ids.len() > 3 { " …" } else { "" };
            write!(f, "{}{more}", shown.join(", "))
        };
        match self {
            Self::Pinned(ids) => {
                f.write_str("the plan names pinned events: ")?;
                list(f, ids)
            }
            Self::Illegal(ids) => {
                f.write_str("the plan would tear apart what belongs together, or names what is not shown: ")?;
                list(f, ids)
            }
            Self::NoGain { before, after } => {
                write!(f, "the request would not get smaller: {before} to {after} tokens")
            }
            Self::TooLarge { after, most } => {
                write!(f, "the request would still be too large: {after} of {most} tokens")
            }
            Self::Summarizer(error) => error.fmt(f),
            Self::Hook(reason) => write!(f, "refused by the host: {reason}"),
        }
    }
}

/// Decides what to forget, what to rewrite and what to summarize.
pub trait Policy: Send + Sync {
    /// The stable name.
    fn name(&self) -> &str;

    /// Whether to act on this state.
    fn requirement(&self, state: &State<'_>) -> Requirement;

    /// What to do. `tried` holds what failed on this very state, oldest first.
    ///
    /// # Errors
    /// [`NoPlan`] where nothing can be done.
    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan>;

    /// A digest of the settings, stored in the record: equal where the policy would decide alike. `None`: not known.
    fn config_digest(&self) -> Option<String> {
        None
    }

    /// Whether this is a port of another system: its edits are extended to legal ones instead of refused.
    fn is_port(&self) -> bool {
        false
    }
}

/// What a summarizer is asked: the prompt for a model, and the same as data for one that needs none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SummaryRequest {
    /// Instructions, for the system role.
    pub instructions: String,
    /// The events to summarize, oldest first: their ids and their text as shown.
    pub events: Vec<(EventId, String)>,
    /// The summary before this one. It is passed once, and not among `events`.
    pub previous: Option<String>,
    /// Entries that stay visible after the summary, oldest first: not to be repeated in it, but what they settle is
    /// no longer open.
    pub kept: Vec<(EventId, String)>,
    /// What the user wants the summary to care about.
    pub guidance: Option<String>,
    /// The most tokens of the summary.
    pub max_tokens: Option<Tokens>,
    /// Whether the answer is to be a call of a tool that the host offers for it. No other tools may be offered.
    pub tool_call: bool,
    /// Version of the prompt.
    pub prompt_version: String,
    /// What else belongs to the summary. `None`: it is the answer alone.
    pub frame: Option<Box<Frame>>,
}

/// What belongs to a summary beside the answer to one request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frame {
    /// Put before the answer.
    pub before: String,
    /// Put behind the answer.
    pub after: String,
    /// Asked once there is an answer. What it gives follows in the summary; if it fails, so does the whole.
    pub next: Option<SummaryRequest>,
}

/// The tags around the data in [`SummaryRequest::input`].
pub(crate) const FENCES: [&str; 3] = ["EVENT", "KEPT", "PREVIOUS SUMMARY"];

impl SummaryRequest {
    /// The text of the system message: the instructions, and what the user wants the summary to care about.
    pub fn system(&self) -> String {
        match self.guidance.as_deref().map(str::trim).filter(|guidance| !guidance.is_empty()) {
            Some(guidance) => {
                format!("{}\n\nThe user asks that the notes care about this: {guidance}", self.instructions)
            }
            None => self.instructions.clone(),
        }
    }

    /// The text of the user message: the previous summary, then each event, then what stays, fenced as data. What
    /// would pass for a fence inside is broken.
    pub fn input(&self) -> String {
        self.pieces().collect()
    }

    /// The input piece by piece. Tokenizers of today take the end of each for a boundary, so their sizes add up.
    pub fn pieces(&self) -> impl Iterator<Item = String> {
        let previous = self.previous.iter().map(|previous| {
            let previous = fenced(previous);
            format!("<PREVIOUS SUMMARY>\n{previous}\n</PREVIOUS SUMMARY>\n\n")
        });
        let tagged = |tag, id: &EventId, text: &str| {
            let text = fenced(text);
            format!("<{tag} id={:?}>\n{text}\n</{tag}>\n", id.as_str())
        };
        let events = self.events.iter().map(move |(id, text)| tagged("EVENT", id, text));
        let kept = self.kept.iter().map(move |(id, text)| tagged("KEPT", id, text));
        previous.chain(events).chain(kept)
    }
}

/// Breaks what would pass for a tag around the data.
pub(crate) fn fenced(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for tag in FENCES {
        for open in ["<", "</"] {
            let tag = format!("{open}{tag}");
            if text.contains(&tag) {
                text = Cow::Owned(text.replace(&tag, &tag.replacen('<', "< ", 1)));
            }
        }
    }
    text
}

/// A summarizer's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The text.
    pub text: String,
    /// Whether the answer was cut by its length limit.
    pub cut_by_length: bool,
    /// Whether the model called a tool.
    pub tool_call: bool,
    /// The response's id, where it has one.
    pub response_id: Option<String>,
    /// Tokens read, as reported or counted.
    pub input_tokens: Tokens,
    /// Tokens written.
    pub output_tokens: Tokens,
}

/// Why there is no summary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SummarizeError {
    /// The answer holds no text.
    #[error("the summarizer answered without text")]
    Empty,
    /// The answer was cut by its length limit.
    #[error("the summary was cut by its length limit")]
    CutByLength,
    /// The model called a tool, and the request asked for text.
    #[error("the summarizer called a tool instead of writing text")]
    ToolCall,
    /// The summary is longer than it may be.
    #[error("the summary is too long: {tokens} of {limit} tokens")]
    TooLong {
        /// Its size.
        tokens: Tokens,
        /// The most it may be.
        limit: Tokens,
    },
    /// No answer came in the time that the host gives it.
    #[error("the summarizer did not answer in time")]
    TimedOut,
    /// The host gave up: nothing further is tried, and nothing recorded.
    #[error("the condensation was cancelled")]
    Cancelled,
    /// The call failed.
    #[error("the summarizer failed: {0}")]
    Failed(String),
}

/// Writes summaries. A host with its own model loop does not need it.
pub trait Summarizer: Send + Sync {
    /// The stable name, stored in the record.
    fn name(&self) -> &str;

    /// Answers a request.
    ///
    /// # Errors
    /// [`SummarizeError`] where there is no usable summary.
    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError>;
}
