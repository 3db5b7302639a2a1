//! `condenser condense` and `condenser status` on a log.
#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

struct Logs {
    folder: tempfile::TempDir,
}

impl Logs {
    /// A log with one session of sixty messages, named as its file.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lines: String = (0..60)
            .map(|n| {
                let role = if n % 2 == 0 { "user" } else { "assistant" };
                let text = format!("message {n}: the parser lives in src/parser.rs. {}", "more ".repeat(40));
                format!("{}\n", serde_json::json!({"role": role, "content": text}))
            })
            .collect();
        std::fs::write(folder.path().join("chat.jsonl"), lines).expect("the trace is written");
        let logs = Self { folder };
        assert!(logs.run(&["log", "import", "log.db", "chat.jsonl"]).status.success());
        logs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_condenser"))
            .args(arguments)
            .current_dir(self.folder.path())
            .output()
            .expect("the command starts")
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--format", "json"]].concat())).expect("JSON")
    }

    fn status(&self) -> Value {
        self.json(&["status", "log.db", "--session", "chat.jsonl", "--window", "8k"])
    }
}

const CONDENSE: [&str; 8] =
    ["condense", "log.db", "--session", "chat.jsonl", "--policy", "llm-summarizing", "--window", "8k"];

#[test]
fn a_trial_shows_what_would_go_and_leaves_the_log_as_it_is() {
    let logs = Logs::new();
    let before = std::fs::read(logs.path("log.db")).expect("the log");
    let text = logs.text(&[&CONDENSE[..], &["--dry-run"]].concat());
    assert!(text.ends_with("\nnothing was recorded\n"), "{text}");
    assert!(text.contains("entries forgotten") && text.contains("gone"), "{text}");
    assert_eq!(std::fs::read(logs.path("log.db")).expect("the log"), before);
}

#[test]
fn a_condensation_shows_before_after_and_exactly_what_went_in_both_forms_alike() {
    let logs = Logs::new();
    let trial = logs.text(&[&CONDENSE[..], &["--dry-run"]].concat());
    let before = logs.status();
    let document = logs.json(&CONDENSE);
    let after = logs.status();
    let figure = |name: &str| document["provenance"][name].as_u64().expect("a figure");
    let shown = |name: &str| -> u64 {
        let line = trial.lines().find_map(|line| line.strip_prefix(name)).expect("the line");
        line.trim().parse().expect("a number")
    };
    assert_eq!(shown("tokens before"), figure("tokens_before"));
    assert_eq!(shown("tokens after"), figure("tokens_after"));
    assert_eq!(before["state"]["as_counted"], document["provenance"]["tokens_before"]);
    assert_eq!(after["state"]["as_counted"], document["provenance"]["tokens_after"]);
    let forgotten = document["forgotten_event_ids"].as_array().expect("a list");
    let went: Vec<&Value> = document["went"].as_array().expect("a list").iter().map(|went| &went["id"]).collect();
    assert_eq!(went.len(), forgotten.len());
    assert!(went.iter().all(|id| forgotten.contains(id)));
    assert_eq!(document["provenance"]["reasons"], serde_json::json!(["request", "tokens"]));
    assert_eq!(after["state"]["condensations_in_force"], 1);
    assert!(document["recorded"].is_string());
}

#[test]
fn the_status_shows_each_number_in_force_and_where_it_comes_from() {
    let logs = Logs::new();
    let arguments = ["status", "log.db", "--session", "chat.jsonl", "--window", "100k", "--reserve", "8k"];
    let set = ["--trigger", "99%", "--trigger", "200e", "--summary-output", "8k"];
    let status = logs.json(&[&arguments[..], &set].concat());
    let number = |name: &str| {
        let limit = &status["budgets"][name];
        (limit["tokens"].as_u64(), limit["events"].as_u64(), limit["origin"].as_str().map(str::to_owned))
    };
    let is = |tokens, events, origin: &str| (Some(tokens), events, Some(origin.to_owned()));
    assert_eq!(number("window"), is(100_000, None, "set"));
    assert_eq!(number("request"), is(92_000, None, "set"));
    assert_eq!(number("trigger"), is(84_000, Some(200), "clamped"));
    assert_eq!(number("summary_output"), is(8000, None, "set"));
    assert_eq!(number("summary_input"), is(92_000, None, "default"));
    let unknown = logs.text(&["status", "log.db", "--session", "chat.jsonl"]);
    let window = unknown.lines().find(|line| line.trim_start().starts_with("window")).expect("a line");
    assert!(window.ends_with("unknown"), "{window}");
}

#[test]
fn what_cannot_be_condensed_is_said_with_sizes_and_an_exit_code_of_its_own() {
    let logs = Logs::new();
    let arguments = ["condense", "log.db", "--session", "chat.jsonl", "--policy", "none", "--window", "8k"];
    let nothing = logs.run(&arguments);
    assert_eq!(nothing.status.code(), Some(0), "this policy never acts");
    let failing = ["condense", "log.db", "--session", "chat.jsonl", "--policy", "folding", "--window", "20"];
    // The first ones still find something to shorten.
    let output = (0..5).map(|_| logs.run(&failing)).find(|output| !output.status.success()).expect("an end");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("is the most") && text.contains("the largest entries are"), "{text}");
    assert_eq!(logs.status()["state"]["failed_since"], 1);
    let unknown = logs.run(&["status", "log.db", "--session", "nobody"]);
    assert_eq!(unknown.status.code(), Some(2));
    let message = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert_eq!(message, "error: log.db: there is no session \"nobody\"; `condenser log list` lists them\n");
}
