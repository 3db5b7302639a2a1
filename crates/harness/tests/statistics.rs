//! Differences worked out by hand, against a slow twin, and against twins that are wrong in one way each.
#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeMap;

use condenser_harness::Row;
use condenser_harness::statistics::{
    Better, Difference, Paired, Resampling, Role, Study, StudyError, Verdict, compare_rows, difference, holm, spread,
};
use proptest::prelude::*;

fn pairs(values: &[(&str, f64, f64)]) -> Vec<Paired> {
    values.iter().map(|&(task, baseline, value)| Paired { task: task.into(), baseline, value }).collect()
}

fn lower(pairs: &[Paired]) -> Difference {
    difference(pairs, Better::Lower, Resampling::default()).expect("pairs")
}

#[test]
fn a_difference_is_described_on_every_side() {
    let it = lower(&pairs(&[("a", 10.0, 8.0), ("a", 10.0, 10.0), ("b", 20.0, 13.0), ("c", 5.0, 6.0)]));
    assert_eq!((it.n_traces, it.n_tasks), (4, 3));
    assert_eq!((it.baseline_mean, it.treatment_mean), (11.25, 9.25));
    // -2, 0, -7 and 1.
    assert_eq!((it.mean, it.median), (-2.0, -1.0));
    assert_eq!((it.wins, it.ties, it.losses), (2, 1, 1));
    assert_eq!(it.top_share, Some(0.7));
    let [low, high] = it.interval.expect("three tasks");
    assert!((-7.0..-2.0).contains(&low) && high > -2.0, "{low} {high}");
    // Of the eight ways to give -2, -7 and 1 their signs, four sum up to 8 or more.
    assert!((it.p.expect("three tasks") - 0.5).abs() < 0.02);
}

#[test]
fn nothing_is_said_that_one_task_cannot_say() {
    let it = lower(&pairs(&[("a", 1.0, 2.0), ("a", 1.0, 3.0)]));
    assert_eq!((it.mean, it.interval, it.detectable, it.p), (1.5, None, None, None));
    assert_eq!(difference(&[], Better::Lower, Resampling::default()), None);
    let not_finite = pairs(&[("a", 1.0, f64::INFINITY), ("b", 1.0, 2.0)]);
    assert_eq!(difference(&not_finite, Better::Lower, Resampling::default()), None);
}

#[test]
fn without_any_difference_nothing_is_found() {
    let it = lower(&pairs(&[("a", 1.0, 1.0), ("b", 2.0, 2.0), ("c", 3.0, 3.0)]));
    assert_eq!((it.interval, it.top_share, it.p, it.ties), (Some([0.0, 0.0]), None, Some(1.0), 3));
}

#[test]
fn the_same_seed_gives_the_same_and_another_seed_nearly_the_same() {
    let values: Vec<Paired> =
        (0..40).map(|n| Paired { task: format!("t{n}"), baseline: 0.0, value: f64::from(n * n % 71) / 10.0 }).collect();
    let with = |seed| difference(&values, Better::Higher, Resampling { seed, ..Resampling::default() }).expect("pairs");
    assert_eq!(with(1), with(1));
    let ([a, b], [c, d]) = (with(1).interval.expect("tasks"), with(2).interval.expect("tasks"));
    assert!((a, b) != (c, d) && (a - c).abs() < 0.15 && (b - d).abs() < 0.15);
}

#[test]
fn the_detectable_difference_is_found_in_four_of_five_samples() {
    let mut random = Random(11);
    let (mut found, mut n) = (0, 0);
    for _ in 0..200 {
        let noise: Vec<f64> = (0..30).map(|_| random.normal()).collect();
        let of = |shift: f64| {
            let values: Vec<Paired> = noise
                .iter()
                .enumerate()
                .map(|(n, noise)| Paired { task: n.to_string(), baseline: 0.0, value: noise + shift })
                .collect();
            difference(&values, Better::Higher, Resampling { resamples: 500, seed: 3 }).expect("pairs")
        };
        // The scatter of this sample stands for that of all, on average.
        let shift = of(0.0).detectable.expect("tasks");
        n += 1;
        found += usize::from(of(shift).p.expect("tasks") < 0.05);
    }
    let power = found as f64 / n as f64;
    assert!((0.72..=0.88).contains(&power), "{power}");
}

#[test]
fn holm_multiplies_step_by_step_and_never_goes_back() {
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
    assert!(close(&holm(&[0.01, 0.04, 0.03, 0.005]), &[0.03, 0.06, 0.06, 0.02]));
    assert!(close(&holm(&[0.02, 0.0201]), &[0.04, 0.04]));
    assert!(close(&holm(&[0.9, 0.8]), &[1.0, 1.0]));
    assert!(holm(&[]).is_empty());
}

// ---- A slow twin, and what it would look like if it were wrong.

/// What is wrong with a twin.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    /// Means are taken per task first.
    MeanOfTasks,
    /// The mean stands for the median.
    MeanForMedian,
    /// Ties count as wins.
    TiesWin,
    /// A larger value wins whatever the metric.
    DirectionIgnored,
    /// The largest, and not those that differ most.
    SignedTop,
    /// A tenth, not a twentieth.
    TopTenth,
    /// The treatment less the wrong trace's baseline.
    Unpaired,
}

const FLAWS: [Flaw; 7] = [
    Flaw::MeanOfTasks,
    Flaw::MeanForMedian,
    Flaw::TiesWin,
    Flaw::DirectionIgnored,
    Flaw::SignedTop,
    Flaw::TopTenth,
    Flaw::Unpaired,
];

#[derive(Debug, PartialEq)]
struct Described {
    mean: f64,
    median: f64,
    counts: [usize; 3],
    top_share: Option<f64>,
}

fn described(it: &Difference) -> Described {
    Described { mean: it.mean, median: it.median, counts: [it.wins, it.ties, it.losses], top_share: it.top_share }
}

impl Described {
    fn is_near(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let tops = match (self.top_share, other.top_share) {
            (Some(a), Some(b)) => near(a, b),
            (a, b) => a == b,
        };
        near(self.mean, other.mean) && near(self.median, other.median) && self.counts == other.counts && tops
    }
}

fn twin(pairs: &[Paired], better: Better, flaw: Flaw) -> Described {
    let n = pairs.len();
    let differences: Vec<f64> = (0..n)
        .map(|at| pairs[at].value - pairs[if flaw == Flaw::Unpaired { (at + 1) % n } else { at }].baseline)
        .collect();
    let mean_of = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let mut mean = mean_of(&differences);
    if flaw == Flaw::MeanOfTasks {
        let mut tasks: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        pairs.iter().zip(&differences).for_each(|(pair, it)| tasks.entry(&pair.task).or_default().push(*it));
        mean = mean_of(&tasks.values().map(|values| mean_of(values)).collect::<Vec<_>>());
    }
    let mut sorted = differences.clone();
    sorted.sort_by(f64::total_cmp);
    let mut median = if n % 2 == 1 { sorted[n / 2] } else { (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0 };
    if flaw == Flaw::MeanForMedian {
        median = mean;
    }
    let mut counts = [0; 3];
    for difference in &differences {
        let good = match better {
            Better::Lower if flaw != Flaw::DirectionIgnored => -difference,
            _ => *difference,
        };
        counts[if good > 0.0 || (good == 0.0 && flaw == Flaw::TiesWin) {
            0
        } else if good == 0.0 {
            1
        } else {
            2
        }] += 1;
    }
    let mut left: Vec<f64> =
        differences.iter().map(|it| if flaw == Flaw::SignedTop { it.max(0.0) } else { it.abs() }).collect();
    let total: f64 = differences.iter().map(|it| it.abs()).sum();
    let n_top = n.div_ceil(if flaw == Flaw::TopTenth { 10 } else { 20 });
    let mut top = 0.0;
    for _ in 0..n_top {
        let at = (0..left.len()).max_by(|&a, &b| left[a].total_cmp(&left[b])).expect("not empty");
        top += left.swap_remove(at);
    }
    Described { mean, median, counts, top_share: (total > 0.0).then(|| top / total) }
}

fn some_pairs() -> impl Strategy<Value = Vec<Paired>> {
    let pair = (0..6u8, 0..20i32, 0..20i32).prop_map(|(task, baseline, value)| Paired {
        task: task.to_string(),
        baseline: f64::from(baseline),
        value: f64::from(value),
    });
    prop::collection::vec(pair, 1..60)
}

const QUICK: Resampling = Resampling { seed: 0, resamples: 50 };

proptest! {
    #[test]
    fn a_difference_is_what_its_slow_twin_says(pairs in some_pairs(), higher: bool) {
        let better = if higher { Better::Higher } else { Better::Lower };
        let it = difference(&pairs, better, QUICK).expect("pairs");
        let other = twin(&pairs, better, Flaw::None);
        prop_assert!(described(&it).is_near(&other), "{it:?} {other:?}");
    }

    #[test]
    fn an_interval_holds_the_mean_and_moves_with_the_values(pairs in some_pairs(), shift in -50.0..50.0f64) {
        let it = difference(&pairs, Better::Higher, Resampling::default()).expect("pairs");
        if let Some([low, high]) = it.interval {
            prop_assert!(low <= it.mean + 1e-9 && it.mean <= high + 1e-9, "{it:?}");
            let moved: Vec<Paired> =
                pairs.iter().map(|pair| Paired { value: pair.value + shift, ..pair.clone() }).collect();
            let moved = difference(&moved, Better::Higher, Resampling::default()).expect("pairs");
            let [moved_low, moved_high] = moved.interval.expect("as many tasks");
            prop_assert!((moved_low - low - shift).abs() < 1e-6 && (moved_high - high - shift).abs() < 1e-6);
        }
    }

    #[test]
    fn swapping_the_treatments_turns_everything_around(pairs in some_pairs()) {
        let there = difference(&pairs, Better::Lower, QUICK).expect("pairs");
        let swapped: Vec<Paired> = pairs
            .iter()
            .map(|pair| Paired { task: pair.task.clone(), baseline: pair.value, value: pair.baseline })
            .collect();
        let back = difference(&swapped, Better::Lower, QUICK).expect("pairs");
        prop_assert!((there.mean + back.mean).abs() < 1e-9 && (there.median + back.median).abs() < 1e-9);
        prop_assert_eq!((there.wins, there.losses), (back.losses, back.wins));
        prop_assert_eq!(there.p, back.p);
    }
}

#[test]
fn a_twin_that_is_wrong_in_one_way_is_found_out() {
    let mut random = Random(5);
    for flaw in FLAWS {
        let caught = (0..100).any(|_| {
            let pairs: Vec<Paired> = (0..25)
                .map(|_| Paired {
                    task: (random.next() % 6).to_string(),
                    baseline: (random.next() % 9) as f64,
                    value: (random.next() % 9) as f64,
                })
                .collect();
            let right = described(&difference(&pairs, Better::Lower, QUICK).expect("pairs"));
            assert!(right.is_near(&twin(&pairs, Better::Lower, Flaw::None)));
            !right.is_near(&twin(&pairs, Better::Lower, flaw))
        });
        assert!(caught, "{flaw:?}");
    }
}

// ---- The A/A check: two samples of one policy, over tasks with several traces each.

/// SplitMix64, and what is drawn from it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The sum of twelve, less six: near enough to a normal number.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// The same treatment twice: what differs is chance, and traces of a task share a part of it.
fn split(random: &mut Random, n_tasks: usize) -> Vec<Paired> {
    let mut pairs = Vec::new();
    for task in 0..n_tasks {
        let size = 1 + random.next() % 6;
        let shared = 2.0 * (random.normal() - random.normal());
        for _ in 0..size {
            let baseline = 100.0 + 30.0 * random.unit() + random.normal();
            let value = baseline + shared + random.normal() - random.normal();
            pairs.push(Paired { task: task.to_string(), baseline, value });
        }
    }
    pairs
}

/// The share of A/A splits whose interval covers 0.
fn coverage(n_tasks: usize, interval: impl Fn(&[Paired]) -> Option<[f64; 2]>) -> f64 {
    const N: u32 = 600;
    let mut random = Random(2026);
    let covered = (0..N).filter(|_| {
        let [low, high] = interval(&split(&mut random, n_tasks)).expect("several tasks");
        low <= 0.0 && 0.0 <= high
    });
    covered.count() as f64 / f64::from(N)
}

fn is_honest(coverage: f64) -> bool {
    (0.925..=0.975).contains(&coverage)
}

const SOME: Resampling = Resampling { seed: 7, resamples: 1_000 };

#[test]
fn an_a_a_split_covers_zero_in_about_95_of_100_intervals() {
    let right = |pairs: &[Paired]| difference(pairs, Better::Lower, SOME)?.interval;
    for n_tasks in [8, 30] {
        let coverage = coverage(n_tasks, right);
        println!("A/A, {n_tasks} tasks: {:.1}% of intervals cover 0", coverage * 100.0);
        assert!(is_honest(coverage), "{n_tasks} tasks: {coverage}");
    }
}

#[test]
fn the_a_a_check_finds_intervals_that_are_too_narrow_or_too_wide() {
    type Wrong = fn(&[Paired]) -> Option<[f64; 2]>;
    let flaws: [(&str, Wrong); 3] = [
        ("traces are drawn, not tasks", |pairs| {
            let apart: Vec<Paired> =
                pairs.iter().enumerate().map(|(n, pair)| Paired { task: n.to_string(), ..pair.clone() }).collect();
            difference(&apart, Better::Lower, SOME)?.interval
        }),
        ("two thirds of its width", |pairs| {
            let it = difference(pairs, Better::Lower, SOME)?;
            it.interval.map(|ends| ends.map(|end| it.mean + (end - it.mean) / 1.5))
        }),
        ("twice its width", |pairs| {
            let it = difference(pairs, Better::Lower, SOME)?;
            it.interval.map(|ends| ends.map(|end| it.mean + (end - it.mean) * 2.0))
        }),
    ];
    for (what, wrong) in flaws {
        let coverage = coverage(30, wrong);
        assert!(!is_honest(coverage), "{what}: {coverage}");
    }
}

#[test]
fn where_nothing_differs_one_p_of_twenty_is_below_a_twentieth() {
    let mut random = Random(77);
    let below = (0..600).filter(|_| {
        let it = difference(&split(&mut random, 12), Better::Lower, Resampling { seed: 1, resamples: 500 });
        it.expect("pairs").p.expect("tasks") < 0.05
    });
    let share = below.count() as f64 / 600.0;
    assert!((0.03..=0.07).contains(&share), "{share}");
}

// ---- Rows.

fn row(policy: &str, trace: &str, task: Option<&str>, cost: f64) -> Row {
    Row {
        policy: policy.into(),
        trace: trace.into(),
        task: task.map(str::to_owned),
        window: Some(8_000),
        tokenizer: "words".into(),
        summarizer: "extractive".into(),
        cost_usd: Some(cost),
        input_tokens: (cost * 1e3) as u64,
        evidence_total: 10,
        evidence_in_view: 10,
        ..Row::default()
    }
}

fn study() -> Study {
    Study {
        baseline: "none".into(),
        primary: "cost_usd".into(),
        secondary: vec!["input_tokens".into(), "in_view".into()],
        exploratory: vec!["peak_tokens".into()],
        margin: None,
        resampling: QUICK,
    }
}

/// Twenty-four traces under `none`, under a policy that costs half and keeps less, and under one that changes nothing.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for n in 0..24u64 {
        let trace = format!("t{n}");
        let task = (n > 1).then(|| format!("task{}", n / 2));
        let of = |policy, cost| row(policy, &trace, task.as_deref(), cost);
        let cost = 1.0 + n as f64;
        rows.push(of("none", cost));
        rows.push(Row { evidence_in_view: 10 - n % 3, ..of("half", cost / 2.0) });
        rows.push(of("same", cost));
    }
    rows
}

#[test]
fn policies_are_compared_by_every_metric_and_only_tested_as_said() {
    let study = Study { margin: Some(0.1), resampling: Resampling::default(), ..study() };
    let findings = compare_rows(&rows(), &study).expect("a study");
    let of = |policy: &str, metric: &str| {
        findings.iter().find(|it| it.policy == policy && it.metric == metric).expect("a finding")
    };
    assert_eq!(findings.len(), 2 * 4);
    let cost = of("half", "cost_usd");
    let difference = cost.difference.as_ref().expect("pairs");
    assert_eq!((cost.role, cost.verdict, cost.p_adjusted), (Role::Primary, Verdict::Better, None));
    assert_eq!((difference.n_traces, difference.n_tasks, cost.without_task, cost.unpaired), (24, 13, 2, 0));
    assert_eq!((difference.mean, difference.wins), (-6.25, 24));
    assert_eq!(of("half", "in_view").verdict, Verdict::Worse);
    assert!(of("half", "in_view").p_adjusted >= of("half", "in_view").difference.as_ref().expect("pairs").p);
    assert_eq!(of("half", "peak_tokens").verdict, Verdict::Untested);
    assert_eq!(of("same", "cost_usd").verdict, Verdict::Equal);
    let without_margin = Study { margin: None, ..study };
    let findings = compare_rows(&rows(), &without_margin).expect("a study");
    let same = findings.iter().find(|it| it.policy == "same" && it.role == Role::Primary).expect("a finding");
    assert_eq!(same.verdict, Verdict::Undecided, "no margin, nothing equal");
}

#[test]
fn only_rows_of_one_trace_and_setting_are_paired() {
    let mut rows = rows();
    rows.push(row("half", "elsewhere", None, 1.0));
    rows.push(Row { window: Some(32_000), ..row("half", "t0", None, 100.0) });
    rows.push(Row { evidence_total: 0, evidence_in_view: 0, ..row("same", "t99", None, 1.0) });
    let findings = compare_rows(&rows, &study()).expect("a study");
    let of = |window, metric: &str| {
        let mut found = findings.iter().filter(|it| it.policy == "half" && it.metric == metric);
        found.find(|it| it.window == Some(window)).expect("a finding")
    };
    let paired = of(8_000, "cost_usd");
    assert_eq!(paired.difference.as_ref().expect("pairs").mean, -6.25);
    assert_eq!(paired.unpaired, 1);
    assert_eq!((of(32_000, "cost_usd").difference.as_ref(), of(32_000, "cost_usd").unpaired), (None, 1));
}

#[test]
fn seeds_of_one_trace_are_averaged_before_they_are_paired() {
    let mut rows: Vec<Row> = ["a", "b"].iter().map(|trace| row("none", trace, None, 4.0)).collect();
    for (trace, seed, cost) in [("a", 0, 1.0), ("a", 1, 3.0), ("b", 0, 2.0), ("b", 1, 2.0)] {
        rows.push(Row { seed, ..row("random-masking", trace, None, cost) });
    }
    let findings = compare_rows(&rows, &study()).expect("a study");
    let difference = findings[0].difference.as_ref().expect("pairs");
    assert_eq!((difference.n_traces, difference.mean), (2, -2.0));
}

#[test]
fn the_spread_between_samples_stands_beside_that_between_traces() {
    let mut rows = vec![row("none", "a", None, 9.0)];
    for (trace, cost) in [("a", 1.0), ("a", 3.0), ("b", 10.0), ("b", 14.0), ("c", 5.0)] {
        rows.push(row("llm-summarizing", trace, None, cost));
    }
    let spreads = spread(&rows, "cost_usd").expect("a metric");
    assert_eq!(spreads.len(), 1, "a policy with one sample of each trace has no spread between samples");
    let it = &spreads[0];
    assert_eq!((it.policy.as_str(), it.n_traces, it.n_samples), ("llm-summarizing", 2, 4));
    // Variances 2 and 8; means 2 and 12.
    assert!((it.between_samples - 5f64.sqrt()).abs() < 1e-12);
    assert!((it.between_traces.expect("two traces") - 50f64.sqrt()).abs() < 1e-12);
}

#[test]
fn a_study_that_cannot_be_made_says_what_to_name() {
    let check = |study: Study, expected: &str| {
        let error: StudyError = compare_rows(&rows(), &study).expect_err("no study");
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(Study { primary: "costs".into(), ..study() }, "no metric \"costs\"; known are cost_usd, in_view, ");
    check(Study { baseline: "all".into(), ..study() }, "no row has the policy \"all\"; name one of none, half, same");
    check(Study { exploratory: vec!["cost_usd".into()], ..study() }, "\"cost_usd\" is named twice");
    check(Study { margin: Some(0.0), ..study() }, "a margin is a number above 0, and not 0");
}
