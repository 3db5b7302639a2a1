//! The arms' arithmetic, over a history that is told in kinds.

use serde::{Deserialize, Serialize};

/// What of a history is masked and what is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The newest turns that stay as they are.
    pub raw_turns: usize,
    /// Whether results of older turns are masked.
    pub masks: bool,
    /// How many turns before those are folded at once. `None`: none.
    pub folded_turns: Option<usize>,
}

impl Settings {
    /// The masking arm.
    pub const MASKING: Self = Self { raw_turns: 10, masks: true, folded_turns: None };
    /// The summarizing arm.
    pub const SUMMARY: Self = Self { raw_turns: 10, masks: false, folded_turns: Some(21) };
    /// The arm with both.
    pub const HYBRID: Self = Self { raw_turns: 10, masks: true, folded_turns: Some(42) };
}

/// What an entry of a history is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An answer of the agent: a turn begins.
    Answer,
    /// A result of the turn's calls.
    Result,
    /// An earlier summary.
    Summary,
    /// A prompt, or what a user says.
    Other,
}

/// The turn that each entry belongs to, from 0; `None` before the first.
fn turns(history: &[Kind]) -> Vec<Option<usize>> {
    let mut turn = None;
    let number = |kind: &Kind| {
        if *kind == Kind::Answer {
            turn = Some(turn.map_or(0, |turn| turn + 1));
        }
        turn
    };
    history.iter().map(number).collect()
}

fn n_turns(turns: &[Option<usize>]) -> usize {
    turns.last().copied().flatten().map_or(0, |last| last + 1)
}

/// The results that are masked.
pub fn masked(history: &[Kind], settings: &Settings) -> Vec<usize> {
    let turns = turns(history);
    let old = n_turns(&turns).saturating_sub(settings.raw_turns);
    let is_old = |at: &usize| history[*at] == Kind::Result && turns[*at].is_some_and(|turn| turn < old);
    (0..history.len()).filter(|at| settings.masks && is_old(at)).collect()
}

/// The entries that are folded: the oldest turns with what stands between them, and every earlier summary.
pub fn folded(history: &[Kind], settings: &Settings) -> Vec<usize> {
    let turns = turns(history);
    let Some(n) = settings.folded_turns.filter(|n| *n > 0 && n_turns(&turns) >= n + settings.raw_turns) else {
        return Vec::new();
    };
    let is_folded = |at: &usize| history[*at] == Kind::Summary || turns[*at].is_some_and(|turn| turn < n);
    (0..history.len()).filter(is_folded).collect()
}

/// The line that stands for a result of so many lines.
pub fn mask(n_lines: usize) -> String {
    format!("[{n_lines} lines of an earlier result are left out]")
}
