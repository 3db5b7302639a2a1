//! Snapshot rendering and differences of views.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{log, ops};
use condenser::event::{Action, Message, Observation, Outcome, Role, Source, SystemPrompt};
use condenser::render::{Mode, Rendering, UnknownVersion};
use condenser::tokens::CharsPer4;
use condenser::{
    Condensation, ContentBlock, Event, EventId, EventKind, Request, RewriteOp, Rules, Sizer, View, ViewDiff,
};
use proptest::prelude::*;
use serde_json::json;

/// A short run on a machine, and a condensation of it.
fn run(user: &str, year: u32, id: &str) -> Vec<Event> {
    let event = |n: u32, kind| Event::new(format!("{id}-{n}"), Source::Agent, kind);
    let text = |text: String| vec![ContentBlock::text(text)];
    let call = |n: u32, arguments: &str| {
        EventKind::Action(Action {
            call_id: format!("call_{id}_{n}"),
            tool_name: "shell".into(),
            arguments: arguments.into(),
            thought: text("I will look.".into()),
            thinking: vec![ContentBlock::Thinking { thinking: "hm".into(), signature: Some("s".into()) }],
            response_id: Some(format!("resp_{n}")),
            ..Action::default()
        })
    };
    let result = |n: u32, outcome, content| {
        EventKind::Observation(Observation {
            call_id: format!("call_{id}_{n}"),
            content,
            outcome,
            ..Observation::default()
        })
    };
    let image = ContentBlock::Image { urls: vec!["data:image/png;base64,QUJD".into()], cache: false };
    vec![
        event(
            0,
            EventKind::SystemPrompt(SystemPrompt {
                content: text(format!("You work in /home/{user}/repo.")),
                tools: vec![json!({"name": "shell"})],
                ..SystemPrompt::default()
            }),
        ),
        event(1, EventKind::Message(Message::text(Role::User, format!("Fix it by {year}-02-03.\r\nThanks ")))),
        event(2, call(1, "{\"command\": \"ls\"}")),
        event(3, result(1, Outcome::Ok, text(format!("\u{1b}[1mREADME\u{1b}[0m {year}-01-02T03:04:05Z\n")))),
        event(4, call(2, "{}")),
        event(5, result(2, Outcome::Error, vec![image])),
        event(
            6,
            EventKind::Condensation(Condensation {
                forgotten_event_ids: BTreeSet::from([EventId::new(format!("{id}-4")), EventId::new(format!("{id}-5"))]),
                summary: Some(format!("One call failed, see [event {id}-5].")),
                summary_offset: Some(2),
                rewrites: BTreeMap::from([(
                    EventId::new(format!("{id}-3")),
                    RewriteOp::Clear { text: "[cleared]".into() }.into(),
                )]),
                ..Condensation::default()
            }),
        ),
    ]
}

fn views(events: &[Event]) -> (View, View) {
    (View::replay(&events[..events.len() - 1], Rules::Sound), View::replay(events, Rules::Sound))
}

#[test]
fn a_view_is_rendered_in_full() {
    let events = run("ada", 2026, "01J8Z3ABCD");
    insta::assert_snapshot!(Rendering::new(Mode::Full).view(&views(&events).0, &events), @r#"
    condenser view v1 full
    [0] system_prompt e1 tools 1
      text
      | You work in ~/repo.
      tool
      | {"name":"shell"}
    [1] user e2
      text
      | Fix it by <time>.
      | Thanks\u{20}
    [2] action e3 call c1 shell response r1
      thinking, signed
      | hm
      thought
      | I will look.
      arguments
      | {"command": "ls"}
    [3] observation e4 of c1 ok
      text
      | \u{1b}[1mREADME\u{1b}[0m <time>
      |
    [4] action e5 call c2 shell response r2
      thinking, signed
      | hm
      thought
      | I will look.
      arguments
      | {}
    [5] observation e6 of c2 error
      image data:image/png, 4 characters
    "#);
}

#[test]
fn less_of_a_view_is_rendered_on_request() {
    let events = run("ada", 2026, "01J8Z3ABCD");
    insta::assert_snapshot!(Rendering::new(Mode::Redacted).view(&views(&events).1, &events), @r#"
    condenser view v1 redacted
    [0] system_prompt e1 tools 1
      text: 19 characters
      tool: 16 characters
    [1] user e2
      text: 25 characters
    [2] summary e3
      text: 32 characters
    [3] action e4 call c1 shell response r1
      thinking, signed: 2 characters
      thought: 12 characters
      arguments: 17 characters
    [4] observation e5 of c1 ok rewritten
      text: 9 characters
    "#);
    insta::assert_snapshot!(Rendering::new(Mode::Prefix(8)).view(&views(&events).1, &events), @r#"
    condenser view v1 prefix 8
    [0] system_prompt e1 tools 1
      text
      | You work
      … 11 more characters
      tool
      | {"name":
      … 8 more characters
    [1] user e2
      text
      | Fix it b
      … 17 more characters
    [2] summary e3
      text
      | One call
      … 24 more characters
    [3] action e4 call c1 shell response r1
      thinking, signed
      | hm
      thought
      | I will l
      … 4 more characters
      arguments
      | {"comman
      … 9 more characters
    [4] observation e5 of c1 ok rewritten
      text
      | [cleared
      … 1 more characters
    "#);
}

#[test]
fn a_condensation_is_rendered_as_a_labelled_pair() {
    let events = run("ada", 2026, "01J8Z3ABCD");
    let (before, after) = views(&events);
    insta::assert_snapshot!(Rendering::new(Mode::Kinds).change(&before, &after, &events), @r#"
    condenser change v1 kinds
    == before
    [0] system_prompt e1 tools 1
    [1] user e2
    [2] action e3 call c1 shell response r1
    [3] observation e4 of c1 ok
    [4] action e5 call c2 shell response r2
    [5] observation e6 of c2 error
    == after
    [0] system_prompt e1 tools 1
    [1] user e2
    [2] summary e7
    [3] action e3 call c1 shell response r1
    [4] observation e4 of c1 ok rewritten
    "#);
}

#[test]
fn a_request_is_rendered_with_sizes_where_they_are_asked_for() {
    let events = run("ada", 2026, "01J8Z3ABCD");
    let view = View::replay(&events[..5], Rules::Sound);
    let request = Request::build(&view, &events);
    let sizer = Sizer::new(&CharsPer4);
    insta::assert_snapshot!(Rendering::new(Mode::Prefix(20)).with_tokens(&sizer).request(&request), @r#"
    condenser request v1 prefix 20
    tools 1
      tool
      | {"name":"shell"}
    [0] system tokens 11
      text
      | You work in ~/repo.
    [1] user tokens 12
      text
      | Fix it by <time>.
      | Th
      … 5 more characters
    [2] assistant tokens 14
      thinking, signed
      | hm
      text
      | I will look.
      call c1 shell
      arguments
      | {"command": "ls"}
    [3] result of c1 shell ok tokens 13
      text
      | \u{1b}[1mREADME\u{1b
      … 12 more characters
    [4] assistant tokens 10
      thinking, signed
      | hm
      text
      | I will look.
      call c2 shell
      arguments
      | {}
    [5] result of c2 shell ok tokens 9
      text
      | [no result recorded]
    repaired filled_results 1
    request tokens 81 (chars/4)
    "#);
    insta::assert_snapshot!(Rendering::new(Mode::Kinds).with_tokens(&sizer).view(&view, &events), @r#"
    condenser view v1 kinds
    [0] system_prompt e1 tools 1 tokens 7
    [1] user e2 tokens 8
    [2] action e3 call c1 shell response r1 tokens 10
    [3] observation e4 of c1 ok tokens 9
    [4] action e5 call c2 shell response r2 open tokens 6
    request tokens 81 (chars/4)
    "#);
}

#[test]
fn the_same_run_on_another_machine_at_another_time_reads_the_same() {
    let (here, there) = (run("ada", 2026, "01J8Z3ABCD"), run("grace-h", 2031, "01K0000001"));
    for mode in [Mode::Kinds, Mode::Prefix(10), Mode::Redacted, Mode::Full] {
        let render = |events: &[Event]| {
            let (before, after) = views(events);
            [Rendering::new(mode).change(&before, &after, events), Rendering::new(mode).view(&after, events)]
        };
        assert_eq!(render(&here), render(&there));
    }
}

#[test]
fn an_unknown_version_is_refused() {
    assert_eq!(Rendering::new(Mode::Full).with_version(2).unwrap_err(), UnknownVersion(2));
    assert!(Rendering::new(Mode::Full).with_version(0).is_err());
    let events = run("ada", 2026, "x");
    let text = Rendering::new(Mode::Kinds).with_version(1).unwrap().view(&views(&events).0, &events);
    assert!(text.starts_with("condenser view v1 kinds\n"), "{text}");
}

#[test]
fn a_diff_names_what_left_what_came_and_what_was_rewritten() {
    let events = run("ada", 2026, "e");
    let (before, after) = views(&events);
    let ids = |ids: &[&str]| ids.iter().copied().map(EventId::from).collect::<Vec<_>>();
    let expected = ViewDiff {
        left: ids(&["e-4", "e-5"]),
        came: ids(&["e-6-summary"]),
        rewritten: ids(&["e-3"]),
        common_prefix: 2,
    };
    assert_eq!(before.diff(&after), expected);
    let back = ViewDiff { left: expected.came.clone(), came: expected.left.clone(), ..expected };
    assert_eq!(after.diff(&before), back);
    assert!(before.diff(&before).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_diff_leads_from_one_view_to_the_other(ops in ops(50), cut in 0usize..50) {
        let events = log(&ops);
        let (a, b) = (View::replay(&events[..cut.min(events.len())], Rules::Sound), View::replay(&events, Rules::Sound));
        // A record that stands twice in the log shows its summary twice, under one id.
        if b.ids().collect::<BTreeSet<_>>().len() < b.len() {
            return Ok(());
        }
        let diff = a.diff(&b);
        let kept = |view: &View, gone: &[EventId]| {
            let mut ids: Vec<EventId> = view.ids().filter(|id| !gone.contains(id)).cloned().collect();
            ids.sort();
            ids
        };
        prop_assert_eq!(kept(&a, &diff.left), kept(&b, &diff.came));
        prop_assert!(a.ids().zip(b.ids()).take(diff.common_prefix).all(|(a, b)| a == b));
        prop_assert!(diff.rewritten.iter().all(|id| b.position(id).is_some() && a.position(id).is_some()));
        if diff.is_empty() && a.ids().eq(b.ids()) {
            prop_assert_eq!(diff.common_prefix, a.len());
        }
    }

    #[test]
    fn any_view_and_request_renders_in_lines_without_control_characters(ops in ops(50), text in "\\PC*|.{0,40}") {
        let mut events = log(&ops);
        events.push(Event::new("last", Source::User, EventKind::Message(Message::text(Role::User, text))));
        let view = View::replay(&events, Rules::Sound);
        for mode in [Mode::Kinds, Mode::Prefix(3), Mode::Redacted, Mode::Full] {
            let rendering = Rendering::new(mode);
            for text in [rendering.view(&view, &events), rendering.request(&Request::build(&view, &events))] {
                prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{:?}", text);
                prop_assert!(text.lines().all(|line| !line.ends_with(' ')), "{:?}", text);
            }
        }
    }
}
