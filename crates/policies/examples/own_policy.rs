//! A policy of your own, listed beside the others: a result that repeats an earlier one gives way to a note.

use condenser::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State};
use condenser_policies::{OWN, PolicyInfo, PolicyKind};
use serde::{Deserialize, Serialize};

/// What can be set. Each field has a default and a line in [`info`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Shorter texts are left alone.
    pub(crate) minimum_characters: usize,
}

/// Replaces a result by a note where an older entry already shows the same text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRepeats(Settings);

impl NoRepeats {
    fn edit(&self, state: &State<'_>) -> Edit {
        let mut edit = Edit::default();
        let mut seen = std::collections::HashSet::new();
        for entry in state.view.iter().filter(|entry| entry.class() == condenser::Class::Observation) {
            let Some(text) = state.shown(entry.index()).map(|shown| shown.text()) else { continue };
            let is_long = text.chars().count() >= self.0.minimum_characters;
            if is_long && !seen.insert(text) && !entry.is_pinned() {
                let note = condenser::RewriteOp::Clear { text: "[the same as an earlier result]".into() };
                edit.rewrites.insert(entry.id().clone(), note.into());
            }
        }
        edit
    }
}

impl Policy for NoRepeats {
    fn name(&self) -> &str {
        "no-repeats"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        if self.edit(state).is_empty() { Requirement::None } else { Requirement::Soft(vec![Reason::Policy]) }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if tried.is_empty() { Ok(Plan::Edit(self.edit(state))) } else { Err(NoPlan::Exhausted) }
    }
}

/// Its line in a list of policies: what `configure`, files of policies and pipelines know it by.
pub(crate) fn info() -> PolicyInfo {
    PolicyInfo::new(
        "no-repeats",
        PolicyKind::Native,
        "leaves out results that repeat an earlier one",
        &Settings { minimum_characters: 200 },
        &[("minimum_characters", "characters", "shorter results are left alone", OWN)],
        |_, settings| Ok(Box::new(NoRepeats(settings))),
    )
}

/// Shows the settings, as `condenser policies show` does for the others.
#[allow(dead_code, clippy::print_stdout, reason = "an example prints; the test that includes it does not run this")]
fn main() {
    for setting in info().settings {
        println!("{} = {} ({})", setting.name, setting.default, setting.unit);
    }
}
