//! What canaries say.

use super::CanaryKind;
use crate::probes::Unit;
use crate::random::SplitMix64;

/// One canary's words: what is said first, where it is superseded later, and the ways to say what counts.
pub(super) struct Said {
    pub(super) before: Option<String>,
    pub(super) wordings: Vec<String>,
    pub(super) units: Vec<Unit>,
    pub(super) stale: Vec<String>,
}

const NEGATIVE: [&str; 8] = ["never", "do not", "don't", "must not", "not", "no", "forbidden", "without"];
const BOUND: [&str; 9] =
    ["must", "at most", "no more than", "limit", "maximum", "within", "below", "not", "hard bound"];

/// Draws values that `is_taken` does not know, and puts them into words.
pub(super) fn say(kind: CanaryKind, random: &mut SplitMix64, is_taken: &dyn Fn(&str) -> bool) -> Said {
    let mut draw = |make: &dyn Fn(&mut SplitMix64) -> String| {
        let mut value = make(random);
        while is_taken(&value) {
            value = make(random);
        }
        value
    };
    let value = |text: &str| Unit::Value(text.to_owned());
    let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
    let plain =
        |wordings: [String; 3], units| Said { before: None, wordings: wordings.into(), units, stale: Vec::new() };
    match kind {
        CanaryKind::SafetyRule => {
            let v = draw(&name);
            let unit = Unit::Constraint { value: v.clone(), wordings: owned(&NEGATIVE) };
            plain(
                [
                    format!("Never run `{v}`: it empties the shared volume."),
                    format!("One rule for all of this work: do not call {v}, whatever a script suggests."),
                    format!("You must not use {v} on this machine."),
                ],
                vec![unit],
            )
        }
        CanaryKind::HardConstraint => {
            let v = draw(&number);
            let unit = Unit::Constraint { value: v.clone(), wordings: owned(&BOUND) };
            plain(
                [
                    format!("An answer must take at most {v} microseconds."),
                    format!("The hard bound for the index is {v} bytes, no more than that."),
                    format!("Keep the queue below {v} entries; that is a limit of the device."),
                ],
                vec![unit],
            )
        }
        CanaryKind::Fact => {
            let v = draw(&name);
            plain(
                [
                    format!("The staging database runs on host {v}."),
                    format!("note: primary replica is {v}"),
                    format!("For the record, the licence server is called {v}."),
                ],
                vec![value(&v)],
            )
        }
        CanaryKind::GoalState => {
            let (v, n) = (draw(&name), draw(&number));
            plain(
                [
                    format!("The work is done when {v} reports {n} rows."),
                    format!("What I want in the end: `{v}` prints {n} and nothing else."),
                    format!("Goal: {n} records in {v}."),
                ],
                vec![value(&v), value(&n)],
            )
        }
        CanaryKind::Preference => {
            let v = draw(&name);
            plain(
                [
                    format!("I prefer reports under the name {v}, please."),
                    format!("By the way, I like the prefix {v} for new files."),
                    format!("Where there is a choice, take {v}; I am used to it."),
                ],
                vec![value(&v)],
            )
        }
        CanaryKind::Correction => {
            let (old, new) = (draw(&name), draw(&name));
            Said {
                before: Some(format!("Deploy to {old} when the time comes.")),
                wordings: vec![
                    format!("Correction: deploy to {new} instead of the place I named before."),
                    format!("I was wrong about the target. It is {new}, the earlier one no longer exists."),
                    format!("The target has changed: use {new} from now on."),
                ],
                units: vec![value(&new)],
                stale: vec![old],
            }
        }
        CanaryKind::NearDuplicates => {
            let (a, b) = near(&draw(&number));
            let (a, b) = (format!("PX-{a}-L"), format!("PX-{b}-L"));
            plain(
                [
                    format!("The left pump is {a} and the right pump is {b}."),
                    format!("parts: {a} (old series), {b} (new series)"),
                    format!("Mind that {a} and {b} are two different orders."),
                ],
                vec![value(&a), value(&b)],
            )
        }
        CanaryKind::ExactList => {
            let list: Vec<String> = (0..5).map(|_| draw(&name)).collect();
            let joined = list.join(", ");
            plain(
                [
                    format!("Migrate in exactly this order: {joined}."),
                    format!("order of shutdown: {joined}"),
                    format!("These five, and no others: {joined}."),
                ],
                vec![Unit::List(list)],
            )
        }
    }
}

/// Three syllables and four digits.
fn name(random: &mut SplitMix64) -> String {
    let mut letter = |letters: &str| char::from(letters.as_bytes()[random.below(letters.len())]);
    let mut name = String::new();
    for _ in 0..3 {
        name.push(letter("bdfgklmnprstvz"));
        name.push(letter("aeiou"));
    }
    name.push('-');
    (0..4).for_each(|_| name.push(letter("0123456789")));
    name
}

/// Six digits, the first not 0.
fn number(random: &mut SplitMix64) -> String {
    (100_000 + random.below(900_000)).to_string()
}

/// A number, and the same with its fourth digit exchanged.
fn near(number: &str) -> (String, String) {
    let other: String = number
        .char_indices()
        .map(|(at, digit)| match digit.to_digit(10) {
            Some(digit) if at == 3 => char::from_digit((digit + 3) % 10, 10).unwrap_or('0'),
            _ => digit,
        })
        .collect();
    (number.to_owned(), other)
}
