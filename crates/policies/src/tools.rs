//! What a tool call did, read off its arguments and its result, whatever the tool is called.
//!
//! **Files.** A string under one of [`PATH_KEYS`], or each string of a list under it, is a path: one line, at most
//! 300 bytes. Headers of patches (`*** Update File: p`, `*** Add File: p`, `+++ b/p`) in any argument name paths too.
//! A call creates where its subcommand or its tool's name says create or write; it edits where the name says so or
//! the arguments hold new content ([`CONTENT_KEYS`]); else it reads. A tool's subcommand is a `command` of one word
//! beside a path, a list or an object.
//!
//! **Commands.** Text, or a list of words, under one of [`COMMAND_KEYS`], unless it is such a subcommand. A shell's
//! `bash -lc` in front of a list is left out.
//!
//! **Outcome.** The stored outcome; where it is `ok`, the last `exit code`, `exit status` or `returncode` with a
//! number behind it in the last 500 bytes of the result, or in its first 200.
//!
//! **Errors.** Of a failed result the lines that name an error, else its last line; of another result only lines that
//! begin as error messages of compilers, shells and interpreters do.

use condenser::event::Outcome;
use serde_json::Value;

const PATH_KEYS: &[&str] = &[
    "path",
    "paths",
    "file_path",
    "filepath",
    "filePath",
    "filename",
    "file_name",
    "file",
    "files",
    "notebook_path",
    "absolute_path",
    "target_file",
    "relative_path",
];
const COMMAND_KEYS: &[&str] = &["command", "cmd", "commands", "code", "script", "keystrokes"];
const CONTENT_KEYS: &[&str] = &[
    "content",
    "contents",
    "file_text",
    "new_str",
    "new_string",
    "newText",
    "new_content",
    "insert_text",
    "edits",
    "patch",
    "diff",
    "replacement",
    "replacement_text",
    "code_edit",
];
const MAX_PATH: usize = 300;

/// What a call does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Use {
    Read,
    Edited,
    Created,
}

/// What a call does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) files: Vec<(Use, String)>,
    pub(crate) command: Option<String>,
}

impl Call {
    pub(crate) fn of(tool: &str, arguments: &str) -> Self {
        let mut call = Self::default();
        let Ok(arguments) = serde_json::from_str::<Value>(arguments) else { return call };
        // Some tools take a single text, and some models send one.
        let Value::Object(map) = &arguments else {
            call.patched(&arguments);
            return call;
        };
        let paths: Vec<&str> = PATH_KEYS.iter().filter_map(|key| map.get(*key)).flat_map(strings).collect();
        let command = COMMAND_KEYS.iter().find_map(|key| words(map.get(*key)?));
        let is_subcommand = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        let has_object = !paths.is_empty()
            || map
                .iter()
                .any(|(key, value)| !COMMAND_KEYS.contains(&key.as_str()) && (value.is_array() || value.is_object()));
        let subcommand = command.as_deref().filter(|text| has_object && is_subcommand(text));
        let tool = tool.to_ascii_lowercase();
        let says = |words: &[&str]| {
            words.iter().any(|word| match subcommand {
                Some(subcommand) => subcommand.contains(word),
                None => tool.contains(word),
            })
        };
        let has_content = CONTENT_KEYS.iter().any(|key| map.contains_key(*key));
        let used = if says(&["create", "write"]) {
            Use::Created
        } else if has_content && !says(&["view", "read"]) || says(&["edit", "replace", "insert", "patch"]) {
            Use::Edited
        } else {
            Use::Read
        };
        call.files = paths
            .into_iter()
            .filter(|path| !path.trim().is_empty() && path.len() <= MAX_PATH && !path.contains('\n'))
            .map(|path| (used, path.to_owned()))
            .collect();
        if subcommand.is_none() {
            call.command = command;
        }
        for value in map.values() {
            call.patched(value);
        }
        call
    }

    /// Adds the files that the headers of a patch name.
    fn patched(&mut self, value: &Value) {
        let Some(text) = value.as_str() else { return };
        if !text.contains("*** ") && !text.contains("+++ ") {
            return;
        }
        for line in text.lines().filter(|line| line.len() <= MAX_PATH) {
            let file = if let Some(path) = line.strip_prefix("*** Add File: ") {
                (Use::Created, path)
            } else if let Some(path) =
                line.strip_prefix("*** Update File: ").or_else(|| line.strip_prefix("*** Delete File: "))
            {
                (Use::Edited, path)
            } else if let Some(path) = line.strip_prefix("+++ b/") {
                (Use::Edited, path)
            } else {
                continue;
            };
            self.files.push((file.0, file.1.trim().to_owned()));
        }
    }
}

fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn words(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Array(_) => {
            let words = strings(value);
            let words = match words.as_slice() {
                [shell, flag, rest @ ..] if shell.ends_with("sh") && flag.starts_with('-') && !rest.is_empty() => rest,
                words => words,
            };
            words.join(" ").trim().to_owned()
        }
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Ok,
    Error,
    Rejected,
    Exit(u64),
}

impl Ended {
    pub(crate) fn of(outcome: Outcome, text: &str) -> Self {
        match (outcome, exit_code(text)) {
            (Outcome::Rejected, _) => Self::Rejected,
            (_, Some(code)) if code != 0 => Self::Exit(code),
            (Outcome::Error, _) => Self::Error,
            _ => Self::Ok,
        }
    }

    pub(crate) fn is_ok(&self) -> bool {
        *self == Self::Ok
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Error => f.write_str("error"),
            Self::Rejected => f.write_str("refused"),
            Self::Exit(code) => write!(f, "exit {code}"),
        }
    }
}

fn exit_code(text: &str) -> Option<u64> {
    let tail = &text[text.floor_char_boundary(text.len().saturating_sub(500))..];
    let head = &text[..text.floor_char_boundary(200)];
    [tail, head].into_iter().find_map(|part| {
        let part = part.to_ascii_lowercase();
        let number = |at: usize| {
            let rest = part[at..].trim_start_matches([':', '=', ' ', '>', '"', '\'']);
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            rest[..digits].parse::<u64>().ok()
        };
        ["exit code", "exit_code", "exitcode", "exit status", "returncode", "exited with code"]
            .iter()
            .flat_map(|word| part.match_indices(word).map(|(at, word)| at + word.len()))
            .filter_map(|at| Some((at, number(at)?)))
            .max()
            .map(|(_, code)| code)
    })
}

const NAMED: &[&str] =
    &["error", "exception", "panicked", "fatal", "failed", "failure", "not found", "no such file", "denied", "cannot"];
const BEGINS: &[&str] = &["error:", "error[", "fatal:", "fatal error", "panicked at", "e   ", "assertionerror"];

/// At most `max` lines that say what went wrong, as written.
pub(crate) fn error_lines<'t>(text: &'t str, ended: &Ended, max: usize) -> Vec<&'t str> {
    let lines = || text.lines().map(str::trim_end).filter(|line| !line.trim().is_empty());
    let mut found: Vec<&str> = Vec::new();
    for line in lines() {
        if found.len() == max {
            break;
        }
        let lower = line[..line.floor_char_boundary(400)].trim_start().to_ascii_lowercase();
        let begins = BEGINS.iter().any(|word| lower.starts_with(word)) || begins_with_exception(&lower);
        let names = !ended.is_ok() && NAMED.iter().any(|word| lower.contains(word));
        if (begins || names) && !found.contains(&line) {
            found.push(line);
        }
    }
    if found.is_empty() && !ended.is_ok() && max > 0 {
        found.extend(lines().next_back());
    }
    found
}

/// `SomethingError: …` and `SomethingException: …`.
fn begins_with_exception(lower: &str) -> bool {
    lower.split_once(": ").is_some_and(|(name, _)| {
        (name.ends_with("error") || name.ends_with("exception")) && !name.contains(char::is_whitespace)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_commands_are_read_off_arguments_of_many_tools() {
        use Use::{Created, Edited, Read};
        type Expected = (&'static [(Use, &'static str)], Option<&'static str>);
        let cases: &[(&str, &str, Expected)] = &[
            ("bash", r#"{"command": "cargo test"}"#, (&[], Some("cargo test"))),
            ("shell", r#"{"command": ["bash", "-lc", "ls -l"]}"#, (&[], Some("ls -l"))),
            ("Read", r#"{"file_path": "/a.rs"}"#, (&[(Read, "/a.rs")], None)),
            ("Write", r#"{"file_path": "/a.rs", "content": "x"}"#, (&[(Created, "/a.rs")], None)),
            ("Edit", r#"{"file_path": "/a.rs", "new_string": "x"}"#, (&[(Edited, "/a.rs")], None)),
            ("str_replace_editor", r#"{"command": "view", "path": "/a"}"#, (&[(Read, "/a")], None)),
            (
                "str_replace_editor",
                r#"{"command": "create", "path": "/a", "file_text": ""}"#,
                (&[(Created, "/a")], None),
            ),
            (
                "str_replace_editor",
                r#"{"command": "str_replace", "path": "/a", "new_str": ""}"#,
                (&[(Edited, "/a")], None),
            ),
            ("run", r#"{"cmd": "ls", "path": "x y"}"#, (&[(Read, "x y")], None)),
            ("grep", r#"{"paths": ["a", "b"], "pattern": "x"}"#, (&[(Read, "a"), (Read, "b")], None)),
            (
                "apply_patch",
                r#"{"input": "*** Begin Patch\n*** Add File: n.rs\n*** Update File: o.rs\n"}"#,
                (&[(Created, "n.rs"), (Edited, "o.rs")], None),
            ),
            ("task_tracker", r#"{"command": "plan", "task_list": [1]}"#, (&[], None)),
            ("bash", "{broken", (&[], None)),
            ("bash", r#"{"command": 3, "path": "", "file": {"a": 1}}"#, (&[], None)),
        ];
        for (tool, arguments, (files, command)) in cases {
            let call = Call::of(tool, arguments);
            let got: Vec<(Use, &str)> = call.files.iter().map(|(used, path)| (*used, path.as_str())).collect();
            assert_eq!((got.as_slice(), call.command.as_deref()), (*files, *command), "{tool} {arguments}");
        }
    }

    #[test]
    fn the_outcome_of_a_command_is_found_in_its_result() {
        let cases = [
            (Outcome::Ok, "fine", Ended::Ok),
            (Outcome::Ok, "x\n[The command completed with exit code 2.]", Ended::Exit(2)),
            (Outcome::Ok, "<returncode>1</returncode>\nout", Ended::Exit(1)),
            (Outcome::Error, "Exit code 127\nnot found", Ended::Exit(127)),
            (Outcome::Error, "exit code: 0", Ended::Error),
            (Outcome::Rejected, "no", Ended::Rejected),
            (Outcome::Ok, "exit code of é", Ended::Ok),
        ];
        for (outcome, text, expected) in cases {
            assert_eq!(Ended::of(outcome, text), expected, "{text}");
        }
    }

    #[test]
    fn error_lines_are_exact_and_few() {
        let text =
            "   Compiling x\nerror[E0308]: mismatched types\n --> src/a.rs:3\n\nerror: aborting\nerror: aborting\n";
        assert_eq!(error_lines(text, &Ended::Exit(101), 3), ["error[E0308]: mismatched types", "error: aborting"]);
        assert_eq!(error_lines("no errors found\nall well", &Ended::Ok, 3), [""; 0]);
        assert_eq!(error_lines("a\nValueError: bad\nb", &Ended::Ok, 3), ["ValueError: bad"]);
        assert_eq!(error_lines("a\nlast\n", &Ended::Error, 3), ["last"]);
    }
}
