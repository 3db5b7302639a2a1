//! Probes: the files that come with the project, and what a request has to hold to pass.
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests fail by panicking")]

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use condenser::event::{Action, ContentBlock, Event, EventKind, Message, Observation, Pin, Role, Source};
use condenser::policy::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State};
use condenser::profile::ModelProfile;
use condenser::recall::address;
use condenser::tokens::CharsPer4;
use condenser::view::Rules;
use condenser::{Rewrite, RewriteOp};
use condenser_harness::probes::{Probe, ProbeKind, Probes, Probing, Stale, Verdict, grade_text};
use condenser_harness::{ForgetAll, Prepared, Settings, Status, Subject, run_observed};
use condenser_policies::{Extractive, NoPolicy};
use proptest::prelude::*;
use serde_json::json;

fn profile() -> ModelProfile {
    ModelProfile {
        name: "test".into(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: None,
        cache: None,
    }
}

fn verdicts(events: &[Event], probes: &Probes, policy: &dyn Policy) -> Vec<Verdict> {
    let subject = Subject { trace: "t", format: "f", task: None, events };
    let prepared = Prepared::new(subject, &CharsPer4, Rules::Sound);
    let mut probing = Probing::new(&prepared, probes).unwrap_or_else(|error| panic!("{error}"));
    let profile = profile();
    let settings = Settings {
        window: None,
        reserve: condenser::Tokens(0),
        profile: &profile,
        summarizer: &Extractive::default(),
        seed: 0,
        recall: true,
    };
    run_observed(&prepared, policy, &settings, &mut |seen| probing.see(seen));
    probing.verdicts()
}

// ---- The files in fixtures/probes.

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn all_fixtures() -> Vec<(String, Vec<Event>, Probes)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(fixtures().join("traces")).expect("fixtures") {
        let path = entry.expect("a fixture").path();
        let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(fixtures().join(format!("probes/{stem}.json"))).expect("its probes");
        let probes = Probes::parse(&text).unwrap_or_else(|error| panic!("{stem}: {error}"));
        let trace = condenser_traces::read_path(&path, None).expect("a trace").remove(0);
        found.push((stem, trace.events, probes));
    }
    found
}

/// Whether every source is the first user message: nothing forgets that.
fn is_kept(events: &[Event], probe: &Probe) -> bool {
    let is_user = |event: &&Event| matches!(&event.kind, EventKind::Message(it) if it.role == Role::User);
    let first = events.iter().find(is_user).map(|event| &event.id);
    probe.sources.iter().all(|source| Some(source) == first)
}

#[test]
fn every_authored_probe_is_answered_under_none_and_none_but_the_kept_under_forget_all() {
    let fixtures = all_fixtures();
    assert!(fixtures.len() >= 5);
    let mut wrong: Vec<String> = Vec::new();
    for (name, events, probes) in &fixtures {
        let mut expect = |verdict: &Verdict, is_right: bool| {
            if !is_right {
                wrong.push(format!("{name}: {verdict:?}"));
            }
        };
        for verdict in verdicts(events, probes, &NoPolicy) {
            expect(&verdict, verdict.status == Status::InView && verdict.passes());
        }
        for verdict in verdicts(events, probes, &ForgetAll) {
            let probe = probes.probes.iter().find(|probe| probe.id == verdict.probe).expect("a probe");
            let expected = if is_kept(events, probe) { Status::InView } else { Status::Lost };
            expect(&verdict, verdict.status == expected);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_authored_probes_are_of_all_kinds_on_every_trace() {
    for (name, _, probes) in all_fixtures() {
        let kinds: HashSet<ProbeKind> = probes.probes.iter().map(|probe| probe.kind).collect();
        assert_eq!(kinds.len(), ProbeKind::ALL.len(), "{name}");
        assert!(probes.probes.iter().any(|probe| !probe.stale.is_empty()), "{name}: nothing is corrected");
    }
}

// ---- A trace made by hand.

/// What a test policy does with all observations, and with what it writes in their place.
#[derive(Clone, Copy)]
enum Way {
    Mask(&'static str),
    Summarize(&'static str),
}

struct Does(Way);

impl Policy for Does {
    fn name(&self) -> &str {
        "does"
    }
    fn requirement(&self, _: &State<'_>) -> Requirement {
        Requirement::Soft(vec![Reason::Policy])
    }
    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        if !tried.is_empty() {
            return Err(NoPlan::Exhausted);
        }
        let mut edit = Edit::default();
        match self.0 {
            Way::Mask(text) => {
                for entry in state.view.iter() {
                    let is_result =
                        matches!(state.event(entry.index()).map(|it| &it.kind), Some(EventKind::Observation(_)));
                    if is_result && entry.rewrite().is_none() && !entry.is_pinned() {
                        let text = text.replace('@', &address(entry.id()));
                        edit.rewrites.insert(entry.id().clone(), Rewrite::from(RewriteOp::Clear { text }));
                    }
                }
            }
            Way::Summarize(text) if state.view.records().len() == 0 => {
                let ids: BTreeSet<_> =
                    state.view.iter().skip(1).filter(|it| !it.is_protected()).map(|it| it.id().clone()).collect();
                if !ids.is_empty() {
                    edit = Edit { forget: ids, summary: Some((text.to_owned(), 1)), ..Edit::default() };
                }
            }
            Way::Summarize(_) => {}
        }
        if edit.is_empty() { Ok(Plan::Keep) } else { Ok(Plan::Edit(edit)) }
    }
}

fn user(id: &str, text: &str) -> Event {
    Event::new(id, Source::User, EventKind::Message(Message::text(Role::User, text)))
}

fn call(id: &str, arguments: &str) -> [Event; 2] {
    let call_id = format!("call-{id}");
    let action =
        Action { call_id: call_id.clone(), tool_name: "bash".into(), arguments: arguments.into(), ..Action::default() };
    let said = match id {
        "a" => format!("Port 7443 is taken. Never write to /etc/hosts. {}", "padding ".repeat(40)),
        _ => "nothing".to_owned(),
    };
    let observation = Observation { call_id, content: vec![ContentBlock::text(said)], ..Observation::default() };
    [
        Event::new(id, Source::Agent, EventKind::Action(action)),
        Event::new(format!("{id}r"), Source::Environment, EventKind::Observation(observation)),
    ]
}

fn small() -> Vec<Event> {
    let mut events = vec![user("u", "start")];
    events.extend(call("a", r#"{"command": "cat /etc/ports"}"#));
    events.push(user("v", "use 8000 for now"));
    events.push(user("w", "use 9000, and no longer the old one"));
    events.extend(call("b", r#"{"command": "ls"}"#));
    events.push(Event::new("e", Source::Agent, EventKind::Message(Message::text(Role::Assistant, "done"))));
    events
}

fn probes(kind: &str, answer: &[&str], stale: &[&str], source: &str) -> Probes {
    let probe = json!({"id": "p", "kind": kind, "after": "br", "question": "?", "answer": answer, "stale": stale, "sources": [source]});
    Probes::parse(&json!({ "probes": [probe] }).to_string()).expect("probes")
}

#[track_caller]
fn check(policy: &dyn Policy, probes: &Probes, status: Status, stale: Stale) -> Verdict {
    let verdict = verdicts(&small(), probes, policy).remove(0);
    assert_eq!((verdict.status, verdict.stale), (status, stale));
    verdict
}

#[test]
fn an_answer_is_in_view_in_a_summary_recoverable_or_lost() {
    let port = probes("recall", &["7443"], &[], "ar");
    check(&NoPolicy, &port, Status::InView, Stale::Absent);
    check(&Does(Way::Mask("gone")), &port, Status::Lost, Stale::Absent);
    let fetched = check(&Does(Way::Mask("see @")), &port, Status::Recoverable, Stale::Absent);
    // The read is made: its size is that of the stored text, 367 characters.
    assert_eq!(fetched.fetch_tokens, 92);
    check(&Does(Way::Mask("port 7443")), &port, Status::InView, Stale::Absent);
    check(&Does(Way::Mask("port 74430")), &port, Status::Lost, Stale::Absent);
    check(&Does(Way::Summarize("the port is 7443")), &port, Status::InSummary, Stale::Absent);
    check(&Does(Way::Summarize("see [event ar]")), &port, Status::Recoverable, Stale::Absent);
    check(&Does(Way::Summarize("see [event br]")), &port, Status::Lost, Stale::Absent);
}

#[test]
fn every_value_of_an_answer_is_needed() {
    let both = probes("artifact", &["7443", "/etc/ports"], &[], "ar");
    let both = Probes { probes: vec![Probe { sources: vec!["ar".into(), "a".into()], ..both.probes[0].clone() }] };
    let verdict = check(&Does(Way::Mask("gone")), &both, Status::Lost, Stale::Absent);
    assert_eq!((verdict.found, verdict.wanted), (1, 2), "the call is still in view");
    check(&Does(Way::Mask("see @")), &both, Status::Recoverable, Stale::Absent);
}

#[test]
fn a_constraint_needs_its_polarity_in_the_same_sentence() {
    let hosts = probes("constraint", &["/etc/hosts", "never", "do not", "untouched"], &[], "ar");
    check(&NoPolicy, &hosts, Status::InView, Stale::Absent);
    for (said, status, lacks) in [
        ("Do not write to /etc/hosts.", Status::InSummary, false),
        ("/etc/hosts stays UNTOUCHED", Status::InSummary, false),
        ("Write to /etc/hosts.", Status::Lost, true),
        ("Do not wait. Write to /etc/hosts.", Status::Lost, true),
        ("Do not wait", Status::Lost, false),
    ] {
        let verdict = check(&Does(Way::Summarize(said)), &hosts, status, Stale::Absent);
        assert_eq!(verdict.lacks_polarity, lacks, "{said}");
    }
    let phrase = probes("constraint", &["Never write to /etc/hosts"], &[], "ar");
    check(&Does(Way::Summarize("Never write to /etc/hosts")), &phrase, Status::InSummary, Stale::Absent);
}

#[test]
fn a_pinned_source_answers_under_every_policy() {
    let mut events = small();
    events.insert(3, Event::new("pin", Source::User, EventKind::Pin(Pin { ids: vec!["ar".into()] })));
    let port = probes("recall", &["7443"], &[], "ar");
    for policy in [&ForgetAll as &dyn Policy, &Does(Way::Mask("gone"))] {
        assert_eq!(verdicts(&events, &port, policy)[0].status, Status::InView, "{}", policy.name());
    }
}

#[test]
fn a_stale_value_is_a_failure_where_nothing_corrects_it_or_a_summary_repeats_it() {
    let port = probes("decision", &["9000"], &["use 8000"], "w");
    check(&NoPolicy, &port, Status::InView, Stale::Corrected);
    check(&Does(Way::Summarize("the user said: use 8000")), &port, Status::Lost, Stale::Alone);
    check(&Does(Way::Summarize("use 8000, use 9000")), &port, Status::InSummary, Stale::Summarized);
    check(&Does(Way::Summarize("use 9000")), &port, Status::InSummary, Stale::Absent);
}

#[test]
fn a_text_of_another_product_is_graded_as_a_summary() {
    let port = probes("recall", &["7443"], &["8000"], "ar").probes;
    for (text, status, stale) in [
        ("We use port 7443.", Status::InSummary, Stale::Absent),
        (r#"{"messages": [{"content": "line\n7443"}]}"#, Status::InSummary, Stale::Absent),
        ("{\"content\": \"7443\"}\n{\"content\": \"8000\"}\n", Status::InSummary, Stale::Summarized),
        ("see [event ar]", Status::Lost, Stale::Absent),
        ("", Status::Lost, Stale::Absent),
        ("8000", Status::Lost, Stale::Alone),
    ] {
        let verdict = grade_text(&port, text).remove(0);
        assert_eq!((verdict.status, verdict.stale), (status, stale), "{text}");
    }
}

#[test]
fn a_file_that_cannot_be_used_names_probe_field_and_way_out() {
    let good =
        json!({"id": "p", "kind": "recall", "after": "br", "question": "?", "answer": ["7443"], "sources": ["ar"]});
    let with = |field: &str, value: serde_json::Value| {
        let mut probe = good.clone();
        probe[field] = value;
        json!({ "probes": [probe] }).to_string()
    };
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    let cases = [
        ("[]".to_owned(), "no file of probes: "),
        ("{}".to_owned(), "it has no list `probes`; it is {\"probes\": [{\"id\""),
        (json!({"probes": [3]}).to_string(), "probe \"number 1\", `id`: it is no object"),
        (json!({"probes": [{"kind": "recall"}]}).to_string(), "probe \"number 1\", `id`: it is missing"),
        (
            with("kind", json!("memory")),
            "probe \"p\", `kind`: unknown; known are recall, artifact, continuation, decision, constraint",
        ),
        (with("answer", json!([])), "probe \"p\", `answer`: it is empty; name at least one"),
        (with("answer", json!("7443")), "probe \"p\", `answer`: a list of texts is wanted"),
        (with("answer", json!([" "])), "probe \"p\", `answer`: a text is blank"),
        (with("answer", json!(many)), "probe \"p\", `answer`: it has more than 100 entries"),
        (with("question", json!("x".repeat(1_001))), "`question`: a text is longer than 1,000 characters"),
        (with("stale", json!(["7443"])), "probe \"p\", `stale`: \"7443\" is an answer as well"),
        (with("answers", json!([])), "probe \"p\", `answers`: there is no such field; there are id, kind, after, "),
        (json!({"probes": [good, good]}).to_string(), "probe \"p\", `id`: an earlier probe has it"),
        (" ".repeat((1 << 20) + 1), "it is larger than 1 MiB"),
        (with("after", json!("nowhere")), "probe \"p\", `after`: the trace shows no event \"nowhere\""),
        (with("after", json!("e")), "probe \"p\", `after`: no step follows this event; name an earlier one"),
        (with("sources", json!(["e"])), "probe \"p\", `sources`: \"e\" comes after the probe's event"),
        (with("sources", json!(["zz"])), "probe \"p\", `sources`: the trace shows no event \"zz\""),
        (with("answer", json!(["7444"])), "probe \"p\", `answer`: no source holds \"7444\""),
    ];
    let events = small();
    let subject = Subject { trace: "t", format: "f", task: None, events: &events };
    let prepared = Prepared::new(subject, &CharsPer4, Rules::Sound);
    for (text, expected) in cases {
        let error = match Probes::parse(&text) {
            Ok(probes) => Probing::new(&prepared, &probes).expect_err(expected),
            Err(error) => error,
        };
        assert!(error.to_string().contains(expected), "{error}");
    }
}

// ---- Wrong graders, each caught by a case that the right one passes.

type Grader = fn(&str, &str) -> bool;

fn right(text: &str, value: &str) -> bool {
    let probes = probes("recall", &[value], &[], "ar").probes;
    grade_text(&probes, text)[0].status == Status::InSummary
}

/// Texts, a value, and whether they hold it.
const CASES: [(&str, &str, bool); 8] = [
    ("port 7443 is taken", "7443", true),
    ("port 74430", "7443", false),
    ("port 7.443 and 17443", "7443", false),
    ("KX-4417-B only", "KX-4417", false),
    ("kx-4417", "KX-4417", false),
    ("/srv/app/src/a.rs", "src/a.rs", true),
    ("src/a.rs.bak", "src/a.rs", false),
    ("{\"text\": \"one\\n7443\"}", "7443", true),
];

#[test]
fn a_grader_that_is_wrong_in_one_way_is_found_out() {
    let is_caught = |grader: Grader| CASES.iter().any(|&(text, value, held)| grader(text, value) != held);
    assert!(!is_caught(right));
    let wrong: [(&str, Grader); 5] = [
        ("parts of tokens count", |text, value| text.contains(value)),
        ("case is ignored", |text, value| right(&text.to_lowercase(), &value.to_lowercase())),
        ("JSON is not decoded", |text, value| right(&text.replace(['{', '['], "x"), value)),
        ("words are split at every sign", |text, value| {
            text.split(|c: char| !c.is_alphanumeric()).any(|word| word == value)
        }),
        ("everything is held", |_, _| true),
    ];
    for (what, grader) in wrong {
        assert!(is_caught(grader), "{what}");
    }
}

proptest! {
    #[test]
    fn a_value_between_spaces_is_held_and_a_longer_one_is_not_it(
        value in "[a-z0-9_][a-z0-9_./-]{0,12}[a-z0-9_]",
        before in "[A-Z ]{0,8}",
        after in "[A-Z ]{0,8}",
        more in "[a-z0-9_]{1,4}",
    ) {
        let text = format!("{before} {value} {after}");
        prop_assert!(right(&text, &value), "{text}");
        let longer = format!("{before} {value}{more} {after}");
        prop_assert!(!right(&longer, &value), "{longer}");
    }
}
