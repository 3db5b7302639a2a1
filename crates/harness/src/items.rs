//! What an action can use of what it was shown: identifiers and whole lines.
//!
//! - An *identifier* is a maximal run of `[A-Za-z0-9_./:@#+-]`, trimmed of `. : / -` at both ends. A run of digits
//!   has at least 4, a hexadecimal run at least 7 characters, any other at least 6; it holds a digit, one of
//!   `_ . / : @ # -`, or a capital after its first character.
//! - A *span* is a line of an argument of several lines, white space at both ends taken off, of at least 16
//!   characters.
//!
//! A text holds an identifier if one of its own maximal runs, trimmed the same way, is the identifier: whole tokens
//! only. It holds a span if one of its lines is the span; what tools put before the lines they show, a line number
//! or `path:number:`, may be taken off first.

use hashbrown::HashMap;
use serde_json::Value;

/// Identifies an item in an [`Items`].
pub(crate) type ItemId = u32;

/// The fewest characters of a span.
const MIN_SPAN: usize = 16;

/// The items that the actions of one trace use.
#[derive(Debug, Default)]
pub(crate) struct Items {
    ids: HashMap<Box<str>, ItemId>,
}

impl Items {
    fn intern(&mut self, item: &str) -> ItemId {
        if let Some(&id) = self.ids.get(item) {
            return id;
        }
        let id = self.ids.len() as ItemId;
        self.ids.insert(item.into(), id);
        id
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// By item: its text.
    pub(crate) fn texts(&self) -> Vec<&str> {
        let mut texts = vec![""; self.ids.len()];
        self.ids.iter().for_each(|(text, &id)| texts[id as usize] = text);
        texts
    }

    /// Adds the items of an action's arguments and returns them, each once, sorted.
    pub(crate) fn add_arguments(&mut self, arguments: &str) -> Vec<ItemId> {
        let mut found = Vec::new();
        match serde_json::from_str::<Value>(arguments) {
            Ok(value) => strings(&value, &mut |text| self.add_text(text, &mut found)),
            Err(_) => self.add_text(arguments, &mut found),
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    fn add_text(&mut self, text: &str, found: &mut Vec<ItemId>) {
        found.extend(runs(text).filter(|run| is_identifier(run)).map(|run| self.intern(run)));
        if text.trim_end_matches(['\r', '\n']).contains('\n') {
            let spans = text.lines().map(str::trim).filter(|line| is_span(line));
            found.extend(spans.map(|line| self.intern(line)));
        }
    }

    /// The known items that the strings of an action's arguments hold, in any order, possibly several times.
    pub(crate) fn held_by_arguments(&self, arguments: &str) -> Vec<ItemId> {
        let Ok(value) = serde_json::from_str::<Value>(arguments) else { return self.held_by(arguments) };
        let mut held = Vec::new();
        strings(&value, &mut |text| held.extend(self.held_by(text)));
        held
    }

    /// The known items that a text holds, each once, sorted.
    pub(crate) fn held_by(&self, text: &str) -> Vec<ItemId> {
        let mut held: Vec<ItemId> = runs(text).filter_map(|run| self.ids.get(run).copied()).collect();
        for line in text.lines() {
            let line = line.trim();
            let mut look_up = |line: &str| {
                if is_span(line) {
                    held.extend(self.ids.get(line));
                }
            };
            look_up(line);
            without_number(line).into_iter().for_each(&mut look_up);
            without_place(line).into_iter().for_each(&mut look_up);
        }
        held.sort_unstable();
        held.dedup();
        held
    }
}

/// Visits the strings of a value, keys left out.
fn strings(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(values) => values.iter().for_each(|value| strings(value, visit)),
        Value::Object(map) => map.values().for_each(|value| strings(value, visit)),
        _ => {}
    }
}

fn is_span(line: &str) -> bool {
    line.len() >= MIN_SPAN && line.chars().nth(MIN_SPAN - 1).is_some()
}

/// A line without the number before it: `12<tab>text`, `12→text`, `12|text`, `12: text`, `12  text`.
fn without_number(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let separator = rest.chars().next().filter(|c| matches!(c, '\t' | '→' | '|' | ':' | '-' | ' '))?;
    (rest.len() < line.len()).then(|| rest[separator.len_utf8()..].trim_start())
}

/// A line without the place before it, as search tools write it: `path:12:text`, `path-12-text`.
fn without_place(line: &str) -> Option<&str> {
    let (path, rest) = line.split_once(':')?;
    if path.is_empty() || path.contains(char::is_whitespace) {
        return None;
    }
    without_number(rest)
}

/// The maximal runs of identifier characters, trimmed.
fn runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || "_./:@#+-".contains(c)))
        .map(|run| run.trim_matches(['.', ':', '/', '-']))
        .filter(|run| !run.is_empty())
}

fn is_identifier(run: &str) -> bool {
    if run.bytes().all(|b| b.is_ascii_digit()) {
        return run.len() >= 4;
    }
    let least = if run.bytes().all(|b| b.is_ascii_hexdigit()) { 7 } else { 6 };
    let marks = |b: u8| b.is_ascii_digit() || b"_./:@#-".contains(&b);
    run.len() >= least && (run.bytes().any(marks) || run.bytes().skip(1).any(|b| b.is_ascii_uppercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_trimmed_and_have_a_shape() {
        let cases = [
            ("src/main.rs", true),
            ("parse_args", true),
            ("parseArgs", true),
            ("Parser", false),
            ("parser", false),
            ("a.b.c", false),
            ("1234", true),
            ("123", false),
            ("abc123", false),
            ("abc1234", true),
            ("feedface", false),
            ("user@x", true),
            ("HTTPError", true),
        ];
        for (run, expected) in cases {
            assert_eq!(is_identifier(run), expected, "{run}");
        }
        let found: Vec<&str> = runs("see ./src/a.rs: line-12, (foo::bar)... é-x").collect();
        assert_eq!(found, ["see", "src/a.rs", "line-12", "foo::bar", "x"]);
    }

    fn of(arguments: &str) -> Vec<String> {
        let mut items = Items::default();
        items.add_arguments(arguments);
        let mut found: Vec<String> = items.ids.keys().map(|item| item.to_string()).collect();
        found.sort();
        found
    }

    #[test]
    fn strings_of_arguments_are_walked_and_keys_are_not() {
        assert_eq!(
            of(r#"{"file_path": "src/a.rs", "x": [{"long_key": "get_item"}, 123456]}"#),
            ["get_item", "src/a.rs"]
        );
        assert_eq!(of(r#"{"file_path": "src/a.rs"#), ["file_path", "src/a.rs"]);
        assert_eq!(of(r#""one line only, with spaces""#), [""; 0]);
        assert_eq!(
            of(r#""  let mut total = 0;\nshort one\n""#),
            ["let mut total = 0;"],
            "lines of an argument of several lines are spans from 16 characters on"
        );
        assert_eq!(of(r#""a single long line of text\n""#), [""; 0], "one line is not several");
    }

    #[test]
    fn texts_hold_whole_tokens_and_whole_lines() {
        let mut items = Items::default();
        items.add_arguments(r#"["get_item", "let mut total = 0;\nreturn total + 1;"]"#);
        let holds = |text: &str| !items.held_by(text).is_empty();
        for text in [
            "x get_item.",
            "(get_item)",
            "  let mut total = 0;",
            "   12\tlet mut total = 0;",
            "12→        let mut total = 0;",
            "7: let mut total = 0;",
            "src/a.rs:7:    return total + 1;",
        ] {
            assert!(holds(text), "{text:?}");
        }
        for text in ["get_items", "self.get_item", "// let mut total = 0;", "let mut total = 0; // sum", ""] {
            assert!(!holds(text), "{text:?}");
        }
    }
}
