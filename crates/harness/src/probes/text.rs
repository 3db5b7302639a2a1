//! What a text holds.

use std::borrow::Cow;

use condenser::event::EventKind;
use condenser::request::text_of;
use serde_json::Value;

/// The text of an event as a reader sees it: arguments of calls decoded, one string a line.
pub(crate) fn of_kind(kind: &EventKind) -> String {
    let EventKind::Action(action) = kind else { return text_of(kind) };
    let mut lines: Vec<Cow<'_, str>> =
        action.thought.iter().filter_map(|block| block.as_text()).map(Cow::Borrowed).collect();
    lines.push(Cow::Owned(of_arguments(&action.arguments)));
    lines.join("\n")
}

/// The strings and numbers of JSON text, one a line; other text as it is.
pub(crate) fn of_arguments(arguments: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(arguments) else { return arguments.to_owned() };
    let mut lines = Vec::new();
    collect(&value, &mut lines);
    lines.join("\n")
}

fn collect(value: &Value, lines: &mut Vec<String>) {
    match value {
        Value::String(text) => lines.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, lines)),
        Value::Object(map) => map.values().for_each(|value| collect(value, lines)),
        Value::Number(number) => lines.push(number.to_string()),
        Value::Bool(_) | Value::Null => {}
    }
}

/// Whether a text holds a value as a whole token.
///
/// A letter, digit or `_` beside the value makes it a part of a longer one; so does a `-`, `.`, `@`, `#` or `+` with
/// more of the token behind it, a `/` that goes on to the right, and a comma or apostrophe between digits. What goes
/// before a `/` does not: a path may be given from the root.
pub(crate) fn holds(text: &str, value: &str) -> bool {
    places(text, value).next().is_some()
}

/// Where a text holds a value as a whole token, oldest first.
pub(crate) fn places<'t>(text: &'t str, value: &'t str) -> impl Iterator<Item = usize> + 't {
    let ends = value.chars().next().zip(value.chars().next_back());
    let is_whole = move |at: &usize| {
        let Some((first, last)) = ends else { return false };
        let mut before = text[..*at].chars().rev();
        let mut after = text[at + value.len()..].chars();
        !is_joined(first, before.next(), before.next(), "-.@#+")
            && !is_joined(last, after.next(), after.next(), "-.@#+/")
    };
    // Overlapping places matter: `a-a` in `a-a-a a-a` would be missed from the first on.
    let starts = text.char_indices().map(|(at, _)| at).filter(move |&at| text[at..].starts_with(value));
    starts.filter(is_whole)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether the end `edge` of a value goes on into what stands beside it.
fn is_joined(edge: char, beside: Option<char>, beyond: Option<char>, joints: &str) -> bool {
    let Some(beside) = beside else { return false };
    if !is_word(edge) {
        return false;
    }
    let goes_on = beyond.is_some_and(is_word);
    let is_digit = |c: char| c.is_ascii_digit();
    is_word(beside)
        || goes_on && joints.contains(beside)
        || is_digit(edge) && beyond.is_some_and(is_digit) && matches!(beside, ',' | '\'' | '’')
}

/// The sentences of a text: pieces between line ends and between `.`, `!`, `?` or `;` with white space behind.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| {
        let mut start = 0;
        let mut pieces = Vec::new();
        let mut chars = line.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if matches!(c, '.' | '!' | '?' | ';') && chars.peek().is_some_and(|(_, next)| next.is_whitespace()) {
                pieces.push(&line[start..=at]);
                start = at + 1;
            }
        }
        pieces.push(&line[start..]);
        pieces
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_held_as_a_whole_token() {
        let cases = [
            ("limit=24", "24", true),
            ("limit 24.", "24", true),
            ("(24)", "24", true),
            ("24,5 and 24", "24", true),
            ("1.24", "24", false),
            ("24.5", "24", false),
            ("24,500", "24", false),
            ("1'024", "024", false),
            ("240", "24", false),
            ("a24", "24", false),
            ("see /workspace/docs/a.md:12", "docs/a.md", true),
            ("docs/a.md.bak", "docs/a.md", false),
            ("docs", "docs/a.md", false),
            ("src/main.rs", "src", false),
            ("QX-4417-B", "QX-4417", false),
            ("QX-4417", "QX-4417", true),
            ("QX-4417B QX-4417", "QX-4417", true),
            ("ends in .old", ".old", true),
            ("log.old", ".old", true),
            ("東京タワー", "東京", false),
            ("", "x", false),
            ("x", "", false),
        ];
        for (text, value, expected) in cases {
            assert_eq!(holds(text, value), expected, "{value:?} in {text:?}");
        }
    }

    #[test]
    fn sentences_end_at_lines_and_at_stops_with_space_behind() {
        let found: Vec<&str> = sentences("Keep a.rs. Touch b;c! Yes\nnext").collect();
        assert_eq!(found, ["Keep a.rs.", " Touch b;c!", " Yes", "next"]);
    }

    #[test]
    fn arguments_are_read_as_their_strings() {
        assert_eq!(of_arguments(r#"{"path": "a/b", "n": [3, "x\ny"], "f": true}"#), "a/b\n3\nx\ny");
        assert_eq!(of_arguments("{\"path\": \"a"), "{\"path\": \"a");
    }
}
