//! Random logs, damaged in every way a log can be, and short scripts for hand-made ones.

use std::collections::{BTreeMap, BTreeSet};

use condenser::event::{
    Action, CondensationRequest, ContentBlock, Message, Observation, Pin, Role, Source, SystemPrompt, Undo,
};
use condenser::{Condensation, Event, EventId, EventKind, Rewrite, RewriteOp};
use proptest::prelude::*;

/// One event of a log, as data. Ids are the position in the log unless a duplicate is wanted.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    System,
    User,
    Assistant,
    Action {
        call: u8,
        response: Option<u8>,
        thinking: bool,
    },
    Observation {
        call: u8,
        interim: bool,
    },
    Condensation {
        forget: Vec<u8>,
        rewrite: Vec<u8>,
        summary: Option<u8>,
    },
    Request,
    Pin(u8),
    Unpin(u8),
    Undo(u8),
    Noise,
    /// An answer or call with the id of an earlier event.
    Duplicate(u8),
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        1 => Just(Op::System),
        3 => Just(Op::User),
        2 => Just(Op::Assistant),
        10 => (0u8..8, proptest::option::weighted(0.8, 0u8..5), proptest::bool::weighted(0.25))
            .prop_map(|(call, response, thinking)| Op::Action { call, response, thinking }),
        10 => (0u8..8, proptest::bool::weighted(0.2)).prop_map(|(call, interim)| Op::Observation { call, interim }),
        2 => (
            proptest::collection::vec(0u8..60, 0..12),
            proptest::collection::vec(0u8..60, 0..4),
            proptest::option::of(0u8..12),
        )
            .prop_map(|(forget, rewrite, summary)| Op::Condensation { forget, rewrite, summary }),
        1 => Just(Op::Request),
        1 => (0u8..60).prop_map(Op::Pin),
        1 => (0u8..60).prop_map(Op::Unpin),
        1 => (0u8..60).prop_map(Op::Undo),
        1 => Just(Op::Noise),
        1 => (0u8..60).prop_map(Op::Duplicate),
    ]
}

pub(crate) fn ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 0..max)
}

/// The id that the event at a position has. Condensations of the past can be forgotten by their summaries.
fn named(position: u8) -> EventId {
    if position >= 50 { EventId::new(format!("e{}-summary", position - 50)) } else { id(position as usize) }
}

pub(crate) fn id(position: usize) -> EventId {
    EventId::new(format!("e{position}"))
}

pub(crate) fn log(ops: &[Op]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for (position, op) in ops.iter().enumerate() {
        let mut event_id = id(position);
        let kind = match op {
            Op::System => EventKind::SystemPrompt(SystemPrompt {
                content: vec![ContentBlock::text(format!("prompt {position}"))],
                ..SystemPrompt::default()
            }),
            Op::User => EventKind::Message(Message::text(Role::User, format!("user {position}"))),
            Op::Assistant => EventKind::Message(Message::text(Role::Assistant, format!("assistant {position}"))),
            Op::Action { call, response, thinking } => action(position, *call, *response, *thinking),
            Op::Observation { call, interim } => observation(position, *call, *interim),
            Op::Condensation { forget, rewrite, summary } => EventKind::Condensation(Condensation {
                forgotten_event_ids: forget.iter().map(|&position| named(position)).collect::<BTreeSet<_>>(),
                summary: summary.map(|_| format!("summary {position}")),
                summary_offset: summary.map(usize::from),
                rewrites: rewrite
                    .iter()
                    .map(|&position| (named(position), Rewrite::from(RewriteOp::Clear { text: "cleared".into() })))
                    .collect::<BTreeMap<_, _>>(),
                ..Condensation::default()
            }),
            Op::Request => EventKind::CondensationRequest(CondensationRequest::default()),
            Op::Pin(position) => EventKind::Pin(Pin { ids: vec![named(*position)] }),
            Op::Unpin(position) => EventKind::Unpin(Pin { ids: vec![named(*position)] }),
            Op::Undo(position) => EventKind::Undo(Undo { condensation: id(*position as usize) }),
            Op::Noise => EventKind::Unknown(condensation_noise()),
            Op::Duplicate(of) => match events.get(*of as usize) {
                Some(event) => {
                    event_id = event.id.clone();
                    event.kind.clone()
                }
                None => EventKind::Message(Message::text(Role::User, "")),
            },
        };
        events.push(Event::new(event_id, Source::Agent, kind));
    }
    events
}

fn condensation_noise() -> condenser::event::Unknown {
    condenser::event::Unknown { foreign_kind: "noise".into(), payload: serde_json::Value::Null }
}

fn action(position: usize, call: u8, response: Option<u8>, thinking: bool) -> EventKind {
    EventKind::Action(Action {
        call_id: format!("c{call}"),
        tool_name: "tool".into(),
        arguments: format!("{{\"n\": {position}}}"),
        thinking: if thinking {
            vec![ContentBlock::Thinking { thinking: "hm".into(), signature: None }]
        } else {
            Vec::new()
        },
        response_id: response.map(|response| format!("r{response}")),
        ..Action::default()
    })
}

fn observation(position: usize, call: u8, interim: bool) -> EventKind {
    EventKind::Observation(Observation {
        call_id: format!("c{call}"),
        tool_name: "tool".into(),
        content: vec![ContentBlock::text(format!("result {position}"))],
        interim,
        ..Observation::default()
    })
}
