//! Condensation policies: native ones, and ports of the systems in use.

pub mod openhands;
