//! `cline-basic` and `cline-agentic`.
pub mod peer;
