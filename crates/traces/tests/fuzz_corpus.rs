//! The kept inputs of the fuzzers, through the function that is fuzzed, and each of their values exchanged.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failure is a panic, as fuzzers want it")]

mod fuzz_targets;

use condenser_traces::FORMATS;
use serde_json::{Value, json};

/// The kept inputs of a format.
fn kept(format: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/../../fixtures/fuzz/{}", env!("CARGO_MANIFEST_DIR"), format.replace('-', "_"));
    let Ok(files) = std::fs::read_dir(&folder) else { return Vec::new() };
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn kept_inputs_pass() {
    for format in FORMATS {
        let kept = kept(format.name);
        assert!(!kept.is_empty(), "{} has no kept inputs", format.name);
        kept.iter().for_each(|input| fuzz_targets::check(format.name, input));
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

#[test]
fn kept_inputs_pass_with_any_value_exchanged() {
    const MOST: usize = 400;
    let others = [json!(null), json!("text"), json!(7), json!([]), json!({}), json!([{"type": "text", "text": "x"}])];
    for format in FORMATS {
        for input in kept(format.name) {
            let Ok(text) = std::str::from_utf8(&input) else { continue };
            let stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
            let Ok(values) = stream.collect::<Result<Vec<_>, _>>() else { continue };
            let (mut values, mut found) = (Value::Array(values), Vec::new());
            pointers(&values, "", &mut found);
            for pointer in found.into_iter().take(MOST) {
                for other in &others {
                    let place = values.pointer_mut(&pointer).unwrap();
                    let stored = std::mem::replace(place, other.clone());
                    let lines: String = values.as_array().unwrap().iter().map(|value| format!("{value}\n")).collect();
                    fuzz_targets::check(format.name, lines.as_bytes());
                    *values.pointer_mut(&pointer).unwrap() = stored;
                }
            }
        }
    }
}
