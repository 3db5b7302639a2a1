//! Recorded files of others, where they are at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{check_trace, diagnostics, shared};
use condenser::event::Role;
use condenser::request::{Api, Request, validate};
use condenser::view::{Rules, View};
use condenser::{Event, EventKind};
use condenser_traces::{ReadError, Trace, find, read_path};

const FOLDERS: [&str; 5] = ["openhands-v1", "openai-chat", "pi", "swe-agent", "claude-code"];

/// Path below the folder of traces, to the number of foreign records.
fn index(root: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(root.join("INDEX.tsv")).unwrap();
    let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|title| *title == name).unwrap();
    let (path, records) = (column("path"), column("records"));
    lines.map(|line| (line[path].trim_end_matches('/').to_owned(), line[records].parse().unwrap())).collect()
}

/// What is odd in a recorded file.
fn expected_diagnostics(file: &str) -> Vec<String> {
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
        _ => Vec::new(),
    }
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
    let Some(root) = shared("traces") else { return };
    let mut lines = Vec::new();
    for folder in ["pi", "swe-agent", "claude-code"] {
        for candidate in find(&root.join(folder)).unwrap() {
            let file = candidate.path.file_name().unwrap().to_str().unwrap();
            let traces = read_path(&candidate.path, None).unwrap();
            lines.extend(traces.iter().map(|trace| format!("{file}: {}", tally(trace))));
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r"
    before-compaction.jsonl: action 454, condensation 2, message 90, observation 448, unknown 26; responses 469, paid 469; view 441 -293 ~0 =67 -260 ~0 =78
    large-session.jsonl: action 391, message 158, observation 373, unknown 119; responses 439, paid 439; view 922
    function-calling-from-source.traj: action 13, condensation 8, message 1, observation 13, system_prompt 1; responses 13, paid 0; view 28 -0 ~1 =14 -0 ~1 =16 -0 ~1 =18 -0 ~1 =20 -0 ~1 =22 -0 ~1 =24 -0 ~1 =26 -0 ~1 =28
    function-calling-simple-history-only.traj: action 5, message 1, observation 5, system_prompt 1; responses 5, paid 0; view 12
    thought-action-pydicom-1458.traj: action 12, message 2, observation 11, system_prompt 1; responses 12, paid 0; view 26
    agent-progress-66.jsonl: action 4, message 9, observation 4, unknown 47; responses 4, paid 4; view 17
    image-468.jsonl: action 74, message 45, observation 74, unknown 222; responses 88, paid 89; view 193
    microcompact-and-compact-236.jsonl: action 60, condensation 2, message 18, observation 60, unknown 37; responses 49, paid 49; view 38 -0 ~0 =23 -101 ~0 =1
    result-without-call-160.jsonl: action 46, condensation 1, message 1, observation 47, unknown 26; responses 47, paid 47; view 92 -3 ~0 =1
    small-compaction-54.jsonl: action 10, condensation 1, message 7, observation 10, unknown 6; responses 12, paid 12; view 12 -16 ~0 =1
    two-compactions-thinking-811.jsonl: action 224, condensation 2, message 27, observation 224, unknown 40; responses 218, paid 219; view 22 -254 ~0 =1 -201 ~0 =1
    two-objects-on-one-line-169.jsonl: action 41, message 10, observation 41, unknown 21; responses 42, paid 42; view 92
    ");
}

#[test]
fn every_recorded_file_is_read_whole_and_without_complaint() {
    let Some(root) = shared("traces") else { return };
    let index = index(&root);
    for folder in FOLDERS {
        let candidates = find(&root.join(folder)).unwrap();
        let listed = index.keys().filter(|path| path.starts_with(&format!("{folder}/"))).count();
        assert_eq!(candidates.len(), listed, "{folder}");
        for candidate in candidates {
            let name = candidate.path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            let traces = read_path(&candidate.path, None).unwrap();
            for trace in &traces {
                assert_eq!(trace.format, folder, "{name}");
                assert_eq!(trace.records, index[&name], "{name}");
                check_trace(trace);
            }
            let found: Vec<String> = traces.iter().flat_map(diagnostics).collect();
            let file = candidate.path.file_name().unwrap().to_str().unwrap();
            assert_eq!(found, expected_diagnostics(file), "{name}");
        }
    }
}

#[test]
fn no_recorded_file_of_another_format_is_claimed_by_mistake() {
    let Some(root) = shared("traces") else { return };
    // A bare list of chat messages is that, whoever wrote it.
    let also_chat = ["text-based-github-issue.traj.json"];
    for candidate in find(&root).unwrap() {
        let folder = candidate.path.strip_prefix(&root).unwrap().iter().next().unwrap().to_str().unwrap();
        if also_chat.iter().any(|name| candidate.path.ends_with(name)) {
            continue;
        }
        match read_path(&candidate.path, None) {
            Ok(traces) => assert_eq!(traces[0].format, folder, "{}", candidate.path.display()),
            Err(ReadError::Unrecognized { .. } | ReadError::Malformed { .. }) => {
                let is_ours = FOLDERS.contains(&folder);
                assert!(!is_ours, "{}", candidate.path.display());
            }
            Err(error) => panic!("{error}"),
        }
    }
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
    let Some(root) = shared("traces") else { return };
    let (mut traces, mut requests) = (0, 0);
    for candidate in find(&root).unwrap() {
        // What is no trace of a known format has its own test.
        for trace in read_path(&candidate.path, None).unwrap_or_default() {
            traces += 1;
            for length in steps(&trace.events, 20) {
                let events = &trace.events[..length];
                let view = View::replay(events, Rules::Sound);
                let request = Request::build(&view, events);
                for api in Api::ALL {
                    let violations = validate(api, &request.render(api));
                    assert!(violations.is_empty(), "{}, {length} events, {api}: {violations:?}", trace.name);
                    requests += 1;
                }
            }
        }
    }
    println!("{requests} requests of {traces} traces");
}
