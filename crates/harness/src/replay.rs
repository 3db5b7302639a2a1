//! Replays a trace as the agent lived it, with a policy acting before each step.

use std::time::Instant;

use condenser::condensation::Condensation;
use condenser::condenser::{Condenser, OutcomeKind};
use condenser::event::{Event, EventId, EventKind, Source};
use condenser::policy::{Budget, Failure, Policy, State, Summarizer};
use condenser::profile::ModelProfile;
use condenser::request::{Bodies, Incremental, Request, Shown, Sizer, text_of};
use condenser::tokens::{TokenCounter, Tokens};
use condenser::view::{Entry, Pushed, View};
use hashbrown::HashMap;

use crate::checks::Checks;
use crate::controls::control_name;
use crate::evidence::Holding;
use crate::oracle;
use crate::prefix::Pieces;
use crate::row::{Row, Status, Steps, cached};
use crate::trace::{Held, Log, Prepared};
use crate::views::{Collector, RecordFacts, Views};

/// What a run is measured under. Tokenizer and rules belong to the [`Prepared`] trace.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// The model's context window; `None`: no token trigger fires and no step is over it.
    pub window: Option<Tokens>,
    /// Room kept for the answer.
    pub reserve: Tokens,
    /// Prices and cache rules.
    pub profile: &'a ModelProfile,
    /// Answers the policy's summary requests.
    pub summarizer: &'a dyn Summarizer,
    /// Stored in the row; a control that draws is made with it.
    pub seed: u64,
    /// Whether policies write the addresses of what they remove.
    pub recall: bool,
}

impl std::fmt::Debug for Settings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("window", &self.window)
            .field("reserve", &self.reserve)
            .field("profile", &self.profile.name)
            .field("summarizer", &self.summarizer.name())
            .field("seed", &self.seed)
            .field("recall", &self.recall)
            .finish()
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The result.
    pub row: Row,
    /// The same step by step.
    pub steps: Steps,
    /// What each request showed, where [`Prepared::keep_views`] asks for it.
    pub views: Option<Views>,
}

/// One step as the model would have been shown it.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The step, counted from 0.
    pub step: usize,
    /// The view after the policy acted.
    pub view: &'a View,
    /// The bodies behind it.
    pub bodies: &'a dyn Bodies,
    /// The request.
    pub request: &'a Request<'a>,
    /// The request's size.
    pub tokens: Tokens,
    /// The part of it that the cache held.
    pub cached: Tokens,
    /// The newest record made before this step, if one was.
    pub record: Option<&'a Condensation>,
}

impl std::fmt::Debug for Seen<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seen").field("step", &self.step).field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

/// Replays a trace under a policy, with the condenser's guards on and at most one condensation before each step.
pub fn run(prepared: &Prepared<'_>, policy: &dyn Policy, settings: &Settings<'_>) -> Replay {
    Run::new(prepared, settings).go(Some(policy), None)
}

/// Like [`run`], and shows each step to `observe`.
pub fn run_observed(
    prepared: &Prepared<'_>,
    policy: &dyn Policy,
    settings: &Settings<'_>,
    observe: &mut dyn FnMut(&Seen<'_>),
) -> Replay {
    Run::new(prepared, settings).go(Some(policy), Some(observe))
}

/// Replays a trace under the condensations recorded in it, as the pseudo-policy `recorded`.
pub fn run_recorded(prepared: &Prepared<'_>, settings: &Settings<'_>) -> Replay {
    Run::new(prepared, settings).go(None, None)
}

/// Like [`run_recorded`], and shows each step to `observe`.
pub fn run_recorded_observed(
    prepared: &Prepared<'_>,
    settings: &Settings<'_>,
    observe: &mut dyn FnMut(&Seen<'_>),
) -> Replay {
    Run::new(prepared, settings).go(None, Some(observe))
}

/// Replays a trace under the control `oracle`, which knows what comes next, at the sizes of a finished run of the same
/// trace. Its records are made without the condenser's guards: each is for one step only. The name is `oracle`, with
/// the matched policy's name in parentheses unless that is `recent-events`.
pub fn run_oracle(prepared: &Prepared<'_>, matched: &Replay, settings: &Settings<'_>) -> Replay {
    Run::new(prepared, settings).go_oracle(matched, None)
}

/// Like [`run_oracle`], and shows each step to `observe`.
pub fn run_oracle_observed(
    prepared: &Prepared<'_>,
    matched: &Replay,
    settings: &Settings<'_>,
    observe: &mut dyn FnMut(&Seen<'_>),
) -> Replay {
    Run::new(prepared, settings).go_oracle(matched, Some(observe))
}

struct Run<'p, 't> {
    prepared: &'p Prepared<'t>,
    settings: &'p Settings<'p>,
    view: View,
    log: Log<'t>,
    /// By event of the trace: its position in the log.
    seqs: Vec<usize>,
    n_recorded: usize,
    row: Row,
    steps: Steps,
    lowering: Incremental,
    pieces: Pieces,
    checks: Checks,
    shown: ShownNow,
    collector: Option<Collector>,
    /// By event: the items that following its address gives.
    behind: HashMap<usize, Vec<u32>>,
}

/// What the newest request shows, kept up entry by entry.
#[derive(Default)]
struct ShownNow {
    /// The entries with a part in the request, by view position.
    entries: Vec<ShownEntry>,
    /// By log position: whether the entry is shown as stored.
    as_stored: Vec<bool>,
    /// What an entry that is not shown as stored holds, by its key.
    holdings: HashMap<(usize, usize), Holding>,
    /// By item: how many rewritten entries hold it, and how many summaries.
    rewritten: Counts,
    summaries: Counts,
    /// By event: how many shown entries hold its address.
    addressed: Counts,
}

/// How often each of some numbers is held.
#[derive(Default)]
struct Counts(Vec<u32>);

impl Counts {
    fn change(&mut self, numbers: impl Iterator<Item = usize>, comes: bool) {
        for number in numbers {
            if number >= self.0.len() {
                self.0.resize(number + 1, 0);
            }
            let count = &mut self.0[number];
            *count = if comes { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    fn any(&self, number: usize) -> bool {
        self.0.get(number).is_some_and(|count| *count > 0)
    }
}

#[derive(Clone, Copy)]
struct ShownEntry {
    index: usize,
    seq: usize,
    /// Names the content of a summary or rewritten entry; `None`: shown as stored.
    key: Option<(usize, usize)>,
    is_summary: bool,
}

impl ShownEntry {
    fn of(entry: Entry<'_>) -> Self {
        let seq = entry.seq();
        let is_summary = entry.is_summary();
        let key = if is_summary { Some((seq, seq)) } else { entry.rewrite().map(|(_, by)| (seq, by)) };
        Self { index: entry.index(), seq, key, is_summary }
    }
}

impl ShownNow {
    /// Takes in the next view: its first `n_entries` entries are shown as before, of the others those with a part in
    /// `tail`. Gives the number of shown entries that stay.
    fn add(
        &mut self,
        prepared: &Prepared<'_>,
        view: &View,
        log: &Log<'_>,
        n_entries: usize,
        tail: &Request<'_>,
    ) -> usize {
        let n_kept = self.entries.partition_point(|entry| entry.index < n_entries);
        for entry in self.entries.split_off(n_kept) {
            self.count(prepared, log, entry, false);
        }
        self.as_stored.resize(log.len(), false);
        let parts = tail.turns.iter().flat_map(|turn| &turn.parts);
        let mut indices: Vec<usize> = parts.filter_map(|part| part.entry).collect();
        indices.sort_unstable();
        indices.dedup();
        for entry in indices.into_iter().filter_map(|index| view.get(index)) {
            let shown = ShownEntry::of(entry);
            if let Some(key) = shown.key {
                self.holdings.entry(key).or_insert_with(|| match Shown::of(entry, log) {
                    Some(Shown::Event(kind)) => prepared.evidence.of_kind(&kind, &prepared.by_id),
                    Some(Shown::Summary(text)) => prepared.evidence.of_text(text, &prepared.by_id),
                    None => Holding::default(),
                });
            }
            self.count(prepared, log, shown, true);
            self.entries.push(shown);
        }
        n_kept
    }

    fn count(&mut self, prepared: &Prepared<'_>, log: &Log<'_>, entry: ShownEntry, comes: bool) {
        let Some(key) = entry.key else {
            self.as_stored[entry.seq] = comes;
            let event = log.event(entry.seq).and_then(|event| prepared.by_id.get(&event.id));
            let addresses = event.map_or(&[][..], |&event| prepared.evidence.addresses(event));
            return self.addressed.change(addresses.iter().copied(), comes);
        };
        let Some(holding) = self.holdings.get(&key) else { return };
        let items = if entry.is_summary { &mut self.summaries } else { &mut self.rewritten };
        items.change(holding.items.iter().map(|&item| item as usize), comes);
        self.addressed.change(holding.addresses.iter().copied(), comes);
    }
}

impl<'p, 't> Run<'p, 't> {
    fn new(prepared: &'p Prepared<'t>, settings: &'p Settings<'p>) -> Self {
        let subject = prepared.subject;
        let row = Row {
            trace: subject.trace.to_owned(),
            format: subject.format.to_owned(),
            task: subject.task.map(str::to_owned),
            window: settings.window.map(|window| window.0),
            tokenizer: prepared.counter.name().to_owned(),
            summarizer: settings.summarizer.name().to_owned(),
            seed: settings.seed,
            steps: prepared.steps.len() as u64,
            output_tokens: prepared.output.iter().sum(),
            ..Row::default()
        };
        Self {
            prepared,
            settings,
            view: View::new(prepared.rules),
            log: Log::default(),
            seqs: Vec::with_capacity(prepared.events.len()),
            n_recorded: 0,
            row,
            steps: Steps::default(),
            lowering: Incremental::default(),
            pieces: Pieces::default(),
            checks: Checks::default(),
            shown: ShownNow::default(),
            collector: prepared.keeps_views.then(Collector::default),
            behind: HashMap::new(),
        }
    }

    fn go(mut self, policy: Option<&dyn Policy>, mut observe: Option<&mut dyn FnMut(&Seen<'_>)>) -> Replay {
        let started = Instant::now();
        self.row.policy = policy.map_or("recorded", Policy::name).to_owned();
        let prepared = self.prepared;
        let sizer = Sizer::new(&prepared.counter);
        for (step, span) in prepared.steps.iter().enumerate() {
            let pushed = self.advance(span.events.start, policy.is_none());
            let record = match policy {
                Some(policy) => self.condense(step, policy, &sizer),
                None => pushed,
            };
            if let Some(record) = &record {
                self.note(step, record);
            }
            self.measure(step, record.as_ref(), &sizer, observe.as_deref_mut());
        }
        self.end(started)
    }

    fn go_oracle(mut self, matched: &Replay, mut observe: Option<&mut dyn FnMut(&Seen<'_>)>) -> Replay {
        let started = Instant::now();
        self.row.policy = control_name("oracle", "recent-events", matched);
        let prepared = self.prepared;
        let sizer = Sizer::new(&prepared.counter);
        for (step, span) in prepared.steps.iter().enumerate() {
            self.advance(span.events.start, false);
            let target = matched.steps.tokens.get(step).map_or(Tokens::ZERO, |&tokens| Tokens(tokens));
            let record = oracle::record(prepared, &self.view, &self.log, &sizer, step, target);
            let everything = record.as_ref().map(|_| self.view.clone());
            if let Some(record) = &record {
                self.row.condensations += 1;
                self.note(step, record);
                self.push_own(EventKind::Condensation(record.clone()));
            }
            self.measure(step, record.as_ref(), &sizer, observe.as_deref_mut());
            if let Some(everything) = everything {
                self.view = everything;
                self.log.pop();
            }
        }
        self.end(started)
    }

    fn end(mut self, started: Instant) -> Replay {
        self.row.charge(&self.steps, &self.prepared.idle, self.settings.profile);
        self.row.wall_ms = started.elapsed().as_secs_f64() * 1e3;
        let views = self.collector.map(|collector| collector.views);
        Replay { row: self.row, steps: self.steps, views }
    }

    fn note(&mut self, step: usize, record: &Condensation) {
        self.steps.records.push(step as u64);
        if let Some(collector) = &mut self.collector {
            collector.views.records.push(RecordFacts::of(step, record));
        }
    }

    /// Pushes the events before `end`, with the recorded condensations between them where asked. The newest record.
    fn advance(&mut self, end: usize, with_recorded: bool) -> Option<Condensation> {
        let mut newest = None;
        loop {
            let next = self.seqs.len();
            while let Some((at, event)) = self.prepared.recorded.get(self.n_recorded).filter(|_| with_recorded)
                && *at <= next
            {
                self.n_recorded += 1;
                if let EventKind::Condensation(record) = &event.kind {
                    self.row.condensations += 1;
                    newest = Some(record.clone());
                }
                self.log.push(Held::Trace(event));
                if self.view.push(*event) == Pushed::ReplayNeeded {
                    self.view = View::replay(self.log.iter(), self.prepared.rules);
                }
            }
            if next >= end {
                return newest;
            }
            let event = self.prepared.events[next];
            self.seqs.push(self.log.len());
            self.log.push(Held::Trace(event));
            self.view.push(event);
        }
    }

    fn condense(&mut self, step: usize, policy: &dyn Policy, sizer: &Sizer<'_>) -> Option<Condensation> {
        let budget = Budget { window: self.settings.window, reserve: self.settings.reserve };
        let outcome = {
            let mut state = State::new(&self.view, &self.log, sizer, budget);
            state.recall = self.settings.recall;
            Condenser::default().run(policy, &state, self.settings.summarizer)
        };
        let row = &mut self.row;
        let facts = &outcome.facts;
        row.summarizer_calls += facts.summarizer_calls;
        row.summarizer_input_tokens += facts.summarizer_input_tokens.0;
        row.summarizer_output_tokens += facts.summarizer_output_tokens.0;
        if facts.summarizer_calls > 0 {
            let tokens = [facts.summarizer_input_tokens.0, facts.summarizer_output_tokens.0];
            self.steps.summaries.push([step as u64, tokens[0], tokens[1]]);
        }
        for failure in &facts.tried {
            row.pinned_changes += u64::from(matches!(failure, Failure::Pinned(_)));
            row.inflations += u64::from(matches!(failure, Failure::NoGain { .. }));
        }
        let refusal = outcome.refusal();
        if let OutcomeKind::Applied(record) = outcome.result {
            row.condensations += 1;
            row.extended += u64::from(facts.extended > 0);
            self.push_own(EventKind::Condensation((*record).clone()));
            return Some(*record);
        }
        let is_failure = matches!(outcome.result, OutcomeKind::Failed | OutcomeKind::Unachievable { .. });
        row.failed_condensations += u64::from(is_failure && facts.waits_for.is_none());
        if let Some(failed) = refusal {
            if let Some(collector) = &mut self.collector {
                collector.views.refuse(step, &failed.reason);
            }
            self.push_own(EventKind::CondensationFailed(failed));
        }
        None
    }

    fn push_own(&mut self, kind: EventKind) {
        let event = Event::new(self.free_id(), Source::Agent, kind);
        self.view.push(&event);
        self.log.push(Held::Own(Box::new(event)));
    }

    /// An id for an event of this run that no event of the trace has.
    fn free_id(&self) -> EventId {
        let mut id = EventId::new(format!("condensation-{}", self.log.len() - self.seqs.len() + 1));
        while self.prepared.by_id.contains_key(&id) || self.prepared.by_id.contains_key(&id.summary_id()) {
            id = EventId::new(format!("{id}-"));
        }
        id
    }

    fn measure(
        &mut self,
        step: usize,
        record: Option<&Condensation>,
        sizer: &Sizer<'_>,
        observe: Option<&mut (dyn FnMut(&Seen<'_>) + '_)>,
    ) {
        let prepared = self.prepared;
        let (view, log) = (&self.view, &self.log);
        let tail = self.lowering.next(view, log);
        let tokens = self.pieces.add(tail.n_turns, &tail.request, sizer);
        let n_kept = self.shown.add(prepared, view, log, tail.n_entries, &tail.request);
        if let Some(collector) = &mut self.collector {
            let entries = self.shown.entries[n_kept..].iter().map(|shown| {
                let event = self.seqs.binary_search(&shown.seq).ok().filter(|_| !shown.is_summary);
                match (shown.key, event) {
                    (None, Some(event)) => Collector::stored(event),
                    (key, event) => collector.text(key.unwrap_or((shown.seq, shown.seq)), event, || {
                        let shown = view.get(shown.index).and_then(|entry| Shown::of(entry, log));
                        shown.map(|shown| shown.text()).unwrap_or_default()
                    }),
                }
            });
            let tail: Vec<i32> = entries.collect();
            collector.step(n_kept, &tail);
        }
        let shared = self.pieces.common(&prepared.counter);
        let cached = cached(shared, prepared.idle[step], self.settings.profile);
        let row = &mut self.row;
        row.input_tokens += tokens.0;
        row.peak_tokens = row.peak_tokens.max(tokens.0);
        let limit = Budget { window: self.settings.window, reserve: self.settings.reserve }.limit();
        row.over_window_steps += u64::from(limit.is_some_and(|limit| tokens > limit));
        self.steps.tokens.push(tokens.0);
        self.steps.shared.push(shared.0);
        row.invalid_requests += u64::from(self.checks.is_refused(tail.n_turns, &tail.request));
        if let Some(observe) = observe {
            let request = Request::build(view, log);
            observe(&Seen { step, view, bodies: log, request: &request, tokens, cached, record });
        }
        for is_habit in self.read_in_full(step) {
            self.row.rereads_habit += u64::from(is_habit);
            self.row.rereads_exposed += u64::from(!is_habit);
        }
        self.find_evidence(step);
    }

    /// For each re-read of the step: whether an earlier result still stands in the request in full.
    fn read_in_full(&self, step: usize) -> Vec<bool> {
        let is_shown = |&event: &usize| {
            let seq = self.seqs[event];
            if self.shown.as_stored[seq] {
                return true;
            }
            let entries = &self.shown.entries;
            let entry = entries.iter().find(|entry| entry.seq == seq && !entry.is_summary);
            let shown = entry.and_then(|entry| Shown::of(self.view.get(entry.index)?, &self.log));
            shown.is_some_and(|shown| shown.text().contains(&text_of(&self.prepared.events[event].kind)))
        };
        self.prepared.rereads[step].iter().map(|reread| reread.results.iter().any(is_shown)).collect()
    }

    fn find_evidence(&mut self, step: usize) {
        let prepared = self.prepared;
        let uses = &prepared.uses[step];
        self.row.self_carried += uses.self_carried;
        let start = prepared.steps[step].events.start;
        let shown = &self.shown;
        for found in &uses.first {
            let item = found.item as usize;
            let as_stored = |event: usize| shown.as_stored[self.seqs[event]];
            let in_view =
                prepared.evidence.holders_before(found.item, start).any(as_stored) || shown.rewritten.any(item);
            let in_summary = !in_view && shown.summaries.any(item);
            let mut is_recoverable = false;
            if !in_view && !in_summary {
                let sources = prepared.evidence.shown_sources(found.item, start, step, &prepared.presence);
                for source in sources.filter(|source| shown.addressed.any(*source)) {
                    let id = &prepared.events[source].id;
                    let behind = self.behind.entry(source);
                    let behind = behind.or_insert_with(|| prepared.evidence.behind(id, prepared));
                    is_recoverable |= behind.binary_search(&found.item).is_ok();
                }
            }
            let status = if in_view {
                Status::InView
            } else if in_summary {
                Status::InSummary
            } else if is_recoverable {
                Status::Recoverable
            } else {
                Status::Lost
            };
            self.steps.uses.push(status.letter());
            let row = &mut self.row;
            let count = |total: &mut u64, counts: [&mut u64; 4]| {
                *total += 1;
                *counts[status as usize] += 1;
            };
            count(
                &mut row.evidence_total,
                [
                    &mut row.evidence_in_view,
                    &mut row.evidence_in_summary,
                    &mut row.evidence_recoverable,
                    &mut row.evidence_lost,
                ],
            );
            if found.is_far {
                count(
                    &mut row.evidence_far_total,
                    [
                        &mut row.evidence_far_in_view,
                        &mut row.evidence_far_in_summary,
                        &mut row.evidence_far_recoverable,
                        &mut row.evidence_far_lost,
                    ],
                );
            }
        }
    }
}
