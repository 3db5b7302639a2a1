//! Actions that read again what they had read before.

use condenser::event::{Event, EventKind, Outcome};
use hashbrown::HashMap;

use crate::effect::{Effect, Effects, Targets};
use crate::trace::{Presence, StepSpan};

/// A read whose result the agent had already seen in full, with no write to its target between.
#[derive(Debug)]
pub(crate) struct Reread {
    /// The earlier results, oldest first; never empty.
    pub(crate) results: Vec<usize>,
}

/// The re-reads of each step. Only final results without error count as seen, and only those of earlier steps that
/// stand in the step's request under `none`.
pub(crate) fn find(events: &[&Event], steps: &[StepSpan], presence: &Presence) -> Vec<Vec<Reread>> {
    let results = results(events);
    let step_of: HashMap<usize, usize> = steps
        .iter()
        .enumerate()
        .flat_map(|(step, span)| span.written.iter().map(move |&event| (event, step)))
        .collect();
    let mut found: Vec<Vec<Reread>> = steps.iter().map(|_| Vec::new()).collect();
    let mut effects = Effects::default();
    let mut reads: HashMap<String, (Targets, Vec<usize>)> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        let EventKind::Action(action) = &event.kind else { continue };
        match effects.of(&action.tool_name, &action.arguments) {
            Effect::Nothing => {}
            Effect::Unknown => reads.clear(),
            Effect::Write(written) => reads.retain(|_, (targets, _)| !targets.depends_on(&written)),
            Effect::Read { key, targets } => {
                let (_, earlier) = reads.entry(key).or_insert((targets, Vec::new()));
                if let Some(&step) = step_of.get(&index) {
                    let start = steps[step].events.start;
                    let results: Vec<usize> = earlier
                        .iter()
                        .copied()
                        .filter(|&result| result < start && presence.shows(result, step))
                        .collect();
                    if !results.is_empty() {
                        found[step].push(Reread { results });
                    }
                }
                earlier.extend(results.get(&index));
            }
        }
    }
    found
}

/// By action: its final result, where that is no error.
fn results(events: &[&Event]) -> HashMap<usize, usize> {
    let mut newest: HashMap<&str, usize> = HashMap::new();
    let mut final_results: HashMap<usize, usize> = HashMap::new();
    for (index, event) in events.iter().enumerate() {
        match &event.kind {
            EventKind::Action(action) => {
                newest.insert(&action.call_id, index);
            }
            EventKind::Observation(observation) if !observation.interim => {
                if let Some(&action) = newest.get(observation.call_id.as_str()) {
                    final_results.entry(action).or_insert(index);
                }
            }
            _ => {}
        }
    }
    final_results.retain(|_, result| {
        matches!(&events[*result].kind, EventKind::Observation(observation) if observation.outcome == Outcome::Ok)
    });
    final_results
}
