//! A view's sizes and texts as the peer would have them, and its decision as a plan.

use condenser::lower::openhands::LowerError;
use condenser::request::TOKENS_PER_MESSAGE;
use condenser::{Class, Edit, EventId, Plan, State, SummaryRequest};

use super::peer::{Models, prefix};
use super::policy::{MessageCounter, OpenHandsSettings};
use crate::summarizing::{guidance, label, unfenced};

const PROMPT: &str = include_str!("../../prompts/openhands-v1.md");
const PROMPT_VERSION: &str = "openhands-v1";

/// The models around the peer, as far as a state knows them. The summarizer's first calls failed; what the next one
/// is asked is kept, and everything that the peer does with the answer is done by the condenser.
pub(super) struct Adapter<'s, 'a> {
    state: &'s State<'a>,
    settings: &'s OpenHandsSettings,
    counter: Option<&'s dyn MessageCounter>,
    n_failed: usize,
    asked: Option<Vec<String>>,
}

impl<'s, 'a> Adapter<'s, 'a> {
    pub(super) fn new(
        state: &'s State<'a>,
        settings: &'s OpenHandsSettings,
        counter: Option<&'s dyn MessageCounter>,
        n_failed: usize,
    ) -> Self {
        Self { state, settings, counter, n_failed, asked: None }
    }

    /// The plan that forgets these entries, with the texts that the summarizer was asked about. An earlier summary
    /// is handed on as that, unless there is nothing else.
    pub(super) fn plan(self, forget: std::collections::BTreeSet<EventId>, offset: usize) -> Plan {
        let mut request = SummaryRequest {
            instructions: PROMPT.to_owned(),
            guidance: guidance(self.state),
            prompt_version: PROMPT_VERSION.to_owned(),
            ..SummaryRequest::default()
        };
        let mut previous = Vec::new();
        let range = self.state.view.iter().filter(|entry| forget.contains(entry.id()));
        for (entry, text) in range.zip(self.asked.unwrap_or_default()) {
            if entry.is_summary() {
                previous.push((entry.id().clone(), text))
            } else {
                request.events.push((entry.id().clone(), text))
            }
        }
        if request.events.is_empty() {
            request.events = previous;
        } else if !previous.is_empty() {
            request.previous = Some(previous.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n\n"));
        }
        Plan::Summarize { edit: Edit { forget, ..Edit::default() }, offset, request }
    }
}

impl Models for Adapter<'_, '_> {
    fn agent_limit(&self) -> Option<Option<i64>> {
        Some(self.state.budget.limit().map(|limit| i64::try_from(limit.0).unwrap_or(i64::MAX)))
    }

    /// Where the peer's counter is not at hand, a prefix has the share of the request's size that its entries have.
    fn prefix_tokens(&self, length: usize) -> Result<i64, LowerError> {
        if let Some(counter) = self.counter {
            let (messages, tools) = prefix(self.state.view, self.state.bodies, length)?;
            return Ok(counter.tokens(&messages, tools));
        }
        let total = self.state.tokens().0 as f64;
        let sizes = self.state.entry_tokens();
        let size =
            |length: usize| sizes[..length].iter().map(|size| (*size + TOKENS_PER_MESSAGE).0 as f64).sum::<f64>();
        let all = size(sizes.len());
        Ok(if length == sizes.len() || all == 0.0 { total } else { total * size(length) / all } as i64)
    }

    /// The kind and the text as shown, cut to a preview as the peer's printing does.
    fn event_text(&self, index: usize) -> String {
        let Some(entry) = self.state.view.get(index) else { return String::new() };
        let text = self.state.shown(index).map(|shown| shown.text()).unwrap_or_default();
        let preview: String = match text.char_indices().nth(self.settings.event_preview) {
            Some((at, _)) => format!("{}...", &text[..at]),
            None => text,
        };
        let label = match self.state.event(index) {
            Some(event) => label(&event.kind),
            None if entry.class() == Class::Message => return unfenced(preview),
            None => "[event]".to_owned(),
        };
        unfenced(format!("{label}\n{preview}"))
    }

    fn summarize(&mut self, event_texts: &[String]) -> Result<Option<String>, ()> {
        if self.n_failed > 0 {
            self.n_failed -= 1;
            return Err(());
        }
        self.asked = Some(event_texts.to_vec());
        Ok(None)
    }
}
