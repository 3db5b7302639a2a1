//! When to compact, and to what size.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Settings, is_assistant, is_user};
use crate::exact::{js_json_len, js_quoted_len};

/// Why it compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The request is large.
    Auto,
    /// Somebody asked.
    Manual,
    /// The provider refused the request as too long.
    OverflowRecovery,
}

impl Mode {
    /// The name that the result carries.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Auto => "auto_compaction",
            Self::Manual => "manual_compaction",
            Self::OverflowRecovery => "overflow_recovery_compaction",
        }
    }
}

/// What is known of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelInfo {
    /// The most tokens of a request.
    pub max_input: Option<u64>,
    /// The context window.
    pub window: Option<u64>,
    /// The most tokens of an answer.
    pub max_output: Option<u64>,
}

/// Sizes of the whole request, or of the messages alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// The size.
    pub input: u64,
    /// The size at which it compacts.
    pub trigger: f64,
    /// The size to come to.
    pub target: u64,
}

/// The sizes that a compaction goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Of the whole request.
    pub request: Side,
    /// Of the messages alone.
    pub messages: Side,
    /// The most tokens of a request.
    pub max_input: f64,
    /// What is in a request beside the messages.
    pub overhead: u64,
}

/// The most tokens of a request. Not always a whole number.
pub fn max_input(model: ModelInfo, settings: &Settings) -> f64 {
    let known = |tokens: Option<u64>| tokens.filter(|tokens| *tokens > 0);
    match (known(model.max_input), known(model.window)) {
        (Some(limit), window) => window.map_or(limit, |window| limit.min(window)) as f64,
        (None, Some(window)) => settings.window_share * window as f64,
        (None, None) => settings.default_max_input_tokens as f64,
    }
}

/// The size of a request by its whole JSON.
pub fn request_tokens(system: &str, messages: &[Value], tools: &Value, settings: &Settings) -> u64 {
    let lengths = messages.iter().map(js_json_len);
    request_of(js_quoted_len(system), lengths, js_json_len(tools), settings)
}

/// The same from the lengths of the JSON of its parts.
pub(in crate::cline) fn request_of(
    system: usize,
    messages: impl ExactSizeIterator<Item = usize>,
    tools: usize,
    settings: &Settings,
) -> u64 {
    const FRAME: &str = r#"{"systemPrompt":,"messages":[],"tools":}"#;
    let n_commas = messages.len().saturating_sub(1);
    settings.tokens_of(FRAME.len() + system + messages.sum::<usize>() + n_commas + tools)
}

/// The sizes of a compaction; `None` where there is no reason for one. `request` is the size of the whole request.
pub fn budget(
    messages: &[Value],
    request: u64,
    model: ModelInfo,
    mode: Mode,
    share: Option<f64>,
    settings: &Settings,
) -> Option<Budget> {
    budget_of(settings.total(messages), || n_pairs(messages), request, model, mode, share, settings)
}

/// The same with the size of the messages, and how often an answer follows what a user said.
pub(in crate::cline) fn budget_of(
    sum: u64,
    n_pairs: impl FnOnce() -> usize,
    request: u64,
    model: ModelInfo,
    mode: Mode,
    share: Option<f64>,
    settings: &Settings,
) -> Option<Budget> {
    let max_input = max_input(model, settings);
    let overhead = request.saturating_sub(sum);
    let trigger = settings.trigger_share * max_input;
    if mode == Mode::Auto && (request as f64) < trigger {
        return None;
    }
    let message_trigger = at_least_one(trigger - overhead as f64);
    let (request_target, message_target) = match mode {
        Mode::Auto => {
            let is_long = n_pairs() >= settings.long_turns
                && model.max_output.is_some_and(|output| output > 0 && (output as f64) < max_input);
            let target = if is_long { settings.long_target_share * max_input } else { settings.target_share * trigger };
            let target = target.floor().min(max_input).min(trigger - 1.0);
            let target = at_least_one(target);
            (target, at_least_one(target as f64 - overhead as f64))
        }
        Mode::Manual | Mode::OverflowRecovery => {
            let share = share.filter(|share| share.is_finite()).unwrap_or(settings.manual_target_share);
            let share = share.max(settings.least_manual_share).min(settings.most_manual_share);
            let target = at_least_one((message_trigger as f64).min(sum as f64 * share));
            (target + overhead, target)
        }
    };
    Some(Budget {
        request: Side { input: request, trigger, target: request_target },
        messages: Side { input: sum, trigger: message_trigger as f64, target: message_target },
        max_input,
        overhead,
    })
}

fn at_least_one(number: f64) -> u64 {
    number.floor().max(1.0) as u64
}

/// Answers with a message of the user since the one before.
pub(in crate::cline) fn n_pairs<'m>(messages: impl IntoIterator<Item = &'m Value>) -> usize {
    let (mut n, mut has_user) = (0, false);
    for message in messages {
        if is_user(message) {
            has_user = true;
        } else if is_assistant(message) && std::mem::take(&mut has_user) {
            n += 1;
        }
    }
    n
}
