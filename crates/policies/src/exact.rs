//! What other languages count and print, exactly: for ports of programs written in them.
//!
//! Text here is what Rust can hold. A lone surrogate, which JavaScript allows in a string, reads as U+FFFD wherever
//! one would come to be. Numbers are what `serde_json` holds: an integer beyond 64 bits was read as a float, and `-0`
//! as the float −0.

use serde_json::{Number, Value};

/// The length of a JavaScript string: UTF-16 code units.
pub fn utf16_len(text: &str) -> usize {
    utf16_units(text.as_bytes())
}

/// The same of UTF-8 that may be cut anywhere.
pub(crate) fn utf16_units(bytes: &[u8]) -> usize {
    // Every byte but those that go on with a character begins one; four of them are two units.
    sum_of(bytes, |byte| u8::from(byte & 0xc0 != 0x80) + u8::from(byte >= 0xf0))
}

/// The sum of what bytes count for, each at most 2. Sums that fit a byte are what processors add many of at once.
fn sum_of(bytes: &[u8], weight: impl Fn(u8) -> u8) -> usize {
    let sum = |part: &[u8]| part.iter().fold(0, |sum: u8, &byte| sum.wrapping_add(weight(byte)));
    bytes.chunks(u8::MAX as usize / 2).map(|part| usize::from(sum(part))).sum()
}

/// JavaScript's `text.slice(start, end)` with both bounds from 0; half of a surrogate pair becomes U+FFFD.
pub fn utf16_slice(text: &str, start: usize, end: usize) -> String {
    let mut at = 0;
    let mut slice = String::new();
    for c in text.chars() {
        let next = at + c.len_utf16();
        if next > start && at < end {
            slice.push(if at < start || next > end { char::REPLACEMENT_CHARACTER } else { c });
        }
        at = next;
    }
    slice
}

/// Whether JavaScript counts a character as white space. Unlike Rust it takes U+FEFF and leaves U+0085.
pub fn is_js_space(c: char) -> bool {
    c == '\u{feff}' || c.is_whitespace() && c != '\u{85}'
}

/// JavaScript's `text.trim()`.
pub fn js_trim(text: &str) -> &str {
    text.trim_matches(is_js_space)
}

/// JavaScript's `JSON.stringify(value)`: keys that are array indices come first, in ascending order, the others stay
/// in place.
pub fn js_json(value: &Value) -> String {
    let mut out = String::new();
    Printer { colon: ":", comma: ",", is_javascript: true, is_ascii: false }.print(value, &mut out);
    out
}

/// The length of `JSON.stringify(value)`, without making it.
pub fn js_json_len(value: &Value) -> usize {
    let mut length = Length(0);
    Printer { colon: ":", comma: ",", is_javascript: true, is_ascii: false }.print(value, &mut length);
    length.0
}

/// The length of `JSON.stringify(text)` of a text.
pub(crate) fn js_quoted_len(text: &str) -> usize {
    let mut length = Length(0);
    length.push_quoted(text, false);
    length.0
}

/// A number as JavaScript prints it: `1e+21`, `1e-7`, `0` for −0.
pub fn js_number(number: f64) -> String {
    let Some((sign, digits, point)) = digits(number) else {
        return if number == 0.0 { "0".to_owned() } else { format!("{number}") };
    };
    let n = digits.len() as i32;
    let text = match point {
        _ if n <= point && point <= 21 => format!("{digits}{}", "0".repeat((point - n) as usize)),
        1..=21 => format!("{}.{}", &digits[..point as usize], &digits[point as usize..]),
        -5..=0 => format!("0.{}{digits}", "0".repeat(-point as usize)),
        _ => exponent(&digits, point - 1, 1),
    };
    format!("{sign}{text}")
}

/// How Python's `json.dumps` is asked to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PythonJson {
    /// `separators=(",", ":")` instead of the default, which puts a blank behind each.
    pub compact: bool,
    /// `ensure_ascii=False` instead of the default, which escapes all that is not printable ASCII.
    pub unicode: bool,
}

/// Python's `json.dumps(value)`, key order kept.
pub fn python_json(value: &Value, style: PythonJson) -> String {
    let mut out = String::new();
    let (colon, comma) = if style.compact { (":", ",") } else { (": ", ", ") };
    Printer { colon, comma, is_javascript: false, is_ascii: !style.unicode }.print(value, &mut out);
    out
}

/// A float as Python prints it: `1e+16`, `1e-05`, `1.0`, `-0.0`.
pub fn python_float(number: f64) -> String {
    let Some((sign, digits, point)) = digits(number) else {
        return match number {
            _ if number.is_nan() => "NaN".to_owned(),
            _ if number.is_infinite() => if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
            _ => if number.is_sign_negative() { "-0.0" } else { "0.0" }.to_owned(),
        };
    };
    let n = digits.len() as i32;
    let text = match point {
        _ if n <= point && point <= 16 => format!("{digits}{}.0", "0".repeat((point - n) as usize)),
        1..=16 => format!("{}.{}", &digits[..point as usize], &digits[point as usize..]),
        -3..=0 => format!("0.{}{digits}", "0".repeat(-point as usize)),
        _ => exponent(&digits, point - 1, 2),
    };
    format!("{sign}{text}")
}

/// The lines of Python's `text.splitlines()`: a line end at the very end begins no further line.
pub fn python_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        // By bytes: U+0085, U+2028 and U+2029 are the ends that take more than one.
        let length = |at: usize| match &rest.as_bytes()[at..] {
            [b'\r', b'\n', ..] | [0xc2, 0x85, ..] => 2,
            [b'\n'..=b'\r' | 0x1c..=0x1e, ..] => 1,
            [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
            _ => 0,
        };
        let Some(at) = (0..rest.len()).find(|&at| length(at) > 0) else {
            return Some(std::mem::take(&mut rest));
        };
        let line = &rest[..at];
        rest = &rest[at + length(at)..];
        Some(line)
    })
}

/// The shortest digits that read back as this number, and how many of them stand before the point (possibly more
/// than there are, or fewer than none). `None` for zero and what is not finite.
fn digits(number: f64) -> Option<(&'static str, String, i32)> {
    if number == 0.0 || !number.is_finite() {
        return None;
    }
    let text = format!("{:e}", number.abs());
    let (mantissa, exponent) = text.split_once('e')?;
    let sign = if number < 0.0 { "-" } else { "" };
    Some((sign, mantissa.replace('.', ""), exponent.parse::<i32>().ok()? + 1))
}

fn exponent(digits: &str, exponent: i32, width: usize) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    format!("{first}{point}{rest}e{sign}{:0width$}", exponent.abs())
}

/// Where text is printed to.
trait Out {
    fn push_str(&mut self, text: &str);
    /// A text in quotes, with escapes.
    fn push_quoted(&mut self, text: &str, is_ascii: bool);
}

impl Out for String {
    fn push_str(&mut self, text: &str) {
        String::push_str(self, text);
    }

    fn push_quoted(&mut self, text: &str, is_ascii: bool) {
        self.push('"');
        let mut rest = text;
        // What stays as it is goes out in one piece.
        let is_escaped = |byte: u8| matches!(byte, b'"' | b'\\' | ..b' ') || is_ascii && byte > b'~';
        while let Some(at) = rest.bytes().position(is_escaped) {
            let (plain, escaped) = rest.split_at(at);
            self.push_str(plain);
            let mut chars = escaped.chars();
            let c = chars.next().unwrap_or_default();
            rest = chars.as_str();
            match c {
                '"' => self.push_str("\\\""),
                '\\' => self.push_str("\\\\"),
                '\n' => self.push_str("\\n"),
                '\r' => self.push_str("\\r"),
                '\t' => self.push_str("\\t"),
                '\x08' => self.push_str("\\b"),
                '\x0c' => self.push_str("\\f"),
                _ => {
                    let mut units = [0; 2];
                    c.encode_utf16(&mut units).iter().for_each(|unit| self.push_str(&format!("\\u{unit:04x}")));
                }
            }
        }
        self.push_str(rest);
        self.push('"');
    }
}

/// Only how long it gets, in UTF-16 code units.
struct Length(usize);

impl Out for Length {
    fn push_str(&mut self, text: &str) {
        self.0 += utf16_len(text);
    }

    fn push_quoted(&mut self, text: &str, is_ascii: bool) {
        debug_assert!(!is_ascii, "nobody asks for the length of this");
        let bytes = text.as_bytes();
        let n_escaped = sum_of(bytes, |byte| u8::from(matches!(byte, b'"' | b'\\' | ..b' ')));
        let is_long = |byte| byte < b' ' && !matches!(byte, b'\n' | b'\r' | b'\t' | 0x08 | 0x0c);
        // Five more for `\u001b` instead of one.
        let n_long = if n_escaped == 0 { 0 } else { sum_of(bytes, |byte| u8::from(is_long(byte))) };
        self.0 += 2 + utf16_units(bytes) + n_escaped + 4 * n_long;
    }
}

struct Printer {
    colon: &'static str,
    comma: &'static str,
    is_javascript: bool,
    is_ascii: bool,
}

impl Printer {
    fn print(&self, value: &Value, out: &mut impl Out) {
        match value {
            Value::Null => out.push_str("null"),
            Value::Bool(true) => out.push_str("true"),
            Value::Bool(false) => out.push_str("false"),
            Value::Number(number) => out.push_str(&self.number(number)),
            Value::String(text) => out.push_quoted(text, self.is_ascii),
            Value::Array(items) => {
                out.push_str("[");
                for (n, item) in items.iter().enumerate() {
                    out.push_str(if n > 0 { self.comma } else { "" });
                    self.print(item, out);
                }
                out.push_str("]");
            }
            Value::Object(fields) => {
                let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
                if self.is_javascript && fields.iter().any(|(key, _)| array_index(key).is_some()) {
                    fields.sort_by_key(|(key, _)| array_index(key).map_or((1, 0), |index| (0, index)));
                }
                out.push_str("{");
                for (n, (key, value)) in fields.into_iter().enumerate() {
                    out.push_str(if n > 0 { self.comma } else { "" });
                    out.push_quoted(key, self.is_ascii);
                    out.push_str(self.colon);
                    self.print(value, out);
                }
                out.push_str("}");
            }
        }
    }

    fn number(&self, number: &Number) -> String {
        const EXACT: u64 = 1 << 53;
        match number.as_f64() {
            Some(_) if number.as_i64().is_some_and(|integer| integer.unsigned_abs() <= EXACT) => number.to_string(),
            Some(float) if self.is_javascript => js_number(float),
            Some(float) if number.is_f64() => python_float(float),
            _ => number.to_string(),
        }
    }
}

/// The index that a key is, where JavaScript sorts it as one: up to 2³² − 2 and written without leading zeros.
fn array_index(key: &str) -> Option<u32> {
    let is_plain = key.bytes().all(|byte| byte.is_ascii_digit()) && (key == "0" || !key.starts_with('0'));
    key.parse().ok().filter(|index| is_plain && *index < u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn lengths_and_slices_count_utf16_units() {
        assert_eq!(["", "aé\u{2028}", "😀", "a😀b"].map(utf16_len), [0, 3, 2, 4]);
        assert_eq!(utf16_slice("a😀b", 0, 3), "a😀");
        assert_eq!(utf16_slice("a😀b", 0, 2), "a\u{fffd}");
        assert_eq!(utf16_slice("a😀b", 2, 9), "\u{fffd}b");
        assert_eq!(utf16_slice("abc", 2, 1), "");
        assert_eq!(js_trim("\u{feff}\u{a0} x\u{85}\n"), "x\u{85}");
    }

    #[test]
    fn numbers_are_printed_as_each_language_does() {
        let cases = [
            (0.0, "0", "0.0"),
            (-0.0, "0", "-0.0"),
            (1.0, "1", "1.0"),
            (-1.5, "-1.5", "-1.5"),
            (1e21, "1e+21", "1e+21"),
            (123_456_789_012_345_680_000.0, "123456789012345680000", "1.2345678901234568e+20"),
            (1e16, "10000000000000000", "1e+16"),
            (9_007_199_254_740_993.0, "9007199254740992", "9007199254740992.0"),
            (1e-7, "1e-7", "1e-07"),
            (1e-6, "0.000001", "1e-06"),
            (0.0001, "0.0001", "0.0001"),
            (0.00012, "0.00012", "0.00012"),
            (1.5e300, "1.5e+300", "1.5e+300"),
            (5e-324, "5e-324", "5e-324"),
            (0.1 + 0.2, "0.30000000000000004", "0.30000000000000004"),
        ];
        for (number, javascript, python) in cases {
            assert_eq!((js_number(number).as_str(), python_float(number).as_str()), (javascript, python));
        }
        // An integer is a float in JavaScript and stays one of any size in Python.
        let value = json("[9007199254740993, 18446744073709551615, -0, 1e21]");
        assert_eq!(js_json(&value), "[9007199254740992,18446744073709552000,0,1e+21]");
        assert_eq!(python_json(&value, PythonJson::default()), "[9007199254740993, 18446744073709551615, -0.0, 1e+21]");
        let value = json("[1,-5,9007199254740992,-9007199254740993]");
        assert_eq!(js_json(&value), "[1,-5,9007199254740992,-9007199254740992]");
    }

    #[test]
    fn text_is_escaped_as_each_language_does() {
        let value = Value::from("a\"\\/\u{8}\u{c}\n\r\t\u{1}\u{7f}\u{2028}é😀");
        let plain = "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\u{7f}\u{2028}é😀\"";
        assert_eq!(js_json(&value), plain);
        for n in [1, 2, 100] {
            let long = Value::from(value.as_str().unwrap().repeat(n) + "plain");
            assert_eq!(js_json_len(&long), js_json(&long).encode_utf16().count(), "{n}");
        }
        assert_eq!(python_json(&value, PythonJson { unicode: true, ..PythonJson::default() }), plain);
        let ascii = "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u007f\\u2028\\u00e9\\ud83d\\ude00\"";
        assert_eq!(python_json(&value, PythonJson::default()), ascii);
    }

    #[test]
    fn key_order_is_kept_but_for_indices_in_javascript() {
        let value = json(r#"{"b": [], "10": {}, "a": null, "2": true, "01": 1, "4294967295": 2, "b": [1, 2]}"#);
        assert_eq!(js_json_len(&value), js_json(&value).len());
        assert_eq!(js_json(&value), r#"{"2":true,"10":{},"b":[1,2],"a":null,"01":1,"4294967295":2}"#);
        let compact = PythonJson { compact: true, ..PythonJson::default() };
        assert_eq!(python_json(&value, compact), r#"{"b":[1,2],"10":{},"a":null,"2":true,"01":1,"4294967295":2}"#);
        assert_eq!(python_json(&json(r#"{"a":[1,2],"b":{}}"#), PythonJson::default()), r#"{"a": [1, 2], "b": {}}"#);
    }

    #[test]
    fn lines_end_where_python_ends_them() {
        let lines = |text| python_lines(text).collect::<Vec<_>>();
        assert_eq!(lines(""), [""; 0]);
        assert_eq!(lines("a\n"), ["a"]);
        assert_eq!(lines("\n\na"), ["", "", "a"]);
        assert_eq!(lines("a\r\nb\rc\u{b}d\u{c}e\u{1c}f\u{1d}g\u{1e}h\u{85}i\u{2028}j\u{2029}k\u{1f}l").len(), 11);
        assert_eq!(lines("\r\n\r"), ["", ""]);
    }
}
