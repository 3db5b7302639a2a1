//! Anthropic Messages.

use condenser::event::Usage;
use serde_json::Value;

use super::{Call, Finish, Reply, number_at, text_at};

pub(super) fn reply(answer: &Value) -> Result<Reply, String> {
    let blocks = answer.get("content").and_then(Value::as_array).ok_or("it has no content")?;
    let mut reply = Reply { id: text_at(answer, "/id"), ..Reply::default() };
    for block in blocks {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => reply.text.push_str(block.get("text").and_then(Value::as_str).unwrap_or_default()),
            Some("tool_use") => reply.calls.push(Call {
                id: text_at(block, "/id").unwrap_or_default(),
                name: text_at(block, "/name").unwrap_or_default(),
                arguments: block.get("input").map(Value::to_string).unwrap_or_default(),
            }),
            _ => {}
        }
    }
    reply.finish = match answer.get("stop_reason").and_then(Value::as_str) {
        Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
        Some("refusal") => Finish::Declined,
        _ => Finish::Done,
    };
    // The input counters of this API are disjoint.
    let usage = Usage {
        input_tokens: number_at(answer, "/usage/input_tokens"),
        cache_read_tokens: number_at(answer, "/usage/cache_read_input_tokens"),
        cache_write_tokens: number_at(answer, "/usage/cache_creation_input_tokens"),
        output_tokens: number_at(answer, "/usage/output_tokens"),
        model: text_at(answer, "/model"),
    };
    reply.usage = usage.total_input().is_some().then_some(usage);
    Ok(reply)
}
