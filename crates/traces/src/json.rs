//! Decoding of JSON and JSON lines as found in the wild.
