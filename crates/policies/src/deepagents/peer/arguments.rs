//! The truncation of old arguments.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::message::{calls, head, is_assistant};
use super::{Clause, Counter, Size, UNKNOWN_LIMIT, is_met};
use crate::exact::{PythonJson, python_json};

/// When and how long arguments of old calls are cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arguments {
    /// When. `None`: never.
    pub trigger: Option<Size>,
    /// What at the end stays whole.
    pub keep: Size,
    /// Longer texts are cut, in characters.
    pub max_length: usize,
    /// The characters that stay.
    pub head: usize,
    /// What follows them.
    pub text: String,
    /// The tools whose calls are cut.
    pub tools: Vec<String>,
}

impl Arguments {
    /// Whether it is time.
    pub fn is_due(&self, n: usize, tokens: u64, limit: Option<u64>) -> bool {
        self.trigger.is_some_and(|trigger| is_met(&[Clause::from(trigger)], n, tokens, None, limit))
    }

    /// Where what stays whole begins; all of a list that is short, and of one whose last message alone is too large.
    pub fn protected(&self, messages: &[Value], limit: Option<u64>, counter: &dyn Counter) -> usize {
        let n = messages.len();
        let keep = if self.keep.tokens(limit).is_none() && matches!(self.keep, Size::Fraction(_)) {
            UNKNOWN_LIMIT
        } else {
            self.keep
        };
        if let Size::Messages(keep) = keep {
            return (n as u64).checked_sub(keep).filter(|start| *start > 0).map_or(n, |start| start as usize);
        }
        let budget = keep.tokens(limit).unwrap_or(1);
        let mut tokens = 0_u64;
        let is_within = |message: &&Value| {
            tokens = tokens.saturating_add(counter.tokens(std::slice::from_ref(*message)));
            tokens <= budget
        };
        n - messages.iter().rev().take_while(is_within).count()
    }

    /// The list with the arguments of old calls cut, and which messages changed.
    pub fn cut(&self, messages: &[Value], limit: Option<u64>, counter: &dyn Counter) -> (Vec<Value>, Vec<usize>) {
        let protected = self.protected(messages, limit, counter);
        let mut list = messages.to_vec();
        let mut changed = Vec::new();
        // Where nothing is left to protect, nothing is cut either.
        if protected >= messages.len() {
            return (list, changed);
        }
        for (at, message) in list.iter_mut().enumerate().take(protected) {
            if self.cut_one(message) {
                changed.push(at);
            }
        }
        (list, changed)
    }

    fn cut_one(&self, message: &mut Value) -> bool {
        if !is_assistant(message) {
            return false;
        }
        let cut: Vec<Option<String>> = calls(message)
            .map(|call| {
                if !self.tools.iter().any(|tool| tool == call.name()) {
                    return None;
                }
                let mut arguments = call.arguments();
                let mut is_cut = false;
                for value in arguments.values_mut() {
                    if let Value::String(text) = value
                        && head(text, self.max_length).len() < text.len()
                    {
                        *text = format!("{}{}", head(text, self.head), self.text);
                        is_cut = true;
                    }
                }
                let style = PythonJson { unicode: true, ..PythonJson::default() };
                is_cut.then(|| python_json(&Value::Object(arguments), style))
            })
            .collect();
        let is_cut = cut.iter().any(Option::is_some);
        for (call, text) in message["tool_calls"].as_array_mut().into_iter().flatten().zip(cut) {
            if let Some(text) = text {
                call["function"]["arguments"] = Value::String(text);
            }
        }
        is_cut
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            trigger: None,
            keep: Size::Messages(20),
            max_length: 2000,
            head: 20,
            text: "...(argument truncated)".to_owned(),
            tools: ["write_file", "edit_file"].map(str::to_owned).to_vec(),
        }
    }
}
