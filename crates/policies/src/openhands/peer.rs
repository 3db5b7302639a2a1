//! The original's decision, exact: one call of a condenser on a view, with the model calls as a trait.

use std::collections::BTreeSet;

use condenser::event::EventKind;
use condenser::lower::openhands::{ChatMessage, LowerError, cut_middle, prefix_messages};
use condenser::{Bodies, Class, Condensation, Reason, Requirement, View};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings of the summarizing condenser.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Most entries of a view before it is condensed. Above 0.
    pub max_size: i64,
    /// Most tokens, beside the agent model's own limit. Counts only where an agent model is given.
    pub max_tokens: Option<i64>,
    /// Entries at the beginning that are kept. At least 0, and small enough to leave room in half of `max_size`.
    pub keep_first: i64,
    /// Smallest share of the view that a condensation must forget. Between 0 and 1, ends excluded.
    pub minimum_progress: f64,
    /// Tries of a hard reset. Above 0.
    pub hard_context_reset_max_retries: i64,
    /// Factor on the length of event texts after each failed try. Between 0 and 1, ends excluded.
    pub hard_context_reset_context_scaling: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_size: 240,
            max_tokens: None,
            keep_first: 2,
            minimum_progress: 0.1,
            hard_context_reset_max_retries: 5,
            hard_context_reset_context_scaling: 0.8,
        }
    }
}

/// Settings that the original refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{setting}` must be {bounds}")]
pub struct SettingsError {
    /// The first that is out of bounds.
    pub setting: &'static str,
    /// What is allowed.
    pub bounds: &'static str,
}

const BETWEEN: &str = "between 0 and 1, ends excluded";

impl Settings {
    /// Checks the bounds.
    ///
    /// # Errors
    /// [`SettingsError`] names the first setting that is out of bounds.
    pub fn check(&self) -> Result<(), SettingsError> {
        let inside = |share: f64| share > 0.0 && share < 1.0;
        let checks = [
            (self.max_size > 0, "max_size", "at least 1"),
            (
                self.keep_first >= 0 && self.max_size / 2 - self.keep_first - 1 > 0,
                "keep_first",
                "at least 0 and less than half of `max_size` by 2 or more",
            ),
            (inside(self.minimum_progress), "minimum_progress", BETWEEN),
            (self.hard_context_reset_max_retries > 0, "hard_context_reset_max_retries", "at least 1"),
            (inside(self.hard_context_reset_context_scaling), "hard_context_reset_context_scaling", BETWEEN),
        ];
        let broken = checks.into_iter().find(|(holds, ..)| !holds);
        broken.map_or(Ok(()), |(_, setting, bounds)| Err(SettingsError { setting, bounds }))
    }
}

/// A condenser of the original.
#[derive(Clone, Debug, PartialEq)]
pub enum Condenser {
    /// Gives the view back.
    NoOp,
    /// Summarizes.
    LlmSummarizing(Settings),
    /// Runs its members in order, up to the first condensation.
    Pipeline(Vec<Condenser>),
}

/// The models around a condenser.
pub trait Models {
    /// The agent model's input limit: `None` without an agent model, `Some(None)` where it has no known limit.
    fn agent_limit(&self) -> Option<Option<i64>>;
    /// Tokens of the first `length` entries of the view, lowered as a list of their own, with the tools of the first
    /// system prompt among them; as the agent model counts them.
    ///
    /// # Errors
    /// [`LowerError`] where they have no messages.
    fn prefix_tokens(&self, length: usize) -> Result<i64, LowerError>;
    /// The full text of an event, as the summarizer is given it.
    fn event_text(&self, index: usize) -> String;
    /// One call of the summarizer: its text, `None` for an answer without text, or an error.
    #[expect(clippy::result_unit_err, reason = "the original looks only at whether a call failed")]
    fn summarize(&mut self, event_texts: &[String]) -> Result<Option<String>, ()>;
}

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CondenseError {
    /// Nothing could be condensed, though it had to be.
    #[error("no condensation is available")]
    NotAvailable,
    /// The view is empty, though it had to be condensed. The original crashes here.
    #[error("there is nothing to condense")]
    EmptyView,
    /// The view has no messages, so it has no size.
    #[error(transparent)]
    Lower(#[from] LowerError),
}

/// What a condenser decided.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and taken apart at once")]
pub enum Decision {
    /// The view stays.
    Keep,
    /// This record is to be appended.
    Condense(Condensation),
}

impl Condenser {
    /// Decides on a view.
    ///
    /// # Errors
    /// [`CondenseError`] where the original raises.
    pub fn condense(&self, view: &View, models: &mut dyn Models) -> Result<Decision, CondenseError> {
        match self {
            Self::NoOp => Ok(Decision::Keep),
            Self::Pipeline(members) => {
                for member in members {
                    let decision = member.condense(view, models)?;
                    if decision != Decision::Keep {
                        return Ok(decision);
                    }
                }
                Ok(Decision::Keep)
            }
            Self::LlmSummarizing(settings) => Summarizing { settings, view, models }.condense(),
        }
    }
}

/// What the original counts of the first `length` entries: their messages, and the tools of the first system prompt.
///
/// # Errors
/// [`LowerError`] where the original cannot make messages of them.
pub fn prefix<'b>(
    view: &View,
    bodies: &'b (impl Bodies + ?Sized),
    length: usize,
) -> Result<(Vec<ChatMessage>, &'b [Value]), LowerError> {
    let tools = view.iter().take(length).find_map(|entry| match &bodies.event(entry.seq())?.kind {
        EventKind::SystemPrompt(prompt) if !entry.is_summary() => Some(prompt.tools.as_slice()),
        _ => None,
    });
    Ok((prefix_messages(view, bodies, length)?, tools.unwrap_or_default()))
}

/// One call of the summarizing condenser.
struct Summarizing<'a> {
    settings: &'a Settings,
    view: &'a View,
    models: &'a mut dyn Models,
}

/// Whether and why the summarizing condenser acts on a view.
///
/// # Errors
/// [`LowerError`] where a token limit is set and the view has no messages.
pub fn requirement(settings: &Settings, view: &View, models: &dyn Models) -> Result<Requirement, LowerError> {
    let mut reasons = Vec::new();
    if view.has_unhandled_request() {
        reasons.push(Reason::Request);
    }
    if let Some(limit) = token_limit(settings, models)
        && models.prefix_tokens(view.len())? > limit
    {
        reasons.push(Reason::Tokens);
    }
    if view.len() as i64 > settings.max_size {
        reasons.push(Reason::Events);
    }
    Ok(match reasons.as_slice() {
        [] => Requirement::None,
        [Reason::Events] => Requirement::Soft(reasons),
        _ => Requirement::Hard(reasons),
    })
}

fn token_limit(settings: &Settings, models: &dyn Models) -> Option<i64> {
    let agent = models.agent_limit()?;
    [settings.max_tokens, agent].into_iter().flatten().min()
}

impl Summarizing<'_> {
    fn condense(mut self) -> Result<Decision, CondenseError> {
        let requirement = requirement(self.settings, self.view, self.models)?;
        if !requirement.is_some() {
            return Ok(Decision::Keep);
        }
        if let Some(record) = self.range(requirement.reasons())? {
            return Ok(Decision::Condense(record));
        }
        if requirement.is_hard() { self.hard_reset().map(Decision::Condense) } else { Ok(Decision::Keep) }
    }

    /// The planned range, summarized; `None` where no condensation is available.
    fn range(&mut self, reasons: &[Reason]) -> Result<Option<Condensation>, CondenseError> {
        let n = self.view.len() as i64;
        let mut keep = i64::MAX;
        for reason in reasons {
            keep = keep.min(match reason {
                Reason::Request => n / 2 - self.settings.keep_first - 1,
                Reason::Tokens => self.keep_by_tokens()?,
                _ => self.settings.max_size / 2 - self.settings.keep_first - 1,
            });
        }
        let after_prompt =
            self.view.iter().position(|entry| entry.class() == Class::SystemPrompt).map_or(0, |at| at + 1);
        let protected = (self.settings.keep_first as usize).max(after_prompt);
        let naive_end = usize::try_from(n - keep).unwrap_or(0);
        let (Some(start), Some(end)) = (self.view.next_index(protected), self.view.next_index(naive_end)) else {
            return Ok(None);
        };
        let forgotten = end.saturating_sub(start);
        if forgotten == 0 || (forgotten as f64) < n as f64 * self.settings.minimum_progress {
            return Ok(None);
        }
        let texts: Vec<String> = (start..end).map(|index| self.models.event_text(index)).collect();
        Ok(self.models.summarize(&texts).ok().map(|summary| self.record(start, end, summary)))
    }

    /// How many entries at the end fit what is to remain, by a binary search over the prefix that has to go.
    fn keep_by_tokens(&self) -> Result<i64, CondenseError> {
        let limit = token_limit(self.settings, self.models).unwrap_or(i64::MAX);
        let reduce = self.models.prefix_tokens(self.view.len())? - limit.div_euclid(2);
        let head = (self.settings.keep_first as usize).min(self.view.len());
        let n_rest = self.view.len() - head;
        let head_tokens = self.models.prefix_tokens(head)?;
        let (mut low, mut high) = (0, n_rest);
        while low < high {
            let middle = (low + high) / 2;
            if self.models.prefix_tokens(head + middle)? - head_tokens > reduce {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok((n_rest - low) as i64)
    }

    fn hard_reset(&mut self) -> Result<Condensation, CondenseError> {
        let n = self.view.len();
        if n == 0 {
            return Err(CondenseError::EmptyView);
        }
        let start = self.view.iter().position(|entry| entry.class() == Class::SystemPrompt).map_or(0, |at| at + 1);
        if start == n {
            return Err(CondenseError::NotAvailable);
        }
        let full: Vec<String> = (0..n).map(|index| self.models.event_text(index)).collect();
        let longest = full.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        let scaling = self.settings.hard_context_reset_context_scaling;
        let mut cap: Option<usize> = None;
        for _ in 0..self.settings.hard_context_reset_max_retries {
            let texts: Vec<String> = full[start..]
                .iter()
                // A cap of 0 means none, as in the original.
                .map(|text| {
                    cap.filter(|cap| *cap > 0).map_or_else(|| text.clone(), |cap| cut_middle(text, cap).into_owned())
                })
                .collect();
            if let Ok(summary) = self.models.summarize(&texts) {
                return Ok(self.record(start, n, summary));
            }
            cap = Some((cap.unwrap_or(longest) as f64 * scaling) as usize);
        }
        Err(CondenseError::NotAvailable)
    }

    fn record(&self, start: usize, end: usize, summary: Option<String>) -> Condensation {
        let ids: BTreeSet<_> = self.view.ids().take(end).skip(start).cloned().collect();
        Condensation { forgotten_event_ids: ids, summary, summary_offset: Some(start), ..Condensation::default() }
    }
}
