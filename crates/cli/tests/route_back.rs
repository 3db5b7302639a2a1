//! The way back from what Deep Agents shows to what left, by way of a log.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeSet;

use condenser::attempts::Rejection;
use condenser::event::{Action, EventKind, Message, Observation, Role, Source, SystemPrompt};
use condenser::recall::Recall;
use condenser::request::text_of;
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condenser, ContentBlock, Event, EventId, OutcomeKind, Sizer, State, SummarizeError, Summarizer, Summary,
    SummaryRequest, Tokens,
};
use condenser_log::{Log, NewSession, RuleSet, SessionId};
use condenser_policies::{find, policies};
use serde_json::{Map, json};

struct Fixed;

impl Summarizer for Fixed {
    fn name(&self) -> &str {
        "fixed"
    }
    fn summarize(&self, _: &SummaryRequest) -> Result<Summary, SummarizeError> {
        Ok(Summary { text: "Files were read and commands run.".to_owned(), ..Summary::default() })
    }
}

fn say(role: Role, text: String) -> EventKind {
    EventKind::Message(Message::text(role, text))
}

/// A call and its result.
fn call(n: usize, tool: &str, result: String) -> [EventKind; 2] {
    let call_id = format!("call-{n}");
    let action =
        Action { call_id: call_id.clone(), tool_name: tool.into(), arguments: "{}".into(), ..Action::default() };
    let content = vec![ContentBlock::text(result)];
    let answer = Observation { call_id, tool_name: tool.into(), content, ..Observation::default() };
    [EventKind::Action(action), EventKind::Observation(answer)]
}

/// Appends events, then lets the policy act until it rests.
fn run(log: &Log, session: &SessionId, kinds: impl IntoIterator<Item = EventKind>, settings: &serde_json::Value) {
    for kind in kinds {
        let id = log.new_event_id().unwrap();
        log.append(session, &[Event::new(id, Source::Agent, kind)]).unwrap();
    }
    let policy = find(&policies(), "deepagents").unwrap().build(settings.as_object().unwrap()).unwrap();
    for _ in 0..4 {
        let events: Vec<Event> = log.events(session).unwrap().map(Result::unwrap).collect();
        let view = log.view(session, None).unwrap();
        let sizer = Sizer::new(&CharsPer4);
        let budget = Budget { window: Some(Tokens(8_000)), reserve: Tokens(500) };
        let state = State::new(&view, &events, &sizer, budget);
        let OutcomeKind::Applied(record) = Condenser::default().run(&*policy, &state, &Fixed).result else { break };
        let head = events.last().map(|event| &event.id);
        log.append_condensation(session, &record, head).unwrap();
    }
}

/// The addresses in what the model is shown.
fn addresses(log: &Log, session: &SessionId) -> BTreeSet<EventId> {
    let events: Vec<Event> = log.events(session).unwrap().map(Result::unwrap).collect();
    let view = log.view(session, None).unwrap();
    let sizer = Sizer::new(&CharsPer4);
    let request = State::new(&view, &events, &sizer, Budget::default()).request().to_openai_chat().to_string();
    let found = request.split("[event ").skip(1).filter_map(|rest| rest.split_once(']'));
    found.map(|(id, _)| EventId::from(id)).collect()
}

#[test]
fn an_address_in_the_view_leads_through_recall_to_the_exact_earlier_bytes() {
    let log = Log::open_in_memory().unwrap();
    let rules = RuleSet { name: "sound".to_owned(), version: 1 };
    let session = log.create_session(NewSession { name: "s".to_owned(), rules, meta: Map::new() }).unwrap();
    let settings = json!({"evict_tokens": 1_500});
    let prompt = SystemPrompt { content: vec![ContentBlock::text("You build software.")], ..SystemPrompt::default() };
    run(
        &log,
        &session,
        [EventKind::SystemPrompt(prompt), say(Role::User, "Fix the köln tests.".to_owned())],
        &settings,
    );

    // A result that is evicted as it returns.
    let long: String = (0..900).map(|n| format!("{n}: naïve text\r\n")).collect();
    run(&log, &session, call(0, "execute", long.clone()), &settings);
    let evicted = addresses(&log, &session);
    assert_eq!(evicted.len(), 1);
    let recall = log.recall(&session);
    assert_eq!(recall.bytes(evicted.first().unwrap(), None).unwrap(), long.as_bytes());
    assert_eq!(recall.bytes(evicted.first().unwrap(), Some(3..15)).unwrap(), &long.as_bytes()[3..15]);

    // Work that is summarized, in several rounds.
    for n in 1..90 {
        run(&log, &session, call(n, "execute", format!("{n} {}", "out ".repeat(300))), &settings);
        run(&log, &session, [say(Role::Assistant, format!("Step {n} is done."))], &settings);
    }
    // And a refusal, after which the results at the end are clipped.
    let calls = call(90, "execute", "x ".repeat(2_000)).into_iter().chain([Rejection::event()]);
    run(&log, &session, calls, &settings);

    let events: Vec<Event> = log.events(&session).unwrap().map(Result::unwrap).collect();
    let n_records = events.iter().filter(|event| matches!(event.kind, EventKind::Condensation(_))).count();
    assert!(n_records > 3, "{n_records} records");
    let view = log.view(&session, None).unwrap();
    let found = addresses(&log, &session);
    assert!(found.len() > 5, "{found:?}");
    for id in &found {
        // None of them is shown as it was.
        let entry = view.position(id).and_then(|at| view.get(at));
        assert!(entry.is_none_or(|entry| entry.rewrite().is_some()), "{id}");
        let event = events.iter().find(|event| event.id == *id).unwrap();
        assert_eq!(recall.bytes(id, None).unwrap(), text_of(&event.kind).as_bytes(), "{id}");
    }
    // The pointer begins with the first message of the session, whichever round forgot it.
    assert!(found.contains(&events[1].id));
}
