//! The kept inputs of the fuzzers, through the functions that are fuzzed.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a failure is a panic, as fuzzers want it")]

use condenser_traces::FORMATS;

mod fuzz_targets;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = format!("{}/../../fixtures/fuzz/{target}", env!("CARGO_MANIFEST_DIR"));
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!files.is_empty(), "{folder} is empty");
    for file in files {
        println!("{}", file.display());
        run(&std::fs::read(file).unwrap());
    }
}

#[test]
fn kept_inputs_of_every_reader_pass() {
    fuzz_targets::ALL.iter().for_each(|(target, _, run)| replay(target, *run));
}

#[test]
fn kept_inputs_pass_record_by_record() {
    replay("stream", fuzz_targets::stream);
}

#[test]
fn every_reader_is_fuzzed() {
    let fuzzed: Vec<&str> = fuzz_targets::ALL.iter().map(|(_, format, _)| *format).collect();
    for format in FORMATS {
        assert!(fuzzed.contains(&format.name), "{}", format.name);
        let file = format!("{}/fuzz/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
        let manifest = std::fs::read_to_string(file).unwrap();
        assert!(fuzz_targets::ALL.iter().all(|(target, ..)| manifest.contains(&format!("name = \"{target}\""))));
    }
}
