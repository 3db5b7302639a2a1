//! Every command that the documentation shows does what it shows.
//!
//! Lines `$ condenser …` of `console` blocks are run in the order of their document, in a folder that holds what a
//! reader would have. The lines below a command are its output, where `…` stands for lines that are left out. At the end of
//! a line it stands for the rest of it, and of each line after it up to the next `…`. A comment `# exit 1` names an exit code other than 0.
#![cfg(unix)]
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Commands that ask a model, or need a terminal. Their options are tested where there is one.
const ELSEWHERE: [&str; 3] = ["--summarizer summaries.toml", "--ask model.toml", "condenser inspect"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// What a reader has: the repository, and recordings of the same kind as those that documents name.
fn readers_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    let fixtures = root().join("fixtures");
    symlink(&fixtures, path.join("fixtures")).expect("a link");
    let copies = [
        ("traces/tally-csv.pi.jsonl", "traces/tally-csv.pi.jsonl"),
        ("traces/next-run.traj", "traces/next-run.traj"),
        ("traces/tally-csv.pi.jsonl", "session.jsonl"),
        ("traces/kvlog-recovery.claude-code.jsonl", ".claude/projects/kvlog/session.jsonl"),
        ("probes/tally-csv.pi.json", "probes.json"),
        // A summary that has left out nothing.
        ("traces/tally-csv.pi.jsonl", "summary.md"),
    ];
    for (from, to) in copies {
        let to = path.join(to);
        fs::create_dir_all(to.parent().expect("a folder")).expect("folders");
        fs::copy(fixtures.join(from), to).expect("a copy");
    }
    // A data set whose one row names its task.
    let chat = fs::read(fixtures.join("traces/wrap-columns.chat.json")).expect("a fixture");
    let mut row: serde_json::Value = serde_json::from_slice(&chat).expect("a chat");
    row["instance_id"] = "wrap-columns".into();
    for (arm, resolved) in [("with", r#"["wrap-columns"]"#), ("without", "[]")] {
        fs::create_dir_all(path.join("runs").join(arm)).expect("folders");
        fs::write(path.join(format!("runs/{arm}/rows.jsonl")), format!("{row}\n")).expect("a file");
        fs::write(path.join(format!("{arm}.json")), format!(r#"{{"resolved_ids": {resolved}}}"#)).expect("a file");
    }
    folder
}

struct Step {
    line: usize,
    command: String,
    output: Vec<String>,
}

/// The commands of a document; what a `toml` block holds becomes `policies.toml` for those after it.
fn steps(text: &str) -> Vec<(Option<String>, Step)> {
    let mut steps: Vec<(Option<String>, Step)> = Vec::new();
    let mut policies: Option<String> = None;
    let mut block: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        match (block, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                block = Some(kind);
                if kind == "toml" {
                    policies = Some(String::new());
                }
            }
            (Some(_), Some("")) => block = None,
            (Some("toml"), _) => {
                if let Some(text) = &mut policies {
                    text.push_str(line);
                    text.push('\n');
                }
            }
            (Some("console"), _) => match line.strip_prefix("$ ") {
                Some(command) => {
                    let command = command.to_owned();
                    steps.push((policies.clone(), Step { line: number + 1, command, output: Vec::new() }));
                }
                None => {
                    let (_, step) = steps.last_mut().expect("output follows a command");
                    step.output.push(line.to_owned());
                }
            },
            _ => {}
        }
    }
    steps
}

/// Whether the output is as shown; else the first line shown that is not there.
fn matches(shown: &[String], output: &str) -> Result<(), String> {
    let mut lines = output.lines().map(str::trim_end);
    let (mut may_skip, mut is_cut) = (false, false);
    for expected in shown.iter().map(|line| line.trim_end()) {
        if expected == "…" {
            (may_skip, is_cut) = (true, false);
            continue;
        }
        is_cut |= expected.ends_with('…');
        let start = expected.trim_end_matches('…').trim_end();
        let is_it = |line: &str| if is_cut { line.starts_with(start) } else { line == expected };
        let found = if may_skip { lines.any(is_it) } else { lines.next().is_some_and(is_it) };
        if !found {
            return Err(expected.to_owned());
        }
        may_skip = false;
    }
    match lines.next() {
        Some(line) if !may_skip && !shown.is_empty() => Err(format!("the end, and not {line:?}")),
        _ => Ok(()),
    }
}

fn check(document: &str) {
    let text = fs::read_to_string(root().join(document)).expect("a document");
    let folder = readers_folder();
    let binary = Path::new(env!("CARGO_BIN_EXE_condenser"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(binary.parent().expect("a folder").to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).expect("a PATH");
    for (policies, Step { line, command, output: shown }) in steps(&text) {
        let command = command.replace("cargo run --release -- ", "condenser ");
        let is_ours = command.starts_with("condenser ");
        if !is_ours || ELSEWHERE.iter().any(|elsewhere| command.contains(elsewhere)) {
            continue;
        }
        if let Some(policies) = policies {
            fs::write(folder.path().join("policies.toml"), policies).expect("a file");
        }
        let exit = command.rsplit_once("# exit ").map_or(0, |(_, code)| code.trim().parse().expect("an exit code"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(folder.path()).env("PATH", &path).env("HOME", folder.path());
        let ran = shell.output().expect("sh runs");
        let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert_eq!(ran.status.code(), Some(exit), "{document}, line {line}: `{command}`\n{stdout}{stderr}");
        if let Err(missing) = matches(&shown, &stdout) {
            panic!("{document}, line {line}: `{command}` does not print\n{missing}\nbut\n{stdout}");
        }
    }
}

#[test]
fn the_readme() {
    check("README.md");
}

#[test]
fn the_tutorial() {
    check("docs/TUTORIAL.md");
}

#[test]
fn a_format_a_policy_a_metric() {
    check("docs/EXTENDING.md");
}

#[test]
fn all_other_documents() {
    let entries = fs::read_dir(root().join("docs")).expect("the documents");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".md") && !["TUTORIAL.md", "EXTENDING.md"].contains(&name.as_str()));
    names.sort();
    for name in names {
        check(&format!("docs/{name}"));
    }
}

#[test]
fn output_is_compared_line_by_line() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let printed = "one\ntwo  \nthree and more\nfour\n";
    for shown in
        ["one\ntwo\nthree …\n…", "one …\ntwo\nthree\nfo", "…\nfour", "…\nthree and more\nfour", "", "one\n…\nfour"]
    {
        assert_eq!(matches(&lines(shown), printed), Ok(()), "{shown:?}");
    }
    for shown in ["two", "one\nthree and more\nfour", "…\nfive", "one\n…\nthree", "one\ntwo\nthree …"] {
        assert!(matches(&lines(shown), printed).is_err(), "{shown:?}");
    }
}
