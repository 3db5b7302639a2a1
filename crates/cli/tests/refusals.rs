//! A provider that refuses every request, and a summarizer model that refuses too.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use condenser::attempts::MAX_OVERFLOWS;
use condenser::event::{Action, EventKind, Message, Observation, Role, Source};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condenser, ContentBlock, Event, EventId, OutcomeKind, Rejection, Rules, Sizer, State, SummarizeError,
    Summarizer, Summary, SummaryRequest, Tokens,
};
use condenser_log::{Log, NewSession, Options, RuleSet, SessionId};
use condenser_policies::by_name;

/// The least that the provider says it takes: less than the task alone.
const LIMIT: Tokens = Tokens(40);

#[derive(Default)]
struct Refuses(AtomicUsize);

impl Summarizer for Refuses {
    fn name(&self) -> &str {
        "refuses"
    }

    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(SummarizeError::Failed("the prompt is too long".to_owned()))
    }
}

fn open(path: &Path) -> Log {
    Log::open(path, Options::default()).unwrap()
}

fn events() -> Vec<Event> {
    let task = EventKind::Message(Message::text(Role::User, "Find the exact key and never print it. ".repeat(10)));
    let mut events = vec![Event::new("task", Source::User, task)];
    for n in 0..30 {
        let call_id = format!("call {n}");
        let action = Action {
            call_id: call_id.clone(),
            tool_name: "shell".to_owned(),
            arguments: "{}".to_owned(),
            ..Action::default()
        };
        events.push(Event::new(format!("a{n}"), Source::Agent, EventKind::Action(action)));
        let content = vec![ContentBlock::text(format!("line {n} ").repeat(40))];
        let answer = Observation { call_id, content, ..Observation::default() };
        events.push(Event::new(format!("o{n}"), Source::Environment, EventKind::Observation(answer)));
    }
    events
}

/// One refused request: the refusal is logged, answered, and what came of it is logged too.
fn refuse(log: &Log, session: &SessionId, policy: &str, summarizer: &Refuses, n: usize) -> OutcomeKind {
    let append = |id: String, kind| log.append(session, &[Event::new(id, Source::Environment, kind)]).unwrap();
    append(format!("refusal {n}"), Rejection::event());
    let events: Vec<Event> = log.events(session).unwrap().map(Result::unwrap).collect();
    let view = log.view(session, None).unwrap();
    let sizer = Sizer::new(&CharsPer4);
    let state = State::new(&view, &events, &sizer, Budget { window: Some(Tokens(4_000)), reserve: Tokens(500) });
    let policy = by_name(policy).unwrap();
    let state = state.rejected(Rejection { limit: Some(LIMIT) });
    let outcome = Condenser::default().run(&*policy, &state, summarizer);
    match (&outcome.result, outcome.refusal()) {
        (OutcomeKind::Applied(record), _) => {
            log.append_condensation(session, record, Some(&EventId::new(format!("refusal {n}")))).unwrap();
        }
        (_, Some(failed)) => {
            append(format!("failed {n}"), EventKind::CondensationFailed(failed));
        }
        _ => {}
    }
    outcome.result
}

/// What ten refusals in a row come to, and how often the summarizer was asked.
fn ten(policy: &str, is_reopened: bool) -> (Vec<OutcomeKind>, usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let mut log = open(&path);
    let rules = RuleSet::of(Rules::Sound);
    let session = log.create_session(NewSession { name: "s".to_owned(), rules, meta: Default::default() }).unwrap();
    log.append(&session, &events()).unwrap();
    let summarizer = Refuses::default();
    let mut results = Vec::new();
    for n in 0..10 {
        if is_reopened {
            drop(log);
            log = open(&path);
        }
        results.push(refuse(&log, &session, policy, &summarizer, n));
    }
    assert_eq!(log.verify(&session).unwrap().problems, []);
    (results, summarizer.0.load(Ordering::Relaxed))
}

#[test]
fn where_everybody_refuses_a_few_tries_end_in_sizes_also_after_the_log_was_closed() {
    for policy in ["llm-summarizing", "folding", "observation-masking", "recent-events", "pi", "openhands"] {
        let (results, n_asked) = ten(policy, false);
        let (reopened, n_asked_again) = ten(policy, true);
        assert_eq!(n_asked, n_asked_again, "{policy}");
        assert!(n_asked <= 8 * MAX_OVERFLOWS as usize, "{policy}: the summarizer was asked {n_asked} times");
        for (n, (result, again)) in results.iter().zip(&reopened).enumerate() {
            match (result, again) {
                (OutcomeKind::Applied(one), OutcomeKind::Applied(two)) => {
                    assert!(n < MAX_OVERFLOWS as usize, "{policy}");
                    assert_eq!(one.forgotten_event_ids.len(), two.forgotten_event_ids.len(), "{policy}");
                }
                (one, two) => assert_eq!(one, two, "{policy}"),
            }
        }
        let OutcomeKind::Unachievable { tokens, limit } = &results[9] else { panic!("{policy}: {results:?}") };
        assert!(*limit == LIMIT && tokens > limit, "{policy}: {tokens} of {limit}");
        assert!(results[MAX_OVERFLOWS as usize..].iter().all(|result| result == &results[9]), "{policy}");
    }
}
