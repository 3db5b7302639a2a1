//! The budget of a complete request.

use serde_json::{Map, Value};

/// Names for the room of an answer.
const NAMES: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

/// The room for the answer: the largest that is a whole number, each as the request has it, even as null, else as the
/// model has it.
pub fn output_tokens(request: &Map<String, Value>, model: &Map<String, Value>) -> i64 {
    let of = |name: &&str| request.get(*name).or_else(|| model.get(*name))?.as_i64();
    NAMES.iter().filter_map(of).max().unwrap_or(0)
}

/// The most tokens of a request: a share of the input limit, less the room for the answer. `None`: no budget.
pub fn request_budget(limit: Option<i64>, share: f64, output: i64) -> Option<u64> {
    let whole = (limit? as f64 * share).floor() as i64;
    Some(u64::try_from(whole.saturating_sub(output)).unwrap_or(0))
}
