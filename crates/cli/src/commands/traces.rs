//! `condenser traces`: what is in trace files.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use condenser::TokenCounter;
use condenser::event::{Event, EventKind, Role};
use condenser::request::text_of;
use condenser_traces::{Candidate, Item, Reader};
use serde::Serialize;

use crate::error::{CliError, Exit};
use crate::input::{InputArguments, Notes};
use crate::models::counter;
use crate::output::Output;
use crate::table::table;

#[derive(clap::Subcommand, Debug)]
pub(crate) enum TracesCommand {
    /// Count what each trace holds.
    Stats {
        #[command(flatten)]
        input: InputArguments,
        /// Count the tokens of all that an agent could be shown, too: with o200k, cl100k, estimate, chars/4, bytes/4, or
        /// (with the feature `llm`) a tokenizer.json.
        #[arg(long, value_name = "NAME")]
        tokenizer: Option<String>,
        /// The form: a table, or a JSON object a line.
        #[arg(long, value_enum, default_value = "table")]
        format: StatsFormat,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatsFormat {
    Table,
    Jsonl,
}

/// One trace.
#[derive(Default, Serialize)]
struct Row {
    path: String,
    format: &'static str,
    records: u64,
    /// Number of events by kind.
    events: BTreeMap<&'static str, u64>,
    /// Answers of the model.
    responses: u64,
    /// Reported by the provider, not counted; none where nothing was reported.
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    /// Of the texts of all events that a view shows; none where nothing was asked to count.
    #[serde(skip_serializing_if = "Option::is_none")]
    counted_tokens: Option<u64>,
    condensations: u64,
    diagnostics: u64,
    #[serde(skip)]
    seen: HashSet<String>,
}

impl Row {
    fn add(&mut self, event: &Event, counter: Option<&dyn TokenCounter>) {
        if let Some(counter) = counter.filter(|_| event.kind.is_shown()) {
            *self.counted_tokens.get_or_insert(0) += counter.count(&text_of(&event.kind)).0;
        }
        *self.events.entry(event.kind.name()).or_default() += 1;
        let is_answer = match &event.kind {
            EventKind::Action(_) => true,
            EventKind::Message(message) => message.role == Role::Assistant,
            EventKind::Condensation(_) => {
                self.condensations += 1;
                false
            }
            _ => false,
        };
        // Events of one response stand together, or share its id.
        if is_answer && self.seen.insert(event.response_id().unwrap_or(event.id.as_str()).to_owned()) {
            self.responses += 1;
        }
        if let Some(usage) = &event.usage {
            let sum = |total: &mut Option<u64>, more: Option<u64>| {
                if let Some(more) = more {
                    *total = Some(total.unwrap_or(0).saturating_add(more));
                }
            };
            sum(&mut self.input_tokens, usage.total_input());
            sum(&mut self.output_tokens, usage.output_tokens);
        }
    }
}

pub(crate) fn run(command: &TracesCommand) -> Result<Exit, CliError> {
    let TracesCommand::Stats { input, tokenizer, format } = command;
    let counter = tokenizer.as_deref().map(counter).transpose()?;
    let (candidates, mut met) = input.candidates()?;
    let mut output = Output::open(None)?;
    let mut all = Vec::new();
    for candidate in &candidates {
        let reader = match input.open(candidate) {
            Ok(reader) => reader,
            Err(met_here) => {
                met.add(met_here);
                continue;
            }
        };
        let mut notes = Notes::new(&candidate.path);
        let rows = rows(reader, candidate, counter, &mut notes);
        met.add(notes.finish());
        match format {
            StatsFormat::Jsonl => rows.iter().try_for_each(|row| output.json_line(row))?,
            StatsFormat::Table => all.extend(rows),
        }
    }
    if *format == StatsFormat::Table {
        output.text(&as_table(&all, counter.is_some()))?;
    }
    output.finish()?;
    Ok(met.exit(input.strict))
}

/// The rows of a file, read event by event.
fn rows(
    mut reader: Reader,
    candidate: &Candidate,
    counter: Option<&dyn TokenCounter>,
    notes: &mut Notes<'_>,
) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut of_file = 0;
    for item in &mut reader {
        match (item, rows.last_mut()) {
            (Ok(Item::Begin(trace)), _) => {
                rows.push(Row { path: trace.name, format: trace.format, records: trace.records, ..Row::default() });
            }
            (Ok(Item::Event(event)), Some(row)) => row.add(&event, counter),
            (Ok(Item::Diagnostic(diagnostic)), Some(row)) => {
                row.diagnostics += 1;
                notes.add(&diagnostic);
            }
            (Ok(Item::FileDiagnostic(diagnostic) | Item::Diagnostic(diagnostic)), _) => {
                of_file += 1;
                notes.add(&diagnostic);
            }
            (Ok(_), _) => {}
            (Err(error), _) => notes.fail(&error, candidate.named),
        }
    }
    rows.iter_mut().for_each(|row| row.records = reader.records());
    if let Some(first) = rows.first_mut() {
        first.diagnostics += of_file;
    }
    rows
}

fn as_table(rows: &[Row], is_counted: bool) -> String {
    let number = |n: Option<u64>| n.map_or_else(|| "–".to_owned(), |n| n.to_string());
    let mut head = vec!["path", "format", "records", "events", "responses", "tokens in", "tokens out"];
    head.extend(is_counted.then_some("tokens counted"));
    head.extend(["condensations", "diagnostics"]);
    let cells = rows.iter().map(|row| {
        let kinds: Vec<String> = row.events.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        let mut cells = vec![
            short(Path::new(&row.path)),
            row.format.to_owned(),
            row.records.to_string(),
            kinds.join(", "),
            row.responses.to_string(),
            number(row.input_tokens),
            number(row.output_tokens),
        ];
        cells.extend(is_counted.then(|| number(row.counted_tokens)));
        cells.extend([row.condensations.to_string(), row.diagnostics.to_string()]);
        cells
    });
    table(&head, cells)
}

/// The last two parts of a path.
fn short(path: &Path) -> String {
    let parts: Vec<_> = path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join("/")
}
