//! Rows as a Parquet file: one row group, every column optional.

use std::io::Write;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde::Serialize;
use serde_json::{Map, Value};

/// What a column holds.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Text,
    Integer,
    Number,
}

/// Writes flat records of texts and numbers.
pub(crate) fn write<T: Serialize>(rows: &[T], writer: &mut dyn Write) -> std::io::Result<()> {
    let rows: Vec<Map<String, Value>> = rows
        .iter()
        .map(|row| match serde_json::to_value(row)? {
            Value::Object(fields) => Ok(fields),
            _ => Err(std::io::Error::other("a row is no record")),
        })
        .collect::<Result<_, _>>()?;
    columns(&rows, writer).map_err(std::io::Error::other)
}

fn columns(rows: &[Map<String, Value>], writer: &mut dyn Write) -> Result<(), ParquetError> {
    let names: Vec<&String> = rows.first().map(|row| row.keys().collect()).unwrap_or_default();
    let kinds: Vec<Kind> = names.iter().map(|name| kind(rows, name)).collect();
    let fields = names.iter().zip(&kinds).map(|(name, kind)| match kind {
        Kind::Text => format!("optional binary {name} (UTF8);"),
        Kind::Integer => format!("optional int64 {name};"),
        Kind::Number => format!("optional double {name};"),
    });
    // A message without fields is no schema.
    let schema = match names.is_empty() {
        true => "message rows { optional binary trace (UTF8); }".to_owned(),
        false => format!("message rows {{ {} }}", fields.collect::<String>()),
    };
    let schema = Arc::new(parse_message_type(&schema)?);
    let properties = Arc::new(WriterProperties::builder().build());
    // The writer wants to own what may be sent to other threads.
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, properties)?;
    let mut group = file.next_row_group()?;
    for (name, kind) in names.into_iter().zip(kinds) {
        let Some(mut column) = group.next_column()? else { break };
        let values = || rows.iter().map(|row| row.get(name).filter(|value| !value.is_null()));
        let levels: Vec<i16> = values().map(|value| i16::from(value.is_some())).collect();
        match kind {
            Kind::Text => {
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let texts: Vec<ByteArray> =
                    values().flatten().map(|value| ByteArray::from(text(value).into_bytes())).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, Some(&levels), None)?;
            }
            Kind::Integer => {
                let numbers: Vec<i64> = values().flatten().map(|value| value.as_i64().unwrap_or_default()).collect();
                column.typed::<Int64Type>().write_batch(&numbers, Some(&levels), None)?;
            }
            Kind::Number => {
                let numbers: Vec<f64> = values().flatten().map(|value| value.as_f64().unwrap_or_default()).collect();
                column.typed::<DoubleType>().write_batch(&numbers, Some(&levels), None)?;
            }
        }
        column.close()?;
    }
    group.close()?;
    file.close()?;
    writer.write_all(&bytes)?;
    Ok(())
}

fn kind(rows: &[Map<String, Value>], name: &str) -> Kind {
    let mut values = rows.iter().filter_map(|row| row.get(name)).filter(|value| !value.is_null()).peekable();
    let is_empty = values.peek().is_none();
    let (mut all_integers, mut all_numbers) = (true, true);
    for value in values {
        all_integers &= value.is_i64();
        all_numbers &= value.is_number();
    }
    match (is_empty, all_integers, all_numbers) {
        (false, true, _) => Kind::Integer,
        (false, false, true) => Kind::Number,
        _ => Kind::Text,
    }
}
