//! Runs on disk: interrupted, split, priced anew, held against conditions.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const COMPARE: [&str; 6] = ["compare", "fixtures/traces", "--window", "8k,32k", "--format", "jsonl"];

fn condenser(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_condenser"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    condenser(arguments).output().unwrap()
}

/// Runs what has to go well.
fn succeed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn compare(more: &[&str]) -> Vec<Value> {
    rows(&succeed(&[&COMPARE, more].concat()))
}

/// Rows without the time they took.
fn rows(text: &str) -> Vec<Value> {
    let row = |line: &str| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        row.as_object_mut().unwrap().remove("wall_ms");
        row
    };
    text.lines().map(row).collect()
}

/// The files of a finished run, rows without their times.
fn files(folder: &Path) -> (Vec<Value>, [String; 3]) {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    (rows(&read("rows.jsonl")), ["steps.jsonl", "views.jsonl", "traces.jsonl"].map(read))
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn a_run_that_was_killed_goes_on_and_ends_with_the_same_files() {
    let folder = Folder::new();
    let whole = compare(&["--out", &folder.text("whole")]);
    let killed = folder.text("killed");
    let arguments = [&COMPARE[..], &["--jobs", "1", "--out", &killed]].concat();
    let mut child = condenser(&arguments).stdout(Stdio::null()).spawn().unwrap();
    let rows_file = folder.path("killed/rows.jsonl");
    while fs::read_to_string(&rows_file).unwrap_or_default().lines().count() < 5 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for arguments in [&["reprice", killed.as_str()][..], &["merge", &killed, "--out", &folder.text("merged")]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(3));
        assert!(String::from_utf8_lossy(&output.stderr).contains("this run is not finished"), "{output:?}");
    }
    let n_before = fs::read_to_string(&rows_file).unwrap().lines().count();
    assert!(n_before < whole.len(), "{n_before} of {} rows were there", whole.len());
    assert_eq!(rows(&succeed(&arguments)), whole);
    assert_eq!(files(&folder.path("killed")), files(&folder.path("whole")));
}

#[test]
fn what_is_half_written_at_the_end_of_a_file_is_made_again() {
    let folder = Folder::new();
    let whole = compare(&["--out", &folder.text("run")]);
    let expected = files(&folder.path("run"));
    for (name, share) in
        [("rows.jsonl", 2), ("rows.jsonl", 3), ("steps.jsonl", 1), ("views.jsonl", 1), ("traces.jsonl", 1)]
    {
        let path = folder.path("run").join(name);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / share - 7]).unwrap();
        // A row whose steps or trace is not there does not count either, and nobody reads the run as it is.
        if !matches!(name, "rows.jsonl" | "views.jsonl") {
            assert_eq!(run(&["reprice", &folder.text("run")]).status.code(), Some(3));
        }
        assert_eq!(compare(&["--out", &folder.text("run")]), whole, "{name}");
        assert_eq!(files(&folder.path("run")), expected, "{name}");
    }
}

#[test]
fn a_finished_run_is_shown_again_without_a_replay() {
    let folder = Folder::new();
    let path = folder.text("run");
    let arguments = [&COMPARE[..], &["--out", &path]].concat();
    let first = succeed(&arguments);
    // Times are part of the rows: a replay would have other ones.
    assert_eq!(succeed(&arguments), first);
}

#[test]
fn parts_of_a_run_merge_into_the_whole() {
    let folder = Folder::new();
    compare(&["--out", &folder.text("whole")]);
    let parts: Vec<String> = (1..=3)
        .map(|part| {
            let path = folder.text(&format!("part-{part}"));
            compare(&["--out", &path, "--shard", &format!("{part}/3")]);
            path
        })
        .collect();
    let merged = folder.text("merged");
    let mut arguments = vec!["merge", "--out", &merged];
    arguments.extend(parts.iter().rev().map(String::as_str));
    succeed(&arguments);
    assert_eq!(files(&folder.path("merged")), files(&folder.path("whole")));

    let two = run(&["merge", "--out", &folder.text("two"), &parts[0], &parts[2]]);
    let twice = run(&["merge", "--out", &folder.text("twice"), &parts[0], &parts[0]]);
    let more = compare(&["--out", &folder.text("other"), "--policy", "none"]);
    assert!(!more.is_empty());
    let mixed = run(&["merge", "--out", &folder.text("mixed"), &parts[0], &folder.text("other")]);
    let expected = [(two, "2/3 is missing"), (twice, "has a row that was there before"), (mixed, "another `policies`")];
    for (output, said) in expected {
        assert_eq!(output.status.code(), Some(3));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(said), "{stderr}");
    }
}

#[test]
fn a_run_priced_anew_has_the_rows_of_a_replay_under_those_prices() {
    let folder = Folder::new();
    let path = folder.text("run");
    compare(&["--out", &path]);
    let profiles = folder.text("profiles.toml");
    let text = "[mine]\nprices = { input = 2.0, cache_read = 0.5, cache_write = 2.0, output = 7.0 }\n\
        cache = { minimum = 2048, block = 128, expiry_seconds = 3, charges_writes = false }\n";
    fs::write(&profiles, text).unwrap();
    let mine = ["--profile", "mine", "--profiles", &profiles];
    let repriced = [&["reprice", &path, "--format", "jsonl"], &mine[..]].concat();
    let replayed = compare(&mine);
    assert_eq!(rows(&succeed(&repriced)), replayed);
    assert_ne!(replayed, rows(&fs::read_to_string(folder.path("run/rows.jsonl")).unwrap()));

    let groups = succeed(&["reprice", &path, "--by-length", "4k,8k", "--format", "jsonl"]);
    let groups: Vec<Value> = groups.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let total = |rows: &[Value], field: &str| rows.iter().map(|row| row[field].as_u64().unwrap()).sum::<u64>();
    let saved = rows(&fs::read_to_string(folder.path("run/rows.jsonl")).unwrap());
    assert_eq!(total(&groups, "requests"), total(&saved, "steps"));
    for field in ["input_tokens", "cached_tokens"] {
        assert_eq!(total(&groups, field), total(&saved, field), "{field}");
    }
}

#[test]
fn a_run_is_only_gone_on_with_as_it_was_begun() {
    let folder = Folder::new();
    let path = folder.text("run");
    let trace = folder.text("trace.jsonl");
    let chat = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/traces/tally-csv.pi.jsonl"));
    fs::write(&trace, chat.unwrap()).unwrap();
    let begin = ["compare", &trace, "--policy", "none,recent-events", "--out", &path];
    succeed(&begin);
    let check = |more: &[&str], said: &str| {
        let output = run(&[&begin[..], more].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(said), "{stderr}");
    };
    check(&["--window", "8k"], "begun with another `windows`");
    check(&["--recall", "off"], "begun with another `recall`");
    check(&["--summarizer", "heuristic"], "begun with another `summarizer`");
    check(&["--primary", "in_vew"], "unknown metric");
    let lock = fs::File::options().append(true).open(folder.path("run/.lock")).unwrap();
    lock.try_lock().unwrap();
    check(&[], "another process is writing this run");
    drop(lock);
    let manifest = folder.path("run/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"version\": 1,", "\"version\": 7,")).unwrap();
    check(&[], "a run of version 7; this build reads version 1");
    fs::remove_file(&manifest).unwrap();
    check(&[], "there are rows here and no manifest.json");
    fs::write(&manifest, text).unwrap();
    let copy = folder.text("copy.jsonl");
    fs::copy(&trace, &copy).unwrap();
    let output = run(&["compare", &copy, "--policy", "none,recent-events", "--out", &path]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the run holds 2 traces, 1 of them not among those named now"), "{stderr}");
    let text = fs::read_to_string(&trace).unwrap().replacen("tally", "tale", 1);
    fs::write(&trace, text).unwrap();
    check(&[], "not the trace that the run was begun with");
}

#[test]
fn conditions_fail_a_comparison_and_name_trace_step_and_item() {
    let folder = Folder::new();
    let junit = folder.text("junit.xml");
    let trace = "fixtures/traces/kvlog-recovery.claude-code.jsonl";
    let probes = ["--probes", "fixtures/probes"];
    let check = |more: &[&str], code: i32, said: &[&str]| {
        let arguments = [&["compare", trace, "--window", "8k", "--policy", "none,forget-all"], more].concat();
        let output = run(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {stderr}");
        for said in said {
            assert!(stderr.contains(said), "{more:?}: {said:?} is not in {stderr}");
        }
    };
    check(&["--fail-on", "invalid_requests>0"], 0, &[]);
    let lost = [trace, "forget-all, window 8000", "evidence_lost is ", "the first at step ", "from event "];
    check(&["--fail-on", "evidence_lost>0", "--junit", &junit], 1, &lost);
    let report = fs::read_to_string(&junit).unwrap();
    assert!(report.contains("failures=\"1\"") && report.contains("tests=\"2\""), "{report}");
    let constraint = ["lost(constraint) is 1, the first of them `"];
    check(&[&probes[..], &["--fail-on", "lost(constraint)>0"]].concat(), 1, &constraint);
    check(&["--fail-on", "lost(constraint)>0"], 2, &["needs --probes"]);
    check(&["--fail-on", "change(cost_usd)>0"], 2, &["needs --baseline"]);
    check(&["--fail-on", "evidence_lots>0"], 2, &["did you mean `evidence_lost`?"]);

    let baseline = folder.text("baseline");
    let arguments = ["compare", trace, "--window", "8k", "--policy", "none,forget-all", "--out", &baseline];
    succeed(&arguments);
    check(&["--baseline", &baseline], 0, &[]);
    check(&["--baseline", &baseline, "--reserve", "2k"], 2, &["this baseline was made with another `reserve`"]);
    check(&["--baseline", "README.md"], 3, &["README.md/manifest.json"]);
    // Rows that the baseline does not have cannot be judged, and that is no success.
    let other = folder.text("other");
    succeed(&["compare", trace, "--window", "9k", "--policy", "none", "--out", &other]);
    check(&["--baseline", &other], 1, &["no row could be held against it"]);
}
