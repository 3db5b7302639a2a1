//! New ids: ULIDs that ascend within one handle.

use ulid::{ULID_LEN, Ulid};

/// Makes ascending ULIDs from a clock and randomness that the caller brings.
#[derive(Debug)]
pub(crate) struct Ids {
    last: Ulid,
}

impl Ids {
    pub(crate) fn new() -> Self {
        Self { last: Ulid::nil() }
    }

    /// The next id: later than every id before it, also when the clock stands still or goes back.
    pub(crate) fn next<E>(&mut self, now_ms: u64, random: impl FnOnce() -> Result<u128, E>) -> Result<String, E> {
        let last = self.last;
        self.last = if now_ms > last.timestamp_ms() {
            Ulid::from_parts(now_ms, random()?)
        } else {
            match last.increment() {
                Ok(next) => next,
                Err(_) => Ulid::from_parts(last.timestamp_ms() + 1, random()?),
            }
        };
        Ok(self.last.array_to_str(&mut [0; ULID_LEN]).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn ids_ascend_while_the_clock_stands_still_or_goes_back() {
        let mut ids = Ids::new();
        let made: Vec<String> = [5u64, 5, 5, 3, 0, 6, 6]
            .into_iter()
            .map(|now| ids.next(now, || Ok::<_, Infallible>(u128::MAX)).unwrap())
            .collect();
        assert!(made.is_sorted_by(|a, b| a < b), "{made:?}");
        assert!(made.iter().all(|id| id.len() == ULID_LEN));
    }
}
