//! Policies decide; the [condenser](crate::condenser) acts.
//!
//! A [`Policy`] is a plain, deterministic function of the [`State`]. Whatever it must remember stands in the
//! condensation records it made itself.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::condensation::Rewrite;
use crate::event::{Event, EventId};
use crate::request::{Bodies, Request, Shown, Sizer};
use crate::tokens::Tokens;
use crate::view::View;

/// How much the next request may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The model's context window. `None`: unknown, and no token trigger fires.
    pub window: Option<Tokens>,
    /// Room kept for the answer.
    pub reserve: Tokens,
}

impl Budget {
    /// The most tokens of a complete request: the window less the reserve, which is clamped to half the window.
    pub fn limit(&self) -> Option<Tokens> {
        self.window.map(|window| window - self.reserve.min(Tokens(window.0 / 2)))
    }

    /// The size above which native policies act: 0.8 of the limit.
    pub fn trigger(&self) -> Option<Tokens> {
        self.limit().map(|limit| limit.share(0.8))
    }
}

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
    /// The input that the provider reported for the newest request, unless a condensation came after it.
    pub reported: Option<Tokens>,
    /// Whether policies write the addresses of what they remove, so that it can be recalled.
    pub recall: bool,
    sizes: OnceCell<(Tokens, Vec<Tokens>)>,
}

impl fmt::Debug for State<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("entries", &self.view.len()).field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl<'a> State<'a> {
    /// A state without reported usage and with recall on.
    pub fn new(view: &'a View, bodies: &'a dyn Bodies, sizer: &'a Sizer<'a>, budget: Budget) -> Self {
        Self { view, bodies, sizer, budget, reported: None, recall: true, sizes: OnceCell::new() }
    }

    /// The complete request as it stands.
    pub fn request(&self) -> Request<'a> {
        Request::build(self.view, self.bodies)
    }

    fn sizes(&self) -> &(Tokens, Vec<Tokens>) {
        self.sizes.get_or_init(|| {
            let request = self.request();
            (request.tokens(self.sizer), request.entry_tokens(self.view.len(), self.sizer))
        })
    }

    /// Size of the complete request, as counted.
    pub fn counted(&self) -> Tokens {
        self.sizes().0
    }

    /// Size of the complete request: reported where that is larger than counted.
    pub fn tokens(&self) -> Tokens {
        self.reported.map_or(self.counted(), |reported| reported.max(self.counted()))
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
}

impl Reason {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Tokens => "tokens",
            Self::Events => "events",
            Self::Policy => "policy",
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
    /// The summarizer failed.
    Summarizer(SummarizeError),
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

impl SummaryRequest {
    /// The text of the user message: the previous summary, then each event, then what stays, fenced as data.
    pub fn input(&self) -> String {
        let mut text = String::new();
        if let Some(previous) = &self.previous {
            text.push_str(&format!("<PREVIOUS SUMMARY>\n{previous}\n</PREVIOUS SUMMARY>\n\n"));
        }
        for (id, event) in &self.events {
            text.push_str(&format!("<EVENT id={:?}>\n{event}\n</EVENT>\n", id.as_str()));
        }
        for (id, event) in &self.kept {
            text.push_str(&format!("<KEPT id={:?}>\n{event}\n</KEPT>\n", id.as_str()));
        }
        text
    }
}

/// A summarizer's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The text.
    pub text: String,
    /// Whether the answer was cut by its length limit.
    pub cut_by_length: bool,
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
