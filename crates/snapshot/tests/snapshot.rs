//! What snapshots say of policies that decide alike and apart, and what their bounds hold.

use std::path::{Path, PathBuf};

use condenser::event::{Event, EventKind, Message, Role, Source};
use condenser::render::Mode;
use condenser::{Condenser, OutcomeKind, Policy, Sizer, State, Tokens, View};
use condenser_policies::{ObservationMasking, RecentEvents};
use condenser_snapshot::{Difference, MAX_BYTES, Setup, SnapshotError, snapshot, snapshot_recorded};
use condenser_traces::Trace;
use proptest::prelude::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name)
}

fn say(n: usize, text: String) -> Event {
    let role = if n.is_multiple_of(2) { Role::User } else { Role::Assistant };
    let source = if n.is_multiple_of(2) { Source::User } else { Source::Agent };
    Event::new(format!("event-{n:04}"), source, EventKind::Message(Message::text(role, text)))
}

fn trace(events: Vec<Event>) -> Trace {
    Trace {
        name: "t".into(),
        format: "openhands-v1",
        task: None,
        session: None,
        parent: None,
        events,
        records: 0,
        diagnostics: Vec::new(),
    }
}

/// A trace whose recorded condensations are what the policy decides under the setup.
fn recorded_by(policy: &dyn Policy, setup: &Setup<'_>) -> Trace {
    let mut events = Vec::new();
    for n in 0..80 {
        let view = View::replay(&events, setup.rules);
        let sizer = Sizer::new(setup.counter);
        let budget = condenser::Budget { window: Some(setup.window), reserve: setup.reserve };
        let state = State::new(&view, &events, &sizer, budget);
        if let OutcomeKind::Applied(record) = Condenser::default().run(policy, &state, setup.summarizer).result {
            events.push(Event::new(format!("record-{n:04}"), Source::Environment, EventKind::Condensation(*record)));
        }
        events.push(say(n, format!("{n}: {}", "some words ".repeat(60))));
    }
    trace(events)
}

#[test]
fn a_policy_decides_as_it_recorded_itself_and_another_does_not() {
    let setup = Setup { reserve: Tokens(500), ..Setup::new(Tokens(4000)) };
    let trace = recorded_by(&RecentEvents::default(), &setup);
    let same = setup.against(&trace, &RecentEvents::default());
    assert!(same.same >= 2, "{}", same.text);
    assert_eq!(same.different, 0, "{}", same.text);
    let other = setup.against(&trace, &ObservationMasking::default());
    assert_eq!((other.same, other.different), (0, same.same));
    assert!(other.text.contains("observation-masking: leaves it as it is: "), "{}", other.text);
    // The window is part of what is decided.
    let wide = Setup { window: Tokens(40_000), ..setup };
    assert_eq!(wide.against(&trace, &RecentEvents::default()).same, 0);
}

#[test]
fn a_snapshot_is_the_same_each_time_and_names_no_place() {
    let path = fixture("ledger-currencies.openhands.jsonl");
    let text = snapshot(&path, &RecentEvents::default(), 8000).expect("the fixture is read");
    assert_eq!(snapshot(&path, &RecentEvents::default(), 8000).expect("the fixture is read"), text);
    assert!(!text.contains("fixtures/traces"), "{text}");
    let recorded = snapshot_recorded(&path).expect("the fixture has condensations");
    assert_eq!(recorded.matches("\n== before\n").count(), 2);
    assert_eq!(recorded.matches("\n== after\n").count(), 2);
}

#[test]
fn what_is_left_out_is_named_by_a_digest() {
    let setup = Setup { mode: Mode::Full, ..Setup::new(Tokens(32_000)) };
    let long = |end: &str| trace(vec![say(0, format!("{}{end}", "x".repeat(1 << 20))), say(1, "done".into())]);
    let texts = ["a", "b"].map(|end| setup.of_policy(&long(end), &RecentEvents::default()));
    assert!(texts[0].len() < 10_000, "{} bytes", texts[0].len());
    assert_ne!(texts[0], texts[1]);

    let many = |end: &str| {
        let lines = "line\n".repeat(100_000) + end;
        trace(vec![say(0, lines), say(1, "done".into())])
    };
    let texts = ["a", "b"].map(|end| setup.of_policy(&many(end), &RecentEvents::default()));
    assert!(texts[0].len() < 100_000, "{} bytes", texts[0].len());
    assert_ne!(texts[0], texts[1]);
}

#[test]
fn an_error_says_what_the_path_is_instead() {
    let missing = snapshot("no/such/file.jsonl", &RecentEvents::default(), 8000);
    assert!(matches!(missing, Err(SnapshotError::Read(_))));
    let error = snapshot_recorded(fixture("next-run.traj")).expect_err("nothing is recorded in it");
    assert!(error.to_string().ends_with("next-run.traj: the trace recorded no condensation"), "{error}");
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.as_file().set_len(MAX_BYTES + 1).expect("a sparse file");
    let said = format!("{} bytes are more than a snapshot has", MAX_BYTES + 1);
    assert_eq!(Difference::of_file(file.path(), "x"), Difference::Unusable(said));
    assert_eq!(Difference::of_file(Path::new("no/such/file"), "x"), Difference::Missing);
}

proptest! {
    #[test]
    fn whatever_is_stored_the_difference_is_bounded_and_printable(stored: Vec<u8>, new in "[a-z\n]{0,300}") {
        match Difference::of(&stored, &new) {
            Difference::Changed(diff) => {
                prop_assert!(!diff.chars().any(|c| c.is_control() && c != '\n'));
                prop_assert!(diff.lines().count() <= 81);
            }
            Difference::None => {
                let stored = String::from_utf8_lossy(&stored).replace("\r\n", "\n");
                let stored = stored.strip_prefix('\u{feff}').unwrap_or(&stored);
                prop_assert_eq!(stored.trim_end_matches('\n'), new.trim_end_matches('\n'));
            }
            other => prop_assert_eq!(other, Difference::Unusable("not text".into())),
        }
    }

    #[test]
    fn what_was_written_is_as_stored_with_any_line_ends(new in "\\PC{0,40}(\n\\PC{0,40}){0,20}") {
        prop_assert_eq!(Difference::of(new.as_bytes(), &new), Difference::None);
        prop_assert_eq!(Difference::of(new.replace('\n', "\r\n").as_bytes(), &new), Difference::None);
        prop_assert_eq!(Difference::of(format!("{new}\n").as_bytes(), &new), Difference::None);
    }
}
