//! Text that reads the same on every machine and in every run.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Shorter ids are too likely to be ordinary words of a text.
const MIN_ID: usize = 8;

/// Numbers ids in the order in which they appear, each under its kind's letter.
#[derive(Debug, Default)]
pub(super) struct Labels {
    by_id: HashMap<String, String>,
    counts: HashMap<char, usize>,
}

impl Labels {
    /// The label of an id: `e1` for the first event.
    pub(super) fn label(&mut self, kind: char, id: &str) -> String {
        let key = format!("{kind}{id}");
        if let Some(label) = self.by_id.get(&key) {
            return label.clone();
        }
        let count = self.counts.entry(kind).or_insert(0);
        *count += 1;
        let label = format!("{kind}{count}");
        self.by_id.insert(key, label.clone());
        label
    }

    /// The label of a word that is a known id, or is a UUID.
    fn word(&mut self, word: &str) -> Option<String> {
        if word.len() < MIN_ID || !word.bytes().any(|byte| byte.is_ascii_digit()) {
            return None;
        }
        ['e', 'c', 'r']
            .iter()
            .find_map(|kind| self.by_id.get(&format!("{kind}{word}")).cloned())
            .or_else(|| is_uuid(word).then(|| self.label('u', word)))
    }

    /// A text with line endings, times, home folders and ids made canonical and control characters escaped. Line
    /// feeds stay.
    pub(super) fn canonical(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut previous = None;
        while let Some(c) = rest.chars().next() {
            let starts_word = !previous.is_some_and(is_word);
            let (length, replacement) = if let Some(id) = address(&out, rest) {
                (id.len(), Some(self.label('e', id)))
            } else if starts_word && let Some(length) = time(rest) {
                (length, Some("<time>".to_owned()))
            } else if let Some(length) = home(rest).filter(|_| starts_word && previous != Some('.')) {
                (length, Some("~".to_owned()))
            } else if is_word(c) {
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                (length, if starts_word { self.word(&rest[..length]) } else { None })
            } else {
                (if rest.starts_with("\r\n") { 2 } else { c.len_utf8() }, escape(c))
            };
            let (taken, after) = rest.split_at(length);
            out.push_str(replacement.as_deref().unwrap_or(taken));
            previous = taken.chars().next_back();
            rest = after;
        }
        out
    }
}

/// The id in `[event <id>]`, which summaries and placeholders name forgotten events by.
fn address<'t>(before: &str, rest: &'t str) -> Option<&'t str> {
    if !before.ends_with("[event ") {
        return None;
    }
    let (id, _) = rest.split_once(']')?;
    (!id.is_empty() && !id.contains(char::is_whitespace)).then_some(id)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn escape(c: char) -> Option<String> {
    // Characters that are not seen and can turn what is seen around.
    let is_hidden = matches!(c,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    match c {
        '\n' => None,
        '\r' => Some("\n".to_owned()),
        '\t' => Some("\\t".to_owned()),
        c if c.is_control() || is_hidden => {
            let mut escaped = String::new();
            let _ = write!(escaped, "\\u{{{:x}}}", u32::from(c));
            Some(escaped)
        }
        _ => None,
    }
}

fn is_uuid(word: &str) -> bool {
    word.len() == 36
        && word.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// The length of an ISO date at the beginning, and of the time after it.
fn time(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    // `d` stands for a digit.
    let matches = |from: usize, pattern: &str| {
        let found = bytes.get(from..from + pattern.len())?;
        let fits = found.iter().zip(pattern.bytes()).all(|(byte, wanted)| match wanted {
            b'd' => byte.is_ascii_digit(),
            _ => *byte == wanted,
        });
        fits.then_some(from + pattern.len())
    };
    let date = matches(0, "dddd-dd-dd")?;
    let mut end = date;
    if let Some(b'T' | b't' | b' ' | b'_') = bytes.get(date)
        && let Some(minutes) = matches(date + 1, "dd:dd")
    {
        end = minutes;
        if let Some(seconds) = matches(end, ":dd") {
            end = seconds;
            if matches!(bytes.get(end), Some(b'.' | b',')) && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
                end += 1 + bytes[end + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            }
        }
        let zone = ["+dd:dd", "-dd:dd", "+dddd", "-dddd", "Z", "z"].iter().find_map(|zone| matches(end, zone));
        end = zone.unwrap_or(end);
    }
    let goes_on = text[end..].chars().next().is_some_and(is_word);
    (!goes_on).then_some(end)
}

/// The length of a home folder at the beginning of a text.
fn home(text: &str) -> Option<usize> {
    let end_of_name = |from: usize| {
        let length = text[from..].find(|c: char| !(is_word(c) || c == '.')).unwrap_or(text.len() - from);
        (length > 0).then_some(from + length)
    };
    for parent in ["/home/", "/Users/"] {
        if text.starts_with(parent) {
            return end_of_name(parent.len());
        }
    }
    if let Some(rest) = text.strip_prefix("/root") {
        return (!rest.starts_with(|c: char| is_word(c) || c == '.')).then_some("/root".len());
    }
    // Once as it is, once as it stands in JSON.
    for separator in ["\\", "\\\\"] {
        let parent = format!(":{separator}Users{separator}");
        if text.starts_with(|c: char| c.is_ascii_alphabetic()) && text[1..].starts_with(&parent) {
            return end_of_name(1 + parent.len());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_machines_and_runs_is_made_canonical() {
        let mut labels = Labels::default();
        labels.label('e', "event-0001");
        labels.label('e', "e2");
        labels.label('c', "call_Ab12Cd");
        let cases = [
            ("a\r\nb\rc\n", "a\nb\nc\n"),
            ("a\tb\u{1b}[0m\u{202e}", "a\\tb\\u{1b}[0m\\u{202e}"),
            ("at 2026-01-31T12:00:00.123456+00:00, on 2026-01-31.", "at <time>, on <time>."),
            ("2026-01-31 12:00Z", "<time>"),
            ("v2026-01-31 2026-01-310 12026-01-31", "v2026-01-31 2026-01-310 12026-01-31"),
            ("/home/ada.l/x /Users/ada /root/y (/root)", "~/x ~ ~/y (~)"),
            ("/rooted x/home/ada ./root file:///home/ada/x", "/rooted x/home/ada ./root file://~/x"),
            (r"C:\Users\ada\x C:\\Users\\ada\\x", r"~\x ~\\x"),
            ("see [event event-0001], e2, call_Ab12Cd", "see [event e1], e2, c1"),
            ("event-00012", "event-00012"),
            ("see [event forgotten#2] and [event e2]", "see [event e3] and [event e2]"),
            ("[event ] [event a b] [event x", "[event ] [event a b] [event x"),
            ("id 01234567-89ab-cdef-0123-456789abcdef", "id u1"),
            ("né 2026-01-31é", "né <time>é"),
        ];
        for (text, expected) in cases {
            assert_eq!(labels.canonical(text), expected, "{text:?}");
        }
    }
}
