//! Snapshot rendering: a view or a request as stable text, for tests that pin what the model is shown.
//!
//! Ids are numbered in the order in which they appear, times and home folders are replaced, line endings are one
//! line feed, and control characters are escaped. The first line names the rendering and its version: the lines of
//! one version never change.
//!
//! ```
//! use condenser::event::{Message, Role, Source};
//! use condenser::render::{Mode, Rendering};
//! use condenser::{Event, EventKind, Rules, View};
//!
//! let hello = EventKind::Message(Message::text(Role::User, "hello\r\n"));
//! let events = vec![Event::new("01J8Z3", Source::User, hello)];
//! let view = View::replay(&events, Rules::Sound);
//! insta::assert_snapshot!(Rendering::new(Mode::Full).view(&view, &events), @r"
//! condenser view v1 full
//! [0] user e1
//!   text
//!   | hello
//!   |
//! ");
//! ```

mod canonical;

use std::fmt::Write as _;

use serde_json::Value;

use crate::event::{ContentBlock, EventKind, Outcome, Role};
use crate::request::{Bodies, Body, Request, Shown, Sizer, Speaker};
use crate::tokens::Tokens;
use crate::view::{Entry, View};
use canonical::Labels;

/// The newest version of the rendering.
pub const VERSION: u32 = 1;

/// How much of the content is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Kinds, ids and flags only.
    Kinds,
    /// The first characters of each text.
    Prefix(usize),
    /// The length of each text, and nothing of it.
    Redacted,
    /// All text.
    Full,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kinds => f.write_str("kinds"),
            Self::Prefix(n) => write!(f, "prefix {n}"),
            Self::Redacted => f.write_str("redacted"),
            Self::Full => f.write_str("full"),
        }
    }
}

/// A version of the rendering that this build does not write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown version {0} of the rendering; this build writes 1 to {VERSION}")]
pub struct UnknownVersion(pub u32);

/// How to render. Token counts are left out unless a sizer is given.
#[derive(Clone, Copy, Debug)]
pub struct Rendering<'c> {
    mode: Mode,
    version: u32,
    sizer: Option<&'c Sizer<'c>>,
}

impl<'c> Rendering<'c> {
    /// The newest version, without token counts.
    pub fn new(mode: Mode) -> Self {
        Self { mode, version: VERSION, sizer: None }
    }

    /// Another version, for snapshots that an older build wrote.
    ///
    /// # Errors
    ///
    /// [`UnknownVersion`].
    pub fn with_version(self, version: u32) -> Result<Self, UnknownVersion> {
        if (1..=VERSION).contains(&version) { Ok(Self { version, ..self }) } else { Err(UnknownVersion(version)) }
    }

    /// Adds the size of each entry or turn, and of the whole request.
    pub fn with_tokens(self, sizer: &'c Sizer<'c>) -> Self {
        Self { sizer: Some(sizer), ..self }
    }

    /// A view. An entry whose body is missing is shown as such.
    pub fn view(&self, view: &View, bodies: &(impl Bodies + ?Sized)) -> String {
        let mut page = self.page("view");
        page.view(view, bodies);
        page.text
    }

    /// A view before and after a condensation, with the same label for the same event.
    pub fn change(&self, before: &View, after: &View, bodies: &(impl Bodies + ?Sized)) -> String {
        let mut page = self.page("change");
        page.line("== before");
        page.view(before, bodies);
        page.line("== after");
        page.view(after, bodies);
        page.text
    }

    /// A request, as it is before it is written for one API.
    pub fn request(&self, request: &Request<'_>) -> String {
        let mut page = self.page("request");
        page.request(request);
        page.text
    }

    fn page(&self, what: &str) -> Page<'c> {
        let mut page =
            Page { mode: self.mode, sizer: self.sizer, labels: Labels::default(), text: String::with_capacity(1024) };
        page.line(&format!("condenser {what} v{} {}", self.version, self.mode));
        page
    }
}

struct Page<'c> {
    mode: Mode,
    sizer: Option<&'c Sizer<'c>>,
    labels: Labels,
    text: String,
}

impl Page<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn view(&mut self, view: &View, bodies: &(impl Bodies + ?Sized)) {
        // Labels first, so that a text may name an event that comes after it.
        for id in view.ids() {
            self.labels.label('e', id.as_str());
        }
        let request = self.sizer.map(|sizer| (Request::build(view, bodies), sizer));
        let sizes = request.as_ref().map(|(request, sizer)| request.entry_tokens(view.len(), sizer));
        for entry in view.iter() {
            self.entry(entry, bodies, sizes.as_ref().and_then(|sizes| sizes.get(entry.index()).copied()));
        }
        if let Some((request, sizer)) = request {
            self.total(&request, sizer);
        }
    }

    fn entry(&mut self, entry: Entry<'_>, bodies: &(impl Bodies + ?Sized), size: Option<Tokens>) {
        let label = self.labels.label('e', entry.id().as_str());
        let shown = Shown::of(entry, bodies);
        let mut head = format!("[{}] ", entry.index());
        match &shown {
            None => head.push_str("missing"),
            Some(Shown::Summary(_)) => head.push_str("summary"),
            Some(Shown::Event(kind)) => match &**kind {
                EventKind::Message(message) => head.push_str(role(message.role)),
                kind => head.push_str(kind.name()),
            },
        }
        let _ = write!(head, " {label}");
        if let Some(Shown::Event(kind)) = &shown {
            match &**kind {
                EventKind::SystemPrompt(prompt) if !prompt.tools.is_empty() => {
                    let _ = write!(head, " tools {}", prompt.tools.len());
                }
                EventKind::Action(action) => {
                    let call = self.labels.label('c', &action.call_id);
                    let _ = write!(head, " call {call} {}", self.name(&action.tool_name));
                    if let Some(response) = &action.response_id {
                        let _ = write!(head, " response {}", self.labels.label('r', response));
                    }
                }
                EventKind::Observation(observation) => {
                    let call = self.labels.label('c', &observation.call_id);
                    let _ = write!(head, " of {call} {}", outcome(observation.outcome));
                    head.push_str(if observation.interim { " interim" } else { "" });
                }
                _ => {}
            }
        }
        for (flag, word) in
            [(entry.is_open(), "open"), (entry.is_pinned(), "pinned"), (entry.rewrite().is_some(), "rewritten")]
        {
            if flag {
                let _ = write!(head, " {word}");
            }
        }
        if let Some(size) = size {
            let _ = write!(head, " tokens {size}");
        }
        self.line(&head);
        match shown {
            Some(Shown::Summary(text)) => self.body("text", text),
            Some(Shown::Event(kind)) => match &*kind {
                EventKind::SystemPrompt(prompt) => {
                    self.blocks("text", &prompt.content);
                    self.blocks("context", &prompt.dynamic_context);
                    for tool in &prompt.tools {
                        self.body("tool", &tool.to_string());
                    }
                }
                EventKind::Message(message) => {
                    self.blocks("text", &message.content);
                    self.blocks("appended", &message.extended_content);
                }
                EventKind::Action(action) => {
                    self.blocks("thinking", &action.thinking);
                    self.blocks("thought", &action.thought);
                    self.body("arguments", &action.arguments);
                }
                EventKind::Observation(observation) => {
                    self.blocks("text", &observation.content);
                    self.blocks("appended", &observation.extended_content);
                }
                _ => {}
            },
            None => {}
        }
    }

    fn blocks(&mut self, label: &str, blocks: &[ContentBlock]) {
        for block in blocks {
            match block {
                ContentBlock::Text { text, .. } => self.body(label, text),
                ContentBlock::Image { urls, .. } => urls.iter().for_each(|url| self.image(url)),
                ContentBlock::Other { value } => self.body("other", &value.to_string()),
                thinking => self.thinking(thinking),
            }
        }
    }

    fn thinking(&mut self, block: &ContentBlock) {
        match block {
            ContentBlock::Thinking { thinking, signature } => {
                self.body(if signature.is_some() { "thinking, signed" } else { "thinking" }, thinking);
            }
            ContentBlock::RedactedThinking { .. } => self.note("thinking, redacted"),
            _ => {}
        }
    }

    /// Data is shown by its media type and length.
    fn image(&mut self, url: &str) {
        match url.split_once(',') {
            Some((media, data)) if url.starts_with("data:") => {
                let media = self.name(media.trim_end_matches(";base64"));
                self.note(&format!("image {media}, {} characters", data.len()));
            }
            _ => self.body("image", url),
        }
    }

    fn note(&mut self, note: &str) {
        if self.mode != Mode::Kinds {
            self.line(&format!("  {note}"));
        }
    }

    /// A text under its label, as the mode shows it.
    fn body(&mut self, label: &str, text: &str) {
        if self.mode == Mode::Kinds {
            return;
        }
        let text = self.labels.canonical(text);
        let cut = match self.mode {
            Mode::Prefix(n) => text.char_indices().nth(n).map_or(text.len(), |(at, _)| at),
            Mode::Redacted => {
                self.line(&format!("  {label}: {} characters", text.chars().count()));
                return;
            }
            _ => text.len(),
        };
        let (shown, rest) = text.split_at(cut);
        self.line(&format!("  {label}"));
        for line in shown.split('\n') {
            match line.strip_suffix(' ') {
                // White space at the end of a line does not survive every editor.
                Some(line) => self.line(&format!("  | {line}\\u{{20}}")),
                None if line.is_empty() => self.line("  |"),
                None => self.line(&format!("  | {line}")),
            }
        }
        if !rest.is_empty() {
            self.line(&format!("  … {} more characters", rest.chars().count()));
        }
    }

    /// A short text within a line.
    fn name(&mut self, name: &str) -> String {
        self.labels.canonical(name).replace('\n', "\\n")
    }

    fn total(&mut self, request: &Request<'_>, sizer: &Sizer<'_>) {
        let total = request.tokens(sizer);
        self.line(&format!("request tokens {total} ({})", sizer.counter().name()));
    }

    fn request(&mut self, request: &Request<'_>) {
        if let Some((_, tools)) = request.tools {
            self.line(&format!("tools {}", tools.len()));
            for tool in tools {
                self.body("tool", &tool.to_string());
            }
        }
        for (position, turn) in request.turns.iter().enumerate() {
            let mut head = format!("[{position}] ");
            match &turn.speaker {
                Speaker::System => head.push_str("system"),
                Speaker::User => head.push_str("user"),
                Speaker::Assistant => head.push_str("assistant"),
                Speaker::Tool { call_id, name, outcome: ended } => {
                    let call = self.labels.label('c', call_id);
                    let _ = write!(head, "result of {call} {} {}", self.name(name), outcome(*ended));
                }
            }
            if let Some(sizer) = self.sizer {
                let _ = write!(head, " tokens {}", sizer.turn(turn));
            }
            self.line(&head);
            for part in &turn.parts {
                match &part.body {
                    Body::Text(text) => self.body("text", text),
                    Body::Image(url) => self.image(url),
                    Body::Thinking(block) => self.thinking(block),
                    Body::Call { id, name, arguments } => {
                        let call = self.labels.label('c', id);
                        let line = format!("  call {call} {}", self.name(name));
                        self.line(&line);
                        self.body("arguments", arguments);
                    }
                }
            }
        }
        if let Ok(Value::Object(facts)) = serde_json::to_value(request.facts) {
            for (fact, count) in facts.iter().filter(|(_, count)| **count != 0) {
                self.line(&format!("repaired {fact} {count}"));
            }
        }
        if let Some(sizer) = self.sizer {
            self.total(request, sizer);
        }
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Tool => "tool",
    }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::Error => "error",
        Outcome::Rejected => "rejected",
    }
}
