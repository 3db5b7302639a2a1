//! Where a list is cut: LangChain's helper.

use std::collections::HashSet;

use serde_json::Value;

use super::message::{call_id, calls, is_assistant, is_tool};
use super::{Counter, Size, UNKNOWN_LIMIT};

/// How many messages are summarized so that the newest stay; 0 is none.
pub fn cutoff(messages: &[Value], keep: Size, limit: Option<u64>, counter: &dyn Counter) -> usize {
    let n = messages.len();
    let budget = match (keep.tokens(limit), keep) {
        (Some(budget), _) => budget,
        (None, Size::Messages(keep)) => return by_count(messages, keep),
        (None, _) => {
            let Size::Messages(keep) = UNKNOWN_LIMIT else { return 0 };
            return by_count(messages, keep);
        }
    };
    if n == 0 || counter.scaled(messages) <= budget {
        return 0;
    }
    // As many rounds as the number has binary digits, and one.
    let (mut low, mut high, mut best) = (0, n, n);
    for _ in 0..=(usize::BITS - n.leading_zeros()) {
        if low >= high {
            break;
        }
        let middle = (low + high) / 2;
        if counter.tokens(&messages[middle..]) <= budget {
            high = middle;
            best = middle;
        } else {
            low = middle + 1;
        }
    }
    if best == n {
        best = low;
    }
    if best >= n {
        if n == 1 {
            return 0;
        }
        best = n - 1;
    }
    safe_point(messages, best)
}

fn by_count(messages: &[Value], keep: u64) -> usize {
    match (messages.len() as u64).checked_sub(keep) {
        None | Some(0) => 0,
        Some(target) => safe_point(messages, target as usize),
    }
}

/// A cut at or before `at` that leaves a result behind its call; behind the results where the call is not there.
pub fn safe_point(messages: &[Value], at: usize) -> usize {
    let run = messages.get(at..).unwrap_or_default().iter().take_while(|message| is_tool(message));
    let results: Vec<&str> = run.map(call_id).collect();
    let ids: HashSet<&str> = results.iter().copied().filter(|id| !id.is_empty()).collect();
    if results.is_empty() {
        return at;
    }
    let has_call = |message: &&Value| is_assistant(message) && calls(message).any(|call| ids.contains(call.id()));
    let call = messages[..at].iter().rposition(|message| has_call(&message));
    call.unwrap_or(at + results.len())
}
