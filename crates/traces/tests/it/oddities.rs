//! Odd files: read as far as they go, with each oddity named.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::common::check_trace;
use condenser_traces::{Reader, find, read_path};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/oddities")
}

/// The events of a file, and what is said about it.
fn told(name: &str, path: &Path) -> String {
    let mut told = String::new();
    match read_path(path, None) {
        Ok(traces) => {
            for trace in &traces {
                check_trace(trace);
                let kinds: Vec<&str> = trace.events.iter().map(|event| event.kind.name()).collect();
                writeln!(told, "{name}: {}, {} records: {}", trace.format, trace.records, kinds.join(" ")).unwrap();
                trace.diagnostics.iter().for_each(|odd| writeln!(told, "    {odd}").unwrap());
            }
        }
        Err(error) => writeln!(told, "{name}: {}", error.to_string().replace(path.to_str().unwrap(), name)).unwrap(),
    }
    told
}

#[test]
fn every_oddity_is_named_and_the_rest_of_its_file_read() {
    let mut all = String::new();
    for candidate in find(&folder()).unwrap() {
        let name = candidate.path.file_name().unwrap().to_str().unwrap();
        all += &told(name, &candidate.path);
    }
    insta::assert_snapshot!(all);
}

/// What is too large to be kept as a file.
#[test]
fn a_line_of_a_hundred_megabytes_and_nesting_without_end_are_survived() {
    let made = tempfile::tempdir().unwrap();
    let path = made.path().join("large.jsonl");
    let event = |id: &str, text: &str| {
        format!(
            "{{\"id\":\"{id}\",\"kind\":\"MessageEvent\",\"source\":\"user\",\
             \"llm_message\":{{\"role\":\"user\",\"content\":\"{text}\"}}}}\n"
        )
    };
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    file.write_all(event("a", "first").as_bytes()).unwrap();
    file.write_all(event("b", &"line after line ".repeat(100 << 16)).as_bytes()).unwrap();
    file.write_all(format!("{}\n", "[".repeat(1 << 20)).as_bytes()).unwrap();
    file.write_all(event("c", "last").as_bytes()).unwrap();
    file.into_inner().unwrap();
    insta::assert_snapshot!(told("large.jsonl", &path), @r"
    large.jsonl: openhands-v1, 3 records: message message message
        line 3: not JSON: nested deeper than 127 levels; the rest of the line is left out
    ");
}

#[test]
fn packed_files_and_streams_are_read_as_the_plain_file() {
    let plain = folder().join("bom-and-crlf.openhands.jsonl");
    let expected = read_path(&plain, None).unwrap();
    let text = std::fs::read(&plain).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&text).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(text.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    // An archive may be several, one after another.
    let (head, tail) = text.split_at(text.len() / 2);
    let frames: Vec<u8> = [head, tail]
        .iter()
        .flat_map(|part| ruzstd::encoding::compress_to_vec(*part, ruzstd::encoding::CompressionLevel::Fastest))
        .collect();
    for bytes in [text, gzip.finish().unwrap(), zstd, frames] {
        let traces = Reader::of_stream(Path::new("-"), bytes.as_slice(), None).unwrap().into_traces().unwrap();
        assert_eq!(traces[0].events, expected[0].events);
        assert_eq!((traces[0].name.as_str(), traces[0].records), ("-", 4));
    }
    let torn = [b"\x1f\x8b".as_slice(), b"not gzip"].concat();
    assert!(Reader::of_stream(Path::new("-"), torn.as_slice(), None).is_err());
}
