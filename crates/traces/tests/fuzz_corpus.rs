//! The kept inputs of the fuzzers, through the functions that are fuzzed.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failure is a panic, as fuzzers want it")]

use condenser_traces::FORMATS;
use serde_json::{Value, json};

mod fuzz_targets;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = format!("{}/../../fixtures/fuzz/{target}", env!("CARGO_MANIFEST_DIR"));
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty(), "{folder} is empty");
    for file in files {
        println!("{}", file.display());
        run(&std::fs::read(file).unwrap());
    }
}

#[test]
fn kept_inputs_of_every_reader_pass() {
    fuzz_targets::ALL.iter().for_each(|(target, _, run)| replay(target, *run));
}

#[test]
fn kept_inputs_pass_record_by_record() {
    replay("stream", fuzz_targets::stream);
}

#[test]
fn every_reader_is_fuzzed() {
    let fuzzed: Vec<&str> = fuzz_targets::ALL.iter().map(|(_, format, _)| *format).collect();
    for format in FORMATS {
        assert!(fuzzed.contains(&format.name), "{}", format.name);
        let file = format!("{}/fuzz/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
        let manifest = std::fs::read_to_string(file).unwrap();
        assert!(fuzz_targets::ALL.iter().all(|(target, ..)| manifest.contains(&format!("name = \"{target}\""))));
    }
}

/// The pointers of all values inside of one.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut each = |key: &str, value: &Value| {
        let pointer = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        pointers(value, &pointer, found);
        found.push(pointer);
    };
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(at, item)| each(&at.to_string(), item)),
        Value::Object(map) => map.iter().for_each(|(key, value)| each(key, value)),
        _ => {}
    }
}

/// Inputs that were written by hand have the endings of their kind.
#[test]
fn inputs_written_by_hand_pass_with_any_value_exchanged() {
    let others = [json!(null), json!("text"), json!(7), json!([]), json!({}), json!([{"type": "text", "text": "x"}])];
    for (target, _, run) in fuzz_targets::ALL {
        let folder = format!("{}/../../fixtures/fuzz/{target}", env!("CARGO_MANIFEST_DIR"));
        for file in std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_none() {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let stream = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
            let mut values: Value = stream.map(Result::unwrap).collect();
            let mut found = Vec::new();
            pointers(&values, "", &mut found);
            for pointer in found {
                for other in &others {
                    let stored = std::mem::replace(values.pointer_mut(&pointer).unwrap(), other.clone());
                    let lines: String = values.as_array().unwrap().iter().map(|value| format!("{value}\n")).collect();
                    run(lines.as_bytes());
                    *values.pointer_mut(&pointer).unwrap() = stored;
                }
            }
        }
    }
}
