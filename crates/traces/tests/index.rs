//! Every file of the recorded index: its format, its records, its diagnostics, its requests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "these are tests")]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use condenser::event::Role;
use condenser::request::{Api, Request, validate};
use condenser::view::{Rules, View};
use condenser::{Event, EventKind};
use condenser_traces::{Trace, find, read_path};

/// The folder of recorded traces, or `None`, with a printed reason, where it is absent.
fn traces() -> Option<PathBuf> {
    let root = std::env::var_os("CONDENSER_SHARED")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")), PathBuf::from);
    let path = root.join("traces");
    if !path.join("INDEX.tsv").exists() {
        println!("skipped: {} has no INDEX.tsv; set CONDENSER_SHARED", path.display());
        return None;
    }
    Some(path)
}

/// One line of the index.
struct Entry {
    path: String,
    format: String,
    records: u64,
}

fn index(root: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(root.join("INDEX.tsv")).unwrap();
    let mut lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|title| title == name).unwrap();
    let (path, format, records) = (column("path"), column("format"), column("records"));
    let entry = |line: Vec<String>| Entry {
        path: line[path].trim_end_matches('/').to_owned(),
        format: line[format].clone(),
        records: line[records].parse().unwrap(),
    };
    lines.map(entry).collect()
}

/// The format that reads what the index calls `listed`.
fn format_of(listed: &str) -> &str {
    let of_prefix = [
        ("claude-code", "claude-code"),
        ("cline", "cline"),
        ("codex", "codex"),
        ("gemini-cli", "gemini-cli"),
        ("inspect", "inspect"),
        ("langchain", "langchain"),
        ("mini-swe-agent", "mini-swe-agent"),
        ("litellm-completion-log", "openai-chat"),
        ("openai-stored", "openai-chat"),
        ("openai-chat", "openai-chat"),
        ("openai-responses", "openai-responses"),
        ("opencode", "opencode"),
        ("openhands-v0", "openhands-v0"),
        ("openhands-v1", "openhands-v1"),
        ("otel", "otel-genai"),
        ("pi", "pi"),
        ("swe-agent", "swe-agent"),
        ("atif", "atif"),
    ];
    of_prefix.iter().find(|(prefix, _)| listed.starts_with(prefix)).map_or(listed, |(_, format)| format)
}

/// What is odd in a recorded file.
fn explained(file: &str) -> Vec<String> {
    let unnamed = |n: u32| {
        format!("file: {n} condensations forget an earlier summary by an id that is not stored; read as that summary")
    };
    let counted = |line: u32, what: &str, n: u32| format!("line {line}: {what}: {n} in the file, the first here");
    let bridged = |line| counted(line, "parents that are not in the file, bridged by the record before", 1);
    match file {
        "tab-state-updates-1311.jsonl" => vec![
            "file: 34 messages repeat calls and answers that also stand as actions and observations; kept as unknown"
                .to_owned(),
        ],
        "pylint-343-seven-condensations" => vec![unnamed(6)],
        "swebench-203-three-condensations.jsonl" => vec![unnamed(2)],
        "image-468.jsonl" => vec![bridged(121)],
        "microcompact-and-compact-236.jsonl" => {
            vec![bridged(1), counted(33, "cleared results that are not in the file", 42)]
        }
        "result-without-call-160.jsonl" => {
            vec![bridged(1), counted(1, "results without an earlier call, kept, and shown by no view", 1)]
        }
        "small-compaction-54.jsonl" => vec![bridged(1)],
        "two-compactions-thinking-811.jsonl" => {
            vec![counted(81, "records abandoned by a rewind or a retry, left out", 2)]
        }
        "two-objects-on-one-line-169.jsonl" => {
            vec![counted(131, "record ids that were used before, `#dup<n>` appended", 1)]
        }
        "basic.compaction.json" => {
            vec!["messages[0]: 22 messages were removed before this copy was written, and are not in it".to_owned()]
        }
        // Kinds of records of many sessions, their texts and ids trimmed to one.
        "record-kinds-trimmed.jsonl" => vec![
            counted(87, "running totals that do not grow by the figures of their response; these count", 1),
            counted(28, "results without an earlier call, kept, and shown by no view", 1),
            counted(33, "record ids that were used before, `#dup<n>` appended", 9),
        ],
        _ => Vec::new(),
    }
}

#[test]
fn every_file_of_the_index_is_read_by_its_format_whole_and_without_unexplained_complaint() {
    let Some(root) = traces() else { return };
    let mut wrong = Vec::new();
    for Entry { path, format, records } in index(&root) {
        let mut complain = |what: String| wrong.push(format!("{path}: {what}"));
        let traces = match read_path(&root.join(&path), None) {
            Ok(traces) => traces,
            Err(error) => {
                complain(error.to_string());
                continue;
            }
        };
        let mut names = HashSet::new();
        for trace in &traces {
            if trace.format != format_of(&format) {
                complain(format!("read as {}", trace.format));
            }
            if trace.records != records {
                complain(format!("{} records, not {records}", trace.records));
            }
            if trace.events.is_empty() {
                complain("no events".to_owned());
            }
            assert!(names.insert(trace.name.clone()), "{} occurs twice", trace.name);
            check_events(trace);
        }
        let found: Vec<String> = traces.iter().flat_map(|trace| &trace.diagnostics).map(ToString::to_string).collect();
        let file = path.rsplit('/').next().unwrap();
        if found != explained(file) {
            complain(format!("{found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What every trace promises: unique ids, and events that survive their own JSON.
#[track_caller]
fn check_events(trace: &Trace) {
    let mut ids = HashSet::new();
    for event in &trace.events {
        assert!(ids.insert(event.id.clone()), "{}: {} occurs twice", trace.name, event.id);
        let json = serde_json::to_string(event).unwrap();
        let back: Event = serde_json::from_str(&json).unwrap();
        assert_eq!(*event, back, "{}: {}", trace.name, event.id);
    }
}

#[test]
fn a_folder_of_traces_is_expanded_into_the_files_of_the_index() {
    let Some(root) = traces() else { return };
    let found: BTreeSet<String> = find(&root)
        .unwrap()
        .iter()
        .map(|candidate| candidate.path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
        .filter(|path| !path.ends_with(".tsv"))
        .collect();
    let listed: BTreeSet<String> = index(&root).into_iter().map(|entry| entry.path).collect();
    assert_eq!(found, listed);
}

/// The lengths of a log before every `every`th response of the model, and of the whole.
fn steps(events: &[Event], every: usize) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut response = None;
    for (position, event) in events.iter().enumerate() {
        let is_response = match &event.kind {
            EventKind::Action(_) => true,
            EventKind::Message(message) => message.role == Role::Assistant,
            _ => false,
        };
        if is_response && (event.response_id().is_none() || event.response_id() != response) {
            starts.push(position);
        }
        if is_response {
            response = event.response_id();
        }
    }
    starts.into_iter().step_by(every).chain([events.len()]).collect()
}

#[test]
fn recorded_traces_lower_to_valid_requests_at_their_steps() {
    let Some(root) = traces() else { return };
    let (mut n_traces, mut n_requests) = (0, 0);
    for entry in index(&root) {
        for trace in read_path(&root.join(&entry.path), None).unwrap_or_default() {
            n_traces += 1;
            for length in steps(&trace.events, 20) {
                let events = &trace.events[..length];
                let view = View::replay(events, Rules::Sound);
                let request = Request::build(&view, events);
                for api in Api::ALL {
                    let violations = validate(api, &request.render(api));
                    assert!(violations.is_empty(), "{}, {length} events, {api}: {violations:?}", trace.name);
                    n_requests += 1;
                }
            }
        }
    }
    println!("{n_requests} requests of {n_traces} traces");
}

/// Events by kind, what the last view shows, and what its rules drop.
fn tally(trace: &Trace) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    trace.events.iter().for_each(|event| *kinds.entry(event.kind.name()).or_default() += 1);
    let kinds: Vec<String> = kinds.iter().map(|(kind, n)| format!("{kind} {n}")).collect();
    let mut view = View::new(Rules::Sound);
    let mut after = Vec::new();
    for event in &trace.events {
        view.push(event);
        if let EventKind::Condensation(record) = &event.kind {
            let (forgets, rewrites) = (record.forgotten_event_ids.len(), record.rewrites.len());
            after.push(format!(" -{forgets} ~{rewrites} ={}", view.len()));
        }
    }
    let responses: BTreeSet<&str> = trace.events.iter().filter_map(Event::response_id).collect();
    let paid = trace.events.iter().filter(|event| event.usage.is_some()).count();
    let after = after.concat();
    format!("{}; responses {}, paid {paid}; view {}{after}", kinds.join(", "), responses.len(), view.len())
}

#[test]
fn recorded_sessions_become_these_events() {
    let Some(root) = traces() else { return };
    let mut lines = Vec::new();
    for Entry { path, .. } in index(&root) {
        // Formats whose events have tests of their own.
        if path.starts_with("openhands-v1/") || path.starts_with("openai-chat/") {
            continue;
        }
        for trace in read_path(&root.join(&path), None).unwrap_or_default() {
            let row = trace.name.rsplit_once('#').map(|(_, row)| format!("#{row}")).unwrap_or_default();
            lines.push(format!("{path}{row}: {}", tally(&trace)));
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}
