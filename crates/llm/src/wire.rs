//! What goes over the wire: the body of a request, the parts of an answer, and the words of a refusal.

mod anthropic;
mod openai;
mod refusal;
mod responses;

use condenser::event::Usage;
use condenser::request::Api;
use condenser::tokens::{CharsPer4, TokenCounter as _};
use condenser::{SummarizeError, Summary, SummaryRequest, Tokens};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::settings::ModelSettings;
use crate::structured;

pub(crate) use refusal::refusal;

/// The most tokens of an answer where nothing says how many.
const MAX_OUTPUT: Tokens = Tokens(4096);

/// A model's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The text, without reasoning.
    pub text: String,
    /// The calls of tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Why the answer ends.
    pub finish: Finish,
    /// The response's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tokens as reported; `None` where nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON text.
    pub arguments: String,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finish {
    /// The model was done, or waits for the answer to a call.
    #[default]
    Done,
    /// It reached the limit of the answer or of the window.
    Length,
    /// The model, or a filter, declined.
    Declined,
}

impl Reply {
    /// The answer to a summary request.
    pub(crate) fn summary(self, request: &SummaryRequest, sent: &Value) -> Result<Summary, SummarizeError> {
        if self.finish == Finish::Declined {
            return Err(SummarizeError::Failed("the model declined to answer".to_owned()));
        }
        let usage = self.usage.as_ref();
        // What is not reported is counted: it was read and written all the same.
        let counted = |text: &str| CharsPer4.count(text);
        let input_tokens = usage.and_then(Usage::total_input).map_or_else(|| counted(&sent.to_string()), Tokens);
        let output_tokens = usage.and_then(|usage| usage.output_tokens).map_or_else(|| counted(&self.text), Tokens);
        let call = self.calls.first();
        let text = match call {
            Some(call) if request.tool_call => structured::structured_summary(&call.name, &call.arguments)?,
            None if request.tool_call && self.finish != Finish::Length => {
                return Err(SummarizeError::Failed(format!("the model did not call {}", structured::STRUCTURED_TOOL)));
            }
            _ => self.text,
        };
        Ok(Summary {
            text,
            cut_by_length: self.finish == Finish::Length,
            tool_call: !self.calls.is_empty(),
            response_id: self.id,
            input_tokens,
            output_tokens,
        })
    }
}

/// The body that asks for a summary. It offers no tools, unless the request asks for a call.
pub(crate) fn summary_body(
    settings: &ModelSettings,
    request: &SummaryRequest,
    redact: &dyn Fn(&str) -> String,
) -> Value {
    let (mut system, mut input) = (redact(&request.system()), redact(&request.input()));
    if input.trim().is_empty() {
        input = std::mem::take(&mut system);
    }
    let has_system = !system.trim().is_empty();
    let mut body = Map::new();
    match settings.api {
        Api::Anthropic => {
            if has_system {
                body.insert("system".into(), system.into());
            }
            body.insert("messages".into(), json!([{"role": "user", "content": input}]));
        }
        Api::OpenAiResponses => {
            if has_system {
                body.insert("instructions".into(), system.into());
            }
            body.insert("input".into(), json!([{"role": "user", "content": input}]));
            body.insert("store".into(), false.into());
        }
        _ => {
            let system = has_system.then(|| json!({"role": "system", "content": system}));
            let user = json!({"role": "user", "content": input});
            body.insert("messages".into(), system.into_iter().chain([user]).collect());
        }
    }
    if request.tool_call {
        structured::offer(settings.api, &mut body);
    }
    complete(settings, body, request.max_tokens)
}

/// Adds the model, the limit of the answer, and what the settings add.
pub(crate) fn complete(settings: &ModelSettings, mut body: Map<String, Value>, max_tokens: Option<Tokens>) -> Value {
    body.insert("model".into(), settings.model.clone().into());
    let limit = match (max_tokens, settings.max_output) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b).unwrap_or(MAX_OUTPUT),
    };
    let name = match settings.api {
        Api::OpenAiResponses => "max_output_tokens",
        Api::OpenAiChat if settings.is_openai() => "max_completion_tokens",
        _ => "max_tokens",
    };
    body.insert(name.into(), limit.0.into());
    if let Some(temperature) = settings.temperature {
        body.insert("temperature".into(), temperature.into());
    }
    for (name, value) in &settings.body {
        body.insert(name.clone(), value.clone());
    }
    Value::Object(body)
}

/// Reads an answer.
pub(crate) fn reply(api: Api, answer: &Value) -> Result<Reply, String> {
    let mut reply = match api {
        Api::Anthropic => anthropic::reply(answer),
        Api::OpenAiResponses => responses::reply(answer),
        _ => openai::reply(answer),
    }?;
    reply.text = without_thinking(&reply.text).to_owned();
    Ok(reply)
}

/// The text behind the reasoning that some servers leave in it.
fn without_thinking(text: &str) -> &str {
    let start = text.trim_start();
    match start.strip_prefix("<think>") {
        Some(inside) => inside.split_once("</think>").map_or("", |(_, rest)| rest.trim_start()),
        None => text,
    }
}

/// The text at a pointer.
fn text_at(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer)?.as_str().map(str::to_owned)
}

/// The number at a pointer.
fn number_at(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer)?.as_u64()
}

/// The usage of APIs whose input includes what was read from the cache. All zeros mean that nothing was reported.
fn usage(answer: &Value, names: [&str; 3]) -> Option<Usage> {
    let [input, cached, output] = names.map(|name| number_at(answer, name));
    let usage = Usage {
        input_tokens: input.map(|input| input.saturating_sub(cached.unwrap_or(0))),
        cache_read_tokens: cached,
        output_tokens: output,
        model: text_at(answer, "/model"),
        ..Usage::default()
    };
    (usage.total_input().is_some() || output.is_some_and(|output| output > 0)).then_some(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_in_the_text_is_no_part_of_it() {
        for (text, expected) in [
            ("notes", "notes"),
            ("<think>hm</think>\nnotes", "notes"),
            (" <think>\nonly thoughts", ""),
            ("a <think>b</think>", "a <think>b</think>"),
        ] {
            assert_eq!(without_thinking(text), expected, "{text}");
        }
    }
}
