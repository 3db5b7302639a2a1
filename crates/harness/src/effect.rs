//! What a tool call reads and writes, as far as its name and arguments tell.
//!
//! Three outcomes: it *reads* a target (so doing the same again is a re-read), it *writes* known files, or its effect
//! is unknown. When in doubt the effect is unknown: an unknown effect voids every earlier read, so doubt can only hide
//! re-reads, never invent them.
//!
//! - Readers by tool name: file viewers, searches and listings. The key is the tool, its cleaned path, and all other
//!   arguments except those that only describe the call (`description`, `timeout`, ...).
//! - Writers by tool name: editors and file writers, with their path argument; without one the effect is unknown.
//! - Planning, thinking, fetching and finishing tools touch no files.
//! - Shells: the command is split at `&&`, `||`, `;`, `|` and newlines. It reads if every part is a known reading
//!   command without redirection into a file. `rm`, `mv`, `cp`, `touch`, `mkdir`, `tee`, `sed -i` and redirections
//!   write the paths they name. Substitutions, here-documents, background jobs, git commands other than the reading
//!   ones and all other programs have unknown effects. The folder that `cd` last went to belongs to the key.
//! - Any other tool has an unknown effect.
//!
//! A write voids reads of the same file (paths are compared from their end, since one may be relative) and all
//! searches and listings.

use serde_json::{Map, Value};

/// What a call does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It reads. Two calls with equal keys show the same as long as no target is written.
    Read { key: String, targets: Targets },
    /// It writes these files.
    Write(Vec<String>),
    /// It touches no files and shows none.
    Nothing,
    /// Anything.
    Unknown,
}

/// What a read depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    /// Single files.
    Files(Vec<String>),
    /// A whole tree: any write may change the answer.
    Tree,
}

impl Targets {
    /// Whether a write of `written` may change what was read.
    pub(crate) fn depends_on(&self, written: &[String]) -> bool {
        match self {
            Self::Tree => true,
            Self::Files(files) => files.iter().any(|file| written.iter().any(|other| may_be_same(file, other))),
        }
    }
}

/// Whether two paths may name one file, or one a folder above the other.
fn may_be_same(a: &str, b: &str) -> bool {
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|rest| rest.is_empty() || rest.ends_with('/') || short.starts_with('/'))
    };
    let below = |path: &str, folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    a == "." || b == "." || ends(a, b) || ends(b, a) || below(a, b) || below(b, a)
}

/// Tells effects, call by call: remembers the folder of the shell.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    folder: String,
}

const SHELLS: &[&str] = &[
    "bash",
    "execute_bash",
    "terminal",
    "shell",
    "run_command",
    "execute_command",
    "run_shell_command",
    "local_shell",
    "run_terminal_cmd",
    "exec_command",
    "cmd",
    "execute",
];
const FILE_READERS: &[&str] =
    &["read", "read_file", "readfile", "view", "view_file", "cat", "open_file", "notebookread"];
const TREE_READERS: &[&str] = &[
    "grep",
    "glob",
    "ls",
    "find",
    "search",
    "search_files",
    "search_dir",
    "search_file",
    "find_file",
    "list_files",
    "list_dir",
    "list_directory",
    "codebase_search",
    "grep_search",
    "file_search",
    "list_code_definition_names",
];
const WRITERS: &[&str] = &[
    "edit",
    "write",
    "multiedit",
    "multi_edit",
    "edit_file",
    "write_file",
    "write_to_file",
    "replace_in_file",
    "create_file",
    "search_replace",
    "replace",
    "notebookedit",
    "str_replace",
    "insert",
    "create",
    "delete_file",
];
/// One tool, several commands.
const EDITORS: &[&str] =
    &["str_replace_editor", "str_replace_based_edit_tool", "file_editor", "edit_anthropic", "text_editor"];
const HARMLESS: &[&str] = &[
    "think",
    "finish",
    "submit",
    "todowrite",
    "todoread",
    "todo",
    "task_tracker",
    "update_plan",
    "plan",
    "exit_plan_mode",
    "exitplanmode",
    "ask_followup_question",
    "askuserquestion",
    "attempt_completion",
    "webfetch",
    "web_fetch",
    "websearch",
    "web_search",
    "fetch",
    "toolsearch",
    "goto",
    "scroll_up",
    "scroll_down",
];
const PATHS: &[&str] =
    &["path", "file_path", "filepath", "filePath", "target_file", "relative_path", "notebook_path", "file"];
/// Arguments that say nothing about what is read.
const REMARKS: &[&str] = &[
    "description",
    "timeout",
    "timeout_ms",
    "security_risk",
    "summary",
    "explanation",
    "thought",
    "is_input",
    "reset",
];

impl Effects {
    /// What a call with this name and these arguments does.
    pub(crate) fn of(&mut self, tool: &str, arguments: &str) -> Effect {
        let tool = tool.to_ascii_lowercase();
        let is = |names: &[&str]| names.contains(&tool.as_str());
        if is(HARMLESS) {
            return Effect::Nothing;
        }
        let Ok(Value::Object(arguments)) = serde_json::from_str::<Value>(arguments) else { return Effect::Unknown };
        let path = PATHS.iter().find_map(|key| arguments.get(*key)?.as_str()).map(clean_path);
        if is(SHELLS) {
            let Some(command) = command_text(&arguments) else { return Effect::Unknown };
            return self.shell(&tool, &command);
        }
        let reads = is(FILE_READERS) || is(EDITORS) && arguments.get("command").and_then(Value::as_str) == Some("view");
        if reads {
            let Some(path) = path else { return Effect::Unknown };
            return Effect::Read { key: key(&tool, &path, arguments), targets: Targets::Files(vec![path]) };
        }
        if is(TREE_READERS) {
            return Effect::Read { key: key(&tool, &path.unwrap_or_default(), arguments), targets: Targets::Tree };
        }
        match path {
            Some(path) if is(WRITERS) || is(EDITORS) => Effect::Write(vec![path]),
            _ => Effect::Unknown,
        }
    }

    fn shell(&mut self, tool: &str, command: &str) -> Effect {
        let Some(parts) = split(command) else {
            // Wherever it went, the folder is not known any more.
            self.folder.push('?');
            return Effect::Unknown;
        };
        let folder = self.folder.clone();
        let mut read = Targets::Files(Vec::new());
        let mut written = Vec::new();
        let mut is_unknown = false;
        let mut shows = false;
        for part in &parts {
            match self.simple(part) {
                Simple::Nothing => {}
                Simple::Unknown => is_unknown = true,
                Simple::Read(targets) => {
                    shows = true;
                    match (&mut read, targets) {
                        (Targets::Files(all), Targets::Files(files)) => all.extend(files),
                        (read, _) => *read = Targets::Tree,
                    }
                }
                Simple::Write(files) => written.extend(files),
            }
            written.extend(part.outputs.iter().map(|path| clean_path(path)));
        }
        if is_unknown {
            Effect::Unknown
        } else if !written.is_empty() {
            Effect::Write(written)
        } else if shows {
            let words: Vec<String> = parts.iter().map(|part| part.words.join("\u{1f}")).collect();
            Effect::Read { key: format!("{tool}\n{folder}\n{}", words.join("\n")), targets: read }
        } else {
            Effect::Nothing
        }
    }

    fn simple(&mut self, part: &Part) -> Simple {
        let Some((program, words)) = part.words.split_first() else { return Simple::Nothing };
        let plain = || words.iter().filter(|word| !word.starts_with('-'));
        let paths = || plain().map(|word| clean_path(word)).collect::<Vec<_>>();
        match program.as_str() {
            "cd" => {
                match words.first() {
                    Some(to) if to.starts_with('/') || to.starts_with('~') => self.folder = clean_path(to),
                    Some(to) => self.folder = format!("{}/{}", self.folder, clean_path(to)),
                    None => self.folder = "~".to_owned(),
                }
                Simple::Nothing
            }
            "echo" | "printf" | "pwd" | "true" | "which" | "date" | "whoami" | "sleep" | "set" => Simple::Nothing,
            "cat" | "head" | "tail" | "nl" | "wc" | "less" | "more" | "file" | "stat" | "md5sum" | "sha256sum"
            | "open" | "diff" | "cut" | "uniq" | "tr" | "jq" => Simple::Read(Targets::Files(paths())),
            // `sort -o` writes.
            "sort" if !words.iter().any(|word| word.starts_with("-o") || word.starts_with("--output")) => {
                Simple::Read(Targets::Files(paths()))
            }
            "sed" if words.iter().any(|word| word.starts_with("-i") || word.starts_with("--in-place")) => {
                Simple::Write(paths())
            }
            "sed" if words.first().is_some_and(|word| word == "-n") && plain().next().is_some_and(|s| is_range(s)) => {
                Simple::Read(Targets::Files(plain().skip(1).map(|word| clean_path(word)).collect()))
            }
            "grep" | "egrep" | "rg" | "ag" | "ls" | "tree" | "du" | "search_dir" | "search_file" | "find_file" => {
                Simple::Read(Targets::Tree)
            }
            "find"
                if !words.iter().any(|word| {
                    word.starts_with("-exec") || word.starts_with("-ok") || word.starts_with("-f") || word == "-delete"
                }) =>
            {
                Simple::Read(Targets::Tree)
            }
            "git" => match words.iter().find(|word| !word.starts_with('-')).map(String::as_str) {
                Some("status" | "log" | "diff" | "show" | "blame" | "ls-files" | "grep") => Simple::Read(Targets::Tree),
                _ => Simple::Unknown,
            },
            "rm" | "mv" | "cp" | "touch" | "mkdir" | "rmdir" | "tee" | "ln" | "chmod" => Simple::Write(paths()),
            _ => Simple::Unknown,
        }
    }
}

enum Simple {
    Nothing,
    Unknown,
    Read(Targets),
    Write(Vec<String>),
}

/// Whether a sed script only prints lines: `10,20p`.
fn is_range(script: &str) -> bool {
    script.strip_suffix('p').is_some_and(|range| range.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '$')))
}

/// The command of a shell call; a list is what a shell is started with.
fn command_text(arguments: &Map<String, Value>) -> Option<String> {
    match arguments.get("command").or_else(|| arguments.get("cmd"))? {
        Value::String(command) => Some(command.clone()),
        Value::Array(words) => match words.as_slice() {
            [Value::String(shell), Value::String(flag), Value::String(command)]
                if shell.ends_with("sh") && matches!(flag.as_str(), "-c" | "-lc") =>
            {
                Some(command.clone())
            }
            _ => None,
        },
        _ => None,
    }
}

fn key(tool: &str, path: &str, mut arguments: Map<String, Value>) -> String {
    arguments
        .retain(|name, value| !PATHS.contains(&name.as_str()) && !REMARKS.contains(&name.as_str()) && !value.is_null());
    arguments.sort_keys();
    format!("{tool}\n{path}\n{}", Value::Object(arguments))
}

/// A path without `./`, doubled and trailing slashes.
fn clean_path(path: &str) -> String {
    let root = if path.starts_with('/') { "/" } else { "" };
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let joined = format!("{root}{}", parts.join("/"));
    if joined.is_empty() { ".".to_owned() } else { joined }
}

/// One program with its arguments, and the files its output goes to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    words: Vec<String>,
    outputs: Vec<String>,
}

/// The parts of a command line, or `None` where it does what cannot be told from its text.
fn split(command: &str) -> Option<Vec<Part>> {
    let mut parts = vec![Part::default()];
    let mut word: Option<String> = None;
    let mut redirects = false;
    let mut chars = command.trim().chars().peekable();
    let end_word = |parts: &mut Vec<Part>, word: &mut Option<String>, redirects: &mut bool| {
        if let Some(word) = word.take()
            && let Some(part) = parts.last_mut()
        {
            if !std::mem::take(redirects) {
                part.words.push(word);
            } else if word != "/dev/null" {
                part.outputs.push(word);
            }
        }
    };
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        '"' => break,
                        '$' | '`' => return None,
                        '\\' => word.push(chars.next()?),
                        c => word.push(c),
                    }
                }
            }
            '\\' => match chars.next()? {
                '\n' => {}
                c => word.get_or_insert_default().push(c),
            },
            '$' | '`' | '<' | '(' | ')' | '{' | '}' | '!' => return None,
            '>' => {
                // `2>` belongs to the redirection, `2>&1` joins two outputs.
                if word.as_deref().is_some_and(|word| matches!(word, "1" | "2")) {
                    word = None;
                }
                end_word(&mut parts, &mut word, &mut redirects);
                if chars.next_if_eq(&'&').is_some() {
                    chars.next_if(|c| c.is_ascii_digit())?;
                } else {
                    chars.next_if_eq(&'>');
                    redirects = true;
                }
            }
            '&' | '|' | ';' | '\n' => {
                end_word(&mut parts, &mut word, &mut redirects);
                let doubled = chars.next_if_eq(&c).is_some();
                if c == '&' && !doubled {
                    return None;
                }
                parts.push(Part::default());
            }
            '#' if word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            c if c.is_whitespace() => end_word(&mut parts, &mut word, &mut redirects),
            c => word.get_or_insert_default().push(c),
        }
    }
    end_word(&mut parts, &mut word, &mut redirects);
    if redirects {
        return None;
    }
    parts.retain(|part| !part.words.is_empty() || !part.outputs.is_empty());
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(command: &str) -> Effect {
        Effects::default().of("bash", &serde_json::json!({"command": command}).to_string())
    }

    #[test]
    fn shell_commands_have_effects() {
        let files = |names: &[&str]| Some(Targets::Files(names.iter().map(|name| (*name).to_owned()).collect()));
        for (command, targets) in [
            ("cat ./src//a.rs", files(&["src/a.rs"])),
            ("cat src/a.rs 2>/dev/null", files(&["src/a.rs"])),
            ("cat a.txt 2>&1 | head -5", files(&["a.txt"])),
            ("sed -n '1,20p' a.txt", files(&["a.txt"])),
            ("grep -rn foo .", Some(Targets::Tree)),
            ("cd /repo && git status", Some(Targets::Tree)),
            ("find . -name '*.rs'", Some(Targets::Tree)),
        ] {
            match shell(command) {
                Effect::Read { targets: found, .. } => assert_eq!(Some(found), targets, "{command}"),
                other => panic!("{command}: {other:?}"),
            }
        }
        for (command, files) in [
            ("cat a > b.txt", vec!["b.txt"]),
            ("echo x >> b.txt", vec!["b.txt"]),
            ("rm -f a b", vec!["a", "b"]),
            ("cat a.txt | tee copy", vec!["copy"]),
        ] {
            assert_eq!(shell(command), Effect::Write(files.into_iter().map(str::to_owned).collect()), "{command}");
        }
        for command in [
            "cargo test",
            "cat $(ls)",
            "cat <<EOF\nx\nEOF",
            "git checkout .",
            "find . -delete",
            "cat \"$FILE\"",
            "cat 'unclosed",
            "make &",
            "sed s/a/b/ x",
            "sed -n 'w out' x",
            "cat a >",
            "xargs rm",
            "sort -o a a",
        ] {
            assert!(!matches!(shell(command), Effect::Read { .. } | Effect::Nothing), "{command}");
        }
        assert_eq!(shell("cd /repo"), Effect::Nothing);
    }

    #[test]
    fn equal_reads_have_equal_keys() {
        let key = |tool: &str, arguments: &str| match Effects::default().of(tool, arguments) {
            Effect::Read { key, .. } => key,
            other => panic!("{tool} {arguments}: {other:?}"),
        };
        let same = [
            (
                r#"{"file_path": "./a.rs", "limit": 5, "offset": 1}"#,
                r#"{"offset": 1, "limit": 5, "file_path": "a.rs"}"#,
            ),
            (r#"{"path": "a.rs", "description": "look"}"#, r#"{"path": "a.rs"}"#),
        ];
        for (a, b) in same {
            assert_eq!(key("Read", a), key("read", b));
        }
        let different = [
            (("Read", r#"{"path": "a.rs", "limit": 5}"#), ("Read", r#"{"path": "a.rs"}"#)),
            (("Read", r#"{"path": "a.rs"}"#), ("view", r#"{"path": "a.rs"}"#)),
            (("bash", r#"{"command": "cat a"}"#), ("bash", r#"{"command": "cat 'a b'"}"#)),
        ];
        for (a, b) in different {
            assert_ne!(key(a.0, a.1), key(b.0, b.1));
        }
    }

    #[test]
    fn the_folder_of_the_shell_belongs_to_the_key() {
        let mut effects = Effects::default();
        let cat = r#"{"command": "cat a"}"#;
        let first = effects.of("bash", cat);
        assert_eq!(effects.of("bash", cat), first);
        effects.of("bash", r#"{"command": "cd src"}"#);
        assert_ne!(effects.of("bash", cat), first);
    }

    #[test]
    fn writes_void_reads_of_the_same_file() {
        let reads = Targets::Files(vec!["/repo/src/a.rs".to_owned()]);
        for (written, expected) in [
            ("src/a.rs", true),
            ("/repo/src/a.rs", true),
            ("/repo/src", true),
            (".", true),
            ("a.rs", true),
            ("b.rs", false),
            ("ra.rs", false),
            ("/other/src/a.rs", false),
        ] {
            assert_eq!(reads.depends_on(&[written.to_owned()]), expected, "{written}");
        }
    }

    #[test]
    fn tools_are_known_by_name() {
        let of = |tool: &str, arguments: &str| Effects::default().of(tool, arguments);
        assert!(matches!(of("file_editor", r#"{"command": "view", "path": "a"}"#), Effect::Read { .. }));
        assert_eq!(of("file_editor", r#"{"command": "create", "path": "a"}"#), Effect::Write(vec!["a".into()]));
        assert_eq!(of("Edit", r#"{"file_path": "a"}"#), Effect::Write(vec!["a".into()]));
        assert_eq!(of("apply_patch", r#"{"input": "x"}"#), Effect::Unknown);
        assert_eq!(of("think", "not json"), Effect::Nothing);
        assert_eq!(of("read", "not json"), Effect::Unknown);
        assert_eq!(of("mcp__server__do", "{}"), Effect::Unknown);
    }
}
