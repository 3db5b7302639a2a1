//! Probes: questions with known answers, asked of the request that follows an event.
//!
//! Without a model a probe is a test of containment: does the next request hold what the answer needs? A value counts
//! where it stands as a whole token. A constraint needs its value and a wording of its polarity in one sentence, so that
//! "do not touch X" and "touch X" are told apart. What is not in the request is *recoverable* where the request names
//! a source as `[event <id>]` and fetching it really gives the answer.

mod ask;
mod file;
mod grade;
pub(crate) mod text;

use condenser::recall::Recall;
use condenser::tokens::{TokenCounter as _, Tokens};
use serde::Serialize;

use crate::replay::Seen;
use crate::row::Status;
use crate::trace::Prepared;

pub use ask::{Answer, Panel};
pub use file::{Probe, ProbeKind, Probes, ProbesError};
pub use grade::{Stale, Verdict, grade_text};
pub(crate) use grade::{Texts, Unit, grade};

/// Probes on their way through one replay.
#[derive(Debug)]
pub struct Probing<'p> {
    prepared: &'p Prepared<'p>,
    probes: &'p [Probe],
    /// By probe: the step whose request is tested, and its sources among the trace's events.
    places: Vec<Place>,
    verdicts: Vec<Verdict>,
}

#[derive(Debug)]
struct Place {
    step: usize,
    sources: Vec<usize>,
}

impl<'p> Probing<'p> {
    /// Places the probes in a trace.
    ///
    /// # Errors
    /// [`ProbesError`] where a probe names an event that the trace does not have, no step follows it, a source comes
    /// after it, or the sources do not hold the answer.
    pub fn new(prepared: &'p Prepared<'p>, probes: &'p Probes) -> Result<Self, ProbesError> {
        let places = probes.probes.iter().map(|probe| place(prepared, probe)).collect::<Result<_, _>>()?;
        Ok(Self { prepared, probes: &probes.probes, places, verdicts: Vec::new() })
    }

    /// Tests the probes whose step this is.
    pub fn see(&mut self, seen: &Seen<'_>) {
        for (probe, place) in self.due(seen.step) {
            let verdict = self.verdict(probe, place, seen);
            self.verdicts.push(Verdict { step: Some(seen.step as u64), ..verdict });
        }
    }

    /// The probes whose step this is.
    pub fn at(&self, step: usize) -> impl Iterator<Item = &'p Probe> {
        self.due(step).into_iter().map(|(probe, _)| probe)
    }

    /// The verdicts so far, in the order of the steps.
    pub fn verdicts(self) -> Vec<Verdict> {
        self.verdicts
    }

    fn due(&self, step: usize) -> Vec<(&'p Probe, usize)> {
        let due = self.probes.iter().zip(&self.places).enumerate().filter(|(_, (_, place))| place.step == step);
        due.map(|(index, (probe, _))| (probe, index)).collect()
    }

    fn verdict(&self, probe: &Probe, place: usize, seen: &Seen<'_>) -> Verdict {
        let texts = Texts::of(seen);
        let addressed = texts.addressed(&self.prepared.by_id);
        let recalled = recalled(self.prepared, &addressed, &self.places[place].sources);
        let grade = grade(&probe.units(), &probe.stale, &texts, &recalled);
        let fetched = match grade.status {
            Status::Recoverable => recalled.iter().map(|text| self.prepared.counter.count(text)).sum(),
            _ => Tokens::ZERO,
        };
        Verdict::new(probe, &grade, fetched)
    }
}

/// The texts behind those sources that a request addresses.
pub(crate) fn recalled(prepared: &Prepared<'_>, addressed: &[usize], sources: &[usize]) -> Vec<String> {
    let named = sources.iter().filter(|source| addressed.contains(source));
    let fetched = named.filter_map(|&source| prepared.bytes(&prepared.events[source].id, None));
    fetched.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

fn place(prepared: &Prepared<'_>, probe: &Probe) -> Result<Place, ProbesError> {
    let wrong = |field, reason: &str| ProbesError::probe(&probe.id, field, reason);
    let unknown = |field, id: &str| {
        let shown: String = id.chars().take(60).collect();
        wrong(field, &format!("the trace shows no event {shown:?}"))
    };
    let after = *prepared.by_id.get(&probe.after).ok_or_else(|| unknown("after", probe.after.as_str()))?;
    let next = prepared.steps.iter().position(|step| step.events.start > after);
    let step = next.ok_or_else(|| wrong("after", "no step follows this event; name an earlier one"))?;
    let mut sources = Vec::new();
    for id in &probe.sources {
        let source = *prepared.by_id.get(id).ok_or_else(|| unknown("sources", id.as_str()))?;
        if source > after {
            return Err(wrong("sources", &format!("{:?} comes after the probe's event", id.as_str())));
        }
        sources.push(source);
    }
    let texts: Vec<String> = sources.iter().map(|&source| text::of_kind(&prepared.events[source].kind)).collect();
    for unit in probe.units() {
        if !texts.iter().any(|text| unit.is_in(text)) {
            return Err(wrong("answer", &format!("no source holds {unit}")));
        }
    }
    Ok(Place { step, sources })
}

/// A verdict, and where it was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeRow {
    /// The trace's name.
    pub trace: String,
    /// The policy.
    pub policy: String,
    /// The context window, where one was set.
    pub window: Option<u64>,
    /// The summarizer.
    pub summarizer: String,
    /// The seed.
    pub seed: u64,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}
