//! Canaries: unguessable values planted in a trace, to see how many rounds of condensation they survive.
//!
//! [`plant`] puts canaries of eight kinds at chosen depths, the same for the same seed. Rules, constraints, goals,
//! preferences and corrections are said by the user; facts, near-duplicates and lists stand by turns in a message or in
//! a tool's result, at its beginning, middle or end. Wordings vary, and one in three canaries is said twice.
//!
//! A *round* of a canary is a condensation that came after it was planted. After each, [`Survival`] grades the request
//! as a probe is graded. Rounds are counted in records, so a policy that acts at every step passes through five of them
//! in five steps; [`CanaryCell::steps`] says how long its rounds took.

mod plant;
mod values;

use std::collections::HashMap;

use condenser::request::{Request, Sizer};
use condenser::tokens::Tokens;
use condenser::view::View;
use serde::Serialize;

use crate::probes::{Texts, grade, recalled};
use crate::replay::Seen;
use crate::row::Status;
use crate::trace::{Held, Log, Prepared};

pub use plant::{Canary, PlantError, Planted, Planting, plant};

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CanaryKind {
    /// What must never be done. Its polarity has to survive with it.
    SafetyRule,
    /// A bound that must be kept. Its polarity has to survive with it.
    HardConstraint,
    /// A fact of the environment.
    Fact,
    /// When the work is done: two values.
    GoalState,
    /// What the user likes better.
    Preference,
    /// A value that takes the place of an earlier one, which must not stand alone.
    Correction,
    /// Two values that differ in one character. Both have to survive.
    NearDuplicates,
    /// Five values. All have to survive, in one text and in their order.
    ExactList,
}

impl CanaryKind {
    /// All kinds, in the order of the tables.
    pub const ALL: [Self; 8] = [
        Self::SafetyRule,
        Self::HardConstraint,
        Self::Fact,
        Self::GoalState,
        Self::Preference,
        Self::Correction,
        Self::NearDuplicates,
        Self::ExactList,
    ];

    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SafetyRule => "safety_rule",
            Self::HardConstraint => "hard_constraint",
            Self::Fact => "fact",
            Self::GoalState => "goal_state",
            Self::Preference => "preference",
            Self::Correction => "correction",
            Self::NearDuplicates => "near_duplicates",
            Self::ExactList => "exact_list",
        }
    }
}

/// How canaries of one kind stood after one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CanaryCell {
    /// The kind.
    pub kind: CanaryKind,
    /// The round, from 1.
    pub round: u32,
    /// Canaries that went through it.
    pub n: u64,
    /// Of these, all of it in entries that are no summaries.
    pub in_view: u64,
    /// Of the others, all of it in the request.
    pub in_summary: u64,
    /// Of the others, the rest behind addresses in the request.
    pub recoverable: u64,
    /// The rest.
    pub lost: u64,
    /// Of all, those whose superseded value stands alone or in a summary.
    pub stale: u64,
    /// The steps since planting, all canaries together.
    pub steps: u64,
}

impl CanaryCell {
    fn new(kind: CanaryKind, round: u32) -> Self {
        Self { kind, round, n: 0, in_view: 0, in_summary: 0, recoverable: 0, lost: 0, stale: 0, steps: 0 }
    }

    /// The share that the agent still has before it, in view or in a summary; `None` where none went through the round.
    pub fn survived(&self) -> Option<f64> {
        (self.n > 0).then(|| (self.in_view + self.in_summary) as f64 / self.n as f64)
    }

    /// Adds the canaries of another trace or seed.
    pub fn add(&mut self, other: &Self) {
        self.n += other.n;
        self.in_view += other.in_view;
        self.in_summary += other.in_summary;
        self.recoverable += other.recoverable;
        self.lost += other.lost;
        self.stale += other.stale;
        self.steps += other.steps;
    }
}

/// The first round after which less than half of a kind survives; `None`: not within the rounds that there were.
pub fn first_under_half(cells: &[CanaryCell], kind: CanaryKind) -> Option<u32> {
    let of_kind = cells.iter().filter(|cell| cell.kind == kind);
    of_kind.filter(|cell| cell.survived().is_some_and(|share| share < 0.5)).map(|cell| cell.round).min()
}

/// Follows canaries through one replay.
#[derive(Debug)]
pub struct Survival<'p> {
    prepared: &'p Prepared<'p>,
    followed: Vec<Followed<'p>>,
    cells: Vec<CanaryCell>,
    rounds: u32,
}

#[derive(Debug)]
struct Followed<'p> {
    canary: &'p Canary,
    /// The first step with all of it in its request under `none`.
    step: usize,
    sources: Vec<usize>,
    round: u32,
}

impl<'p> Survival<'p> {
    /// Follows the canaries through this many rounds. `prepared` is made of the planted events.
    pub fn new(prepared: &'p Prepared<'p>, canaries: &'p [Canary], rounds: u32) -> Self {
        let followed = canaries.iter().filter_map(|canary| {
            let sources: Vec<usize> = canary.sources.iter().filter_map(|id| prepared.by_id.get(id).copied()).collect();
            let last = *sources.iter().max()?;
            let step = prepared.steps.iter().position(|step| step.events.start > last)?;
            Some(Followed { canary, step, sources, round: 0 })
        });
        let followed = followed.collect();
        let all = CanaryKind::ALL.into_iter();
        let cells = all.flat_map(|kind| (1..=rounds).map(move |round| CanaryCell::new(kind, round))).collect();
        Self { prepared, followed, cells, rounds }
    }

    /// Grades the canaries where a condensation came before this step.
    pub fn see(&mut self, seen: &Seen<'_>) {
        if seen.record.is_none() {
            return;
        }
        let texts = Texts::of(seen);
        let addressed = texts.addressed(&self.prepared.by_id);
        for followed in &mut self.followed {
            if followed.step > seen.step || followed.round == self.rounds {
                continue;
            }
            followed.round += 1;
            let canary = followed.canary;
            let behind = recalled(self.prepared, &addressed, &followed.sources);
            let grade = grade(&canary.units, &canary.stale, &texts, &behind);
            let at = |cell: &&mut CanaryCell| cell.kind == canary.kind && cell.round == followed.round;
            let Some(cell) = self.cells.iter_mut().find(at) else { continue };
            cell.n += 1;
            *match grade.status {
                Status::InView => &mut cell.in_view,
                Status::InSummary => &mut cell.in_summary,
                Status::Recoverable => &mut cell.recoverable,
                Status::Lost => &mut cell.lost,
            } += 1;
            cell.stale += u64::from(grade.stale.is_failure());
            cell.steps += (seen.step - followed.step) as u64;
        }
    }

    /// Every kind and round, also those that no canary went through.
    pub fn cells(self) -> Vec<CanaryCell> {
        self.cells
    }
}

/// The size of a trace's last request under `none`: what shares of a trace are taken of.
pub fn full_tokens(prepared: &Prepared<'_>) -> Tokens {
    let Some(last) = prepared.steps.last() else { return Tokens::ZERO };
    let mut log = Log::default();
    let mut view = View::new(prepared.rules);
    for event in &prepared.events[..last.events.start] {
        view.push(*event);
        log.push(Held::Trace(event));
    }
    Request::build(&view, &log).tokens(&Sizer::new(&prepared.counter))
}

/// Adds up cells of equal kind and round, in the order of the first list.
pub fn add_cells(all: impl IntoIterator<Item = CanaryCell>) -> Vec<CanaryCell> {
    let mut sums: Vec<CanaryCell> = Vec::new();
    let mut places: HashMap<(CanaryKind, u32), usize> = HashMap::new();
    for cell in all {
        match places.get(&(cell.kind, cell.round)) {
            Some(&at) => sums[at].add(&cell),
            None => {
                places.insert((cell.kind, cell.round), sums.len());
                sums.push(cell);
            }
        }
    }
    sums
}
