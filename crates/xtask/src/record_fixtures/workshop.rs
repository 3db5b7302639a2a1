//! The scratch folder where a scenario's commands really run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::scenario::Op;

/// The folder that traces show in place of the scratch folder.
pub(crate) const ROOT: &str = "/workspace";

/// A scratch folder with one program in it.
#[derive(Debug)]
pub(crate) struct Workshop {
    _scratch: TempDir,
    root: PathBuf,
    program: String,
}

/// What a tool answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) is_error: bool,
    /// Of a command.
    pub(crate) exit_code: i32,
    /// Of a read: first line shown, lines in the file.
    pub(crate) lines: Option<(usize, usize)>,
}

impl Answer {
    fn ok(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    fn error(text: String) -> Self {
        Self { text, is_error: true, exit_code: 1, lines: None }
    }
}

impl Workshop {
    /// Creates the folder and writes the starting files.
    pub(crate) fn new(program: &str, files: &[(String, String)]) -> Result<Self> {
        let scratch = tempfile::tempdir().context("no scratch folder")?;
        let root = scratch.path().canonicalize()?;
        let workshop = Self { _scratch: scratch, root, program: program.to_owned() };
        fs::create_dir_all(workshop.home())?;
        for (path, text) in files {
            workshop.write(path, text)?;
        }
        Ok(workshop)
    }

    fn home(&self) -> PathBuf {
        self.root.join(&self.program)
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let target = self.home().join(path);
        fs::create_dir_all(target.parent().unwrap_or(Path::new(".")))?;
        fs::write(&target, text).with_context(|| format!("cannot write {path}"))
    }

    /// Runs a call and returns what the tool says, in terms of [`ROOT`].
    pub(crate) fn perform(&self, op: &Op, micros: u64) -> Result<Answer> {
        match op {
            Op::Run { command, .. } => self.run(command, micros),
            Op::View { path, range } => Ok(self.view(path, *range)),
            Op::Write { path, text } => {
                let existed = self.home().join(path).exists();
                self.write(path, text)?;
                let verb = if existed { "overwrote" } else { "created" };
                Ok(Answer::ok(format!("{verb} {} ({} lines)", self.shown(path), text.lines().count())))
            }
            Op::Edit { path, old, new } => self.edit(path, old, new),
            Op::Bad { error, .. } => Ok(Answer::error(error.clone())),
        }
    }

    /// The path as the trace shows it.
    pub(crate) fn shown(&self, path: &str) -> String {
        shown(&self.program, path)
    }

    /// Runs a shell command in the program's folder, output and errors in one stream.
    pub(crate) fn run(&self, command: &str, micros: u64) -> Result<Answer> {
        let root = self.root.to_str().context("the scratch folder's path is not UTF-8")?;
        let script = format!("exec 2>&1\n{}", command.replace(ROOT, root));
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(script).current_dir(self.home()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let foreign = (text.starts_with("CARGO") && text != "CARGO_HOME")
                || (text.starts_with("RUST") && !text.starts_with("RUSTUP"))
                || ["GIT_", "LC_", "LD_"].iter().any(|prefix| text.starts_with(prefix));
            if foreign {
                shell.env_remove(&name);
            }
        }
        let date = format!("@{} +0000", micros / 1_000_000);
        shell
            .envs([("LC_ALL", "C.UTF-8"), ("TZ", "UTC"), ("TERM", "dumb"), ("CARGO_TERM_COLOR", "never")])
            .envs([("CARGO_NET_OFFLINE", "true"), ("CARGO_INCREMENTAL", "0"), ("RUST_BACKTRACE", "0")])
            .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_PAGER", "cat")])
            .envs([("GIT_AUTHOR_NAME", "agent"), ("GIT_AUTHOR_EMAIL", "agent@example.com")])
            .envs([("GIT_COMMITTER_NAME", "agent"), ("GIT_COMMITTER_EMAIL", "agent@example.com")])
            .envs([("GIT_AUTHOR_DATE", &date), ("GIT_COMMITTER_DATE", &date)])
            .env("CARGO_TARGET_DIR", self.root.join("target"));
        let output = shell.output().context("cannot start sh")?;
        let text = normalise(&String::from_utf8_lossy(&output.stdout).replace(root, ROOT));
        let exit_code = output.status.code().unwrap_or(-1);
        Ok(Answer { text, is_error: exit_code != 0, exit_code, lines: None })
    }

    fn view(&self, path: &str, range: Option<(usize, usize)>) -> Answer {
        let Ok(text) = fs::read_to_string(self.home().join(path)) else {
            return Answer::error(format!("no such file: {}", self.shown(path)));
        };
        let total = text.lines().count();
        let (from, to) = range.unwrap_or((1, total));
        let mut shown = String::new();
        for (index, line) in text.lines().enumerate().skip(from - 1).take((to + 1).saturating_sub(from)) {
            shown.push_str(&format!("{:>6}\t{line}\n", index + 1));
        }
        Answer { text: shown, lines: Some((from, total)), ..Answer::default() }
    }

    fn edit(&self, path: &str, old: &str, new: &str) -> Result<Answer> {
        let name = self.shown(path);
        let Ok(text) = fs::read_to_string(self.home().join(path)) else {
            return Ok(Answer::error(format!("no such file: {name}")));
        };
        match text.matches(old).count() {
            0 => Ok(Answer::error(format!("{name}: the text to replace does not occur; nothing was changed"))),
            1 => {
                let line = text.split(old).next().map_or(1, |head| head.matches('\n').count() + 1);
                self.write(path, &text.replacen(old, new, 1))?;
                Ok(Answer::ok(format!("{name}: replaced 1 occurrence at line {line}")))
            }
            n => Ok(Answer::error(format!("{name}: the text to replace occurs {n} times; nothing was changed"))),
        }
    }

    /// Runs a command that must succeed and is not part of the trace.
    pub(crate) fn prepare(&self, command: &str, micros: u64) -> Result<String> {
        let answer = self.run(command, micros)?;
        ensure!(!answer.is_error, "`{command}` ended with {}: {}", answer.exit_code, answer.text);
        Ok(answer.text)
    }
}

/// A path of the program as a trace shows it.
pub(crate) fn shown(program: &str, path: &str) -> String {
    format!("{ROOT}/{program}/{path}")
}

/// Replaces what differs from run to run: durations, build hashes and thread ids.
fn normalise(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    // Another cargo on the same machine must not show.
    for line in text.split_inclusive('\n').filter(|line| !line.contains("Blocking waiting for file lock")) {
        result.push_str(&normalise_line(line));
    }
    result
}

fn normalise_line(line: &str) -> String {
    let mut line = line.to_owned();
    // "finished in 0.02s", "target(s) in 1.40s"
    if let Some(at) = line.rfind(" in ") {
        let (head, tail) = line.split_at(at + 4);
        let number = tail.trim_end().trim_end_matches('s');
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            line = format!("{head}0.00s{}", &tail[tail.trim_end().len()..]);
        }
    }
    // "target/debug/deps/name-0123456789abcdef"
    if let Some(at) = line.find("/deps/")
        && let Some(dash) = line[at..].find('-').map(|offset| at + offset + 1)
        && line.as_bytes().get(dash..dash + 16).is_some_and(|hash| hash.iter().all(u8::is_ascii_hexdigit))
    {
        line.replace_range(dash..dash + 16, "0000000000000000");
    }
    // "thread 'name' (1234) panicked at"
    if line.starts_with("thread '")
        && let (Some(open), Some(close)) = (line.find("' ("), line.find(") panicked"))
        && open < close
    {
        line.replace_range(open + 1..close + 1, "");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_made_equal() {
        let check = |line: &str, expected: &str| assert_eq!(normalise_line(line), expected);
        check("test result: ok. 3 passed; finished in 0.13s\n", "test result: ok. 3 passed; finished in 0.00s\n");
        check("thread 'a::b' (4711) panicked at src/lib.rs:3:5:\n", "thread 'a::b' panicked at src/lib.rs:3:5:\n");
        check("x (target/debug/deps/ab-0123456789abcdef)", "x (target/debug/deps/ab-0000000000000000)");
        check("written in haste\n", "written in haste\n");
    }

    #[test]
    fn an_edit_needs_its_text_exactly_once() {
        let workshop = Workshop::new("demo", &[("a".to_owned(), "x\ny\nx\n".to_owned())]).unwrap();
        let check = |old: &str, is_error: bool| assert_eq!(workshop.edit("a", old, "z").unwrap().is_error, is_error);
        check("x", true);
        check("w", true);
        check("y", false);
        assert_eq!(workshop.view("a", Some((2, 2))).text, "     2\tz\n");
    }
}
