//! Pruning with frozen decisions: what is decided about a tool result when it is first sent stays for the run.

use std::collections::{HashMap, HashSet};

use crate::exact::utf16_len;

/// A tool result with content, in a history about to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The call's id.
    pub id: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// The file that the call names.
    pub file: Option<&'a str>,
    /// The length of the result.
    pub size: usize,
    /// Whether it stands in the last message of the assistant.
    pub is_protected: bool,
}

/// What was decided so far in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruning {
    replaced: HashMap<String, String>,
    seen: HashSet<String>,
}

/// What one send decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// The calls whose results were newly replaced, largest first.
    pub replaced: Vec<String>,
    /// The files of which it is forgotten that they were read, in the same order.
    pub forgotten_reads: Vec<String>,
}

/// The text that stands for a result.
pub fn marker(id: &str, size: usize) -> String {
    format!(
        "[tool result omitted to save context — {size} chars. Retrieve with the `output` tool (id=\"{id}\"), or re-run \
         the tool.]"
    )
}

impl Pruning {
    /// The text that stands for a call's result. `None`: it is sent whole.
    pub fn replacement(&self, id: &str) -> Option<&str> {
        self.replaced.get(id).map(String::as_str)
    }

    /// Decides about the results of a history, oldest first. `budget`: the most characters of all of them.
    pub fn send(&mut self, candidates: &[Candidate<'_>], budget: usize) -> Pruned {
        let is_fresh =
            |candidate: &Candidate<'_>| !self.replaced.contains_key(candidate.id) && !self.seen.contains(candidate.id);
        let mut selectable: Vec<Candidate<'_>> =
            candidates.iter().copied().filter(|c| is_fresh(c) && !c.is_protected).collect();
        let size = |candidate: &Candidate<'_>| self.replacement(candidate.id).map_or(candidate.size, utf16_len);
        let mut remaining: usize = candidates.iter().map(size).sum();
        selectable.sort_by_key(|candidate| std::cmp::Reverse(candidate.size));
        let mut pruned = Pruned::default();
        for candidate in selectable {
            if remaining <= budget {
                break;
            }
            // The marker's own length is not added back.
            remaining -= candidate.size;
            self.replaced.insert(candidate.id.to_owned(), marker(candidate.id, candidate.size));
            pruned.replaced.push(candidate.id.to_owned());
            if let Some(file) = candidate.file.filter(|_| candidate.tool == "read") {
                pruned.forgotten_reads.push(file.to_owned());
            }
        }
        let whole = candidates.iter().filter(|candidate| !self.replaced.contains_key(candidate.id));
        self.seen.extend(whole.map(|candidate| candidate.id.to_owned()));
        pruned
    }
}
