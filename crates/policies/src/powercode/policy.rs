//! The peer as a policy.

use condenser::{Edit, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummaryRequest};

use super::adapter::Chat;
use super::peer::{SUMMARY_LABEL, Settings, cut, is_over, truncate};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, label, unfenced};
use crate::turns::{n_prompts, size};

const PROMPT: &str = include_str!("../../prompts/powercode-v1.md");
const PROMPT_VERSION: &str = "powercode-v1";

/// The compactor of powercode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Powercode {
    settings: Settings,
}

impl Powercode {
    /// The policy with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    fn summarize(&self, state: &State<'_>, chat: &Chat, cut: usize) -> Plan {
        let mut edit = Edit { forget: chat.forget(state, cut), ..Edit::default() };
        chat.truncate(state, &self.settings, cut, &mut edit);
        let event = |(at, message): (usize, &serde_json::Value)| {
            let index = chat.first_member(at)?;
            let text = truncate(message, &self.settings);
            let text = match text["content"].as_str() {
                Some(content) if text.get("tool_calls").is_none() => content.to_owned(),
                _ => text.to_string(),
            };
            let label = state.event(index).map(|event| label(&event.kind))?;
            Some((state.view.get(index)?.id().clone(), unfenced(format!("{label}\n{text}"))))
        };
        let request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            events: chat.messages[..cut].iter().enumerate().filter_map(event).collect(),
            previous: chat.session.summary().map(|summary| unfenced(summary.to_owned())),
            guidance: guidance(state),
            prompt_version: PROMPT_VERSION.to_owned(),
            frame: Some(Box::new(Frame { before: format!("{SUMMARY_LABEL}\n"), ..Frame::default() })),
            ..SummaryRequest::default()
        };
        Plan::Summarize { edit, offset: n_prompts(state), request }
    }
}

impl Policy for Powercode {
    fn name(&self) -> &str {
        "powercode"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if state.view.has_unhandled_request() {
            return Requirement::Hard(vec![Reason::Request]);
        }
        match state.budget.window {
            Some(window) if is_over(size(state), window.0, &self.settings) => Requirement::Hard(vec![Reason::Tokens]),
            _ => Requirement::None,
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let chat = Chat::new(state);
        match (cut(&chat.messages, &self.settings), tried) {
            (cut, []) if cut > 0 => Ok(self.summarize(state, &chat, cut)),
            // Without a summary everything stays, cut in the middle.
            (_, [] | [Failure::Summarizer(_)]) => {
                let mut edit = Edit::default();
                chat.truncate(state, &self.settings, 0, &mut edit);
                if edit.is_empty() { Err(NoPlan::NoLegalCut) } else { Ok(Plan::Edit(edit)) }
            }
            _ => Err(NoPlan::Exhausted),
        }
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "powercode, session and compactor";

const TEXTS: &[SettingText] = &[
    ("reserve_tokens", "tokens", "what of the window stays free", SOURCE),
    ("keep_recent_tokens", "tokens", "the newest messages that stay, by the size of their JSON", SOURCE),
    ("bytes_per_token", "bytes", "what counts for a token when messages are sized", SOURCE),
    ("result_characters", "characters", "a longer tool result loses its middle", SOURCE),
    ("result_end_characters", "characters", "what stays of it at either end", SOURCE),
];

/// The policy.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    vec![PolicyInfo::new(
        "powercode",
        PolicyKind::Port,
        "powercode: a summary for all before a turn of the user, or long tool results without their middle",
        &Settings::default(),
        TEXTS,
        |_, settings| Ok(Box::new(Powercode::new(settings))),
    )]
}
