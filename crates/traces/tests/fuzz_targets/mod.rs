//! What is fuzzed. The fuzz crate feeds these functions with made-up inputs, the tests with kept ones.

use std::collections::HashSet;
use std::path::Path;

use condenser::request::{Api, validate};
use condenser::{Event, Request, Rules, View};
use condenser_traces::{Document, Reader, Trace, format, read_document};

/// A function a reader, which is given a file of its format, whatever the file holds.
macro_rules! targets {
    ($($target:ident => $format:literal,)*) => {
        $(pub(crate) fn $target(data: &[u8]) {
            check($format, data);
        })*

        /// The targets by name, with the formats they read.
        pub(crate) const ALL: &[(&str, &str, fn(&[u8]))] = &[$((stringify!($target), $format, $target),)*];
    };
}

targets! {
    anthropic => "anthropic",
    atif => "atif",
    claude_code => "claude-code",
    cline => "cline",
    codex => "codex",
    gemini => "gemini-cli",
    inspect => "inspect",
    langchain => "langchain",
    mini_swe_agent => "mini-swe-agent",
    openai_chat => "openai-chat",
    opencode => "opencode",
    openhands_v0 => "openhands-v0",
    openhands_v1 => "openhands-v1",
    otel => "otel-genai",
    pi => "pi",
    responses => "openai-responses",
    swe_agent => "swe-agent",
}

fn check(name: &str, data: &[u8]) {
    let Ok(document) = Document::from_bytes(Path::new("fuzz.json"), data.to_vec()) else { return };
    if let Ok(traces) = read_document(document, Some(format(name).unwrap())) {
        traces.iter().for_each(check_trace);
    }
}

/// A file of any format, packed or not: read record by record it gives the events that it gives when read whole.
pub(crate) fn stream(data: &[u8]) {
    let Ok(reader) = Reader::of_stream(Path::new("fuzz.json"), data, None) else { return };
    let format = reader.format();
    let Ok(traces) = reader.into_traces() else { return };
    traces.iter().for_each(check_trace);
    let Ok(document) = Document::from_bytes(Path::new("fuzz.json"), data.to_vec()) else { return };
    let whole = read_document(document, condenser_traces::format(format).ok()).unwrap();
    assert!(whole.iter().map(|trace| &trace.events).eq(traces.iter().map(|trace| &trace.events)));
}

/// What is read has ids that are unique, survives its own JSON, and lowers to valid requests.
fn check_trace(trace: &Trace) {
    let mut ids = HashSet::new();
    for event in &trace.events {
        assert!(ids.insert(&event.id), "{} occurs twice", event.id);
        let written = serde_json::to_string(event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&written).unwrap(), *event);
    }
    for rules in [Rules::Sound, Rules::OpenHands] {
        let view = View::replay(&trace.events, rules);
        let request = Request::build(&view, &trace.events);
        for api in Api::ALL {
            let json = request.render(api);
            assert_eq!(validate(api, &json), vec![], "{api}: {json}");
        }
    }
}
