//! The peers as policies.

use std::sync::Arc;

use condenser::attempts::OVERFLOW;
use condenser::event::EventKind;
use condenser::{
    Edit, EventId, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest, Tokens,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::adapter::{Chat, Log, history, listed};
use super::peer::{
    self, Approximate, Arguments, Clause, Clip, Counter, Eviction, NOTHING_TO_SUMMARIZE, Preview, Size, halved, is_met,
    request_budget, summary_frame,
};
use crate::registry::{OWN, PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::guidance;
use crate::turns::{self, Turn, asked_by, n_prompts, size};

const PROMPT: &str = include_str!("../../prompts/deepagents-v1.md");
const PROMPT_VERSION: &str = "deepagents-v1";

/// Settings of `deepagents`. Where there are two of a kind, the second holds while the window is unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeepAgentsSettings {
    /// When it summarizes: one of the clauses, and of a clause all sizes.
    pub trigger: Vec<Clause>,
    /// The same without a window.
    pub trigger_unknown: Vec<Clause>,
    /// What stays.
    pub keep: Size,
    /// The same without a window.
    pub keep_unknown: Size,
    /// When arguments of old calls are cut.
    pub arguments_trigger: Option<Size>,
    /// The same without a window.
    pub arguments_trigger_unknown: Option<Size>,
    /// What of the end is not cut.
    pub arguments_keep: Size,
    /// The same without a window.
    pub arguments_keep_unknown: Size,
    /// Longer arguments are cut.
    pub arguments_characters: usize,
    /// What stays of them.
    pub arguments_head: usize,
    /// What follows.
    pub arguments_text: String,
    /// The tools whose arguments are cut.
    pub arguments_tools: Vec<String>,
    /// The share of the window that a request may have, the reserve included.
    pub request_share: f64,
    /// A run of results at the end is clipped from this size on, where the request does not fit.
    pub clip_keep: Size,
    /// The same where that is no number of tokens.
    pub clip_unknown_tokens: u64,
    /// What stays of a file that was read.
    pub clip_head: usize,
    /// Lines of a preview, at either end.
    pub preview_lines: usize,
    /// The most of a line.
    pub preview_characters: usize,
    /// The most of a call's id.
    pub preview_id_characters: usize,
    /// A longer result is evicted at once. `None`: none is.
    pub evict_tokens: Option<u64>,
    /// The same for what the user said last.
    pub evict_user_tokens: Option<u64>,
    /// What counts for a token of both.
    pub evict_characters_per_token: u64,
    /// Tools whose results are not evicted.
    pub evict_exempt: Vec<String>,
    /// Calls of the summarizer.
    pub summary_attempts: usize,
    /// The share of a summarizer's input that does not fit which is shown.
    pub summary_retry_share: f64,
    /// The most that is shown then, as a share of what fits.
    pub summary_limit_share: f64,
    /// The share of it that is the beginning.
    pub summary_head_share: f64,
    /// The most that the summarizer is shown, from the end. `None`: all.
    pub trim_tokens: Option<u64>,
    /// What counts for a token.
    pub characters_per_token: f64,
    /// What each message has of its own.
    pub message_tokens: u64,
    /// An image.
    pub image_tokens: u64,
    /// The most that a reported size raises a counted one by.
    pub most_scaling: f64,
    /// Addresses beside a summary, but for the first and the last.
    pub addresses: usize,
}

impl Default for DeepAgentsSettings {
    fn default() -> Self {
        let (arguments, clip, preview, eviction) =
            (Arguments::default(), Clip::default(), Preview::default(), Eviction::default());
        let counter = Approximate::default();
        Self {
            trigger: vec![Size::Fraction(0.85).into()],
            trigger_unknown: vec![Size::Tokens(170_000).into()],
            keep: Size::Fraction(0.10),
            keep_unknown: Size::Messages(6),
            arguments_trigger: Some(Size::Fraction(0.85)),
            arguments_trigger_unknown: Some(Size::Messages(20)),
            arguments_keep: Size::Fraction(0.10),
            arguments_keep_unknown: Size::Messages(20),
            arguments_characters: arguments.max_length,
            arguments_head: arguments.head,
            arguments_text: arguments.text,
            arguments_tools: arguments.tools,
            request_share: 0.95,
            clip_keep: clip.keep,
            clip_unknown_tokens: clip.unknown_tokens,
            clip_head: clip.head_characters,
            preview_lines: preview.lines,
            preview_characters: preview.line_characters,
            preview_id_characters: preview.id_characters,
            evict_tokens: eviction.tokens,
            evict_user_tokens: Some(50_000),
            evict_characters_per_token: eviction.characters_per_token,
            evict_exempt: eviction.exempt,
            summary_attempts: 3,
            summary_retry_share: 0.5,
            summary_limit_share: 0.4,
            summary_head_share: 0.25,
            trim_tokens: None,
            characters_per_token: counter.characters_per_token,
            message_tokens: counter.message_tokens,
            image_tokens: counter.image_tokens,
            most_scaling: counter.most_scaling,
            addresses: 5,
        }
    }
}

/// Settings of `langchain-summarization`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LangChainSettings {
    /// When it summarizes: one of the clauses, and of a clause all sizes.
    pub trigger: Vec<Clause>,
    /// What stays.
    pub keep: Size,
    /// The most that the summarizer is shown, from the end. `None`: all.
    pub trim_tokens: Option<u64>,
    /// What counts for a token.
    pub characters_per_token: f64,
    /// What each message has of its own.
    pub message_tokens: u64,
    /// An image.
    pub image_tokens: u64,
    /// The most that a reported size raises a counted one by.
    pub most_scaling: f64,
}

impl Default for LangChainSettings {
    fn default() -> Self {
        let counter = Approximate::default();
        Self {
            trigger: vec![Size::Fraction(0.85).into()],
            keep: Size::Messages(20),
            trim_tokens: Some(4000),
            characters_per_token: counter.characters_per_token,
            message_tokens: counter.message_tokens,
            image_tokens: counter.image_tokens,
            most_scaling: counter.most_scaling,
        }
    }
}

/// The summarization of Deep Agents, or LangChain's own.
#[derive(Clone)]
pub struct DeepAgents {
    name: &'static str,
    settings: DeepAgentsSettings,
    /// LangChain's own: no truncation, budget, clipping, eviction or history.
    is_plain: bool,
    counter: Option<Arc<dyn Counter>>,
}

impl std::fmt::Debug for DeepAgents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeepAgents").field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What the policy sees of a state.
struct Look {
    chat: Chat,
    /// The list as it would be sent, arguments cut.
    list: Vec<Value>,
    tokens: u64,
    is_due: bool,
    is_over: bool,
}

impl DeepAgents {
    /// `deepagents` with these settings.
    ///
    /// # Errors
    /// A size of zero, or a share above 1.
    pub fn new(settings: DeepAgentsSettings) -> Result<Self, String> {
        Self::checked("deepagents", settings, false)
    }

    /// `langchain-summarization` with these settings.
    ///
    /// # Errors
    /// A size of zero, or a share above 1.
    pub fn langchain(settings: LangChainSettings) -> Result<Self, String> {
        let LangChainSettings { trigger, keep, trim_tokens, .. } = settings;
        let settings = DeepAgentsSettings {
            trigger_unknown: trigger.clone(),
            trigger,
            keep,
            keep_unknown: keep,
            arguments_trigger: None,
            arguments_trigger_unknown: None,
            evict_tokens: None,
            evict_user_tokens: None,
            trim_tokens,
            characters_per_token: settings.characters_per_token,
            message_tokens: settings.message_tokens,
            image_tokens: settings.image_tokens,
            most_scaling: settings.most_scaling,
            ..DeepAgentsSettings::default()
        };
        Self::checked("langchain-summarization", settings, true)
    }

    fn checked(name: &'static str, settings: DeepAgentsSettings, is_plain: bool) -> Result<Self, String> {
        let clauses = settings.trigger.iter().chain(&settings.trigger_unknown);
        let sizes = clauses.flat_map(|clause| clause.sizes()).map(|size| ("trigger", size));
        let others = [
            ("keep", Some(settings.keep)),
            ("keep_unknown", Some(settings.keep_unknown)),
            ("arguments_trigger", settings.arguments_trigger),
            ("arguments_trigger_unknown", settings.arguments_trigger_unknown),
            ("arguments_keep", Some(settings.arguments_keep)),
            ("arguments_keep_unknown", Some(settings.arguments_keep_unknown)),
            ("clip_keep", Some(settings.clip_keep)),
        ];
        let others = others.into_iter().filter_map(|(name, size)| Some((name, size?)));
        for (name, size) in sizes.chain(others) {
            size.check().map_err(|problem| format!("`{name}` {problem}"))?;
        }
        if settings.characters_per_token.is_nan() || settings.characters_per_token <= 0.0 {
            return Err("`characters_per_token` must be above 0".to_owned());
        }
        Ok(Self { name, settings, is_plain, counter: None })
    }

    /// The policy with another counter, in the place of all sizes.
    #[must_use]
    pub fn with_counter(self, counter: Arc<dyn Counter>) -> Self {
        Self { counter: Some(counter), ..self }
    }

    fn approximate(&self) -> Approximate {
        let settings = &self.settings;
        Approximate {
            characters_per_token: settings.characters_per_token,
            message_tokens: settings.message_tokens,
            image_tokens: settings.image_tokens,
            most_scaling: settings.most_scaling,
        }
    }

    /// The size of a request with `list`, where `chat` is what is sent now.
    fn count(&self, state: &State<'_>, chat: &[Value], list: &[Value]) -> u64 {
        match &self.counter {
            Some(counter) => {
                let prompt = |index: usize| {
                    let kind = turns::kind(state, index)?;
                    Some(serde_json::json!({"role": "system", "content": turns::text(&kind)}))
                };
                let all: Vec<Value> = (0..n_prompts(state)).filter_map(prompt).chain(list.iter().cloned()).collect();
                counter.scaled(&all)
            }
            // All but the difference is counted as the request is.
            None => {
                let counter = self.approximate();
                let (before, after) = (counter.tokens(chat), counter.tokens(list));
                (state.counted().0 + after).saturating_sub(before)
            }
        }
    }

    fn counter(&self) -> Arc<dyn Counter> {
        self.counter.clone().unwrap_or_else(|| Arc::new(self.approximate()))
    }

    fn trigger(&self, state: &State<'_>) -> &[Clause] {
        if window(state).is_some() { &self.settings.trigger } else { &self.settings.trigger_unknown }
    }

    fn keep(&self, state: &State<'_>) -> Size {
        if window(state).is_some() { self.settings.keep } else { self.settings.keep_unknown }
    }

    fn arguments(&self, state: &State<'_>) -> Arguments {
        let settings = &self.settings;
        let (trigger, keep) = match window(state) {
            Some(_) => (settings.arguments_trigger, settings.arguments_keep),
            None => (settings.arguments_trigger_unknown, settings.arguments_keep_unknown),
        };
        Arguments {
            trigger,
            keep,
            max_length: settings.arguments_characters,
            head: settings.arguments_head,
            text: settings.arguments_text.clone(),
            tools: settings.arguments_tools.clone(),
        }
    }

    fn preview(&self) -> Preview {
        Preview {
            lines: self.settings.preview_lines,
            line_characters: self.settings.preview_characters,
            id_characters: self.settings.preview_id_characters,
        }
    }

    fn eviction(&self, tokens: Option<u64>) -> Eviction {
        Eviction {
            tokens,
            characters_per_token: self.settings.evict_characters_per_token,
            exempt: self.settings.evict_exempt.clone(),
        }
    }

    /// The most tokens of a request.
    fn budget(&self, state: &State<'_>) -> Option<u64> {
        let limit = window(state).and_then(|window| i64::try_from(window).ok()).filter(|_| !self.is_plain);
        let output = i64::try_from(state.budget.reserve.0).unwrap_or(i64::MAX);
        request_budget(limit, self.settings.request_share, output)
    }

    /// Whether the provider refused the request, or would.
    fn is_refused(&self, state: &State<'_>) -> bool {
        !self.is_plain
            && (asked_by(state).is_some_and(|by| by == OVERFLOW)
                || self.counter.is_none() && state.budget.limit().is_some_and(|limit| size(state) > limit.0))
    }

    /// Whether nothing needs a closer look: the view is small, and nothing in it too long.
    fn is_small(&self, state: &State<'_>) -> bool {
        let turns = listed(state);
        let (n, tokens, limit) = (turns.len(), size(state), window(state));
        self.counter.is_none()
            && !is_met(self.trigger(state), n, tokens, None, limit)
            && !self.arguments(state).is_due(n, state.counted().0, limit)
            && self.budget(state).is_none_or(|budget| state.counted().0 <= budget)
            && self.large(state, &turns).is_empty()
    }

    /// The results that are too long, and the last message where it is the user's and is; by position in the view.
    fn large(&self, state: &State<'_>, turns: &[Turn]) -> Vec<usize> {
        let (results, user) =
            (self.eviction(self.settings.evict_tokens), self.eviction(self.settings.evict_user_tokens));
        let is_large = |(at, turn): (usize, &Turn)| {
            let (index, eviction) = match turn {
                Turn::Result(index) => (*index, &results),
                Turn::User(index) if at + 1 == turns.len() => (*index, &user),
                _ => return None,
            };
            if !state.recall || state.view.get(index)?.rewrite().is_some() {
                return None;
            }
            let kind = &state.event(index)?.kind;
            let is_exempt = matches!(kind, EventKind::Observation(it) if eviction.exempt.contains(&it.tool_name));
            (!is_exempt && eviction.is_large(&turns::text(kind))).then_some(index)
        };
        turns.iter().enumerate().filter_map(is_large).collect()
    }

    fn look(&self, state: &State<'_>) -> Look {
        let chat = Chat::new(state);
        let mut list = chat.messages.clone();
        let large = self.large(state, &listed(state));
        let mut log = Log { recall: state.recall };
        for (at, message) in list.iter_mut().enumerate() {
            if chat.members(at).iter().any(|index| large.contains(index))
                && let Ok(Some(evicted)) = peer::evict(message, self.preview(), &mut log)
            {
                *message = evicted.message;
            }
        }
        let limit = window(state);
        let arguments = self.arguments(state);
        let mut tokens = self.count(state, &chat.messages, &list);
        if arguments.is_due(list.len(), tokens, limit) {
            let (cut, changed) = arguments.cut(&list, limit, &*self.counter());
            if !changed.is_empty() {
                list = cut;
                tokens = self.count(state, &chat.messages, &list);
            }
        }
        let reported = state.reported.map(|reported| reported.0).filter(|_| self.counter.is_none());
        let is_due = is_met(self.trigger(state), list.len(), tokens, reported, limit);
        let is_over = self.budget(state).is_some_and(|budget| tokens > budget);
        Look { chat, list, tokens, is_due, is_over }
    }

    /// The messages behind a cut, small enough to be sent, where `summary` stands before them. `None`: they are not.
    fn fitted(
        &self,
        state: &State<'_>,
        look: &Look,
        cut: usize,
        summary: [Option<Value>; 2],
        is_refused: bool,
    ) -> Option<Vec<Value>> {
        let tail = &look.list[cut..];
        if self.is_plain {
            return Some(tail.to_vec());
        }
        let with = |summary: &Option<Value>, tail: &[Value]| {
            let list: Vec<Value> = summary.iter().chain(tail).cloned().collect();
            self.count(state, &look.chat.messages, &list)
        };
        let [shortest, longest] = &summary;
        let budget = self.budget(state);
        if !is_refused && budget.is_none_or(|budget| with(longest, tail) <= budget) {
            return Some(tail.to_vec());
        }
        let clip = Clip {
            keep: self.settings.clip_keep,
            unknown_tokens: self.settings.clip_unknown_tokens,
            head_characters: self.settings.clip_head,
            preview: self.preview(),
        };
        let mut log = Log { recall: state.recall };
        // The call of a result may be before the cut, and is not looked for there.
        let (clipped, _) = peer::clip(tail, &clip, window(state), &*self.counter(), &mut log).ok()?;
        let tokens = with(shortest, &clipped);
        let fits = budget.is_none_or(|budget| tokens <= budget) && !(is_refused && tokens >= look.tokens);
        fits.then_some(clipped)
    }

    /// The summarizer's input and what is said around its answer. `None` where there is nothing to show it.
    fn request(
        &self,
        state: &State<'_>,
        look: &Look,
        cut: usize,
        before: String,
        after: &str,
    ) -> Option<SummaryRequest> {
        let mut shown: Vec<(usize, Value)> = look.list[..cut].iter().cloned().enumerate().collect();
        if let Some(most) = self.settings.trim_tokens {
            let kept = peer::trim(&look.list[..cut], most, &*self.counter());
            let place = |message: Value| Some((look.list.iter().position(|it| it["id"] == message["id"])?, message));
            shown = kept.into_iter().filter_map(place).collect();
        }
        if shown.is_empty() {
            return None;
        }
        let mut previous = Vec::new();
        if shown.iter().any(|(_, message)| !peer::is_summary(message)) {
            shown.retain(|(_, message)| {
                let is_summary = peer::is_summary(message);
                previous.extend(is_summary.then(|| peer::content_text(&message["content"])));
                !is_summary
            });
        }
        let mut events = self.with_middle_cut(state, look.chat.events(state, &shown));
        events.retain(|(_, text)| !text.is_empty());
        Some(SummaryRequest {
            instructions: PROMPT.to_owned(),
            events,
            previous: (!previous.is_empty()).then(|| crate::summarizing::unfenced(previous.join("\n\n"))),
            guidance: guidance(state),
            prompt_version: PROMPT_VERSION.to_owned(),
            frame: Some(Box::new(Frame { before, after: after.to_owned(), ..Frame::default() })),
            ..SummaryRequest::default()
        })
    }

    /// Events that do not fit into the summarizer's input lose the middle of it.
    fn with_middle_cut(&self, state: &State<'_>, mut events: Vec<(EventId, String)>) -> Vec<(EventId, String)> {
        let Some(most) = state.budgets.summary_input.tokens.filter(|_| !self.is_plain) else { return events };
        let tokens: Tokens = events.iter().map(|(_, text)| state.sizer.text(text)).sum();
        if tokens <= most {
            return events;
        }
        let settings = &self.settings;
        let room = tokens.share(settings.summary_retry_share).min(most.share(settings.summary_limit_share));
        let characters = (room.0 as f64 * settings.characters_per_token) as usize;
        let mut head = (characters as f64 * settings.summary_head_share) as usize;
        let mut tail = characters.saturating_sub(head);
        let mut starts = vec![0; events.len()];
        for (at, (_, text)) in events.iter().enumerate() {
            starts[at] = text.chars().count().min(head);
            head -= starts[at];
        }
        for (at, (_, text)) in events.iter_mut().enumerate().rev() {
            let n = text.chars().count();
            let end = n.saturating_sub(starts[at]).min(tail);
            tail -= end;
            if starts[at] + end < n {
                *text = match starts[at] + end {
                    0 => String::new(),
                    _ => condenser::condensation::clip(text, starts[at], end).unwrap_or_default(),
                };
            }
        }
        events
    }
}

/// The model's context window.
fn window(state: &State<'_>) -> Option<u64> {
    state.budget.window.map(|window| window.0)
}

impl Policy for DeepAgents {
    fn name(&self) -> &str {
        self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if state.view.has_unhandled_request() {
            return Requirement::Hard(vec![Reason::Request]);
        }
        if self.is_refused(state) {
            return Requirement::Hard(vec![Reason::Tokens]);
        }
        if self.is_small(state) {
            return Requirement::None;
        }
        let look = self.look(state);
        if look.is_over {
            Requirement::Hard(vec![Reason::Tokens])
        } else if look.is_due {
            Requirement::Soft(vec![Reason::Tokens])
        } else if look.chat.rewrites(state, &look.list, 0).is_empty() {
            Requirement::None
        } else {
            Requirement::Soft(vec![Reason::Policy])
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let is_only_calls = tried.iter().all(|failure| matches!(failure, Failure::Summarizer(_)));
        if !is_only_calls || tried.len() >= self.settings.summary_attempts {
            return Err(NoPlan::Exhausted);
        }
        let look = self.look(state);
        let is_refused = self.is_refused(state);
        let is_asked = asked_by(state).is_some_and(|by| by != OVERFLOW || self.is_plain);
        if is_asked && !look.is_due && !look.is_over && !self.is_plain {
            let clauses = halved(self.trigger(state));
            if !is_met(&clauses, look.list.len(), size(state), None, window(state)) {
                return Err(NoPlan::TooLittle);
            }
        }
        let mut cut = 0;
        if look.is_due || look.is_over || is_refused || is_asked {
            cut = peer::cutoff(&look.list, self.keep(state), window(state), &*self.counter());
        }
        if cut == 0 {
            let is_hard = look.is_over || is_refused;
            let mut list = look.list.clone();
            if is_hard {
                list = self.fitted(state, &look, 0, [None, None], is_refused).ok_or(NoPlan::Exhausted)?;
            }
            let rewrites = look.chat.rewrites(state, &list, 0);
            return match rewrites.is_empty() {
                true if is_hard || is_asked => Err(NoPlan::NoLegalCut),
                true => Ok(Plan::Keep),
                false => Ok(Plan::Edit(Edit { rewrites, ..Edit::default() })),
            };
        }
        let forget = look.chat.forget(state, cut);
        let address = match state.recall && !self.is_plain {
            true => history(state, &forget, self.settings.addresses),
            false => None,
        };
        let (before, after) = summary_frame(address.as_deref());
        // How long the summary will be is not known yet.
        let most = state.budgets.summary_output.tokens.unwrap_or(Tokens::ZERO).0 as f64;
        let filled = "x".repeat((most * self.settings.characters_per_token) as usize);
        let summary = |text: &str| Some(peer::summary_message(&format!("{before}{text}{after}")));
        let tail =
            self.fitted(state, &look, cut, [summary(""), summary(&filled)], is_refused).ok_or(NoPlan::Exhausted)?;
        let list: Vec<Value> = look.list[..cut].iter().cloned().chain(tail).collect();
        let mut rewrites = look.chat.rewrites(state, &list, cut);
        if !self.is_plain {
            look.chat.strip(state, cut, &mut rewrites);
        }
        let mut edit = Edit { forget, rewrites, ..Edit::default() };
        let offset = n_prompts(state);
        match self.request(state, &look, cut, before.clone(), after) {
            Some(request) => Ok(Plan::Summarize { edit, offset, request }),
            None => {
                edit.summary = Some((format!("{before}{NOTHING_TO_SUMMARIZE}{after}"), offset));
                Ok(Plan::Edit(edit))
            }
        }
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "Deep Agents 0.7.32";
const LANGCHAIN: &str = "LangChain 1.5.2";

const TEXTS: &[SettingText] = &[
    ("trigger", "clauses of messages, tokens, share of the window", "it summarizes from one of them on", SOURCE),
    ("trigger_unknown", "clauses of messages, tokens, share of the window", "the same without a window", SOURCE),
    ("keep", "messages, tokens or share of the window", "the newest messages that stay", SOURCE),
    ("keep_unknown", "messages, tokens or share of the window", "the same without a window", SOURCE),
    (
        "arguments_trigger",
        "messages, tokens or share of the window",
        "old arguments are cut from here on; null is off",
        SOURCE,
    ),
    ("arguments_trigger_unknown", "messages, tokens or share of the window", "the same without a window", SOURCE),
    ("arguments_keep", "messages, tokens or share of the window", "the newest messages whose arguments stay", SOURCE),
    ("arguments_keep_unknown", "messages, tokens or share of the window", "the same without a window", SOURCE),
    ("arguments_characters", "characters", "a longer argument is cut", SOURCE),
    ("arguments_head", "characters", "what stays of it", SOURCE),
    ("arguments_text", "text", "what follows", SOURCE),
    ("arguments_tools", "names", "the tools whose arguments are cut", SOURCE),
    ("request_share", "share of the window", "the most of a request, with the reserve", SOURCE),
    (
        "clip_keep",
        "messages, tokens or share of the window",
        "results at the end are clipped from here on, if need be",
        SOURCE,
    ),
    ("clip_unknown_tokens", "tokens", "the same where that gives no number", SOURCE),
    ("clip_head", "characters", "what stays of a file that was read", SOURCE),
    ("preview_lines", "lines", "what is shown of an evicted text, at either end", SOURCE),
    ("preview_characters", "characters", "the most of a line of it", SOURCE),
    ("preview_id_characters", "characters", "the most of a call's id beside it", SOURCE),
    ("evict_tokens", "tokens", "a longer result is evicted at once; null is off", SOURCE),
    ("evict_user_tokens", "tokens", "the same for what the user said last", SOURCE),
    ("evict_characters_per_token", "characters", "what counts for a token of both", SOURCE),
    ("evict_exempt", "names", "tools whose results are not evicted", SOURCE),
    ("summary_attempts", "calls", "the most calls for a summary", SOURCE),
    ("summary_retry_share", "share of the input", "what is shown of a summarizer's input that does not fit", SOURCE),
    ("summary_limit_share", "share of what fits", "the most that is shown then", SOURCE),
    ("summary_head_share", "share of what is shown", "how much of it is the beginning", SOURCE),
    ("trim_tokens", "tokens", "the most that the summarizer is shown, from the end; null is all", SOURCE),
    ("characters_per_token", "characters", "what counts for a token when messages are sized", LANGCHAIN),
    ("message_tokens", "tokens", "what each message has of its own", LANGCHAIN),
    ("image_tokens", "tokens", "an image", LANGCHAIN),
    ("most_scaling", "factor", "the most that a reported size raises a counted one by", LANGCHAIN),
    ("addresses", "addresses", "the largest events beside a summary, but for the first and the last", OWN),
];

const LANGCHAIN_TEXTS: &[SettingText] = &[
    (
        "trigger",
        "clauses of messages, tokens, share of the window",
        "it summarizes from one of them on",
        "Deep Agents 0.7.32; the original has no default",
    ),
    ("keep", "messages, tokens or share of the window", "the newest messages that stay", LANGCHAIN),
    ("trim_tokens", "tokens", "the most that the summarizer is shown, from the end; null is all", LANGCHAIN),
    ("characters_per_token", "characters", "what counts for a token when messages are sized", LANGCHAIN),
    ("message_tokens", "tokens", "what each message has of its own", LANGCHAIN),
    ("image_tokens", "tokens", "an image", LANGCHAIN),
    ("most_scaling", "factor", "the most that a reported size raises a counted one by", LANGCHAIN),
];

/// The policies.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    let mut list = vec![
        PolicyInfo::new(
            "deepagents",
            PolicyKind::Port,
            "Deep Agents: cuts old arguments, evicts large results, and keeps the newest messages behind a summary",
            &DeepAgentsSettings::default(),
            TEXTS,
            |_, settings| Ok(Box::new(DeepAgents::new(settings)?)),
        ),
        PolicyInfo::new(
            "langchain-summarization",
            PolicyKind::Port,
            "LangChain: a summary for all but the newest messages",
            &LangChainSettings::default(),
            LANGCHAIN_TEXTS,
            |_, settings| Ok(Box::new(DeepAgents::langchain(settings)?)),
        ),
    ];
    list.extend(super::clearing::policies());
    list
}
