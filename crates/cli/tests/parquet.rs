//! A Parquet file of a thousand trajectories through `compare`.

#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::fs::File;
use std::process::Command;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};

const N: usize = 1000;

fn conversation(n: usize) -> String {
    let mut messages = vec![
        json!({"role": "system", "content": "You count."}),
        json!({"role": "user", "content": format!("Count the words of file {n}.")}),
    ];
    for step in 0..3 {
        let id = format!("c{step}");
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "wc", "arguments": "{\"file\": \"notes\"}"}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": format!("{n} words after step {step}")}));
    }
    messages.push(json!({"role": "assistant", "content": "done"}));
    Value::from(messages).to_string()
}

#[test]
fn a_thousand_trajectories_of_a_parquet_file_are_compared() {
    let made = tempfile::tempdir().unwrap();
    let path = made.path().join("trajectories.parquet");
    let schema = "message rows { required binary instance_id (UTF8); required binary messages (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let columns: [fn(usize) -> String; 2] = [|n| format!("i{n}"), conversation];
    for column in columns {
        let values: Vec<ByteArray> = (0..N).map(|n| ByteArray::from(column(n).into_bytes())).collect();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();

    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_condenser")).args(arguments).arg(&path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let stats = run(&["traces", "stats", "--format", "jsonl"]);
    let rows: Vec<Value> = stats.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), N);
    assert!(rows.iter().all(|row| row["records"] == N && row["events"]["action"] == 3 && row["diagnostics"] == 0));

    let compared = run(&["compare", "--policy", "none,recent-events", "--window", "32k", "--format", "jsonl"]);
    let rows: Vec<Value> = compared.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().filter(|row| row["policy"] == "recent-events").count(), N);
    assert_eq!(rows.iter().filter(|row| row["policy"] == "none").count(), N);
}
