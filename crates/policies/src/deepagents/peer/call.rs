//! One call of the model, from the raw list to an answer or the end.

use serde_json::{Value, json};

use super::event::without_bound_reasoning;
use super::{
    Arguments, Backend, Clause, Clip, Counter, Size, Thrown, clip, cutoff, effective, is_met, offload, reported,
    summary_frame, summary_message, translate,
};

/// Why a call of the model failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("the model's call failed: {text}")]
pub struct CallError {
    /// Whether it is of the class for requests that are too long.
    pub is_overflow: bool,
    /// The HTTP status, where there is one.
    pub status: Option<u16>,
    /// What it says.
    pub text: String,
}

/// What says that a request is too long.
const PHRASES: [&str; 14] = [
    "context_length_exceeded",
    "context length exceeded",
    "context window",
    "maximum context length",
    "prompt is too long",
    "prompt too long",
    "input is too long",
    "input too long",
    "too many tokens",
    "exceeds the maximum number of tokens",
    "exceed context limit",
    "request_too_large",
    "request too large",
    "reduce the length of the messages",
];

/// Whether the provider refused the request as too long.
pub fn is_overflow(error: &CallError) -> bool {
    let text = error.text.to_lowercase();
    error.is_overflow
        || matches!(error.status, Some(400 | 413 | 422)) && PHRASES.iter().any(|phrase| text.contains(phrase))
}

/// Whom the original calls.
pub trait Handler {
    /// The model, with the messages behind the system message.
    ///
    /// # Errors
    /// [`CallError`].
    fn call(&mut self, messages: &[Value]) -> Result<(), CallError>;

    /// The summarizer's answer.
    fn summarize(&mut self, messages: &[Value]) -> String;
}

/// How a call ended without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Exhausted {
    /// The provider still refuses the request, or it could not be made smaller.
    #[error("the request still does not fit after all that can be done")]
    StillRefused,
    /// The request is known to be too large.
    #[error("the request is above its budget after all that can be done: {tokens} of {budget} tokens")]
    AboveBudget {
        /// Its size.
        tokens: u64,
        /// The most it may be.
        budget: u64,
    },
    /// The model failed otherwise.
    #[error(transparent)]
    Call(CallError),
    /// The backend threw where the original does not catch it.
    #[error(transparent)]
    Backend(Thrown),
}

/// What is stored between calls.
#[derive(Clone, Copy, Debug)]
pub struct State<'s> {
    /// All messages.
    pub raw: &'s [Value],
    /// The newest event.
    pub event: Option<&'s Value>,
    /// The name of the history file.
    pub session: Option<&'s str>,
    /// The system message, which is none of the list.
    pub system: Option<&'s Value>,
}

/// A compaction that was attempted.
#[derive(Clone, Debug, PartialEq)]
pub struct Summarized {
    /// The new event.
    pub event: Value,
    /// The name of the history file.
    pub session: String,
    /// How many of the effective list it stands for.
    pub cutoff: usize,
    /// The messages that went to the history.
    pub offloaded: Vec<Value>,
}

/// What one call did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// The lists that were sent, in order.
    pub calls: Vec<Vec<Value>>,
    /// The compaction, stored only if `end` is none.
    pub summarized: Option<Summarized>,
    /// Results that replace stored ones, likewise.
    pub replaced: Vec<Value>,
    /// Why there is no answer.
    pub end: Option<Exhausted>,
}

/// The middleware with its settings.
pub struct Middleware<'m> {
    /// When to summarize.
    pub trigger: &'m [Clause],
    /// What stays.
    pub keep: Size,
    /// The truncation of arguments.
    pub arguments: Option<&'m Arguments>,
    /// The clipping of the tail.
    pub clip: &'m Clip,
    /// The model's input limit.
    pub limit: Option<u64>,
    /// The most tokens of a request.
    pub budget: Option<u64>,
    /// The model's provider.
    pub provider: Option<&'m str>,
    /// Sizes.
    pub counter: &'m dyn Counter,
}

impl std::fmt::Debug for Middleware<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Middleware").field("trigger", &self.trigger).field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl Middleware<'_> {
    /// One call of the model.
    pub fn wrap(&self, state: &State<'_>, handler: &mut dyn Handler, backend: &mut dyn Backend) -> Done {
        let mut done = Done::default();
        done.end = self.run(state, handler, backend, &mut done).err();
        if done.end.is_some() {
            done.replaced.clear();
        }
        done
    }

    fn count(&self, state: &State<'_>, messages: &[Value]) -> u64 {
        let all: Vec<Value> = state.system.into_iter().chain(messages).cloned().collect();
        self.counter.scaled(&all)
    }

    fn run(
        &self,
        state: &State<'_>,
        handler: &mut dyn Handler,
        backend: &mut dyn Backend,
        done: &mut Done,
    ) -> Result<(), Exhausted> {
        let mut list = effective(state.raw, state.event);
        let mut tokens = self.count(state, &list);
        if let Some(arguments) = self.arguments.filter(|it| it.is_due(list.len(), tokens, self.limit)) {
            let (cut, changed) = arguments.cut(&list, self.limit, self.counter);
            if !changed.is_empty() {
                tokens = self.count(state, &cut);
                list = cut;
            }
        }
        let is_due = is_met(self.trigger, list.len(), tokens, reported(&list, self.provider), self.limit);
        let is_over = self.budget.is_some_and(|budget| tokens > budget);
        let mut refused = None;
        if !is_due && !is_over {
            match send(&list, handler, done) {
                Ok(()) => return Ok(()),
                Err(error) if is_overflow(&error) => refused = Some(tokens),
                Err(error) => return Err(Exhausted::Call(error)),
            }
        }
        let at = cutoff(&list, self.keep, self.limit, self.counter);
        if at > 0 {
            let summarized = self.summarize(state, &list[..at], handler, backend);
            let rest = list.split_off(at);
            list = vec![summarized.event["summary_message"].clone()];
            list.extend(rest.iter().map(without_bound_reasoning));
            done.summarized = Some(summarized);
        }
        self.budgeted(state, &list, refused, handler, backend, done)
    }

    fn summarize(
        &self,
        state: &State<'_>,
        evicted: &[Value],
        handler: &mut dyn Handler,
        backend: &mut dyn Backend,
    ) -> Summarized {
        let session = state.session.map_or_else(|| format!("session_{}", backend.random()), str::to_owned);
        let path = offload(evicted, &session, backend);
        let summary = handler.summarize(evicted);
        let (before, after) = summary_frame(path.as_deref());
        let text = format!("{before}{summary}{after}");
        let event = json!({
            "cutoff_index": translate(state.event, evicted.len()),
            "summary_message": summary_message(&text),
            "file_path": path,
            "created_at_index": state.raw.len(),
        });
        let offloaded = evicted.iter().filter(|message| !super::is_summary(message)).cloned().collect();
        Summarized { event, session, cutoff: evicted.len(), offloaded }
    }

    /// Sends a list, its tail clipped where it is too large or `refused` as one of so many tokens.
    fn budgeted(
        &self,
        state: &State<'_>,
        list: &[Value],
        mut refused: Option<u64>,
        handler: &mut dyn Handler,
        backend: &mut dyn Backend,
        done: &mut Done,
    ) -> Result<(), Exhausted> {
        loop {
            let (mut sent, mut tokens) = (list.to_vec(), self.count(state, list));
            done.replaced.clear();
            if refused.is_some() || self.budget.is_some_and(|budget| tokens > budget) {
                let (clipped, replaced) =
                    clip(list, self.clip, self.limit, self.counter, backend).map_err(Exhausted::Backend)?;
                tokens = self.count(state, &clipped);
                (sent, done.replaced) = (clipped, replaced);
                if refused.is_some_and(|refused| tokens >= refused) {
                    return Err(Exhausted::StillRefused);
                }
                if let Some(budget) = self.budget.filter(|budget| tokens > *budget) {
                    return Err(Exhausted::AboveBudget { tokens, budget });
                }
            }
            match send(&sent, handler, done) {
                Ok(()) => return Ok(()),
                Err(error) if !is_overflow(&error) => return Err(Exhausted::Call(error)),
                Err(_) if refused.is_some() || !done.replaced.is_empty() => return Err(Exhausted::StillRefused),
                Err(_) => refused = Some(tokens),
            }
        }
    }
}

fn send(list: &[Value], handler: &mut dyn Handler, done: &mut Done) -> Result<(), CallError> {
    done.calls.push(list.to_vec());
    handler.call(list)
}
