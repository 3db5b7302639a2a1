//! What a server says when it does not answer, in each provider's words.

use std::time::Duration;

use condenser::Tokens;
use serde_json::Value;

use crate::error::CallError;

/// Most characters of what a server said that an error repeats.
const EXCERPT: usize = 200;

/// Says that the request was too long.
const TOO_LONG_CODES: [&str; 4] =
    ["context_length_exceeded", "exceed_context_size_error", "request_too_large", "string_above_max_length"];

/// The same in words, lower case.
const TOO_LONG_WORDS: [&str; 10] = [
    "maximum context length",
    "exceeds the context window",
    "context window exceeds",
    "context_length_exceeded",
    "prompt is too long",
    "exceed context limit",
    "exceeds the available context size",
    "input token count",
    "input is too long",
    "reduce the length of the",
];

/// What stands before the number that is the limit, lower case.
const BEFORE_LIMIT: [&str; 6] = [
    "maximum context length is ",
    "maximum number of tokens allowed (",
    "maximum number of tokens allowed is ",
    "available context size (",
    "context window of ",
    "> ",
];

/// The error that a status and its body mean. `clean` takes the key and secrets out.
pub(crate) fn refusal(
    status: u16,
    body: &str,
    retry_after: Option<Duration>,
    clean: &dyn Fn(&str) -> String,
) -> CallError {
    let json: Value = serde_json::from_str(body).unwrap_or(Value::Null);
    let error = json.get("error").unwrap_or(&json);
    let message = error.get("message").or(json.get("message")).or(json.get("detail")).and_then(Value::as_str);
    let message = message.or(error.as_str()).unwrap_or(if json.is_null() { body } else { "" });
    let codes = ["code", "type"].map(|name| error.get(name).and_then(Value::as_str).unwrap_or_default());
    let said = excerpt(&clean(message), &clean(codes.into_iter().find(|code| !code.is_empty()).unwrap_or_default()));
    let lower = message.to_lowercase();
    let is_too_long = TOO_LONG_CODES.iter().any(|code| codes.contains(code))
        || matches!(status, 400 | 413 | 422) && TOO_LONG_WORDS.iter().any(|words| lower.contains(words));
    if is_too_long {
        let limit = error.get("n_ctx").and_then(Value::as_u64).or_else(|| limit(&lower));
        return CallError::TooLong { limit: limit.filter(|limit| *limit > 0).map(Tokens), said };
    }
    match status {
        408 | 409 | 429 | 500..=599 => CallError::Busy { status, retry_after, tries: 1, said },
        _ => CallError::Refused { status, said },
    }
}

fn limit(lower: &str) -> Option<u64> {
    BEFORE_LIMIT.iter().find_map(|before| {
        let rest = &lower[lower.find(before)? + before.len()..];
        let digits: String =
            rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
        digits.parse().ok()
    })
}

/// One line of the message or else of the code, bounded, without control characters.
fn excerpt(message: &str, code: &str) -> String {
    let line = |text: &str| -> String {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").chars().filter(|c| !c.is_control()).take(EXCERPT).collect()
    };
    let said = [line(message), line(code)].into_iter().find(|said| !said.is_empty());
    said.unwrap_or_else(|| "nothing further".to_owned())
}
