//! `opencode-v1` and `opencode-v2`: the two compactions of OpenCode, written by its published description.
//!
//! [`v1`] is the service of the main app: old tool results are marked and shown as a placeholder where a run ends, and a
//! summary takes the place of all but the newest turns. [`v2`] is the event-sourced session: one checkpoint message holds
//! the summary of the older text and the newest text as it was serialized. Where releases differ, the defaults are those
//! of the published articles.

pub mod v1;
pub mod v2;

use std::io;

use condenser::State;
use serde_json::Value;

use crate::exact::{utf16_len, utf16_units};
use crate::registry::PolicyInfo;

/// The tokens of a text: its length by four, halves rounded up.
pub fn estimate(text: &str) -> u64 {
    tokens(utf16_len(text))
}

/// The same of a value's JSON, which is not made for it.
fn estimate_json(value: &Value) -> u64 {
    struct Units(usize);
    impl io::Write for Units {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += utf16_units(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut units = Units(0);
    // Neither the writer fails nor a value.
    serde_json::to_writer(&mut units, value).map_or(u64::MAX, |()| tokens(units.0))
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
