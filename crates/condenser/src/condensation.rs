//! The condensation record: what later views leave out, rewrite and summarize.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::event::{Action, ContentBlock, EventId, EventKind, Message, Observation, SystemPrompt};
use crate::unread::Unread;

/// What later views leave out, rewrite and summarize.
///
/// The first four fields are OpenHands' `Condensation` and read and write as that. Only
/// [`View`](crate::View) interprets a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
// Serde's own implementations become associated functions, which those below surround with `unread`.
#[serde(remote = "Self")]
pub struct Condensation {
    /// The entries that leave the view, summaries of earlier condensations included. Written sorted.
    #[serde(default)]
    pub forgotten_event_ids: BTreeSet<EventId>,
    /// What stands for them. Shown only together with an offset; the empty string is a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Where the summary goes, counted in the view after forgetting; past the end means the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_offset: Option<usize>,
    /// The response that wrote the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub llm_response_id: Option<String>,
    /// Entries that keep their place and change their content.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rewrites: BTreeMap<EventId, Rewrite>,
    /// How the record came to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Box<Provenance>>,
    /// Fields that this version does not know, kept unchanged.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
    /// Likewise, of the objects inside.
    #[serde(skip)]
    pub unread: Unread,
}

impl Serialize for Condensation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.unread.is_empty() {
            return Self::serialize(self, serializer);
        }
        let mut json = Self::serialize(self, serde_json::value::Serializer).map_err(S::Error::custom)?;
        self.unread.put_into(&mut json);
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Condensation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut map = Map::<String, Value>::deserialize(deserializer)?;
        let unread = Unread::of_record(&mut map);
        let record = Self::deserialize(Value::Object(map)).map_err(D::Error::custom)?;
        Ok(Self { unread, ..record })
    }
}

impl Condensation {
    /// The summary and its offset, where both exist.
    pub fn shown_summary(&self) -> Option<(&str, usize)> {
        self.summary.as_deref().zip(self.summary_offset)
    }

    /// Whether the record changes nothing in any view.
    pub fn is_empty(&self) -> bool {
        self.forgotten_event_ids.is_empty() && self.rewrites.is_empty() && self.shown_summary().is_none()
    }
}

/// A change of one entry's content. It applies to the event as it was stored; the newest record wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rewrite {
    /// The change.
    #[serde(flatten)]
    pub op: RewriteOp,
    /// Size of the entry afterwards, so that a view of headers alone keeps its total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
}

impl From<RewriteOp> for Rewrite {
    fn from(op: RewriteOp) -> Self {
        Self { op, tokens: None }
    }
}

/// The closed set of changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RewriteOp {
    /// All content gives way to a placeholder.
    Clear {
        /// The placeholder.
        text: String,
    },
    /// Each text longer than `head + tail` characters keeps its head and tail.
    Clip {
        /// Characters kept at the beginning.
        head: usize,
        /// Characters kept at the end.
        tail: usize,
    },
    /// The content is exchanged.
    Replace {
        /// The new content.
        content: Vec<ContentBlock>,
    },
    /// Text is added after the content.
    Note {
        /// The added text.
        text: String,
    },
    /// Blocks of these kinds are removed.
    Strip {
        /// The kinds.
        kinds: BTreeSet<BlockKind>,
    },
    /// The arguments of an action are exchanged.
    Arguments {
        /// The new JSON text.
        text: String,
    },
}

/// A kind of content block that [`RewriteOp::Strip`] removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockKind {
    /// Images.
    Image,
    /// Thinking and redacted thinking, and reasoning text.
    Thinking,
    /// Blocks kept verbatim.
    Other,
}

impl RewriteOp {
    /// The content that is shown in place of `kind`; kinds that are not shown are returned unchanged.
    ///
    /// Always applied to the stored content, so applying it again changes nothing. Text is cut between
    /// characters (Unicode scalar values) only.
    pub fn apply(&self, kind: &EventKind) -> EventKind {
        let mut kind = match self {
            Self::Clear { .. } | Self::Replace { .. } => without_content(kind),
            _ => kind.clone(),
        };
        if let Self::Arguments { text } = self {
            if let EventKind::Action(action) = &mut kind {
                action.arguments.clone_from(text);
            }
            return kind;
        }
        let (content, appended, reasoning, thinking) = match &mut kind {
            EventKind::SystemPrompt(prompt) => (&mut prompt.content, Some(&mut prompt.dynamic_context), None, None),
            EventKind::Message(Message { content, extended_content, reasoning, .. }) => {
                (content, Some(extended_content), Some(reasoning), None)
            }
            EventKind::Observation(Observation { content, extended_content, .. }) => {
                (content, Some(extended_content), None, None)
            }
            EventKind::Action(Action { thought, reasoning, thinking, .. }) => {
                (thought, None, Some(reasoning), Some(thinking))
            }
            _ => return kind,
        };
        match self {
            Self::Clear { text } => content.push(ContentBlock::text(text.as_str())),
            Self::Replace { content: new } => content.clone_from(new),
            Self::Clip { head, tail } => {
                for block in content.iter_mut().chain(appended.into_iter().flatten()) {
                    if let ContentBlock::Text { text, .. } = block
                        && let Some(clipped) = clip(text, *head, *tail)
                    {
                        *text = clipped;
                    }
                }
            }
            Self::Note { text } => appended.unwrap_or(content).push(ContentBlock::text(text.as_str())),
            Self::Strip { kinds } => {
                let stays = |block: &ContentBlock| match block {
                    ContentBlock::Text { .. } => true,
                    ContentBlock::Image { .. } => !kinds.contains(&BlockKind::Image),
                    ContentBlock::Thinking { .. } | ContentBlock::RedactedThinking { .. } => {
                        !kinds.contains(&BlockKind::Thinking)
                    }
                    ContentBlock::Other { .. } => !kinds.contains(&BlockKind::Other),
                };
                content.retain(stays);
                appended.into_iter().for_each(|blocks| blocks.retain(stays));
                thinking.into_iter().for_each(|blocks| blocks.retain(stays));
                if let Some(reasoning) = reasoning.filter(|_| kinds.contains(&BlockKind::Thinking)) {
                    *reasoning = None;
                }
            }
            Self::Arguments { .. } => {}
        }
        kind
    }
}

/// A copy without the content that [`RewriteOp::Clear`] and [`RewriteOp::Replace`] exchange: big bodies are not copied.
fn without_content(kind: &EventKind) -> EventKind {
    match kind {
        EventKind::SystemPrompt(prompt) => EventKind::SystemPrompt(SystemPrompt {
            content: Vec::new(),
            dynamic_context: Vec::new(),
            tools: prompt.tools.clone(),
        }),
        EventKind::Message(message) => EventKind::Message(Message {
            role: message.role,
            content: Vec::new(),
            extended_content: Vec::new(),
            name: message.name.clone(),
            call_id: message.call_id.clone(),
            response_id: message.response_id.clone(),
            reasoning: message.reasoning.clone(),
            tool_calls: message.tool_calls.clone(),
        }),
        EventKind::Observation(observation) => EventKind::Observation(Observation {
            call_id: observation.call_id.clone(),
            tool_name: observation.tool_name.clone(),
            content: Vec::new(),
            extended_content: Vec::new(),
            outcome: observation.outcome,
            interim: observation.interim,
        }),
        EventKind::Action(action) => EventKind::Action(Action { thought: Vec::new(), ..action.clone() }),
        other => other.clone(),
    }
}

/// Keeps the first `head` and the last `tail` characters, with a marker between them that says how many went.
///
/// `None` where nothing would be cut.
pub fn clip(text: &str, head: usize, tail: usize) -> Option<String> {
    let kept = head.saturating_add(tail);
    if text.len() <= kept {
        return None;
    }
    let total = text.chars().count();
    if total <= kept {
        return None;
    }
    let head_end = text.char_indices().nth(head).map_or(text.len(), |(at, _)| at);
    let tail_start = match tail {
        0 => text.len(),
        _ => text.char_indices().rev().nth(tail - 1).map_or(0, |(at, _)| at),
    };
    Some(format!("{}[… {} characters left out …]{}", &text[..head_end], total - kept, &text[tail_start..]))
}

/// How a record came to be. Every field is optional in the JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Provenance {
    /// The policy.
    pub policy: String,
    /// Digest of the policy's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<String>,
    /// Why the policy acted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Size of the complete request before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_before: Option<u64>,
    /// Size of the complete request after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<u64>,
    /// The token counter behind both sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<String>,
    /// Digest of the pinned block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_digest: Option<String>,
    /// Calls of the summarizer, failed ones included.
    #[serde(skip_serializing_if = "is_zero")]
    pub summarizer_calls: u64,
    /// Tokens those calls read.
    #[serde(skip_serializing_if = "is_zero")]
    pub summarizer_input_tokens: u64,
    /// Tokens those calls wrote.
    #[serde(skip_serializing_if = "is_zero")]
    pub summarizer_output_tokens: u64,
    /// The summarizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summarizer: Option<String>,
    /// Version of the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_version: Option<String>,
    /// The fallbacks that were taken, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// Events that were added to the edit to make it legal.
    #[serde(skip_serializing_if = "is_zero")]
    pub extended: u64,
    /// Events that the edit named and that stay as they are, to make it legal.
    #[serde(skip_serializing_if = "is_zero")]
    pub clamped: u64,
    /// Forgotten events that the summarizer was not shown.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unseen: BTreeSet<EventId>,
    /// Images among the forgotten events.
    #[serde(skip_serializing_if = "is_zero")]
    pub images: u64,
    /// Secrets taken out of the summarizer's input and of the summary.
    #[serde(skip_serializing_if = "is_zero")]
    pub redacted: u64,
    /// The head this was decided on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<EventId>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Role;

    fn message(text: &str) -> EventKind {
        EventKind::Message(Message::text(Role::User, text))
    }

    #[test]
    fn clipping_cuts_between_characters_only() {
        assert_eq!(clip("añ🙂bcd", 2, 1).as_deref(), Some("añ[… 3 characters left out …]d"));
        assert_eq!(clip("🙂🙂🙂", 0, 1).as_deref(), Some("[… 2 characters left out …]🙂"));
        assert_eq!(clip("🙂🙂🙂", 1, 0).as_deref(), Some("🙂[… 2 characters left out …]"));
        assert_eq!(clip("🙂🙂🙂", 2, 1), None);
        assert_eq!(clip("", 0, 0), None);
    }

    #[test]
    fn every_rewrite_of_the_stored_content_is_idempotent() {
        let kind = message("0123456789");
        let ops = [
            RewriteOp::Clear { text: "gone".into() },
            RewriteOp::Clip { head: 2, tail: 2 },
            RewriteOp::Replace { content: vec![ContentBlock::text("new")] },
            RewriteOp::Note { text: "note".into() },
            RewriteOp::Strip { kinds: BTreeSet::from([BlockKind::Image]) },
            RewriteOp::Arguments { text: "{}".into() },
        ];
        for op in ops {
            assert_eq!(op.apply(&kind), op.apply(&kind), "{op:?}");
            assert_eq!(op.apply(&EventKind::Undo(crate::event::Undo { condensation: "c".into() })).name(), "undo");
        }
    }

    #[test]
    fn a_condensation_of_openhands_reads_and_writes_as_itself() {
        let json = r#"{"forgotten_event_ids":["a","b"],"summary":"","summary_offset":4,"llm_response_id":"r"}"#;
        let record: Condensation = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), json);
        assert_eq!(record.shown_summary(), Some(("", 4)));
    }
}
