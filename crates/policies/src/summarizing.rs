//! `llm-summarizing`: a summary takes the place of the middle, as in OpenHands V1, with that condenser's defects mended.
//!
//! **When.** A request (hard), more tokens than `max_tokens` and the budget's trigger, whichever is smaller (hard), or
//! more entries than `max_events` (soft).
//!
//! **What.** Each reason says how many newest entries to keep: half of the view or of `max_events`, less the head and
//! the summary; or as many as bring the request to half of the token limit. The fewest win, and the end snaps to the
//! nearest legal cut that still meets the limits. The last unit always stays. Summaries in the range are not events of
//! the next summary: they are handed on once, as its predecessor.
//!
//! **Failures.** After a failed call the same range is tried again, with shorter events. Only when that fails too, or
//! nothing can be planned that fits, or the plan gains nothing, and somebody asked or the request is over its limit,
//! comes the *hard reset*: everything behind the head leaves that may. Where not even that can be put to the
//! summarizer, the middle is folded without a model, as `folding` does. `minimum_progress` is waived in the same cases.
//!
//! **State.** The newest call of each tool in `carry`, a to-do list for one, stands word for word at the end of the summary where
//! the view no longer shows it: once, however often the summary is made anew.
//!
//! **Input.** Events are shortened, oldest text and newest text alike, until the input fits; where the floor is reached
//! the range shrinks. What the summarizer is not shown stays in the view.

use std::collections::HashSet;

use condenser::budget::Origin;
use condenser::condensation::clip;
use condenser::event::{ContentBlock, EventKind, Outcome, Role};
use condenser::recall::address;
use condenser::request::text_of;
use condenser::{
    Edit, EventId, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, Shown, State, SummaryRequest, Tokens,
};
use serde::{Deserialize, Serialize};

use crate::folding::Folding;
use crate::layout::{self, Layout};

const PROMPT: &str = include_str!("../prompts/summarize-v1.md");
const RECALL_PROMPT: &str = include_str!("../prompts/recall-v1.md");
const PROMPT_VERSION: &str = "summarize-v1";

/// Fewest characters that an event is shortened to.
const FLOOR: usize = 200;
/// Fewest characters of an event of a range that cannot be made shorter, such as one long loop.
const LEAST: usize = 40;
/// Calls for the planned range before anything else is tried.
const PLANNED_TRIES: usize = 2;
/// Entries that stay which the summarizer is shown: of those that stay in the range, and of those behind it.
const KEPT: (usize, usize) = (4, 8);
/// The characters of each.
const KEPT_CHARACTERS: usize = 400;
/// What stands before the state that is carried over, at the end of a summary.
const CARRIED: &str = "\n\nState at this point, word for word:";

/// Settings of [`LlmSummarizing`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SummarizingSettings {
    /// A longer view is condensed. `None`: off.
    pub max_events: Option<usize>,
    /// A larger request is condensed. `None`: the trigger of the budget alone counts.
    pub max_tokens: Option<Tokens>,
    /// The first entries that stay.
    pub keep_first: usize,
    /// No condensation forgets a smaller share of the entries, unless it must.
    pub minimum_progress: f64,
    /// The most calls for a hard reset.
    pub hard_reset_retries: usize,
    /// What each failed call leaves of the longest event.
    pub hard_reset_scaling: f64,
    /// The most characters of one event that the summarizer is shown.
    pub event_characters: usize,
    /// The most tokens of all that the summarizer is shown. `None`: the limit of the budget.
    pub input_tokens: Option<Tokens>,
    /// The most tokens of the summary, and never more than an eighth of the limit.
    pub summary_tokens: Tokens,
    /// The tools whose newest call is carried over word for word.
    pub carry: Vec<String>,
    /// The summarizer's instructions. `None`: the prompt that comes with this crate.
    pub prompt: Option<String>,
}

impl Default for SummarizingSettings {
    fn default() -> Self {
        Self {
            max_events: Some(240),
            max_tokens: None,
            keep_first: 2,
            minimum_progress: 0.1,
            hard_reset_retries: 5,
            hard_reset_scaling: 0.8,
            event_characters: 10_000,
            input_tokens: None,
            summary_tokens: Tokens(1000),
            carry: Vec::new(),
            prompt: None,
        }
    }
}

/// Summarizes the middle of a view.
#[derive(Clone, Debug, Default)]
pub struct LlmSummarizing {
    settings: SummarizingSettings,
}

impl LlmSummarizing {
    /// The policy with these settings.
    pub fn new(settings: SummarizingSettings) -> Self {
        Self { settings }
    }

    fn max_tokens(&self, state: &State<'_>) -> Option<Tokens> {
        [self.settings.max_tokens, state.budgets.trigger.tokens].into_iter().flatten().min()
    }

    fn summary_tokens(&self, state: &State<'_>) -> Tokens {
        let budget = state.budgets.summary_output;
        match budget.tokens.filter(|most| *most > Tokens::ZERO) {
            Some(set) if budget.origin >= Origin::Set => set,
            Some(most) => most.min(self.settings.summary_tokens),
            None => self.settings.summary_tokens,
        }
    }

    /// The range that the reasons ask for, or `None` where it would hold no event.
    fn planned(&self, layout: &Layout<'_, '_>, reasons: &[Reason]) -> Option<(usize, usize)> {
        let state = layout.state;
        let n = layout.len();
        let start = layout.head(self.settings.keep_first);
        let last = layout.last_unit();
        let half = |size: usize| (size / 2).saturating_sub(start + 1).max(1);
        let limit = self.max_tokens(state).map(|limit| layout::as_counted(state, limit));
        let mut naive = start;
        if reasons.contains(&Reason::Request) {
            naive = naive.max(n - half(n).min(n));
        }
        let max_events = self.settings.max_events.filter(|_| reasons.contains(&Reason::Events));
        if let Some(max_events) = max_events {
            naive = naive.max(n - half(max_events).min(n));
        }
        let limit = limit.filter(|_| reasons.contains(&Reason::Tokens));
        if let Some(limit) = limit {
            let target = layout::target(state, 1.0).map_or(limit.share(0.5), |target| target.min(limit.share(0.5)));
            let target = target - self.summary_tokens(state).min(limit.share(0.25));
            naive = naive.max((start..=last).find(|&end| layout.left(start, end) <= target).unwrap_or(last));
        }
        let meets_limits = |end: usize| {
            let n_left = n + 1 - layout.members(start, end).count();
            limit.is_none_or(|limit| layout.left(start, end) + self.summary_tokens(state) <= limit)
                && max_events.is_none_or(|max_events| n_left <= max_events)
        };
        let naive = naive.min(last);
        let below = state.view.previous_index(naive).filter(|&end| end > start);
        let above = state.view.next_index(naive).filter(|&end| end <= last);
        let end = match (below, above) {
            (Some(below), Some(above)) if naive - below < above - naive && meets_limits(below) => below,
            (Some(below), None) => below,
            (_, Some(above)) => above,
            (None, None) => return None,
        };
        (layout.n_events(start, end) > 0).then_some((start, end))
    }

    /// The newest entries that stay, by position; no summaries.
    fn kept(layout: &Layout<'_, '_>, start: usize, end: usize) -> Vec<usize> {
        let is_event = |index: &usize| layout.state.view.get(*index).is_some_and(|entry| !entry.is_summary());
        let leaves: HashSet<usize> = layout.members(start, end).collect();
        let inside: Vec<usize> = (start..end).filter(|index| !leaves.contains(index)).filter(is_event).collect();
        let behind: Vec<usize> = (end..layout.len()).filter(is_event).collect();
        let newest = |of: &[usize], n: usize| of[of.len().saturating_sub(n)..].to_vec();
        [newest(&inside, KEPT.0), newest(&behind, KEPT.1)].concat()
    }

    pub(crate) fn summarize(
        &self,
        layout: &Layout<'_, '_>,
        start: usize,
        mut end: usize,
        cap: usize,
    ) -> Result<Plan, NoPlan> {
        let state = layout.state;
        let mut instructions = self.settings.prompt.clone().unwrap_or_else(|| PROMPT.to_owned());
        if state.recall {
            instructions.push('\n');
            instructions.push_str(RECALL_PROMPT);
        }
        let mut request = SummaryRequest {
            instructions,
            max_tokens: Some(self.summary_tokens(state)),
            guidance: guidance(state),
            prompt_version: self.settings.prompt.as_deref().map_or(PROMPT_VERSION.to_owned(), custom_version),
            ..SummaryRequest::default()
        };
        let previous: Vec<&str> = layout
            .members(start, end)
            .filter_map(|index| state.view.get(index)?.summary())
            .map(without_state)
            .collect();
        if !previous.is_empty() {
            let text = previous.join("\n\n");
            request.previous = Some(clip(&text, 15_000, 5_000).unwrap_or(text));
        }
        let show = |index: usize, cap: usize| {
            let entry = state.view.get(index)?;
            let text = match Shown::of(entry, state.bodies) {
                Some(Shown::Event(kind)) => show(&kind, entry.id(), state.recall, cap),
                _ => "[no content recorded]".to_owned(),
            };
            Some((entry.id().clone(), text))
        };
        request.kept =
            Self::kept(layout, start, end).into_iter().filter_map(|index| show(index, KEPT_CHARACTERS)).collect();
        let room = [self.settings.input_tokens, state.budgets.summary_input.tokens].into_iter().flatten().min();
        let mut cap = cap;
        loop {
            let events = |index: &usize| state.view.get(*index).is_some_and(|entry| !entry.is_summary());
            request.events = layout.members(start, end).filter(events).filter_map(|index| show(index, cap)).collect();
            if request.events.is_empty() {
                return Err(NoPlan::NoLegalCut);
            }
            if room.is_none_or(|room| size_up_to(room, state, &request) <= room) {
                break;
            }
            // Every summary of the first range has to be in a shorter one too.
            let shorter = state.view.previous_index(start + (end - start) / 2).filter(|&shorter| {
                shorter > start
                    && layout.n_events(start, shorter) > 0
                    && layout.members(start, shorter).filter(|index| !events(index)).count() == previous.len()
            });
            match shorter {
                _ if cap > FLOOR => cap = (cap / 2).max(FLOOR),
                Some(shorter) => end = shorter,
                None if cap > LEAST => cap = (cap / 2).max(LEAST),
                None if !request.kept.is_empty() => request.kept.clear(),
                None => return Err(NoPlan::Exhausted),
            }
        }
        let edit = Edit { forget: layout.forget(start, end), ..Edit::default() };
        let after = self.state_after(state, &edit);
        if !after.is_empty() {
            request.frame = Some(Box::new(Frame { after, ..Frame::default() }));
        }
        Ok(Plan::Summarize { edit, offset: start, request })
    }

    /// The newest call of each tool whose state is carried over and which the view will not show.
    fn state_after(&self, state: &State<'_>, edit: &Edit) -> String {
        let mut after = String::new();
        for tool in &self.settings.carry {
            let newest = (0..state.view.n_pushed()).rev().find_map(|seq| {
                let event = state.bodies.event(seq)?;
                match &event.kind {
                    EventKind::Action(action) if action.tool_name == *tool => Some((&event.id, action)),
                    _ => None,
                }
            });
            let Some((id, action)) = newest else { continue };
            if state.view.position(id).is_some() && !edit.forget.contains(id) {
                continue;
            }
            if after.is_empty() {
                after.push_str(CARRIED);
            }
            after.push_str(&format!("\n[newest call of {}] {}", one_line(tool), action.arguments));
        }
        after
    }
}

/// The size of instructions and input; counting ends where it is more than `most`. It goes piece by piece, because the
/// same events are shown again and again, and counters may know them.
pub(crate) fn size_up_to(most: Tokens, state: &State<'_>, request: &SummaryRequest) -> Tokens {
    let mut size = state.sizer.text(&request.instructions);
    let mut pieces = request.pieces();
    while size <= most
        && let Some(piece) = pieces.next()
    {
        size += state.sizer.text(&piece);
    }
    size
}

/// A summary as its summarizer wrote it.
fn without_state(summary: &str) -> &str {
    summary.rfind(CARRIED).map_or(summary, |at| &summary[..at])
}

impl Policy for LlmSummarizing {
    fn name(&self) -> &str {
        "llm-summarizing"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        layout::requirement(state, self.settings.max_events, self.max_tokens(state))
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let layout = Layout::new(state);
        let requirement = self.requirement(state);
        let longest = || {
            let text = |index: usize| state.shown(index).map_or(0, |shown| shown.text().chars().count());
            (0..layout.len()).map(text).max().unwrap_or(0).min(self.settings.event_characters).max(FLOOR)
        };
        let cap = |n_failed: usize| match n_failed {
            0 => self.settings.event_characters.max(FLOOR),
            n => {
                let scale = self.settings.hard_reset_scaling.clamp(0.0, 1.0).powi(i32::try_from(n).unwrap_or(i32::MAX));
                ((longest() as f64 * scale) as usize).max(FLOOR)
            }
        };
        let start = layout.head(self.settings.keep_first);
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let must_act = layout.must_act(start)
            || state.budget.limit().is_none() && self.max_tokens(state).is_some_and(|limit| state.tokens() > limit);
        let summary = self.summary_tokens(state);
        let fits = |end: usize| limit.is_none_or(|limit| layout.left(start, end) + summary <= limit);
        let planned = self.planned(&layout, requirement.reasons()).filter(|&(_, end)| fits(end) || !fits(layout.len()));
        // The summarizer's failures come first; anything else ends the planned range.
        let n_failed = tried.iter().take_while(|failure| matches!(failure, Failure::Summarizer(_))).count();
        let mut why = NoPlan::NoLegalCut;
        let mut n_planned = 0;
        if let Some((start, end)) = planned {
            let progress = layout.members(start, end).count() as f64;
            if progress < layout.len() as f64 * self.settings.minimum_progress && !must_act {
                return Err(NoPlan::TooLittle);
            }
            if tried.len() == n_failed && n_failed < PLANNED_TRIES {
                match self.summarize(&layout, start, end, cap(n_failed)) {
                    Err(no_plan) => why = no_plan,
                    plan => return plan,
                }
            } else {
                why = NoPlan::Exhausted;
                n_planned = if n_failed < PLANNED_TRIES { n_failed + 1 } else { PLANNED_TRIES };
            }
        }
        let n_resets = tried.len().saturating_sub(n_planned);
        if !must_act || n_resets >= self.settings.hard_reset_retries {
            return Err(why);
        }
        if n_resets > 0 && !matches!(tried.last(), Some(Failure::Summarizer(_))) {
            return Err(NoPlan::Exhausted);
        }
        if layout.n_events(start, layout.len()) == 0 {
            return Err(why);
        }
        let reset = self.summarize(&layout, start, layout.len(), cap(n_resets));
        if reset.is_err()
            && let Ok(Plan::Edit(fold)) = Folding::default().plan(state, &[])
            && tried.is_empty()
        {
            return Ok(Plan::Edit(Edit { fallback: Some("folding"), ..fold }));
        }
        reset
    }
}

/// The version of a prompt that is not ours: FNV-1a of its text, which tells one from another.
fn custom_version(prompt: &str) -> String {
    let hash = prompt
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("custom-{hash:016x}")
}

/// What the newest request wants the summary to care about, where no condensation came after it.
pub(crate) fn guidance(state: &State<'_>) -> Option<String> {
    if !state.view.has_unhandled_request() {
        return None;
    }
    (0..state.view.n_pushed()).rev().find_map(|seq| match &state.bodies.event(seq)?.kind {
        EventKind::CondensationRequest(request) => Some(request.guidance.clone()),
        _ => None,
    })?
}

/// An event as the summarizer is shown it: a line that says what it is, with its address while recall is on, then its
/// text as shown, at most `cap` characters of it and its middle left out.
pub(crate) fn show(kind: &EventKind, id: &EventId, recall: bool, cap: usize) -> String {
    let mut label = label(kind);
    if recall {
        label.push(' ');
        label.push_str(&address(id));
    }
    let text = text_of(kind);
    let text = clip(&text, cap - cap / 2, cap / 2).unwrap_or(text);
    let n_images = n_images(kind);
    let images = if n_images > 0 { format!("\n[{n_images} images]") } else { String::new() };
    unfenced(format!("{label}\n{text}{images}"))
}

/// What an event is, in a few words.
pub(crate) fn label(kind: &EventKind) -> String {
    match kind {
        EventKind::Message(message) => match message.role {
            Role::User => "[user]".to_owned(),
            Role::Assistant => "[assistant]".to_owned(),
            _ => "[message]".to_owned(),
        },
        EventKind::Action(action) => format!("[call of {}]", one_line(&action.tool_name)),
        EventKind::Observation(observation) => {
            let outcome = match observation.outcome {
                Outcome::Error => ", an error",
                Outcome::Rejected => ", refused",
                _ => "",
            };
            format!("[result of {}{outcome}]", one_line(&observation.tool_name))
        }
        _ => "[event]".to_owned(),
    }
}

fn one_line(name: &str) -> String {
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    clip(&name, 48, 0).unwrap_or(name)
}

fn n_images(kind: &EventKind) -> usize {
    let blocks = match kind {
        EventKind::Message(message) => [&message.content, &message.extended_content],
        EventKind::Observation(observation) => [&observation.content, &observation.extended_content],
        _ => return 0,
    };
    blocks
        .into_iter()
        .flatten()
        .map(|block| if let ContentBlock::Image { urls, .. } = block { urls.len() } else { 0 })
        .sum()
}

/// Breaks what would pass for the tags around the data.
pub(crate) fn unfenced(text: String) -> String {
    if !text.contains('<') {
        return text;
    }
    let mut text = text;
    for tag in ["EVENT", "KEPT", "PREVIOUS SUMMARY"] {
        for open in ["<", "</"] {
            let tag = format!("{open}{tag}");
            if text.contains(&tag) {
                text = text.replace(&tag, &tag.replacen('<', "< ", 1));
            }
        }
    }
    text
}
