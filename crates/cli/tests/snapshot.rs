//! `condenser snapshot`: what is written, what a check says, and what hostile or damaged files do to it.
#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::json;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").canonicalize().expect("the fixtures are there")
}

/// A folder with `traces` in it.
struct Team(tempfile::TempDir);

impl Team {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(folder.path().join("traces/more")).expect("a folder");
        Self(folder)
    }

    /// The same with two recorded sessions, one of them in a folder.
    fn with_fixtures() -> Self {
        let team = Self::new();
        for (from, to) in
            [("kvlog-recovery.claude-code.jsonl", "kvlog.jsonl"), ("tally-csv.pi.jsonl", "more/tally.jsonl")]
        {
            fs::copy(fixtures().join(from), team.path("traces").join(to)).expect("a copy");
        }
        team
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn snapshot(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_condenser"))
            .args(["snapshot", "traces"])
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .expect("the command starts")
    }

    /// Runs the command and gives what it printed.
    #[track_caller]
    fn prints(&self, arguments: &[&str], code: i32) -> String {
        let output = self.snapshot(arguments);
        let printed = String::from_utf8(output.stdout).expect("output is text");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{printed}{errors}");
        printed
    }
}

const RECENT: [&str; 4] = ["--policy", "recent-events", "--window", "12k"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&RECENT, more].concat()
}

#[test]
fn a_snapshot_says_why_and_what_changed_and_what_was_shown_at_the_end() {
    let team = Team::with_fixtures();
    assert_eq!(team.prints(&with(&[]), 0), "snapshots: 2 snapshots written, 0 as they were\n");
    let text = fs::read_to_string(team.path("snapshots/kvlog.jsonl.snapshot")).unwrap();
    for part in [
        "condenser snapshot v1\npolicy recent-events\nwindow 12000, reserve 4000, tokens o200k",
        "\n== change 1, before step ",
        "\nwhy: tokens\nrequest: ",
        "\nforgotten ",
        "\n  … ",
        "\n- [",
        "\n+ [",
        "\n== the view of step ",
        "\ncondenser view v1 prefix 120\n[0] ",
        "\nrequest tokens ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains(&*team.0.path().to_string_lossy()));
    assert!(team.path("snapshots/more/tally.jsonl.snapshot").is_file());
}

#[test]
fn a_check_passes_on_what_was_written_and_again_when_written_anew() {
    let team = Team::with_fixtures();
    team.prints(&with(&[]), 0);
    let good = "2 as stored, 0 differ, 0 missing, 0 without a trace\n";
    assert_eq!(team.prints(&with(&["--check"]), 0), good);
    assert_eq!(team.prints(&with(&[]), 0), "snapshots: 0 snapshots written, 2 as they were\n");
    // A checkout may have changed how lines end, an editor the end of the file.
    let path = team.path("snapshots/kvlog.jsonl.snapshot");
    let text = fs::read_to_string(&path).unwrap();
    for same in [text.trim_end().to_owned(), text.replace('\n', "\r\n"), format!("\u{feff}{text}\n\n")] {
        fs::write(&path, same).unwrap();
        assert_eq!(team.prints(&with(&["--check"]), 0), good);
    }
}

#[test]
fn a_check_shows_what_differs_and_what_has_no_counterpart() {
    let team = Team::with_fixtures();
    team.prints(&with(&[]), 0);
    // Later options win over earlier ones.
    let printed = team.prints(&["--policy", "recent-events", "--window", "10k", "--check"], 1);
    assert!(printed.starts_with("kvlog.jsonl.snapshot: differs\n@@ -1,"), "{printed}");
    assert!(printed.contains("\n-window 12000, reserve 4000,"), "{printed}");
    assert!(printed.contains("\n+window 10000, reserve 4000,"), "{printed}");
    assert!(printed.lines().count() < 200, "{} lines", printed.lines().count());

    fs::rename(team.path("traces/kvlog.jsonl"), team.path("traces/renamed.jsonl")).unwrap();
    let printed = team.prints(&with(&["--check"]), 1);
    let end =
        "1 as stored, 0 differ, 1 missing, 1 without a trace; the same command without --check writes what is new\n";
    assert_eq!(
        printed,
        format!("renamed.jsonl.snapshot: missing\nkvlog.jsonl.snapshot: there is no trace for it\n{end}")
    );
}

#[test]
fn a_stored_file_that_is_no_snapshot_is_named_and_nothing_of_it_is_shown_raw() {
    let team = Team::with_fixtures();
    team.prints(&with(&[]), 0);
    let path = team.path("snapshots/kvlog.jsonl.snapshot");
    for (stored, said) in [
        (&b"\xff\xfe\x00"[..], "no snapshot: not text"),
        (b"", "differs"),
        (b"\x1b]0;title\x07\x1b[2J\xe2\x80\xaegnp.exe", "\\u{1b}]0;title\\u{7}\\u{1b}[2J\\u{202e}gnp.exe"),
        (&vec![b'x'; 3 << 20], "more characters, digest "),
    ] {
        fs::write(&path, stored).unwrap();
        let printed = team.prints(&with(&["--check"]), 1);
        assert!(printed.contains(said), "{said}: {}", &printed[..printed.len().min(500)]);
        assert!(!printed.contains(['\u{1b}', '\u{202e}', '\u{7}']));
        assert!(printed.len() < 40_000, "{} bytes", printed.len());
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(team.prints(&with(&["--check"]), 1).contains("no snapshot: not a file"));
}

#[test]
fn both_sides_of_recorded_condensations_are_pinned_apart_from_those_of_policies() {
    let team = Team::with_fixtures();
    team.prints(&with(&[]), 0);
    assert_eq!(team.prints(&["--recorded"], 0), "snapshots: 2 snapshots written, 0 as they were\n");
    let text = fs::read_to_string(team.path("snapshots/kvlog.jsonl.recorded.snapshot")).unwrap();
    for part in ["recorded condensations\n", "\n== condensation 1, after ", "\n== before\n[0] ", "\n== after\n[0] "] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    for check in [with(&["--check"]), vec!["--recorded", "--check"]] {
        assert_eq!(team.prints(&check, 0), "2 as stored, 0 differ, 0 missing, 0 without a trace\n");
    }
}

#[test]
fn a_policy_that_decides_differently_than_recorded_is_shown_and_fails() {
    let team = Team::with_fixtures();
    let printed = team.prints(&["--against", "recent-events", "--window", "12k"], 1);
    assert!(printed.contains("kvlog.jsonl\ncondensation 1, after "), "{printed}");
    assert!(printed.contains(": differs\n  recorded: forgotten "), "{printed}");
    assert!(printed.contains("recent-events decides as recorded in 0 of "), "{printed}");
    assert!(!team.path("snapshots").exists());
}

#[test]
fn where_nothing_was_recorded_nothing_differs_and_it_is_said() {
    let team = Team::new();
    fs::copy(fixtures().join("next-run.traj"), team.path("traces/next-run.traj")).expect("a copy");
    let output = team.snapshot(&["--against", "pi"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "pi decides as recorded in 0 of 0 condensations\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "no trace recorded a condensation\n");
    assert_eq!(team.prints(&["--recorded"], 0), "snapshots: 0 snapshots written, 0 as they were\n");
}

#[test]
fn hostile_content_does_nothing_in_a_snapshot() {
    let team = Team::new();
    let hostile =
        "\u{1b}[31mred\u{1b}]8;;http://x\u{7} \u{202e}gnp.exe\u{202c} \u{0}nul \u{200b}<script>alert(1)</script>";
    let call = json!([{"id": "c1", "type": "function", "function": {"name": format!("<b>\u{1b}[2J\n== after\n[0] {}", "n".repeat(1 << 20)), "arguments": hostile}}]);
    let lines = [
        json!({"role": "system", "content": hostile}),
        json!({"role": "user", "content": format!("{hostile}\n== after\n[0] user e1\n{}", "x".repeat(10 << 20))}),
        json!({"role": "assistant", "content": hostile, "tool_calls": call}),
        json!({"role": "tool", "tool_call_id": "c1", "content": hostile.repeat(1000)}),
        json!({"role": "assistant", "content": "done"}),
    ];
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(team.path("traces/hostile.jsonl"), text.join("\n")).unwrap();
    for arguments in [&["--policy", "observation-masking"][..], &["--policy", "forget-all", "--content", "full"]] {
        team.prints(arguments, 0);
        let text = fs::read_to_string(team.path("snapshots/hostile.jsonl.snapshot")).unwrap();
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c)));
        assert!(text.contains("\\u{1b}[31mred"), "{}", &text[..2000]);
        assert!(text.contains("<script>alert(1)</script>"));
        assert!(text.lines().all(|line| line.chars().count() < 500));
        assert!(text.len() < 200_000, "{} bytes", text.len());
        team.prints(&[arguments, &["--check"]].concat(), 0);
    }
}

#[test]
fn what_makes_no_sense_together_is_refused() {
    let team = Team::with_fixtures();
    for (arguments, said) in [
        (&["--policy", "oracle"][..], "error: `oracle` decides anew at each step and leaves nothing to pin\n"),
        (&["--policy", "default"], "error: a snapshot is of one policy: name it with --policy\n"),
        (&["--against", "recorded"], "error: `recorded` is a control; a policy is wanted here\n"),
        (&["--against", "none", "--check"], "error: the argument '--against <POLICY>' cannot be used with '--check'"),
        (
            &["--recorded", "--policy", "none"],
            "error: the argument '--recorded' cannot be used with '--policy <POLICY>'",
        ),
        (&["--content", "some"], "there are kinds, redacted, full, and a number of characters"),
    ] {
        let output = team.snapshot(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
}
