//! The peer as policies.

use std::rc::Rc;

use condenser::attempts::OVERFLOW;
use condenser::event::EventKind;
use condenser::{
    Edit, EventId, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummarizeError, SummaryRequest,
    Tokens,
};
use serde_json::{Value, json};

use super::adapter::Store;
use super::peer::{
    self, Budget, Files, Intent, Mode, ModelInfo, Settings, cut, file_section, fold, project, serialize, summary_text,
};
use crate::exact::{js_json_len, js_quoted_len};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, label, unfenced};
use crate::turns::{self, asked_by, n_prompts, size};

const PROMPT: &str = include_str!("../../prompts/cline-v1.md");
const PROMPT_VERSION: &str = "cline-v1";
/// The name of basic compaction, and of the fallback to it.
const BASIC: &str = "cline-basic";

/// The compaction of Cline: by rules alone, or by a model with the rules to fall back to.
#[derive(Clone, Copy, Debug)]
pub struct Cline {
    is_agentic: bool,
    settings: Settings,
}

impl Cline {
    /// `cline-basic` with these settings.
    pub fn basic(settings: Settings) -> Self {
        Self { is_agentic: false, settings }
    }

    /// `cline-agentic` with these settings.
    pub fn agentic(settings: Settings) -> Self {
        Self { is_agentic: true, settings }
    }

    /// The messages, and why and to what size to compact them.
    fn decided(&self, state: &State<'_>) -> Rc<(Store, Option<(Mode, Budget)>)> {
        state.once(&self.settings, || {
            let store = Store::new(state);
            let due = self.due(state, &store);
            (store, due)
        })
    }

    fn due(&self, state: &State<'_>, store: &Store) -> Option<(Mode, Budget)> {
        let (system, tools) = prompt(state);
        let lengths = || store.messages.iter().map(|message| message.length);
        let request = peer::request_of(system, lengths(), tools, &self.settings);
        let known = |tokens: Tokens| Some(tokens.0).filter(|tokens| *tokens > 0);
        let model = ModelInfo {
            max_input: None,
            window: state.budget.window.and_then(known),
            max_output: known(state.budget.reserve),
        };
        let mode = match asked_by(state) {
            Some(by) if by == OVERFLOW => Mode::OverflowRecovery,
            Some(_) => Mode::Manual,
            None if state.budget.limit().is_some_and(|limit| size(state) > limit.0) => Mode::OverflowRecovery,
            None => Mode::Auto,
        };
        let sum = lengths().map(|length| self.settings.tokens_of(length)).sum();
        let n_pairs = || peer::n_pairs(store.messages.iter().map(|message| &message.value));
        let budget = peer::budget_of(sum, n_pairs, request, model, mode, None, &self.settings)?;
        Some((mode, budget))
    }

    fn keep(&self, state: &State<'_>, store: &Store, budget: &Budget) -> Option<Edit> {
        let (target, trigger) = (budget.messages.target, budget.messages.trigger as u64);
        let kept = peer::keep(&store.values(), target, trigger, &self.settings)?;
        let edit = store.edit(state, &kept);
        (!edit.is_empty()).then_some(edit)
    }

    fn summarize(&self, state: &State<'_>, store: &Store, budget: &Budget) -> Option<Plan> {
        let settings = &self.settings;
        if store.messages.len() < 2 {
            return None;
        }
        let preserve = settings.preserve_recent_tokens.min(budget.messages.target);
        let messages = store.values();
        let at = cut(&messages, preserve, settings);
        let (previous, folded) = fold(messages.get(..at).filter(|before| !before.is_empty())?);
        if folded.is_empty() {
            return None;
        }
        let previous = previous.map(summary_text);
        let whole = (budget.max_input.max(budget.request.trigger) as u64).max(settings.least_summarizer_tokens);
        let limit = state.budgets.summary_input;
        let limit = limit.tokens.filter(|_| limit.origin == condenser::budget::Origin::Set).map_or(whole, |it| it.0);
        let empty = peer::request_tokens(PROMPT, &[json!(previous)], &json!([]), settings);
        let projection =
            project(folded, limit as i64 - i64::try_from(empty).unwrap_or(i64::MAX), Intent::AgenticSummary, settings);
        if !projection.is_ok || projection.messages.is_empty() {
            return None;
        }
        // The files of what came before the fold are in the earlier summary's lists.
        let n_before = at - folded.len();
        let shown: Vec<Value> = messages[..n_before].iter().chain(&projection.messages).cloned().collect();
        let files = Files::of(&shown);
        let request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            events: self.events(state, store, &projection.messages),
            previous: previous.map(unfenced),
            guidance: guidance(state),
            max_tokens: Some(Tokens(settings.summary_tokens)),
            prompt_version: PROMPT_VERSION.to_owned(),
            frame: Some(Box::new(Frame { after: file_section(&files), ..Frame::default() })),
            ..SummaryRequest::default()
        };
        let edit = Edit { forget: store.forget(state, 0..at), ..Edit::default() };
        Some(Plan::Summarize { edit, offset: n_prompts(state), request })
    }

    /// What the summarizer is shown, each line with the entry it is of.
    fn events(&self, state: &State<'_>, store: &Store, projected: &[Value]) -> Vec<(EventId, String)> {
        let mut events: Vec<(EventId, String)> = Vec::new();
        for message in projected {
            let Some(at) = store.messages.iter().position(|stored| stored.value["id"] == message["id"]) else {
                continue;
            };
            let lines = serialize(message, &self.settings);
            for (line, index) in lines.into_iter().zip(store.owners_of(state, at, message)) {
                let Some(entry) = state.view.get(index) else { continue };
                match events.iter_mut().rev().find(|(id, _)| id == entry.id()) {
                    Some((_, text)) => text.push_str(&unfenced(format!("\n{line}"))),
                    None => {
                        let label =
                            state.event(index).map_or_else(|| "[summary]".to_owned(), |event| label(&event.kind));
                        events.push((entry.id().clone(), unfenced(format!("{label}\n{line}"))));
                    }
                }
            }
        }
        events
    }
}

/// Characters of JSON of a system prompt's text, and of its tools where it has any.
struct PromptLength {
    text: usize,
    tools: Option<usize>,
}

/// Characters of JSON of the system prompts' text, and of the newest tools.
fn prompt(state: &State<'_>) -> (usize, usize) {
    /// A blank line between two texts is `\n\n`, and they share their quotes.
    const BETWEEN: usize = 4 - 2;
    let mut system = None;
    let mut newest = "[]".len();
    for entry in state.view.iter().take(n_prompts(state)) {
        let Some(kind) = turns::kind(state, entry.index()) else { continue };
        let length = state.sizer.derived(&[entry], || PromptLength {
            text: js_quoted_len(&turns::text(&kind)),
            tools: match &*kind {
                EventKind::SystemPrompt(prompt) if !prompt.tools.is_empty() => Some(js_json_len(&json!(prompt.tools))),
                _ => None,
            },
        });
        system = Some(system.map_or(length.text, |before: usize| before + BETWEEN + length.text));
        newest = length.tools.unwrap_or(newest);
    }
    (system.unwrap_or(js_quoted_len("")), newest)
}

impl Policy for Cline {
    fn name(&self) -> &str {
        if self.is_agentic { "cline-agentic" } else { BASIC }
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if state.view.has_unhandled_request() {
            return Requirement::Hard(vec![Reason::Request]);
        }
        match self.decided(state).1 {
            Some((Mode::Auto, _)) => Requirement::Soft(vec![Reason::Tokens]),
            Some(_) => Requirement::Hard(vec![Reason::Tokens]),
            None => Requirement::None,
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let decided = self.decided(state);
        let (store, Some((mode, budget))) = &*decided else { return Ok(Plan::Keep) };
        let basic = |fallback| {
            let edit = self.keep(state, store, budget).ok_or(NoPlan::NoLegalCut)?;
            Ok(Plan::Edit(Edit { fallback, ..edit }))
        };
        let is_agentic = self.is_agentic && *mode != Mode::OverflowRecovery;
        match tried {
            [] if is_agentic => self.summarize(state, store, budget).ok_or(NoPlan::NoLegalCut),
            [] => basic(self.is_agentic.then_some(BASIC)),
            // A summary without text is no failure there: nothing is compacted.
            [Failure::Summarizer(SummarizeError::Empty)] => Err(NoPlan::Exhausted),
            [Failure::Summarizer(_)] if is_agentic => basic(Some(BASIC)),
            _ => Err(NoPlan::Exhausted),
        }
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "Cline 21cb8d25";

const TEXTS: &[SettingText] = &[
    ("characters_per_token", "characters of JSON", "what counts for a token", SOURCE),
    ("default_max_input_tokens", "tokens", "the most of a request while the window is unknown", SOURCE),
    ("window_share", "share of the window", "the most of a request", SOURCE),
    ("trigger_share", "share of the most", "it compacts from here on", SOURCE),
    ("target_share", "share of the trigger", "what is left", SOURCE),
    ("long_target_share", "share of the most", "what is left of a long conversation", SOURCE),
    ("long_turns", "turns", "a conversation of so many is long", SOURCE),
    ("manual_target_share", "share of the messages", "what is left on request, or after a refusal", SOURCE),
    ("least_manual_share", "share of the messages", "the least that it is taken for", SOURCE),
    ("most_manual_share", "share of the messages", "the most that it is taken for", SOURCE),
    ("preserve_recent_tokens", "tokens", "the newest messages that stay beside a model's summary", SOURCE),
    ("summary_tokens", "tokens", "the most of a model's summary", SOURCE),
    ("least_summarizer_tokens", "tokens", "the least that a summarizer is taken to read", SOURCE),
    (
        "summarized_characters",
        "characters",
        "the most of a result, file or thought that the summarizer is shown",
        SOURCE,
    ),
    ("command_characters", "characters", "the most of a command in a notice", SOURCE),
    ("notice_responses", "answers", "the newest that notices repeat", SOURCE),
    ("least_characters", "characters", "the least that a message is cut to, and a text that gets a marker", SOURCE),
];

/// Both strategies.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    let settings = Settings::default();
    vec![
        PolicyInfo::new(
            BASIC,
            PolicyKind::Port,
            "Cline: prompts, the newest of the last turn and short answers stay, with notices of the work between",
            &settings,
            TEXTS,
            |_, settings| Ok(Box::new(Cline::basic(settings))),
        ),
        PolicyInfo::new(
            "cline-agentic",
            PolicyKind::Port,
            "Cline: a summary for all but the newest messages; where the summarizer fails, as cline-basic",
            &settings,
            TEXTS,
            |_, settings| Ok(Box::new(Cline::agentic(settings))),
        ),
    ]
}
