//! A finished replay, from which every step can be shown again.

use std::collections::HashMap;

use condenser::event::{Event, EventId, EventKind};
use condenser::policy::Budget;
use condenser::request::Bodies;
use condenser::{Condensation, Rules, Tokens, View};
use condenser_harness::{Choice, Prepared, Subject};
use condenser_snapshot::push;
use condenser_traces::Trace;

use crate::subjects::Measure;

/// The log that a replay left behind, and what each step measured.
///
/// Views are not kept: the log up to a step gives its view again, in time linear in its events.
pub(crate) struct Recording<'t> {
    pub(crate) trace: &'t Trace,
    pub(crate) policy: String,
    pub(crate) window: Tokens,
    /// What a request may hold: the window without the reserve.
    pub(crate) limit: Tokens,
    pub(crate) steps: Vec<Step>,
    rules: Rules,
    log: Vec<Held>,
}

/// One model response, and the request before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Events in the log by then.
    pub(crate) n_events: usize,
    pub(crate) n_entries: usize,
    pub(crate) tokens: Tokens,
    pub(crate) cached: Tokens,
    pub(crate) has_record: bool,
}

enum Held {
    /// By position in the trace.
    Trace(usize),
    Own(Box<Event>),
}

/// What is shown at a step.
pub(crate) struct Shown {
    pub(crate) view: View,
    /// The log position of the newest record before the step, where there is one since the last step, and the view before it.
    pub(crate) change: Option<(usize, View)>,
}

impl<'t> Recording<'t> {
    pub(crate) fn new(trace: &'t Trace, choice: &Choice, measure: &Measure, window: Tokens) -> Self {
        let subject =
            Subject { trace: &trace.name, format: trace.format, task: trace.task.as_deref(), events: &trace.events };
        let prepared = Prepared::new(subject, measure.models.counter, measure.rules);
        let settings = measure.settings(window, 0);
        let by_id: HashMap<&EventId, usize> =
            trace.events.iter().enumerate().map(|(position, event)| (&event.id, position)).collect();
        let (mut log, mut steps) = (Vec::new(), Vec::new());
        choice.replay(
            &prepared,
            &settings,
            None,
            Some(&mut |seen| {
                for event in (log.len()..seen.view.n_pushed()).filter_map(|seq| seen.bodies.event(seq)) {
                    let position = by_id.get(&event.id).copied();
                    // A record of the run may have the id of one that the trace recorded.
                    let position = position.filter(|position| std::ptr::eq(&raw const trace.events[*position], event));
                    log.push(position.map_or_else(|| Held::Own(Box::new(event.clone())), Held::Trace));
                }
                steps.push(Step {
                    n_events: seen.view.n_pushed(),
                    n_entries: seen.view.len(),
                    tokens: seen.tokens,
                    cached: seen.cached,
                    has_record: seen.record.is_some(),
                });
            }),
        );
        let budget = Budget { window: Some(window), reserve: settings.reserve };
        Self {
            trace,
            policy: choice.name().to_owned(),
            window,
            limit: budget.limit().unwrap_or(window),
            steps,
            rules: measure.rules,
            log,
        }
    }

    /// What is shown at a step. `older` is what an earlier step shows, to go on from.
    pub(crate) fn show(&self, step: usize, older: Option<Shown>) -> Shown {
        let start = step.checked_sub(1).map_or(0, |before| self.steps[before].n_events);
        let older = older.map(|shown| shown.view).filter(|view| view.n_pushed() <= start);
        let mut view = older.unwrap_or_else(|| View::new(self.rules));
        let mut change = None;
        for seq in view.n_pushed()..self.steps[step].n_events {
            let Some(event) = self.event(seq) else { continue };
            if seq >= start && matches!(event.kind, EventKind::Condensation(_)) {
                change = Some((seq, view.clone()));
            }
            push(&mut view, event, self);
        }
        Shown { view, change }
    }

    /// The record at a log position.
    pub(crate) fn record(&self, seq: usize) -> Option<&Condensation> {
        match &self.event(seq)?.kind {
            EventKind::Condensation(record) => Some(record),
            _ => None,
        }
    }
}

impl Bodies for Recording<'_> {
    fn event(&self, seq: usize) -> Option<&Event> {
        match self.log.get(seq)? {
            Held::Trace(position) => self.trace.events.get(*position),
            Held::Own(event) => Some(event),
        }
    }
}
