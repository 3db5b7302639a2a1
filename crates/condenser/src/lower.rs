//! Lowerings that reproduce a peer exactly, valid or not. [`Request`](crate::Request) is the one to send.

pub mod openhands;
