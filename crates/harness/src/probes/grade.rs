//! How a request is graded.

use std::borrow::Cow;
use std::fmt;

use condenser::request::Body;
use condenser::tokens::Tokens;
use serde::{Deserialize, Serialize};

use super::text::{holds, of_arguments, places, sentences};
use super::{Probe, ProbeKind};
use crate::evidence::addresses;
use crate::replay::Seen;
use crate::row::Status;
use crate::trace::ById;

/// What became of values that no longer hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stale {
    /// There are none, or none stands in the request.
    Absent,
    /// One stands in the history that is still shown, and so does what corrected it.
    Corrected,
    /// A summary repeats one. A failure.
    Summarized,
    /// One stands in the request, and what corrected it does not. A failure.
    Alone,
}

impl Stale {
    /// Whether it is a failure.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Summarized | Self::Alone)
    }
}

/// Something that an answer needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A value, as a whole token.
    Value(String),
    /// A value and a wording of its polarity in one sentence.
    Constraint { value: String, wordings: Vec<String> },
    /// All values in one text, in their order.
    List(Vec<String>),
}

impl Unit {
    pub(crate) fn is_in(&self, text: &str) -> bool {
        match self {
            Self::Value(value) => holds(text, value),
            Self::Constraint { value, wordings } => sentences(text).filter(|it| holds(it, value)).any(|sentence| {
                let sentence = sentence.to_lowercase();
                wordings.iter().any(|wording| holds(&sentence, &wording.to_lowercase()))
            }),
            Self::List(values) => {
                let mut from = 0;
                values.iter().all(|value| match places(text, value).find(|&at| at >= from) {
                    Some(at) => {
                        from = at + value.len();
                        true
                    }
                    None => false,
                })
            }
        }
    }

    /// Whether a text holds the value of a constraint without its polarity.
    fn lacks_polarity(&self, text: &str) -> bool {
        matches!(self, Self::Constraint { value, .. } if holds(text, value)) && !self.is_in(text)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| text.chars().take(60).collect::<String>();
        match self {
            Self::Value(value) => write!(f, "{:?}", short(value)),
            Self::Constraint { value, .. } => {
                write!(f, "{:?} with a wording of its polarity in one sentence", short(value))
            }
            Self::List(values) => write!(f, "a list of {} values in order", values.len()),
        }
    }
}

/// The texts of a request.
#[derive(Debug, Default)]
pub(crate) struct Texts<'a> {
    pub(crate) view: Vec<Cow<'a, str>>,
    pub(crate) summaries: Vec<Cow<'a, str>>,
}

impl<'a> Texts<'a> {
    pub(crate) fn of(seen: &Seen<'a>) -> Self {
        let mut texts = Self::default();
        for part in seen.request.turns.iter().flat_map(|turn| &turn.parts) {
            let Some(entry) = part.entry.and_then(|entry| seen.view.get(entry)) else { continue };
            let text = match &part.body {
                Body::Text(text) => Cow::Owned(text.to_string()),
                Body::Call { name, arguments, .. } => Cow::Owned(format!("{name}\n{}", of_arguments(arguments))),
                Body::Image(_) | Body::Thinking(_) => continue,
            };
            let list = if entry.is_summary() { &mut texts.summaries } else { &mut texts.view };
            list.push(text);
        }
        texts
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.view.iter().chain(&self.summaries).map(|text| &**text)
    }

    /// The events whose addresses stand in the request.
    pub(crate) fn addressed(&self, by_id: &ById<'_>) -> Vec<usize> {
        self.all().flat_map(|text| addresses(text, by_id)).collect()
    }
}

/// What became of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grade {
    pub(crate) status: Status,
    /// How many units stand in the request.
    pub(crate) found: usize,
    pub(crate) wanted: usize,
    pub(crate) stale: Stale,
    pub(crate) lacks_polarity: bool,
}

/// Grades a request by its worst unit. `recalled` are texts that its addresses led to.
pub(crate) fn grade(units: &[Unit], stale: &[String], texts: &Texts<'_>, recalled: &[String]) -> Grade {
    let in_some = |unit: &Unit, texts: &[Cow<'_, str>]| texts.iter().any(|text| unit.is_in(text));
    let status_of = |unit: &Unit| {
        if in_some(unit, &texts.view) {
            Status::InView
        } else if in_some(unit, &texts.summaries) {
            Status::InSummary
        } else if recalled.iter().any(|text| unit.is_in(text)) {
            Status::Recoverable
        } else {
            Status::Lost
        }
    };
    let statuses: Vec<Status> = units.iter().map(status_of).collect();
    let status = statuses.iter().copied().max().unwrap_or(Status::Lost);
    let is_shown = |status: Status| status <= Status::InSummary;
    let lacks_polarity =
        !is_shown(status) && units.iter().any(|unit| texts.all().any(|text| unit.lacks_polarity(text)));
    Grade {
        status,
        found: statuses.iter().filter(|status| is_shown(**status)).count(),
        wanted: units.len(),
        stale: stale_of(stale, texts, is_shown(status)),
        lacks_polarity,
    }
}

fn stale_of(stale: &[String], texts: &Texts<'_>, is_answered: bool) -> Stale {
    let is_in = |texts: &[Cow<'_, str>]| stale.iter().any(|value| texts.iter().any(|text| holds(text, value)));
    let (in_view, in_summary) = (is_in(&texts.view), is_in(&texts.summaries));
    match (in_view, in_summary, is_answered) {
        (false, false, _) => Stale::Absent,
        (_, _, false) => Stale::Alone,
        (_, true, true) => Stale::Summarized,
        (true, false, true) => Stale::Corrected,
    }
}

/// What came of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The probe.
    pub probe: String,
    /// Its kind.
    pub kind: ProbeKind,
    /// Where the answer is: by its worst part.
    pub status: Status,
    /// How many of the values that it needs the request holds.
    pub found: usize,
    /// How many it needs.
    pub wanted: usize,
    /// What became of values that no longer hold.
    pub stale: Stale,
    /// Whether the value of a constraint stands in the request only without its polarity.
    pub lacks_polarity: bool,
    /// What fetching would add to the request, in tokens; 0 where nothing has to be fetched.
    pub fetch_tokens: u64,
    /// The step whose request was tested, counted from 0; `None` where no replay was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

impl Verdict {
    pub(crate) fn new(probe: &Probe, grade: &Grade, fetched: Tokens) -> Self {
        Self {
            probe: probe.id.clone(),
            kind: probe.kind,
            status: grade.status,
            found: grade.found,
            wanted: grade.wanted,
            stale: grade.stale,
            lacks_polarity: grade.lacks_polarity,
            fetch_tokens: fetched.0,
            step: None,
        }
    }

    /// Whether the agent has the answer before it without asking, and no stale one.
    pub fn passes(&self) -> bool {
        self.status <= Status::InSummary && !self.stale.is_failure()
    }
}

/// Grades a text that another product made of a session. All of it counts as a summary, JSON as its strings; addresses
/// in it are not followed, since another product's addresses lead elsewhere.
pub fn grade_text(probes: &[Probe], text: &str) -> Vec<Verdict> {
    let texts = Texts { view: Vec::new(), summaries: vec![Cow::Owned(strings(text))] };
    probes
        .iter()
        .map(|probe| Verdict::new(probe, &grade(&probe.units(), &probe.stale, &texts, &[]), Tokens::ZERO))
        .collect()
}

/// The text, or where it is JSON or JSON lines, the strings in it.
fn strings(text: &str) -> String {
    let is_json = |text: &str| matches!(text.trim_start().as_bytes().first(), Some(b'{' | b'['));
    if !is_json(text) {
        return text.to_owned();
    }
    if serde_json::from_str::<serde_json::Value>(text).is_ok() {
        return of_arguments(text);
    }
    text.lines().map(of_arguments).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constraint() -> Unit {
        Unit::Constraint { value: "wipe-4417".into(), wordings: vec!["never".into(), "do not".into()] }
    }

    fn list() -> Unit {
        Unit::List(["a-1", "b-2", "c-3"].map(str::to_owned).to_vec())
    }

    /// Units, texts, and whether they hold them.
    fn cases() -> Vec<(Unit, &'static str, bool)> {
        vec![
            (constraint(), "Never run wipe-4417.", true),
            (constraint(), "Do not hurry.\nRun wipe-4417.", false),
            (constraint(), "Run wipe-4417", false),
            (constraint(), "Never run wipe-44170.", false),
            (list(), "first a-1, then b-2, c-3", true),
            (list(), "c-3, b-2, a-1", false),
            (list(), "a-1, c-3", false),
            (list(), "b-2, a-1, b-2, c-3", true),
            (list(), "a-1, b-20, c-3", false),
            (Unit::Value("PX-100-L".into()), "PX-100-L and PX-103-L", true),
            (Unit::Value("PX-103-L".into()), "PX-100-L", false),
        ]
    }

    #[test]
    fn a_unit_is_held_as_it_has_to_be() {
        for (unit, text, expected) in cases() {
            assert_eq!(unit.is_in(text), expected, "{unit} in {text:?}");
        }
    }

    #[test]
    fn a_check_of_units_that_is_wrong_in_one_way_is_found_out() {
        type Wrong = fn(&Unit, &str) -> bool;
        let values = |unit: &Unit| match unit {
            Unit::Value(value) | Unit::Constraint { value, .. } => vec![value.clone()],
            Unit::List(values) => values.clone(),
        };
        let all: Wrong = |unit, text| match unit {
            Unit::List(values) => values.iter().all(|value| holds(text, value)),
            unit => unit.is_in(text),
        };
        let any: Wrong = |unit, text| match unit {
            Unit::List(values) => values.iter().any(|value| holds(text, value)),
            unit => unit.is_in(text),
        };
        let value_alone: Wrong = |unit, text| match unit {
            Unit::Constraint { value, .. } => holds(text, value),
            unit => unit.is_in(text),
        };
        let anywhere: Wrong = |unit, text| match unit {
            Unit::Constraint { value, wordings } => {
                holds(text, value) && wordings.iter().any(|it| holds(&text.to_lowercase(), it))
            }
            unit => unit.is_in(text),
        };
        let is_caught = |wrong: &dyn Fn(&Unit, &str) -> bool| {
            cases().iter().any(|(unit, text, expected)| wrong(unit, text) != *expected)
        };
        assert!(!is_caught(&|unit, text| unit.is_in(text)));
        for (what, wrong) in [
            ("the order of a list is ignored", all),
            ("one value of a list is enough", any),
            ("polarity is ignored", value_alone),
            ("polarity may stand in another sentence", anywhere),
        ] {
            assert!(is_caught(&wrong), "{what}");
        }
        let parts = |unit: &Unit, text: &str| values(unit).iter().all(|value| text.contains(value.as_str()));
        assert!(is_caught(&parts), "parts of tokens count");
    }
}
