//! Seconds between recorded timestamps.

/// Seconds since 1970 of an RFC 3339 time. A time without an offset is read as UTC. `None` where it is something else.
pub(crate) fn seconds(timestamp: &str) -> Option<f64> {
    let bytes = timestamp.as_bytes();
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let digits = bytes.get(range)?;
        digits.iter().try_fold(0i64, |value, b| b.is_ascii_digit().then(|| value * 10 + i64::from(b - b'0')))
    };
    let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|b| any.contains(b));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut at = 19;
    let mut fraction = 0.0;
    if is(at, b".") {
        let digits = bytes[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        fraction = timestamp.get(at..at + 1 + digits)?.parse().ok()?;
        at += 1 + digits;
    }
    let offset = match bytes.get(at..)? {
        b"" | b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
            let minutes = number(at + 1..at + 3)? * 60 + number(at + 4..at + 6)?;
            if *sign == b'-' { -minutes } else { minutes }
        }
        _ => return None,
    };
    // Days of the civil calendar, with years that begin in March.
    let shifted = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * shifted + shifted.div_euclid(4) - shifted.div_euclid(100) + shifted.div_euclid(400) + day_of_year;
    let minutes = (days - 719_468) * 1440 + hour * 60 + minute - offset;
    Some((minutes * 60 + second) as f64 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3339_times_become_seconds() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0.0)),
            ("2000-03-01T00:00:00Z", Some(951_868_800.0)),
            ("2024-02-29T23:59:59.5Z", Some(1_709_251_199.5)),
            ("2024-02-29T23:59:59+01:30", Some(1_709_245_799.0)),
            ("2024-02-29 23:59:59", Some(1_709_251_199.0)),
            ("2024-02-29", None),
            ("2024-13-29T23:59:59Z", None),
            ("2024-02-29T23:59:59 later", None),
            ("", None),
            ("ééééééééééééééé", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }
}
