//! `folding`: finished work collapses into lines that say what came of it. No model is asked.
//!
//! **Range.** The first `keep_first` entries and the last `keep_last` stay, fewer where the request would stay over
//! `target_share` of the limit. What lies between is folded, in stretches: a stretch ends with a user message, with a
//! message of the assistant that calls nothing, after `max_responses` responses at a legal cut, and at the end of the
//! range.
//!
//! **Lines.** First a ledger: each file that was created, edited or read, by its exact path, newest use last. Then, in
//! order: what the user said, a line per stretch with its first thought and its calls, each command with how it
//! ended, the exact lines of errors, and the assistant's closing words. See the module `tools` for how files, commands
//! and errors are told. Results are read as stored, also where a record rewrote them. While recall is on, lines end
//! with the address of the result they come from.
//!
//! **Again.** The lines of an earlier fold are taken over as they are and compete with the new ones: a command or error
//! that comes again replaces its older line, a file keeps its strongest use. A summary of other origin is taken over as
//! one line. When the lines exceed their bound, the oldest are shortened and then dropped, commands first, the user's
//! words last; the head line counts what is missing.

use std::collections::HashMap;

use condenser::condensation::clip;
use condenser::event::{Action, ContentBlock, EventKind, Role};
use condenser::recall::address;
use condenser::request::text_of;
use condenser::{Edit, Event, Failure, NoPlan, Plan, Policy, Requirement, State, Tokens};
use serde::{Deserialize, Serialize};

use crate::layout::{self, Layout};
use crate::tools::{Call, Ended, Use, error_lines};

/// Settings of [`Folding`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FoldingSettings {
    /// A longer view is folded. `None`: off.
    pub max_events: Option<usize>,
    /// The first entries that stay.
    pub keep_first: usize,
    /// The newest entries that stay.
    pub keep_last: usize,
    /// What the request is brought down to when it is too large, as a share of the limit.
    pub target_share: f64,
    /// The most responses of one stretch.
    pub max_responses: usize,
    /// The most tokens of the fold, and never more than an eighth of the limit or half of what it replaces.
    pub max_tokens: Tokens,
    /// The most characters of one user message: three quarters from its beginning, a quarter from its end.
    pub user_characters: usize,
    /// Nothing is folded for less than this share of the request, unless the next one would not fit.
    pub minimum_progress: f64,
}

impl Default for FoldingSettings {
    fn default() -> Self {
        Self {
            max_events: Some(240),
            keep_first: 2,
            keep_last: 20,
            target_share: 0.5,
            max_responses: 10,
            max_tokens: Tokens(2000),
            user_characters: 2000,
            minimum_progress: 0.1,
        }
    }
}

/// Folds finished work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Folding {
    settings: FoldingSettings,
}

impl Folding {
    /// The policy with these settings.
    pub fn new(settings: FoldingSettings) -> Self {
        Self { settings }
    }

    fn range(&self, layout: &Layout<'_, '_>) -> (usize, usize) {
        let state = layout.state;
        let start = layout.head(self.settings.keep_first);
        let limit = state.budget.limit().map(|limit| layout::as_counted(state, limit));
        let is_large = state.budgets.trigger.tokens.is_some_and(|trigger| state.tokens() > trigger);
        let target = layout::target(state, self.settings.target_share).filter(|_| is_large);
        let summary = limit.map_or(Tokens::ZERO, |limit| self.settings.max_tokens.min(limit.share(0.125)));
        let naive = layout.len().saturating_sub(self.settings.keep_last);
        (start, layout.tail(start, naive, summary, target, limit))
    }
}

impl Policy for Folding {
    fn name(&self) -> &str {
        "folding"
    }

    fn requirement(&self, state: &State<'_>) -> Requirement {
        layout::requirement(state, self.settings.max_events, state.budgets.trigger.tokens)
    }

    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let layout = Layout::new(state);
        let (start, end) = self.range(&layout);
        if end <= start || layout.n_events(start, end) == 0 {
            return Err(NoPlan::NoLegalCut);
        }
        let leaving = layout.leaving(start, end);
        if leaving < state.counted().share(self.settings.minimum_progress) && !layout.must_act(start) {
            return Err(NoPlan::TooLittle);
        }
        if tried.len() >= 3 {
            return Err(NoPlan::Exhausted);
        }
        let fold = Fold::of(&layout, start, end, &self.settings);
        let bound = self.settings.max_tokens.min(leaving.share(0.5));
        let bound = state.budget.limit().map_or(bound, |limit| bound.min(limit.share(0.125)));
        let text = fold.text(state, Tokens(bound.0 >> (2 * tried.len())));
        Ok(Plan::Edit(Edit { forget: layout.forget(start, end), summary: Some((text, start)), ..Edit::default() }))
    }
}

/// What a line tells. The ledger comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Created,
    Edited,
    Read,
    Earlier,
    User,
    Did,
    Ran,
    Error,
    Said,
}

impl Label {
    const ALL: [Self; 9] = [
        Self::Created,
        Self::Edited,
        Self::Read,
        Self::Earlier,
        Self::User,
        Self::Did,
        Self::Ran,
        Self::Error,
        Self::Said,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Edited => "edited",
            Self::Read => "read",
            Self::Earlier => "earlier summary",
            Self::User => "user",
            Self::Did => "did",
            Self::Ran => "ran",
            Self::Error => "error",
            Self::Said => "assistant",
        }
    }

    fn is_file(self) -> bool {
        matches!(self, Self::Created | Self::Edited | Self::Read)
    }
}

impl From<Use> for Label {
    fn from(used: Use) -> Self {
        match used {
            Use::Read => Self::Read,
            Use::Edited => Self::Edited,
            Use::Created => Self::Created,
        }
    }
}

/// One line; further lines of its text are indented when written, so no content passes for a line of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    label: Label,
    text: String,
    address: Option<String>,
}

const CONTINUED: &str = "\n    ";

impl Line {
    fn render(&self) -> String {
        let text = self.text.lines().collect::<Vec<_>>().join(CONTINUED);
        match &self.address {
            Some(address) => format!("{}: {text} {address}", self.label.name()),
            None => format!("{}: {text}", self.label.name()),
        }
    }

    fn parse(rendered: &str) -> Option<Self> {
        let (label, rest) = Label::ALL
            .into_iter()
            .find_map(|label| Some((label, rendered.strip_prefix(label.name())?.strip_prefix(": ")?)))?;
        let (text, address) = match rest.rsplit_once(" [event ") {
            Some((text, id)) if id.ends_with(']') && !id.contains('\n') => (text, Some(format!("[event {id}"))),
            _ => (rest, None),
        };
        Some(Self { label, text: text.replace(CONTINUED, "\n"), address })
    }

    /// What makes two lines tell the same thing.
    fn key(&self) -> Option<&str> {
        match self.label {
            Label::Created | Label::Edited | Label::Read | Label::Error => Some(&self.text),
            Label::Ran => Some(self.text.rsplit_once(" -> ").map_or(&*self.text, |(command, _)| command)),
            _ => None,
        }
    }
}

/// What happened to lines that do not fit: shortened to so many characters, or dropped.
const STAGES: &[(&[Label], Option<usize>)] = &[
    (&[Label::Did, Label::Said, Label::Ran], Some(120)),
    (&[Label::Earlier], Some(800)),
    (&[Label::Ran], None),
    (&[Label::Read], None),
    (&[Label::Said], None),
    (&[Label::Error], Some(100)),
    (&[Label::Did], None),
    (&[Label::User], Some(400)),
    (&[Label::Error], None),
    (&[Label::Edited], None),
    (&[Label::Created], None),
    (&[Label::Earlier, Label::User], Some(100)),
    (&[Label::Earlier, Label::User], None),
];

/// Most lines of errors from one result.
const MAX_ERRORS: usize = 3;

#[derive(Debug, Default)]
struct Fold {
    lines: Vec<Line>,
    n_events: usize,
    n_dropped: usize,
}

impl Fold {
    fn of(layout: &Layout<'_, '_>, start: usize, end: usize, settings: &FoldingSettings) -> Self {
        let state = layout.state;
        let mut folder = Folder { fold: Self::default(), stretch: Stretch::default(), calls: HashMap::new(), settings };
        folder.fold.n_events = layout.n_events(start, end);
        for index in layout.members(start, end) {
            let Some(entry) = state.view.get(index) else { continue };
            if let Some(summary) = entry.summary() {
                folder.take_over(summary);
            } else if let Some(event) = state.event(index) {
                let is_full = folder.stretch.n_responses >= settings.max_responses.max(1);
                if is_full && state.view.is_cut(index) {
                    folder.finish();
                }
                folder.add(event, entry.batch().ok_or(index), state.recall);
            }
        }
        folder.finish();
        folder.fold.merge();
        folder.fold
    }

    /// Takes out lines that a later one replaces; files come first, in the order of their last use.
    fn merge(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let mut newest: HashMap<(&'static str, String), usize> = HashMap::new();
        let mut merged: Vec<Option<Line>> = Vec::with_capacity(lines.len());
        for mut line in lines {
            if let Some(key) = line.key() {
                let kind = if line.label.is_file() { "file" } else { line.label.name() };
                if let Some(older) = newest.insert((kind, key.to_owned()), merged.len())
                    && let Some(older) = merged[older].take()
                    && line.label.is_file()
                {
                    let strongest = |label: Label| Label::ALL.iter().position(|other| *other == label);
                    if strongest(older.label) < strongest(line.label) {
                        line.label = older.label;
                    }
                }
            }
            merged.push(Some(line));
        }
        let (mut files, others): (Vec<_>, Vec<_>) = merged.into_iter().flatten().partition(|line| line.label.is_file());
        files.sort_by_key(|line| Label::ALL.iter().position(|label| *label == line.label));
        self.lines = files;
        self.lines.extend(others);
    }

    /// The text, within the bound: the head line alone may exceed it.
    fn text(mut self, state: &State<'_>, bound: Tokens) -> String {
        self.shrink(state, bound);
        let mut text = self.head();
        for line in &self.lines {
            text.push('\n');
            text.push_str(&line.render());
        }
        text
    }

    fn head(&self) -> String {
        let mut head = format!("{HEAD}{}{EVENTS}", self.n_events);
        if self.n_dropped > 0 {
            head.push_str(&format!("; {}{DROPPED}", self.n_dropped));
        }
        head.push(']');
        head
    }

    fn shrink(&mut self, state: &State<'_>, bound: Tokens) {
        let size = |line: &Line| state.sizer.text(&line.render()) + Tokens(1);
        let mut sizes: Vec<Tokens> = self.lines.iter().map(size).collect();
        let mut total: Tokens = sizes.iter().copied().sum::<Tokens>() + state.sizer.text(&self.head());
        let mut gone = vec![false; self.lines.len()];
        'stages: for (labels, characters) in STAGES {
            for index in 0..self.lines.len() {
                if total <= bound {
                    break 'stages;
                }
                if gone[index] || !labels.contains(&self.lines[index].label) {
                    continue;
                }
                let before = sizes[index];
                match characters {
                    Some(most) => {
                        let line = &mut self.lines[index];
                        // The end of a command's line says how it ended.
                        let Some(short) = clip(&line.text, most * 3 / 4, most / 4) else { continue };
                        line.text = short;
                        sizes[index] = size(line);
                    }
                    None => {
                        gone[index] = true;
                        sizes[index] = Tokens::ZERO;
                        self.n_dropped += 1;
                    }
                }
                total = total - before + sizes[index];
            }
        }
        let mut index = 0;
        self.lines.retain(|_| {
            index += 1;
            !gone[index - 1]
        });
    }

    /// Reads an earlier fold.
    fn parse(text: &str) -> Option<Self> {
        let mut fold = Self::default();
        let mut rendered: Vec<String> = Vec::new();
        for line in text.lines() {
            match rendered.last_mut() {
                Some(last) if line.starts_with("    ") => {
                    last.push('\n');
                    last.push_str(line);
                }
                _ => rendered.push(line.to_owned()),
            }
        }
        let head = rendered.first()?.strip_prefix(HEAD)?.strip_suffix(']')?;
        let (n_events, rest) = head.split_once(EVENTS)?;
        fold.n_events = n_events.parse().ok()?;
        if let Some(dropped) = rest.strip_prefix("; ").and_then(|rest| rest.strip_suffix(DROPPED)) {
            fold.n_dropped = dropped.parse().ok()?;
        }
        fold.lines = rendered[1..].iter().filter_map(|line| Line::parse(line)).collect();
        Some(fold)
    }
}

const HEAD: &str = "[Folded: what came of ";
const EVENTS: &str = " earlier events, oldest first";
const DROPPED: &str = " lines are left out";

/// What a stretch has done so far.
#[derive(Debug, Default)]
struct Stretch {
    thought: Option<String>,
    /// Calls by tool, in the order of their first use.
    tools: Vec<(String, usize)>,
    n_failed: usize,
    n_responses: usize,
    /// The response of the newest call: its batch, or its position where it has none.
    response: Option<Result<u32, usize>>,
    lines: Vec<Line>,
}

struct Folder<'s> {
    fold: Fold,
    stretch: Stretch,
    /// What calls do whose results have yet to come, by call id.
    calls: HashMap<&'s str, Call>,
    settings: &'s FoldingSettings,
}

impl<'s> Folder<'s> {
    fn take_over(&mut self, summary: &str) {
        self.finish();
        match Fold::parse(summary) {
            Some(earlier) => {
                self.fold.n_events = self.fold.n_events.saturating_add(earlier.n_events);
                self.fold.n_dropped = self.fold.n_dropped.saturating_add(earlier.n_dropped);
                self.fold.lines.extend(earlier.lines);
            }
            None => self.push(Label::Earlier, &clip(summary, 3000, 1000).unwrap_or_else(|| summary.to_owned()), None),
        }
    }

    fn push(&mut self, label: Label, text: &str, address: Option<String>) {
        if !text.trim().is_empty() {
            self.fold.lines.push(Line { label, text: text.trim().to_owned(), address });
        }
    }

    fn add(&mut self, event: &'s Event, response: Result<u32, usize>, recall: bool) {
        let address = || recall.then(|| address(&event.id));
        match &event.kind {
            EventKind::Message(message) => {
                let text = text_of(&event.kind);
                if message.role == Role::User {
                    self.finish();
                    let most = self.settings.user_characters;
                    match clip(&text, most - most / 4, most / 4) {
                        Some(clipped) => self.push(Label::User, &clipped, address()),
                        None => self.push(Label::User, &text, None),
                    }
                } else {
                    self.finish();
                    self.push(Label::Said, &short(&text, 400, 100), None);
                }
            }
            EventKind::Action(action) => self.call(action, response),
            EventKind::Observation(observation) => {
                let text = text_of(&event.kind);
                let call = self.calls.remove(observation.call_id.as_str()).unwrap_or_default();
                let ended = Ended::of(observation.outcome, &text);
                self.stretch.n_failed += usize::from(!ended.is_ok());
                let mut lines = Vec::new();
                if ended.is_ok() {
                    lines.extend(call.files.into_iter().map(|(used, path)| (used.into(), path)));
                }
                if let Some(command) = call.command {
                    lines.push((Label::Ran, format!("{} -> {ended}", short(&command, 240, 60))));
                }
                let errors = error_lines(&text, &ended, MAX_ERRORS);
                lines.extend(errors.into_iter().map(|line| (Label::Error, short(line, 240, 60))));
                let lines = lines.into_iter().map(|(label, text)| Line { label, text, address: address() });
                self.stretch.lines.extend(lines);
            }
            _ => {}
        }
    }

    fn call(&mut self, action: &'s Action, response: Result<u32, usize>) {
        let stretch = &mut self.stretch;
        if stretch.response != Some(response) {
            stretch.response = Some(response);
            stretch.n_responses += 1;
        }
        if stretch.thought.is_none() {
            let mut texts = action.thought.iter().filter_map(ContentBlock::as_text);
            stretch.thought = texts
                .find_map(|text| text.lines().find(|line| !line.trim().is_empty()))
                .map(|line| short(line.trim(), 160, 0));
        }
        match stretch.tools.iter_mut().find(|(tool, _)| *tool == action.tool_name) {
            Some((_, n_calls)) => *n_calls += 1,
            None => stretch.tools.push((action.tool_name.clone(), 1)),
        }
        self.calls.insert(&action.call_id, Call::of(&action.tool_name, &action.arguments));
    }

    /// Ends a stretch: the line that says what it did, then the lines of its results.
    fn finish(&mut self) {
        let stretch = std::mem::take(&mut self.stretch);
        if !stretch.tools.is_empty() {
            let calls = stretch.tools.iter().map(|(tool, n_calls)| {
                let tool = short(&tool.split_whitespace().collect::<Vec<_>>().join(" "), 48, 0);
                if *n_calls > 1 { format!("{tool} x{n_calls}") } else { tool }
            });
            let mut text = calls.collect::<Vec<_>>().join(", ");
            if stretch.n_failed > 0 {
                text.push_str(&format!("; {} failed", stretch.n_failed));
            }
            if let Some(thought) = stretch.thought {
                text = format!("{thought} ({text})");
            }
            self.push(Label::Did, &text, None);
        }
        self.fold.lines.extend(stretch.lines);
    }
}

fn short(text: &str, head: usize, tail: usize) -> String {
    clip(text, head, tail).unwrap_or_else(|| text.to_owned())
}
