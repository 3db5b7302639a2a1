//! Basic compaction: prompts, a contiguous end, and short answers, with notices for the rest.

use serde_json::{Map, Value, json};

use super::notices::{joined, metadata, notices, run_span};
use super::select::{select, without_files};
use super::{Intent, Mode, Projection, Settings, is_typed, last_typed, project};

/// What came of a basic compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Basic {
    /// The messages that take the place of all.
    pub messages: Vec<Value>,
    /// What the projection had to do.
    pub report: Report,
}

/// What a projection did beyond what was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Texts and messages that gave way to the budget.
    pub actions: usize,
    /// Warnings.
    pub warnings: usize,
    /// How the live tail fared.
    pub live_tail: &'static str,
}

/// What of the messages stays.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The messages, brought to the budget, each by itself.
    pub messages: Vec<Value>,
    /// Of each, the notice behind it.
    pub notices: Vec<Option<Value>>,
    /// What the projection had to do.
    pub report: Report,
}

/// What stays; `None` where that is nothing.
pub fn keep(messages: &[Value], target: u64, trigger: u64, settings: &Settings) -> Option<Kept> {
    let target = target.min(trigger).max(1);
    let selection = select(messages, target, settings)?;
    let most = target.max(selection.used).min(trigger.max(1));
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let projection = project(&selection.messages, most, Intent::BasicCompactionProjection, settings);
    let report = report(&projection);
    let notices = notices(&projection.messages, messages, settings);
    let latest = last_typed(&projection.messages);
    let mut kept = projection.messages;
    for (at, message) in kept.iter_mut().enumerate().filter(|(_, message)| is_typed(message)) {
        without_files(message, latest == Some(at));
    }
    Some(Kept { messages: kept, notices, report })
}

/// The messages in the place of all; `None` where that is nothing, or nothing else.
pub fn basic(messages: &[Value], target: u64, trigger: u64, mode: Mode, settings: &Settings) -> Option<Basic> {
    let Kept { messages: kept, notices, report } = keep(messages, target, trigger, settings)?;
    let mut kept = joined(&kept, &notices);
    if kept == messages || kept.is_empty() {
        return None;
    }
    mark(&mut kept, messages, mode);
    Some(Basic { messages: kept.iter().map(without_metrics).collect(), report })
}

fn report(projection: &Projection) -> Report {
    let counts = |reason: &str| reason == "over_budget" || reason == "tool_pair_boundary";
    Report {
        actions: projection.actions.iter().filter(|action| counts(action.reason)).count(),
        warnings: projection.warnings.len(),
        live_tail: projection.live_tail,
    }
}

/// The message without what its call cost.
pub fn without_metrics(message: &Value) -> Value {
    let mut message = message.clone();
    message.as_object_mut().map(|fields| fields.shift_remove("metrics"));
    message
}

/// Marks the first message as the result, and the others as ones that stay.
fn mark(kept: &mut [Value], original: &[Value], mode: Mode) {
    let n_kept = kept.len();
    for (at, message) in kept.iter_mut().enumerate() {
        let is_first = at == 0 && is_typed(message);
        if is_typed(message) && !is_first {
            continue;
        }
        let span = run_span(message);
        let metadata = metadata(message);
        if !is_first {
            metadata["compaction"] = json!("preserved");
            continue;
        }
        let prior: u64 = original.iter().filter_map(|message| message["metadata"]["messagesRemoved"].as_u64()).sum();
        metadata["kind"] = json!("compaction");
        metadata["reason"] = json!(mode.reason());
        metadata["displayRole"] = json!("system");
        metadata["messagesRemoved"] = json!(prior + original.len().saturating_sub(n_kept) as u64);
        if let Some(usage) = usage(original) {
            metadata["usageBefore"] = usage;
        }
        metadata["userRunSpan"] = json!(span);
    }
}

const USAGE: [&str; 5] = ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "cost"];

/// What the messages cost, with what is remembered of earlier ones.
fn usage(messages: &[Value]) -> Option<Value> {
    let all: Vec<&Value> = messages
        .iter()
        .flat_map(|message| [&message["metrics"], &message["metadata"]["usageBefore"]])
        .filter(|usage| usage.is_object())
        .collect();
    if all.is_empty() {
        return None;
    }
    let sum = |name: &str| -> Value {
        let total: f64 = all.iter().filter_map(|usage| usage[name].as_f64()).sum();
        if total.fract() == 0.0 { json!(total as i64) } else { json!(total) }
    };
    Some(USAGE.iter().map(|&name| (name.to_owned(), sum(name))).collect::<Map<_, _>>().into())
}
