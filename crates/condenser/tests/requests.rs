//! Requests: what the validators refuse, and that no history lowers to what they refuse.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod common;

use common::{log, ops};
use condenser::event::{Action, Observation, Outcome, Role};
use condenser::request::{Api, Facts, Incremental, validate};
use condenser::tokens::CharsPer4;
use condenser::{
    Condensation, ContentBlock, Event, EventId, EventKind, Pushed, Request, RewriteOp, Rules, Shown, Sizer, View,
};
use proptest::prelude::*;
use serde_json::{Value, json};

#[test]
fn the_validators_find_what_the_apis_refuse_and_nothing_else() {
    #[derive(serde::Deserialize)]
    struct Case {
        name: String,
        api: String,
        request: Value,
        violations: Vec<(String, String)>,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases/requests.json")).unwrap();
    for case in cases {
        let found: Vec<(String, String)> = validate(case.api.parse().unwrap(), &case.request)
            .into_iter()
            .map(|violation| (violation.place, violation.rule.to_owned()))
            .collect();
        assert_eq!(found, case.violations, "{}: {}", case.api, case.name);
    }
}

#[test]
fn the_validators_survive_any_json() {
    for value in [json!(null), json!([]), json!({"messages": [null, 3, {"role": "user", "content": [null]}]})] {
        for api in Api::ALL {
            assert!(!validate(api, &value).is_empty(), "{api}: {value}");
        }
    }
    let odd = json!({"input": [null, {"type": "message"}, {"type": "reasoning"}], "tools": [null]});
    assert!(!validate(Api::OpenAiResponses, &odd).is_empty());
}

/// Odd content for one event of a log.
#[derive(Clone, Debug)]
enum Dress {
    Plain,
    Content(Vec<Block>),
    Thinking(Vec<Block>),
    Role(u8),
    Tool(u8),
    Arguments(u8),
    Outcome(u8, Vec<Block>),
    Tools(Vec<u8>),
    Gone,
}

#[derive(Clone, Copy, Debug)]
enum Block {
    Blank,
    Spaced,
    Image(u8),
    Signed,
    Unsigned,
    BadlySigned,
    Redacted,
    Other,
}

const IMAGES: [&str; 6] = [
    "https://example.org/a.png",
    "data:image/png;base64,QUJD",
    "data:image/jpg;base64,QUJD",
    "data:image/svg+xml;base64,QUJD",
    "shots/1.png",
    "",
];
const TOOL_NAMES: [&str; 6] =
    ["tool", "a.b", "", "späh", "a_b", "a-name-that-is-longer-than-any-api-takes-it-and-so-has-to-be-cut-off"];
const ARGUMENTS: [&str; 7] = ["", "  ", "{\"a\": ", "[1]", "null", "\"ls -l\"", "{\"a\": {\"b\": 1e999}}"];
const CALL_IDS: [&str; 9] = [
    "a.b",
    "a_b",
    "",
    "call id",
    "call_3",
    "é",
    "functions.shell:0",
    "an-id-that-is-longer-than-forty-characters-1",
    "an-id-that-is-longer-than-sixty-four-characters-and-goes-on-for-a-while-2",
];

fn tool(which: u8) -> Value {
    match which {
        0 => {
            json!({"type": "function", "function": {"name": "ls", "description": "lists", "parameters": {"type": "object"}}})
        }
        1 => json!({"name": "ls", "input_schema": {"anyOf": [{"type": "object"}]}}),
        2 => json!({"title": "a.b", "parameters": {"properties": {}}}),
        3 => json!(null),
        _ => json!({"kind": "a_b", "inputSchema": {"type": "array"}}),
    }
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let block = prop_oneof![
        Just(Block::Blank),
        Just(Block::Spaced),
        (0..IMAGES.len() as u8).prop_map(Block::Image),
        Just(Block::Signed),
        Just(Block::Unsigned),
        Just(Block::BadlySigned),
        Just(Block::Redacted),
        Just(Block::Other),
    ];
    proptest::collection::vec(block, 0..4)
}

fn dress() -> impl Strategy<Value = Dress> {
    prop_oneof![
        4 => Just(Dress::Plain),
        3 => blocks().prop_map(Dress::Content),
        3 => blocks().prop_map(Dress::Thinking),
        2 => (0u8..4).prop_map(Dress::Role),
        1 => (0..TOOL_NAMES.len() as u8).prop_map(Dress::Tool),
        2 => (0..ARGUMENTS.len() as u8).prop_map(Dress::Arguments),
        3 => (0u8..3, blocks()).prop_map(|(outcome, blocks)| Dress::Outcome(outcome, blocks)),
        1 => proptest::collection::vec(0u8..5, 0..4).prop_map(Dress::Tools),
        1 => Just(Dress::Gone),
    ]
}

fn block(block: Block, n: usize) -> ContentBlock {
    match block {
        Block::Blank => ContentBlock::text(" \n"),
        Block::Spaced => ContentBlock::text(format!("text \"{n}\" \n")),
        Block::Image(which) => ContentBlock::Image { urls: vec![IMAGES[which as usize].to_owned()], cache: false },
        Block::Signed => ContentBlock::Thinking { thinking: "hm".into(), signature: Some("signed".into()) },
        Block::Unsigned => ContentBlock::Thinking { thinking: "hm".into(), signature: None },
        Block::BadlySigned => ContentBlock::Thinking { thinking: "hm".into(), signature: Some(String::new()) },
        Block::Redacted => ContentBlock::RedactedThinking { data: "sealed".into() },
        Block::Other => ContentBlock::Other { value: json!({"type": "document", "n": n}) },
    }
}

/// Exchanges the content of a log's events, and its call ids wherever they stand.
fn dressed(mut events: Vec<Event>, dresses: &[Dress], call_ids: &[u8]) -> Vec<Event> {
    let call_id = |id: &str| match id.strip_prefix('c').and_then(|n| n.parse::<usize>().ok()) {
        Some(n) => match call_ids.get(n).map(|which| CALL_IDS.get(*which as usize)) {
            Some(Some(weird)) => (*weird).to_owned(),
            _ => id.to_owned(),
        },
        None => id.to_owned(),
    };
    for (n, (event, dress)) in events.iter_mut().zip(dresses.iter().chain(std::iter::repeat(&Dress::Plain))).enumerate()
    {
        let content = |blocks: &[Block]| blocks.iter().map(|kind| block(*kind, n)).collect::<Vec<_>>();
        match &mut event.kind {
            EventKind::Action(action) => action.call_id = call_id(&action.call_id),
            EventKind::Observation(observation) => observation.call_id = call_id(&observation.call_id),
            EventKind::Condensation(record) if matches!(dress, Dress::Role(0)) => {
                record.summary = record.summary.as_ref().map(|_| " ".to_owned());
            }
            _ => {}
        }
        match (dress, &mut event.kind) {
            (Dress::Content(blocks), EventKind::SystemPrompt(prompt)) => prompt.content = content(blocks),
            (Dress::Content(blocks), EventKind::Message(message)) => message.content = content(blocks),
            (Dress::Content(blocks), EventKind::Observation(observation)) => observation.content = content(blocks),
            (Dress::Content(blocks), EventKind::Action(action)) => action.thought = content(blocks),
            (Dress::Thinking(blocks), EventKind::Action(action)) => action.thinking = content(blocks),
            (Dress::Thinking(blocks), EventKind::Message(message)) => message.extended_content = content(blocks),
            (Dress::Role(which), EventKind::Message(message)) => {
                message.role = [Role::User, Role::Assistant, Role::System, Role::Tool][*which as usize];
            }
            (Dress::Tool(which), EventKind::Action(Action { tool_name, .. })) => {
                *tool_name = TOOL_NAMES[*which as usize].to_owned();
            }
            (Dress::Arguments(which), EventKind::Action(action)) => {
                action.arguments = ARGUMENTS[*which as usize].to_owned();
            }
            (Dress::Outcome(which, blocks), EventKind::Observation(Observation { outcome, content: old, .. })) => {
                *outcome = [Outcome::Ok, Outcome::Error, Outcome::Rejected][*which as usize];
                *old = content(blocks);
            }
            (Dress::Tools(tools), EventKind::SystemPrompt(prompt)) => {
                prompt.tools = tools.iter().map(|which| tool(*which)).collect();
            }
            (Dress::Gone, kind) => *kind = EventKind::CondensationRequest(Default::default()),
            _ => {}
        }
    }
    events
}

fn live(events: &[Event], rules: Rules) -> View {
    let mut view = View::new(rules);
    for event in events {
        if view.push(event) == Pushed::ReplayNeeded {
            return View::replay(events, rules);
        }
    }
    view
}

/// The text blocks of all shown entries that a request has to hold.
fn texts(view: &View, events: &[Event]) -> Vec<String> {
    let mut answered: Vec<usize> = Vec::new();
    let request = Request::build(view, events);
    for turn in &request.turns {
        answered.extend(turn.parts.iter().filter_map(|part| part.entry));
    }
    let mut texts = Vec::new();
    for entry in view.iter() {
        let blocks: Vec<ContentBlock> = match Shown::of(entry, events).unwrap() {
            Shown::Summary(text) => vec![ContentBlock::text(text)],
            Shown::Event(kind) => match kind.into_owned() {
                EventKind::SystemPrompt(prompt) => [prompt.content, prompt.dynamic_context].concat(),
                EventKind::Message(message) if message.role == Role::Tool => continue,
                EventKind::Message(message) => [message.content, message.extended_content].concat(),
                EventKind::Action(action) => [action.thought, action.thinking].concat(),
                // An orphan, or one of several answers to one call.
                EventKind::Observation(_) if !answered.contains(&entry.index()) => continue,
                EventKind::Observation(observation) => [observation.content, observation.extended_content].concat(),
                _ => continue,
            },
        };
        texts.extend(blocks.into_iter().filter_map(|block| match block {
            ContentBlock::Text { text, .. } => Some(text),
            ContentBlock::Other { value } => Some(value.to_string()),
            _ => None,
        }));
    }
    texts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_lowers_to_valid_requests_that_hold_all_its_text(
        ops in ops(60),
        dresses in proptest::collection::vec(dress(), 0..60),
        call_ids in proptest::collection::vec(0u8..20, 8),
    ) {
        let events = dressed(log(&ops), &dresses, &call_ids);
        for rules in [Rules::Sound, Rules::OpenHands] {
            for view in [live(&events, rules), View::replay(&events, rules)] {
                let request = Request::build(&view, &events);
                let texts = texts(&view, &events);
                for api in Api::ALL {
                    let json = request.render(api);
                    prop_assert_eq!(validate(api, &json), vec![], "{}: {}", api, json);
                    let written = json.to_string();
                    for text in &texts {
                        let text = json!(text.trim_end()).to_string();
                        prop_assert!(written.contains(text.trim_matches('"')), "{}: {} is not in {}", api, text, written);
                    }
                }
            }
        }
    }

    #[test]
    fn a_request_lowered_step_by_step_is_the_whole_one(
        ops in ops(80),
        dresses in proptest::collection::vec(dress(), 0..80),
        call_ids in proptest::collection::vec(0u8..20, 8),
        previews in proptest::collection::vec((0usize..80, proptest::collection::btree_set(0usize..80, 1..6)), 0..6),
    ) {
        let events = dressed(log(&ops), &dresses, &call_ids);
        for rules in [Rules::Sound, Rules::OpenHands] {
            let sizer = Sizer::new(&CharsPer4);
            let mut lowering = Incremental::default();
            let mut kept: Vec<String> = Vec::new();
            let mut check = |view: &View| {
                let tail = lowering.next(view, &events);
                prop_assert!(tail.n_turns <= kept.len());
                kept.truncate(tail.n_turns);
                kept.extend(tail.request.turns.iter().map(|turn| format!("{turn:?}")));
                let whole = Request::build(view, &events);
                let turns: Vec<String> = whole.turns.iter().map(|turn| format!("{turn:?}")).collect();
                prop_assert_eq!(&kept, &turns);
                prop_assert_eq!(tail.request.tools, whole.tools);
                let sizes = (whole.tokens(&sizer), whole.entry_tokens(view.len(), &sizer));
                prop_assert_eq!(sizer.sizes(view, &events), sizes);
                Ok(())
            };
            for end in 0..=events.len() {
                let view = live(&events[..end], rules);
                check(&view)?;
                for (_, forget) in previews.iter().filter(|(at, _)| *at == end) {
                    let ids: Vec<&EventId> = view.ids().collect();
                    let named: Vec<EventId> = forget.iter().filter_map(|&at| ids.get(at).map(|id| (*id).clone())).collect();
                    let (masked, gone) = named.split_at(named.len() / 2);
                    let clear = |id: &EventId| (id.clone(), RewriteOp::Clear { text: "left out".to_owned() }.into());
                    check(&view.preview(&EventId::new("preview"), &Condensation {
                        forgotten_event_ids: gone.iter().cloned().collect(),
                        rewrites: masked.iter().map(clear).collect(),
                        summary: Some("what came before".to_owned()),
                        summary_offset: Some(1),
                        ..Condensation::default()
                    }))?;
                }
            }
        }
    }

    #[test]
    fn more_events_leave_the_beginning_of_a_request_as_it_was(
        ops in ops(40),
        dresses in proptest::collection::vec(dress(), 0..40),
        call_ids in proptest::collection::vec(0u8..20, 8),
    ) {
        let events = dressed(log(&ops), &dresses, &call_ids);
        // What a prefix cache sees between two steps of a run that condenses nothing.
        let quiet: Vec<Event> = events
            .into_iter()
            .filter(|event| matches!(event.kind.name(), "message" | "action" | "observation"))
            .filter(|event| !matches!(&event.kind, EventKind::Message(message) if message.role == Role::System))
            .collect();
        let last_user = quiet.iter().rposition(
            |event| matches!(&event.kind, EventKind::Message(message) if message.role == Role::User),
        );
        let Some(cut) = last_user else { return Ok(()) };
        let view = View::replay(&quiet[..cut], Rules::Sound);
        let replaced = View::replay(&quiet, Rules::Sound).diagnostics().replaced_answers > 0;
        if view.iter().any(|entry| entry.is_open()) || view.is_empty() || replaced {
            return Ok(());
        }
        for (api, list) in [(Api::OpenAiChat, "messages"), (Api::OpenAiResponses, "input"), (Api::Anthropic, "messages")] {
            let render = |events: &[Event]| {
                let view = View::replay(events, Rules::Sound);
                let json = Request::build(&view, events).render_counted(api);
                (json.0[list].as_array().unwrap().clone(), json.1)
            };
            let (before, facts) = render(&quiet[..cut]);
            let (after, _) = render(&quiet);
            if facts.added_user_messages + facts.trimmed_texts > 0 {
                continue;
            }
            // The newest message may still grow.
            let kept = before.len() - 1;
            prop_assert_eq!(&before[..kept], &after[..kept], "{}", api);
        }
    }
}

/// A log of one user message, one call and its result, for an oddity of content.
fn one_call(action: Action, observation: Observation) -> Vec<Event> {
    use condenser::event::{Message, Source};
    vec![
        Event::new("u", Source::User, EventKind::Message(Message::text(Role::User, "go"))),
        Event::new("a", Source::Agent, EventKind::Action(action)),
        Event::new("o", Source::Environment, EventKind::Observation(observation)),
    ]
}

fn check(events: &[Event], api: Api, pointer: &str, expected: Value, facts: Facts) {
    let view = View::replay(events, Rules::Sound);
    let (json, counted) = Request::build(&view, events).render_counted(api);
    assert_eq!(json.pointer(pointer), Some(&expected), "{json}");
    assert_eq!(counted, facts);
    assert_eq!(validate(api, &json), vec![]);
}

fn action(arguments: &str, thinking: Vec<ContentBlock>) -> Action {
    Action {
        call_id: "c".into(),
        tool_name: "ls".into(),
        arguments: arguments.into(),
        thought: vec![ContentBlock::text("look")],
        thinking,
        ..Action::default()
    }
}

fn observation(content: Vec<ContentBlock>, outcome: Outcome) -> Observation {
    Observation { call_id: "c".into(), content, outcome, ..Observation::default() }
}

#[test]
fn thinking_goes_to_anthropic_where_it_is_signed_and_nowhere_else() {
    let thinking = vec![
        ContentBlock::Thinking { thinking: "a".into(), signature: None },
        ContentBlock::Thinking { thinking: "b".into(), signature: Some("s".into()) },
        ContentBlock::RedactedThinking { data: "d".into() },
    ];
    let events = one_call(action("{}", thinking), observation(vec![ContentBlock::text("x")], Outcome::Ok));
    check(
        &events,
        Api::Anthropic,
        "/messages/1/content",
        json!([
            {"type": "thinking", "thinking": "b", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "text", "text": "look"},
            {"type": "tool_use", "id": "c", "name": "ls", "input": {}},
        ]),
        Facts { left_out_thinking: 1, ..Facts::default() },
    );
    let facts = Facts { left_out_thinking: 3, ..Facts::default() };
    let assistant = json!({"type": "message", "role": "assistant", "content": "look"});
    check(&events, Api::OpenAiResponses, "/input/1", assistant, facts);
    check(&events, Api::OpenAiChat, "/messages/1/content", json!("look"), facts);
}

#[test]
fn failures_are_flagged_for_anthropic_where_their_content_allows_it() {
    let result = |content, outcome| one_call(action("{}", vec![]), observation(content, outcome));
    let image = || ContentBlock::Image { urls: vec!["https://example.org/a".into()], cache: false };
    let sent_image = json!({"type": "image", "source": {"type": "url", "url": "https://example.org/a"}});
    let cases = [
        (vec![ContentBlock::text("x")], Outcome::Error, json!([{"type": "text", "text": "x"}]), json!(true)),
        (
            vec![],
            Outcome::Error,
            json!([{"type": "text", "text": "[An error occurred during execution.]\n"}]),
            json!(true),
        ),
        (
            vec![ContentBlock::text("no")],
            Outcome::Rejected,
            json!([{"type": "text", "text": "Action rejected: no"}]),
            json!(true),
        ),
        (
            vec![image()],
            Outcome::Error,
            json!([{"type": "text", "text": "[An error occurred during execution.]\n"}, sent_image]),
            json!(null),
        ),
        (vec![], Outcome::Ok, json!(null), json!(null)),
    ];
    for (content, outcome, expected, flag) in cases {
        let events = result(content, outcome);
        let view = View::replay(&events, Rules::Sound);
        let json = Request::build(&view, &events).to_anthropic();
        let block = &json["messages"][2]["content"][0];
        assert_eq!((&block["content"], &block["is_error"]), (&expected, &flag));
        assert_eq!(validate(Api::Anthropic, &json), vec![]);
    }
}

#[test]
fn arguments_that_are_no_object_reach_anthropic_as_text() {
    let events = one_call(action("{\"a\": ", vec![]), observation(vec![], Outcome::Ok));
    check(
        &events,
        Api::Anthropic,
        "/messages/1/content/1/input",
        json!({"raw_arguments": "{\"a\": "}),
        Facts { wrapped_arguments: 1, ..Facts::default() },
    );
    check(&events, Api::OpenAiChat, "/messages/1/tool_calls/0/function/arguments", json!("{\"a\": "), Facts::default());
}

#[test]
fn a_system_message_in_the_middle_keeps_its_place() {
    use condenser::event::{Message, Source};
    let message = |id: &str, role| Event::new(id, Source::User, EventKind::Message(Message::text(role, id)));
    let events = [
        message("s", Role::System),
        message("u", Role::User),
        message("a", Role::Assistant),
        message("m", Role::System),
        message("v", Role::User),
    ];
    let text = |text: &str| json!({"type": "text", "text": text});
    let facts = Facts { system_as_user: 1, ..Facts::default() };
    check(&events, Api::Anthropic, "/messages/2/content", json!([text("[System message]\nm"), text("v")]), facts);
    check(&events, Api::Anthropic, "/system", json!([text("s")]), facts);
    check(&events, Api::OpenAiResponses, "/instructions", json!("s"), Facts::default());
    let item = json!({"type": "message", "role": "system", "content": "m"});
    check(&events, Api::OpenAiResponses, "/input/2", item, Facts::default());
}
