//! A view as chat messages are kept: the calls of one answer together, each result by itself.

use std::borrow::Cow;

use condenser::event::{ContentBlock, EventKind, Role};
use condenser::{Class, Shown, State};

/// One message of a chat, as positions in the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A system prompt or message.
    System(usize),
    /// What a user said, or the system around the agent in that place.
    User(usize),
    /// A summary.
    Summary(usize),
    /// One answer of the model: its texts and calls.
    Answer(Vec<usize>),
    /// The result of one call.
    Result(usize),
}

impl Turn {
    /// The positions, oldest first.
    pub(crate) fn members(&self) -> &[usize] {
        match self {
            Self::System(index) | Self::User(index) | Self::Summary(index) | Self::Result(index) => {
                std::slice::from_ref(index)
            }
            Self::Answer(indices) => indices,
        }
    }
}

/// The view as turns. Results between the calls of one answer come behind it. An entry whose body is missing is left
/// out.
pub(crate) fn turns(state: &State<'_>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    // The newest answer that may still grow, and its response.
    let mut open: Option<(usize, &str)> = None;
    for (index, entry) in state.view.iter().enumerate() {
        let turn = match state.event(index).map(|event| &event.kind) {
            None if entry.is_summary() => Turn::Summary(index),
            None => continue,
            Some(EventKind::Observation(_)) => {
                turns.push(Turn::Result(index));
                continue;
            }
            Some(EventKind::Message(message)) => match message.role {
                Role::Assistant => {
                    add_to_answer(&mut turns, &mut open, index, message.response_id.as_deref());
                    continue;
                }
                Role::Tool => Turn::Result(index),
                Role::System => Turn::System(index),
                _ => Turn::User(index),
            },
            Some(EventKind::Action(action)) => {
                add_to_answer(&mut turns, &mut open, index, action.response_id.as_deref());
                continue;
            }
            Some(_) => Turn::System(index),
        };
        open = None;
        turns.push(turn);
    }
    turns
}

fn add_to_answer<'r>(
    turns: &mut Vec<Turn>,
    open: &mut Option<(usize, &'r str)>,
    index: usize,
    response: Option<&'r str>,
) {
    if let Some((at, id)) = *open
        && response == Some(id)
        && let Some(Turn::Answer(members)) = turns.get_mut(at)
    {
        members.push(index);
        return;
    }
    *open = response.map(|id| (turns.len(), id));
    turns.push(Turn::Answer(vec![index]));
}

/// What an entry that is no summary is shown as.
pub(crate) fn kind<'a>(state: &State<'a>, index: usize) -> Option<Cow<'a, EventKind>> {
    match state.shown(index)? {
        Shown::Event(kind) => Some(kind),
        Shown::Summary(_) => None,
    }
}

/// The content of an entry, what the host appended included; of an action, what was said before the call.
pub(crate) fn content(kind: &EventKind) -> impl Iterator<Item = &ContentBlock> {
    let (own, appended): (&[ContentBlock], &[ContentBlock]) = match kind {
        EventKind::SystemPrompt(prompt) => (&prompt.content, &prompt.dynamic_context),
        EventKind::Message(message) => (&message.content, &message.extended_content),
        EventKind::Action(action) => (&action.thought, &[]),
        EventKind::Observation(observation) => (&observation.content, &observation.extended_content),
        _ => (&[], &[]),
    };
    own.iter().chain(appended)
}

/// All text of an entry without a separator; of a block kept verbatim, its JSON.
pub(crate) fn text(kind: &EventKind) -> String {
    let text = |block: &ContentBlock| match block {
        ContentBlock::Text { text, .. } => Some(text.clone()),
        ContentBlock::Other { value } => Some(value.to_string()),
        _ => None,
    };
    content(kind).filter_map(text).collect()
}

/// How many entries at the beginning of a view are system prompts.
pub(crate) fn n_prompts(state: &State<'_>) -> usize {
    state.view.iter().take_while(|entry| entry.class() == Class::SystemPrompt).count()
}

/// Whether a user spoke last, so that the next request begins an agent's run.
pub(crate) fn begins_run(turns: &[Turn]) -> bool {
    matches!(turns.last(), Some(Turn::User(_)))
}

/// Whether an answer came after the newest summary: before one, some peers take no size for true.
pub(crate) fn has_new_answer(state: &State<'_>, turns: &[Turn]) -> bool {
    let seq = |index: usize| state.view.get(index).map_or(0, |entry| entry.seq());
    let made = turns.iter().filter_map(|turn| match turn {
        Turn::Summary(index) => Some(seq(*index)),
        _ => None,
    });
    let made = made.max();
    turns.iter().any(|turn| matches!(turn, Turn::Answer(it) if made.is_none_or(|made| seq(it[0]) > made)))
}

/// The size that a peer takes for the next request: what the provider reported, else as counted.
pub(crate) fn size(state: &State<'_>) -> u64 {
    state.reported.unwrap_or_else(|| state.counted()).0
}

/// Who asked for the condensation that is not dealt with yet; empty where it does not say.
pub(crate) fn asked_by(state: &State<'_>) -> Option<String> {
    if !state.view.has_unhandled_request() {
        return None;
    }
    let asked = |seq: usize| match &state.bodies.event(seq)?.kind {
        EventKind::CondensationRequest(request) => Some(request.requested_by.clone().unwrap_or_default()),
        _ => None,
    };
    (0..state.view.n_pushed()).rev().find_map(asked)
}
