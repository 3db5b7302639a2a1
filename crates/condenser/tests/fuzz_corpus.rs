//! The kept inputs of the fuzzers, through the functions that are fuzzed.
#![expect(clippy::unwrap_used, reason = "a failure is a panic, as fuzzers want it")]
#![expect(clippy::disallowed_methods, reason = "the inputs are files")]

mod fuzz_targets;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = format!("{}/../../fixtures/fuzz/{target}", env!("CARGO_MANIFEST_DIR"));
    let Ok(files) = std::fs::read_dir(&folder) else {
        println!("skipped: {folder} is not there");
        return;
    };
    for file in files {
        run(&std::fs::read(file.unwrap().path()).unwrap());
    }
}

#[test]
fn kept_inputs_of_event_json_pass() {
    replay("event_json", fuzz_targets::event_json);
}

#[test]
fn kept_inputs_of_replay_pass() {
    replay("replay", fuzz_targets::replay);
}
