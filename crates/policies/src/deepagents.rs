//! `deepagents`, `langchain-summarization` and `langchain-clear-tool-uses`.
pub mod peer;
