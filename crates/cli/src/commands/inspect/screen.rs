//! What the inspector shows and how keys change it. Knows nothing of a terminal.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Span;

use super::panes::Pane;
use super::recording::{Recording, Shown};

/// Rows that are no part of a pane: title, sizes, tabs, keys.
const FRAME: u16 = 4;
/// Characters of a search.
const MAX_QUERY: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Steps,
    /// A search is being typed.
    Search,
    Help,
    Over,
}

pub(crate) struct Screen<'r> {
    pub(crate) recording: &'r Recording<'r>,
    pub(crate) step: usize,
    pub(crate) pane: Pane,
    pub(crate) mode: Mode,
    pub(crate) query: String,
    /// The row that a search found.
    pub(crate) found: Option<usize>,
    /// What the last key came to, where it came to nothing.
    pub(crate) message: Option<String>,
    pub(crate) top: usize,
    pub(crate) rows: Vec<String>,
    shown: Shown,
    is_long: bool,
    width: u16,
    height: u16,
}

impl<'r> Screen<'r> {
    pub(crate) fn new(recording: &'r Recording<'r>, step: usize) -> Self {
        let mut screen = Self {
            recording,
            step,
            pane: Pane::View,
            mode: Mode::Steps,
            query: String::new(),
            found: None,
            message: None,
            top: 0,
            rows: Vec::new(),
            shown: recording.show(step, None),
            is_long: false,
            width: 80,
            height: 24,
        };
        screen.fill();
        screen
    }

    pub(crate) fn is_over(&self) -> bool {
        self.mode == Mode::Over
    }

    /// The size of the terminal from now on.
    pub(crate) fn resize(&mut self, width: u16, height: u16) {
        let is_other = self.width != width;
        (self.width, self.height) = (width, height);
        if is_other {
            self.fill();
        }
        self.scroll_to(self.top);
    }

    pub(crate) fn key(&mut self, key: KeyEvent) {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.mode = Mode::Over;
            return;
        }
        match self.mode {
            Mode::Search => self.type_search(key.code),
            // Any key ends the help.
            Mode::Help => self.mode = Mode::Steps,
            _ => self.walk(key.code),
        }
    }

    fn walk(&mut self, key: KeyCode) {
        let last = self.recording.steps.len().saturating_sub(1);
        match key {
            KeyCode::Char('q') | KeyCode::Esc => self.mode = Mode::Over,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Right | KeyCode::Char('j') => self.go(self.step.saturating_add(1).min(last)),
            KeyCode::Left | KeyCode::Char('k') => self.go(self.step.saturating_sub(1)),
            KeyCode::Char('g') => self.go(0),
            KeyCode::Char('G') => self.go(last),
            KeyCode::Char('c') => self.go_to_change(self.step + 1..last + 1, false),
            KeyCode::Char('C') => self.go_to_change(0..self.step, true),
            KeyCode::Down => self.scroll_to(self.top.saturating_add(1)),
            KeyCode::Up => self.scroll_to(self.top.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => self.scroll_to(self.top.saturating_add(self.page())),
            KeyCode::PageUp => self.scroll_to(self.top.saturating_sub(self.page())),
            KeyCode::Home => self.scroll_to(0),
            KeyCode::End => self.scroll_to(usize::MAX),
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(Pane::ALL.len() - 1),
            KeyCode::Enter => {
                self.is_long = !self.is_long;
                self.fill();
                self.scroll_to(self.top);
            }
            KeyCode::Char('/') => {
                self.query.clear();
                self.mode = Mode::Search;
            }
            KeyCode::Char('n') => self.search(true),
            KeyCode::Char('N') => self.search(false),
            _ => {}
        }
    }

    fn type_search(&mut self, key: KeyCode) {
        match key {
            KeyCode::Esc => self.mode = Mode::Steps,
            KeyCode::Enter => {
                self.mode = Mode::Steps;
                self.found = None;
                self.search(true);
            }
            KeyCode::Backspace => {
                self.query.pop();
            }
            KeyCode::Char(c) if !c.is_control() && self.query.chars().count() < MAX_QUERY => self.query.push(c),
            _ => {}
        }
    }

    fn go(&mut self, step: usize) {
        if step == self.step {
            return;
        }
        let blank = Shown { view: condenser::View::new(condenser::Rules::Sound), change: None };
        let older = std::mem::replace(&mut self.shown, blank);
        self.shown = self.recording.show(step, (step > self.step).then_some(older));
        self.step = step;
        self.fill();
        match self.pane {
            Pane::View => self.scroll_to(self.top),
            // What is new stands at the end.
            Pane::Log => self.scroll_to(usize::MAX),
            Pane::Change => self.scroll_to(0),
            Pane::Sizes => self.scroll_to(step.saturating_sub(self.page() / 2)),
        }
    }

    fn go_to_change(&mut self, steps: std::ops::Range<usize>, backwards: bool) {
        let mut changed = steps.filter(|step| self.recording.steps[*step].has_record);
        match if backwards { changed.next_back() } else { changed.next() } {
            Some(step) => self.go(step),
            None => self.message = Some(format!("no {} change", if backwards { "earlier" } else { "later" })),
        }
    }

    fn turn(&mut self, by: usize) {
        let at = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        self.pane = Pane::ALL[(at + by) % Pane::ALL.len()];
        self.fill();
        self.scroll_to(match self.pane {
            Pane::Log => usize::MAX,
            Pane::Sizes => self.step.saturating_sub(self.page() / 2),
            Pane::View | Pane::Change => 0,
        });
    }

    fn search(&mut self, forwards: bool) {
        let query = self.query.to_lowercase();
        if query.is_empty() {
            self.message = Some("nothing is searched for; / begins".to_owned());
            return;
        }
        let holds = |row: &&usize| self.rows[**row].to_lowercase().contains(&query);
        let from = self.found.map_or(self.top, |found| if forwards { found + 1 } else { found });
        let (before, after): (Vec<usize>, Vec<usize>) = (0..self.rows.len()).partition(|row| *row < from);
        let found = if forwards {
            after.iter().chain(&before).find(holds)
        } else {
            before.iter().rev().chain(after.iter().rev()).find(holds)
        };
        match found.copied() {
            Some(row) => {
                self.found = Some(row);
                if row < self.top || row >= self.top + self.page() {
                    self.scroll_to(row.saturating_sub(self.page() / 3));
                }
            }
            None => self.message = Some(format!("not found in this pane: {}", self.query)),
        }
    }

    /// Rows of a pane.
    pub(crate) fn page(&self) -> usize {
        usize::from(self.height.saturating_sub(FRAME)).max(1)
    }

    fn scroll_to(&mut self, top: usize) {
        self.top = top.min(self.rows.len().saturating_sub(self.page()));
    }

    /// The rows of the pane at this step and width.
    fn fill(&mut self) {
        self.found = None;
        let lines = self.pane.lines(self.recording, self.step, &self.shown, self.is_long);
        let width = usize::from(self.width.saturating_sub(1)).max(1);
        self.rows =
            if self.pane.wraps() { lines.iter().flat_map(|line| wrapped(line, width)).collect() } else { lines };
    }
}

/// A line in rows of so many cells.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    if line.len() <= width {
        return vec![line.to_owned()];
    }
    let mut rows = Vec::new();
    let mut row = String::new();
    let mut cells = 0;
    for c in line.chars() {
        let wide = if c.is_ascii() { 1 } else { Span::raw(&*c.encode_utf8(&mut [0; 4])).width() };
        if cells + wide > width && !row.is_empty() {
            rows.push(std::mem::take(&mut row));
            cells = 0;
        }
        row.push(c);
        cells += wide;
    }
    rows.push(row);
    rows
}
