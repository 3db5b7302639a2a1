//! What is fuzzed. The fuzz crate feeds these functions with made-up inputs, the tests with kept ones.

use std::collections::HashSet;
use std::path::Path;

use condenser::request::{Api, validate};
use condenser::{Event, Request, Rules, View};
use condenser_traces::{Document, format, read_document};

/// What a format makes of a file has ids that are unique, survives its own JSON, and lowers to valid requests.
pub(crate) fn check(name: &str, data: &[u8]) {
    let Ok(document) = Document::from_bytes(Path::new("fuzz.json"), data.to_vec()) else { return };
    let Ok(traces) = read_document(document, Some(format(name).unwrap())) else { return };
    for trace in traces {
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
}
