//! The arms as policies.

use std::collections::BTreeSet;

use condenser::event::EventKind;
use condenser::request::text_of;
use condenser::{Edit, EventId, Failure, NoPlan, Plan, Policy, Reason, Requirement, RewriteOp, State, SummaryRequest};

use super::peer::{self, Kind, Settings};
use crate::exact::python_lines;
use crate::layout::offset_behind;
use crate::registry::{OWN, PolicyInfo, PolicyKind, SettingText};
use crate::summarizing::{guidance, show, unfenced};
use crate::turns::{Turn, kind, turns};

const PROMPT: &str = include_str!("../../prompts/complexity-trap-v1.md");
const PROMPT_VERSION: &str = "complexity-trap-v1";

/// One arm of the study.
#[derive(Clone, Copy, Debug)]
pub struct ComplexityTrap {
    name: &'static str,
    settings: Settings,
}

impl ComplexityTrap {
    /// The arm with these settings, by the name that stands in its records.
    pub fn new(name: &'static str, settings: Settings) -> Self {
        Self { name, settings }
    }

    /// Masks to put on, and the turns to fold, as positions in the view.
    fn select(&self, state: &State<'_>) -> (Edit, Vec<usize>) {
        let turns = turns(state);
        let kinds: Vec<Kind> = turns
            .iter()
            .map(|turn| match turn {
                Turn::Answer(_) => Kind::Answer,
                Turn::Result(_) => Kind::Result,
                Turn::Summary(_) => Kind::Summary,
                Turn::System(_) | Turn::User(_) => Kind::Other,
            })
            .collect();
        // What the system says is none of a turn.
        let is_turn = |at: &usize| !matches!(turns[*at], Turn::System(_));
        let folded = peer::folded(&kinds, &self.settings).into_iter().filter(is_turn);
        let folded: Vec<usize> = folded.flat_map(|at| turns[at].members().iter().copied()).collect();
        let mut edit = Edit::default();
        let gone: BTreeSet<usize> = folded.iter().copied().collect();
        for at in peer::masked(&kinds, &self.settings) {
            let Turn::Result(index) = &turns[at] else { continue };
            let (Some(entry), Some(event)) = (state.view.get(*index), state.event(*index)) else { continue };
            if entry.rewrite().is_none() && !gone.contains(index) && matches!(event.kind, EventKind::Observation(_)) {
                let text = peer::mask(python_lines(&text_of(&event.kind)).count());
                edit.rewrites.insert(entry.id().clone(), RewriteOp::Clear { text }.into());
            }
        }
        (edit, folded)
    }
}

impl Policy for ComplexityTrap {
    fn name(&self) -> &str {
        self.name
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        let (edit, folded) = self.select(state);
        if edit.is_empty() && folded.is_empty() { Requirement::None } else { Requirement::Soft(vec![Reason::Policy]) }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let (mut edit, folded) = self.select(state);
        let entries = || folded.iter().filter_map(|&index| state.view.get(index));
        match tried {
            [] if !folded.is_empty() => {}
            [] | [Failure::Summarizer(_)] if !edit.is_empty() => return Ok(Plan::Edit(edit)),
            [] => return Ok(Plan::Keep),
            _ => return Err(NoPlan::Exhausted),
        }
        let previous: Vec<&str> = entries().filter_map(|entry| entry.summary()).collect();
        let event = |entry: condenser::Entry<'_>| -> Option<(EventId, String)> {
            let kind = kind(state, entry.index())?;
            Some((entry.id().clone(), show(&kind, entry.id(), false, usize::MAX / 2)))
        };
        let events: Vec<(EventId, String)> = entries().filter_map(event).collect();
        if events.is_empty() {
            return Err(NoPlan::NoLegalCut);
        }
        edit.forget = entries().map(|entry| entry.id().clone()).collect();
        let request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            events,
            previous: (!previous.is_empty()).then(|| unfenced(previous.join("\n\n"))),
            guidance: guidance(state),
            prompt_version: PROMPT_VERSION.to_owned(),
            ..SummaryRequest::default()
        };
        Ok(Plan::Summarize { offset: offset_behind(state, &edit.forget), edit, request })
    }

    fn is_port(&self) -> bool {
        true
    }
}

const SOURCE: &str = "arXiv 2508.21433";

fn info(name: &'static str, description: &'static str, settings: Settings, folded_source: &'static str) -> PolicyInfo {
    let texts: [SettingText; 3] = [
        ("raw_turns", "turns", "the newest turns that stay as they are", SOURCE),
        ("masks", "switch", "whether results of older turns give way to a line", SOURCE),
        ("folded_turns", "turns", "how many before those are summarized at once; null is none", folded_source),
    ];
    PolicyInfo::new(name, PolicyKind::Port, description, &settings, &texts, |name, settings| {
        Ok(Box::new(ComplexityTrap::new(name, settings)))
    })
}

/// The three arms.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    vec![
        info(
            "complexity-trap-masking",
            "the study's masking: results of all but the newest ten turns go",
            Settings::MASKING,
            SOURCE,
        ),
        info(
            "complexity-trap-summary",
            "its summaries: 21 turns at a time, the newest ten stay",
            Settings::SUMMARY,
            SOURCE,
        ),
        info(
            "complexity-trap-hybrid",
            "its hybrid: masks, and summaries late and of more turns",
            Settings::HYBRID,
            OWN,
        ),
    ]
}
