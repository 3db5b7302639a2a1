//! What a hundred condensations in a row keep, on the longest recorded sessions.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests fail by panicking, and say what they skip"
)]

use std::path::{Path, PathBuf};

use condenser::condenser::pinned_digest;
use condenser::event::{CondensationRequest, EventKind, Message, Pin, Role, Source, SystemPrompt};
use condenser::request::{Api, validate};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condenser, ContentBlock, Event, EventId, OutcomeKind, Policy, Request, Rules, Sizer, State, Tokens, View,
};
use condenser_policies::{Extractive, Folding, RecentEvents, by_name};

const WINDOW: u64 = 32_000;
const N_TRACES: usize = 4;

/// The recorded sessions with the most events, longest first.
fn longest() -> Option<Vec<(String, Vec<Event>)>> {
    let shared = std::env::var_os("CONDENSER_SHARED")
        .map_or_else(|| Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).to_owned(), PathBuf::from);
    let Ok(candidates) = condenser_traces::find(&shared.join("traces")) else {
        eprintln!("skipped: there are no recorded traces in {}", shared.display());
        return None;
    };
    let mut traces: Vec<(String, Vec<Event>)> = Vec::new();
    for candidate in candidates {
        for trace in condenser_traces::read_path(&candidate.path, None).unwrap_or_default() {
            let is_own = |event: &Event| event.kind.is_shown();
            traces.push((trace.name, trace.events.into_iter().filter(is_own).collect()));
        }
        traces.sort_by_key(|(_, events)| std::cmp::Reverse(events.len()));
        traces.truncate(N_TRACES);
    }
    Some(traces)
}

/// A log that grows by the events of a trace, over and over.
struct Run<'t> {
    trace: &'t [Event],
    next: usize,
    log: Vec<Event>,
    view: View,
}

impl<'t> Run<'t> {
    fn new(trace: &'t [Event]) -> Self {
        let mut run = Self { trace, next: 0, log: Vec::new(), view: View::new(Rules::Sound) };
        let prompt = SystemPrompt { content: vec![ContentBlock::text("You build software.")], ..Default::default() };
        run.push(EventKind::SystemPrompt(prompt));
        run.push(EventKind::Message(Message::text(Role::User, "Never touch the lock file; the key is k-4711.")));
        run.push(EventKind::Pin(Pin { ids: vec![run.log[1].id.clone()] }));
        run
    }

    fn push(&mut self, kind: EventKind) -> EventId {
        let event = Event::new(format!("n{}", self.log.len()), Source::Environment, kind);
        self.view.push(&event);
        self.log.push(event);
        self.log[self.log.len() - 1].id.clone()
    }

    fn grow(&mut self, n: usize) {
        for _ in 0..n {
            let kind = self.trace[self.next % self.trace.len()].kind.clone();
            self.next += 1;
            self.push(kind);
        }
    }

    fn digest(&self) -> Option<String> {
        pinned_digest(&self.view, &self.log)
    }
}

fn check(policy: &dyn Policy, name: &str, trace: &[Event], sizer: &Sizer<'_>) {
    let budget = Budget { window: Some(Tokens(WINDOW)), reserve: Tokens(4000) };
    let limit = budget.limit().unwrap();
    let fallbacks: [&dyn Policy; 2] = [&Folding::default(), &RecentEvents::default()];
    let condenser = Condenser { fallbacks: &fallbacks, ..Condenser::default() };
    let what = format!("{} on {name}", policy.name());
    let mut run = Run::new(trace);
    run.grow(30);
    let pinned = run.digest();
    assert!(pinned.is_some());
    let (mut n_records, mut n_attempts, mut largest) = (0, 0, Tokens::ZERO);
    while n_records < 100 {
        n_attempts += 1;
        assert!(n_attempts < 400, "{what}: {n_records} records");
        run.grow(12);
        run.push(EventKind::CondensationRequest(CondensationRequest::default()));
        let state = State::new(&run.view, &run.log, sizer, budget);
        let outcome = condenser.run(policy, &state, &Extractive::default());
        let before = state.counted();
        drop(state);
        match &outcome.result {
            OutcomeKind::Applied(record) => {
                n_records += 1;
                let provenance = record.provenance.as_deref().unwrap();
                assert_eq!(provenance.pinned_digest, pinned, "{what}");
                assert!(provenance.unseen.is_empty(), "{what}: {:?}", provenance.unseen);
                if let Some(summary) = &record.summary {
                    assert!(sizer.text(summary) <= Tokens(2000), "{what}");
                }
                run.push(EventKind::Condensation((**record).clone()));
                let request = Request::build(&run.view, &run.log);
                let after = request.tokens(sizer);
                assert_eq!(Some(after.0), provenance.tokens_after, "{what}: the figure is of the complete request");
                // A loop in which a call waits for its answer stays for a while, whatever its size.
                let sizes = request.entry_tokens(run.view.len(), sizer);
                let held = run.view.iter().zip(sizes).filter(|(entry, _)| entry.is_protected());
                let held: Tokens = held.map(|(_, tokens)| tokens).sum();
                assert!(after < before && after <= limit + held, "{what}: {before} to {after}, {held} held");
                largest = largest.max(after);
                for api in Api::ALL {
                    assert_eq!(validate(api, &request.render(api)), vec![], "{what}");
                }
            }
            _ => {
                let failed = outcome.refusal();
                failed.into_iter().for_each(|failed| drop(run.push(EventKind::CondensationFailed(failed))));
            }
        }
        assert_eq!(run.digest(), pinned, "{what}: after {n_records} records");
    }
    eprintln!("{what}: 100 records in {n_attempts} attempts, {largest} tokens at most after one");
}

#[test]
fn a_hundred_condensations_keep_the_pinned_block_valid_requests_and_a_bounded_size() {
    let Some(traces) = longest() else { return };
    assert_eq!(traces.len(), N_TRACES);
    for (name, events) in &traces {
        for policy in ["llm-summarizing", "folding", "recent-events"] {
            let sizer = Sizer::new(&CharsPer4);
            check(&*by_name(policy).unwrap_or_else(|error| panic!("{error}")), name, events, &sizer);
        }
    }
}
