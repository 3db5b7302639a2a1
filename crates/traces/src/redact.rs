//! Taking out of a trace what should not travel with it.
//!
//! Secrets, mail addresses, and the user names in home paths give way to placeholders that are the same wherever the
//! same text stands in the trace. The rules are patterns: they find what has a known shape, and nothing else.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use condenser::event::Event;
use condenser::recall::Redact;
use regex::{Captures, Regex};
use serde_json::Value;

use crate::Trace;

/// How many texts were taken out, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redacted {
    /// Keys, tokens and passwords.
    pub secrets: u64,
    /// Mail addresses.
    pub mails: u64,
    /// User names.
    pub users: u64,
}

/// Replaces secrets, mail addresses and user names in all texts of a trace: content, arguments, and what is kept of the
/// foreign records.
pub fn redact(trace: &mut Trace) -> Redacted {
    let mut redactor = Redactor::default();
    let mut values: Vec<Value> = trace.events.iter().filter_map(|event| serde_json::to_value(event).ok()).collect();
    values.iter().for_each(|value| redactor.learn(value));
    values.iter_mut().for_each(|value| redactor.apply(value));
    for (event, value) in trace.events.iter_mut().zip(values) {
        if let Ok(redacted) = serde_json::from_value::<Event>(value) {
            *event = redacted;
        }
    }
    redactor.redacted
}

/// A pattern that is no regular expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern:?} cannot be used: {reason}")]
pub struct BadPattern {
    /// The pattern.
    pub pattern: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Secrets by their shape, as [`redact`] knows them, and those that a caller adds. They give way to one placeholder,
/// `REDACTED_SECRET`, wherever they stand: what a model is shown does not depend on what was redacted before.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    patterns: Vec<Regex>,
    values: Vec<String>,
}

/// Shorter texts are no secrets.
const LEAST_VALUE: usize = 8;

impl Secrets {
    /// Adds a regular expression. Its first group, or the whole match where it has none, is a secret.
    ///
    /// # Errors
    /// [`BadPattern`].
    pub fn with_pattern(mut self, pattern: &str) -> Result<Self, BadPattern> {
        let bad = |error: regex::Error| BadPattern { pattern: pattern.to_owned(), reason: error.to_string() };
        self.patterns.push(Regex::new(pattern).map_err(bad)?);
        Ok(self)
    }

    /// Adds a text that is a secret, such as the value of an environment variable. Fewer than 8 bytes are ignored.
    #[must_use]
    pub fn with_value(mut self, value: &str) -> Self {
        let value = value.trim();
        if value.len() >= LEAST_VALUE && !self.values.iter().any(|known| known == value) {
            self.values.push(value.to_owned());
            // A value that holds another goes first.
            self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        }
        self
    }

    /// Adds the values of the variables whose names say that they hold secrets.
    #[must_use]
    pub fn with_variables(self, variables: impl IntoIterator<Item = (String, String)>) -> Self {
        let is_secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS"].iter().any(|word| name.ends_with(word))
        };
        variables.into_iter().filter(|(name, _)| is_secret(name)).fold(self, |all, (_, value)| all.with_value(&value))
    }
}

impl Redact for Secrets {
    fn redact<'a>(&self, text: &'a str) -> (Cow<'a, str>, usize) {
        // The data of images.
        if text.starts_with("data:") {
            return (Cow::Borrowed(text), 0);
        }
        let mut n = 0;
        let mut text = Cow::Borrowed(text);
        for value in &self.values {
            let found = text.matches(value.as_str()).count();
            if found > 0 {
                n += found as u64;
                text = Cow::Owned(text.replace(value.as_str(), PLACEHOLDER));
            }
        }
        for pattern in SECRETS.iter().chain(&self.patterns) {
            text = substitute(text, pattern, &mut |part| {
                (!part.starts_with(PLACEHOLDER)).then(|| {
                    n += 1;
                    PLACEHOLDER.to_owned()
                })
            });
        }
        (text, usize::try_from(n).unwrap_or(usize::MAX))
    }
}

const PLACEHOLDER: &str = "REDACTED_SECRET";

/// Placeholders, by what they stand for.
#[derive(Default)]
struct Redactor {
    secrets: HashMap<String, String>,
    mails: HashMap<String, String>,
    users: HashMap<String, String>,
    /// The user names as words.
    names: Option<Regex>,
    redacted: Redacted,
}

/// Patterns whose group 1, or the whole where there is none, is a secret.
static SECRETS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        // Keys that say themselves what they are.
        r"\b(?:sk|rk|pk)[-_](?:ant-|proj-|live_|test_|or-)?[A-Za-z0-9_-]{20,}",
        r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{40,})",
        r"\bglpat-[A-Za-z0-9_-]{20,}",
        r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
        r"\bAIza[A-Za-z0-9_-]{35}",
        r"\b(?:hf|npm|gsk)_[A-Za-z0-9]{30,}",
        r"\b(?:xai|pplx|whsec)[-_][A-Za-z0-9]{24,}",
        r"\bpypi-[A-Za-z0-9_-]{40,}",
        r"\bdckr_pat_[A-Za-z0-9_-]{20,}",
        r"\bdo[opr]_v1_[a-f0-9]{64}\b",
        r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        r"\b(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}",
        r"\bhooks\.slack\.com/services/([A-Z0-9]+/[A-Z0-9]+/[A-Za-z0-9]{16,})",
        r"\bAGE-SECRET-KEY-1[A-Z0-9]{50,}",
        r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
        // Values that their names give away.
        r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)",
        r#"(?i)\bauthorization["']?\s*[:=]\s*["']?(?:basic|token)\s+([A-Za-z0-9._~+/-]{8,}=*)"#,
        r"://[^/\s:@]+:([^/\s:@]{3,})@",
        r#"(?i)\b[a-z0-9_]*(?:api[_-]?key|account_?key|private_?key|secret|passw(?:or)?d|passphrase|(?:access|auth|refresh|id|bot)_?token)[a-z0-9_]*\\?["']?\s*[:=]\s*\\?["']?([A-Za-z0-9._~+/!@#$%^&*-]{8,})"#,
    ]
    .iter()
    .filter_map(|pattern| Regex::new(pattern).ok())
    .collect()
});

static MAIL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.[A-Za-z]{2,12}\b").ok()
});

static HOME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:/home/|/Users/|(?i:[a-z]:(?:\\\\?|/)users(?:\\\\?|/)))([A-Za-z0-9._-]+)").ok());

/// Names that say nothing about a person.
const COMMON: [&str; 12] =
    ["user", "users", "root", "ubuntu", "runner", "node", "vscode", "admin", "shared", "public", "default", "home"];

impl Redactor {
    /// Notes the user names of a value's home paths.
    fn learn(&mut self, value: &Value) {
        let Some(home) = HOME.as_ref() else { return };
        each_text(value, &mut |text| {
            for found in home.captures_iter(text) {
                let name = found.get(1).map_or("", |name| name.as_str());
                let is_own = name.starts_with("user") && name[4..].bytes().all(|byte| byte.is_ascii_digit());
                if !is_own && !COMMON.contains(&name.to_ascii_lowercase().as_str()) && !self.users.contains_key(name) {
                    let n = self.users.len() + 1;
                    self.users.insert(name.to_owned(), format!("user{n}"));
                    self.names = None;
                }
            }
        });
    }

    fn apply(&mut self, value: &mut Value) {
        if self.names.is_none() && !self.users.is_empty() {
            // Short names are words of many kinds: these are replaced in paths only.
            let mut long: Vec<String> =
                self.users.keys().filter(|name| name.len() >= 4).map(|name| regex::escape(name)).collect();
            long.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
            self.names = (!long.is_empty()).then(|| Regex::new(&format!(r"\b(?:{})\b", long.join("|"))).ok()).flatten();
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(changed) = self.text(text) {
                    *text = changed;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            Value::Object(map) => map.values_mut().for_each(|value| self.apply(value)),
            _ => {}
        }
    }

    fn text<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        // The data of images.
        if text.starts_with("data:") {
            return Cow::Borrowed(text);
        }
        let mut text = Cow::Borrowed(text);
        let Redacted { secrets, mails, users } = &mut self.redacted;
        for pattern in SECRETS.iter() {
            text = replace(text, pattern, &mut self.secrets, "REDACTED_SECRET_", secrets);
        }
        if let Some(mail) = MAIL.as_ref() {
            text = replace(text, mail, &mut self.mails, "mail", mails);
        }
        let known = &self.users;
        for pattern in [HOME.as_ref(), self.names.as_ref()].into_iter().flatten() {
            let mut n = 0;
            let changed = pattern.replace_all(&text, |found: &Captures<'_>| {
                let (whole, name) = whole_and_part(found);
                match known.get(name) {
                    Some(placeholder) => {
                        n += 1;
                        format!("{}{placeholder}", whole.strip_suffix(name).unwrap_or_default())
                    }
                    None => whole.to_owned(),
                }
            });
            if n > 0 {
                *users += n;
                text = Cow::Owned(changed.into_owned());
            }
        }
        text
    }
}

/// A match, and its first group where it has one.
fn whole_and_part<'t>(found: &Captures<'t>) -> (&'t str, &'t str) {
    let whole = found.get(0).map_or("", |whole| whole.as_str());
    (whole, found.get(1).map_or(whole, |part| part.as_str()))
}

fn replace<'t>(
    text: Cow<'t, str>,
    pattern: &Regex,
    known: &mut HashMap<String, String>,
    prefix: &str,
    count: &mut u64,
) -> Cow<'t, str> {
    let suffix = if prefix == "mail" { "@example.com" } else { "" };
    substitute(text, pattern, &mut |part| {
        // What is a placeholder already stays one.
        if part.starts_with(PLACEHOLDER) || part.ends_with("@example.com") {
            return None;
        }
        *count += 1;
        let n = known.len() + 1;
        Some(known.entry(part.to_owned()).or_insert_with(|| format!("{prefix}{n}{suffix}")).clone())
    })
}

/// Exchanges what the pattern finds for what `placeholder` gives for it; `None` leaves it.
fn substitute<'t>(
    text: Cow<'t, str>,
    pattern: &Regex,
    placeholder: &mut dyn FnMut(&str) -> Option<String>,
) -> Cow<'t, str> {
    if !pattern.is_match(&text) {
        return text;
    }
    let changed = pattern.replace_all(&text, |found: &Captures<'_>| {
        let (whole, part) = whole_and_part(found);
        match (placeholder(part), whole.rfind(part)) {
            (None, _) => whole.to_owned(),
            (Some(placeholder), Some(at)) => format!("{}{placeholder}{}", &whole[..at], &whole[at + part.len()..]),
            (Some(placeholder), None) => placeholder,
        }
    });
    Cow::Owned(changed.into_owned())
}

fn each_text(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, each)),
        Value::Object(map) => map.values().for_each(|value| each_text(value, each)),
        _ => {}
    }
}
