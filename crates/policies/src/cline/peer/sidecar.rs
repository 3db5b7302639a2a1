//! The state beside a session: replacement messages, and what prefix of the session they stand for.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{blocks, display_text, is_kind, is_user};
use crate::exact::js_json;

/// A stored compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Sidecar {
    /// How many messages of the session it stands for.
    pub count: usize,
    /// Their fingerprint. Old files have none.
    pub hash: Option<String>,
    /// The key of the last of them.
    pub last_key: Option<String>,
    /// What stands for them.
    pub messages: Vec<Value>,
}

const VERSION: &str = "cline-session-compaction-source-v2";
const FIELDS: [&str; 7] = ["role", "content", "agent", "sessionId", "metadata", "modelInfo", "metrics"];

impl Sidecar {
    /// The state after all of a session was compacted.
    pub fn new(source: &[Value], messages: Vec<Value>) -> Self {
        Self { count: source.len(), hash: Some(fingerprint(source)), last_key: source.last().map(key), messages }
    }

    /// The session with its compacted prefix replaced; `None` where it no longer begins with that prefix.
    pub fn project(&self, source: &[Value]) -> Option<Vec<Value>> {
        let prefix = source.get(..self.count)?;
        let is_valid = match &self.hash {
            Some(hash) => *hash == fingerprint(prefix),
            None => prefix.last().is_some_and(|last| self.last_key.as_deref() == Some(key(last).as_str())),
        };
        is_valid.then(|| self.messages.iter().chain(&source[self.count..]).cloned().collect())
    }
}

/// The fingerprint of messages: what they say and who says it, neither ids nor times.
pub fn fingerprint(messages: &[Value]) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{VERSION}\n{}\n", messages.len()));
    for message in messages {
        let pair = |name: &&str| {
            let value = if *name == "content" { content(message) } else { message[*name].clone() };
            json!([name, value])
        };
        let line: Value = FIELDS.iter().map(pair).collect();
        hash.update(format!("{}\n", js_json(&line)));
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}

/// The content, a user's text as it is displayed.
fn content(message: &Value) -> Value {
    if !is_user(message) {
        return message["content"].clone();
    }
    match &message["content"] {
        Value::String(text) => json!(display_text(text)),
        Value::Array(_) => {
            let shown = |block: &Value| {
                let mut block = block.clone();
                if is_kind(&block, "text")
                    && let Some(text) = block["text"].as_str().map(display_text)
                {
                    block["text"] = json!(text);
                }
                block
            };
            blocks(message).iter().map(shown).collect()
        }
        other => other.clone(),
    }
}

fn key(message: &Value) -> String {
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    match (message["id"].as_str(), message["ts"].as_u64()) {
        (Some(id), _) => format!("id:{id}"),
        (None, Some(ts)) => format!("ts:{}:{ts}", text("role")),
        (None, None) => format!("content:{}:{}", text("role"), js_json(&message["content"])),
    }
}
