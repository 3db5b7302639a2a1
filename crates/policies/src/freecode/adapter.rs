//! A view as the three things that the peer keeps: the transcript it summarizes, the turns of its store, and the tool
//! results that it is about to send.

use std::collections::{BTreeMap, BTreeSet};

use condenser::event::EventKind;
use condenser::{Entry, EventId, Rewrite, RewriteOp, State};

use super::peer::{self, Candidate, Message, Pruning, Service, Settings};
use crate::exact::utf16_len;
use crate::turns::{self, Turn, turns};

/// What the model is shown above the newest summary.
pub(super) const SUMMARY_LABEL: &str = "[Summary of the earlier conversation]\n";

/// A view in the peer's words.
#[derive(Debug)]
pub(super) struct Store {
    turns: Vec<Turn>,
    /// How many turns are in the store: a prompt that no answer followed is not yet.
    n_stored: usize,
}

impl Store {
    /// `with_prompt`: whether a prompt at the very end is in the store.
    pub(super) fn new(state: &State<'_>, with_prompt: bool) -> Self {
        let turns = turns(state);
        let n_prompts = turns.iter().rev().take_while(|turn| matches!(turn, Turn::User(_))).count();
        let n_stored = if with_prompt { turns.len() } else { turns.len() - n_prompts };
        Self { turns, n_stored }
    }

    /// Whether a user spoke last.
    pub(super) fn begins_run(&self) -> bool {
        turns::begins_run(&self.turns)
    }

    fn stored(&self) -> &[Turn] {
        &self.turns[..self.n_stored]
    }

    /// The transcript: the texts of the user and the agent. A turn that is only calls stands as a stub. The id of a
    /// message is the number of its turn.
    pub(super) fn transcript(&self, state: &State<'_>, settings: Settings) -> Service {
        let mut service = Service::new(settings);
        for (number, turn) in self.stored().iter().enumerate() {
            let text: String = turn
                .members()
                .iter()
                .filter_map(|&index| turns::kind(state, index))
                .map(|kind| turns::text(&kind))
                .collect();
            match turn {
                Turn::User(_) => service.add("user", &text),
                Turn::Answer(members) if text.trim().is_empty() => {
                    service.add("assistant", &format!("[Executed {} tools]", members.len()))
                }
                Turn::Answer(_) => service.add("assistant", &text),
                Turn::Summary(index) => {
                    let text = state.view.get(*index).and_then(|entry| entry.summary()).unwrap_or_default();
                    service.summaries.push(text.strip_prefix(SUMMARY_LABEL).unwrap_or(text).to_owned());
                    continue;
                }
                Turn::System(_) | Turn::Result(_) => continue,
            };
            if let Some(message) = service.messages.last_mut() {
                message.id = number.to_string();
            }
        }
        service
    }

    /// The view position of a message of the transcript.
    pub(super) fn position(&self, message: &Message) -> Option<usize> {
        self.turns.get(message.id.parse::<usize>().ok()?)?.members().first().copied()
    }

    /// What leaves the store: all before the newest turns of the user, and every earlier summary. System prompts are
    /// not in it.
    pub(super) fn forget(&self, state: &State<'_>, settings: &Settings) -> BTreeSet<EventId> {
        let role = |turn: &Turn| if matches!(turn, Turn::User(_)) { "user" } else { "" };
        let roles: Vec<&str> = self.stored().iter().map(role).collect();
        let first = peer::keep(&roles, i64::try_from(settings.preserve_recent_turns).unwrap_or(i64::MAX));
        let leaves = |(at, turn): &(usize, &Turn)| match turn {
            Turn::System(_) => false,
            Turn::Summary(_) => true,
            _ => *at < first,
        };
        let members = self.turns.iter().enumerate().filter(leaves).flat_map(|(_, turn)| turn.members());
        members.filter_map(|&index| state.view.get(index)).map(|entry| entry.id().clone()).collect()
    }

    /// The results to replace by markers where a run begins: all decisions of the run before are void, and the results
    /// of the last answer are protected. `gone` has left the view already.
    pub(super) fn prune(
        &self,
        state: &State<'_>,
        settings: &Settings,
        gone: &BTreeSet<EventId>,
    ) -> BTreeMap<EventId, Rewrite> {
        let last = self.turns.iter().rposition(|turn| matches!(turn, Turn::Answer(_)));
        let mut results: Vec<(Entry<'_>, &str, Candidate<'_>)> = Vec::new();
        for (at, turn) in self.turns.iter().enumerate() {
            let Turn::Result(index) = turn else { continue };
            let (Some(entry), Some(event)) = (state.view.get(*index), state.event(*index)) else { continue };
            let EventKind::Observation(observation) = &event.kind else { continue };
            let size = utf16_len(&turns::text(&event.kind));
            if size > 0 && !gone.contains(entry.id()) {
                // What is forgotten of files that were read is the host's.
                let is_protected = last.is_some_and(|last| at > last);
                let candidate = Candidate { id: entry.id().as_str(), tool: "", file: None, size, is_protected };
                results.push((entry, &observation.call_id, candidate));
            }
        }
        let candidates: Vec<Candidate<'_>> = results.iter().map(|(.., candidate)| *candidate).collect();
        let mut pruning = Pruning::default();
        pruning.send(&candidates, settings.tool_result_budget_chars);
        let is_new = |(entry, _, candidate): &&(Entry<'_>, &str, Candidate<'_>)| {
            entry.rewrite().is_none() && pruning.replacement(candidate.id).is_some()
        };
        let marker = |(entry, call, candidate): &(Entry<'_>, &str, Candidate<'_>)| {
            let text = peer::marker(call, candidate.size);
            (entry.id().clone(), RewriteOp::Clear { text }.into())
        };
        results.iter().filter(is_new).map(marker).collect()
    }
}
