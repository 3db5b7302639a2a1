//! Decoding of JSON and JSON lines as found in the wild.
//!
//! Each value is first tried strictly. What fails is tried again with bare `NaN` and `Infinity`, lone
//! surrogates and raw control characters allowed: these are replaced and counted. What fails again is
//! reported with its line and left out.

use std::borrow::Cow;
use std::io::{self, BufRead, Read as _};

use serde::de::{DeserializeSeed as _, IgnoredAny};
use serde_json::{Map, Value};

use crate::Diagnostic;
use crate::node::{Node, Seed};

/// Deepest nesting that is decoded.
const MAX_DEPTH: usize = 127;
/// So many lines are looked at before a file is given up as not being JSON.
const PROBED_LINES: usize = 50;
/// So many bad lines are reported one by one.
const REPORTED_LINES: usize = 100;
/// The longest line that is decoded, in bytes.
const MAX_LINE: u64 = 1 << 30;

/// One JSON value and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The line, from 1.
    pub line: u64,
    /// The value.
    pub value: Value,
}

/// The values of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// The values in order, at least one.
    pub records: Vec<Record>,
    /// What was odd.
    pub diagnostics: Vec<Diagnostic>,
}

/// Decodes a file: one JSON value, or a value a line.
///
/// Two values on one line are two records; a value may also span lines as long as all do. A torn last
/// line is reported and everything before it kept. `None` means the file is blank. Linear in the size
/// of the file.
///
/// # Errors
///
/// Where not one value can be decoded: the place and the reason.
pub fn decode(bytes: Vec<u8>) -> Result<Option<Decoded>, Diagnostic> {
    let mut notes = Notes::default();
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let before = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).len();
            notes.encoding =
                Some((line_of(&text, before), text[before..].matches(char::REPLACEMENT_CHARACTER).count()));
            text
        }
    };
    let lead = text.len() - text.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']).len();
    let body = &text[lead..];
    if body.is_empty() {
        return Ok(None);
    }
    let first_line = line_of(&text, lead);

    let (records, mut diagnostics) = match first_value(body, &mut Notes::default()) {
        Ok(end) if body[..end].contains('\n') || body[end..].trim().is_empty() => {
            spanning(body, first_line, &mut notes)
        }
        Ok(_) => lines(body, first_line, &mut notes),
        Err(fault) => {
            let (records, mut diagnostics) = lines(body, first_line, &mut notes);
            if records.is_empty() {
                // What is wrong with the whole says more than what is wrong with each line.
                let line = first_line + line_of(body, fault.at) - 1;
                diagnostics.insert(0, Diagnostic::new(format!("line {line}"), format!("not JSON: {}", fault.what)));
            }
            (records, diagnostics)
        }
    };
    if records.is_empty() {
        return Err(diagnostics.swap_remove(0));
    }
    diagnostics.extend(notes.into_diagnostics());
    Ok(Some(Decoded { records, diagnostics }))
}

/// The first characters of a text, on one line, for messages.
pub fn excerpt(text: &str, characters: usize) -> String {
    let mut short: String = text.chars().take(characters).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(characters).is_some() {
        short.push('…');
    }
    short
}

fn line_of(text: &str, at: usize) -> u64 {
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Where the first value of a text ends.
fn first_value(text: &str, notes: &mut Notes) -> Result<usize, Fault> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    if let Some(Ok(_)) = values.next() {
        return Ok(values.byte_offset());
    }
    let mut lenient = Lenient { text, at: 0, line: 1, notes };
    lenient.value(0)?;
    Ok(lenient.at)
}

/// Values that may span lines, one after another. Nothing can be found again after a bad one.
fn spanning(text: &str, first_line: u64, notes: &mut Notes) -> (Vec<Record>, Vec<Diagnostic>) {
    let mut records = Vec::new();
    let mut diagnostics = Vec::new();
    let (mut at, mut line) = (0, first_line);
    while let Some(skipped) = text[at..].find(|c: char| !c.is_ascii_whitespace()) {
        line += line_of(&text[at..], skipped) - 1;
        at += skipped;
        match decode_value(&text[at..], line, notes) {
            Ok((value, end)) => {
                records.push(Record { line, value });
                line += line_of(&text[at..], end) - 1;
                at += end;
            }
            Err(fault) => {
                let line = line + line_of(&text[at..], fault.at) - 1;
                diagnostics.push(Diagnostic::new(
                    format!("line {line}"),
                    format!("not JSON: {}; the rest of the file is left out", fault.what),
                ));
                break;
            }
        }
    }
    (records, diagnostics)
}

/// Values a line.
fn lines(text: &str, first_line: u64, notes: &mut Notes) -> (Vec<Record>, Vec<Diagnostic>) {
    let mut records = Vec::new();
    let mut lines = Lines::new(text.as_bytes());
    lines.line = first_line;
    // Reading from memory cannot fail.
    while let Ok(true) = lines.next(None, |found| {
        records.push(Record { line: found.line, value: found.node.into_value() });
    }) {
        if records.is_empty() && lines.n_bad >= PROBED_LINES {
            break;
        }
    }
    notes.add(std::mem::take(&mut lines.notes));
    let bad = lines.finish();
    (records, bad)
}

/// A value on a line.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    /// The line, from 1.
    pub(crate) line: u64,
    /// The how many-th value of its line, from 0.
    pub(crate) nth: u32,
    /// The value: an object or a list.
    pub(crate) node: Node<'a>,
}

/// Decodes values a line, with one line in memory at a time.
///
/// Two values on one line are two. What is not JSON is reported and left out.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// The number of the next line.
    line: u64,
    /// Bytes of the line read last, without space around them.
    length: usize,
    n_bad: usize,
    notes: Notes,
    diagnostics: Vec<Diagnostic>,
}

impl Found<'_> {
    pub(crate) fn place(&self) -> (u64, u32) {
        (self.line, self.nth)
    }
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            line: 1,
            length: 0,
            n_bad: 0,
            notes: Notes::default(),
            diagnostics: Vec::new(),
        }
    }

    /// Reads the next line and hands out its values; false at the end.
    ///
    /// With `keys`, only those members of each value are decoded. A value that is nested too deep elsewhere is then
    /// handed out as well.
    pub(crate) fn next(&mut self, keys: Option<&[&str]>, mut each: impl FnMut(Found<'_>)) -> io::Result<bool> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let n_read = self.reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut buffer)?;
        if n_read == 0 {
            return Ok(false);
        }
        let line = self.line;
        self.line += 1;
        if n_read as u64 > MAX_LINE {
            self.reader.skip_until(b'\n')?;
            self.report(line, format!("longer than {MAX_LINE} bytes; the line is left out"));
            return Ok(true);
        }
        let text = match std::str::from_utf8(&buffer) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => {
                let text = String::from_utf8_lossy(&buffer);
                let n_replaced = text.matches(char::REPLACEMENT_CHARACTER).count();
                self.notes.encoding.get_or_insert((line, 0)).1 += n_replaced;
                text
            }
        };
        let text = text.trim_end_matches(['\n', '\r']);
        self.length = text.trim_ascii_start().len();
        let (mut at, mut nth) = (0, 0);
        while let Some(skipped) = text[at..].find(|c: char| !c.is_ascii_whitespace() && c != '\u{feff}') {
            at += skipped;
            match decode_node(&text[at..], line, keys, &mut self.notes) {
                Ok((node @ (Node::Object(_) | Node::Array(_)), end)) => {
                    at += end;
                    each(Found { line, nth, node });
                    nth += 1;
                    continue;
                }
                Ok(_) => self.report(line, "neither an object nor a list; the rest of the line is left out".to_owned()),
                Err(fault) if fault.torn && self.skip_blank()? => {
                    self.report(line, format!("the last record is torn after {} bytes and left out", text.len() - at));
                }
                Err(fault) => self.report(line, format!("not JSON: {}; the rest of the line is left out", fault.what)),
            }
            break;
        }
        self.buffer = buffer;
        Ok(true)
    }

    /// Bytes of the line read last, without space around them.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    fn report(&mut self, line: u64, message: String) {
        self.n_bad += 1;
        if self.n_bad <= REPORTED_LINES {
            self.diagnostics.push(Diagnostic::new(format!("line {line}"), message));
        }
    }

    /// Passes over white space and says whether that was all that is left.
    fn skip_blank(&mut self) -> io::Result<bool> {
        loop {
            let ahead = self.reader.fill_buf()?;
            if ahead.is_empty() {
                return Ok(true);
            }
            let n_blank = ahead.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let is_over = n_blank < ahead.len();
            self.line += ahead[..n_blank].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.reader.consume(n_blank);
            if is_over {
                return Ok(false);
            }
        }
    }

    /// What was reported since the last call.
    pub(crate) fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.diagnostics)
    }

    /// What is left to report at the end.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        if self.n_bad > REPORTED_LINES {
            let message = format!("{} more lines are not JSON and left out", self.n_bad - REPORTED_LINES);
            self.diagnostics.push(Diagnostic::new("file", message));
        }
        self.diagnostics.extend(self.notes.into_diagnostics());
        self.diagnostics
    }
}

/// The value at the beginning of a line, and where it ends.
fn decode_node<'t>(
    text: &'t str,
    line: u64,
    keys: Option<&[&str]>,
    notes: &mut Notes,
) -> Result<(Node<'t>, usize), Fault> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    if let Ok(node) = (Seed { keys, is_top: true }).deserialize(&mut deserializer) {
        if deserializer.end().is_ok() {
            return Ok((node, text.len()));
        }
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
        if let Some(Ok(_)) = values.next() {
            return Ok((node, values.byte_offset()));
        }
    }
    decode_leniently(text, line, notes).map(|(value, end)| (Node::from(value), end))
}

/// The value at the beginning of a text, and where it ends.
fn decode_value(text: &str, line: u64, notes: &mut Notes) -> Result<(Value, usize), Fault> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    if let Some(Ok(value)) = values.next() {
        return Ok((value, values.byte_offset()));
    }
    decode_leniently(text, line, notes)
}

fn decode_leniently(text: &str, line: u64, notes: &mut Notes) -> Result<(Value, usize), Fault> {
    let mut found = Notes::default();
    let mut lenient = Lenient { text, at: 0, line, notes: &mut found };
    let value = lenient.value(0)?;
    let end = lenient.at;
    notes.add(found);
    Ok((value, end))
}

/// What was replaced, each with the first line and the number of times.
#[derive(Debug, Default)]
struct Notes {
    encoding: Option<(u64, usize)>,
    numbers: Option<(u64, usize)>,
    surrogates: Option<(u64, usize)>,
    controls: Option<(u64, usize)>,
}

impl Notes {
    fn add(&mut self, other: Self) {
        let add = |sum: &mut Option<(u64, usize)>, more: Option<(u64, usize)>| {
            if let Some((line, n)) = more {
                sum.get_or_insert((line, 0)).1 += n;
            }
        };
        add(&mut self.encoding, other.encoding);
        add(&mut self.numbers, other.numbers);
        add(&mut self.surrogates, other.surrogates);
        add(&mut self.controls, other.controls);
    }

    fn into_diagnostics(self) -> impl Iterator<Item = Diagnostic> {
        [
            (self.encoding, "bytes that are not UTF-8, replaced by U+FFFD"),
            (self.numbers, "numbers that JSON has not (NaN, Infinity, out of range), read as null"),
            (self.surrogates, "lone surrogates, replaced by U+FFFD"),
            (self.controls, "raw control characters in strings, kept"),
        ]
        .into_iter()
        .filter_map(|(count, what)| {
            count.map(|(line, n)| {
                Diagnostic::new(format!("line {line}"), format!("{what}; {n} in the file, the first here"))
            })
        })
    }
}

/// Why a value could not be decoded.
struct Fault {
    /// Bytes from the beginning of the value.
    at: usize,
    what: &'static str,
    /// The text ended inside the value.
    torn: bool,
}

/// A decoder that replaces what JSON forbids and writers write.
struct Lenient<'a> {
    text: &'a str,
    at: usize,
    line: u64,
    notes: &'a mut Notes,
}

impl Lenient<'_> {
    fn fault(&self, what: &'static str) -> Fault {
        match self.peek() {
            None => Fault { at: self.at, what: "the text ends inside a value", torn: true },
            Some(_) => Fault { at: self.at, what, torn: false },
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, Fault> {
        self.skip_space();
        match self.peek() {
            Some(b'{' | b'[') if depth >= MAX_DEPTH => Err(self.fault("nested deeper than 127 levels")),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            _ => self.scalar(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut map = Map::new();
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Value::Object(map));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("a key was expected"));
            }
            let key = self.string()?;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.fault("`:` was expected"));
            }
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Value::Object(map));
            }
            if !self.eat(b',') {
                return Err(self.fault("`,` or `}` was expected"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, Fault> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.eat(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.eat(b']') {
                return Ok(Value::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.fault("`,` or `]` was expected"));
            }
        }
    }

    fn string(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c.is_ascii_control()).unwrap_or(rest.len());
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                None => return Err(self.fault("")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escape()?);
                }
                Some(raw) => {
                    self.notes.controls.get_or_insert((self.line, 0)).1 += usize::from(raw < 0x20);
                    out.push(char::from(raw));
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self) -> Result<char, Fault> {
        let plain = match self.peek() {
            Some(b'u') => return self.unicode_escape(),
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.fault("an escape that JSON has not")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char, Fault> {
        let first = self.hex_unit()?;
        if let Some(c) = char::from_u32(first) {
            return Ok(c);
        }
        if first < 0xdc00 && self.text[self.at..].starts_with("\\u") {
            let before = self.at;
            self.at += 1;
            let second = self.hex_unit()?;
            if (0xdc00..0xe000).contains(&second) {
                let joined = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(joined).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        self.notes.surrogates.get_or_insert((self.line, 0)).1 += 1;
        Ok(char::REPLACEMENT_CHARACTER)
    }

    /// The four digits after the `u` at the current place.
    fn hex_unit(&mut self) -> Result<u32, Fault> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return Err(self.fault("four hexadecimal digits were expected"));
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn scalar(&mut self) -> Result<Value, Fault> {
        let rest = &self.text[self.at..];
        let len =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.'))).unwrap_or(rest.len());
        let word = &rest[..len];
        let value = match word {
            "NaN" | "Infinity" | "-Infinity" | "-NaN" => None,
            "" => return Err(self.fault("a value was expected")),
            _ => match serde_json::from_str::<Value>(word) {
                Ok(value) => Some(value),
                Err(_) if word.parse::<f64>().is_ok_and(|n| n.is_infinite() && word.contains(['e', 'E'])) => None,
                Err(_) if len == rest.len() && may_go_on(word) => {
                    return Err(Fault { at: self.at + len, what: "the text ends inside a value", torn: true });
                }
                Err(_) => return Err(self.fault("a value was expected")),
            },
        };
        self.at += len;
        Ok(value.unwrap_or_else(|| {
            self.notes.numbers.get_or_insert((self.line, 0)).1 += 1;
            Value::Null
        }))
    }
}

/// Whether a longer word could be a value.
fn may_go_on(word: &str) -> bool {
    ["true", "false", "null", "NaN", "Infinity", "-Infinity"].iter().any(|whole| whole.starts_with(word))
        || word.starts_with(|c: char| c == '-' || c.is_ascii_digit())
}
