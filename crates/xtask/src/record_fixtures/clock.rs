//! Ids and times that come out the same in every recording.

/// A seeded source of ids and of a clock that only moves when told.
#[derive(Debug)]
pub(crate) struct Clock {
    state: u64,
    micros: u64,
}

impl Clock {
    /// Seeds the ids with a name and sets the clock to a Unix time in seconds.
    pub(crate) fn new(seed: &str, start: u64) -> Self {
        // FNV-1a, so that each fixture has ids of its own.
        let state = seed
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self { state, micros: start * 1_000_000 }
    }

    fn next(&mut self) -> u64 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Moves the clock by a seeded time between two bounds in milliseconds.
    pub(crate) fn pass(&mut self, least_millis: u64, most_millis: u64) {
        let span = (most_millis - least_millis) * 1000;
        self.micros += least_millis * 1000 + self.next() % span;
    }

    /// Unix time in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        self.micros
    }

    /// A UUID of version 4 shape.
    pub(crate) fn uuid(&mut self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        )
    }

    /// Eight hexadecimal digits.
    pub(crate) fn short_hex(&mut self) -> String {
        format!("{:08x}", self.next() >> 32)
    }

    /// A prefix followed by 22 letters and digits.
    pub(crate) fn token(&mut self, prefix: &str) -> String {
        const ALPHABET: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789";
        let mut token = prefix.to_owned();
        for _ in 0..22 {
            let index = (self.next() % ALPHABET.len() as u64) as usize;
            token.push(char::from(ALPHABET[index]));
        }
        token
    }
}

/// `2026-03-02T08:14:05.123456`: local time without a zone.
pub(crate) fn iso_local(micros: u64) -> String {
    format!("{}.{:06}", civil(micros), micros % 1_000_000)
}

/// `2026-03-02T08:14:05.123Z`.
pub(crate) fn iso_zulu(micros: u64) -> String {
    format!("{}.{:03}Z", civil(micros), micros / 1000 % 1000)
}

fn civil(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that the leap day ends a year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", clock / 3600, clock / 60 % 60, clock % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_calendar_dates() {
        assert_eq!(iso_zulu(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_zulu(951_782_400_250_000), "2000-02-29T00:00:00.250Z");
        assert_eq!(iso_local(1_772_439_245_000_007), "2026-03-02T08:14:05.000007");
    }

    #[test]
    fn equal_seeds_give_equal_ids() {
        let (mut one, mut other) = (Clock::new("a", 0), Clock::new("a", 0));
        assert_eq!(one.uuid(), other.uuid());
        assert_eq!(one.uuid().len(), 36);
    }
}
