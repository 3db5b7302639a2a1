//! The command as a user runs it: results, messages and exit codes.
#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests fail by panicking, and say what they skip"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap_or_default()
}

fn condenser(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_condenser"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder of files that tests may name.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("the file is written");
        path.to_string_lossy().into_owned()
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    /// Standard error with the folder's path taken out.
    fn errors(&self, output: &Output) -> String {
        text(&output.stderr).replace(&*self.0.path().to_string_lossy(), "DIR").replace('\\', "/")
    }
}

const CHAT: &[u8] = b"{\"role\":\"user\",\"content\":\"hi\"}\n{\"role\":\"assistant\",\"content\":\"hello\"}\n";

#[track_caller]
fn check_failure(folder: &Folder, arguments: &[&str], code: i32, message: &str) {
    let output = condenser(arguments);
    assert_eq!(folder.errors(&output), format!("{message}\n"));
    assert_eq!(output.status.code(), Some(code));
}

#[test]
fn each_bad_input_gets_one_clear_message_and_its_exit_code() {
    let folder = Folder::new();
    let binary = folder.file("binary", b"PNG\0\x01\x02");
    let empty = folder.file("empty.json", b"");
    let odd = folder.file("odd.json", br#"{"lorem": 1, "ipsum": 2}"#);
    let missing = folder.path("missing.jsonl");
    let chat = folder.file("chat.jsonl", CHAT);
    let unwritable = folder.path("no/such/folder/out.csv");
    check_failure(&folder, &["compare", &missing], 3, "error: DIR/missing.jsonl: no such file or folder");
    check_failure(
        &folder,
        &["compare", &binary],
        3,
        "error: DIR/binary: a binary file, not JSON text; unpack or convert it first",
    );
    check_failure(&folder, &["compare", &empty], 3, "error: DIR/empty.json: the file is empty");
    check_failure(
        &folder,
        &["compare", &odd],
        3,
        "error: DIR/odd.json: not a known trace format (first keys: lorem, ipsum); `condenser formats` lists the known ones",
    );
    check_failure(
        &folder,
        &["compare", &chat, "--policy", "observation-maskin"],
        2,
        "error: unknown policy \"observation-maskin\"; did you mean `observation-masking`? (`condenser policies` lists them)",
    );
    check_failure(
        &folder,
        &["compare", &chat, "--output", &unwritable],
        5,
        "error: cannot write DIR/no/such/folder/out.csv: No such file or directory (os error 2)",
    );
    check_failure(
        &folder,
        &["compare", &chat, "--tokenizer", "o200"],
        2,
        "error: unknown tokenizer \"o200\"; did you mean `o200k`? There are o200k, cl100k, estimate, chars/4, bytes/4",
    );
    check_failure(&folder, &["log", "list", &missing], 3, "error: DIR/missing.jsonl: there is no such log");
}

#[test]
fn a_torn_last_line_is_reported_and_everything_before_it_is_compared() {
    let folder = Folder::new();
    let torn = folder.file("torn.jsonl", &[CHAT, b"{\"role\":\"us"].concat());
    let report = "DIR/torn.jsonl: line 3: the last record is torn after 11 bytes and left out\n";
    for (strict, code) in [(None, 0), (Some("--strict"), 4)] {
        let mut arguments = vec!["compare", &torn, "--policy", "none", "--format", "jsonl"];
        arguments.extend(strict);
        let output = condenser(&arguments);
        assert_eq!(folder.errors(&output), report);
        assert_eq!(output.status.code(), Some(code));
        assert_eq!(rows(&output).len(), 1);
    }
}

#[test]
fn an_output_takes_its_place_at_the_end_and_a_failed_run_replaces_nothing() {
    let folder = Folder::new();
    let chat = folder.file("chat.jsonl", CHAT);
    let written = condenser(&["compare", &chat, "--policy", "none", "--format", "jsonl", "--output", &chat]);
    assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
    let row: Value = serde_json::from_slice(&std::fs::read(&chat).expect("the output")).expect("a row");
    assert_eq!(row["steps"], 1, "the input was read before the output took its place");
    let kept = folder.file("kept.csv", b"precious");
    assert_eq!(condenser(&["compare", &chat, "--policy", "non", "--output", &kept]).status.code(), Some(2));
    assert_eq!(std::fs::read(&kept).expect("the file"), b"precious");
    let names: Vec<_> = std::fs::read_dir(folder.path("")).expect("the folder").collect();
    assert_eq!(names.len(), 2, "nothing is left beside them");
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_read_enough_hides_no_exit_code_and_stops_no_import() {
    let folder = Folder::new();
    let command = env!("CARGO_BIN_EXE_condenser");
    let run = |line: String| {
        let script = format!("{{ {line}; echo $? >{}; }} | head -c 1 >/dev/null", folder.path("code"));
        let status = Command::new("sh").args(["-c", &script]).current_dir(root()).status().expect("sh starts");
        assert!(status.success());
        std::fs::read_to_string(folder.path("code")).expect("the code")
    };
    let missing = folder.path("missing");
    assert_eq!(run(format!("{command} compare fixtures/traces {missing} --policy none 2>/dev/null")).trim(), "3");
    let db = folder.path("log.db");
    assert_eq!(run(format!("{command} log import {db} fixtures/traces fixtures/traces")).trim(), "0");
    assert_eq!(
        rows(&condenser(&["log", "list", &db, "--format", "jsonl"])).len(),
        6,
        "a file named twice is read once"
    );
}

#[cfg(unix)]
#[test]
fn a_pipe_or_device_is_refused_and_never_waited_for() {
    let folder = Folder::new();
    check_failure(
        &folder,
        &["compare", "/dev/null"],
        3,
        "error: /dev/null: neither a file nor a folder; save it as a file first",
    );
}

#[test]
fn lists_have_a_header_as_comma_separated_values() {
    let csv = text(&condenser(&["formats", "--format", "csv"]).stdout);
    assert_eq!(csv.lines().next(), Some("format,description,written"));
}

#[test]
fn a_control_cannot_be_matched() {
    let folder = Folder::new();
    let chat = folder.file("chat.jsonl", CHAT);
    check_failure(
        &folder,
        &["compare", &chat, "--match", "forget-all"],
        2,
        "error: `forget-all` is a control; a policy is wanted here",
    );
}

#[test]
fn the_others_go_on_where_one_input_is_unreadable() {
    let folder = Folder::new();
    let chat = folder.file("chat.jsonl", CHAT);
    let output = condenser(&["compare", &folder.path("missing"), &chat, "--policy", "none", "--format", "jsonl"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(rows(&output).len(), 1);
}

#[test]
fn foreign_text_cannot_steer_the_terminal() {
    let folder = Folder::new();
    let hostile = "\u{1b}[2J\u{202e}hidden\u{7}";
    let message = serde_json::json!([{"role": "user", "content": hostile}, {"role": "assistant", "content": "ok"}]);
    let chat = folder.file("chat.json", message.to_string().as_bytes());
    let shown = text(&condenser(&["view", &chat]).stdout);
    assert!(shown.contains("\\u{1b}[2J\\u{202e}hidden\\u{7}"), "{shown}");
}

fn rows(output: &Output) -> Vec<Value> {
    let lines = text(&output.stdout);
    lines.lines().map(|line| serde_json::from_str(line).expect("a row is JSON")).collect()
}

fn without_time(mut rows: Vec<Value>) -> Vec<Value> {
    rows.iter_mut().filter_map(Value::as_object_mut).for_each(|row| {
        row.shift_remove("wall_ms");
    });
    rows
}

/// What must hold of every comparison, whatever the traces.
#[track_caller]
fn check_rows(rows: &[Value]) {
    assert!(!rows.is_empty());
    for row in rows {
        let name = format!("{} under {}", row["trace"], row["policy"]);
        assert_eq!(row["invalid_requests"], 0, "{name}");
        let sum: u64 = ["in_view", "in_summary", "recoverable", "lost"]
            .iter()
            .filter_map(|status| row[format!("evidence_{status}")].as_u64())
            .sum();
        assert_eq!(row["evidence_total"], sum, "{name}");
        if row["policy"] == "none" {
            assert_eq!(row["evidence_in_view"], row["evidence_total"], "{name}");
            assert_eq!(row["condensations"], 0, "{name}");
        }
        let none = rows.iter().find(|other| other["trace"] == row["trace"] && other["policy"] == "none");
        if let Some(none) = none {
            assert_eq!(row["evidence_total"], none["evidence_total"], "{name}");
            assert_eq!(row["steps"], none["steps"], "{name}");
        }
    }
}

#[test]
fn comparing_the_fixtures_twice_differs_in_time_only() {
    let compare = || rows(&condenser(&["compare", "fixtures/traces", "--window", "8k", "--format", "jsonl"]));
    let first = compare();
    check_rows(&first);
    assert!(first.iter().any(|row| row["evidence_lost"] != 0));
    assert_eq!(without_time(first), without_time(compare()));
}

#[test]
fn the_table_of_the_fixtures_is_pinned() {
    let output = condenser(&["compare", "fixtures/traces", "--window", "8k"]);
    assert_eq!(text(&output.stderr), "");
    insta::assert_snapshot!("fixtures-8k", text(&output.stdout));
}

#[test]
fn a_step_of_a_view_is_shown_as_text_and_as_json() {
    let path = "fixtures/traces/next-run.traj";
    let arguments = |format| ["view", path, "--policy", "observation-masking", "--step", "14", "--format", format];
    insta::assert_snapshot!("view-text", text(&condenser(&arguments("text")).stdout));
    let json: Value = serde_json::from_slice(&condenser(&arguments("json")).stdout).expect("a document");
    assert_eq!(json["step"], 14);
    assert_eq!(json["request"]["messages"][0]["role"], "system");
    let output = condenser(&["view", path, "--step", "99"]);
    assert_eq!(text(&output.stderr), "error: fixtures/traces/next-run.traj: there is no step 99; steps are 1 to 23\n");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn two_steps_are_told_apart_and_every_api_is_rendered() {
    let path = "fixtures/traces/next-run.traj";
    let view = |more: &[&str]| {
        let mut arguments = vec!["view", path, "--policy", "observation-masking"];
        arguments.extend(more);
        condenser(&arguments)
    };
    insta::assert_snapshot!("view-diff", text(&view(&["--diff", "12", "13"]).stdout));
    for (api, key) in [("openai", "messages"), ("responses", "input"), ("anthropic", "system")] {
        let json: Value =
            serde_json::from_slice(&view(&["--api", api, "--format", "json"]).stdout).expect("a document");
        assert!(!json["request"][key].is_null(), "{api}");
    }
    assert_eq!(view(&["--api", "openia"]).status.code(), Some(2));
}

#[test]
fn lists_name_what_there_is() {
    insta::assert_snapshot!("formats", text(&condenser(&["formats"]).stdout));
    insta::assert_snapshot!("policies", text(&condenser(&["policies"]).stdout));
    insta::assert_snapshot!("policy", text(&condenser(&["policies", "show", "swe-agent-last-n"]).stdout));
    let output = condenser(&["policies", "show", "foldin"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `folding`?"));
    let shown: Value = serde_json::from_slice(&condenser(&["policies", "show", "none", "--format", "json"]).stdout)
        .expect("one document");
    assert_eq!((&shown["policy"], &shown["settings"]), (&"none".into(), &serde_json::json!([])));
}

#[test]
fn a_file_names_policies_with_settings_and_pipelines() {
    let folder = Folder::new();
    let policies = folder.file(
        "policies.toml",
        br#"
[masking-3]
policy = "observation-masking"
attention_window = 3

[both]
pipeline = ["masking-3", "llm-summarizing"]

[folding]
keep_last = 5
"#,
    );
    let trace = "fixtures/traces/next-run.traj";
    let names = |extra: &[&str]| -> Vec<String> {
        let mut arguments = vec!["compare", trace, "--policies", &policies, "--format", "jsonl", "--window", "8k"];
        arguments.extend(extra);
        let output = condenser(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let rows = text(&output.stdout);
        rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("a row")["policy"].to_string()).collect()
    };
    assert_eq!(names(&[]), ["\"masking-3\"", "\"both\"", "\"folding\""]);
    assert_eq!(names(&["--policy", "none,both"]), ["\"none\"", "\"both\""]);
    let all = names(&["--policy", "all"]);
    assert!(["\"both\"", "\"openhands-v0-server\"", "\"recorded\""].iter().all(|name| all.iter().any(|it| it == name)));
    assert_eq!(all.iter().filter(|name| *name == "\"folding\"").count(), 1);

    // A file of everything there is, in one run.
    let listed: Value = serde_json::from_slice(&condenser(&["policies", "--format", "json"]).stdout).expect("a list");
    let listed = listed.as_array().expect("a list").iter().filter(|line| line["kind"] != "control");
    let listed: Vec<&str> = listed.filter_map(|line| line["policy"].as_str()).collect();
    let every: String = listed.iter().map(|name| format!("[{name}]\n")).collect();
    let every = folder.file("every.toml", every.as_bytes());
    let output = condenser(&["compare", trace, "--policies", &every, "--window", "32k", "--format", "jsonl"]);
    assert_eq!(text(&output.stdout).lines().count(), listed.len());

    let wrong = folder.file("wrong.toml", b"[a]\npipeline = [\"foldin\"]\n");
    let message = "error: DIR/wrong.toml: `a`: `pipeline`: unknown policy \"foldin\"; did you mean `folding`?";
    check_failure(&folder, &["compare", trace, "--policies", &wrong], 2, message);
    let control = folder.file("control.toml", b"[recorded]\npolicy = \"none\"\n");
    let message = "error: DIR/control.toml: `recorded` has a meaning of its own; name the entry otherwise";
    check_failure(&folder, &["compare", trace, "--policies", &control], 2, message);
    let torn = folder.file("torn.toml", b"[a\n");
    let output = condenser(&["compare", trace, "--policies", &torn]);
    assert_eq!(output.status.code(), Some(2));
    assert!(folder.errors(&output).starts_with("error: DIR/torn.toml: TOML parse error at line 1"));
    let missing = folder.path("missing.toml");
    let message = "error: DIR/missing.toml: No such file or directory (os error 2)";
    check_failure(&folder, &["compare", trace, "--policies", &missing], 3, message);
}

#[test]
fn traces_are_imported_into_a_log_and_listed() {
    let folder = Folder::new();
    let db = folder.path("log.db");
    let imported = condenser(&["log", "import", &db, "fixtures/traces"]);
    assert_eq!(imported.status.code(), Some(0), "{}", text(&imported.stderr));
    let listed = rows(&condenser(&["log", "list", &db, "--format", "jsonl"]));
    let summary: Vec<String> =
        listed.iter().map(|row| format!("{} {}", row["name"].as_str().unwrap_or("?"), row["events"])).collect();
    insta::assert_snapshot!(summary.join("\n"), @r"
    fixtures/traces/kvlog-recovery.claude-code.jsonl 98
    fixtures/traces/ledger-currencies.openhands.jsonl 301
    fixtures/traces/next-run.traj 47
    fixtures/traces/slug-transliteration 77
    fixtures/traces/tally-csv.pi.jsonl 98
    fixtures/traces/wrap-columns.chat.json 61
    ");
}

/// The recorded traces outside the repository, or `None` with a printed reason.
fn shared_traces() -> Option<PathBuf> {
    let shared = std::env::var_os("CONDENSER_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let traces = shared.join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    eprintln!("skipped: no recorded traces at {}; set CONDENSER_SHARED", traces.display());
    None
}

#[test]
fn every_real_trace_of_a_known_format_is_compared_and_every_request_is_valid() {
    let Some(traces) = shared_traces() else { return };
    let folders: Vec<String> = ["openhands-v1", "pi", "swe-agent", "claude-code", "openai-chat"]
        .iter()
        .map(|folder| traces.join(folder).to_string_lossy().into_owned())
        .collect();
    let mut arguments = vec!["compare"];
    arguments.extend(folders.iter().map(String::as_str));
    arguments.extend(["--policy", "none,observation-masking,llm-summarizing,folding", "--format", "jsonl"]);
    let output = condenser(&arguments);
    assert_eq!(output.status.code(), Some(0));
    assert!(!text(&output.stderr).contains("skipped"), "{}", text(&output.stderr));
    let rows = rows(&output);
    // A sub-agent's records make a trace of their own.
    assert_eq!(rows.len(), 28 * 4);
    check_rows(&rows);
}

#[test]
fn files_of_unknown_formats_in_a_folder_are_reported_and_are_no_error() {
    let folder = Folder::new();
    folder.file("chat.jsonl", CHAT);
    folder.file("notes.txt", b"buy milk");
    let output = condenser(&["compare", &folder.path(""), "--policy", "none", "--format", "jsonl"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(folder.errors(&output).starts_with("skipped: DIR/notes.txt: "), "{}", folder.errors(&output));
    assert_eq!(rows(&output).len(), 1);
}

#[test]
fn the_whole_of_the_recorded_traces_is_walked_and_what_is_not_recognized_is_reported() {
    let Some(traces) = shared_traces() else { return };
    let output = condenser(&["compare", &traces.to_string_lossy(), "--policy", "none", "--format", "jsonl"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("skipped: "));
    check_rows(&rows(&output));
}
