//! The ledger: exact paths, commands, artifacts and doubts, read off stored events by rule.
//!
//! | line | from |
//! | --- | --- |
//! | `created`, `edited`, `read` | a path that a call names, once its result is there and no error; the strongest use counts |
//! | `ran` | a command, with how it ended |
//! | `wrote` | a path or address in a line of a result that says something was saved, written, exported or the like |
//! | `unverified` | a line of the agent that marks what it says as unverified, unconfirmed, assumed or flagged |
//! | `user` | the beginning of what the user said, where it is too much to stay word for word |
//!
//! The same line again takes the place of the older one. Lines that do not fit go oldest first: reads, commands, edits,
//! files made, artifacts, then what the user said and the doubts; a line says how many.

use std::collections::{HashMap, HashSet};

use condenser::condensation::clip;
use condenser::event::{ContentBlock, Event, EventKind, Role};
use condenser::recall::address;
use condenser::request::text_of;
use condenser::{EventId, State, Tokens};

use crate::tools::{Call, Ended, Use};

/// What a line tells, first to go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Read,
    Ran,
    Edited,
    Created,
    Wrote,
    User,
    Unverified,
}

impl Kind {
    /// As they are shown.
    const ALL: [Self; 7] =
        [Self::Created, Self::Edited, Self::Read, Self::Ran, Self::Wrote, Self::User, Self::Unverified];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Ran => "ran",
            Self::Edited => "edited",
            Self::Created => "created",
            Self::Wrote => "wrote",
            Self::User => "user",
            Self::Unverified => "unverified",
        }
    }

    fn is_file(self) -> bool {
        matches!(self, Self::Read | Self::Edited | Self::Created)
    }
}

impl From<Use> for Kind {
    fn from(used: Use) -> Self {
        match used {
            Use::Read => Self::Read,
            Use::Edited => Self::Edited,
            Use::Created => Self::Created,
        }
    }
}

#[derive(Debug)]
struct Line<'l> {
    kind: Kind,
    text: String,
    id: &'l EventId,
}

/// What says that something was written.
const WRITTEN: [&str; 10] =
    ["saved", "wrote", "written", "exported", "created", "generated", "uploaded", "downloaded", "stored", "archived"];
/// What marks a doubt.
const DOUBTS: [&str; 9] = [
    "unverified",
    "not verified",
    "unconfirmed",
    "not confirmed",
    "to be confirmed",
    "not yet checked",
    "assumption",
    "assuming",
    "flagged",
];
/// The most characters of a line.
const LINE: usize = 300;
/// The most artifacts of one result.
const ARTIFACTS: usize = 8;

/// The ledger of all stored events but those that `stay` in view, in at most so many tokens. `beyond`: messages of the
/// user that are too much to stay.
pub(super) fn ledger(state: &State<'_>, stay: &HashSet<&EventId>, beyond: &HashSet<EventId>, most: Tokens) -> String {
    let events = (0..state.view.n_pushed()).filter_map(|seq| state.bodies.event(seq));
    let mut lines = Vec::new();
    let mut calls: HashMap<&str, Call> = HashMap::new();
    for event in events.filter(|event| !stay.contains(&event.id)) {
        add(event, beyond, &mut calls, &mut lines);
    }
    render(state, merged(lines), most)
}

fn add<'l>(event: &'l Event, beyond: &HashSet<EventId>, calls: &mut HashMap<&'l str, Call>, lines: &mut Vec<Line<'l>>) {
    let mut push = |kind: Kind, text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = clip(&text, LINE * 3 / 4, LINE / 4).unwrap_or(text);
        if !text.is_empty() {
            lines.push(Line { kind, text, id: &event.id });
        }
    };
    match &event.kind {
        EventKind::Action(action) => {
            action.thought.iter().filter_map(ContentBlock::as_text).flat_map(doubts).for_each(|line| {
                push(Kind::Unverified, line);
            });
            calls.insert(&action.call_id, Call::of(&action.tool_name, &action.arguments));
        }
        EventKind::Observation(observation) => {
            let text = text_of(&event.kind);
            let ended = Ended::of(observation.outcome, &text);
            let call = calls.remove(observation.call_id.as_str()).unwrap_or_default();
            if ended.is_ok() {
                call.files.iter().for_each(|(used, path)| push((*used).into(), path));
                artifacts(&text).iter().for_each(|artifact| push(Kind::Wrote, artifact));
            }
            if let Some(command) = call.command {
                let command = clip(&command, 180, 60).unwrap_or(command);
                push(Kind::Ran, &format!("{command} -> {ended}"));
            }
        }
        EventKind::Message(message) if message.role == Role::Assistant => {
            doubts(&text_of(&event.kind)).for_each(|line| push(Kind::Unverified, line));
        }
        EventKind::Message(_) if beyond.contains(&event.id) => push(Kind::User, &text_of(&event.kind)),
        _ => {}
    }
}

fn doubts(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| {
        let line = line[..line.floor_char_boundary(1000)].to_ascii_lowercase();
        DOUBTS.iter().any(|word| line.contains(word))
    })
}

/// The paths and addresses in lines that say something was written.
fn artifacts(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for line in text.lines().filter(|line| line.len() <= 1000) {
        let lower = line.to_ascii_lowercase();
        if !WRITTEN.iter().any(|word| lower.contains(word)) {
            continue;
        }
        let words =
            line.split(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '(' | ')' | '<' | '>' | ','));
        for word in words.map(|word| word.trim_end_matches(['.', ':', ';', '!'])) {
            if is_place(word) && !found.contains(&word) && found.len() < ARTIFACTS {
                found.push(word);
            }
        }
    }
    found
}

fn is_place(word: &str) -> bool {
    let has_name = word.chars().filter(|c| c.is_alphanumeric()).take(3).count() == 3;
    let has_ending = word.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.is_empty() && (1..=5).contains(&ending.len()) && ending.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    has_name && word.len() <= LINE && (word.contains('/') || has_ending)
}

/// Of lines that tell the same, the newest; files with their strongest use.
fn merged(lines: Vec<Line<'_>>) -> Vec<Line<'_>> {
    let mut newest: HashMap<(&'static str, String), usize> = HashMap::new();
    let mut merged: Vec<Option<Line<'_>>> = Vec::with_capacity(lines.len());
    for mut line in lines {
        let (group, key) = match line.kind {
            kind if kind.is_file() => ("file", line.text.clone()),
            Kind::Ran => ("ran", line.text.rsplit_once(" -> ").map_or(line.text.clone(), |(it, _)| it.to_owned())),
            kind => (kind.name(), line.text.clone()),
        };
        if let Some(older) = newest.insert((group, key), merged.len())
            && let Some(older) = merged[older].take()
            && line.kind.is_file()
        {
            line.kind = line.kind.max(older.kind);
        }
        merged.push(Some(line));
    }
    merged.into_iter().flatten().collect()
}

fn render(state: &State<'_>, lines: Vec<Line<'_>>, most: Tokens) -> String {
    let render = |line: &Line<'_>| {
        let at = if state.recall { format!(" {}", address(line.id)) } else { String::new() };
        format!("{}: {}{at}", line.kind.name(), line.text)
    };
    let rendered: Vec<String> = lines.iter().map(render).collect();
    let sizes: Vec<Tokens> = rendered.iter().map(|line| state.sizer.text(line) + Tokens(1)).collect();
    let mut total: Tokens = sizes.iter().copied().sum();
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|&index| lines[index].kind);
    let mut gone: HashSet<usize> = HashSet::new();
    // The line that says how many went takes room too.
    for index in order {
        if total + Tokens(8 * u64::from(!gone.is_empty())) <= most {
            break;
        }
        total = total - sizes[index];
        gone.insert(index);
    }
    let mut shown: Vec<usize> = (0..lines.len()).filter(|index| !gone.contains(index)).collect();
    shown.sort_by_key(|&index| Kind::ALL.iter().position(|kind| *kind == lines[index].kind));
    let mut text = shown.into_iter().map(|index| rendered[index].as_str()).collect::<Vec<_>>();
    let left_out = format!("[{} lines are left out]", gone.len());
    if !gone.is_empty() && total + Tokens(8) <= most {
        text.push(&left_out);
    }
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_places_in_lines_that_say_something_was_written() {
        for (text, expected) in [
            ("Export saved to /data/export-41.csv.", &["/data/export-41.csv"][..]),
            ("wrote 'out/a.json' and `out/b.json`", &["out/a.json", "out/b.json"]),
            ("uploaded: https://host.example/f/9x2", &["https://host.example/f/9x2"]),
            ("read /data/export-41.csv", &[]),
            ("3 files created", &[]),
            ("report generated (report.html)", &["report.html"]),
            ("saved 1.5 seconds", &[]),
        ] {
            assert_eq!(artifacts(text), expected, "{text}");
        }
    }

    #[test]
    fn doubts_are_lines_that_say_so() {
        let text = "All matched.\nItem 19 looks like a duplicate (UNVERIFIED).\nNo one confirmed it.\nTwo are flagged.";
        let found: Vec<&str> = doubts(text).collect();
        assert_eq!(found, ["Item 19 looks like a duplicate (UNVERIFIED).", "Two are flagged."]);
    }
}
