//! The tool by which a model fetches what left its view.

use condenser::EventId;
use condenser::recall::address;
use serde_json::{Value, json};

use crate::error::{RecallError, SearchError};
use crate::log::{Log, SessionId};
use crate::search::Query;

/// The tool's name.
pub const RECALL_TOOL: &str = "recall";

/// Bytes of an event that one answer gives unless the call asks for fewer.
const MAX_ANSWER_BYTES: u64 = 32 << 10;

/// The tool `recall`, as name, description and a JSON Schema of its arguments: what a host translates into its API's
/// form and offers to its model. [`Log::answer_recall`] carries its calls out.
pub fn recall_tool() -> Value {
    json!({
        "name": RECALL_TOOL,
        "description": "Fetch earlier events of this session that are no longer shown. Give either the id of an event, as \
            it stands in an address [event ID], or words to search for.",
        "parameters": {
            "type": "object",
            "properties": {
                "event_id": {"type": "string", "description": "The event whose text to fetch."},
                "start": {"type": "integer", "minimum": 0, "description": "First byte of the text to fetch; 0 unless given."},
                "end": {"type": "integer", "minimum": 0, "description": "Byte after the last one to fetch; the end of the text unless given."},
                "search": {"type": "string", "description": "Words that must all occur. \"Two words\" in quotes stand side by side; compil* is a beginning."},
                "page": {"type": "integer", "minimum": 1, "description": "Page of the search's hits, ten each; 1 unless given."},
            },
            "additionalProperties": false,
        },
    })
}

impl Log {
    /// Carries out a call of the tool [`recall_tool`] and gives the text for the model: a part of an event with its
    /// place, or a page of hits. At most 32 KiB of an event are given at once.
    pub fn answer_recall(&self, session: &SessionId, arguments: &Value) -> Result<String, RecallError> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let number = |name: &str| arguments.get(name).and_then(Value::as_u64);
        match (text("event_id"), text("search")) {
            (Some(id), None) => self.answer_event(session, &EventId::from(id), number("start"), number("end")),
            (None, Some(words)) => {
                let page = number("page").unwrap_or(1).clamp(1, 1_000_000) as u32;
                self.answer_search(session, words, page)
            }
            _ => Err(RecallError::Arguments),
        }
    }

    fn answer_event(
        &self,
        session: &SessionId,
        id: &EventId,
        start: Option<u64>,
        end: Option<u64>,
    ) -> Result<String, RecallError> {
        let Some(text) = self.text(session, id, None)? else { return Ok(format!("There is no {}.", address(id))) };
        let total = text.len() as u64;
        let start = start.unwrap_or(0).min(total);
        let end = end.unwrap_or(total).clamp(start, total).min(start.saturating_add(MAX_ANSWER_BYTES));
        let part = String::from_utf8_lossy(&text[start as usize..end as usize]);
        Ok(format!("{} bytes {start} to {end} of {total}:\n{part}", address(id)))
    }

    fn answer_search(&self, session: &SessionId, words: &str, page: u32) -> Result<String, RecallError> {
        let mut query = Query::new(words);
        query.offset = (page - 1).saturating_mul(query.limit);
        let found = match self.search(session, &query) {
            Ok(found) => found,
            Err(SearchError::NoWords) => return Err(RecallError::Arguments),
            Err(error) => return Err(RecallError::Search(error)),
        };
        let mut answer = match found.hits.len() {
            0 => "No event contains these words.\n".to_owned(),
            _ => String::new(),
        };
        for hit in &found.hits {
            let at = hit.at.map(|at| format!(" at byte {at}")).unwrap_or_default();
            answer.push_str(&format!("{} {}{at}: {}\n", address(&hit.id), hit.kind, hit.snippet));
        }
        if found.has_more {
            answer.push_str(&format!("There are more: page {}.\n", page + 1));
        }
        Ok(answer)
    }
}
