//! The screen as cells. No colours: marks and emphasis say everything.

use condenser_snapshot::printable;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::panes::{Pane, bar};
use super::screen::{Mode, Screen};

const HELP: [&str; 20] = [
    "left right, k j   step back, step on",
    "g G               first step, last step",
    "c C               next, previous change by the policy",
    "up down           scroll a line",
    "PgUp PgDn         scroll a page; Home, End",
    "Tab, Shift-Tab    next, previous pane",
    "Enter             longer texts in the view, and back",
    "/ n N             search in this pane, next, previous",
    "?                 this help",
    "q, Esc, Ctrl-C    quit",
    "",
    "View    what the model is shown at this step; #n is the event in the log",
    "Log     every event so far, and what became of it:",
    "        + shown   ~ shown rewritten   - forgotten   s forgotten, summarized",
    "        * a record of the policy      ! pinned",
    "Change  why the policy acted before this step, and what it changed:",
    "        - was shown   + is shown now",
    "Sizes   every request beside what it may hold; ! over it, * changed before it",
    "",
    "Any key closes this.",
];
const KEYS: &str = "left/right step  c change  Tab pane  / search  ? help  q quit";

/// Draws the screen. Any area will do, an empty one included.
pub(crate) fn draw(screen: &Screen<'_>, area: Rect, buffer: &mut Buffer) {
    let mut page = Page { area, buffer };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let recording = screen.recording;
    let at = recording.steps[screen.step];
    let n_steps = recording.steps.len();
    // The end of a long name says more than its beginning.
    let place = format!("step {} of {n_steps}  {}", screen.step + 1, printable(&recording.policy));
    let name = printable(&recording.trace.name);
    let room = usize::from(area.width).saturating_sub(place.chars().count() + 4);
    let n_chars = name.chars().count();
    let name: String = match n_chars > room {
        true => std::iter::once('…').chain(name.chars().skip(n_chars + 1 - room.max(1))).collect(),
        false => name,
    };
    page.line(0, &format!(" {place}  {name}"), bold);
    let (tokens, limit) = (at.tokens.0, recording.limit.0);
    let sizes = format!(
        " request {tokens} of {limit} {} window {}  cached {}  entries {}{}",
        bar(tokens, limit, 10),
        recording.window.0,
        at.cached.0,
        at.n_entries,
        if at.has_record { "  changed" } else { "" },
    );
    page.line(1, &sizes, Style::new());
    let tabs = Pane::ALL.map(|pane| match pane == screen.pane {
        true => format!("[{}]", pane.name()),
        false => format!(" {} ", pane.name()),
    });
    let shown =
        format!("{}-{}/{}", screen.top + 1, (screen.top + screen.page()).min(screen.rows.len()), screen.rows.len());
    page.line(2, &format!("{}   rows {shown}", tabs.concat()), bold);
    let height = area.height.saturating_sub(4);
    for y in 0..height {
        if screen.mode == Mode::Help {
            page.line(3 + y, HELP.get(usize::from(y)).map_or("", |line| line), Style::new());
            continue;
        }
        let row = screen.top + usize::from(y);
        let Some(text) = screen.rows.get(row) else { continue };
        let is_found = screen.found == Some(row);
        let style = if is_found { reversed } else { Style::new() };
        page.line(3 + y, &format!("{}{text}", if is_found { '>' } else { ' ' }), style);
    }
    let last = match (&screen.message, screen.mode) {
        (_, Mode::Search) => format!("/{}_", printable(&screen.query)),
        (Some(message), _) => printable(message),
        _ => KEYS.to_owned(),
    };
    page.line(area.height.saturating_sub(1).max(3), &last, reversed);
}

struct Page<'b> {
    area: Rect,
    buffer: &'b mut Buffer,
}

impl Page<'_> {
    /// A line of the area, cut where the area ends.
    fn line(&mut self, y: u16, text: &str, style: Style) {
        if y < self.area.height && self.area.width > 0 {
            self.buffer.set_stringn(self.area.x, self.area.y + y, text, usize::from(self.area.width), style);
        }
    }
}
