//! When to summarize.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::is_assistant;
use super::{Size, share_of};

/// Thresholds that all have to be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clause {
    /// Messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// A share of the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
}

impl From<Size> for Clause {
    fn from(size: Size) -> Self {
        let clause = Self::default();
        match size {
            Size::Messages(messages) => Self { messages: Some(messages), ..clause },
            Size::Tokens(tokens) => Self { tokens: Some(tokens), ..clause },
            Size::Fraction(fraction) => Self { fraction: Some(fraction), ..clause },
        }
    }
}

impl Clause {
    /// The thresholds it has.
    pub fn sizes(self) -> impl Iterator<Item = Size> {
        let Self { messages, tokens, fraction } = self;
        let sizes = [messages.map(Size::Messages), tokens.map(Size::Tokens), fraction.map(Size::Fraction)];
        sizes.into_iter().flatten()
    }
}

/// Whether one of the clauses is met by so many messages and tokens, as counted or as reported.
pub fn is_met(clauses: &[Clause], n: usize, tokens: u64, reported: Option<u64>, limit: Option<u64>) -> bool {
    let has_tokens = |threshold: u64| tokens >= threshold || reported.is_some_and(|reported| reported >= threshold);
    let is_met = |size: Size| match size {
        Size::Messages(messages) => n as u64 >= messages,
        Size::Tokens(tokens) => has_tokens(tokens),
        Size::Fraction(share) => limit.is_some_and(|limit| has_tokens(share_of(limit, share))),
    };
    clauses.iter().any(|clause| *clause != Clause::default() && clause.sizes().all(is_met))
}

/// The clauses at half of their values: where a compaction that is asked for is worth it.
pub fn halved(clauses: &[Clause]) -> Vec<Clause> {
    let half = |value: u64| (value / 2).max(1);
    let halved = |clause: &Clause| Clause {
        messages: clause.messages.map(half),
        tokens: clause.tokens.map(half),
        fraction: clause.fraction.map(|share| share / 2.0),
    };
    clauses.iter().map(halved).collect()
}

/// Names under which a provider's answers may come.
const ALIASES: [(&str, &[&str]); 3] = [
    ("amazon_bedrock", &["bedrock", "bedrock_converse"]),
    ("openai-mantle", &["openai"]),
    ("anthropic-mantle", &["anthropic"]),
];

/// The size that the newest assistant message reports, if it is of the model's own provider. No older one counts.
pub fn reported(messages: &[Value], provider: Option<&str>) -> Option<u64> {
    let newest = messages.iter().rfind(|message| is_assistant(message))?;
    let of = newest["response_metadata"]["model_provider"].as_str()?;
    let provider = provider?;
    let is_alias = ALIASES.iter().any(|(name, aliases)| *name == provider && aliases.contains(&of));
    newest["usage"]["total_tokens"].as_u64().filter(|total| *total > 0 && (of == provider || is_alias))
}
