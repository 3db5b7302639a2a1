//! `langchain-clear-tool-uses`: LangChain's editing of the context as a policy.

use std::sync::Arc;

use condenser::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, RewriteOp, State};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::adapter::Chat;
use super::peer::{Approximate, Clearing, Counter, clear};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::turns::size;

/// Settings of [`ClearToolUses`]: the peer's, and its counter's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClearingSettings {
    /// The peer's.
    #[serde(flatten)]
    pub peer: Clearing,
    /// What counts for a token.
    pub characters_per_token: f64,
    /// What each message has of its own.
    pub message_tokens: u64,
    /// An image.
    pub image_tokens: u64,
}

impl Default for ClearingSettings {
    fn default() -> Self {
        let Approximate { characters_per_token, message_tokens, image_tokens, .. } = Approximate::default();
        Self { peer: Clearing::default(), characters_per_token, message_tokens, image_tokens }
    }
}

/// LangChain's clearing of old tool results.
#[derive(Clone)]
pub struct ClearToolUses {
    settings: ClearingSettings,
    counter: Arc<dyn Counter>,
}

impl std::fmt::Debug for ClearToolUses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClearToolUses").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl ClearToolUses {
    /// The policy with these settings.
    pub fn new(settings: ClearingSettings) -> Self {
        let counter = Approximate {
            characters_per_token: settings.characters_per_token,
            message_tokens: settings.message_tokens,
            image_tokens: settings.image_tokens,
            ..Approximate::default()
        };
        Self { settings, counter: Arc::new(counter) }
    }

    /// The policy with another counter for what is saved.
    #[must_use]
    pub fn with_counter(self, counter: Arc<dyn Counter>) -> Self {
        Self { counter, ..self }
    }

    fn edit(&self, state: &State<'_>) -> Edit {
        let mut edit = Edit::default();
        let mut chat = Chat::new(state);
        chat.mark_cleared(state, &self.settings.peer.placeholder);
        // What is saved is a difference, so that it does not matter who counted the whole.
        let estimate = self.counter.tokens(&chat.messages);
        let is_due = size(state) > self.settings.peer.trigger;
        let peer = Clearing { trigger: 0, ..self.settings.peer.clone() };
        if !is_due {
            return edit;
        }
        let cleared = clear(&chat.messages, estimate, &peer, &*self.counter);
        for &at in &cleared.results {
            for entry in chat.members(at).iter().filter_map(|&index| state.view.get(index)) {
                let text = peer.placeholder.clone();
                edit.rewrites.insert(entry.id().clone(), RewriteOp::Clear { text }.into());
            }
        }
        for (&at, calls) in &cleared.inputs {
            for id in chat.entries_of_calls(state, at, calls) {
                edit.rewrites.insert(id, RewriteOp::Arguments { text: json!({}).to_string() }.into());
            }
        }
        edit
    }
}

impl Policy for ClearToolUses {
    fn name(&self) -> &str {
        "langchain-clear-tool-uses"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if size(state) > self.settings.peer.trigger && !self.edit(state).is_empty() {
            Requirement::Soft(vec![Reason::Tokens])
        } else {
            Requirement::None
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let edit = self.edit(state);
        Ok(if edit.is_empty() { Plan::Keep } else { Plan::Edit(edit) })
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "LangChain 1.5.2";

const TEXTS: &[SettingText] = &[
    ("trigger", "tokens", "a larger request is cleared", SOURCE),
    ("clear_at_least", "tokens", "it stops once so many are saved; 0 clears every candidate", SOURCE),
    ("keep", "results", "the newest that stay", SOURCE),
    ("clear_tool_inputs", "switch", "whether the arguments of the calls go too", SOURCE),
    ("exclude_tools", "names", "tools whose results stay; they count for `keep`", SOURCE),
    ("placeholder", "text", "what stands for a result", SOURCE),
    ("characters_per_token", "characters", "what counts for a token of what is saved", SOURCE),
    ("message_tokens", "tokens", "what each message has of its own", SOURCE),
    ("image_tokens", "tokens", "an image", SOURCE),
];

pub(super) fn policies() -> Vec<PolicyInfo> {
    vec![PolicyInfo::new(
        "langchain-clear-tool-uses",
        PolicyKind::Port,
        "LangChain: clears all but the newest tool results of a large request",
        &ClearingSettings::default(),
        TEXTS,
        |_, settings| Ok(Box::new(ClearToolUses::new(settings))),
    )]
}
