//! `powercode`: the session and compactor of powercode.

pub mod peer;
