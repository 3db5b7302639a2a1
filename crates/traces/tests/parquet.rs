//! Parquet files of the public data sets' layouts, made here.

#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use condenser_traces::{ReadError, Reader, Trace, read_path, write};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

type Levels<'v> = (Vec<&'v str>, Vec<i16>, Vec<i16>);

/// Writes a file of one row group, column by column.
fn file(path: &Path, schema: &str, columns: impl FnOnce(&mut SerializedRowGroupWriter<'_, File>)) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    columns(&mut group);
    group.close().unwrap();
    writer.close().unwrap();
}

fn texts(group: &mut SerializedRowGroupWriter<'_, File>, (values, definition, repetition): Levels<'_>) {
    let values: Vec<ByteArray> = values.into_iter().map(ByteArray::from).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&values, Some(&definition), Some(&repetition)).unwrap();
    column.close().unwrap();
}

/// The levels of a member of `messages`, and of a member of their calls.
fn of_messages<'v>(rows: &'v [Vec<Value>], key: &str) -> Levels<'v> {
    let mut levels: Levels<'_> = Levels::default();
    for (at, message) in rows.iter().flat_map(|row| row.iter().enumerate()) {
        let text = message[key].as_str();
        levels.0.extend(text);
        levels.1.push(3 + i16::from(text.is_some()));
        levels.2.push(i16::from(at > 0));
    }
    levels
}

fn of_calls<'v>(rows: &'v [Vec<Value>], pointer: &str, deepest: i16) -> Levels<'v> {
    let mut levels: Levels<'_> = Levels::default();
    for (at, message) in rows.iter().flat_map(|row| row.iter().enumerate()) {
        let calls = message["tool_calls"].as_array().map_or(&[][..], Vec::as_slice);
        if calls.is_empty() {
            levels.1.push(3);
            levels.2.push(i16::from(at > 0));
        }
        for (n, call) in calls.iter().enumerate() {
            levels.0.extend(call.pointer(pointer).and_then(Value::as_str));
            levels.1.push(deepest);
            levels.2.push(if n > 0 { 2 } else { i16::from(at > 0) });
        }
    }
    levels
}

fn conversation(n: usize) -> Vec<Value> {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}});
    vec![
        json!({"role": "system", "content": "You count."}),
        json!({"role": "user", "content": format!("count {n}")}),
        json!({"role": "assistant", "tool_calls": [call("a"), call("b")]}),
        json!({"role": "tool", "tool_call_id": "a", "name": "ls", "content": "1"}),
        json!({"role": "tool", "tool_call_id": "b", "name": "ls", "content": "2"}),
        json!({"role": "assistant", "content": "two"}),
    ]
}

/// As the OpenHands set has it: a list of structs, each with the members of all.
#[test]
fn a_column_of_message_structs_gives_a_trace_a_row_without_the_empty_members() {
    let made = tempfile::tempdir().unwrap();
    let path = made.path().join("trajectories.parquet");
    let rows: Vec<Vec<Value>> = (0..3).map(conversation).collect();
    let schema = "message rows {
        required binary instance_id (UTF8);
        required boolean resolved;
        optional group trajectory (LIST) { repeated group list { optional group element {
            optional binary role (UTF8);
            optional binary content (UTF8);
            optional binary tool_call_id (UTF8);
            optional binary name (UTF8);
            optional group tool_calls (LIST) { repeated group list { optional group element {
                optional binary id (UTF8);
                optional binary type (UTF8);
                optional group function { optional binary name (UTF8); optional binary arguments (UTF8); }
            } } }
        } } }
    }";
    file(&path, schema, |group| {
        texts(group, (vec!["i0", "i1", "i2"], vec![0; 3], vec![0; 3]));
        let mut resolved = group.next_column().unwrap().unwrap();
        resolved.typed::<BoolType>().write_batch(&[true, false, true], None, None).unwrap();
        resolved.close().unwrap();
        ["role", "content", "tool_call_id", "name"].iter().for_each(|key| texts(group, of_messages(&rows, key)));
        texts(group, of_calls(&rows, "/id", 7));
        texts(group, of_calls(&rows, "/type", 7));
        texts(group, of_calls(&rows, "/function/name", 8));
        texts(group, of_calls(&rows, "/function/arguments", 8));
    });
    let traces = read_path(&path, None).unwrap();
    let names: Vec<String> = traces.iter().map(|trace| trace.name.clone()).collect();
    assert_eq!(names, (0..3).map(|n| format!("{}#{n}", path.display())).collect::<Vec<_>>());
    for (n, trace) in traces.iter().enumerate() {
        assert_eq!((trace.format, trace.records, trace.diagnostics.len()), ("openai-chat", 3, 0));
        assert_eq!(trace.task, Some(format!("i{n}")));
        let written = write(std::slice::from_ref(trace), "openai-chat").unwrap().values;
        let row = json!({"instance_id": format!("i{n}"), "resolved": n != 1, "trajectory": conversation(n)});
        assert_eq!(written, [row]);
    }
}

fn text_rows(path: &Path, key: &str, rows: &[String]) {
    let ids: Vec<String> = (0..rows.len()).map(|n| format!("i{n}")).collect();
    let schema = format!("message rows {{ required binary instance_id (UTF8); optional binary {key} (UTF8); }}");
    file(path, &schema, |group| {
        texts(group, (ids.iter().map(String::as_str).collect(), vec![0; rows.len()], vec![0; rows.len()]));
        texts(group, (rows.iter().map(String::as_str).collect(), vec![1; rows.len()], vec![0; rows.len()]));
    });
}

/// As the SWE-smith set has it.
#[test]
fn a_column_of_json_text_gives_a_trace_a_row_and_names_what_is_none() {
    let made = tempfile::tempdir().unwrap();
    let path = made.path().join("tool.parquet");
    let rows = [json!(conversation(0)).to_string(), "[torn".to_owned(), json!(conversation(2)).to_string()];
    text_rows(&path, "messages", &rows);
    let traces = read_path(&path, None).unwrap();
    assert_eq!(traces.len(), 2);
    assert_eq!(traces[1].name, format!("{}#2", path.display()));
    let odd: Vec<String> = traces[0].diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(odd, ["row 1: `messages` is no list of chat messages; the row is left out"]);

    // From a stream as well; and what is cut off is refused.
    let bytes = std::fs::read(&path).unwrap();
    let read = |bytes: &[u8]| Reader::of_stream(Path::new("-"), bytes, None).and_then(Reader::into_traces);
    assert_eq!(read(&bytes).unwrap().len(), 2);
    assert!(matches!(read(&bytes[..bytes.len() / 2]), Err(ReadError::Malformed { .. })));
}

/// As the SWE-agent set has it.
#[test]
fn turns_of_role_and_text_are_a_swe_agent_run() {
    let made = tempfile::tempdir().unwrap();
    let path = made.path().join("train.parquet");
    let turns = [
        ("system", "You fix things."),
        ("user", "Fix the test."),
        ("ai", "I look first.\n```\nls -a src\n```"),
        ("user", "main.py"),
        ("ai", "That is all."),
    ];
    let schema = "message rows { optional group trajectory (LIST) { repeated group list { optional group element {
        optional binary role (UTF8); optional binary text (UTF8); } } } }";
    file(&path, schema, |group| {
        let levels = |of: fn(&(&'static str, &'static str)) -> &'static str| {
            (turns.iter().map(of).collect(), vec![4; turns.len()], vec![0, 1, 1, 1, 1])
        };
        texts(group, levels(|turn| turn.0));
        texts(group, levels(|turn| turn.1));
    });
    let traces = read_path(&path, None).unwrap();
    let kinds = |trace: &Trace| trace.events.iter().map(|event| event.kind.name()).collect::<Vec<_>>();
    assert_eq!(traces[0].format, "swe-agent");
    assert_eq!(kinds(&traces[0]), ["system_prompt", "message", "action", "observation", "message"]);
    let action = serde_json::to_value(&traces[0].events[2]).unwrap();
    assert_eq!((&action["tool_name"], &action["thought"][0]["text"]), (&json!("ls"), &json!("I look first.")));
}
