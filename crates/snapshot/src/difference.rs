//! A snapshot held against a stored one.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::paper::{cut, printable};

/// The largest file that is looked at. No snapshot is as large.
pub const MAX_BYTES: u64 = 16 << 20;
/// After so long what is left is shown as replaced: texts without a common line take time squared.
const PATIENCE: Duration = Duration::from_secs(3);
/// Lines of a shown difference.
const MAX_LINES: usize = 80;
/// Characters of a line of it.
const MAX_LINE: usize = 200;
/// Unchanged lines around each change.
const CONTEXT: usize = 3;

/// What a stored snapshot is to a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// They say the same. How lines end, and whether the last one does, is not looked at.
    None,
    /// They differ: a unified diff, bounded, from the stored one to the new one.
    Changed(String),
    /// There is no stored one.
    Missing,
    /// What is stored is no snapshot; says why.
    Unusable(String),
}

impl Difference {
    /// Compares the file at `path` with `new`.
    pub fn of_file(path: &Path, new: &str) -> Self {
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::Missing,
            Err(error) => return Self::Unusable(error.to_string()),
            Ok(metadata) if !metadata.is_file() => return Self::Unusable("not a file".into()),
            Ok(metadata) if metadata.len() > MAX_BYTES => {
                return Self::Unusable(format!("{} bytes are more than a snapshot has", metadata.len()));
            }
            Ok(_) => {}
        }
        match std::fs::read(path) {
            Ok(stored) => Self::of(&stored, new),
            Err(error) => Self::Unusable(error.to_string()),
        }
    }

    /// Compares stored bytes with `new`.
    pub fn of(stored: &[u8], new: &str) -> Self {
        let stored = stored.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stored);
        let Ok(stored) = std::str::from_utf8(stored) else { return Self::Unusable("not text".into()) };
        let stored = stored.replace("\r\n", "\n");
        let (stored, new) = (stored.trim_end_matches('\n'), new.trim_end_matches('\n'));
        if stored == new { Self::None } else { Self::Changed(unified(stored, new)) }
    }
}

fn unified(stored: &str, new: &str) -> String {
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(stored, new);
    let mut text = String::new();
    let mut n_lines = 0;
    let mut n_left_out = 0;
    for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
        let lines = hunk.iter_changes().map(|change| {
            let mark = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            format!("{mark}{}", cut(&printable(change.value().trim_end_matches('\n')), MAX_LINE))
        });
        for line in std::iter::once(hunk.header().to_string()).chain(lines) {
            n_lines += 1;
            if n_lines > MAX_LINES {
                n_left_out += 1;
            } else {
                let _ = writeln!(text, "{}", line.trim_end_matches('\n'));
            }
        }
    }
    if n_left_out > 0 {
        let _ = writeln!(text, "… {n_left_out} more lines");
    }
    text
}
