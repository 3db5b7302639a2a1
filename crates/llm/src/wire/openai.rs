//! OpenAI Chat Completions.

use serde_json::Value;

use super::{Call, Finish, Reply, text_at, usage};

pub(super) fn reply(answer: &Value) -> Result<Reply, String> {
    let choice = answer.pointer("/choices/0").ok_or("it has no choices")?;
    let message = choice.get("message").filter(|message| message.is_object()).ok_or("its choice has no message")?;
    let text = match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    };
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten().map(|call| Call {
        id: text_at(call, "/id").unwrap_or_default(),
        name: text_at(call, "/function/name").unwrap_or_default(),
        arguments: text_at(call, "/function/arguments").unwrap_or_default(),
    });
    let declined = message.get("refusal").and_then(Value::as_str).is_some_and(|refusal| !refusal.is_empty());
    let finish = match choice.get("finish_reason").and_then(Value::as_str) {
        Some("length") => Finish::Length,
        Some("content_filter") => Finish::Declined,
        _ if declined => Finish::Declined,
        _ => Finish::Done,
    };
    let names = ["/usage/prompt_tokens", "/usage/prompt_tokens_details/cached_tokens", "/usage/completion_tokens"];
    Ok(Reply { text, calls: calls.collect(), finish, id: text_at(answer, "/id"), usage: usage(answer, names) })
}
