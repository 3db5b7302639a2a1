//! Inspect logs.

use std::io::Write as _;

use serde_json::json;

use crate::script::{check, check_traces};

#[test]
fn samples_are_traces_with_their_attachments_tools_and_figures() {
    let model_event = json!({"event": "model", "tools": [{"name": "go", "parameters": {"type": "object"}}], "output": {
        "model": "m", "choices": [{"message": {"id": "a"}}],
        "usage": {"input_tokens": 50, "output_tokens": 5, "total_tokens": 55, "input_tokens_cache_read": 20}}});
    let traces = check(
        &json!({"version": 2, "eval": {"task": "t"}, "plan": {}, "samples": [
            {"id": 7, "uuid": "x", "attachments": {"h": "long text"}, "events": [model_event], "messages": [
                {"id": "u", "role": "user", "content": "attachment://h"},
                {"id": "a", "role": "assistant", "content": [{"type": "reasoning", "reasoning": "hm", "signature": "s"}],
                 "tool_calls": [{"id": "c", "function": "go", "arguments": {"url": "attachment://gone"}}]},
                {"id": "r", "role": "tool", "tool_call_id": "c", "function": "go", "content": "",
                 "error": {"type": "timeout", "message": "too slow"}}]},
            {"id": "two", "messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "hi"}]}
        ]}),
        "inspect",
        5,
        r#"
        == t.json#0
        log unknown log
        sample unknown sample
        tools system nothing +1 tools
        u user "long text"
        a calls c go {"url":"attachment://gone"} after (hm) $30/20/-/5
        r result c go error "too slow"
        ! samples[0].messages[1]: attachments that are not in the sample's table, their names kept: 1 in the file, the first here
        == t.json#1
        sample unknown sample
        m0 system "be"
        m1 user "hi"
        "#,
    );
    let tasks: Vec<_> = traces.iter().map(|trace| trace.task.as_deref().unwrap()).collect();
    assert_eq!(tasks, ["7", "two"]);
}

/// A ZIP archive of these files: stored, deflated and so on in turn.
fn zip(files: &[(&str, String)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for (at, (name, text)) in files.iter().enumerate() {
        let (method, packed) = if at % 2 == 0 {
            (0u16, text.clone().into_bytes())
        } else {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(text.as_bytes()).unwrap();
            (8, encoder.finish().unwrap())
        };
        let size = (packed.len() as u32).to_le_bytes();
        let length = (name.len() as u16).to_le_bytes();
        let local = (archive.len() as u32).to_le_bytes();
        let fields = [&[20, 0, 0, 0][..], &method.to_le_bytes(), &[0; 8], &size, &size, &length];
        archive.extend_from_slice(b"PK\x03\x04");
        archive.extend(fields.concat());
        archive.extend_from_slice(&[0, 0]);
        archive.extend_from_slice(name.as_bytes());
        archive.extend(packed);
        directory.extend_from_slice(b"PK\x01\x02\x14\0");
        directory.extend(fields.concat());
        directory.extend_from_slice(&[0; 12]);
        directory.extend_from_slice(&local);
        directory.extend_from_slice(name.as_bytes());
    }
    let (start, size) = (archive.len() as u32, directory.len() as u32);
    let count = (files.len() as u16).to_le_bytes();
    archive.extend(directory);
    archive.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    archive.extend([&count[..], &count, &size.to_le_bytes(), &start.to_le_bytes(), &[0, 0]].concat());
    archive
}

#[test]
fn a_zipped_log_is_its_header_with_its_samples() {
    let sample = |id: u32| {
        json!({"id": id, "messages": [{"id": "u", "role": "user", "content": format!("task {id}")}]}).to_string()
    };
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("log.eval");
    let read = |files: &[(&str, String)]| {
        let archive = zip(files);
        std::fs::write(&path, &archive).unwrap();
        for length in (0..archive.len()).step_by(7) {
            // Torn anywhere, it is an error and nothing worse.
            std::fs::write(&path, &archive[..length]).unwrap();
            assert!(condenser_traces::read_path(&path, None).is_err());
        }
        std::fs::write(&path, &archive).unwrap();
        condenser_traces::read_path(&path, None)
    };
    let header = json!({"version": 2, "eval": {"task": "t"}, "plan": {}}).to_string();
    for name in ["header.json", "_journal/start.json"] {
        let files = [
            (name, header.clone()),
            ("samples/1_epoch_1.json", sample(1)),
            ("summaries.json", "[]".to_owned()),
            ("samples/2_epoch_1.json", sample(2)),
        ];
        let mut traces = read(&files).unwrap();
        traces.iter_mut().for_each(|trace| trace.name = trace.name.rsplit('/').next().unwrap().to_owned());
        check_traces(
            traces,
            "inspect",
            2,
            r#"
            == log.eval#0
            log unknown log
            sample unknown sample
            u user "task 1"
            == log.eval#1
            sample unknown sample
            u user "task 2"
            "#,
        );
    }
    let error = read(&[("notes.txt", "x".to_owned())]).unwrap_err().to_string();
    assert!(error.ends_with("a ZIP archive, not JSON text; unpack or convert it first"), "{error}");
}
