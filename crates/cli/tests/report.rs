//! `condenser report`: what it needs, what it says where something is missing.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_condenser"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).args(arguments).output().unwrap()
}

fn check(arguments: &[&str], code: i32, said: &str) {
    let output = run(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(stderr.contains(said), "{arguments:?}: {said:?} is not in {stderr}");
}

#[test]
fn a_report_is_written_whole_or_not_at_all_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, saved, html, lines) = (path("tally.jsonl"), path("run"), path("out.html"), path("lines"));
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/tally-csv.pi.jsonl"), &trace).unwrap();
    check(&["compare", &trace, "--policy", "none,forget-all", "--window", "8k", "--out", &saved], 0, "");
    let report = ["report", &saved, "--html", &html];
    check(&report, 0, "");
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));

    check(&["report", &path("nothing"), "--html", &html], 3, "there is no run here");
    check(&["report", &saved], 2, "--html");
    check(&["report", &saved, "--html", &path("no/such/folder.html")], 5, "cannot write");
    fs::write(&lines, "{\"policy\": 1}\n").unwrap();
    check(&["report", &saved, "--html", &html, "--canaries", &lines], 3, "line 1: not a line of canaries");
    assert_eq!(fs::read_to_string(&html).unwrap(), page, "a report that failed replaces nothing");

    // Runs of before views were kept open, too.
    fs::remove_file(folder.path().join("run/views.jsonl")).unwrap();
    check(&report, 0, "kept no views");
    fs::remove_file(&trace).unwrap();
    check(&report, 3, "it is not there any more; its texts are left out");
    check(&["report", &saved, "fixtures/traces", "--html", &html], 3, "it is not there any more");
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/tally-csv.pi.jsonl"),
        other.join("tally.jsonl"),
    )
    .unwrap();
    check(&["report", &saved, other.to_str().unwrap(), "--html", &html], 0, "");
}
