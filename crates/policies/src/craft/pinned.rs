//! What stays word for word, rebuilt from the log each time and never from an earlier view.

use std::collections::HashSet;

use condenser::event::{Event, EventKind, Role, Source};
use condenser::recall::address;
use condenser::request::text_of;
use condenser::{EventId, State, Tokens};

use super::TASK_SHARE;
use crate::layout;

/// What ends the part of the notes that is word for word.
pub(super) const END: &str = "[End of what was said]\n";

/// The pinned block: standing rules, the task, and what the user said after it, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedBlock {
    /// FNV-1a, 64 bits, of the ids and texts of all rules and messages, as 16 hexadecimal digits. It is the same as
    /// long as the log holds the same.
    pub digest: String,
    /// How many messages of the user the log holds.
    pub n_said: usize,
    /// The messages that stay word for word, in the order of the log.
    pub verbatim: Vec<EventId>,
    /// Those that are too much for that.
    pub(super) beyond: HashSet<EventId>,
}

/// Whether a user said it, and no host in the user's place.
fn is_said(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Message(message) if message.role == Role::User)
        && !matches!(event.source, Source::Environment | Source::Hook)
}

fn is_rule(event: &Event) -> bool {
    match &event.kind {
        EventKind::SystemPrompt(_) => true,
        EventKind::Message(message) => message.role == Role::System,
        _ => false,
    }
}

impl PinnedBlock {
    /// The block of a state. What stays of it fills at most `share` of the limit; the task may fill more.
    pub fn of(state: &State<'_>, share: f64) -> Self {
        let events = (0..state.view.n_pushed()).filter_map(|seq| state.bodies.event(seq));
        let (mut block, mut said, mut hash) = (Self::default(), Vec::new(), 0xcbf2_9ce4_8422_2325_u64);
        for event in events.filter(|event| is_said(event) || is_rule(event)) {
            let text = text_of(&event.kind);
            for byte in event.id.as_str().bytes().chain([0]).chain(text.bytes()).chain([0]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
            if is_said(event) {
                said.push((&event.id, state.sizer.text(&text)));
            }
        }
        block.digest = format!("{hash:016x}");
        block.n_said = said.len();
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let most = limit.map(|limit| limit.share(share));
        let mut used = Tokens::ZERO;
        let mut holds: HashSet<&EventId> = HashSet::new();
        if let Some((task, size)) = said.first()
            && limit.is_none_or(|limit| *size <= limit.share(TASK_SHARE))
        {
            holds.insert(task);
            used += *size;
        }
        // What is newest comes first; the first that is too much ends it, so that no earlier word outlives a later one.
        for (id, size) in said.iter().skip(1).rev() {
            used += *size;
            if most.is_some_and(|most| used > most) {
                break;
            }
            holds.insert(id);
        }
        for (id, _) in said {
            if holds.contains(id) {
                block.verbatim.push(id.clone());
            } else {
                block.beyond.insert(id.clone());
            }
        }
        block
    }

    /// Whether an entry stays because the user said it.
    pub fn holds(&self, id: &EventId) -> bool {
        self.verbatim.contains(id)
    }

    /// The messages that are to stay and are not in the view, as they are stored.
    pub(super) fn missing(&self, state: &State<'_>, stays: &HashSet<&EventId>) -> String {
        let missing = |event: &&Event| self.holds(&event.id) && !stays.contains(&event.id);
        let events = (0..state.view.n_pushed()).filter_map(|seq| state.bodies.event(seq)).filter(missing);
        let said: String = events
            .map(|event| {
                let at = if state.recall { format!(" {}", address(&event.id)) } else { String::new() };
                format!("[user]{at}\n{}\n", text_of(&event.kind))
            })
            .collect();
        if said.is_empty() { said } else { said + END }
    }
}
