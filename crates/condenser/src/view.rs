//! What the model is shown: a log's events once its condensations have been applied.
//!
//! A [`View`] is derived. It is replayed from headers and records, never stored, and never reads the
//! body of an event. Only this module interprets a [`Condensation`].

mod diff;
mod marks;
mod openhands;
mod sound;

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::condensation::{Condensation, Rewrite};
use crate::cuts::Cuts;
use crate::event::EventId;
use crate::header::{Class, EventHeader, Header, NONE, Names, Payload, RecordHeader};
use crate::tokens::Tokens;

use marks::Marks;

pub use diff::ViewDiff;

/// Which rules decide where a view may be cut and what is dropped from a damaged one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rules {
    /// The default: batches are whole spans, ids are matched by run, open calls are kept and cut around, and
    /// a live view equals a rebuilt one.
    #[default]
    Sound,
    /// The rules of the OpenHands SDK 1.58.2, defects included. A live view is not enforced, a rebuilt one is.
    #[serde(rename = "openhands")]
    OpenHands,
}

/// The four properties that cut points and enforcement protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Property {
    /// One answer per call.
    ObservationUniqueness,
    /// The calls of one response stay together.
    BatchAtomicity,
    /// No answer without its call, no answered call without its answer.
    ToolCallMatching,
    /// A loop that began with thinking stays together.
    ToolLoopAtomicity,
}

impl Property {
    /// All four, in the order they are enforced.
    pub const ALL: [Self; 4] =
        [Self::ObservationUniqueness, Self::BatchAtomicity, Self::ToolCallMatching, Self::ToolLoopAtomicity];
}

/// Entries that a property removed from a damaged view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The property.
    pub property: Property,
    /// The removed ids, in view order.
    pub ids: Vec<EventId>,
}

/// What one push did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pushed {
    /// The event is the view's newest entry, or took the place of its interim answer.
    Shown,
    /// The event is not of a kind that is shown.
    Hidden,
    /// The event is of a shown kind and was left out; the diagnostics say why.
    LeftOut,
    /// A condensation was applied.
    Condensed,
    /// An undo names a condensation in force: the view has to be replayed from the log, and is unchanged until then.
    ReplayNeeded,
}

/// What was odd in the log behind a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Diagnostics {
    /// Events whose id an earlier event has.
    pub duplicate_ids: u64,
    /// Answers to calls that the view does not hold at that time.
    pub orphan_answers: u64,
    /// Further answers to calls that have a final one.
    pub duplicate_answers: u64,
    /// Interim answers that gave way to a later one.
    pub replaced_answers: u64,
    /// Entries that left because a record forgot a part of their batch, pair or loop.
    pub torn_apart: u64,
    /// Ids in records that name nothing in the view at that time.
    pub unknown_ids: u64,
    /// Changes that records proposed for pinned entries, or for what belongs to them, and that were not made.
    pub pinned_refused: u64,
    /// Summaries that a record placed before the system prompt.
    pub moved_summaries: u64,
    /// Events of kinds that a view ignores.
    pub hidden: u64,
    /// What the `openhands` rules removed on a rebuild, in order.
    #[serde(skip)]
    pub dropped: Vec<Dropped>,
}

/// One entry as the view stores it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: u32,
    call: u32,
    response: u32,
    /// The run of one response, as the `sound` rules number it; `NONE` for other entries.
    batch: u32,
    /// The batch, or the loop it belongs to.
    group: u32,
    seq: u32,
    tokens: u32,
    class: Class,
    thinking: bool,
    interim: bool,
    summary: bool,
    rewritten: bool,
    sized: bool,
    /// Under the `sound` rules: a call that waits for its answer.
    open: bool,
    /// Under the `sound` rules: an open call that too many later runs have left behind.
    abandoned: bool,
    /// Under the `sound` rules: a later call has the same call id.
    superseded: bool,
}

impl Slot {
    fn new(id: u32, class: Class, seq: u32) -> Self {
        Self {
            id,
            call: NONE,
            response: NONE,
            batch: NONE,
            group: NONE,
            seq,
            tokens: 0,
            class,
            thinking: false,
            interim: false,
            summary: false,
            rewritten: false,
            sized: false,
            open: false,
            abandoned: false,
            superseded: false,
        }
    }

    /// Whether the answer of this call may still come.
    fn is_waiting(&self) -> bool {
        self.open && !self.abandoned
    }
}

/// The entries a model is shown, oldest first.
///
/// Invariant: entries keep the order of the log; a summary stands where its record put it, and a final
/// answer takes the place of its interim one.
#[derive(Clone, Debug)]
pub struct View {
    rules: Rules,
    names: Arc<Names>,
    slots: Vec<Slot>,
    cuts: Cuts,
    /// Events pushed so far, hidden ones included.
    n_pushed: u32,
    /// The shown size, and how many entries have none.
    tokens: u64,
    unsized_entries: usize,
    unhandled_request: bool,
    summaries: HashMap<u32, Arc<str>>,
    rewrites: HashMap<u32, (Arc<Rewrite>, u32)>,
    pinned: HashSet<u32>,
    records: Vec<u32>,
    diagnostics: Diagnostics,
    openhands: openhands::Scan,
    sound: sound::Scan,
    /// The ids that the record at hand forgets.
    forgotten: Marks,
    /// Replaying under the `openhands` rules, which ask for cut points and totals at the end only.
    replaying: bool,
    /// In a preview: the id of the summary that is not in `names`.
    preview_id: Option<EventId>,
}

/// The number of the summary's id in a preview.
const PREVIEW: u32 = NONE - 1;
/// The log position of a record that is only previewed.
pub(crate) const PREVIEW_SEQ: usize = u32::MAX as usize;

impl View {
    /// An empty view.
    pub fn new(rules: Rules) -> Self {
        Self::with_names(rules, Arc::default())
    }

    fn with_names(rules: Rules, names: Arc<Names>) -> Self {
        Self {
            rules,
            names,
            slots: Vec::new(),
            cuts: Cuts::new(),
            n_pushed: 0,
            tokens: 0,
            unsized_entries: 0,
            unhandled_request: false,
            summaries: HashMap::new(),
            rewrites: HashMap::new(),
            pinned: HashSet::new(),
            records: Vec::new(),
            diagnostics: Diagnostics::default(),
            openhands: openhands::Scan::default(),
            sound: sound::Scan::default(),
            forgotten: Marks::default(),
            replaying: false,
            preview_id: None,
        }
    }

    /// Replays a whole log or branch. Condensations that a later undo names are skipped.
    pub fn replay<'e, E, I>(events: I, rules: Rules) -> Self
    where
        E: EventHeader + ?Sized + 'e,
        I: IntoIterator<Item = &'e E>,
    {
        let mut names = Names::default();
        let headers: Vec<Header> = events.into_iter().map(|event| names.header(event)).collect();
        Self::replay_headers(Arc::new(names), &headers, rules)
    }

    /// Replays headers whose ids are interned in `names`.
    pub fn replay_headers(names: Arc<Names>, headers: &[Header], rules: Rules) -> Self {
        let undone: HashSet<u32> = headers
            .iter()
            .filter(|header| header.class == Class::Undo)
            .flat_map(|header| match header.payload.as_deref() {
                Some(Payload::Named(ids)) => ids.as_slice(),
                _ => &[],
            })
            .copied()
            .collect();
        let mut view = Self::with_names(rules, names);
        view.slots.reserve(headers.len().min(1 << 16));
        view.replaying = rules == Rules::OpenHands;
        for header in headers {
            if header.class == Class::Condensation && undone.contains(&header.id) {
                view.n_pushed += 1;
            } else {
                view.push_header(header);
            }
        }
        if rules == Rules::OpenHands {
            view.replaying = false;
            view.enforce_openhands(headers);
            view.rescan();
        }
        view
    }

    /// Adds the next event of the log.
    pub fn push<E: EventHeader + ?Sized>(&mut self, event: &E) -> Pushed {
        let header = Arc::make_mut(&mut self.names).header(event);
        self.push_header(&header)
    }

    /// Adds the next event of the log, its ids interned in this view's names.
    pub fn push_header(&mut self, header: &Header) -> Pushed {
        let seq = self.n_pushed;
        self.n_pushed += 1;
        match header.class {
            Class::Condensation => {
                if self.rules == Rules::Sound && self.is_duplicate(header.id) {
                    return Pushed::LeftOut;
                }
                match header.payload.as_deref() {
                    Some(Payload::Record(record)) => self.apply(header.id, record, seq),
                    _ => self.unhandled_request = false,
                }
                Pushed::Condensed
            }
            Class::CondensationRequest => {
                self.unhandled_request = true;
                Pushed::Hidden
            }
            Class::Undo => {
                let in_force = named(header).iter().any(|id| self.records.contains(id));
                if in_force { Pushed::ReplayNeeded } else { Pushed::Hidden }
            }
            Class::Pin => {
                self.pinned.extend(named(header));
                self.find_pinned_groups();
                Pushed::Hidden
            }
            Class::Unpin => {
                for id in named(header) {
                    self.pinned.remove(id);
                }
                self.find_pinned_groups();
                Pushed::Hidden
            }
            Class::Other => {
                self.diagnostics.hidden += 1;
                Pushed::Hidden
            }
            Class::SystemPrompt | Class::Message | Class::Action | Class::Observation => {
                let slot = Slot {
                    call: header.call,
                    response: header.response,
                    tokens: header.tokens.unwrap_or(0),
                    thinking: header.thinking,
                    interim: header.interim,
                    sized: header.tokens.is_some(),
                    ..Slot::new(header.id, header.class, seq)
                };
                match self.rules {
                    Rules::OpenHands => self.push_openhands(slot),
                    Rules::Sound => self.push_sound(slot),
                }
            }
        }
    }

    /// The view as it would be with one more record, without changing this one. The record gets the id `id`.
    pub fn preview(&self, id: &EventId, record: &Condensation) -> Self {
        let mut view = self.clone();
        let record = RecordHeader {
            forgotten: record.forgotten_event_ids.iter().filter_map(|id| self.names.find_event(id.as_str())).collect(),
            rewrites: record
                .rewrites
                .iter()
                .filter_map(|(id, rewrite)| Some((self.names.find_event(id.as_str())?, Arc::new(rewrite.clone()))))
                .collect(),
            summary: record.shown_summary().map(|(text, offset)| (Arc::from(text), offset)),
            summary_id: PREVIEW,
        };
        view.preview_id = Some(id.summary_id());
        view.n_pushed += 1;
        view.apply(PREVIEW, &record, u32::MAX);
        view.records.pop();
        view
    }

    fn name(&self, number: u32) -> &EventId {
        match &self.preview_id {
            Some(id) if number == PREVIEW => id,
            _ => self.names.event(number),
        }
    }

    /// Applies one record: forgetting first, then rewriting, then the summary.
    fn apply(&mut self, id: u32, record: &RecordHeader, seq: u32) {
        self.unhandled_request = false;
        self.records.push(id);
        self.forgotten.fill(&record.forgotten);
        self.refuse_pinned();
        let n_before = self.slots.len();
        let mut found = 0;
        if self.forgotten.len() > 0 {
            let forgotten = &self.forgotten;
            self.slots.retain(|slot| !forgotten.contains(slot.id));
            found = n_before - self.slots.len();
        }
        self.diagnostics.unknown_ids += self.forgotten.len().saturating_sub(found) as u64;
        if self.rules == Rules::Sound && found > 0 {
            self.drop_torn();
        }
        self.rewrite(record, seq);
        if let Some((text, offset)) = &record.summary {
            let mut at = (*offset).min(self.slots.len());
            if self.rules == Rules::Sound {
                let prompts = self.slots.iter().take_while(|slot| slot.class == Class::SystemPrompt).count();
                if at < prompts {
                    at = prompts;
                    self.diagnostics.moved_summaries += 1;
                }
            }
            self.summaries.insert(record.summary_id, text.clone());
            let slot = Slot { summary: true, ..Slot::new(record.summary_id, Class::Message, seq) };
            self.slots.insert(at, slot);
        }
        self.rescan();
    }

    /// Takes pinned entries, and under the `sound` rules all that is grouped with them, off the ids to forget.
    fn refuse_pinned(&mut self) {
        if self.pinned.is_empty() {
            return;
        }
        let groups: HashSet<u32> = self
            .slots
            .iter()
            .filter(|slot| slot.group != NONE && self.pinned.contains(&slot.id))
            .map(|slot| slot.group)
            .collect();
        for slot in &self.slots {
            if (self.pinned.contains(&slot.id) || groups.contains(&slot.group)) && self.forgotten.remove(slot.id) {
                self.diagnostics.pinned_refused += 1;
            }
        }
    }

    fn rewrite(&mut self, record: &RecordHeader, seq: u32) {
        if record.rewrites.is_empty() {
            return;
        }
        let by_id: HashMap<u32, &Arc<Rewrite>> = record.rewrites.iter().map(|(id, rewrite)| (*id, rewrite)).collect();
        let mut found = 0;
        for slot in &mut self.slots {
            let Some(rewrite) = by_id.get(&slot.id) else { continue };
            found += 1;
            if self.pinned.contains(&slot.id) {
                self.diagnostics.pinned_refused += 1;
                continue;
            }
            slot.rewritten = true;
            slot.sized = rewrite.tokens.is_some();
            slot.tokens = rewrite.tokens.map_or(0, |tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
            self.rewrites.insert(slot.id, (Arc::clone(rewrite), seq));
        }
        self.diagnostics.unknown_ids += by_id.len().saturating_sub(found) as u64;
    }

    /// Rebuilds everything that depends on positions.
    fn rescan(&mut self) {
        if self.replaying {
            return;
        }
        self.tokens = self.slots.iter().map(|slot| u64::from(slot.tokens)).sum();
        self.unsized_entries = self.slots.iter().filter(|slot| !slot.sized).count();
        match self.rules {
            Rules::OpenHands => self.rescan_openhands(),
            Rules::Sound => self.rescan_sound(),
        }
        if self.summaries.len() + self.rewrites.len() > 64 + 2 * self.slots.len() {
            let shown: HashSet<u32> = self.slots.iter().map(|slot| slot.id).collect();
            self.summaries.retain(|id, _| shown.contains(id));
            self.rewrites.retain(|id, _| shown.contains(id));
        }
    }

    /// Adds a slot at the end and keeps the totals; the cut points are the caller's.
    fn add(&mut self, slot: Slot) {
        self.tokens += u64::from(slot.tokens);
        self.unsized_entries += usize::from(!slot.sized);
        self.slots.push(slot);
    }

    /// The rules this view was built under.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is shown.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The entry at a position, counted from 0.
    pub fn get(&self, index: usize) -> Option<Entry<'_>> {
        (index < self.slots.len()).then_some(Entry { view: self, index })
    }

    /// The entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> + ExactSizeIterator {
        (0..self.slots.len()).map(|index| Entry { view: self, index })
    }

    /// The ids of the entries, oldest first.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = &EventId> + ExactSizeIterator {
        self.slots.iter().map(|slot| self.name(slot.id))
    }

    /// The position of an entry. Linear in the length of the view.
    pub fn position(&self, id: &EventId) -> Option<usize> {
        let number = self.names.find_event(id.as_str())?;
        self.slots.iter().position(|slot| slot.id == number)
    }

    /// Events pushed so far, hidden and forgotten ones included.
    pub fn n_pushed(&self) -> usize {
        self.n_pushed as usize
    }

    /// The size of all entries as shown, or `None` while the size of any is unknown.
    pub fn tokens(&self) -> Option<Tokens> {
        (self.unsized_entries == 0).then_some(Tokens(self.tokens))
    }

    /// Whether somebody asked for a condensation and none has followed.
    pub fn has_unhandled_request(&self) -> bool {
        self.unhandled_request
    }

    /// The condensations applied, oldest first.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &EventId> {
        self.records.iter().map(|&id| self.names.event(id))
    }

    /// What was odd so far.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    /// The positions before which the view may be cut, 0 and, unless an open call forbids it, `len` included.
    pub fn manipulation_indices(&self) -> impl Iterator<Item = usize> + '_ {
        self.cuts.iter()
    }

    /// The smallest manipulation index at or above `from`.
    pub fn next_index(&self, from: usize) -> Option<usize> {
        self.cuts.next(from)
    }

    /// The largest manipulation index at or below `from`.
    pub fn previous_index(&self, from: usize) -> Option<usize> {
        self.cuts.previous(from)
    }

    /// Whether the view may be cut before `index`.
    pub fn is_cut(&self, index: usize) -> bool {
        self.cuts.contains(index)
    }

    /// The manipulation indices that one property alone leaves, under the `openhands` rules.
    pub fn openhands_indices(&self, property: Property) -> Vec<usize> {
        openhands::property_indices(&self.slots, property)
    }

    fn strike(&mut self, boundaries: RangeInclusive<usize>) {
        self.cuts.strike(*boundaries.start(), *boundaries.end());
    }
}

fn named(header: &Header) -> &[u32] {
    match header.payload.as_deref() {
        Some(Payload::Named(ids)) => ids,
        _ => &[],
    }
}

/// One entry of a [`View`].
#[derive(Clone, Copy, Debug)]
pub struct Entry<'v> {
    view: &'v View,
    index: usize,
}

impl<'v> Entry<'v> {
    fn slot(&self) -> &'v Slot {
        &self.view.slots[self.index]
    }

    /// The position in the view.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The event's id, or `<condensation id>-summary`.
    pub fn id(&self) -> &'v EventId {
        self.view.name(self.slot().id)
    }

    /// The position in the log, counted from 0 over all pushed events: of the event itself, or of the
    /// condensation that made the summary.
    pub fn seq(&self) -> usize {
        self.slot().seq as usize
    }

    /// The entry's class; a summary is a message.
    pub fn class(&self) -> Class {
        self.slot().class
    }

    /// Whether this is a summary.
    pub fn is_summary(&self) -> bool {
        self.slot().summary
    }

    /// The text of a summary.
    pub fn summary(&self) -> Option<&'v str> {
        if self.is_summary() { self.view.summaries.get(&self.slot().id).map(|text| &**text) } else { None }
    }

    /// The change of content in force, and the log position of the record that made it.
    pub fn rewrite(&self) -> Option<(&'v Rewrite, usize)> {
        if !self.slot().rewritten {
            return None;
        }
        self.view.rewrites.get(&self.slot().id).map(|(rewrite, seq)| (&**rewrite, *seq as usize))
    }

    /// The size as shown, where known.
    pub fn tokens(&self) -> Option<Tokens> {
        self.slot().sized.then_some(Tokens(u64::from(self.slot().tokens)))
    }

    /// Whether the entry is pinned.
    pub fn is_pinned(&self) -> bool {
        self.view.pinned.contains(&self.slot().id)
    }

    /// Under the `sound` rules: whether this is a call without an answer.
    pub fn is_open(&self) -> bool {
        self.slot().open
    }

    /// Under the `sound` rules: whether this is an open call that protects nothing any more, because 16 later runs of
    /// calls have begun without its answer.
    pub fn is_abandoned(&self) -> bool {
        self.slot().open && self.slot().abandoned
    }

    /// Under the `sound` rules: the number of the batch or loop that this entry can only leave with.
    pub fn group(&self) -> Option<u32> {
        (self.slot().group != NONE).then_some(self.slot().group)
    }

    /// Under the `sound` rules: the number of the run of calls of one response, shared with their answers.
    pub fn batch(&self) -> Option<u32> {
        (self.slot().batch != NONE).then_some(self.slot().batch)
    }

    /// Whether no policy may forget this entry: it is pinned, or grouped with a pinned entry or with an open
    /// call that is not abandoned.
    pub fn is_protected(&self) -> bool {
        self.is_pinned() || self.view.is_group_protected(self.slot().group)
    }
}
