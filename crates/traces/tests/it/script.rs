//! Traces as a line an event, for expectations that can be read.

use std::path::Path;

use condenser::event::{ContentBlock, Event, EventKind, Outcome, Role};
use condenser::request::{Api, Request, validate};
use condenser::view::{Rules, View};
use condenser_traces::{Trace, read_path};
use serde_json::Value;

use crate::common::{check_trace, read};

/// Reads a file with these values, a value a line.
#[track_caller]
pub(crate) fn lines(values: &[Value]) -> Vec<Trace> {
    read(values.iter().map(|value| format!("{value}\n")).collect::<String>())
}

/// Checks the traces of a file that is one document: format, records, events, and valid requests at every length.
#[track_caller]
pub(crate) fn check(file: &Value, format: &str, records: u64, expected: &str) -> Vec<Trace> {
    check_traces(read(file.to_string()), format, records, expected)
}

/// As [`check`], of a folder with these files.
#[track_caller]
pub(crate) fn check_folder(files: &[(&str, Value)], format: &str, records: u64, expected: &str) -> Vec<Trace> {
    let root = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content.to_string()).unwrap();
    }
    let mut traces = read_path(root.path(), None).unwrap();
    for trace in &mut traces {
        trace.name = trace.name.replace(root.path().to_str().unwrap(), "folder");
    }
    check_traces(traces, format, records, expected)
}

#[track_caller]
pub(crate) fn check_traces(traces: Vec<Trace>, format: &str, records: u64, expected: &str) -> Vec<Trace> {
    let mut text = String::new();
    for trace in &traces {
        assert_eq!((trace.format, trace.records), (format, records));
        check_trace(trace);
        check_requests(trace);
        if traces.len() > 1 {
            text.push_str(&format!("== {}", Path::new(&trace.name).display()));
            text.extend(trace.parent.as_ref().map(|link| {
                let call = link.call_id.as_deref().map(|call| format!(" {call}")).unwrap_or_default();
                format!(" < {}{call}", link.to)
            }));
            text.push('\n');
        }
        text.push_str(&script(trace));
    }
    let tidy = |text: &str| text.trim().lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let (found, expected) = (tidy(&text), tidy(expected));
    assert!(found == expected, "found:\n{}\n\nexpected:\n{}", found.join("\n"), expected.join("\n"));
    traces
}

#[track_caller]
fn check_requests(trace: &Trace) {
    for length in 0..=trace.events.len() {
        let events = &trace.events[..length];
        let view = View::replay(events, Rules::Sound);
        let request = Request::build(&view, events);
        for api in Api::ALL {
            let violations = validate(api, &request.render(api));
            assert!(violations.is_empty(), "{length} events, {api}: {violations:?}");
        }
    }
}

/// What the last view shows, as event ids.
pub(crate) fn view_of(trace: &Trace) -> Vec<String> {
    View::replay(&trace.events, Rules::Sound).iter().map(|entry| entry.id().to_string()).collect()
}

fn script(trace: &Trace) -> String {
    let odd = trace.diagnostics.iter().map(|odd| format!("! {odd}\n"));
    trace.events.iter().map(line).chain(odd).collect()
}

fn line(event: &Event) -> String {
    let mut line = format!("{} ", event.id);
    match &event.kind {
        EventKind::SystemPrompt(prompt) => {
            line.push_str(&format!("system {}", text(&prompt.content)));
            if !prompt.tools.is_empty() {
                line.push_str(&format!(" +{} tools", prompt.tools.len()));
            }
        }
        EventKind::Message(message) => {
            let role = match message.role {
                Role::User => "user",
                Role::Assistant => "says",
                Role::System => "instructs",
                _ => "tells",
            };
            line.push_str(&format!("{role} {}", text(&message.content)));
            line.extend(message.reasoning.as_ref().map(|reasoning| format!(" thinks {reasoning:?}")));
            line.push_str(&response(message.response_id.as_deref(), event));
        }
        EventKind::Action(action) => {
            line.push_str(&format!("calls {} {} {}", action.call_id, action.tool_name, action.arguments));
            let thought: Vec<ContentBlock> = action.thinking.iter().chain(&action.thought).cloned().collect();
            if !thought.is_empty() {
                line.push_str(&format!(" after {}", text(&thought)));
            }
            line.extend(action.reasoning.as_ref().map(|reasoning| format!(" thinks {reasoning:?}")));
            line.push_str(&response(action.response_id.as_deref(), event));
        }
        EventKind::Observation(observation) => {
            let outcome = match observation.outcome {
                Outcome::Ok => "",
                Outcome::Rejected => " rejected",
                _ => " error",
            };
            line.push_str(&format!(
                "result {} {}{outcome} {}",
                observation.call_id,
                observation.tool_name,
                text(&observation.content)
            ));
        }
        EventKind::Condensation(record) => {
            let forgotten: Vec<&str> = record.forgotten_event_ids.iter().map(|id| id.as_str()).collect();
            let rewritten: Vec<&str> = record.rewrites.keys().map(|id| id.as_str()).collect();
            line.push_str("condenses");
            if !forgotten.is_empty() {
                line.push_str(&format!(" -{}", forgotten.join(",")));
            }
            if !rewritten.is_empty() {
                line.push_str(&format!(" ~{}", rewritten.join(",")));
            }
            line.extend(record.shown_summary().map(|(summary, offset)| format!(" {summary:?}@{offset}")));
        }
        EventKind::Unknown(unknown) => line.push_str(&format!("unknown {}", unknown.foreign_kind)),
        other => line.push_str(other.name()),
    }
    line.extend(event.usage.as_ref().map(|usage| {
        let counts = [usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens];
        let counts = counts.map(|count| count.map_or_else(|| "-".to_owned(), |count| count.to_string()));
        format!(" ${}", counts.join("/"))
    }));
    line.push('\n');
    line
}

/// The response, where it is not the event's own record.
fn response(id: Option<&str>, event: &Event) -> String {
    let record = event.origin.as_ref().map(|origin| origin.record.as_str());
    id.filter(|id| Some(*id) != record).map(|id| format!(" of {id}")).unwrap_or_default()
}

fn text(blocks: &[ContentBlock]) -> String {
    let block = |block: &ContentBlock| match block {
        ContentBlock::Text { text, .. } => format!("{text:?}"),
        ContentBlock::Image { urls, .. } => format!("image {}", urls.join(" ")),
        ContentBlock::Thinking { thinking, .. } => format!("({thinking})"),
        ContentBlock::RedactedThinking { data } => format!("(*{data})"),
        ContentBlock::Other { value } => value.to_string(),
        _ => String::new(),
    };
    if blocks.is_empty() { "nothing".to_owned() } else { blocks.iter().map(block).collect::<Vec<_>>().join(", ") }
}
