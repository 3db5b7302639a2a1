#![no_main]

#[path = "../../tests/fuzz_targets/mod.rs"]
#[allow(dead_code)]
mod fuzz_targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::opencode(data));
