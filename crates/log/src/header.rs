//! The columns of an event's header: what a view needs, apart from the body.

use condenser::{Class, Event, EventHeader};

pub(crate) const MESSAGE: i64 = 2;
pub(crate) const ACTION: i64 = 3;
pub(crate) const CONDENSATION: i64 = 5;
pub(crate) const CONDENSATION_FAILED: i64 = 7;
pub(crate) const UNDO: i64 = 8;
pub(crate) const PIN: i64 = 9;
pub(crate) const UNPIN: i64 = 10;
const UNKNOWN: i64 = 11;

/// Kinds as the column `kind` numbers them, from 1. A number is never used again for another kind.
const KINDS: [&str; 11] = [
    "system_prompt",
    "message",
    "action",
    "observation",
    "condensation",
    "condensation_request",
    "condensation_failed",
    "undo",
    "pin",
    "unpin",
    "unknown",
];

fn kind_number(name: &str) -> i64 {
    KINDS.iter().position(|known| *known == name).map_or(UNKNOWN, |index| index as i64 + 1)
}

/// The name of a kind; numbers of newer builds are `unknown`.
pub(crate) fn kind_name(number: i64) -> &'static str {
    number
        .checked_sub(1)
        .and_then(|index| usize::try_from(index).ok())
        .and_then(|index| KINDS.get(index))
        .copied()
        .unwrap_or("unknown")
}

/// What a kind means to a view.
pub(crate) fn class_of(kind: &str) -> Class {
    match kind {
        "system_prompt" => Class::SystemPrompt,
        "message" => Class::Message,
        "action" => Class::Action,
        "observation" => Class::Observation,
        "condensation" => Class::Condensation,
        "condensation_request" => Class::CondensationRequest,
        "undo" => Class::Undo,
        "pin" => Class::Pin,
        "unpin" => Class::Unpin,
        _ => Class::Other,
    }
}

/// As [`class_of`], of a kind's number.
pub(crate) fn class(number: i64) -> Class {
    class_of(kind_name(number))
}

/// The column `flags`: an action carries thinking blocks.
pub(crate) const THINKING: i64 = 1;
/// The column `flags`: a later answer replaces this observation.
pub(crate) const INTERIM: i64 = 2;

/// The header columns that an event itself decides.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Columns<'a> {
    pub(crate) kind: i64,
    pub(crate) flags: i64,
    pub(crate) call: Option<&'a str>,
    pub(crate) response: Option<&'a str>,
}

impl<'a> Columns<'a> {
    pub(crate) fn of(event: &'a Event) -> Self {
        let thinking = if event.has_thinking() { THINKING } else { 0 };
        let interim = if event.is_interim() { INTERIM } else { 0 };
        Self {
            kind: kind_number(event.kind.name()),
            flags: thinking | interim,
            call: event.call_id(),
            response: EventHeader::response_id(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_that_queries_use_name_their_kinds() {
        for (number, name) in [
            (MESSAGE, "message"),
            (ACTION, "action"),
            (CONDENSATION, "condensation"),
            (CONDENSATION_FAILED, "condensation_failed"),
            (UNDO, "undo"),
            (PIN, "pin"),
            (UNPIN, "unpin"),
            (UNKNOWN, "unknown"),
        ] {
            assert_eq!(kind_name(number), name);
            assert_eq!(kind_number(name), number);
        }
        for foreign in [i64::MIN, -1, 0, 12, i64::MAX] {
            assert_eq!(kind_name(foreign), "unknown");
        }
    }
}
