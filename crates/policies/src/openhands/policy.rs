//! The peer as a policy.

use std::fmt;
use std::sync::Arc;

use condenser::lower::openhands::ChatMessage;
use condenser::{Failure, NoPlan, Plan, Policy, Requirement, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::adapter::Adapter;
use super::peer::{self, CondenseError, Condenser, Decision, Settings};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};

/// Settings of [`OpenHands`]: the peer's, and how an event is printed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenHandsSettings {
    /// The peer's own.
    #[serde(flatten)]
    pub peer: Settings,
    /// Characters of an event that the summarizer is shown.
    pub event_preview: usize,
}

impl Default for OpenHandsSettings {
    fn default() -> Self {
        Self { peer: Settings::default(), event_preview: 500 }
    }
}

/// Counts the peer's own messages, where a host has its counter.
pub trait MessageCounter: Send + Sync {
    /// Tokens of messages and tools.
    fn tokens(&self, messages: &[ChatMessage], tools: &[Value]) -> i64;
}

/// The summarizing condenser of the OpenHands SDK.
#[derive(Clone)]
pub struct OpenHands {
    name: &'static str,
    settings: OpenHandsSettings,
    counter: Option<Arc<dyn MessageCounter>>,
}

impl fmt::Debug for OpenHands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenHands").field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl OpenHands {
    /// The policy with these settings, as `openhands`.
    ///
    /// # Errors
    /// What is wrong with settings that the original refuses.
    pub fn new(settings: OpenHandsSettings) -> Result<Self, peer::SettingsError> {
        Self::named("openhands", settings)
    }

    fn named(name: &'static str, settings: OpenHandsSettings) -> Result<Self, peer::SettingsError> {
        settings.peer.check()?;
        Ok(Self { name, settings, counter: None })
    }

    /// Counts the peer's own messages with this instead of sizing the request.
    #[must_use]
    pub fn with_counter(self, counter: Arc<dyn MessageCounter>) -> Self {
        Self { counter: Some(counter), ..self }
    }

    fn adapter<'s, 'a>(&'s self, state: &'s State<'a>, n_failed: usize) -> Adapter<'s, 'a> {
        Adapter::new(state, &self.settings, self.counter.as_deref(), n_failed)
    }
}

impl Policy for OpenHands {
    fn name(&self) -> &str {
        self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        // Where the peer cannot make messages and so crashes, it does not act.
        peer::requirement(&self.settings.peer, state.view, &self.adapter(state, 0)).unwrap_or_default()
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let mut adapter = self.adapter(state, tried.len());
        match Condenser::LlmSummarizing(self.settings.peer).condense(state.view, &mut adapter) {
            Ok(Decision::Keep) => Ok(Plan::Keep),
            Ok(Decision::Condense(record)) => {
                Ok(adapter.plan(record.forgotten_event_ids, record.summary_offset.unwrap_or_default()))
            }
            Err(CondenseError::NotAvailable) if !tried.is_empty() => Err(NoPlan::Exhausted),
            Err(_) => Err(NoPlan::NoLegalCut),
        }
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "OpenHands SDK 1.58.2";

const TEXTS: &[SettingText] = &[
    ("max_size", "events", "a longer view is condensed", SOURCE),
    ("max_tokens", "tokens", "a larger request is condensed, beside the budget's limit; null is that alone", SOURCE),
    ("keep_first", "events", "the first events that stay", SOURCE),
    ("minimum_progress", "share of the events", "nothing is condensed for less", SOURCE),
    ("hard_context_reset_max_retries", "calls", "the most calls for a hard reset", SOURCE),
    ("hard_context_reset_context_scaling", "factor", "what each failed call leaves of the longest text", SOURCE),
    ("event_preview", "characters", "the most of one event that the summarizer is shown", SOURCE),
];

/// `openhands` and its presets.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    let default = OpenHandsSettings::default();
    let agent = OpenHandsSettings { peer: Settings { max_size: 80, keep_first: 4, ..default.peer }, ..default };
    let entry = |name, description, settings: OpenHandsSettings| {
        PolicyInfo::new(name, PolicyKind::Port, description, &settings, TEXTS, |name, settings| {
            Ok(Box::new(OpenHands::named(name, settings).map_err(|error| error.to_string())?))
        })
    };
    vec![
        entry("openhands", "OpenHands SDK: a summary for the middle, or for everything where it must", default),
        entry("openhands-agent", "the same with the settings of the SDK's stock agent", agent),
    ]
}
