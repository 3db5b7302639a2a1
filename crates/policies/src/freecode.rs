//! `freecode`: FreeCode's pruning, compaction and overflow retry.

pub mod peer;
