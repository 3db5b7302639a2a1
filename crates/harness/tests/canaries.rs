//! Canaries: where they are planted, and who keeps them.
#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use condenser::event::{Event, EventId, EventKind};
use condenser::policy::{Edit, Failure, NoPlan, Plan, Policy, Reason, Requirement, State};
use condenser::profile::ModelProfile;
use condenser::request::text_of;
use condenser::tokens::{CharsPer4, Tokens};
use condenser::view::Rules;
use condenser_harness::canaries::{
    CanaryCell, CanaryKind, Planting, Survival, add_cells, first_under_half, full_tokens, plant,
};
use condenser_harness::{ForgetAll, Prepared, Row, Settings, Subject, run_observed};
use condenser_policies::{
    Craft, Extractive, LlmSummarizing, NoPolicy, RecentEvents, RecentSettings, SummarizingSettings,
};

const ROUNDS: u32 = 5;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces")
}

fn ledger() -> Vec<Event> {
    let path = fixtures().join("ledger-currencies.openhands.jsonl");
    condenser_traces::read_path(&path, None).expect("a trace").remove(0).events
}

fn planting(seed: u64) -> Planting {
    Planting { seed, ..Planting::default() }
}

/// A policy on the planted trace, under a window of this share of the whole.
fn survive(events: &[Event], planting: Planting, policy: &dyn Policy, share: f64) -> (Row, Vec<CanaryCell>) {
    let planted = plant(events, &planting).expect("a long trace");
    let subject = Subject { trace: "t", format: "f", task: None, events: &planted.events };
    let prepared = Prepared::new(subject, &CharsPer4, Rules::Sound);
    let mut survival = Survival::new(&prepared, &planted.canaries, ROUNDS);
    let profile = ModelProfile {
        name: "test".into(),
        context_window: None,
        max_output: None,
        tokenizer: None,
        prices: None,
        cache: None,
    };
    let settings = Settings {
        window: Some(Tokens((full_tokens(&prepared).0 as f64 * share) as u64)),
        reserve: Tokens(0),
        profile: &profile,
        summarizer: &Extractive::default(),
        seed: planting.seed,
        recall: true,
    };
    let replay = run_observed(&prepared, policy, &settings, &mut |seen| survival.see(seen));
    (replay.row, survival.cells())
}

/// The policies that canaries have to tell apart, worst first. Only the size of the request makes them act.
fn ranked() -> [(&'static str, Box<dyn Policy>); 3] {
    let cut = RecentEvents::new(RecentSettings { max_events: 10_000, ..RecentSettings::default() });
    let summary = LlmSummarizing::new(SummarizingSettings { max_events: None, ..SummarizingSettings::default() });
    [("truncation", Box::new(cut)), ("extractive summary", Box::new(summary)), ("craft", Box::new(Craft::default()))]
}

fn kept(cells: &[CanaryCell], kind: CanaryKind, round: u32) -> (u64, u64) {
    let cell = cells.iter().find(|cell| cell.kind == kind && cell.round == round).expect("every kind and round");
    (cell.in_view + cell.in_summary, cell.n)
}

#[test]
fn five_rounds_tell_truncation_a_plain_summary_and_craft_apart_under_three_seeds() {
    let events = ledger();
    let mut pooled: BTreeMap<&str, Vec<CanaryCell>> = BTreeMap::new();
    let by_user = |kind| !matches!(kind, CanaryKind::Fact | CanaryKind::NearDuplicates | CanaryKind::ExactList);
    for seed in 0..3 {
        let mut cells = Vec::new();
        for (name, policy) in &ranked() {
            let of_policy = survive(&events, planting(seed), &**policy, 0.2).1;
            pooled.entry(*name).or_default().extend(&of_policy);
            cells.push(of_policy);
        }
        for kind in CanaryKind::ALL {
            let [(cut, n), (summary, _), (craft, _)] = [0, 1, 2].map(|policy| kept(&cells[policy], kind, ROUNDS));
            assert_eq!(n, 4, "{}", kind.name());
            println!("seed {seed}, round {ROUNDS}, {}: {cut}, {summary}, {craft} of {n}", kind.name());
            // What stands in results is told apart over all seeds; with four canaries there are ties.
            let is_ranked =
                if by_user(kind) { cut < summary && summary < craft } else { cut <= summary && summary <= craft };
            assert!(is_ranked, "seed {seed}, {}: {cut}, {summary}, {craft} of {n}", kind.name());
        }
    }
    let pooled: BTreeMap<&str, Vec<CanaryCell>> =
        pooled.into_iter().map(|(name, cells)| (name, add_cells(cells))).collect();
    for kind in CanaryKind::ALL {
        let of = |name: &str| kept(&pooled[name], kind, ROUNDS);
        let ((cut, n), (summary, _), (craft, _)) = (of("truncation"), of("extractive summary"), of("craft"));
        println!("all seeds, {}: {cut}, {summary}, {craft} of {n}", kind.name());
        assert!(cut < summary && summary < craft, "{}: {cut}, {summary}, {craft} of {n}", kind.name());
    }
    assert_eq!(first_under_half(&pooled["truncation"], CanaryKind::SafetyRule), Some(2));
    assert_eq!(first_under_half(&pooled["craft"], CanaryKind::SafetyRule), None);
}

/// Forgets what it may and writes this in its place, before every step.
struct Notes(String);

impl Policy for Notes {
    fn name(&self) -> &str {
        "notes"
    }
    fn requirement(&self, _: &State<'_>) -> Requirement {
        Requirement::Soft(vec![Reason::Policy])
    }
    fn plan(&self, state: &State<'_>, tried: &[Failure]) -> Result<Plan, NoPlan> {
        let end = state.view.previous_index(state.view.len().saturating_sub(2)).unwrap_or(0);
        let forget: BTreeSet<EventId> =
            state.view.iter().take(end).skip(2).filter(|it| !it.is_protected()).map(|it| it.id().clone()).collect();
        if forget.is_empty() || !tried.is_empty() {
            return Ok(Plan::Keep);
        }
        Ok(Plan::Edit(Edit { forget, summary: Some((self.0.clone(), 2)), ..Edit::default() }))
    }
}

#[test]
fn keeping_all_forgetting_all_and_perfect_notes_get_the_verdicts_they_must() {
    let events = ledger();
    let (row, cells) = survive(&events, planting(0), &NoPolicy, 10.0);
    assert_eq!(row.condensations, 0);
    assert!(cells.iter().all(|cell| cell.n == 0 && cell.survived().is_none()), "no round, no verdict");

    let planted = plant(&events, &planting(0)).expect("a long trace");
    let texts = planted.canaries.iter().flat_map(|canary| &canary.sources).map(|id| {
        let event = planted.events.iter().find(|event| event.id == *id).expect("a source");
        text_of(&event.kind)
    });
    let perfect = Notes(texts.collect::<Vec<_>>().join("\n"));
    for (policy, from, expected) in [(&ForgetAll as &dyn Policy, 3, 0.0), (&perfect, 1, 1.0)] {
        let (row, cells) = survive(&events, planting(0), policy, 10.0);
        assert_eq!((row.invalid_requests, row.pinned_changes), (0, 0), "{}", policy.name());
        for cell in cells.iter().filter(|cell| cell.round >= from && cell.n > 0) {
            assert_eq!(cell.survived(), Some(expected), "{}: {cell:?}", policy.name());
            assert_eq!(cell.n, cell.in_view + cell.in_summary + cell.recoverable + cell.lost);
        }
        assert!(cells.iter().any(|cell| cell.n > 0 && cell.round == ROUNDS), "{}", policy.name());
    }
}

#[test]
fn the_same_seed_plants_the_same_and_another_seed_something_else() {
    let events = ledger();
    let of = |seed| plant(&events, &planting(seed)).expect("a long trace");
    assert_eq!(of(1).events, of(1).events);
    assert_ne!(of(1).events, of(2).events);
    let planted = of(1);
    assert_eq!(planted.canaries.len(), 4 * CanaryKind::ALL.len());
    let original: Vec<_> = events.iter().map(|event| &event.id).collect();
    let kept: Vec<_> = planted.events.iter().map(|event| &event.id).filter(|id| original.contains(id)).collect();
    assert_eq!(kept, original, "every event is still there, in its place");
    let (mut in_results, mut said, mut twice) = (0, 0, 0);
    for canary in &planted.canaries {
        twice += usize::from(canary.sources.len() == 2);
        for id in &canary.sources {
            let event = planted.events.iter().find(|event| event.id == *id).expect("a source");
            match &event.kind {
                EventKind::Observation(_) => in_results += 1,
                EventKind::Message(_) => said += 1,
                other => unreachable!("{}", other.name()),
            }
        }
    }
    assert!(in_results >= 3 && said >= 20 && twice >= 5, "{in_results} {said} {twice}");
}

#[test]
fn requests_with_canaries_are_as_valid_as_without() {
    for entry in std::fs::read_dir(fixtures()).expect("fixtures") {
        let path = entry.expect("a fixture").path();
        let events = condenser_traces::read_path(&path, None).expect("a trace").remove(0).events;
        for seed in 0..3 {
            let (row, _) = survive(&events, planting(seed), &Craft::default(), 0.3);
            assert_eq!(row.invalid_requests, 0, "{}", path.display());
        }
    }
}

#[test]
fn what_cannot_be_planted_is_said() {
    let events = ledger();
    let check = |events: &[Event], depths: &[f64], expected: &str| {
        let error = plant(events, &Planting { seed: 0, depths: depths.to_vec() }).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    };
    check(&events, &[], "name at least one depth");
    check(&events, &[0.5, 1.5], "a depth is a number from 0 to 1, and not 1.5");
    check(&events, &[f64::NAN], "a depth is a number from 0 to 1, and not NaN");
    check(&events[..8], &[0.5], "the trace has 1 steps before which a user could speak; canaries need at least 10");
}
