//! A megabyte of what is hard on tokenizers, counted in under a second each.

use std::time::{Duration, Instant};

use condenser_models::TOKENIZERS;

const MOST: Duration = Duration::from_secs(1);

/// How long this thread was on a processor, where the system says so: other work on the machine is no property of a
/// counter.
pub(crate) fn on_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Bytes that look random and are the same in every run.
fn bytes() -> impl Iterator<Item = u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    })
}

/// Prints a line per counter and text. Whether each was fast enough.
pub(crate) fn command() -> anyhow::Result<bool> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let size = 1 << 20;
    let base64: String = bytes().take(size).map(|byte| ALPHABET[usize::from(byte % 64)] as char).collect();
    let mut json = String::from("[");
    for (index, byte) in bytes().enumerate() {
        if json.len() >= size {
            break;
        }
        json.push_str(&format!(
            "{{\"id\":{index},\"ok\":{},\"path\":\"src/m{byte}.rs\",\"size\":{}}},",
            byte % 2 == 0,
            u32::from(byte) * 97
        ));
    }
    let texts = [("one letter", "a".repeat(size)), ("base64", base64), ("minified JSON", json)];
    let mut is_fast = true;
    for name in TOKENIZERS {
        let counter = condenser_models::tokenizer(name)?;
        // The vocabulary is unpacked once.
        counter.count("warm");
        for (what, text) in &texts {
            let before = (Instant::now(), on_processor());
            let tokens = counter.count(text);
            let taken = match (before.1, on_processor()) {
                (Some(before), Some(now)) => now - before,
                _ => before.0.elapsed(),
            };
            is_fast &= taken < MOST;
            println!("{name:8} {what:14} {tokens:>8} tokens in {:.3} s", taken.as_secs_f64());
        }
    }
    Ok(is_fast)
}
