//! What a policy made of a trace, step by step.

use std::fmt::Write as _;

use condenser::event::{Event, EventKind};
use condenser::render::{Mode, Rendering};
use condenser::request::{Bodies, Sizer};
use condenser::view::{Pushed, View};
use condenser::{Condensation, ViewDiff};
use condenser_harness::Seen;
use similar::{Algorithm, DiffOp, capture_diff_slices};

use crate::Setup;
use crate::paper::{add, short};

/// Changes that are shown entry by entry. Of the others the counts are said.
pub(crate) const MAX_CHANGES: usize = 20;
/// Lines of one change.
pub(crate) const MAX_CHANGE_LINES: usize = 200;
/// Lines of the counts of further changes.
const MAX_FURTHER: usize = 200;
/// Lines of the last view.
const MAX_VIEW_LINES: usize = 2000;

/// A snapshot in the making: shown every step of a replay in order, it keeps what the policy changed.
///
/// It follows the log of the run. A replay whose records are taken back, as those of the control `oracle` are, is not
/// for it.
#[derive(Debug)]
pub(crate) struct Pages<'s> {
    setup: &'s Setup<'s>,
    name: String,
    n_steps: usize,
    view: View,
    n_changes: usize,
    changes: String,
    further: String,
    last: String,
}

impl<'s> Pages<'s> {
    /// Of the policy or control `name` on a trace of so many steps.
    pub(crate) fn new(setup: &'s Setup<'s>, name: &str, n_steps: usize) -> Self {
        Self {
            setup,
            name: short(name),
            n_steps,
            view: View::new(setup.rules),
            n_changes: 0,
            changes: String::new(),
            further: String::new(),
            last: String::new(),
        }
    }

    /// The next step.
    pub(crate) fn see(&mut self, seen: &Seen<'_>) {
        for seq in self.view.n_pushed()..seen.view.n_pushed() {
            let Some(event) = seen.bodies.event(seq) else { continue };
            let EventKind::Condensation(record) = &event.kind else {
                push(&mut self.view, event, seen.bodies);
                continue;
            };
            let before = self.view.clone();
            if push(&mut self.view, event, seen.bodies) {
                self.change(seen, &before, record);
            }
        }
        if seen.step + 1 == self.n_steps {
            let sizer = Sizer::new(self.setup.counter);
            self.last = Rendering::new(self.setup.mode).with_tokens(&sizer).view(seen.view, seen.bodies);
        }
    }

    fn change(&mut self, seen: &Seen<'_>, before: &View, record: &Condensation) {
        self.n_changes += 1;
        let title = format!("change {}, before step {}", self.n_changes, seen.step + 1);
        if self.n_changes <= MAX_CHANGES {
            let text = change(record, before, &self.view, seen.bodies, self.setup.mode, MAX_CHANGE_LINES);
            let _ = write!(self.changes, "\n== {title}\n{text}");
        } else {
            let _ = writeln!(self.further, "{title}: {}", facts(record, before, &self.view).join("; "));
        }
    }

    /// The snapshot. Ends with a line feed.
    pub(crate) fn finish(self) -> String {
        let mut page = format!(
            "condenser snapshot v1\npolicy {}\n{}\n{} changes in {} steps\n{}",
            self.name,
            self.setup.line(),
            self.n_changes,
            self.n_steps,
            self.changes
        );
        if !self.further.is_empty() {
            page.push_str("\n== further changes\n");
            add(&mut page, &self.further, MAX_FURTHER);
        }
        if !self.last.is_empty() {
            let _ = writeln!(page, "\n== the view of step {}", self.n_steps);
            add(&mut page, &self.last, MAX_VIEW_LINES);
        }
        page
    }
}

/// One condensation as a snapshot shows it: why, what it did in numbers, and the entries that are not on both sides
/// alike, marked `-` and `+`. Bounded by `max_lines`.
pub fn change(
    record: &Condensation,
    before: &View,
    after: &View,
    bodies: &(impl Bodies + ?Sized),
    mode: Mode,
    max_lines: usize,
) -> String {
    let mut text = facts(record, before, after).join("\n");
    text.push('\n');
    add(&mut text, &changed(&Rendering::new(mode).change(before, after, bodies)), max_lines);
    text
}

/// Pushes the next event of a log. Whether it changed what was shown before.
pub fn push(view: &mut View, event: &Event, bodies: &(impl Bodies + ?Sized)) -> bool {
    let n_pushed = view.n_pushed();
    match view.push(event) {
        Pushed::ReplayNeeded => {
            let log = (0..=n_pushed).filter_map(|seq| bodies.event(seq));
            *view = View::replay(log, view.rules());
            true
        }
        pushed => pushed == Pushed::Condensed,
    }
}

/// Why a record was made and what it did, a line each.
pub(crate) fn facts(record: &Condensation, before: &View, after: &View) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(provenance) = record.provenance.as_deref() {
        if !provenance.reasons.is_empty() {
            lines.push(format!("why: {}", short(&provenance.reasons.join(", "))));
        }
        if let (Some(before), Some(after)) = (provenance.tokens_before, provenance.tokens_after) {
            lines.push(format!("request: {before} to {after} tokens"));
        }
        if !provenance.fallbacks.is_empty() {
            lines.push(format!("fell back to: {}", short(&provenance.fallbacks.join(", "))));
        }
        for (what, n) in [
            ("left out although named", provenance.clamped),
            ("added to keep pairs whole", provenance.extended),
            ("images forgotten", provenance.images),
            ("secrets taken out", provenance.redacted),
        ] {
            if n > 0 {
                lines.push(format!("{what}: {n}"));
            }
        }
    }
    lines.push(counts(&before.diff(after), after));
    lines
}

pub(crate) fn counts(diff: &ViewDiff, after: &View) -> String {
    let summary = match diff.came.first().and_then(|came| after.ids().position(|id| id == came)) {
        Some(at) => format!("summary at {at}"),
        None => "no summary".to_owned(),
    };
    format!("forgotten {}, rewritten {}, {summary}", diff.left.len(), diff.rewritten.len())
}

/// One entry as rendered: where it stands, what it is, and its text.
struct Block<'t> {
    index: &'t str,
    rest: &'t str,
}

/// The entries of a rendered change that are not on both sides alike, marked `-` and `+`.
///
/// Bodies are indented in a rendering, so a line that begins with a bracket is an entry's head.
pub(crate) fn changed(rendered: &str) -> String {
    let (before, after) = rendered.split_once("\n== after\n").unwrap_or((rendered, ""));
    let before = before.split_once("== before\n").map_or("", |(_, sides)| sides);
    let (before, after) = (blocks(before), blocks(after));
    let rests = |blocks: &[Block<'_>]| blocks.iter().map(|block| block.rest.to_owned()).collect::<Vec<_>>();
    let mut text = String::new();
    for op in capture_diff_slices(Algorithm::Myers, &rests(&before), &rests(&after)) {
        if let DiffOp::Equal { len, .. } = op {
            let _ = writeln!(text, "  … {len} as before");
            continue;
        }
        for (mark, blocks) in [('-', &before[op.old_range()]), ('+', &after[op.new_range()])] {
            for block in blocks {
                let mut lines = block.rest.lines();
                let _ = writeln!(text, "{mark} {}{}", block.index, lines.next().unwrap_or_default());
                lines.for_each(|line| {
                    let _ = writeln!(text, "{mark} {line}");
                });
            }
        }
    }
    text
}

fn blocks(side: &str) -> Vec<Block<'_>> {
    let mut starts: Vec<usize> = side.match_indices("\n[").map(|(at, _)| at + 1).collect();
    if side.starts_with('[') {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([side.len()]);
    let block = |(start, end): (&usize, usize)| {
        let text = side[*start..end].trim_end_matches('\n');
        let at = text.find(' ').map_or(text.len(), |at| at + 1);
        Block { index: &text[..at], rest: &text[at..] }
    };
    starts.iter().zip(ends).map(block).collect()
}
