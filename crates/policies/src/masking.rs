//! `observation-masking`: old results give way to a short placeholder; what the agent said and did stays.
//!
//! The edge between old and new moves every `polling` results: of `m` results in the view, the oldest
//! `floor(m / polling) × polling − attention_window` are old. A placeholder names the tool and the size of what it
//! replaces and, while recall is on, its address. Failed results are masked like others.
//!
//! Left alone: what any record rewrote before, so that the bytes at a position change once; pinned entries; results
//! that a later answer may replace; and whatever a placeholder would not make smaller.
//!
//! The window of 10 is the one that a study of SWE-agent on SWE-bench Verified settled on (arXiv 2508.21433): solve
//! rates like those of the full history at about half the cost. OpenHands' own defaults, 5 and 100, come without
//! figures.

use condenser::condensation::clip;
use condenser::event::{ContentBlock, EventKind, Observation};
use condenser::recall::address;
use condenser::{Class, Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, RewriteOp, State, Tokens};
use serde::{Deserialize, Serialize};

/// Settings of [`ObservationMasking`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaskingSettings {
    /// The newest results that stay as they are.
    pub attention_window: usize,
    /// The edge moves every so many results. 0 counts as 1.
    pub polling: usize,
    /// A smaller request is left alone. 0: off.
    pub minimum_tokens: Tokens,
    /// A request below this share of the limit is left alone, and so is any while the limit is unknown. 0: off.
    pub minimum_share: f64,
    /// Nothing is masked for a smaller gain than this many tokens. 0: off.
    pub minimum_saving: Tokens,
}

impl Default for MaskingSettings {
    fn default() -> Self {
        Self {
            attention_window: 10,
            polling: 1,
            minimum_tokens: Tokens::ZERO,
            minimum_share: 0.0,
            minimum_saving: Tokens::ZERO,
        }
    }
}

/// Replaces old results by placeholders.
#[derive(Clone, Copy, Debug, Default)]
pub struct ObservationMasking {
    settings: MaskingSettings,
}

impl ObservationMasking {
    /// The policy with these settings.
    pub fn new(settings: MaskingSettings) -> Self {
        Self { settings }
    }

    fn is_gated(&self, state: &State<'_>) -> bool {
        let MaskingSettings { minimum_tokens, minimum_share, .. } = self.settings;
        let floor = if minimum_share > 0.0 {
            match state.budget.limit() {
                Some(limit) => minimum_tokens.max(limit.share(minimum_share)),
                None => return true,
            }
        } else {
            minimum_tokens
        };
        floor > Tokens::ZERO && state.tokens() < floor
    }

    /// The masks to put on.
    pub(crate) fn edit(&self, state: &State<'_>) -> Edit {
        Edit::clone(&state.once(&self.settings, || self.masks(state)))
    }

    fn masks(&self, state: &State<'_>) -> Edit {
        let mut edit = Edit::default();
        let results: Vec<usize> =
            state.view.iter().filter(|e| e.class() == Class::Observation).map(|e| e.index()).collect();
        let polling = self.settings.polling.max(1);
        let n_old = (results.len() / polling * polling).saturating_sub(self.settings.attention_window);
        let old = results[..n_old].iter().filter_map(|&index| state.view.get(index));
        let mut saved = Tokens::ZERO;
        for entry in old.filter(|entry| entry.rewrite().is_none() && !entry.is_pinned()) {
            let Some(EventKind::Observation(observation)) = state.event(entry.index()).map(|event| &event.kind) else {
                continue;
            };
            if observation.interim {
                continue;
            }
            let mut placeholder = placeholder(observation);
            if state.recall {
                placeholder.push(' ');
                placeholder.push_str(&address(entry.id()));
            }
            placeholder.push(']');
            let gain = state.entry_tokens()[entry.index()] - state.sizer.text(&placeholder);
            if gain > Tokens::ZERO {
                saved += gain;
                edit.rewrites.insert(entry.id().clone(), RewriteOp::Clear { text: placeholder }.into());
            }
        }
        if saved < self.settings.minimum_saving { Edit::default() } else { edit }
    }
}

/// The placeholder without its end.
fn placeholder(observation: &Observation) -> String {
    let (mut n_characters, mut n_images) = (0, 0);
    for block in observation.content.iter().chain(&observation.extended_content) {
        match block {
            ContentBlock::Text { text, .. } => n_characters += text.chars().count(),
            ContentBlock::Image { urls, .. } => n_images += urls.len(),
            ContentBlock::Other { value } => n_characters += value.to_string().chars().count(),
            _ => {}
        }
    }
    let tool = observation.tool_name.split_whitespace().collect::<Vec<_>>().join(" ");
    let tool = clip(&tool, 48, 0).unwrap_or(tool);
    let tool = if tool.is_empty() { "tool" } else { &tool };
    let mut text = format!("[old {tool} result left out: {n_characters} characters");
    if n_images > 0 {
        text.push_str(&format!(", {n_images} images"));
    }
    text
}

impl Policy for ObservationMasking {
    fn name(&self) -> &str {
        "observation-masking"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if self.is_gated(state) || state.once(&self.settings, || self.masks(state)).is_empty() {
            Requirement::None
        } else {
            Requirement::Soft(vec![Reason::Policy])
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let edit = self.edit(state);
        Ok(if edit.is_empty() { Plan::Keep } else { Plan::Edit(edit) })
    }
}
