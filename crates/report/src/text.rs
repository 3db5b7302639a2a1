//! Foreign text on its way into the page: shortened, and with nothing in it that cannot be seen.

/// A text in which control characters, controls of the writing direction and characters without a width are visible.
/// Line feeds and tabs stay.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            // The control pictures stand in the order of what they show.
            '\0'..='\u{1f}' => shown.extend(char::from_u32(0x2400 + u32::from(c))),
            '\u{7f}' => shown.push('\u{2421}'),
            c if is_hidden(c) => shown.push_str(&format!("⟦U+{:04X}⟧", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// A name on one line, at most `n` characters long.
pub(crate) fn name(text: &str, n: usize) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(n).collect();
    let more = if chars.next().is_some() { "…" } else { "" };
    format!("{}{more}", visible(&head).replace('\n', "␊").replace('\t', "␉"))
}

/// The beginning and the end of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) head: String,
    /// Characters between head and tail that are left out.
    pub(crate) left_out: u64,
    pub(crate) tail: String,
}

/// The first three quarters of `n` characters and the last quarter; the whole text where it is hardly longer.
pub(crate) fn excerpt(text: &str, n: usize) -> Excerpt {
    let whole = || Excerpt { head: visible(text), left_out: 0, tail: String::new() };
    if text.len() <= n {
        return whole();
    }
    let total = text.chars().count();
    if total <= n + n / 8 {
        return whole();
    }
    let n_tail = n / 4;
    let n_head = n - n_tail;
    let head = text.char_indices().nth(n_head).map_or(text.len(), |(at, _)| at);
    let tail = match n_tail {
        0 => text.len(),
        n_tail => text.char_indices().nth_back(n_tail - 1).map_or(text.len(), |(at, _)| at),
    };
    Excerpt { head: visible(&text[..head]), left_out: (total - n) as u64, tail: visible(&text[tail..]) }
}

/// JSON that can stand in an element `script`: no `<` opens a tag or a comment, no line ends inside a string.
pub(crate) fn for_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_made_visible() {
        for (text, expected) in [
            ("a\tb\nc", "a\tb\nc"),
            ("\u{1b}[31mred\u{1b}[0m\0", "␛[31mred␛[0m␀"),
            ("end\r\n", "end␍\n"),
            ("\u{7f}\u{9b}", "␡⟦U+009B⟧"),
            ("a\u{202e}b\u{2066}c\u{200f}", "a⟦U+202E⟧b⟦U+2066⟧c⟦U+200F⟧"),
            ("\u{feff}x\u{200b}y\u{2028}z", "⟦U+FEFF⟧x⟦U+200B⟧y⟦U+2028⟧z"),
            ("👩\u{200d}💻 שלום", "👩\u{200d}💻 שלום"),
        ] {
            assert_eq!(visible(text), expected);
        }
        assert_eq!(name("a\nb\u{1b}cdef", 4), "a␊b␛…");
    }

    #[test]
    fn an_excerpt_has_both_ends_and_says_what_is_between() {
        let text: String = ('a'..='z').collect();
        let cut = excerpt(&text, 8);
        assert_eq!((cut.head.as_str(), cut.left_out, cut.tail.as_str()), ("abcdef", 18, "yz"));
        assert_eq!(excerpt("abcdefghi", 8), Excerpt { head: "abcdefghi".into(), left_out: 0, tail: String::new() });
        assert_eq!(excerpt("ééééééééééé", 4).left_out, 7);
        assert_eq!(excerpt("", 0).head, "");
    }

    #[test]
    fn json_cannot_end_the_element_it_stands_in() {
        let json = serde_json::to_string("</script><!--\u{2028}").unwrap();
        let shown = for_script(&json);
        assert!(!shown.contains('<') && !shown.contains('\u{2028}'));
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), "</script><!--\u{2028}");
    }
}
