//! Tests of the readers through their public interface.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "these are tests")]

mod claude_code;
mod common;
mod conformance;
mod damage;
mod decoding;
mod finding;
mod openai_chat;
mod openhands_v1;
mod pi;
mod recorded;
mod swe_agent;
mod writing;
