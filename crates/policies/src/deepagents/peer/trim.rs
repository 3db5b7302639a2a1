//! What the summarizer is shown of a list that is too long: LangChain's trimming.

use serde_json::{Value, json};

use super::Counter;
use super::message::{block_text, role};

/// A leading system message, and as much of the end as fits. The oldest of it may be there in part, by lines, and must
/// be the user's: without one nothing is left.
pub fn trim(messages: &[Value], limit: u64, counter: &dyn Counter) -> Vec<Value> {
    let (system, rest) = match messages {
        [first, rest @ ..] if role(first) == "system" => (Some(first), rest),
        all => (None, all),
    };
    let limit = limit.saturating_sub(system.map_or(0, |system| counter.tokens(std::slice::from_ref(system))));
    // Newest first, as the original counts.
    let mut newest: Vec<Value> = rest.iter().rev().cloned().collect();
    if counter.scaled(&newest) > limit {
        let (mut low, mut high) = (0, newest.len());
        while low < high {
            let middle = (low + high).div_ceil(2);
            if counter.scaled(&newest[..middle]) <= limit {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        let part = newest.get(low).and_then(|next| part(&newest[..low], next, limit, counter));
        newest.truncate(low);
        newest.extend(part);
    }
    while newest.last().is_some_and(|message| role(message) != "user") {
        newest.pop();
    }
    system.cloned().into_iter().chain(newest.into_iter().rev()).collect()
}

/// The last blocks, else the last lines, of a message that fit.
fn part(kept: &[Value], message: &Value, limit: u64, counter: &dyn Counter) -> Option<Value> {
    let with = |content: Value| {
        let mut message = message.clone();
        message["content"] = content;
        message
    };
    let text = match &message["content"] {
        Value::String(text) => text.as_str(),
        Value::Array(blocks) => {
            for start in 1..blocks.len() {
                let message = with(json!(blocks[start..]));
                let all: Vec<Value> = kept.iter().cloned().chain([message.clone()]).collect();
                if counter.scaled(&all) <= limit {
                    return Some(message);
                }
            }
            blocks.iter().find_map(block_text)?
        }
        _ => return None,
    };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let base = counter.scaled(kept);
    let last = |n: usize| with(Value::String(lines[lines.len() - n..].concat()));
    // A text that ends with a line feed has an empty last line.
    let (mut low, mut high) = (0, lines.len());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if base + counter.tokens(&[last(middle)]) <= limit {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    (low > 0).then(|| last(low))
}
