//! A view as items, each with the positions that it stands for.

use std::collections::{BTreeMap, BTreeSet};

use condenser::event::{ContentBlock, Source};
use condenser::{EventId, Rewrite, RewriteOp, State};
use serde_json::{Value, json};

use super::peer::{self, Settings};
use crate::turns::{self, Turn, turns};

/// A view as what the peer keeps and what it does not.
#[derive(Debug, Default)]
pub(super) struct History {
    items: Vec<Value>,
    /// The position of each item's first entry.
    places: Vec<usize>,
    /// Everything but system prompts, messages of the system, and injected context.
    leaving: Vec<usize>,
    /// Earlier summaries.
    pub(super) previous: Vec<String>,
    /// What the summarizer is shown.
    pub(super) shown: Vec<usize>,
}

impl History {
    pub(super) fn new(state: &State<'_>) -> Self {
        let mut history = Self::default();
        for turn in turns(state) {
            let members = turn.members();
            match &turn {
                Turn::System(_) => continue,
                Turn::Summary(index) => {
                    let text = state.view.get(*index).and_then(|entry| entry.summary()).unwrap_or_default();
                    let text = text.strip_prefix(peer::SUMMARY_PREFIX).unwrap_or(text);
                    history.previous.push(text.trim_start_matches('\n').to_owned());
                }
                Turn::User(index) => {
                    let text = turns::kind(state, *index).map(|kind| turns::text(&kind)).unwrap_or_default();
                    let is_user = state
                        .event(*index)
                        .is_some_and(|event| !matches!(event.source, Source::Environment | Source::Hook));
                    if !is_user || peer::is_injected(&text) {
                        history.shown.push(*index);
                        continue;
                    }
                    history.items.push(json!({"type": "message", "role": "user", "content": text}));
                    history.places.push(*index);
                    history.shown.push(*index);
                }
                Turn::Answer(_) | Turn::Result(_) => history.shown.extend(members),
            }
            history.leaving.extend(members);
        }
        history
    }

    /// What leaves, and the messages of the user that stay in another form.
    pub(super) fn edit(
        &self,
        state: &State<'_>,
        settings: &Settings,
    ) -> (BTreeSet<EventId>, BTreeMap<EventId, Rewrite>) {
        let id = |index: usize| state.view.get(index).map(|entry| entry.id().clone());
        let mut forget: BTreeSet<EventId> = self.leaving.iter().filter_map(|&index| id(index)).collect();
        let mut rewrites = BTreeMap::new();
        let messages = peer::user_messages(&self.items);
        for (at, text) in peer::select(&messages, settings) {
            let index = self.places[at];
            let Some(id) = id(index) else { continue };
            let is_text = turns::kind(state, index)
                .is_some_and(|kind| turns::content(&kind).all(|block| matches!(block, ContentBlock::Text { .. })));
            if !text.is_empty() && (!is_text || text != peer::text(&self.items[at])) {
                rewrites.insert(id.clone(), RewriteOp::Clear { text }.into());
            }
            forget.remove(&id);
        }
        (forget, rewrites)
    }
}
