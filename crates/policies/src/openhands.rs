//! `openhands`: the summarizing condenser of the OpenHands SDK, as read at version 1.58.2.
//!
//! It triggers on a request, on more than `max_size` events, or on more tokens than a limit; it summarizes a range in
//! the middle that begins after `keep_first` events and ends where half the size remains, cut at manipulation
//! indices. Where no such range exists and it must act, it summarizes everything after the system prompt.

pub mod peer;
