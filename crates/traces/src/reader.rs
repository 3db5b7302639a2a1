//! Traces one item at a time.

use std::collections::VecDeque;
use std::io::Read;
use std::path::Path;

use condenser::event::Event;

use crate::input::{Bytes, Input};
use crate::json::{Found, Lines, Record};
use crate::node::Node;
use crate::{
    Content, Diagnostic, Document, FORMATS, Format, ReadError, Trace, claude_code, codex, openai_chat, openhands_v0,
    openhands_v1, pi, swe_agent,
};

/// What a [`Reader`] comes upon, in the order of the file.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "nearly every item is an event")]
pub enum Item {
    /// A trace begins: what is known of it, without events. Its number of records is known at the end of the file.
    Begin(Box<Trace>),
    /// The next event of the trace.
    Event(Event),
    /// Something in the trace was odd.
    Diagnostic(Diagnostic),
    /// Something in the file was odd that belongs to no trace.
    FileDiagnostic(Diagnostic),
}

/// Reads the traces of one file or trace directory item by item.
///
/// JSON lines of the formats that a `Stream` reads take the memory of their largest record and some tens of bytes for
/// each of the others. Everything else is read whole when it is opened. After an error the reader is at its end.
pub struct Reader {
    format: &'static str,
    path: std::path::PathBuf,
    feed: Option<(Feed, Box<dyn Stream>)>,
    queue: Out,
    records: u64,
}

/// Where a stream's records come from.
enum Feed {
    Lines(Lines<Bytes>),
    #[cfg(feature = "parquet")]
    Table(crate::table::Table),
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("path", &self.path).field("format", &self.format).finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens the file or trace directory at a path, as the named format or as the one that fits.
    ///
    /// # Errors
    ///
    /// Any [`ReadError`]; [`ReadError::Unrecognized`] where no format fits.
    pub fn open(path: &Path, format: Option<&str>) -> Result<Self, ReadError> {
        let asked = format.map(crate::format).transpose()?;
        if path.is_dir() {
            return Self::whole(Document::open(path)?, asked);
        }
        Self::of_input(&Input::file(path)?, asked)
    }

    /// Reads a stream, such as standard input, as a file that is called `path`.
    ///
    /// The stream is copied to a temporary file first, since some formats have to be gone through twice.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`].
    pub fn of_stream(path: &Path, stream: impl Read, format: Option<&str>) -> Result<Self, ReadError> {
        let asked = format.map(crate::format).transpose()?;
        Self::of_input(&Input::copy(path, stream)?, asked)
    }

    fn of_input(input: &Input, asked: Option<&'static Format>) -> Result<Self, ReadError> {
        #[cfg(feature = "parquet")]
        if let Some(file) = input.parquet()? {
            let feed = Feed::Table(crate::table::Table::open(input.path(), file)?);
            let stream = Box::new(crate::table::Rows { document: input.path().display().to_string() });
            let path = input.path().to_owned();
            return Ok(Self { format: "parquet", path, feed: Some((feed, stream)), queue: Out::default(), records: 0 });
        }
        let Some(head) = head(input)? else { return Self::whole(Document::from_input(input)?, asked) };
        let format = match asked.or_else(|| FORMATS.iter().find(|format| (format.sniff)(&head))) {
            Some(format) => format,
            None => return Err(ReadError::Unrecognized { seen: head.seen(), path: head.path }),
        };
        let Some(open) = stream(format) else { return Self::whole(Document::from_input(input)?, Some(format)) };
        let mut queue = Out::default();
        let stream = open(&Records::Lines(input), &head, &mut queue)?;
        let feed = Some((Feed::Lines(Lines::new(input.open()?)), stream));
        Ok(Self { format: format.name, path: input.path().to_owned(), feed, queue, records: 0 })
    }

    fn whole(document: Document, asked: Option<&Format>) -> Result<Self, ReadError> {
        let path = document.path.clone();
        let traces = crate::read_document(document, asked)?;
        let first = traces.first();
        let (format, records) = (first.map_or("", |trace| trace.format), first.map_or(0, |trace| trace.records));
        let mut queue = Out::default();
        for mut trace in traces {
            let events = std::mem::take(&mut trace.events);
            let diagnostics = std::mem::take(&mut trace.diagnostics);
            queue.begin(trace);
            diagnostics.into_iter().for_each(|odd| queue.note(odd));
            events.into_iter().for_each(|event| queue.event(event));
        }
        Ok(Self { format, path, feed: None, queue, records })
    }

    /// The format's stable name.
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// Foreign records of the whole file, once all items were taken.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Takes the items that are left, as traces.
    ///
    /// # Errors
    ///
    /// [`ReadError::Io`] where the file cannot be read to its end.
    pub fn into_traces(mut self) -> Result<Vec<Trace>, ReadError> {
        let mut traces = Traces::default();
        for item in &mut self {
            traces.add(item?);
        }
        Ok(traces.finish(self.records))
    }

    /// Reads on until there is an item; false at the end.
    fn advance(&mut self) -> Result<bool, ReadError> {
        while self.queue.items.is_empty() {
            let Some((feed, stream)) = &mut self.feed else { return Ok(false) };
            let (queue, records) = (&mut self.queue, &mut self.records);
            let more = match feed {
                Feed::Lines(lines) => {
                    let more = lines.next(None, |found| {
                        *records += 1;
                        stream.push(found, queue);
                    });
                    lines.take_diagnostics().into_iter().for_each(|odd| queue.note_file(odd));
                    more
                }
                #[cfg(feature = "parquet")]
                Feed::Table(table) => {
                    let more = table.next(&mut **stream, queue);
                    *records += u64::from(more);
                    Ok(more)
                }
            };
            match more {
                Ok(true) => {}
                Ok(false) => {
                    stream.finish(queue);
                    if let Some((Feed::Lines(lines), _)) = self.feed.take() {
                        lines.finish().into_iter().for_each(|odd| self.queue.note_file(odd));
                    }
                    if self.queue.n_traces == 0 {
                        return Err(unfit(&self.path, self.format));
                    }
                }
                Err(source) => {
                    self.feed = None;
                    return Err(ReadError::Io { path: self.path.clone(), source });
                }
            }
        }
        Ok(true)
    }
}

impl Iterator for Reader {
    type Item = Result<Item, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => self.queue.items.pop_front().map(Ok),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

fn unfit(path: &Path, format: &'static str) -> ReadError {
    ReadError::Unfit { path: path.to_owned(), format, reason: "it holds no trace".to_owned() }
}

/// Items that wait to be taken.
#[derive(Debug, Default)]
pub(crate) struct Out {
    items: VecDeque<Item>,
    n_traces: usize,
}

impl Out {
    pub(crate) fn begin(&mut self, trace: Trace) {
        self.n_traces += 1;
        self.items.push_back(Item::Begin(Box::new(trace)));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.items.push_back(Item::Event(event));
    }

    pub(crate) fn note(&mut self, diagnostic: Diagnostic) {
        self.items.push_back(Item::Diagnostic(diagnostic));
    }

    pub(crate) fn note_file(&mut self, diagnostic: Diagnostic) {
        self.items.push_back(Item::FileDiagnostic(diagnostic));
    }

    /// A whole trace.
    pub(crate) fn trace(&mut self, mut trace: Trace) {
        let (events, diagnostics) = (std::mem::take(&mut trace.events), std::mem::take(&mut trace.diagnostics));
        self.begin(trace);
        diagnostics.into_iter().for_each(|odd| self.note(odd));
        events.into_iter().for_each(|event| self.event(event));
    }
}

/// Traces made of items.
#[derive(Default)]
struct Traces {
    of_file: Vec<Diagnostic>,
    traces: Vec<Trace>,
}

impl Traces {
    fn add(&mut self, item: Item) {
        match (item, self.traces.last_mut()) {
            (Item::Begin(trace), _) => self.traces.push(*trace),
            (Item::Event(event), Some(trace)) => trace.events.push(event),
            (Item::Diagnostic(odd), Some(trace)) => trace.diagnostics.push(odd),
            (Item::FileDiagnostic(odd) | Item::Diagnostic(odd), _) => self.of_file.push(odd),
            (Item::Event(_), None) => {}
        }
    }

    fn finish(mut self, records: u64) -> Vec<Trace> {
        self.traces.iter_mut().for_each(|trace| trace.records = records);
        if let Some(first) = self.traces.first_mut() {
            first.diagnostics.splice(0..0, self.of_file);
        }
        self.traces
    }
}

/// Reads a format record by record.
pub(crate) trait Stream: Send {
    /// Takes the next record.
    fn push(&mut self, found: Found<'_>, out: &mut Out);

    /// Takes the end.
    fn finish(&mut self, out: &mut Out);
}

/// Begins to read; the records may be gone through first. The document holds the first of them.
pub(crate) type Open = fn(&Records<'_>, &Document, &mut Out) -> Result<Box<dyn Stream>, ReadError>;

/// How a format's JSON lines are read one by one; `None` where they have to be read together.
fn stream(format: &Format) -> Option<Open> {
    let streams: [(&str, Open); 7] = [
        (swe_agent::FORMAT.name, swe_agent::open),
        (openhands_v1::FORMAT.name, openhands_v1::open),
        (openhands_v0::FORMAT.name, openhands_v0::open),
        (codex::FORMAT.name, codex::open),
        (pi::FORMAT.name, pi::open),
        (claude_code::FORMAT.name, claude_code::open),
        (openai_chat::FORMAT.name, openai_chat::open),
    ];
    streams.into_iter().find(|(name, _)| *name == format.name).map(|(_, open)| open)
}

/// Where a record stands: its line, and the how many-th value of the line it is.
pub(crate) type Place = (u64, u32);

/// Records that can be gone through more than once.
pub(crate) enum Records<'r> {
    Lines(&'r Input),
    Values(&'r [Record]),
}

impl Records<'_> {
    /// Goes through the records, with only the named members of each decoded.
    pub(crate) fn each(&self, keys: Option<&[&str]>, mut each: impl FnMut(Found<'_>)) -> Result<(), ReadError> {
        match self {
            Self::Lines(input) => {
                let mut lines = Lines::new(input.open()?);
                while lines.next(keys, &mut each).map_err(|source| input.failed(source))? {}
            }
            Self::Values(records) => {
                let mut place = (0, 0);
                for record in *records {
                    place = next_place(place, record.line);
                    each(Found { line: record.line, nth: place.1, node: Node::of_value(&record.value, keys) });
                }
            }
        }
        Ok(())
    }

    /// Whether the text of any of the lines holds one of these words; true where there is no text.
    pub(crate) fn mention(&self, words: &[&str]) -> Result<bool, ReadError> {
        let Self::Lines(input) = self else { return Ok(true) };
        let finders: Vec<_> = words.iter().map(memchr::memmem::Finder::new).collect();
        let overlap = words.iter().map(|word| word.len()).max().unwrap_or_default().saturating_sub(1);
        let mut bytes = input.open()?;
        let mut window = Vec::with_capacity(1 << 17);
        loop {
            let n_read =
                bytes.by_ref().take(1 << 16).read_to_end(&mut window).map_err(|source| input.failed(source))?;
            if finders.iter().any(|finder| finder.find(&window).is_some()) {
                return Ok(true);
            }
            if n_read == 0 {
                return Ok(false);
            }
            window.drain(..window.len().saturating_sub(overlap));
        }
    }
}

/// The place of a record on `line`, after one at `place`.
fn next_place((line, nth): Place, next: u64) -> Place {
    if line == next { (next, nth + 1) } else { (next, 0) }
}

/// Reads a document by a format's stream.
pub(crate) fn read_values(mut document: Document, format: &'static str, open: Open) -> Result<Vec<Trace>, ReadError> {
    let mut traces = Traces { of_file: std::mem::take(&mut document.diagnostics), ..Traces::default() };
    let mut out = Out::default();
    let mut stream = open(&Records::Values(document.records()), &document, &mut out)?;
    let records = document.take_records();
    let n_records = records.len() as u64;
    let mut place = (0, 0);
    for Record { line, value } in records {
        place = next_place(place, line);
        stream.push(Found { line, nth: place.1, node: Node::from(value) }, &mut out);
        out.items.drain(..).for_each(|item| traces.add(item));
    }
    stream.finish(&mut out);
    out.items.drain(..).for_each(|item| traces.add(item));
    if traces.traces.is_empty() {
        return Err(unfit(&document.path, format));
    }
    Ok(traces.finish(n_records))
}

/// The first records of a file of lines; `None` where the file is rather one document.
///
/// A file of lines has a value that ends with its line, and more after it.
fn head(input: &Input) -> Result<Option<Document>, ReadError> {
    /// So many records are looked at, or so many bytes of text.
    const RECORDS: usize = 50;
    const BYTES: usize = 16 << 20;
    let mut lines = Lines::new(input.open()?);
    let mut records: Vec<Record> = Vec::new();
    let (mut n_bytes, mut n_lines, mut is_first_bad) = (0, 0, false);
    while records.len() < RECORDS && n_bytes < BYTES {
        let more = lines.next(None, |found| records.push(Record { line: found.line, value: found.node.into_value() }));
        if !more.map_err(|source| input.failed(source))? {
            break;
        }
        n_bytes += lines.length();
        n_lines += usize::from(lines.length() > 0);
        let is_bad = !lines.take_diagnostics().is_empty();
        match n_lines {
            // A document that spans lines begins with a line that is no value, be it a bracket only.
            1 if is_bad && lines.length() == 1 => return Ok(None),
            1 => is_first_bad = is_bad,
            // After a line that is no value, the next one says whether lines are values.
            2 if is_first_bad && (is_bad || records.is_empty()) => return Ok(None),
            _ => {}
        }
    }
    if n_lines < 2 || records.is_empty() {
        return Ok(None);
    }
    Ok(Some(Document { path: input.path().to_owned(), content: Content::Records(records), diagnostics: Vec::new() }))
}
