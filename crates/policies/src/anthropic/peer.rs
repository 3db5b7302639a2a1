//! The documented rule.

use serde::{Deserialize, Serialize};

/// Which calls lose their arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Inputs {
    /// All or none.
    All(bool),
    /// Those of these tools.
    Of(Vec<String>),
}

/// The parameters of the edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The size of the request above which it acts.
    pub trigger_tokens: Option<u64>,
    /// The number of tool uses above which it acts.
    pub trigger_tool_uses: Option<usize>,
    /// The newest tool uses that stay.
    pub keep: usize,
    /// It does not act for fewer tokens.
    pub clear_at_least: Option<u64>,
    /// Tools whose results are never cleared.
    pub exclude_tools: Vec<String>,
    /// Which calls lose their arguments.
    pub clear_tool_inputs: Inputs,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            trigger_tokens: Some(100_000),
            trigger_tool_uses: None,
            keep: 3,
            clear_at_least: None,
            exclude_tools: Vec::new(),
            clear_tool_inputs: Inputs::All(false),
        }
    }
}

/// What stands for a result.
pub const CLEARED: &str = "[tool result cleared]";
/// What stands for arguments.
pub const NO_INPUT: &str = "{}";

/// A call with its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolUse {
    /// The tool.
    pub tool: String,
    /// What clearing the result frees.
    pub result_tokens: u64,
    /// What clearing the arguments frees.
    pub input_tokens: u64,
    /// Whether an earlier edit cleared it.
    pub is_cleared: bool,
}

/// What an edit does, in the API's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The uses whose results it clears, oldest first, and whether their arguments go too.
    pub cleared: Vec<(usize, bool)>,
    /// The tokens that frees.
    pub cleared_input_tokens: u64,
}

/// Whether a request of this size with so many tool uses is edited.
pub fn is_reached(input_tokens: u64, n_tool_uses: usize, settings: &Settings) -> bool {
    settings.trigger_tokens.is_some_and(|trigger| input_tokens > trigger)
        || settings.trigger_tool_uses.is_some_and(|trigger| n_tool_uses > trigger)
}

/// What to clear of a request. `None`: the edit is not applied.
pub fn clear(uses: &[ToolUse], input_tokens: u64, settings: &Settings) -> Option<Applied> {
    if !is_reached(input_tokens, uses.len(), settings) {
        return None;
    }
    let mut applied = Applied::default();
    // What stays is counted before exclusion.
    for (at, it) in uses.iter().enumerate().take(uses.len().saturating_sub(settings.keep)) {
        if it.is_cleared || settings.exclude_tools.contains(&it.tool) {
            continue;
        }
        let with_input = match &settings.clear_tool_inputs {
            Inputs::All(all) => *all,
            Inputs::Of(tools) => tools.contains(&it.tool),
        };
        applied.cleared.push((at, with_input));
        applied.cleared_input_tokens += it.result_tokens + if with_input { it.input_tokens } else { 0 };
    }
    let is_enough = settings.clear_at_least.is_none_or(|least| applied.cleared_input_tokens >= least);
    Some(applied).filter(|applied| !applied.cleared.is_empty() && is_enough)
}
