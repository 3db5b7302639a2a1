//! A host keeps its own event type and lets a view say which of its events the model is shown.
//!
//!     cargo run -p condenser --example host_events
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use condenser::{Class, Condensation, EventHeader, Rules, View};

/// The host's own history. No body is copied or converted.
enum HostEvent {
    Said { id: String, text: String },
    Called { id: String, call: String, turn: String, command: String },
    Returned { id: String, call: String, output: String },
    Shortened { id: String, record: Condensation },
}

impl EventHeader for HostEvent {
    fn id(&self) -> &str {
        match self {
            Self::Said { id, .. }
            | Self::Called { id, .. }
            | Self::Returned { id, .. }
            | Self::Shortened { id, .. } => id,
        }
    }

    fn class(&self) -> Class {
        match self {
            Self::Said { .. } => Class::Message,
            Self::Called { .. } => Class::Action,
            Self::Returned { .. } => Class::Observation,
            Self::Shortened { .. } => Class::Condensation,
        }
    }

    fn call_id(&self) -> Option<&str> {
        match self {
            Self::Called { call, .. } | Self::Returned { call, .. } => Some(call),
            _ => None,
        }
    }

    fn response_id(&self) -> Option<&str> {
        match self {
            Self::Called { turn, .. } => Some(turn),
            _ => None,
        }
    }

    fn condensation(&self) -> Option<&Condensation> {
        match self {
            Self::Shortened { record, .. } => Some(record),
            _ => None,
        }
    }
}

fn main() {
    let mut history = vec![
        HostEvent::Said { id: "1".into(), text: "Fix the build.".into() },
        HostEvent::Called { id: "2".into(), call: "c1".into(), turn: "t1".into(), command: "make".into() },
        HostEvent::Returned { id: "3".into(), call: "c1".into(), output: "error: missing ;".into() },
        HostEvent::Said { id: "4".into(), text: "A semicolon was missing.".into() },
    ];
    let mut view = View::replay(&history, Rules::Sound);
    // The call and its result leave together: there is no cut between them.
    let cuts: Vec<usize> = view.manipulation_indices().collect();
    assert_eq!(cuts, [0, 1, 3, 4]);

    let record = Condensation {
        forgotten_event_ids: ["2".into(), "3".into()].into(),
        summary: Some("The build failed for a missing semicolon.".into()),
        summary_offset: Some(1),
        ..Condensation::default()
    };
    history.push(HostEvent::Shortened { id: "5".into(), record });
    view.push(&history[4]);

    for entry in view.iter() {
        let text = entry.summary().unwrap_or_else(|| match &history[entry.seq()] {
            HostEvent::Said { text, .. } => text,
            HostEvent::Called { command, .. } => command,
            HostEvent::Returned { output, .. } => output,
            HostEvent::Shortened { .. } => "",
        });
        println!("{}: {text}", entry.id());
    }
}
