//! What the condenser promises, attacked by policies and summarizers that promise nothing.
#![expect(clippy::panic, reason = "helpers of tests fail by panicking")]

use condenser::condenser::OutcomeFacts;
use condenser::event::{Action, Message, Observation, Pin, Role, Source, SystemPrompt};
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condensation, Condenser, ContentBlock, Edit, Event, EventId, EventKind, Failure, Frame, NoPlan, Outcome,
    OutcomeKind, Plan, Policy, Reason, Requirement, RewriteOp, Rules, Sizer, State, Step, SummarizeError, Summarizer,
    Summary, SummaryRequest, Tokens, View,
};

/// A policy that answers with one fixed plan.
struct Fixed {
    plan: Plan,
    port: bool,
    hard: bool,
}

impl Policy for Fixed {
    fn name(&self) -> &str {
        "fixed"
    }
    fn requirement(&self, _: &State<'_>) -> Requirement {
        if self.hard { Requirement::Hard(vec![Reason::Policy]) } else { Requirement::Soft(vec![Reason::Policy]) }
    }
    fn plan(&self, _: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if tried.len() < 2 { Ok(self.plan.clone()) } else { Err(NoPlan::Exhausted) }
    }
    fn is_port(&self) -> bool {
        self.port
    }
}

struct Answers(Result<Summary, SummarizeError>);

impl Summarizer for Answers {
    fn name(&self) -> &str {
        "scripted"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        self.0.clone()
    }
}

fn event(id: &str, kind: EventKind) -> Event {
    Event::new(id, Source::Agent, kind)
}

fn call(id: &str, call_id: &str, response: &str) -> Event {
    event(
        id,
        EventKind::Action(Action {
            call_id: call_id.into(),
            tool_name: "shell".into(),
            arguments: r#"{"command": "cargo test --workspace"}"#.into(),
            response_id: Some(response.into()),
            ..Action::default()
        }),
    )
}

fn result(id: &str, call_id: &str) -> Event {
    event(
        id,
        EventKind::Observation(Observation {
            call_id: call_id.into(),
            tool_name: "shell".into(),
            content: vec![ContentBlock::text("running 40 tests\n".repeat(20))],
            ..Observation::default()
        }),
    )
}

/// system, user, a batch of two calls, a pinned message, a call and its result, an open call, a message.
fn log() -> Vec<Event> {
    let prompt = SystemPrompt { content: vec![ContentBlock::text("You build software.")], ..SystemPrompt::default() };
    vec![
        event("system", EventKind::SystemPrompt(prompt)),
        event("user", EventKind::Message(Message::text(Role::User, "Make the tests pass."))),
        call("a1", "c1", "r1"),
        call("a2", "c2", "r1"),
        result("o1", "c1"),
        result("o2", "c2"),
        event("rule", EventKind::Message(Message::text(Role::User, "Never touch the lock file, whatever happens."))),
        event("pin", EventKind::Pin(Pin { ids: vec!["rule".into()] })),
        call("a3", "c3", "r2"),
        result("o3", "c3"),
        call("open", "c4", "r3"),
        event("chat", EventKind::Message(Message::text(Role::User, "How far are you? ".repeat(20)))),
    ]
}

fn forget(ids: &[&str]) -> Edit {
    Edit { forget: ids.iter().copied().map(EventId::from).collect(), ..Edit::default() }
}

fn rewrite(id: &str, op: RewriteOp) -> Edit {
    Edit { rewrites: [(EventId::from(id), op.into())].into(), ..Edit::default() }
}

fn run(policy: &Fixed, answer: Result<Summary, SummarizeError>, window: Option<u64>) -> Outcome {
    let events = log();
    let view = View::replay(&events, Rules::Sound);
    let sizer = Sizer::new(&CharsPer4);
    let budget = Budget { window: window.map(Tokens), reserve: Tokens::ZERO };
    let state = State::new(&view, &events, &sizer, budget);
    Condenser::default().run(policy, &state, &Answers(answer))
}

fn edit(plan: Edit) -> Outcome {
    run(&Fixed { plan: Plan::Edit(plan), port: false, hard: false }, Err(SummarizeError::Empty), None)
}

fn ported(plan: Edit) -> (Box<Condensation>, OutcomeFacts) {
    let outcome = run(&Fixed { plan: Plan::Edit(plan), port: true, hard: false }, Err(SummarizeError::Empty), None);
    match outcome.result {
        OutcomeKind::Applied(record) => (record, outcome.facts),
        other => panic!("{other:?} {:?}", outcome.facts),
    }
}

#[track_caller]
fn check_refused(plan: Edit, expected: &Failure) {
    let outcome = edit(plan);
    assert_eq!(outcome.facts.tried, [expected.clone(), expected.clone()]);
    assert_eq!(outcome.facts.no_plan, Some(NoPlan::Exhausted));
    assert!(matches!(outcome.result, OutcomeKind::Failed), "{:?}", outcome.result);
}

#[test]
fn an_edit_that_tears_a_batch_is_refused_and_names_what_it_would_tear() {
    check_refused(forget(&["a1"]), &Failure::Illegal(vec!["a2".into(), "o1".into(), "o2".into()]));
    check_refused(forget(&["a1", "o1"]), &Failure::Illegal(vec!["a2".into(), "o2".into()]));
    check_refused(forget(&["o3"]), &Failure::Illegal(vec!["a3".into()]));
}

#[test]
fn an_edit_that_forgets_an_open_call_is_refused() {
    check_refused(forget(&["open"]), &Failure::Illegal(vec!["open".into()]));
}

#[test]
fn an_edit_of_ids_that_the_view_does_not_hold_is_refused() {
    check_refused(forget(&["a3", "o3", "nobody"]), &Failure::Illegal(vec!["nobody".into()]));
}

#[test]
fn a_pinned_entry_is_neither_forgotten_nor_rewritten() {
    let pinned = Failure::Pinned(vec!["rule".into()]);
    check_refused(forget(&["rule"]), &pinned);
    check_refused(rewrite("rule", RewriteOp::Clear { text: String::new() }), &pinned);
}

#[test]
fn an_edit_that_makes_the_request_no_smaller_is_no_gain() {
    let larger = edit(rewrite("o3", RewriteOp::Note { text: "by the way".into() }));
    assert!(matches!(larger.result, OutcomeKind::NoGain), "{larger:?}");
    let same = edit(Edit::default());
    assert!(matches!(same.result, OutcomeKind::NoGain), "{same:?}");
    let long_summary = Edit { summary: Some(("so it goes ".repeat(500), 1)), ..forget(&["a3", "o3"]) };
    assert!(matches!(edit(long_summary).result, OutcomeKind::NoGain));
}

#[test]
fn a_record_lists_exactly_what_is_dealt_with_and_says_how_it_came_to_be() {
    let mut plan = forget(&["a3", "o3"]);
    plan.rewrites = [
        (EventId::from("o1"), RewriteOp::Clear { text: "cleared".into() }.into()),
        (EventId::from("o3"), RewriteOp::Clear { text: "cleared".into() }.into()),
    ]
    .into();
    let OutcomeKind::Applied(record) = edit(plan).result else { panic!() };
    assert_eq!(record.forgotten_event_ids, ["a3".into(), "o3".into()].into());
    assert_eq!(record.rewrites.keys().map(|id| id.as_str()).collect::<Vec<_>>(), ["o1"], "forgetting beats rewriting");
    assert_eq!(record.rewrites["o1"].tokens, Some(2));
    let provenance = record.provenance.unwrap();
    assert_eq!(provenance.policy, "fixed");
    assert_eq!(provenance.reasons, ["policy"]);
    assert_eq!(provenance.basis, Some("chat".into()));
    assert!(provenance.tokens_after < provenance.tokens_before);
}

#[test]
fn an_edit_of_a_port_is_extended_to_a_legal_one_and_counted() {
    let (record, facts) = ported(forget(&["o3"]));
    assert_eq!(record.forgotten_event_ids, ["a3".into(), "o3".into()].into());
    assert_eq!(facts.extended, 1);
    let (record, facts) = ported(forget(&["rule", "open", "nobody", "chat"]));
    assert_eq!(record.forgotten_event_ids, ["chat".into()].into());
    assert_eq!(facts.extended, 0);
}

fn summarize() -> Plan {
    Plan::Summarize { edit: forget(&["a3", "o3"]), offset: 6, request: SummaryRequest::default() }
}

#[track_caller]
fn check_summarizer(answer: Result<Summary, SummarizeError>, expected: &SummarizeError) {
    let outcome = run(&Fixed { plan: summarize(), port: false, hard: false }, answer, None);
    let failure = Failure::Summarizer(expected.clone());
    assert_eq!(outcome.facts.tried, [failure.clone(), failure]);
    assert_eq!(outcome.facts.summarizer_calls, 2);
    assert!(matches!(outcome.result, OutcomeKind::Failed));
}

#[test]
fn a_summary_that_is_none_is_a_failed_call() {
    let text = |text: &str| Summary { text: text.into(), ..Summary::default() };
    check_summarizer(Ok(text("")), &SummarizeError::Empty);
    check_summarizer(Ok(text(" \n\t ")), &SummarizeError::Empty);
    check_summarizer(Ok(Summary { cut_by_length: true, ..text("The tests") }), &SummarizeError::CutByLength);
    let failed = SummarizeError::Failed("overloaded".into());
    check_summarizer(Err(failed.clone()), &failed);
}

#[test]
fn a_good_summary_is_recorded_with_what_it_cost() {
    let answer = Summary {
        text: "All tests ran.".into(),
        response_id: Some("resp".into()),
        input_tokens: Tokens(200),
        output_tokens: Tokens(5),
        ..Summary::default()
    };
    let outcome = run(&Fixed { plan: summarize(), port: false, hard: false }, Ok(answer), None);
    let OutcomeKind::Applied(record) = outcome.result else { panic!() };
    assert_eq!(record.shown_summary(), Some(("All tests ran.", 6)));
    assert_eq!(record.llm_response_id.as_deref(), Some("resp"));
    let provenance = record.provenance.unwrap();
    assert_eq!((provenance.summarizer_input_tokens, provenance.summarizer_output_tokens), (200, 5));
    assert_eq!(provenance.summarizer.as_deref(), Some("scripted"));
}

#[test]
fn a_summary_of_several_answers_is_put_together_and_fails_as_a_whole() {
    let framed = |before: &str, after: &str, next| {
        let frame = Frame { before: before.into(), after: after.into(), next };
        SummaryRequest { frame: Some(Box::new(frame)), ..SummaryRequest::default() }
    };
    let request = framed("First ", "", Some(framed("; then ", ".", None)));
    let plan = Plan::Summarize { edit: forget(&["a3", "o3"]), offset: 6, request };
    let policy = Fixed { plan, port: false, hard: false };
    let answer = Summary { text: "tests".into(), output_tokens: Tokens(5), ..Summary::default() };
    let outcome = run(&policy, Ok(answer), None);
    let OutcomeKind::Applied(record) = outcome.result else { panic!() };
    assert_eq!(record.shown_summary(), Some(("First tests; then tests.", 6)));
    assert_eq!((outcome.facts.summarizer_calls, outcome.facts.summarizer_output_tokens), (2, Tokens(10)));

    let events = log();
    let view = View::replay(&events, Rules::Sound);
    let sizer = Sizer::new(&CharsPer4);
    let state = State::new(&view, &events, &sizer, Budget::default());
    let condenser = Condenser::default();
    let Step::NeedSummary(first) = condenser.begin(&policy, &state) else { panic!() };
    let answer = Summary { text: "tests".into(), ..Summary::default() };
    let Step::NeedSummary(second) = first.answer(Ok(answer)) else { panic!() };
    let before = |request: &SummaryRequest| request.frame.as_ref().map(|frame| frame.before.clone());
    assert_eq!(before(second.request()).as_deref(), Some("; then "));
    let Step::NeedSummary(again) = second.answer(Err(SummarizeError::Empty)) else { panic!() };
    assert_eq!(before(again.request()).as_deref(), Some("First "), "the policy is asked again from the beginning");
}

#[test]
fn a_request_over_its_limit_that_nothing_makes_smaller_is_unachievable_with_sizes() {
    let outcome = run(
        &Fixed { plan: Plan::Edit(Edit::default()), port: false, hard: true },
        Err(SummarizeError::Empty),
        Some(100),
    );
    let OutcomeKind::Unachievable { tokens, limit } = outcome.result else { panic!("{outcome:?}") };
    assert_eq!(limit, Tokens(100));
    assert!(tokens > limit);
}

#[test]
fn a_policy_that_never_gives_up_is_stopped() {
    struct Stubborn;
    impl Policy for Stubborn {
        fn name(&self) -> &str {
            "stubborn"
        }
        fn requirement(&self, _: &State<'_>) -> Requirement {
            Requirement::Hard(vec![Reason::Tokens])
        }
        fn plan(&self, _: &State<'_>, _: &[Failure]) -> Result<Plan, NoPlan> {
            Ok(Plan::Edit(forget(&["open"])))
        }
    }
    let events = log();
    let view = View::replay(&events, Rules::Sound);
    let sizer = Sizer::new(&CharsPer4);
    let state = State::new(&view, &events, &sizer, Budget::default());
    let outcome = Condenser::default().run(&Stubborn, &state, &Answers(Err(SummarizeError::Empty)));
    assert!(matches!(outcome.result, OutcomeKind::Failed));
    assert_eq!(outcome.facts.tried.len(), 8);
}
