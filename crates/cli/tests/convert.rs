//! `convert` and `traces stats` as a user runs them.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn condenser(arguments: &[&str], input: &[u8]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_condenser"));
    command.args(arguments).current_dir(root).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect()
}

const PI: &str = "fixtures/traces/tally-csv.pi.jsonl";

#[test]
fn a_file_in_its_own_format_comes_out_as_it_went_in() {
    let stored = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PI)).unwrap();
    let again = lines(&condenser(&["convert", PI, "--to", "pi"], b""));
    let stored: Vec<Value> = serde_json::Deserializer::from_slice(&stored).into_iter().map(Result::unwrap).collect();
    assert_eq!(again, stored);
}

#[test]
fn standard_input_is_converted_and_redacted() {
    let input = json!([
        {"role": "user", "content": "I am in /home/mireille/app"},
        {"role": "assistant", "content": "hello mireille"}
    ]);
    let arguments = ["convert", "-", "--to", "pi", "--redact"];
    let entries = lines(&condenser(&arguments, input.to_string().as_bytes()));
    assert_eq!(entries[0]["type"], "session");
    assert_eq!(entries[1]["message"]["content"][0]["text"], "I am in /home/user1/app");
    assert_eq!(entries[2]["message"]["content"][0]["text"], "hello user1");
}

#[test]
fn what_the_target_cannot_say_is_reported() {
    let output = condenser(&["convert", PI, "--to", "openai-chat"], b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("events of kind condensation, which openai-chat cannot say, left out: 1"), "{said}");
}

#[test]
fn each_trace_has_a_row_and_a_file_named_twice_is_read_once() {
    let rows = lines(&condenser(&["traces", "stats", PI, PI, "fixtures/traces/tally*", "--format", "jsonl"], b""));
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((&row["path"], &row["format"], &row["diagnostics"]), (&json!(PI), &json!("pi"), &json!(0)));
    let events = row["events"].as_object().unwrap();
    assert_eq!(events["action"], events["observation"]);
    assert_eq!(row["condensations"], events["condensation"]);
    assert!(row["responses"].as_u64() > Some(10) && row["input_tokens"].as_u64() > Some(1000));

    let counted = |tokenizer| {
        let arguments = ["traces", "stats", PI, "--tokenizer", tokenizer, "--format", "jsonl"];
        lines(&condenser(&arguments, b""))[0]["counted_tokens"].as_u64().unwrap()
    };
    assert!(row.get("counted_tokens").is_none());
    assert!(counted("o200k") > 1000 && counted("bytes/4") > 1000);
    assert_ne!(counted("o200k"), counted("bytes/4"));
    assert_eq!(condenser(&["traces", "stats", PI, "--tokenizer", "guess"], b"").status.code(), Some(2));

    let table = condenser(&["traces", "stats", "fixtures/traces"], b"");
    assert_eq!(String::from_utf8_lossy(&table.stdout).lines().count(), 7);
}

#[test]
fn diagnostics_fail_under_strict() {
    let odd = "fixtures/oddities/torn-last-line.pi.jsonl";
    let run = |strict: &[&str]| condenser(&[&["traces", "stats", odd], strict].concat(), b"").status.code();
    assert_eq!(run(&[]), Some(0));
    assert_eq!(run(&["--strict"]), Some(4));
}
