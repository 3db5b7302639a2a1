//! Lowering one view after another, and of each only what is not as in the one before.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap};

use super::{Bodies, Builder, Request, Shown, Speaker, key_of};
use crate::event::EventKind;
use crate::view::{Entry, View};

/// Lowers the views of one log as it grows. The turns of a request are those of the one before, up to the first entry
/// that is new or has changed, and a few turns more where a later answer may reach back.
///
/// One view after another over the same log costs what has changed between them, and for what has not a comparison
/// of two numbers an entry.
#[derive(Debug, Default)]
pub struct Incremental {
    /// What names the content of each entry of the view lowered last; `None`: nothing does.
    entries: Vec<Option<(usize, usize)>>,
    /// Where turns begin that no earlier entry has a part in, and whose earlier calls have no later answers.
    starts: Vec<Start>,
    /// The positions of the calls of that view with the hashes of their ids, oldest first.
    calls: Vec<(usize, u64)>,
    /// Position and log position of the system prompt with the tools.
    tools: Option<(usize, usize)>,
    hasher: DefaultHashBuilder,
}

/// A place from which a request can be built on its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start {
    /// The position of the entry that begins the turn.
    pub(super) entry: usize,
    /// The number of turns before it.
    pub(super) turn: usize,
    /// Whether a turn of the user is among these.
    pub(super) has_user: bool,
}

/// What is new of a request.
#[derive(Debug)]
pub struct Tail<'a> {
    /// How many turns stay as they were in the request before.
    pub n_turns: usize,
    /// How many entries stay as they were; they have no part in later turns.
    pub n_entries: usize,
    /// The turns that follow, and the tools of the whole request. The facts count these turns only.
    pub request: Request<'a>,
}

impl Incremental {
    /// Lowers a view. `bodies` is the same log, longer or not, at each call.
    pub fn next<'a>(&mut self, view: &'a View, bodies: &'a (impl Bodies + ?Sized)) -> Tail<'a> {
        let is_same = |(old, new): &(&Option<(usize, usize)>, Entry<'_>)| old.is_some() && **old == key_of(*new);
        let n_same = self.entries.iter().zip(view.iter()).take_while(is_same).count();
        let mut start = self.start_before(n_same);
        loop {
            let mut builder = Builder::default();
            let entries = builder.entries(view, start.entry, bodies);
            builder.match_results(&entries);
            if let Some(call) = self.reached_by(&builder, &entries, start.entry) {
                // The call's own position may be where a turn starts.
                start = self.start_before(call + 1);
                continue;
            }
            self.keep(start, view);
            let mut index = 0;
            while index < entries.len() {
                index = self.add(&mut builder, &entries, index, start);
            }
            let mut request = if start.has_user { builder.request } else { builder.finish() };
            match (self.tools, request.tools) {
                (None, Some((seq, _))) => {
                    let position = entries.iter().find(|(entry, _)| entry.seq() == seq && !entry.is_summary());
                    self.tools = position.map(|(entry, _)| (entry.index(), seq));
                }
                (Some((_, seq)), _) => {
                    request.tools = match bodies.event(seq).map(|event| &event.kind) {
                        Some(EventKind::SystemPrompt(prompt)) => Some((seq, &prompt.tools[..])),
                        _ => request.tools,
                    };
                }
                (None, None) => {}
            }
            return Tail { n_turns: start.turn, n_entries: start.entry, request };
        }
    }

    /// The last start before an entry with a user's turn before it, or else the beginning.
    fn start_before(&self, entry: usize) -> Start {
        let n_before = self.starts.partition_point(|start| start.entry < entry);
        self.starts[..n_before].last().filter(|start| start.has_user).copied().unwrap_or_default()
    }

    /// The position of a kept call to which an answer after `start` belongs, the earliest if there are several.
    fn reached_by(&self, builder: &Builder<'_>, entries: &[(Entry<'_>, Shown<'_>)], start: usize) -> Option<usize> {
        if builder.orphans.is_empty() {
            return None;
        }
        let n_before = self.calls.partition_point(|(position, _)| *position < start);
        let newest: HashMap<u64, usize> =
            self.calls[..n_before].iter().map(|&(position, call)| (call, position)).collect();
        let call = |&orphan: &usize| {
            let EventKind::Observation(observation) = (match &entries[orphan].1 {
                Shown::Event(kind) => &**kind,
                Shown::Summary(_) => return None,
            }) else {
                return None;
            };
            newest.get(&self.hasher.hash_one(&observation.call_id)).copied()
        };
        builder.orphans.iter().filter_map(call).min()
    }

    /// Forgets all from `start` on, and takes note of the entries that follow.
    fn keep(&mut self, start: Start, view: &View) {
        self.entries.truncate(start.entry);
        self.entries.extend(view.iter().skip(start.entry).map(key_of));
        let n_starts = self.starts.partition_point(|known| known.entry <= start.entry);
        self.starts.truncate(n_starts);
        let n_calls = self.calls.partition_point(|(position, _)| *position < start.entry);
        self.calls.truncate(n_calls);
        self.tools = self.tools.filter(|(position, _)| *position < start.entry);
    }

    fn add<'a>(
        &mut self,
        builder: &mut Builder<'a>,
        entries: &[(Entry<'a>, Shown<'a>)],
        index: usize,
        start: Start,
    ) -> usize {
        let n_turns = builder.request.turns.len();
        let has_user = start.has_user || builder.has_user;
        builder.joined = false;
        let end = builder.add(entries, index);
        for (entry, shown) in &entries[index..end] {
            if let Shown::Event(kind) = shown
                && let EventKind::Action(action) = &**kind
            {
                let call = self.hasher.hash_one(&action.call_id);
                self.calls.push((entry.index(), call));
            }
        }
        let begins = builder.request.turns.len() > n_turns && !builder.joined && builder.reach < index;
        if begins {
            self.starts.push(Start { entry: entries[index].0.index(), turn: start.turn + n_turns, has_user });
        }
        let newest = builder.request.turns.last();
        builder.has_user |= newest.is_some_and(|turn| turn.speaker == Speaker::User);
        builder.reach = builder.last_answer[index..end].iter().copied().fold(builder.reach, usize::max);
        end
    }
}
