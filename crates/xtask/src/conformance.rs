//! Recorded answers of the real peers, against ours.
//!
//! Each suite is a file of cases, a JSON object a line; its driver is a module beside this one. A driver gives what
//! a case expects and what we answer; everything else is here.

mod cline;
mod deepagents;
mod freecode;
mod opencode;
mod openhands;
mod openhands_condense;
mod openhands_v0;
mod others;
mod pi;
mod powercode;
mod script;
mod swe_agent;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

/// Failures shown per file.
const SHOWN_FAILURES: usize = 3;
/// Characters shown of an expected or given answer.
const SHOWN_CHARACTERS: usize = 600;

/// What a case expects and what we answer.
struct Answer {
    expected: Value,
    got: Value,
}

type Driver = fn(&Value) -> Answer;

/// The driver of a suite, by its path under the folder, without `.jsonl`.
fn driver(suite: &str) -> Option<Driver> {
    Some(match suite {
        "openhands/view" => openhands::view,
        "openhands/append" => openhands::append,
        "openhands/messages" => openhands::messages,
        "openhands/branch" => openhands::branch,
        "openhands/condense" => openhands_condense::condense,
        "openhands/indices" => openhands::indices_suite,
        "openhands-v0/view" => openhands_v0::view,
        "openhands-v0/condense" => openhands_v0::condense,
        "sweagent" => swe_agent::process,
        "powercode" => powercode::memory,
        "freecode" => freecode::freecode,
        "cline" => cline::cline,
        _ if suite.starts_with("deepagents/") => deepagents::deepagents,
        "adk" => others::adk,
        "anthropic-clear-tool-uses" => others::anthropic,
        "codex" => others::codex,
        "complexity-trap" => others::complexity_trap,
        "craft" | "hybrid" => others::native,
        "opencode-v1" => opencode::v1,
        "opencode-v2" => opencode::v2,
        _ if suite.starts_with("pi/v1/") => pi::v1,
        _ if suite.starts_with("pi/") => pi::v0,
        _ => return None,
    })
}

/// Runs all suites under a folder. Without one: the recorded suites, where they are, and those of the repository, which
/// hold the cases written by hand. Whether no case failed.
pub(crate) fn command(dir: Option<PathBuf>) -> anyhow::Result<bool> {
    if let Some(dir) = dir {
        return folder(&dir);
    }
    let recorded = crate::shared()?.join("conformance");
    let mut passes = true;
    if recorded.is_dir() {
        passes &= folder(&recorded)?;
    } else {
        println!("skipped: no recorded suites; set CONDENSER_SHARED to the folder that holds `conformance`");
    }
    println!("in the repository:");
    Ok(folder(&crate::root().join("fixtures/conformance"))? && passes)
}

fn folder(dir: &Path) -> anyhow::Result<bool> {
    anyhow::ensure!(dir.is_dir(), "{} is not a folder", dir.display());
    let mut files = Vec::new();
    find(dir, &mut files)?;
    files.sort();
    anyhow::ensure!(!files.is_empty(), "no .jsonl file under {}", dir.display());
    let mut passes = true;
    for file in files {
        passes &= run(dir, &file)?;
    }
    Ok(passes)
}

fn find(dir: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    Ok(())
}

fn run(dir: &Path, file: &Path) -> anyhow::Result<bool> {
    let suite = file.strip_prefix(dir)?.with_extension("").to_string_lossy().replace('\\', "/");
    let Some(driver) = driver(&suite) else {
        println!("{suite} not implemented");
        return Ok(true);
    };
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let (mut passed, mut total) = (0, 0);
    let mut failures = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let case: Value =
            serde_json::from_str(line).with_context(|| format!("{}:{}: not JSON", file.display(), number + 1))?;
        let answer = driver(&case);
        total += 1;
        if answer.expected == answer.got {
            passed += 1;
        } else {
            let id = case["id"].as_str().map_or_else(|| format!("line {}", number + 1), str::to_owned);
            failures.push((id, answer));
        }
    }
    println!("{suite} {passed}/{total}");
    for (id, answer) in failures.iter().take(SHOWN_FAILURES) {
        println!("  {id}\n    expected {}\n    got      {}", shorten(&answer.expected), shorten(&answer.got));
    }
    if failures.len() > SHOWN_FAILURES {
        println!("  and {} more", failures.len() - SHOWN_FAILURES);
    }
    Ok(failures.is_empty())
}

fn shorten(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_cases_in_the_repository_pass() {
        let dir = crate::root().join("fixtures/conformance");
        assert!(super::command(Some(dir)).unwrap());
    }
}
