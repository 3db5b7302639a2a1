//! The condensations that a trace itself recorded, and what a policy would have done in their place.

use std::fmt::Write as _;

use condenser::condenser::{Condenser, OutcomeKind};
use condenser::event::{Event, EventId, EventKind};
use condenser::policy::{Budget, State};
use condenser::render::Rendering;
use condenser::request::{Bodies, Sizer};
use condenser::{Condensation, Policy, SummarizeError, Summarizer, Summary, SummaryRequest, Tokens, View};
use condenser_harness::without_repeats;

use crate::Setup;
use crate::pages::{MAX_CHANGE_LINES, MAX_CHANGES, changed, counts, facts, push};
use crate::paper::{add, short};

/// Lines of one recorded condensation, both sides together.
const MAX_SIDES_LINES: usize = 1000;
/// Lines of the counts of further condensations.
const MAX_FURTHER: usize = 200;

/// Where a policy decides differently than a trace recorded.
///
/// At the place of each recorded condensation the policy is asked what it would do, with the same log before it. A
/// request for a summary is answered with the recorded summary, so that only decisions differ: what leaves, what is
/// rewritten, and where the summary goes. Its words are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Against {
    /// One paragraph per condensation; bounded.
    pub text: String,
    /// Condensations on which both agree.
    pub same: usize,
    /// Those on which they do not.
    pub different: usize,
}

struct Log<'a>(Vec<&'a Event>);

impl Bodies for Log<'_> {
    fn event(&self, seq: usize) -> Option<&Event> {
        self.0.get(seq).copied()
    }
}

/// One recorded condensation.
struct Place<'p> {
    n_events: usize,
    id: &'p EventId,
    record: &'p Condensation,
    before: &'p View,
    after: &'p View,
    log: &'p Log<'p>,
}

fn each(setup: &Setup<'_>, events: &[Event], mut take: impl FnMut(usize, &Place<'_>)) {
    let log = Log(without_repeats(events));
    let mut view = View::new(setup.rules);
    let mut number = 0;
    for (n_events, event) in log.0.iter().enumerate() {
        let EventKind::Condensation(record) = &event.kind else {
            push(&mut view, event, &log);
            continue;
        };
        let before = view.clone();
        if push(&mut view, event, &log) {
            number += 1;
            take(number, &Place { n_events, id: &event.id, record, before: &before, after: &view, log: &log });
        }
    }
}

pub(crate) fn of_recorded(setup: &Setup<'_>, events: &[Event]) -> Option<String> {
    let mut page = format!("condenser snapshot v1\nrecorded condensations\ncontent {}\n", setup.mode);
    let mut further = String::new();
    let mut n = 0;
    each(setup, events, |number, place| {
        n = number;
        let title = format!("condensation {number}, after {} events", place.n_events);
        let facts = facts(place.record, place.before, place.after);
        if number > MAX_CHANGES {
            let _ = writeln!(further, "{title}: {}", facts.join("; "));
            return;
        }
        let _ = writeln!(page, "\n== {title}\n{}", facts.join("\n"));
        let sides = Rendering::new(setup.mode).change(place.before, place.after, place.log);
        add(&mut page, sides.split_once('\n').map_or("", |(_, sides)| sides), MAX_SIDES_LINES);
    });
    if !further.is_empty() {
        page.push_str("\n== further condensations\n");
        add(&mut page, &further, MAX_FURTHER);
    }
    (n > 0).then_some(page)
}

/// Answers with what was recorded.
struct Recorded<'r>(&'r str);

impl Summarizer for Recorded<'_> {
    fn name(&self) -> &str {
        "recorded"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Ok(Summary {
            text: self.0.to_owned(),
            cut_by_length: false,
            tool_call: false,
            response_id: None,
            input_tokens: Tokens::ZERO,
            output_tokens: Tokens::ZERO,
        })
    }
}

pub(crate) fn against(setup: &Setup<'_>, events: &[Event], policy: &dyn Policy) -> Against {
    let mut found = Against::default();
    let budget = Budget { window: Some(setup.window), reserve: setup.reserve };
    each(setup, events, |number, place| {
        let sizer = Sizer::new(setup.counter);
        let mut state = State::new(place.before, place.log, &sizer, budget);
        state.recall = setup.recall;
        let outcome = match place.record.shown_summary() {
            Some((text, _)) => Condenser::default().run(policy, &state, &Recorded(text)),
            None => Condenser::default().run(policy, &state, setup.summarizer),
        };
        let title = format!("condensation {number}, after {} events", place.n_events);
        let (other, says) = match &outcome.result {
            OutcomeKind::Applied(record) => {
                let other = place.before.preview(place.id, record);
                let says = facts(record, place.before, &other).join("; ");
                (other, says)
            }
            _ => (place.before.clone(), format!("leaves it as it is: {}", short(&outcome.explain()))),
        };
        if decides_alike(place.after, &other) {
            found.same += 1;
            let _ = writeln!(found.text, "{title}: the same");
            return;
        }
        found.different += 1;
        let _ = writeln!(
            found.text,
            "{title}: differs\n  recorded: {}\n  {}: {says}",
            counts(&place.before.diff(place.after), place.after),
            short(policy.name()),
        );
        if found.different <= MAX_CHANGES {
            let sides = Rendering::new(setup.mode).change(place.after, &other, place.log);
            add(&mut found.text, &changed(&sides), MAX_CHANGE_LINES);
        }
    });
    found
}

/// Whether two views of one log show the same entries at the same places, rewritten alike. The words of summaries may
/// differ.
fn decides_alike(a: &View, b: &View) -> bool {
    a.len() == b.len()
        && a.iter().zip(b.iter()).all(|(a, b)| {
            let op = |entry: condenser::Entry<'_>| entry.rewrite().map(|(rewrite, _)| rewrite.op.clone());
            a.id() == b.id() && a.is_summary() == b.is_summary() && op(a) == op(b)
        })
}
