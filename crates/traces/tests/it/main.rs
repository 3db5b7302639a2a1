//! Tests of the readers through their public interface.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "these are tests")]

mod anthropic;
mod atif;
mod claude_code;
mod cline;
mod codex;
mod common;
mod conformance;
mod damage;
mod decoding;
mod finding;
mod gemini;
mod inspect;
mod langchain;
mod mini_swe_agent;
mod oddities;
mod openai_chat;
mod opencode;
mod openhands_v0;
mod openhands_v1;
mod otel;
mod pi;
mod redacting;
mod responses;
mod script;
mod stored;
mod swe_agent;
mod writing;
