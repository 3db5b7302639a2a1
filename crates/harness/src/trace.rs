//! A trace prepared for replay: what is the same for every policy is computed once.

use std::hash::BuildHasher as _;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use condenser::condenser::digest;
use condenser::event::{ContentBlock, Event, EventId, EventKind, Role, Source, Usage};
use condenser::recall::Recall;
use condenser::request::{Bodies, Incremental, Sizer, text_of};
use condenser::tokens::{TokenCounter, Tokens};
use condenser::view::{Rules, View};
use hashbrown::{DefaultHashBuilder, HashMap, HashSet};

use crate::evidence::{Evidence, Uses};
use crate::rereads::{self, Reread};
use crate::saved::{TraceFacts, UseFact};
use crate::time::seconds;

/// The most characters of an item in [`TraceFacts`].
const MAX_ITEM: usize = 200;

/// A trace as it came from a reader.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'t> {
    /// The trace's name.
    pub trace: &'t str,
    /// The trace's format.
    pub format: &'t str,
    /// The task it belongs to.
    pub task: Option<&'t str>,
    /// The events of the active branch, in order, with unique ids.
    pub events: &'t [Event],
}

/// The place of each event. The map of the standard library may be dropped after what it borrows, another may not.
pub(crate) type ById<'t> = std::collections::HashMap<&'t EventId, usize, DefaultHashBuilder>;

/// One model response: what it wrote, and where the next one begins.
#[derive(Clone, Debug)]
pub(crate) struct StepSpan {
    /// The response's events.
    pub(crate) written: Vec<usize>,
    /// From its first event to the first of the next response.
    pub(crate) events: Range<usize>,
}

/// A trace made ready to be replayed under any number of policies.
///
/// Recorded condensations, undos, requests and failures of condensation are taken out, and with them the messages
/// that only repeat a recorded summary: those with the summary's own id, and a user message right after a record
/// whose text is the summary. Pins and unpins stay: they are the user's. Events that no view shows are dropped.
#[derive(Debug)]
pub struct Prepared<'t> {
    pub(crate) subject: Subject<'t>,
    pub(crate) rules: Rules,
    pub(crate) counter: Counted<'t>,
    pub(crate) events: Vec<&'t Event>,
    /// Recorded condensations and undos, each with the number of events before it.
    pub(crate) recorded: Vec<(usize, &'t Event)>,
    pub(crate) steps: Vec<StepSpan>,
    /// By step: what it wrote.
    pub(crate) output: Vec<u64>,
    /// By step: the seconds since the step before, where both have a time.
    pub(crate) idle: Vec<Option<f64>>,
    pub(crate) by_id: ById<'t>,
    pub(crate) presence: Presence,
    pub(crate) evidence: Evidence,
    /// By step: uses of evidence.
    pub(crate) uses: Vec<Uses>,
    /// By step: reads of what was read before.
    pub(crate) rereads: Vec<Vec<Reread>>,
    pub(crate) keeps_views: bool,
}

impl<'t> Prepared<'t> {
    /// Prepares a trace. All sizes are counted with `counter`, all views built under `rules`.
    pub fn new(subject: Subject<'t>, counter: &'t dyn TokenCounter, rules: Rules) -> Self {
        let (events, recorded) = sort_out(subject.events);
        let steps = steps(&events);
        let counter = Counted { inner: counter, counts: Mutex::default(), hasher: DefaultHashBuilder::default() };
        let output = steps.iter().map(|step| {
            let tokens = step.written.iter().map(|&event| written(events[event], &counter)).sum::<Tokens>();
            tokens.0
        });
        let output = output.collect();
        let time = |step: &StepSpan| events[step.events.start].timestamp.as_deref().and_then(seconds);
        let times: Vec<Option<f64>> = steps.iter().map(time).collect();
        let before = std::iter::once(None).chain(times.iter().copied());
        let idle = times.iter().zip(before).map(|(now, before)| Some((*now)? - before?)).collect();
        let by_id = events.iter().enumerate().map(|(index, event)| (&event.id, index)).collect();
        let presence = Presence::new(&events, &steps, rules, &counter);
        let (evidence, uses) = Evidence::find(&events, &by_id, &steps, &presence);
        let rereads = rereads::find(&events, &steps, &presence);
        Self {
            subject,
            rules,
            counter,
            events,
            recorded,
            steps,
            output,
            idle,
            by_id,
            presence,
            evidence,
            uses,
            rereads,
            keeps_views: false,
        }
    }

    /// Lets replays of this trace keep what each request shows, for a saved run.
    pub fn keep_views(self) -> Self {
        Self { keeps_views: true, ..self }
    }

    /// The number of model responses.
    pub fn n_steps(&self) -> usize {
        self.steps.len()
    }

    /// The usage that was reported for a step's response, counted from 0.
    pub fn usage(&self, step: usize) -> Option<&Usage> {
        self.steps.get(step)?.written.iter().find_map(|&event| self.events[event].usage.as_ref())
    }

    /// What a saved run keeps of the trace.
    pub fn facts(&self) -> TraceFacts {
        let texts = self.evidence.texts();
        let mut uses = Vec::new();
        for (step, (found, span)) in self.uses.iter().zip(&self.steps).enumerate() {
            for found in &found.first {
                let mut sources = self.evidence.shown_sources(found.item, span.events.start, step, &self.presence);
                let at = sources.next();
                let source = at.map(|event| self.events[event].id.to_string()).unwrap_or_default();
                let item = texts[found.item as usize].chars().take(MAX_ITEM).collect();
                let at = at.map(|event| event as u64);
                uses.push(UseFact { step: step as u64, item, source, at, far: found.is_far });
            }
        }
        TraceFacts {
            trace: self.subject.trace.to_owned(),
            format: self.subject.format.to_owned(),
            task: self.subject.task.map(str::to_owned),
            digest: digest_of(self.subject.events),
            events: self.events.iter().filter(|event| event.kind.is_shown()).count() as u64,
            has_condensations: self.has_recorded_condensations(),
            starts: self.steps.iter().map(|step| step.events.start as u64).collect(),
            output: self.output.clone(),
            idle: self.idle.clone(),
            uses,
        }
    }

    /// Whether the agent itself ran with condensations. Where it did, what `none` shows was never sent.
    pub fn has_recorded_condensations(&self) -> bool {
        self.recorded.iter().any(|(_, event)| matches!(event.kind, EventKind::Condensation(_)))
    }
}

/// A digest of a trace's events: equal where all of them are.
pub fn digest_of(events: &[Event]) -> String {
    digest(events.iter().map(|event| serde_json::to_vec(event).unwrap_or_default()))
}

impl Recall for Prepared<'_> {
    fn bytes(&self, id: &EventId, range: Option<Range<u64>>) -> Option<Vec<u8>> {
        let text = text_of(&self.events[*self.by_id.get(id)?].kind).into_bytes();
        let Some(range) = range else { return Some(text) };
        let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
        let (start, end) = (clamp(range.start), clamp(range.end));
        Some(text[start.min(end)..end].to_vec())
    }
}

/// A token counter that counts each text once.
pub(crate) struct Counted<'t> {
    inner: &'t dyn TokenCounter,
    counts: Mutex<HashMap<(u64, usize), Tokens>>,
    /// With a seed of its own, so that nobody can write texts that collide.
    hasher: DefaultHashBuilder,
}

impl std::fmt::Debug for Counted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counted").field("inner", &self.inner.name()).finish_non_exhaustive()
    }
}

impl Counted<'_> {
    fn lock(&self) -> MutexGuard<'_, HashMap<(u64, usize), Tokens>> {
        // Counts are whole whenever the lock is free.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of a trace that a replay goes through, in order: recorded condensations are taken out with what belongs
/// to them, and so is what no view shows, but for pins.
pub fn replayed(events: &[Event]) -> Vec<&Event> {
    sort_out(events).0
}

/// Events to replay, and the recorded condensations and undos with their places.
fn sort_out(all: &[Event]) -> (Vec<&Event>, Vec<(usize, &Event)>) {
    let mut events = Vec::new();
    let mut recorded = Vec::new();
    for event in without_repeats(all) {
        match &event.kind {
            EventKind::Condensation(_) | EventKind::Undo(_) => recorded.push((events.len(), event)),
            EventKind::Pin(_) | EventKind::Unpin(_) => events.push(event),
            kind if kind.is_shown() => events.push(event),
            _ => {}
        }
    }
    (events, recorded)
}

/// The events of a trace without the messages that only repeat a recorded summary: those with the summary's own id,
/// and a user message right after a record whose text is the summary.
pub fn without_repeats<'t>(all: &'t [Event]) -> Vec<&'t Event> {
    let summary_ids: HashSet<EventId> =
        all.iter().filter(|event| is_record(event)).map(|event| event.id.summary_id()).collect();
    let mut newest_summary: Option<&'t str> = None;
    let is_new = |event: &&'t Event| match &event.kind {
        EventKind::Condensation(record) => {
            newest_summary = record.summary.as_deref();
            true
        }
        kind if kind.is_shown() => {
            let repeats = newest_summary.take().is_some_and(|summary| repeats(kind, summary));
            !repeats && !summary_ids.contains(&event.id)
        }
        _ => true,
    };
    all.iter().filter(is_new).collect()
}

fn is_record(event: &Event) -> bool {
    matches!(event.kind, EventKind::Condensation(_))
}

fn repeats(kind: &EventKind, summary: &str) -> bool {
    matches!(kind, EventKind::Message(message) if message.role == Role::User)
        && !summary.trim().is_empty()
        && text_of(kind).trim() == summary.trim()
}

/// Whether the model wrote the event.
pub(crate) fn is_written(event: &Event) -> bool {
    event.source != Source::User
        && match &event.kind {
            EventKind::Action(_) => true,
            EventKind::Message(message) => message.role == Role::Assistant,
            _ => false,
        }
}

/// One step per response: the events that share a response id up to another response, else one event.
fn steps(events: &[&Event]) -> Vec<StepSpan> {
    let mut steps: Vec<StepSpan> = Vec::new();
    let mut response: Option<&str> = None;
    for (index, event) in events.iter().enumerate() {
        if let Some(step) = steps.last_mut() {
            step.events.end = index + 1;
        }
        if !is_written(event) {
            continue;
        }
        match steps.last_mut() {
            Some(step) if response.is_some() && response == event.response_id() => step.written.push(index),
            newest => {
                if let Some(step) = newest {
                    step.events.end = index;
                }
                steps.push(StepSpan { written: vec![index], events: index..index + 1 });
            }
        }
        response = event.response_id();
    }
    steps
}

/// What an event cost as output.
fn written(event: &Event, counter: &Counted<'_>) -> Tokens {
    let text = |block: &ContentBlock| match block {
        ContentBlock::Text { text, .. } => counter.count(text),
        ContentBlock::Thinking { thinking, .. } => counter.count(thinking),
        _ => Tokens::ZERO,
    };
    let plain = |text: &Option<String>| text.as_deref().map_or(Tokens::ZERO, |text| counter.count(text));
    match &event.kind {
        EventKind::Action(action) => {
            let blocks: Tokens = action.thought.iter().chain(&action.thinking).map(text).sum();
            // Where reasoning stands beside thinking blocks it repeats them.
            let reasoning = if action.thinking.is_empty() { plain(&action.reasoning) } else { Tokens::ZERO };
            blocks + reasoning + counter.count(&action.tool_name) + counter.count(&action.arguments)
        }
        EventKind::Message(message) => {
            let thinks = message.content.iter().any(ContentBlock::is_thinking);
            let reasoning = if thinks { Tokens::ZERO } else { plain(&message.reasoning) };
            message.content.iter().map(text).sum::<Tokens>() + reasoning
        }
        _ => Tokens::ZERO,
    }
}

impl TokenCounter for Counted<'_> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn is_estimate(&self) -> bool {
        self.inner.is_estimate()
    }

    fn image(&self, url: &str) -> Tokens {
        self.inner.image(url)
    }

    fn count(&self, text: &str) -> Tokens {
        if text.len() < 16 {
            return self.inner.count(text);
        }
        let key = (self.hasher.hash_one(text), text.len());
        let known = self.lock().get(&key).copied();
        known.unwrap_or_else(|| {
            let tokens = self.inner.count(text);
            self.lock().insert(key, tokens);
            tokens
        })
    }
}

/// In which requests under `none` each event stands.
#[derive(Debug)]
pub(crate) struct Presence {
    /// By event: the first and the last step with it.
    steps: Vec<Option<(usize, usize)>>,
}

impl Presence {
    fn new(events: &[&Event], spans: &[StepSpan], rules: Rules, counter: &Counted<'_>) -> Self {
        let mut log = Log::default();
        let mut view = View::new(rules);
        let mut lowering = Incremental::default();
        // Nothing but events is pushed, so positions in the log are positions in the trace.
        let mut shown: Vec<(usize, usize)> = Vec::new();
        let mut steps: Vec<Option<(usize, usize)>> = vec![None; events.len()];
        for (step, span) in spans.iter().enumerate() {
            for event in &events[log.len()..span.events.start] {
                view.push(*event);
                log.push(Held::Trace(event));
            }
            let tail = lowering.next(&view, &log);
            let n_kept = shown.partition_point(|(index, _)| *index < tail.n_entries);
            for (_, event) in shown.drain(n_kept..) {
                steps[event] = steps[event].map(|(first, _)| (first, step - 1));
            }
            let mut indices: Vec<usize> =
                tail.request.turns.iter().flat_map(|turn| &turn.parts).filter_map(|part| part.entry).collect();
            indices.sort_unstable();
            indices.dedup();
            for entry in indices.into_iter().filter_map(|index| view.get(index)) {
                steps[entry.seq()].get_or_insert((step, 0)).1 = spans.len();
                shown.push((entry.index(), entry.seq()));
            }
        }
        // Counted here, so that no policy's time holds it.
        Sizer::new(counter).sizes(&view, &log);
        Self { steps }
    }

    /// Whether the event stands in the request of the step.
    pub(crate) fn shows(&self, event: usize, step: usize) -> bool {
        self.steps[event].is_some_and(|(first, last)| (first..=last).contains(&step))
    }
}

/// The log of a replay: the trace's events and the records that were made.
#[derive(Debug, Default)]
pub(crate) struct Log<'t> {
    events: Vec<Held<'t>>,
}

#[derive(Debug)]
pub(crate) enum Held<'t> {
    Trace(&'t Event),
    Own(Box<Event>),
}

impl<'t> Log<'t> {
    pub(crate) fn push(&mut self, event: Held<'t>) {
        self.events.push(event);
    }

    pub(crate) fn pop(&mut self) {
        self.events.pop();
    }

    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|held| match held {
            Held::Trace(event) => *event,
            Held::Own(event) => event,
        })
    }
}

impl Bodies for Log<'_> {
    fn event(&self, seq: usize) -> Option<&Event> {
        self.events.get(seq).map(|held| match held {
            Held::Trace(event) => *event,
            Held::Own(event) => event,
        })
    }
}
