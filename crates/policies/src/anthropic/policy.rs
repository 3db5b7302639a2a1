//! The peer as a policy.

use condenser::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State};

use super::adapter;
use super::peer::{self, Settings};
use crate::registry::{PolicyInfo, PolicyKind, SettingText};
use crate::turns::size;

/// The edit `clear_tool_uses_20250919`.
#[derive(Clone, Debug, Default)]
pub struct ClearToolUses {
    settings: Settings,
}

impl ClearToolUses {
    /// The policy with these parameters.
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    fn edit(&self, state: &State<'_>) -> Option<Edit> {
        let (places, uses) = adapter::uses(state);
        let applied = peer::clear(&uses, size(state), &self.settings)?;
        Some(adapter::edit(state, &places, &applied))
    }
}

impl Policy for ClearToolUses {
    fn name(&self) -> &str {
        "anthropic-clear-tool-uses"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        match self.edit(state) {
            Some(_) => Requirement::Soft(vec![Reason::Policy]),
            None => Requirement::None,
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        match self.edit(state) {
            _ if !tried.is_empty() => Err(NoPlan::Exhausted),
            Some(edit) => Ok(Plan::Edit(edit)),
            None => Ok(Plan::Keep),
        }
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "Anthropic API, context editing";

const TEXTS: &[SettingText] = &[
    ("trigger_tokens", "tokens", "the size of the request above which it acts; null is off", SOURCE),
    ("trigger_tool_uses", "tool uses", "the number above which it acts; null is off", SOURCE),
    ("keep", "tool uses", "the newest that stay", SOURCE),
    ("clear_at_least", "tokens", "it does not act for fewer; null is off", SOURCE),
    ("exclude_tools", "names", "tools whose results are never cleared", SOURCE),
    ("clear_tool_inputs", "switch or names", "whether calls lose their arguments, or those of which tools", SOURCE),
];

/// The policy.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    vec![PolicyInfo::new(
        "anthropic-clear-tool-uses",
        PolicyKind::Port,
        "Anthropic's context editing: clears all tool results but the newest, above a size",
        &Settings::default(),
        TEXTS,
        |_, settings| Ok(Box::new(ClearToolUses::new(settings))),
    )]
}
