//! The condenser: carries out what a policy decided, checks it, and hands back the record.
//!
//! A state machine without I/O. [`Condenser::begin`] gives a [`Step`]; where it needs a summary, the host asks its
//! model and answers. The record carries no id and no time: the log stamps it. Before a record is handed out:
//!
//! 1. it is legal: batches, loops and open calls stay whole. An illegal edit of a native policy is refused; that of
//!    a port is extended to its legal closure;
//! 2. pinned entries are untouched;
//! 3. the complete request gets strictly smaller;
//! 4. a summary is real: neither blank nor cut by its length limit;
//! 5. it lists exactly what was dealt with.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::condensation::{Condensation, Provenance, Rewrite};
use crate::event::EventId;
use crate::policy::{
    Edit, Failure, Frame, NoPlan, Plan, Policy, Requirement, State, SummarizeError, Summary, SummaryRequest,
};
use crate::request::Request;
use crate::tokens::Tokens;

/// Most tries on one state.
const MAX_TRIES: usize = 8;

/// Carries out what a policy decides.
#[derive(Clone, Copy, Debug)]
pub struct Condenser {
    /// Whether the guarantees are checked. Off only to run a port exactly as its original.
    pub guards: bool,
}

impl Default for Condenser {
    fn default() -> Self {
        Self { guards: true }
    }
}

/// Where a condensation stands.
#[derive(Debug)]
pub enum Step<'s> {
    /// A summary is needed: see [`Pending::request`], and go on with [`Pending::answer`].
    NeedSummary(Box<Pending<'s>>),
    /// It is over.
    Done(Outcome),
}

/// How a condensation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What came of it.
    pub result: OutcomeKind,
    /// What happened on the way.
    pub facts: OutcomeFacts,
}

/// What came of a condensation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OutcomeKind {
    /// A record, to be appended to the log.
    Applied(Box<Condensation>),
    /// There was no reason to act, or nothing to do.
    NothingToDo,
    /// Every plan would have made the request no smaller. It could still be sent as it is.
    NoGain,
    /// The plans failed for other reasons, and the request can still be sent.
    Failed,
    /// The request is over its limit and nothing made it smaller.
    Unachievable {
        /// Its size.
        tokens: Tokens,
        /// The limit.
        limit: Tokens,
    },
}

/// What happened on the way to an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutcomeFacts {
    /// What was tried and failed, oldest first.
    pub tried: Vec<Failure>,
    /// Why the policy had no further plan.
    pub no_plan: Option<NoPlan>,
    /// Entries that were added to the edit to make it legal.
    pub extended: u64,
    /// Calls of the summarizer, failed ones included.
    pub summarizer_calls: u64,
    /// Tokens those calls read.
    pub summarizer_input_tokens: Tokens,
    /// Tokens those calls wrote.
    pub summarizer_output_tokens: Tokens,
}

/// A condensation that waits for its summary.
#[derive(Debug)]
pub struct Pending<'s> {
    run: Run<'s>,
    edit: Edit,
    offset: usize,
    request: SummaryRequest,
    /// What the requests before this one gave.
    text: String,
}

impl<'s> Pending<'s> {
    /// What the summarizer is asked.
    pub fn request(&self) -> &SummaryRequest {
        &self.request
    }

    /// Goes on with the summarizer's answer. A failed call costs nothing: the policy is asked again.
    pub fn answer(mut self, answer: Result<Summary, SummarizeError>) -> Step<'s> {
        let facts = &mut self.run.facts;
        facts.summarizer_calls += 1;
        let summary = answer.and_then(|summary| {
            facts.summarizer_input_tokens += summary.input_tokens;
            facts.summarizer_output_tokens += summary.output_tokens;
            if summary.cut_by_length {
                Err(SummarizeError::CutByLength)
            } else if summary.text.trim().is_empty() {
                Err(SummarizeError::Empty)
            } else {
                Ok(summary)
            }
        });
        match summary {
            Err(error) => {
                self.run.facts.tried.push(Failure::Summarizer(error));
                self.run.go_on()
            }
            Ok(summary) => {
                let SummaryRequest { frame, prompt_version, .. } = self.request;
                let Frame { before, after, next } = frame.map_or_else(Frame::default, |frame| *frame);
                self.text.extend([before, summary.text, after]);
                if let Some(request) = next {
                    return Step::NeedSummary(Box::new(Self { request, ..self }));
                }
                self.edit.summary = Some((self.text, self.offset));
                let version = Some(prompt_version).filter(|version| !version.is_empty());
                self.run.carry_out(self.edit, summary.response_id, version)
            }
        }
    }
}

impl Condenser {
    /// Starts a condensation, if the policy sees a reason for one.
    pub fn begin<'s>(&self, policy: &'s dyn Policy, state: &'s State<'s>) -> Step<'s> {
        let requirement = policy.requirement(state);
        let run = Run { guards: self.guards, policy, state, requirement, facts: OutcomeFacts::default() };
        if run.requirement.is_some() { run.go_on() } else { run.end(OutcomeKind::NothingToDo) }
    }

    /// Runs a condensation to its end with a summarizer at hand.
    pub fn run(&self, policy: &dyn Policy, state: &State<'_>, summarizer: &dyn crate::policy::Summarizer) -> Outcome {
        let mut step = self.begin(policy, state);
        loop {
            match step {
                Step::Done(mut outcome) => {
                    if let OutcomeKind::Applied(record) = &mut outcome.result
                        && let Some(provenance) = &mut record.provenance
                        && provenance.summarizer_calls > 0
                    {
                        provenance.summarizer = Some(summarizer.name().to_owned());
                    }
                    return outcome;
                }
                Step::NeedSummary(pending) => {
                    let answer = summarizer.summarize(pending.request());
                    step = pending.answer(answer);
                }
            }
        }
    }
}

struct Run<'s> {
    guards: bool,
    policy: &'s dyn Policy,
    state: &'s State<'s>,
    requirement: Requirement,
    facts: OutcomeFacts,
}

impl std::fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run").field("policy", &self.policy.name()).field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl<'s> Run<'s> {
    fn end(self, result: OutcomeKind) -> Step<'s> {
        Step::Done(Outcome { result, facts: self.facts })
    }

    /// Asks the policy for its next plan and carries it out, until something is done or nothing is left.
    fn go_on(mut self) -> Step<'s> {
        while self.facts.tried.len() < MAX_TRIES {
            match self.policy.plan(self.state, &self.facts.tried) {
                Ok(Plan::Keep) => break,
                Err(no_plan) => {
                    self.facts.no_plan = Some(no_plan);
                    break;
                }
                Ok(Plan::Edit(edit)) => match self.record(edit, None, None) {
                    Ok(record) => return self.end(OutcomeKind::Applied(Box::new(record))),
                    Err(failure) => self.facts.tried.push(failure),
                },
                Ok(Plan::Summarize { edit, offset, request }) => {
                    return Step::NeedSummary(Box::new(Pending {
                        run: self,
                        edit,
                        offset,
                        request,
                        text: String::new(),
                    }));
                }
            }
        }
        let result = self.without_record();
        self.end(result)
    }

    fn carry_out(mut self, edit: Edit, response_id: Option<String>, prompt_version: Option<String>) -> Step<'s> {
        match self.record(edit, response_id, prompt_version) {
            Ok(record) => self.end(OutcomeKind::Applied(Box::new(record))),
            Err(failure) => {
                self.facts.tried.push(failure);
                self.go_on()
            }
        }
    }

    fn without_record(&self) -> OutcomeKind {
        let tokens = self.state.tokens();
        match self.state.budget.limit() {
            Some(limit) if tokens > limit && self.requirement.is_hard() => OutcomeKind::Unachievable { tokens, limit },
            _ if self.facts.tried.is_empty() => OutcomeKind::NothingToDo,
            _ if self.facts.tried.iter().all(|failure| matches!(failure, Failure::NoGain { .. })) => {
                OutcomeKind::NoGain
            }
            _ => OutcomeKind::Failed,
        }
    }

    /// Checks an edit and makes it a record.
    fn record(
        &mut self,
        mut edit: Edit,
        response_id: Option<String>,
        prompt_version: Option<String>,
    ) -> Result<Condensation, Failure> {
        let mut extended = 0;
        if self.guards {
            if self.policy.is_port() {
                extended = self.close(&mut edit);
            } else {
                self.check_legal(&edit)?;
            }
        }
        edit.rewrites.retain(|id, _| !edit.forget.contains(id));
        let (summary, summary_offset) = edit.summary.unzip();
        let mut record = Condensation {
            forgotten_event_ids: edit.forget,
            summary,
            summary_offset,
            llm_response_id: response_id,
            rewrites: edit.rewrites,
            ..Condensation::default()
        };
        let (before, after) = self.measure(&mut record);
        if self.guards && after >= before {
            return Err(Failure::NoGain { before, after });
        }
        self.facts.extended += extended;
        let facts = &self.facts;
        record.provenance = Some(Box::new(Provenance {
            policy: self.policy.name().to_owned(),
            reasons: self.requirement.reasons().iter().map(|reason| reason.name().to_owned()).collect(),
            tokens_before: Some(before.0),
            tokens_after: Some(after.0),
            counter: Some(self.state.sizer.counter().name().to_owned()),
            summarizer_calls: facts.summarizer_calls,
            summarizer_input_tokens: facts.summarizer_input_tokens.0,
            summarizer_output_tokens: facts.summarizer_output_tokens.0,
            prompt_version,
            fallbacks: edit.fallback.map(str::to_owned).into_iter().collect(),
            extended,
            basis: self.basis(),
            ..Provenance::default()
        }));
        Ok(record)
    }

    /// The newest event that the decision saw.
    fn basis(&self) -> Option<EventId> {
        let newest = self.state.view.n_pushed().checked_sub(1)?;
        self.state.bodies.event(newest).map(|event| event.id.clone())
    }

    /// Sizes of the complete request before and after; fills in the sizes of rewritten entries.
    fn measure(&self, record: &mut Condensation) -> (Tokens, Tokens) {
        let preview = self.state.view.preview(&EventId::new("preview"), record);
        let request = Request::build(&preview, self.state.bodies);
        if !record.rewrites.is_empty() {
            let sizes = request.entry_tokens(preview.len(), self.state.sizer);
            for (entry, size) in preview.iter().zip(sizes) {
                if let Some(rewrite) = record.rewrites.get_mut(entry.id()) {
                    rewrite.tokens = Some(size.0);
                }
            }
        }
        (self.state.counted(), request.tokens(self.state.sizer))
    }

    fn check_legal(&self, edit: &Edit) -> Result<(), Failure> {
        let view = self.state.view;
        let mut unknown: BTreeSet<&EventId> = edit.forget.iter().chain(edit.rewrites.keys()).collect();
        let mut pinned = Vec::new();
        let mut torn = Vec::new();
        let mut forgotten_groups: HashSet<u32> = HashSet::new();
        let mut kept_groups: HashMap<u32, Vec<EventId>> = HashMap::new();
        for entry in view.iter() {
            let is_forgotten = edit.forget.contains(entry.id());
            let is_rewritten = edit.rewrites.contains_key(entry.id());
            unknown.remove(entry.id());
            if entry.is_pinned() && (is_forgotten || is_rewritten) {
                pinned.push(entry.id().clone());
            } else if is_forgotten && entry.is_protected() {
                torn.push(entry.id().clone());
            }
            match entry.group() {
                Some(group) if is_forgotten => {
                    forgotten_groups.insert(group);
                }
                Some(group) => kept_groups.entry(group).or_default().push(entry.id().clone()),
                None => {}
            }
        }
        torn.extend(unknown.into_iter().cloned());
        torn.extend(
            kept_groups.into_iter().filter(|(group, _)| forgotten_groups.contains(group)).flat_map(|(_, ids)| ids),
        );
        torn.sort();
        if !pinned.is_empty() {
            Err(Failure::Pinned(pinned))
        } else if !torn.is_empty() {
            Err(Failure::Illegal(torn))
        } else {
            Ok(())
        }
    }

    /// Makes a port's edit legal: groups go whole or stay whole, protected ones stay. The entries added.
    fn close(&self, edit: &mut Edit) -> u64 {
        let view = self.state.view;
        let forgotten = |id: &EventId| edit.forget.contains(id);
        let touched: HashSet<u32> =
            view.iter().filter(|entry| forgotten(entry.id())).filter_map(|entry| entry.group()).collect();
        let mut closed = BTreeSet::new();
        let mut rewrites = BTreeMap::<EventId, Rewrite>::new();
        let mut added = 0;
        for entry in view.iter() {
            let goes = forgotten(entry.id());
            let goes_with = entry.group().is_some_and(|group| touched.contains(&group));
            if (goes || goes_with) && !entry.is_protected() {
                added += u64::from(!goes);
                closed.insert(entry.id().clone());
            } else if let Some(rewrite) = edit.rewrites.remove(entry.id())
                && !entry.is_pinned()
            {
                rewrites.insert(entry.id().clone(), rewrite);
            }
        }
        edit.forget = closed;
        edit.rewrites = rewrites;
        added
    }
}
