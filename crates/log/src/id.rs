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

/// A time in milliseconds since 1970 as RFC 3339 text in UTC.
pub(crate) fn timestamp(ms: u64) -> String {
    let (days, ms) = (ms / 86_400_000, ms % 86_400_000);
    // Days count from a first of March, so that the leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, if month < 10 { month + 3 } else { month - 9 });
    let year = if month <= 2 { year + 1 } else { year };
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn times_are_written_as_dates_of_the_calendar() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
            (1_772_323_200_000, "2026-03-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(ms), expected);
        }
    }

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
