//! LangChain's `ClearToolUsesEdit`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Counter;
use super::message::{call_id, calls, is_assistant, is_tool};

/// When and what to clear.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clearing {
    /// A longer list is cleared, in tokens.
    pub trigger: u64,
    /// Once so many tokens are saved it stops; 0 clears every candidate.
    pub clear_at_least: u64,
    /// The newest results that stay.
    pub keep: usize,
    /// Whether the arguments of the calls go too.
    pub clear_tool_inputs: bool,
    /// Tools whose results stay. They count for `keep` all the same.
    pub exclude_tools: Vec<String>,
    /// What stands for a result.
    pub placeholder: String,
}

impl Default for Clearing {
    fn default() -> Self {
        Self {
            trigger: 100_000,
            clear_at_least: 0,
            keep: 3,
            clear_tool_inputs: false,
            exclude_tools: Vec::new(),
            placeholder: "[cleared]".to_owned(),
        }
    }
}

/// What was cleared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cleared {
    /// The list afterwards.
    pub messages: Vec<Value>,
    /// The results, by position.
    pub results: Vec<usize>,
    /// The calls whose arguments went, by the position of their message.
    pub inputs: BTreeMap<usize, Vec<String>>,
}

/// The mark of a result that is cleared.
fn is_cleared(message: &Value) -> bool {
    message["response_metadata"]["context_editing"]["cleared"] == true
}

/// Marks a result as cleared.
pub fn mark_cleared(message: &mut Value) {
    message["response_metadata"]["context_editing"] = json!({"cleared": true, "strategy": "clear_tool_uses"});
}

/// Clears old results where a list of so many tokens is too long.
pub fn clear(messages: &[Value], tokens: u64, settings: &Clearing, counter: &dyn Counter) -> Cleared {
    let mut cleared = Cleared { messages: messages.to_vec(), ..Cleared::default() };
    if tokens <= settings.trigger {
        return cleared;
    }
    let results: Vec<usize> = (0..messages.len()).filter(|&at| is_tool(&messages[at])).collect();
    for &at in &results[..results.len().saturating_sub(settings.keep)] {
        if is_cleared(&messages[at]) {
            continue;
        }
        // The nearest answer before, and no other.
        let Some(answer) = messages[..at].iter().rposition(is_assistant) else { continue };
        let id = call_id(&messages[at]);
        let Some(number) = calls(&messages[answer]).position(|call| call.id() == id) else { continue };
        let name = calls(&messages[answer]).nth(number).map(|call| call.name()).unwrap_or_default();
        let name = messages[at]["name"].as_str().filter(|name| !name.is_empty()).unwrap_or(name);
        if settings.exclude_tools.iter().any(|tool| tool == name) {
            continue;
        }
        cleared.messages[at]["content"] = json!(settings.placeholder);
        mark_cleared(&mut cleared.messages[at]);
        cleared.results.push(at);
        if settings.clear_tool_inputs {
            cleared.messages[answer]["tool_calls"][number]["function"]["arguments"] = json!("{}");
            cleared.inputs.entry(answer).or_default().push(id.to_owned());
        }
        if settings.clear_at_least > 0 {
            let left = counter.tokens(&cleared.messages);
            if tokens.saturating_sub(left) >= settings.clear_at_least {
                break;
            }
        }
    }
    cleared
}
