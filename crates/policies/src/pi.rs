//! `pi` and `pi-v1`: the session log and compaction of the Pi coding agent, as read at 0.73.1 of
//! `@mariozechner/pi-coding-agent` and at 1.6.0 of `@earendil-works/pi-coding-agent`.

pub mod peer;
