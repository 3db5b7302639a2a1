//! Collecting one trace's events, and with them what a view would show at each point.

use std::collections::{BTreeSet, HashMap};

use condenser::condensation::Condensation;
use condenser::event::{Event, EventId, EventKind, Origin, Source, Unknown, Usage};
use serde_json::Value;

use crate::ids::Ids;
use crate::reader::Out;
use crate::{Diagnostic, Trace};

/// Collects events, foreign record by foreign record.
#[derive(Debug)]
pub(crate) struct Builder {
    ids: Ids,
    record: EventId,
    place: String,
    part: u32,
    timestamp: Option<String>,
    events: Vec<Event>,
    shown: Vec<Shown>,
    tools: HashMap<String, String>,
    answers: HashMap<String, Vec<EventId>>,
    orphans: Count,
    duplicates: Count,
    diagnostics: Vec<Diagnostic>,
}

/// An entry that a view would show.
#[derive(Debug)]
struct Shown {
    id: EventId,
    record: EventId,
    is_system: bool,
    is_action: bool,
}

/// How often something odd was met, and where first.
#[derive(Debug, Default)]
pub(crate) struct Count(Option<(String, u64)>);

impl Count {
    /// Counts one more.
    pub(crate) fn add(&mut self, place: impl FnOnce() -> String) {
        self.0.get_or_insert_with(|| (place(), 0)).1 += 1;
    }

    /// Counts one more, which stands before all that were counted.
    pub(crate) fn add_earlier(&mut self, place: String) {
        self.0 = Some((place, 1 + self.0.take().map_or(0, |(_, n)| n)));
    }

    /// The diagnostic, if there was any: `what`, then the count, at the first place.
    pub(crate) fn report(self, what: &str) -> Option<Diagnostic> {
        self.0.map(|(place, n)| Diagnostic::new(place, format!("{what}: {n} in the file, the first here")))
    }
}

impl Builder {
    /// A builder that begins with the diagnostics of the document.
    pub(crate) fn new(diagnostics: Vec<Diagnostic>) -> Self {
        Self {
            ids: Ids::default(),
            record: EventId::from(""),
            place: String::new(),
            part: 0,
            timestamp: None,
            events: Vec::new(),
            shown: Vec::new(),
            tools: HashMap::new(),
            answers: HashMap::new(),
            orphans: Count::default(),
            duplicates: Count::default(),
            diagnostics,
        }
    }

    /// Begins a foreign record: the events added from now on come from it.
    ///
    /// Returns the record's id, changed where it was used before.
    pub(crate) fn begin(&mut self, id: &str, place: String, timestamp: Option<String>) -> EventId {
        let other = self.ids.claim(id);
        // Two records without ids on one line are nothing odd.
        if other.is_some() && id != place.replace(' ', "-") {
            self.duplicates.add(|| place.clone());
        }
        let record = other.unwrap_or_else(|| EventId::from(id));
        (self.record, self.place, self.part, self.timestamp) = (record.clone(), place, 0, timestamp);
        record
    }

    /// The current record's id.
    pub(crate) fn record(&self) -> &EventId {
        &self.record
    }

    /// The current record's place.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The current record's time.
    pub(crate) fn timestamp(&self) -> Option<&str> {
        self.timestamp.as_deref()
    }

    /// Adds an event of the current record, and hands it out for its foreign fields and usage.
    ///
    /// The tool name of an observation is filled in from its call where it is empty.
    pub(crate) fn add(&mut self, source: Source, mut kind: EventKind) -> &mut Event {
        let id = match self.part {
            0 => self.record.clone(),
            part => {
                let id = format!("{}#{part}", self.record);
                self.ids.claim(&id).unwrap_or_else(|| EventId::from(id))
            }
        };
        match &mut kind {
            EventKind::Action(action) => {
                self.tools.insert(action.call_id.clone(), action.tool_name.clone());
            }
            EventKind::Observation(observation) => {
                match self.tools.get(&observation.call_id) {
                    Some(tool) if observation.tool_name.is_empty() => observation.tool_name.clone_from(tool),
                    Some(_) => {}
                    None => self.orphans.add(|| self.place.clone()),
                }
                self.answers.entry(observation.call_id.clone()).or_default().push(id.clone());
            }
            _ => {}
        }
        if kind.is_shown() {
            let is_system = matches!(kind, EventKind::SystemPrompt(_));
            let is_action = matches!(kind, EventKind::Action(_));
            self.shown.push(Shown { id: id.clone(), record: self.record.clone(), is_system, is_action });
        }
        let mut event = Event::new(id, source, kind);
        event.origin = Some(Origin { record: self.record.as_str().to_owned(), part: self.part });
        event.timestamp.clone_from(&self.timestamp);
        self.part += 1;
        let at = self.events.len();
        self.events.push(event);
        &mut self.events[at]
    }

    /// Adds a record that no model saw.
    pub(crate) fn add_unknown(&mut self, source: Source, foreign_kind: &str, payload: Value) -> &mut Event {
        self.add(source, EventKind::Unknown(Unknown { foreign_kind: foreign_kind.to_owned(), payload }))
    }

    /// Says what the response of the last event cost.
    pub(crate) fn set_usage(&mut self, usage: Option<Usage>) {
        if let Some(event) = self.events.last_mut() {
            event.usage = usage;
        }
    }

    /// Says what the response cost whose first event is the one at `at`.
    pub(crate) fn set_usage_of(&mut self, at: usize, usage: Usage) {
        if let Some(event) = self.events.get_mut(at) {
            event.usage = Some(usage);
        }
    }

    /// Adds a compaction that leaves nothing in view but the records for which `keeps` holds, and, if
    /// `keeps_system`, the newest system prompt; the summary goes after the latter.
    pub(crate) fn add_compaction(
        &mut self,
        summary: Option<String>,
        keeps_system: bool,
        keeps: impl Fn(&str) -> bool,
    ) -> &mut Event {
        self.compact(summary, false, keeps_system, keeps)
    }

    /// As [`Builder::add_compaction`], with the summary after what is kept.
    pub(crate) fn add_compaction_at_end(
        &mut self,
        summary: Option<String>,
        keeps_system: bool,
        keeps: impl Fn(&str) -> bool,
    ) -> &mut Event {
        self.compact(summary, true, keeps_system, keeps)
    }

    fn compact(
        &mut self,
        summary: Option<String>,
        is_summary_last: bool,
        keeps_system: bool,
        keeps: impl Fn(&str) -> bool,
    ) -> &mut Event {
        let system = self.shown.iter().rposition(|entry| entry.is_system).filter(|_| keeps_system);
        let mut forgotten = BTreeSet::new();
        let mut index = 0;
        self.shown.retain(|entry| {
            let stays = if entry.is_system { Some(index) == system } else { keeps(entry.record.as_str()) };
            index += 1;
            if !stays {
                forgotten.insert(entry.id.clone());
            }
            stays
        });
        let offset = self.shown.iter().take_while(|entry| is_summary_last || entry.is_system).count();
        let record = Condensation {
            forgotten_event_ids: forgotten,
            summary_offset: summary.as_ref().map(|_| offset),
            summary,
            ..Condensation::default()
        };
        if record.summary.is_some() {
            // No foreign record has an empty id, so that the next compaction forgets this entry.
            let (id, record) = (self.record.summary_id(), EventId::from(""));
            self.shown.insert(offset, Shown { id, record, is_system: false, is_action: false });
        }
        self.add(Source::Environment, EventKind::Condensation(record))
    }

    /// Adds a condensation that does not move the summary.
    pub(crate) fn add_condensation(&mut self, record: Condensation) -> &mut Event {
        if !record.forgotten_event_ids.is_empty() {
            self.shown.retain(|entry| !record.forgotten_event_ids.contains(&entry.id));
        }
        self.add(Source::Environment, EventKind::Condensation(record))
    }

    /// The observations so far that answer calls with this id.
    pub(crate) fn answers(&self, call_id: &str) -> &[EventId] {
        self.answers.get(call_id).map_or(&[], Vec::as_slice)
    }

    /// The events so far.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// Notes something odd.
    pub(crate) fn note(&mut self, diagnostic: impl IntoIterator<Item = Diagnostic>) {
        self.diagnostics.extend(diagnostic);
    }

    /// What a view shows of a record: the ids of its events, and whether any is a call.
    pub(crate) fn shown_of(&self, record: &str) -> (Vec<EventId>, bool) {
        let of_record = || self.shown.iter().filter(|entry| entry.record.as_str() == record);
        (of_record().map(|entry| entry.id.clone()).collect(), of_record().any(|entry| entry.is_action))
    }

    /// Hands out what was gathered so far.
    pub(crate) fn drain(&mut self, out: &mut Out) {
        self.diagnostics.drain(..).for_each(|odd| out.note(odd));
        self.events.drain(..).for_each(|event| out.event(event));
    }

    /// Hands out what was gathered since the last time, and what was counted.
    pub(crate) fn close(&mut self, out: &mut Out) {
        self.count();
        self.drain(out);
    }

    fn count(&mut self) {
        let orphans =
            std::mem::take(&mut self.orphans).report("results without an earlier call, kept, and shown by no view");
        let duplicates =
            std::mem::take(&mut self.duplicates).report("record ids that were used before, `#dup<n>` appended");
        self.diagnostics.extend(orphans.into_iter().chain(duplicates));
    }

    /// The trace.
    pub(crate) fn finish(mut self, name: String, format: &'static str, records: usize) -> Trace {
        self.count();
        Trace {
            name,
            format,
            task: None,
            session: None,
            parent: None,
            events: self.events,
            records: records as u64,
            diagnostics: self.diagnostics,
        }
    }
}
