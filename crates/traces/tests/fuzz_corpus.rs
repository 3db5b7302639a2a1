//! The kept inputs of the fuzzers, through the functions that are fuzzed.
#![expect(clippy::unwrap_used, reason = "a failure is a panic, as fuzzers want it")]

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
fn kept_inputs_of_openai_chat_pass() {
    replay("openai_chat", fuzz_targets::openai_chat);
}

#[test]
fn kept_inputs_of_openhands_v1_pass() {
    replay("openhands_v1", fuzz_targets::openhands_v1);
}
