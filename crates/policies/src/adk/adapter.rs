//! A log as the events of a session: stored events, and the summaries that the view shows as compactions.

use std::collections::HashMap;

use condenser::event::{EventKind, Role};
use condenser::{EventId, State};
use serde_json::{Value, json};

/// Events, and what each is: a position in the log, or in the view where it is a summary.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) events: Vec<Value>,
    pub(super) places: Vec<usize>,
}

impl Session {
    /// `up_to`: the position in the log where the running invocation begins, if it is not to be part of it.
    pub(super) fn new(state: &State<'_>, up_to: Option<usize>) -> Self {
        let mut session = Self::default();
        let mut invocation = 0;
        let mut seqs: HashMap<&EventId, usize> = HashMap::new();
        for seq in 0..up_to.unwrap_or(state.view.n_pushed()) {
            let Some(event) = state.bodies.event(seq) else { continue };
            let part = match &event.kind {
                EventKind::Message(message) if message.role == Role::System => continue,
                EventKind::Message(message) => {
                    invocation += usize::from(message.role == Role::User);
                    json!({"text": ""})
                }
                EventKind::Action(action) => json!({"function_call": {"id": action.call_id}}),
                EventKind::Observation(observation) => json!({"function_response": {"id": observation.call_id}}),
                _ => continue,
            };
            seqs.insert(&event.id, seq);
            session.events.push(json!({
                "invocation_id": format!("i{invocation}"), "timestamp": seq, "content": {"parts": [part]},
            }));
            session.places.push(seq);
        }
        for entry in state.view.iter().filter(|entry| entry.is_summary()) {
            let record = state.bodies.event(entry.seq()).map(|event| &event.kind);
            let Some(EventKind::Condensation(record)) = record else { continue };
            let covered = record.forgotten_event_ids.iter().filter_map(|id| seqs.get(id));
            let (start, end) = (covered.clone().min(), covered.max());
            let range = json!({"start_timestamp": start, "end_timestamp": end});
            session.events.push(json!({"timestamp": entry.seq(), "actions": {"compaction": range}}));
            session.places.push(entry.index());
        }
        session
    }
}
