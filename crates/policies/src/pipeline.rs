//! Pipelines: several policies in order, as one.
//!
//! Each member sees the view that the ones before it leave. What they would change is put together into one record, so
//! that a member which acts at every step keeps none behind it from acting. The first member that writes a summary, or
//! asks for one, is the last that is asked.

use std::sync::Arc;

use condenser::condenser::digest;
use condenser::event::{CondensationRequest, EventKind, Source};
use condenser::{Condensation, Edit, Event, EventId, Failure, NoPlan, Plan, Policy, Requirement, State, View};

/// Policies in order, as one.
pub struct Pipeline {
    name: String,
    members: Vec<Arc<dyn Policy>>,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let members: Vec<&str> = self.members.iter().map(|member| member.name()).collect();
        f.debug_struct("Pipeline").field("name", &self.name).field("members", &members).finish()
    }
}

impl Pipeline {
    /// A pipeline with a name of its own. Without members it never acts.
    pub fn new(name: impl Into<String>, members: Vec<Arc<dyn Policy>>) -> Self {
        Self { name: name.into(), members }
    }
}

impl Policy for Pipeline {
    fn name(&self) -> &str {
        &self.name
    }

    /// What the members want on the view as it is; hard if any must act.
    fn requirement(&self, state: &State<'_>) -> Requirement {
        let all: Vec<Requirement> = self.members.iter().map(|member| member.requirement(state)).collect();
        let mut reasons: Vec<_> = all.iter().flat_map(|requirement| requirement.reasons()).copied().collect();
        reasons.sort_unstable();
        reasons.dedup();
        match (all.iter().any(Requirement::is_hard), reasons.is_empty()) {
            (true, _) => Requirement::Hard(reasons),
            (false, false) => Requirement::Soft(reasons),
            (false, true) => Requirement::None,
        }
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let mut edit = Edit::default();
        let mut no_plan = None;
        for member in &self.members {
            let view = (!edit.is_empty()).then(|| preview(state, &edit));
            let after = view.as_ref().map(|view| {
                let mut after = State::with_budgets(view, state.bodies, state.sizer, state.budgets);
                (after.budget, after.recall) = (state.budget, state.recall);
                after
            });
            let state = after.as_ref().unwrap_or(state);
            if !member.requirement(state).is_some() {
                continue;
            }
            match plan_of(&**member, state, tried) {
                Ok(Plan::Keep) => {}
                Ok(Plan::Edit(next)) => {
                    let is_last = next.summary.is_some();
                    edit = joined(edit, next);
                    if is_last {
                        break;
                    }
                }
                Ok(Plan::Summarize { edit: next, offset, request }) => {
                    return Ok(Plan::Summarize { edit: joined(edit, next), offset, request });
                }
                Err(error) => no_plan = no_plan.or(Some(error)),
            }
        }
        match no_plan {
            _ if !edit.is_empty() => Ok(Plan::Edit(edit)),
            Some(error) => Err(error),
            None => Ok(Plan::Keep),
        }
    }

    /// Whether any member is a port: then edits are made legal instead of refused.
    /// Of the members in order; none where one has none.
    fn config_digest(&self) -> Option<String> {
        self.members.iter().map(|member| member.config_digest()).collect::<Option<Vec<_>>>().map(digest)
    }

    fn is_port(&self) -> bool {
        self.members.iter().any(|member| member.is_port())
    }
}

/// The plan of one member. One that asks for no summary is not told of a summarizer that failed, which was another's.
fn plan_of(member: &dyn Policy, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
    let first = member.plan(state, &[]);
    if tried.is_empty() || !matches!(first, Ok(Plan::Summarize { .. } | Plan::Edit(_))) {
        return first;
    }
    let own: Vec<Failure> = match first {
        Ok(Plan::Edit(_)) => tried.iter().filter(|it| !matches!(it, Failure::Summarizer(_))).cloned().collect(),
        _ => tried.to_vec(),
    };
    if own.is_empty() { first } else { member.plan(state, &own) }
}

/// The view after an edit, a pending request still pending.
fn preview(state: &State<'_>, edit: &Edit) -> View {
    let record = Condensation {
        forgotten_event_ids: edit.forget.clone(),
        rewrites: edit.rewrites.clone(),
        ..Condensation::default()
    };
    let mut view = state.view.preview(&EventId::new("pipeline"), &record);
    if state.view.has_unhandled_request() {
        let kind = EventKind::CondensationRequest(CondensationRequest::default());
        view.push(&Event::new("pipeline-request", Source::Environment, kind));
    }
    view
}

fn joined(mut edit: Edit, next: Edit) -> Edit {
    edit.forget.extend(next.forget);
    edit.rewrites.extend(next.rewrites);
    edit.rewrites.retain(|id, _| !edit.forget.contains(id));
    edit.summary = next.summary.or(edit.summary);
    edit.fallback = next.fallback.or(edit.fallback);
    edit
}
