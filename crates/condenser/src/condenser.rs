//! The condenser: carries out what a policy decided, checks it, and hands back the record.
//!
//! A state machine without I/O. [`Condenser::begin`] gives a [`Step`]; where it needs a summary, the host asks its
//! model and answers. The record carries no id and no time: the log stamps it. Whoever the policy and the summarizer
//! are, it ends in a smaller valid request or in nothing changed. Before a record is handed out:
//!
//! 1. it is legal: batches, loops and open calls stay whole. An illegal edit of a native policy is refused; that of
//!    a port is extended to its legal closure, and counted;
//! 2. pinned entries are untouched, byte for byte, and their digest stands in the record;
//! 3. the complete request gets strictly smaller;
//! 4. a summary is real: not blank, not cut by length, no tool call, within its limit, without the fences of its
//!    input, and without secrets;
//! 5. it lists exactly what is dealt with;
//! 6. it names its basis, so that a stale one is known ([`check_fresh`](crate::check_fresh));
//! 7. tries are bounded. A failed attempt waits for growth ([`Attempts`]), also after a restart: the host appends what
//!    [`Outcome::refusal`] gives;
//! 8. where the request does not fit and the policy has no further plan, the fallbacks are asked in order, and the
//!    record names them.

use std::collections::BTreeSet;

use crate::attempts::{Attempts, MAX_OVERFLOWS};
use crate::condensation::{Condensation, Provenance};
use crate::event::{CondensationFailed, EventId};
use crate::guard::{self, Closed};
use crate::policy::{
    Edit, Failure, Frame, NoPlan, Plan, Policy, Reason, Requirement, State, SummarizeError, Summary, SummaryRequest,
};
use crate::recall::Redact;
use crate::tokens::Tokens;

pub use crate::guard::{digest, pinned_digest};

/// Most tries of one policy on one state.
const MAX_TRIES: usize = 8;
/// Characters of a foreign message that a recorded reason repeats.
const EXCERPT: usize = 200;

/// Where a host takes part.
pub trait Hooks: Send + Sync {
    /// Before a policy that wants to act is asked for its plan.
    ///
    /// # Errors
    /// The reason why there is to be no condensation now.
    fn before(&self, state: &State<'_>, requirement: &Requirement) -> Result<(), String> {
        let _ = (state, requirement);
        Ok(())
    }

    /// With a record that is about to be handed out: the place to archive what leaves.
    ///
    /// # Errors
    /// Why the record must not be used. Nothing is lost then: it is as if the condensation had failed.
    fn after(&self, state: &State<'_>, record: &Condensation) -> Result<(), String> {
        let _ = (state, record);
        Ok(())
    }

    /// What the next summary should care about, added to what the log asks for.
    fn guidance(&self, state: &State<'_>) -> Option<String> {
        let _ = state;
        None
    }
}

/// Carries out what a policy decides.
#[derive(Clone, Copy)]
pub struct Condenser<'h> {
    /// Whether the guarantees are checked. Off only to run a port exactly as its original.
    pub guards: bool,
    /// Where the host takes part.
    pub hooks: Option<&'h dyn Hooks>,
    /// Takes secrets out of what the summarizer is shown, and out of every summary.
    pub redact: Option<&'h dyn Redact>,
    /// Asked in order while the request does not fit and nothing before has helped.
    pub fallbacks: &'h [&'h dyn Policy],
}

impl Default for Condenser<'_> {
    fn default() -> Self {
        Self { guards: true, hooks: None, redact: None, fallbacks: &[] }
    }
}

impl std::fmt::Debug for Condenser<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fallbacks: Vec<&str> = self.fallbacks.iter().map(|policy| policy.name()).collect();
        f.debug_struct("Condenser").field("guards", &self.guards).field("fallbacks", &fallbacks).finish_non_exhaustive()
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
    /// There was no reason to act, or nothing to do, or it is too early for another attempt.
    NothingToDo,
    /// Every plan would have made the request no smaller. It could still be sent as it is.
    NoGain,
    /// The plans failed for other reasons, and the request can still be sent.
    Failed,
    /// The request is over its limit and nothing made it small enough.
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
    /// The policy.
    pub policy: String,
    /// The size of the complete request; `None` where there was no reason to look.
    pub tokens: Option<Tokens>,
    /// What was tried and failed, oldest first.
    pub tried: Vec<Failure>,
    /// Why the policy had no further plan.
    pub no_plan: Option<NoPlan>,
    /// Nothing was tried: the request has to grow to this size first.
    pub waits_for: Option<Tokens>,
    /// Of a request that could not be made small enough: its largest entries.
    pub largest: Vec<(EventId, Tokens)>,
    /// Entries that were added to the edit to make it legal.
    pub extended: u64,
    /// Calls of the summarizer, failed ones included.
    pub summarizer_calls: u64,
    /// Tokens those calls read.
    pub summarizer_input_tokens: Tokens,
    /// Tokens those calls wrote.
    pub summarizer_output_tokens: Tokens,
    /// Whether the policy had to act.
    is_hard: bool,
}

impl OutcomeFacts {
    fn is_cancelled(&self) -> bool {
        matches!(self.tried.last(), Some(Failure::Summarizer(SummarizeError::Cancelled)))
    }

    /// Whether the host itself ended it.
    fn is_stopped(&self) -> bool {
        self.is_cancelled() || matches!(self.tried.last(), Some(Failure::Hook(_)))
    }
}

impl Outcome {
    /// The event that says so, where an attempt came to nothing; the host appends it. `None` where there is a record,
    /// nothing was attempted, or the host gave up itself.
    pub fn refusal(&self) -> Option<CondensationFailed> {
        let facts = &self.facts;
        let was_attempted = !facts.tried.is_empty() || facts.is_hard;
        let is_over = matches!(self.result, OutcomeKind::Applied(_)) || facts.waits_for.is_some();
        if is_over || !was_attempted || facts.is_cancelled() {
            return None;
        }
        Some(CondensationFailed {
            policy: facts.policy.clone(),
            reason: self.explain(),
            tokens_before: facts.tokens.map(|tokens| tokens.0),
            limit: match self.result {
                OutcomeKind::Unachievable { limit, .. } => Some(limit.0),
                _ => None,
            },
        })
    }

    /// What came of it, from the facts: sizes, what was tried, the largest entries by id.
    pub fn explain(&self) -> String {
        let facts = &self.facts;
        let mut text = match &self.result {
            OutcomeKind::Applied(record) => {
                let size = |tokens: Option<u64>| tokens.map_or("?".to_owned(), |tokens| tokens.to_string());
                let provenance = record.provenance.as_deref();
                return format!(
                    "condensed from {} to {} tokens: {} entries forgotten, {} rewritten",
                    size(provenance.and_then(|provenance| provenance.tokens_before)),
                    size(provenance.and_then(|provenance| provenance.tokens_after)),
                    record.forgotten_event_ids.len(),
                    record.rewrites.len(),
                );
            }
            OutcomeKind::NothingToDo => "nothing to do".to_owned(),
            OutcomeKind::NoGain => "no plan makes the request smaller".to_owned(),
            OutcomeKind::Failed => "every plan failed".to_owned(),
            OutcomeKind::Unachievable { tokens, limit } => {
                format!("the request has {tokens} tokens, {limit} is the most, and nothing makes it small enough")
            }
        };
        if let Some(until) = facts.waits_for {
            text.push_str(&format!("; not tried again before the request has {until} tokens"));
        }
        let mut said: Vec<String> = Vec::new();
        for failure in &facts.tried {
            let failure = failure.to_string();
            let failure = crate::condensation::clip(&failure, EXCERPT, 0).unwrap_or(failure);
            if !said.contains(&failure) {
                said.push(failure);
            }
        }
        said.extend(facts.no_plan.map(|no_plan| no_plan.to_string()));
        if !said.is_empty() {
            text.push_str(&format!("; {} tried: {}", facts.tried.len(), said.join("; ")));
        }
        if !facts.largest.is_empty() {
            let largest: Vec<String> = facts.largest.iter().map(|(id, tokens)| format!("{id} ({tokens})")).collect();
            text.push_str(&format!("; the largest entries are {}", largest.join(", ")));
        }
        text
    }
}

/// A condensation that waits for its summary. Dropping it records nothing.
#[derive(Debug)]
pub struct Pending<'s> {
    run: Run<'s>,
    edit: Edit,
    offset: usize,
    request: SummaryRequest,
    /// What the requests before this one gave, and which events they held.
    text: String,
    seen: BTreeSet<EventId>,
}

impl<'s> Pending<'s> {
    /// What the summarizer is asked. It offers no tools, unless the request asks for a call.
    pub fn request(&self) -> &SummaryRequest {
        &self.request
    }

    /// Goes on with the summarizer's answer. A failed call costs nothing: the policy is asked again.
    pub fn answer(mut self, answer: Result<Summary, SummarizeError>) -> Step<'s> {
        let run = &mut self.run;
        run.facts.summarizer_calls += 1;
        let summary = answer.and_then(|mut summary| {
            run.facts.summarizer_input_tokens += summary.input_tokens;
            run.facts.summarizer_output_tokens += summary.output_tokens;
            if run.host.guards {
                summary.text = guard::real(&summary, &self.request, run.state)?;
            }
            Ok(summary)
        });
        match summary {
            Err(error) => {
                run.facts.tried.push(Failure::Summarizer(error));
                self.run.go_on()
            }
            Ok(summary) => {
                let SummaryRequest { frame, events, prompt_version, .. } = self.request;
                let Frame { before, after, next } = frame.map_or_else(Frame::default, |frame| *frame);
                self.text.extend([before, summary.text, after]);
                self.seen.extend(events.into_iter().map(|(id, _)| id));
                if let Some(mut request) = next {
                    if self.run.host.guards {
                        self.run.prepare(&mut request);
                    }
                    return Step::NeedSummary(Box::new(Self { request, ..self }));
                }
                self.edit.summary = Some((self.text, self.offset));
                let version = Some(prompt_version).filter(|version| !version.is_empty());
                let summarized = Summarized { response_id: summary.response_id, version, seen: self.seen };
                self.run.carry_out(self.edit, Some(summarized))
            }
        }
    }
}

/// What is known of a summary besides its text.
#[derive(Debug)]
struct Summarized {
    response_id: Option<String>,
    version: Option<String>,
    seen: BTreeSet<EventId>,
}

impl<'h> Condenser<'h> {
    /// A condenser that checks nothing: it runs a port exactly as its original.
    pub fn unguarded() -> Self {
        Self { guards: false, ..Self::default() }
    }

    /// Starts a condensation, if the policy sees a reason for one.
    pub fn begin<'s>(&self, policy: &'s dyn Policy, state: &'s State<'s>) -> Step<'s>
    where
        'h: 's,
    {
        let mut requirement = policy.requirement(state);
        let overflow = state.overflow();
        if overflow.is_some() {
            requirement = Requirement::Hard([requirement.reasons(), &[Reason::Overflow]].concat());
        }
        let facts = OutcomeFacts { policy: policy.name().to_owned(), ..OutcomeFacts::default() };
        let mut run = Run {
            host: *self,
            policy,
            next_fallback: 0,
            n_before: 0,
            state,
            requirement,
            redacted: 0,
            fallbacks: Vec::new(),
            facts,
        };
        if !run.requirement.is_some() {
            return run.end(OutcomeKind::NothingToDo);
        }
        run.facts.tokens = Some(state.tokens());
        run.facts.is_hard = run.requirement.is_hard();
        if !self.guards {
            return run.go_on();
        }
        match overflow {
            Some(overflow) if overflow.in_a_row > MAX_OVERFLOWS => return run.give_up(),
            Some(_) => {}
            None => {
                run.facts.waits_for = Attempts::of(state).wait(state, &run.requirement);
                if run.facts.waits_for.is_some() {
                    return run.give_up();
                }
            }
        }
        if let Some(Err(reason)) = self.hooks.map(|hooks| hooks.before(state, &run.requirement)) {
            run.facts.tried.push(Failure::Hook(reason));
            return run.give_up();
        }
        run.go_on()
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
    host: Condenser<'s>,
    /// Whom is asked now: the policy, then its fallbacks.
    policy: &'s dyn Policy,
    next_fallback: usize,
    /// Failures of those who were asked before.
    n_before: usize,
    state: &'s State<'s>,
    requirement: Requirement,
    redacted: u64,
    /// The fallbacks that were asked, by name.
    fallbacks: Vec<String>,
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

    /// The most tokens that the request may have.
    fn most(&self) -> Option<Tokens> {
        self.state.overflow().map(|overflow| overflow.most).or(self.state.budgets.request.tokens)
    }

    fn is_too_large(&self) -> bool {
        self.most().is_some_and(|most| self.state.tokens() > most)
    }

    /// Asks the policy for its next plan and carries it out, until something is done or nothing is left.
    fn go_on(mut self) -> Step<'s> {
        loop {
            if self.facts.is_stopped() {
                return self.give_up();
            }
            let tried = &self.facts.tried[self.n_before..];
            let plan =
                if tried.len() < MAX_TRIES { self.policy.plan(self.state, tried) } else { Err(NoPlan::Exhausted) };
            match plan {
                Ok(Plan::Edit(edit)) => match self.record(edit, None) {
                    Ok(record) => return self.end(OutcomeKind::Applied(Box::new(record))),
                    Err(failure) => self.facts.tried.push(failure),
                },
                Ok(Plan::Summarize { edit, offset, mut request }) => {
                    if self.host.guards {
                        if !self.policy.is_port()
                            && let Err(failure) = guard::check_legal(self.state, &edit)
                        {
                            self.facts.tried.push(failure);
                            continue;
                        }
                        self.prepare(&mut request);
                    }
                    let (text, seen) = (String::new(), BTreeSet::new());
                    return Step::NeedSummary(Box::new(Pending { run: self, edit, offset, request, text, seen }));
                }
                none => {
                    self.facts.no_plan = self.facts.no_plan.or(none.err());
                    if !self.fall_back() {
                        return self.give_up();
                    }
                }
            }
        }
    }

    /// Turns to the next fallback, where the request does not fit and there is one.
    fn fall_back(&mut self) -> bool {
        let Some(next) = self.host.fallbacks.get(self.next_fallback) else { return false };
        if !self.host.guards || !self.is_too_large() {
            return false;
        }
        self.policy = *next;
        self.next_fallback += 1;
        self.n_before = self.facts.tried.len();
        self.fallbacks.push(next.name().to_owned());
        true
    }

    /// Adds the host's guidance, and takes secrets out of what the summarizer is shown.
    fn prepare(&mut self, request: &mut SummaryRequest) {
        if let Some(guidance) = self.host.hooks.and_then(|hooks| hooks.guidance(self.state)) {
            request.guidance = Some(match request.guidance.take() {
                Some(asked) => format!("{asked}\n{guidance}"),
                None => guidance,
            });
        }
        let texts = request.events.iter_mut().chain(&mut request.kept).map(|(_, text)| text);
        for text in texts.chain(&mut request.previous).chain(&mut request.guidance) {
            self.redact(text);
        }
        self.redact(&mut request.instructions);
    }

    fn redact(&mut self, text: &mut String) {
        let Some(redact) = self.host.redact else { return };
        let (redacted, n) = redact.redact(text);
        if n > 0 {
            self.redacted += n as u64;
            *text = redacted.into_owned();
        }
    }

    fn carry_out(mut self, edit: Edit, summarized: Option<Summarized>) -> Step<'s> {
        match self.record(edit, summarized) {
            Ok(record) => self.end(OutcomeKind::Applied(Box::new(record))),
            Err(failure) => {
                self.facts.tried.push(failure);
                self.go_on()
            }
        }
    }

    /// Ends without a record.
    fn give_up(mut self) -> Step<'s> {
        let tokens = self.state.tokens();
        let result = match self.most() {
            Some(limit) if self.requirement.is_hard() && self.is_too_large() => {
                let mut largest: Vec<_> = self.state.view.ids().zip(self.state.entry_tokens()).collect();
                largest.sort_by_key(|(_, tokens)| std::cmp::Reverse(**tokens));
                self.facts.largest = largest.into_iter().take(3).map(|(id, tokens)| (id.clone(), *tokens)).collect();
                OutcomeKind::Unachievable { tokens, limit }
            }
            _ if self.facts.tried.is_empty() => OutcomeKind::NothingToDo,
            _ if self.facts.tried.iter().all(|failure| matches!(failure, Failure::NoGain { .. })) => {
                OutcomeKind::NoGain
            }
            _ => OutcomeKind::Failed,
        };
        self.end(result)
    }

    /// Checks an edit and makes it a record.
    fn record(&mut self, mut edit: Edit, summarized: Option<Summarized>) -> Result<Condensation, Failure> {
        let state = self.state;
        let guards = self.host.guards;
        let mut closed = Closed::default();
        if guards {
            if self.policy.is_port() {
                closed = guard::close(state, &mut edit);
            } else {
                guard::check_legal(state, &edit)?;
            }
            if let Some((summary, offset)) = &mut edit.summary {
                self.redact(summary);
                // An offset past the end means the end of the view that was decided on, whatever comes behind it.
                *offset = (*offset).min(state.view.len() - edit.forget.len().min(state.view.len()));
            }
        }
        edit.rewrites.retain(|id, _| !edit.forget.contains(id));
        let images = guard::images(state, &edit.forget);
        let (summary, summary_offset) = edit.summary.unzip();
        let (response_id, prompt_version, seen) = match summarized {
            Some(summarized) => (summarized.response_id, summarized.version, Some(summarized.seen)),
            None => (None, None, None),
        };
        let is_unseen = |id: &&EventId| seen.as_ref().is_some_and(|seen| !seen.is_empty() && !seen.contains(*id));
        let entries = state.view.iter().filter(|entry| !entry.is_summary() && edit.forget.contains(entry.id()));
        let unseen: BTreeSet<EventId> = entries.map(|entry| entry.id()).filter(is_unseen).cloned().collect();
        let mut record = Condensation {
            forgotten_event_ids: edit.forget,
            summary,
            summary_offset,
            llm_response_id: response_id,
            rewrites: edit.rewrites,
            ..Condensation::default()
        };
        let (before, after) = self.measure(&mut record)?;
        if guards && after >= before {
            return Err(Failure::NoGain { before, after });
        }
        if let Some(overflow) = state.overflow()
            && guards
            && after > overflow.most
        {
            return Err(Failure::TooLarge { after, most: overflow.most });
        }
        self.facts.extended += closed.extended;
        let facts = &self.facts;
        record.provenance = Some(Box::new(Provenance {
            policy: facts.policy.clone(),
            config_digest: self.policy.config_digest(),
            reasons: self.requirement.reasons().iter().map(|reason| reason.name().to_owned()).collect(),
            tokens_before: Some(before.0),
            tokens_after: Some(after.0),
            counter: Some(state.sizer.counter().name().to_owned()),
            pinned_digest: pinned_digest(state.view, state.bodies),
            summarizer_calls: facts.summarizer_calls,
            summarizer_input_tokens: facts.summarizer_input_tokens.0,
            summarizer_output_tokens: facts.summarizer_output_tokens.0,
            prompt_version,
            fallbacks: self.fallbacks.iter().cloned().chain(edit.fallback.map(str::to_owned)).collect(),
            extended: closed.extended,
            clamped: closed.clamped,
            unseen,
            images,
            redacted: self.redacted,
            basis: self.basis(),
            ..Provenance::default()
        }));
        match self.host.hooks.filter(|_| guards).map(|hooks| hooks.after(state, &record)) {
            Some(Err(reason)) => Err(Failure::Hook(reason)),
            _ => Ok(record),
        }
    }

    /// The newest event that the decision saw.
    fn basis(&self) -> Option<EventId> {
        let newest = self.state.view.n_pushed().checked_sub(1)?;
        self.state.bodies.event(newest).map(|event| event.id.clone())
    }

    /// Sizes of the complete request before and after; fills in the sizes of rewritten entries. The view is asked what
    /// the record does to it: exactly what it lists, and nothing to pinned entries.
    fn measure(&self, record: &mut Condensation) -> Result<(Tokens, Tokens), Failure> {
        let state = self.state;
        let preview = state.view.preview(&EventId::new("preview"), record);
        if self.host.guards {
            let n_left = preview.len() - usize::from(record.shown_summary().is_some());
            if n_left + record.forgotten_event_ids.len() != state.view.len() {
                return Err(Failure::Illegal(record.forgotten_event_ids.iter().cloned().collect()));
            }
            if pinned_digest(&preview, state.bodies) != pinned_digest(state.view, state.bodies) {
                let pinned = state.view.iter().filter(|entry| entry.is_pinned());
                return Err(Failure::Pinned(pinned.map(|entry| entry.id().clone()).collect()));
            }
        }
        let before = state.counted();
        let (after, sizes) = state.sizer.sizes(&preview, state.bodies);
        for (entry, size) in preview.iter().zip(sizes) {
            if let Some(rewrite) = record.rewrites.get_mut(entry.id()) {
                rewrite.tokens = Some(size.0);
            }
        }
        Ok((before, after))
    }
}
