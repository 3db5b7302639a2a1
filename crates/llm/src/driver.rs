//! Drives a condensation to its outcome without blocking.

use std::future::Future;

use condenser::{Condenser, Outcome, OutcomeKind, Policy, State, Step, SummarizeError, Summary, SummaryRequest};

/// Writes summaries, some time later. Dropping the future gives up the call.
pub trait AsyncSummarizer: Send + Sync {
    /// The stable name, stored in the record.
    fn name(&self) -> &str;

    /// Answers a request.
    ///
    /// # Errors
    /// [`SummarizeError`] where there is no usable summary.
    fn summarize(&self, request: &SummaryRequest) -> impl Future<Output = Result<Summary, SummarizeError>> + Send;
}

/// Runs a condensation to its end: what [`Condenser::run`] does, waiting instead of blocking.
///
/// Dropping the future cancels the call in flight; nothing is recorded then. The state stays borrowed meanwhile, so a
/// host whose agent goes on decides on a snapshot ([`check_fresh`](condenser::check_fresh) says whether the record
/// may still be appended). The future is not `Send`, since a state counts lazily: run it where the state lives.
pub async fn condense<'s>(
    condenser: &Condenser<'s>,
    policy: &'s dyn Policy,
    state: &'s State<'s>,
    summarizer: &impl AsyncSummarizer,
) -> Outcome {
    let mut step = condenser.begin(policy, state);
    loop {
        match step {
            Step::NeedSummary(pending) => {
                let answer = summarizer.summarize(pending.request()).await;
                step = pending.answer(answer);
            }
            Step::Done(mut outcome) => {
                if let OutcomeKind::Applied(record) = &mut outcome.result
                    && let Some(provenance) = record.provenance.as_mut().filter(|it| it.summarizer_calls > 0)
                {
                    provenance.summarizer = Some(summarizer.name().to_owned());
                }
                return outcome;
            }
        }
    }
}
