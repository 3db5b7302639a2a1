//! Recorded files of others, where they are at hand.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::{check_trace, diagnostics, shared};
use condenser::request::Request;
use condenser::request::openai::validate_openai_chat;
use condenser::view::{Rules, View};
use condenser_traces::{ReadError, find, read_path};

const FOLDERS: [(&str, &str); 2] = [("openhands-v1", "openhands-v1"), ("openai-chat", "openai-chat")];

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
    match file {
        "tab-state-updates-1311.jsonl" => vec![
            "file: 34 messages repeat calls and answers that also stand as actions and observations; kept as unknown"
                .to_owned(),
        ],
        "pylint-343-seven-condensations" => vec![unnamed(6)],
        "swebench-203-three-condensations.jsonl" => vec![unnamed(2)],
        _ => Vec::new(),
    }
}

#[test]
fn every_recorded_file_is_read_whole_and_without_complaint() {
    let Some(root) = shared("traces") else { return };
    let index = index(&root);
    for (folder, format) in FOLDERS {
        let candidates = find(&root.join(folder)).unwrap();
        let listed = index.keys().filter(|path| path.starts_with(&format!("{folder}/"))).count();
        assert_eq!(candidates.len(), listed, "{folder}");
        for candidate in candidates {
            let name = candidate.path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            let traces = read_path(&candidate.path, None).unwrap();
            for trace in &traces {
                assert_eq!(trace.format, format, "{name}");
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
                let is_ours = FOLDERS.iter().any(|(ours, _)| *ours == folder);
                assert!(!is_ours, "{}", candidate.path.display());
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn every_recorded_trace_lowers_to_a_valid_request() {
    let Some(root) = shared("traces") else { return };
    for (folder, _) in FOLDERS {
        for candidate in find(&root.join(folder)).unwrap() {
            for trace in read_path(&candidate.path, None).unwrap() {
                let view = View::replay(&trace.events, Rules::Sound);
                let request = Request::build(&view, &trace.events);
                let violations = validate_openai_chat(&request.to_openai_chat());
                assert!(violations.is_empty(), "{}: {violations:?}", trace.name);
            }
        }
    }
}
