//! The peer as a policy.

use condenser::{
    Edit, EventId, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest, Tokens,
};

use super::adapter::Session;
use super::peer::{self, BEFORE, Path, Settings};
use crate::opencode::{estimate, estimate_json, output_limit};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, unfenced};
use crate::turns::{has_new_answer, n_prompts, size, turns};

const PROMPT: &str = include_str!("../../../prompts/opencode-v2-v1.md");
const PROMPT_VERSION: &str = "opencode-v2-v1";

/// The compaction of OpenCode's event-sourced session.
#[derive(Clone, Debug, Default)]
pub struct OpencodeV2 {
    settings: Settings,
}

impl OpencodeV2 {
    /// The policy with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    /// Why to compact, if there is a reason.
    fn path(&self, state: &State<'_>) -> Option<Path> {
        *state.once(&self.settings, || self.find_path(state))
    }

    fn find_path(&self, state: &State<'_>) -> Option<Path> {
        if state.view.has_unhandled_request() {
            return Some(Path::Manual);
        }
        if state.budget.limit().is_some_and(|limit| size(state) > limit.0) {
            return Some(Path::Overflow);
        }
        let context = state.budget.window.map(|window| window.0);
        let is_large = || {
            let request = estimate_json(&state.request().to_openai_chat());
            peer::should_compact(request, context, output_limit(state), &self.settings)
        };
        (self.settings.auto && context.is_some() && is_large()).then_some(Path::Threshold)
    }

    fn compact(&self, state: &State<'_>, path: Path) -> Option<Plan> {
        let session = Session::new(state);
        let (rows, strings) = session.strings(&self.settings);
        let selected = peer::select(&strings, &self.settings)?;
        let compaction = peer::plan(&selected, session.checkpoint.as_ref(), path)?;
        let previous = session.checkpoint.as_ref().map(|checkpoint| checkpoint.summary.clone());
        let output = output_limit(state);
        if path == Path::Threshold
            && let Some(context) = state.budget.window
        {
            let prompt = peer::prompt(PROMPT, previous.as_deref(), &compaction.context);
            if !peer::fits(estimate(&prompt), context.0, output, &self.settings) {
                return None;
            }
        }
        let mut events: Vec<(EventId, String)> = Vec::new();
        if let (Some(index), Some(checkpoint)) = (session.summary, &session.checkpoint)
            && !checkpoint.recent.is_empty()
        {
            let id = state.view.get(index)?.id().clone();
            events.push((id, unfenced(format!("[recent context of the checkpoint before]\n{}", checkpoint.recent))));
        }
        let whole = peer::Selected { n_head: rows.len(), ..peer::Selected::default() };
        let head = session.head(&rows, if compaction.takes_recent { &whole } else { &selected }, &self.settings);
        events.extend(
            head.into_iter().filter_map(|(index, text)| Some((state.view.get(index)?.id().clone(), unfenced(text)))),
        );
        if events.is_empty() {
            return None;
        }
        let frame = Frame { before: BEFORE.to_owned(), after: peer::after(&compaction.recent), next: None };
        let request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            events,
            previous: previous.filter(|text| !text.is_empty()).map(unfenced),
            guidance: guidance(state),
            max_tokens: Some(Tokens(peer::summary_tokens(output, &self.settings))),
            prompt_version: PROMPT_VERSION.to_owned(),
            frame: Some(Box::new(frame)),
            ..SummaryRequest::default()
        };
        let edit = Edit { forget: session.forget(state), ..Edit::default() };
        Some(Plan::Summarize { edit, offset: n_prompts(state), request })
    }
}

impl Policy for OpencodeV2 {
    fn name(&self) -> &str {
        "opencode-v2"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        match self.path(state) {
            Some(Path::Manual) => Requirement::Hard(vec![Reason::Request]),
            Some(Path::Overflow) => Requirement::Hard(vec![Reason::Tokens]),
            Some(Path::Threshold) => Requirement::Soft(vec![Reason::Tokens]),
            None => Requirement::None,
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        match self.path(state) {
            None => Ok(Plan::Keep),
            Some(Path::Threshold) => Ok(self.compact(state, Path::Threshold).unwrap_or(Plan::Keep)),
            Some(path) => {
                // A request that was built from a checkpoint and is refused again is given up.
                let is_rebuilt = state.view.iter().any(|entry| entry.is_summary());
                if path == Path::Overflow && is_rebuilt && !has_new_answer(state, &turns(state)) {
                    return Err(NoPlan::Exhausted);
                }
                self.compact(state, path).ok_or(NoPlan::NoLegalCut)
            }
        }
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "OpenCode core 031a4a9c and before";

const TEXTS: &[SettingText] = &[
    ("auto", "switch", "whether anything is compacted but on request and after a refusal", SOURCE),
    ("buffer", "tokens", "what of the context stays free, where an answer needs no more", SOURCE),
    ("keep_tokens", "tokens", "the newest text that stays; 15,000 in later releases", SOURCE),
    ("cuts_messages", "switch", "whether a message is cut where that text begins inside it", SOURCE),
    ("output_characters", "characters", "the most of one output of a tool or shell", SOURCE),
    ("summary_tokens", "tokens", "the most of a summary", SOURCE),
];

/// The policy, as lists show it.
pub(crate) fn info() -> PolicyInfo {
    PolicyInfo::new(
        "opencode-v2",
        PolicyKind::Port,
        "OpenCode's core: one checkpoint holds the summary of the older text and the newest text",
        &Settings::default(),
        TEXTS,
        |_, settings| Ok(Box::new(OpencodeV2::new(settings))),
    )
}
