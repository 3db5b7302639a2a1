//! What the panes say, as lines of plain text.

use std::collections::HashMap;

use condenser::event::{EventId, EventKind};
use condenser::render::Mode;
use condenser::request::text_of;
use condenser::request::{Bodies as _, Shown as Content};
use condenser_snapshot::{change, printable};

use super::recording::{Recording, Shown};

/// Lines of an entry's text, short and long.
const MAX_TEXT_LINES: [usize; 2] = [6, 400];
/// Characters of a line, and of a line of the log.
const MAX_LINE: usize = 1000;
const MAX_EXCERPT: usize = 200;
/// Lines of a change.
const MAX_CHANGE_LINES: usize = 4000;
/// Characters of each text in a change.
const PREFIX: usize = 400;
/// Cells of the bar of a size.
const BAR: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pane {
    View,
    Log,
    Change,
    Sizes,
}

impl Pane {
    pub(crate) const ALL: [Self; 4] = [Self::View, Self::Log, Self::Change, Self::Sizes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::View => "View",
            Self::Log => "Log",
            Self::Change => "Change",
            Self::Sizes => "Sizes",
        }
    }

    /// Whether lines that are too long go on in the next row.
    pub(crate) fn wraps(self) -> bool {
        matches!(self, Self::View | Self::Change)
    }

    pub(crate) fn lines(self, recording: &Recording<'_>, step: usize, shown: &Shown, is_long: bool) -> Vec<String> {
        match self {
            Self::View => view(recording, shown, MAX_TEXT_LINES[usize::from(is_long)]),
            Self::Log => log(recording, shown),
            Self::Change => changes(recording, step, shown),
            Self::Sizes => sizes(recording, step),
        }
    }
}

fn view(recording: &Recording<'_>, shown: &Shown, max_lines: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in shown.view.iter() {
        let content = Content::of(entry, recording);
        let mut head = format!("[{}] ", entry.index());
        match &content {
            Some(Content::Event(kind)) => head.push_str(&kind_of(kind)),
            Some(Content::Summary(_)) => head.push_str("summary"),
            None => head.push_str("missing"),
        }
        head.push_str(&format!(" #{}", entry.seq()));
        for (flag, word) in
            [(entry.is_pinned(), "pinned"), (entry.rewrite().is_some(), "rewritten"), (entry.is_open(), "open")]
        {
            if flag {
                head.push_str(&format!(" ({word})"));
            }
        }
        lines.push(head);
        let text = content.map(|content| content.text()).unwrap_or_default();
        let mut rest = text.lines();
        lines.extend(rest.by_ref().take(max_lines).map(|line| format!("    {}", excerpt(line, MAX_LINE))));
        match rest.count() {
            0 => {}
            n => lines.push(format!("    … {n} more lines")),
        }
    }
    lines
}

/// An event a line. In front of it what became of it.
fn log(recording: &Recording<'_>, shown: &Shown) -> Vec<String> {
    let view = &shown.view;
    let mut marks: HashMap<usize, (char, bool)> = HashMap::new();
    for entry in view.iter().filter(|entry| !entry.is_summary()) {
        marks.insert(entry.seq(), (if entry.rewrite().is_some() { '~' } else { '+' }, entry.is_pinned()));
    }
    let records = (0..view.n_pushed()).filter_map(|seq| recording.record(seq));
    // By id: whether something stands for it.
    let mut gone: HashMap<&EventId, bool> = HashMap::new();
    for record in records {
        for id in &record.forgotten_event_ids {
            gone.insert(id, record.shown_summary().is_some());
        }
    }
    let line = |seq: usize| {
        let event = recording.event(seq)?;
        let (mark, is_pinned) = marks.get(&seq).copied().unwrap_or_else(|| {
            let mark = match (&event.kind, gone.get(&event.id)) {
                (EventKind::Condensation(_), _) => '*',
                (_, Some(true)) => 's',
                (_, Some(false)) => '-',
                // Never shown, or left out of the view as damaged.
                (_, None) => ' ',
            };
            (mark, false)
        });
        let text = match &event.kind {
            EventKind::Condensation(record) => format!(
                "forgotten {}, rewritten {}{}",
                record.forgotten_event_ids.len(),
                record.rewrites.len(),
                record.summary.as_ref().map_or(String::new(), |summary| format!(", summary: {summary}"))
            ),
            kind => text_of(kind),
        };
        let pin = if is_pinned { '!' } else { ' ' };
        Some(format!("{mark}{pin} #{seq:<4} {:<11} {}", kind_of(&event.kind), excerpt(text.trim(), MAX_EXCERPT)))
    };
    (0..view.n_pushed()).filter_map(line).collect()
}

fn changes(recording: &Recording<'_>, step: usize, shown: &Shown) -> Vec<String> {
    let found = shown.change.as_ref().and_then(|(seq, before)| Some((*seq, before, recording.record(*seq)?)));
    let Some((seq, before, record)) = found else {
        let older = recording.steps[..step].iter().rposition(|step| step.has_record);
        return vec![match older {
            Some(step) => {
                format!("Nothing was changed before this step; the last change came before step {}.", step + 1)
            }
            None => "Nothing has been changed so far.".to_owned(),
        }];
    };
    let text = change(record, before, &shown.view, recording, Mode::Prefix(PREFIX), MAX_CHANGE_LINES);
    let by = record.provenance.as_deref().map_or("the recording agent", |provenance| &provenance.policy);
    let mut lines = vec![format!("record #{seq} by {}", excerpt(by, 60))];
    lines.extend(text.lines().map(str::to_owned));
    lines
}

fn sizes(recording: &Recording<'_>, now: usize) -> Vec<String> {
    let line = |(step, at): (usize, &super::recording::Step)| {
        format!(
            "{}{}{:>5} {:>9} tokens {}  {:>9} cached {:>5} entries",
            if step == now { '>' } else { ' ' },
            if at.has_record { '*' } else { ' ' },
            step + 1,
            at.tokens.0,
            bar(at.tokens.0, recording.limit.0, BAR),
            at.cached.0,
            at.n_entries,
        )
    };
    recording.steps.iter().enumerate().map(line).collect()
}

/// A size beside its limit; `!` where it is over.
pub(crate) fn bar(size: u64, limit: u64, cells: usize) -> String {
    let filled = (size as f64 / limit.max(1) as f64 * cells as f64).round() as usize;
    let end = if size > limit { '!' } else { ']' };
    format!("[{}{}{end}", "#".repeat(filled.min(cells)), ".".repeat(cells.saturating_sub(filled)))
}

fn kind_of(kind: &EventKind) -> String {
    match kind {
        EventKind::Message(message) => format!("{:?}", message.role).to_lowercase(),
        EventKind::Action(action) => format!("call {}", excerpt(&action.tool_name, 40)),
        EventKind::Observation(_) => "result".to_owned(),
        kind => kind.name().replace('_', " "),
    }
}

/// The beginning of a text in one line.
fn excerpt(text: &str, most: usize) -> String {
    let mut shown = text.chars();
    let taken: String = shown.by_ref().take(most).map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c }).collect();
    let mut taken = printable(&taken);
    if !shown.as_str().is_empty() {
        taken.push('…');
    }
    taken
}
