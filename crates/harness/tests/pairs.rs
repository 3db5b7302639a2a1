//! Recorded arms, worked out by hand.

use condenser::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Role, Source, Unknown, Usage};
use condenser::profile::{ModelProfile, Prices};
use condenser::tokens::CharsPer4;
use condenser::view::Rules;
use condenser_harness::pairs::{Arm, Pairs, contrast, pair};
use condenser_harness::statistics::Resampling;
use condenser_harness::{Prepared, Subject};
use serde_json::json;

fn profile() -> ModelProfile {
    ModelProfile {
        name: "test".into(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: Some(Prices { input: 1.0, cache_read: 1.0, cache_write: 1.0, output: 1.0 }),
        cache: None,
    }
}

/// A run that makes these calls, each answered by `ok`. Input is reported where given.
fn run(task: &str, name: &str, calls: &[&str], reported: Option<u64>, resolved: Option<bool>) -> Arm {
    let payload = json!({"report": {"resolved": resolved}});
    let mut events = vec![
        Event::new("row", Source::Environment, EventKind::Unknown(Unknown { foreign_kind: "row".into(), payload })),
        Event::new("u", Source::User, EventKind::Message(Message::text(Role::User, "go"))),
    ];
    for (n, arguments) in calls.iter().enumerate() {
        let call_id = format!("c{n}");
        let action = Action {
            call_id: call_id.clone(),
            tool_name: "read".into(),
            arguments: (*arguments).into(),
            ..Action::default()
        };
        let usage = reported.map(|input| Usage { input_tokens: Some(input), ..Usage::default() });
        events.push(Event { usage, ..Event::new(format!("a{n}"), Source::Agent, EventKind::Action(action)) });
        let observation = Observation { call_id, content: vec![ContentBlock::text("ok")], ..Observation::default() };
        events.push(Event::new(format!("o{n}"), Source::Environment, EventKind::Observation(observation)));
    }
    let subject = Subject { trace: name, format: "f", task: Some(task), events: &events };
    Arm::of(&Prepared::new(subject, &CharsPer4, Rules::Sound), task, &profile(), None)
}

const A: &str = r#"{"path": "a.rs", "limit": 1}"#;
const A_TURNED: &str = r#"{"limit": 1, "path": "a.rs"}"#;
const B: &str = r#"{"path": "b.rs"}"#;

#[test]
fn runs_of_one_task_are_paired_in_the_order_of_their_names() {
    let a = vec![
        run("t2", "a/2", &[A], None, None),
        run("t1", "a/1b", &[A], None, None),
        run("t1", "a/1a", &[B], None, None),
    ];
    let b = vec![run("t1", "b/1", &[A], None, None), run("t3", "b/3", &[A], None, None)];
    let Pairs { pairs, only_a, only_b } = pair(a, b);
    assert_eq!(pairs.len(), 1);
    assert_eq!((pairs[0].trace_a.as_str(), pairs[0].trace_b.as_str()), ("a/1a", "b/1"));
    assert_eq!((only_a, only_b), (vec!["a/1b".to_owned(), "a/2".to_owned()], vec!["b/3".to_owned()]));
}

#[test]
fn the_first_divergent_step_is_where_calls_differ() {
    let check = |a: &[&str], b: &[&str], expected: Option<u64>| {
        let pairs = pair(vec![run("t", "a", a, None, None)], vec![run("t", "b", b, None, None)]);
        assert_eq!(pairs.pairs[0].first_divergent_step, expected, "{a:?} {b:?}");
    };
    check(&[A, B], &[A, B], None);
    check(&[A, B], &[A_TURNED, B], None);
    check(&[A, B], &[A, A], Some(2));
    check(&[A, B], &[A], Some(2));
    check(&[], &[A], Some(1));
    check(&["no json", B], &["no json either", B], Some(1));
}

#[test]
fn numbers_are_counted_and_reported_ones_stand_beside_them() {
    let arm = run("t", "a", &[A, B, A], Some(1_000), Some(true));
    let numbers = &arm.numbers;
    assert_eq!((numbers.steps, numbers.rereads), (3, 1));
    assert_eq!((numbers.reported_input_tokens, numbers.resolved), (Some(3_000), Some(true)));
    let cost = (numbers.input_tokens + numbers.output_tokens) as f64 / 1e6;
    assert!((numbers.cost_usd.unwrap_or_default() - cost).abs() < 1e-12);
    let silent = run("t", "a", &[A], None, None);
    assert_eq!((silent.numbers.reported_input_tokens, silent.numbers.resolved), (None, None));
}

#[test]
fn arms_are_contrasted_second_less_first_where_both_know() {
    let arm = |name: &str, more: &[&str], resolved| -> Vec<Arm> {
        let calls = |n: usize| -> Vec<&str> { vec![A; n].into_iter().chain(more.iter().copied()).collect() };
        (1..=6).map(|n| run(&format!("t{n}"), &format!("{name}{n}"), &calls(n), None, resolved)).collect()
    };
    let pairs = pair(arm("a", &[B, B], Some(true)), arm("b", &[], None));
    let contrasts = contrast(&pairs.pairs, Resampling::default());
    let of = |metric: &str| contrasts.iter().find(|it| it.metric == metric).and_then(|it| it.difference.clone());
    let steps = of("steps").map(|it| (it.mean, it.wins, it.n_tasks, it.interval));
    assert_eq!(steps, Some((-2.0, 6, 6, Some([-2.0, -2.0]))));
    assert_eq!(of("rereads").map(|it| it.mean), Some(-1.0));
    assert_eq!(of("resolved"), None, "the second arm does not say");
}
