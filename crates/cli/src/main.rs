//! The command `condenser`.
fn main() {}
