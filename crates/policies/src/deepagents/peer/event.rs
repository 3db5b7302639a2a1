//! The summarization event: what it makes of the raw list, and where the next one cuts.

use serde_json::{Value, json};

use super::message::is_assistant;

/// The tag of a summary.
pub const SUMMARY_SOURCE: &str = "summarization";

/// A message of the user that carries this text as a summary.
pub fn summary_message(text: &str) -> Value {
    json!({"role": "user", "content": text, "additional_kwargs": {"lc_source": SUMMARY_SOURCE}})
}

/// What stands before and behind the text of a summary, with where the history is.
pub fn summary_frame(address: Option<&str>) -> (String, &'static str) {
    match address {
        Some(address) => {
            let before =
                format!("The conversation so far was summarized.\n\nAll of it is stored at {address}.\n\n<summary>\n");
            (before, "\n</summary>")
        }
        None => ("A summary of the conversation so far:\n\n".to_owned(), ""),
    }
}

/// The messages that the model is given: the event's summary, then the raw list from its cutoff on. An event that lacks
/// one of them counts for none.
pub fn effective(raw: &[Value], event: Option<&Value>) -> Vec<Value> {
    let Some((summary, cutoff)) = event.and_then(|event| {
        let summary = event.get("summary_message").filter(|summary| !summary.is_null())?;
        Some((summary, usize::try_from(event.get("cutoff_index")?.as_u64()?).ok()?))
    }) else {
        return raw.to_vec();
    };
    let created = event.and_then(|event| event["created_at_index"].as_u64()).unwrap_or(0);
    let mut list = vec![summary.clone()];
    for (at, message) in raw.iter().enumerate().skip(cutoff) {
        list.push(if (at as u64) < created { without_bound_reasoning(message) } else { message.clone() });
    }
    list
}

/// The message without reasoning that its provider ties to the history before it.
pub(super) fn without_bound_reasoning(message: &Value) -> Value {
    let mut message = message.clone();
    let metadata = message["response_metadata"].clone();
    if is_assistant(&message)
        && let Value::Array(blocks) = &mut message["content"]
    {
        blocks.retain(|block| !is_bound_reasoning(block["type"].as_str().unwrap_or_default(), &metadata));
    }
    message
}

/// Whether the provider of an answer ties blocks of this type to the history before it.
pub fn is_bound_reasoning(kind: &str, metadata: &Value) -> bool {
    let is_thinking = matches!(kind, "thinking" | "redacted_thinking" | "reasoning_content");
    let model = metadata["model_name"].as_str().unwrap_or_default().to_lowercase();
    match metadata["model_provider"].as_str() {
        None => is_thinking,
        Some("anthropic") => is_thinking || kind == "reasoning",
        Some("bedrock" | "bedrock_converse") if model.contains("claude") || model.contains("anthropic") => {
            is_thinking || kind == "reasoning"
        }
        Some(_) => false,
    }
}

/// A cutoff in the effective list as one in the raw list.
pub fn translate(event: Option<&Value>, cutoff: usize) -> i64 {
    let cutoff = cutoff as i64;
    match event.and_then(|event| event["cutoff_index"].as_i64()) {
        // The first entry of the effective list is the summary, which no raw message stands for.
        Some(prior) => prior + cutoff - 1,
        None => cutoff,
    }
}
