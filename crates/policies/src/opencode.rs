//! `opencode-v1` and `opencode-v2`: the two compactions of OpenCode, written by its published description.
//!
//! [`v1`] is the service of the main app: old tool results are marked and shown as a placeholder where a run ends, and a
//! summary takes the place of all but the newest turns. [`v2`] is the event-sourced session: one checkpoint message holds
//! the summary of the older text and the newest text as it was serialized. Where releases differ, the defaults are those
//! of the published articles.

pub mod v1;
pub mod v2;

use condenser::State;

use crate::exact::utf16_len;
use crate::registry::PolicyInfo;

/// The tokens of a text: its length by four, halves rounded up.
pub fn estimate(text: &str) -> u64 {
    tokens(utf16_len(text))
}

fn tokens(length: usize) -> u64 {
    (length as u64 + 2) / 4
}

/// What the budget keeps for an answer, which stands for the model's output limit.
fn output_limit(state: &State<'_>) -> u64 {
    state.budgets.reserve.tokens.map_or(0, |reserve| reserve.0)
}

/// Both.
pub(crate) fn policies() -> Vec<PolicyInfo> {
    vec![v1::info(), v2::info()]
}

#[cfg(test)]
mod tests {
    #[test]
    fn halves_are_rounded_up() {
        assert_eq!(["", "a", "ab", "abc", "abcde", "abcdef", "😀"].map(super::estimate), [0, 0, 1, 1, 1, 2, 1]);
    }
}
