//! OpenAI Responses.

use serde_json::Value;

use super::{Call, Finish, Reply, text_at, usage};

pub(super) fn reply(answer: &Value) -> Result<Reply, String> {
    let items = answer.get("output").and_then(Value::as_array).ok_or("it has no output")?;
    let mut reply = Reply { id: text_at(answer, "/id"), ..Reply::default() };
    for item in items {
        match item.get("type").and_then(Value::as_str) {
            Some("message") => {
                for part in item.get("content").and_then(Value::as_array).into_iter().flatten() {
                    reply.text.push_str(part.get("text").and_then(Value::as_str).unwrap_or_default());
                    if part.get("type").and_then(Value::as_str) == Some("refusal") {
                        reply.finish = Finish::Declined;
                    }
                }
            }
            Some("function_call") => reply.calls.push(Call {
                id: text_at(item, "/call_id").unwrap_or_default(),
                name: text_at(item, "/name").unwrap_or_default(),
                arguments: text_at(item, "/arguments").unwrap_or_default(),
            }),
            _ => {}
        }
    }
    if answer.get("status").and_then(Value::as_str) == Some("incomplete") {
        let reason = answer.pointer("/incomplete_details/reason").and_then(Value::as_str);
        reply.finish = if reason == Some("content_filter") { Finish::Declined } else { Finish::Length };
    }
    let names = ["/usage/input_tokens", "/usage/input_tokens_details/cached_tokens", "/usage/output_tokens"];
    reply.usage = usage(answer, names);
    Ok(reply)
}
