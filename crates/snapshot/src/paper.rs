//! Bounded text.

use std::fmt::Write as _;

use condenser::condenser::digest;

/// Characters of a line.
const MAX_LINE: usize = 400;
/// Characters of a foreign name or reason within a line.
const MAX_SHORT: usize = 120;

/// A text without control characters, or others that are not seen and turn around what is seen: each is escaped.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let is_hidden = matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if c.is_control() || is_hidden {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The beginning of a foreign name, as [`printable`].
pub(crate) fn short(text: &str) -> String {
    cut(&printable(text), MAX_SHORT)
}

/// A line, or its beginning and what its rest comes to.
pub(crate) fn cut(line: &str, most: usize) -> String {
    match line.char_indices().nth(most) {
        None => line.to_owned(),
        Some((at, _)) => {
            let (shown, rest) = line.split_at(at);
            format!("{shown} … {} more characters, {}", rest.chars().count(), named([rest]))
        }
    }
}

/// The first `most` lines, and what the others come to.
pub(crate) fn add(page: &mut String, text: &str, most: usize) {
    let mut lines = text.lines();
    for line in lines.by_ref().take(most) {
        let _ = writeln!(page, "{}", cut(line, MAX_LINE));
    }
    let rest: Vec<&str> = lines.collect();
    if !rest.is_empty() {
        let _ = writeln!(page, "… {} more lines, {}", rest.len(), named(&rest));
    }
}

fn named(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let digest = digest(parts);
    format!("digest {}", &digest[..12])
}
