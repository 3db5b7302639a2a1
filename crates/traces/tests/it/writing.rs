//! What is read and written again.

use std::path::Path;

use crate::common::{check_trace, shared};
use condenser::EventKind;
use condenser_traces::openhands_v1::{Mode, parse_event};
use condenser_traces::{Document, Trace, WRITABLE, find, read_document, read_path, write};
use serde_json::Value;

/// The values of what was written, read again as a file.
/// What was written, read as what it was written as: texts alone are the same in several formats.
fn reread(values: &[Value], is_lines: bool, format: &str) -> Vec<Trace> {
    let lines: Vec<String> = values.iter().map(Value::to_string).collect();
    let text = if is_lines { lines.join("\n") } else { lines.concat() };
    let document = Document::from_bytes(Path::new("written"), text.into_bytes()).unwrap();
    read_document(document, Some(condenser_traces::format(format).unwrap())).unwrap()
}

/// The JSON values of a file or folder of events; the members of a list are values.
fn values(path: &Path) -> Vec<Value> {
    let files = if path.is_dir() {
        let mut files: Vec<_> = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.file_name().unwrap().to_str().unwrap().starts_with("event-"));
        files.sort();
        files
    } else {
        vec![path.to_owned()]
    };
    let records = files.iter().flat_map(|file| Document::open(file).unwrap().take_records());
    unwrapped(records.map(|record| record.value).collect())
}

fn unwrapped(values: Vec<Value>) -> Vec<Value> {
    match <[Value; 1]>::try_from(values) {
        Ok([Value::Array(items)]) => items,
        Ok([value]) => vec![value],
        Err(values) => values,
    }
}

/// What the order on disk means nothing for.
fn sorted_sets(mut value: Value) -> Value {
    if let Some(ids) = value.get_mut("forgotten_event_ids").and_then(Value::as_array_mut) {
        ids.sort_by_key(Value::to_string);
    }
    value
}

/// The first difference between two values, as a path.
fn difference(a: &Value, b: &Value, at: &str) -> Option<String> {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x.keys().chain(y.keys());
            let null = Value::Null;
            keys.into_iter().find_map(|key| match (x.get(key), y.get(key)) {
                (Some(a), Some(b)) => difference(a, b, &format!("{at}.{key}")),
                (a, b) => Some(format!("{at}.{key}: {} became {}", a.unwrap_or(&null), b.unwrap_or(&null))),
            })
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            (0..).zip(x.iter().zip(y)).find_map(|(n, (a, b))| difference(a, b, &format!("{at}[{n}]")))
        }
        _ if a == b => None,
        _ => Some(format!("{at}: {a} became {b}").chars().take(400).collect()),
    }
}

#[test]
fn recorded_files_are_written_as_they_were_read() {
    let Some(root) = shared("traces") else { return };
    let mut wrong = Vec::new();
    let mut n = 0;
    for folder in ["openhands-v1", "openai-chat", "pi", "atif"] {
        for candidate in find(&root.join(folder)).unwrap() {
            let path = &candidate.path;
            let traces = read_path(path, None).unwrap();
            let written = write(&traces, folder).unwrap();
            let folder_of_events = path.join("events");
            let stored = values(if folder_of_events.is_dir() { &folder_of_events } else { path });
            let again = unwrapped(written.values);
            n += 1;
            if stored.len() != again.len() {
                wrong.push(format!("{}: {} values became {}", path.display(), stored.len(), again.len()));
            }
            for (at, (a, b)) in stored.into_iter().zip(again).enumerate() {
                if let Some(difference) = difference(&sorted_sets(a), &sorted_sets(b), "") {
                    wrong.push(format!("{} value {at}{difference}", path.display()));
                    break;
                }
            }
        }
    }
    println!("{n} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every recorded conversation in every format, and read back: as many calls as before.
#[test]
fn recorded_conversations_can_be_said_in_every_format() {
    let Some(root) = shared("traces") else { return };
    let count = |trace: &Trace| trace.events.iter().filter(|event| matches!(event.kind, EventKind::Action(_))).count();
    for candidate in find(&root).unwrap() {
        // The index is no trace.
        for trace in read_path(&candidate.path, None).unwrap_or_default() {
            if !trace.events.iter().any(|event| event.kind.is_shown()) {
                continue;
            }
            for format in WRITABLE {
                let name = format!("{} as {format}", trace.name);
                let written = write(std::slice::from_ref(&trace), format).unwrap();
                let again = reread(&written.values, written.is_lines, format);
                assert_eq!(again.len(), 1, "{name}");
                assert_eq!(again[0].format, format, "{name}");
                check_trace(&again[0]);
                if format == "openhands-v1" && trace.format != format {
                    for value in &written.values {
                        let event = parse_event(value.clone(), Mode::Strict).unwrap();
                        // The SDK's store finds no other again.
                        let is_hex = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
                        assert!(event.id.as_str().len() >= 8 && event.id.as_str().bytes().all(is_hex), "{name}");
                    }
                }
                assert_eq!(count(&again[0]), count(&trace), "{name}");
            }
        }
    }
}
