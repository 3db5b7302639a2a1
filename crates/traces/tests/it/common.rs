//! What the tests share.

use std::path::{Path, PathBuf};

use condenser::Event;
use condenser_traces::{Document, Trace, read_document};

/// The folder of recorded traces and cases, or `None`, with a printed reason, where it is absent.
pub(crate) fn shared(sub: &str) -> Option<PathBuf> {
    let root = std::env::var_os("CONDENSER_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let path = root.join(sub);
    if !path.exists() {
        println!("skipped: {} is not there; set CONDENSER_SHARED", path.display());
        return None;
    }
    Some(path)
}

/// The traces of a file with this content.
#[track_caller]
pub(crate) fn read(content: impl AsRef<[u8]>) -> Vec<Trace> {
    try_read(content).unwrap_or_else(|error| panic!("{error}"))
}

/// The only trace of a file with this content.
#[track_caller]
pub(crate) fn read_one(content: impl AsRef<[u8]>) -> Trace {
    let mut traces = read(content);
    assert_eq!(traces.len(), 1);
    traces.remove(0)
}

pub(crate) fn try_read(content: impl AsRef<[u8]>) -> Result<Vec<Trace>, condenser_traces::ReadError> {
    let document = Document::from_bytes(Path::new("t.json"), content.as_ref().to_vec())?;
    read_document(document, None)
}

/// The diagnostics of a trace as lines.
pub(crate) fn diagnostics(trace: &Trace) -> Vec<String> {
    trace.diagnostics.iter().map(ToString::to_string).collect()
}

/// An event as `id kind`, for short expectations.
pub(crate) fn outline(trace: &Trace) -> Vec<String> {
    trace.events.iter().map(|event| format!("{} {}", event.id, event.kind.name())).collect()
}

/// The events as their own JSON.
pub(crate) fn json_of(trace: &Trace) -> Vec<serde_json::Value> {
    trace.events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
}

/// What every trace promises: unique ids, and events that survive their own JSON.
#[track_caller]
pub(crate) fn check_trace(trace: &Trace) {
    let mut ids = std::collections::HashSet::new();
    for event in &trace.events {
        assert!(ids.insert(event.id.clone()), "{}: {} occurs twice", trace.name, event.id);
        let json = serde_json::to_string(event).unwrap();
        let back: Event = serde_json::from_str(&json).unwrap();
        assert_eq!(*event, back, "{}: {}", trace.name, event.id);
    }
}
