//! One trace: its log, and what each row showed of it.

use std::collections::HashMap;
use std::io::{self, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use condenser::event::{Event, EventId, EventKind, Role};
use condenser::request::text_of;
use condenser_harness::probes::Verdict;
use condenser_harness::{Change, RecordFacts, Row, SavedRun, SavedSteps, TraceFacts, ViewText, Views, replayed};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use crate::Source;
use crate::data::Names;
use crate::text::{excerpt, name, visible};

/// The most characters that are shown of an event, and of all events of a trace.
const MAX_EXCERPT: usize = 700;
const MAX_LOG: usize = 3_000_000;
/// The fewest characters of an event, however many there are.
const MIN_EXCERPT: usize = 60;
/// The most characters of a summary or a rewritten event, and of all of a trace.
const MAX_TEXT: usize = 1_500;
const MAX_TEXTS: usize = 3_000_000;
const MAX_NAME: usize = 60;

/// A row, and what the run keeps of it.
pub(crate) struct Saved<'r> {
    pub(crate) row: &'r Row,
    pub(crate) steps: Option<&'r SavedSteps>,
    pub(crate) views: Option<&'r Views>,
}

/// The packed block of a trace.
#[derive(Serialize)]
struct Block<'r> {
    /// By step: how many events come before it.
    starts: &'r [u64],
    /// By event: kind, tool, id, head, characters left out, tail. Empty where the trace was not to be had.
    events: Vec<(&'static str, String, String, String, u64, String)>,
    /// The pins: event, number of the event that pins it, and of the one that unpins it.
    pins: Vec<(usize, usize, Option<usize>)>,
    /// Summaries and rewritten events: the event or nothing, text, characters left out.
    texts: Vec<(Option<u32>, String, u64)>,
    /// First uses: step, item, event, its id where the number is not known, whether it is far.
    uses: Vec<(u64, String, Option<u64>, String, bool)>,
    rows: Vec<BlockRow<'r>>,
}

#[derive(Serialize)]
struct BlockRow<'r> {
    window: Option<usize>,
    policy: Option<usize>,
    seed: u64,
    tokens: &'r [u64],
    cached: Vec<u64>,
    /// By first use: where it was.
    uses: &'r str,
    /// Steps before which a record was made.
    records: &'r [u64],
    /// The same with reasons.
    facts: Vec<Fact>,
    refused: Vec<(u64, String)>,
    /// By step, as in the run; the numbers of texts are those of the block.
    views: Option<Vec<Change>>,
    /// Probes: name, kind, step, where the answer was, what became of stale values.
    probes: Vec<(String, &'static str, Option<u64>, String, String)>,
}

/// Step, reasons, forgotten, rewritten, summarized, size before and after, fallbacks.
#[derive(Serialize)]
struct Fact(u64, Vec<String>, u64, u64, bool, Option<u64>, Option<u64>, Vec<String>);

impl Fact {
    fn of(record: &RecordFacts) -> Self {
        let short = |texts: &[String]| texts.iter().map(|text| name(text, 300)).collect();
        let RecordFacts { step, forgotten, rewritten, summarized, tokens_before, tokens_after, .. } = *record;
        let (reasons, fallbacks) = (short(&record.reasons), short(&record.fallbacks));
        Self(step, reasons, forgotten, rewritten, summarized, tokens_before, tokens_after, fallbacks)
    }
}

/// The block of a trace, packed and as text.
pub(crate) fn block(
    run: &SavedRun,
    facts: &TraceFacts,
    source: &Source,
    saved: &[Saved<'_>],
    names: &Names,
) -> io::Result<String> {
    let mut block = Block {
        starts: &facts.starts,
        events: Vec::new(),
        pins: Vec::new(),
        texts: Vec::new(),
        uses: facts
            .uses
            .iter()
            .map(|used| {
                let id = if used.at.is_none() { name(&used.source, MAX_NAME) } else { String::new() };
                (used.step, name(&used.item, 200), used.at, id, used.far)
            })
            .collect(),
        rows: Vec::new(),
    };
    if let Source::Found(events) = source {
        let events = replayed(events);
        let n = (MAX_LOG / events.len().max(1)).clamp(MIN_EXCERPT, MAX_EXCERPT);
        block.events = events.iter().map(|event| shown(event, n)).collect();
        block.pins = pins(&events);
    }
    let mut texts = Texts::new(saved);
    for saved in saved {
        let row = of_row(run, facts, saved, names, &mut texts);
        block.rows.extend(row);
    }
    block.texts = texts.all;
    let json = serde_json::to_vec(&block)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(&json)?;
    Ok(STANDARD.encode(packed.finish()?))
}

fn of_row<'r>(
    run: &SavedRun,
    facts: &TraceFacts,
    saved: &Saved<'r>,
    names: &Names,
    texts: &mut Texts<'r>,
) -> Option<BlockRow<'r>> {
    let steps = &saved.steps?.steps;
    let views = saved.views.map(|views| {
        let numbers: Vec<i32> = views.texts.iter().map(|text| texts.number(text)).collect();
        let entry = |entry: &i32| match entry {
            0.. => *entry,
            _ => numbers.get((-1 - *entry) as usize).copied().unwrap_or(*entry),
        };
        let entries = |entries: &[i32]| entries.iter().map(entry).collect();
        let change =
            |change: &Change| Change { entries: entries(&change.entries), more: entries(&change.more), ..*change };
        views.steps.iter().map(change).collect()
    });
    let probe = |probe: &Verdict| {
        (name(&probe.probe, MAX_NAME), probe.kind.name(), probe.step, word(&probe.status), word(&probe.stale))
    };
    Some(BlockRow {
        window: names.window(saved.row.window),
        policy: names.policy(&saved.row.policy),
        seed: saved.row.seed,
        tokens: &steps.tokens,
        cached: steps.cached(&facts.idle, &run.manifest.profile).map(|tokens| tokens.0).collect(),
        uses: &steps.uses,
        records: &steps.records,
        facts: saved.views.iter().flat_map(|views| &views.records).map(Fact::of).collect(),
        refused: saved
            .views
            .iter()
            .flat_map(|views| &views.refused)
            .map(|(step, reason)| (*step, name(reason, 300)))
            .collect(),
        views,
        probes: saved.steps.iter().flat_map(|saved| &saved.probes).map(probe).collect(),
    })
}

/// An enum's value by the word that its JSON has.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.replace('_', " "),
        _ => String::new(),
    }
}

/// Texts of all rows, each once.
struct Texts<'r> {
    all: Vec<(Option<u32>, String, u64)>,
    numbers: HashMap<&'r ViewText, i32>,
    max: usize,
}

impl<'r> Texts<'r> {
    fn new(saved: &[Saved<'r>]) -> Self {
        let n: usize = saved.iter().filter_map(|saved| saved.views).map(|views| views.texts.len()).sum();
        Self { all: Vec::new(), numbers: HashMap::new(), max: (MAX_TEXTS / n.max(1)).clamp(MIN_EXCERPT, MAX_TEXT) }
    }

    fn number(&mut self, text: &'r ViewText) -> i32 {
        let Self { all, numbers, max } = self;
        *numbers.entry(text).or_insert_with(|| {
            let head: String = text.text.chars().take(*max).collect();
            let left_out = text.left_out + (text.text.chars().count() - head.chars().count()) as u64;
            all.push((text.event, visible(&head), left_out));
            -i32::try_from(all.len()).unwrap_or(i32::MAX)
        })
    }
}

/// An event, `n` characters of it.
fn shown(event: &Event, n: usize) -> (&'static str, String, String, String, u64, String) {
    let (kind, tool) = match &event.kind {
        EventKind::SystemPrompt(_) => ("system", ""),
        EventKind::Message(message) => match message.role {
            Role::User => ("user", ""),
            Role::Assistant => ("assistant", ""),
            Role::Tool => ("tool", ""),
            _ => ("system", ""),
        },
        EventKind::Action(action) => ("call", action.tool_name.as_str()),
        EventKind::Observation(observation) => ("result", observation.tool_name.as_str()),
        EventKind::Pin(_) => ("pin", ""),
        EventKind::Unpin(_) => ("unpin", ""),
        _ => ("other", ""),
    };
    let text = excerpt(&text_of(&event.kind), n);
    (kind, name(tool, MAX_NAME), name(event.id.as_str(), MAX_NAME), text.head, text.left_out, text.tail)
}

fn pins(events: &[&Event]) -> Vec<(usize, usize, Option<usize>)> {
    let numbers: HashMap<&EventId, usize> =
        events.iter().enumerate().map(|(number, event)| (&event.id, number)).collect();
    let mut pins: Vec<(usize, usize, Option<usize>)> = Vec::new();
    for (at, event) in events.iter().enumerate() {
        match &event.kind {
            EventKind::Pin(pin) => {
                pins.extend(pin.ids.iter().filter_map(|id| Some((*numbers.get(id)?, at, None))));
            }
            EventKind::Unpin(pin) => {
                for number in pin.ids.iter().filter_map(|id| numbers.get(id)) {
                    let open = pins.iter_mut().filter(|pin| pin.0 == *number && pin.2.is_none());
                    open.for_each(|pin| pin.2 = Some(at));
                }
            }
            _ => {}
        }
    }
    pins
}
