//! `extractive`: a summarizer that needs no model. It writes nothing of its own, it selects whole lines.
//!
//! Not a summary as a language model writes one, and its text says so: results with it speak about selection only.
//!
//! Each line of the events and of the previous extract is a candidate, once; longer ones than 300 characters are cut
//! in the middle. Lines come in three classes: the user's, errors, and others. The user's lines take up to 40% of the
//! room and errors up to 25%, the newest first. All that is left goes to the best lines of any class, by the number of
//! *identifiers* in them that occur in at least two lines but not in more than a fifth, per root of the line's length,
//! paths counted twice. An identifier is a run of letters, digits and `_ . / : - # @` of at least four characters that
//! holds a digit, one of those signs or an inner capital. The chosen lines are written in their old order, with the
//! address of their event where the input names it.
//!
//! Lines of the previous extract compete with the new ones, so the size stays within its bound however often it is
//! done again.

use std::collections::{HashMap, HashSet};

use condenser::condensation::clip;
use condenser::request::TOKENS_PER_MESSAGE;
use condenser::tokens::CharsPer4;
use condenser::{SummarizeError, Summarizer, Summary, SummaryRequest, TokenCounter, Tokens};

const HEAD: &str = "[Extract of earlier events: whole lines, chosen without a model.]";
const MAX_LINE: usize = 300;
/// Candidates beyond this number are not looked at, oldest first.
const MAX_CANDIDATES: usize = 20_000;

/// Selects lines. Sizes are characters divided by four.
#[derive(Clone, Copy, Debug)]
pub struct Extractive {
    /// The most tokens of an extract, where the request does not ask for fewer.
    pub max_tokens: Tokens,
}

impl Default for Extractive {
    fn default() -> Self {
        Self { max_tokens: Tokens(1000) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    User,
    Error,
    Other,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Self::User => "user: ",
            Self::Error => "error: ",
            Self::Other => "- ",
        }
    }
}

#[derive(Debug)]
struct Candidate {
    kind: Kind,
    text: String,
    address: Option<String>,
}

impl Candidate {
    fn render(&self) -> String {
        match &self.address {
            Some(address) => format!("{}{} {address}", self.kind.prefix(), self.text),
            None => format!("{}{}", self.kind.prefix(), self.text),
        }
    }
}

impl Summarizer for Extractive {
    fn name(&self) -> &str {
        "extractive"
    }

    fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        let candidates = candidates(request);
        let most = request.max_tokens.map_or(self.max_tokens, |most| most.min(self.max_tokens));
        let chosen = choose(&candidates, most - CharsPer4.count(HEAD));
        if chosen.is_empty() {
            return Err(SummarizeError::Empty);
        }
        let mut text = HEAD.to_owned();
        for index in chosen {
            text.push('\n');
            text.push_str(&candidates[index].render());
        }
        let input = CharsPer4.count(&request.instructions) + CharsPer4.count(&request.input());
        let output_tokens = CharsPer4.count(&text);
        Ok(Summary {
            text,
            input_tokens: input + TOKENS_PER_MESSAGE + TOKENS_PER_MESSAGE,
            output_tokens,
            ..Summary::default()
        })
    }
}

/// All lines, oldest first, equal ones once and at their newest place.
fn candidates(request: &SummaryRequest) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for line in request.previous.iter().flat_map(|text| text.lines()).filter(|line| *line != HEAD) {
        let (kind, text) = [Kind::User, Kind::Error, Kind::Other]
            .into_iter()
            .find_map(|kind| Some((kind, line.strip_prefix(kind.prefix())?)))
            .unwrap_or((Kind::Other, line));
        let (text, address) = match text.rsplit_once(" [event ") {
            Some((text, id)) if id.ends_with(']') => (text, Some(format!("[event {id}"))),
            _ => (text, None),
        };
        push(&mut all, kind, text, address);
    }
    for (_, event) in &request.events {
        let (label, body) = event.split_once('\n').unwrap_or(("", event));
        let address = label.find("[event ").map(|at| label[at..].to_owned());
        for line in body.lines() {
            let kind = if label.starts_with("[user]") {
                Kind::User
            } else if label.starts_with("[result") && is_error(line) {
                Kind::Error
            } else {
                Kind::Other
            };
            push(&mut all, kind, line, address.clone());
        }
    }
    let skipped = all.len().saturating_sub(MAX_CANDIDATES);
    let mut seen = HashSet::new();
    let mut newest: Vec<Candidate> =
        all.into_iter().skip(skipped).rev().filter(|candidate| seen.insert(candidate.text.clone())).collect();
    newest.reverse();
    newest
}

fn push(all: &mut Vec<Candidate>, kind: Kind, line: &str, address: Option<String>) {
    let line = line.trim();
    if line.chars().filter(|c| c.is_alphanumeric()).take(3).count() == 3 {
        let text = clip(line, MAX_LINE * 2 / 3, MAX_LINE / 3).unwrap_or_else(|| line.to_owned());
        all.push(Candidate { kind, text, address });
    }
}

fn is_error(line: &str) -> bool {
    let lower = line[..line.floor_char_boundary(200)].to_ascii_lowercase();
    ["error", "exception", "panicked", "fatal:", "failed", "no such file"].iter().any(|word| lower.contains(word))
}

/// The positions of the chosen lines, in order.
fn choose(candidates: &[Candidate], room: Tokens) -> Vec<usize> {
    let sizes: Vec<Tokens> = candidates.iter().map(|line| CharsPer4.count(&line.render()) + Tokens(1)).collect();
    let mut chosen: HashSet<usize> = HashSet::new();
    let mut used = Tokens::ZERO;
    let mut take = |order: &[usize], room: Tokens, used: &mut Tokens| {
        for &index in order {
            if *used + sizes[index] <= room && chosen.insert(index) {
                *used += sizes[index];
            }
        }
    };
    for (kind, share) in [(Kind::User, 0.4), (Kind::Error, 0.25)] {
        let order: Vec<usize> = (0..candidates.len()).rev().filter(|&i| candidates[i].kind == kind).collect();
        let upto = used + room.share(share);
        take(&order, upto, &mut used);
    }
    let scores = scores(candidates);
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(b.cmp(&a)));
    take(&order, room, &mut used);
    let mut chosen: Vec<usize> = chosen.into_iter().collect();
    chosen.sort_unstable();
    chosen
}

fn scores(candidates: &[Candidate]) -> Vec<f64> {
    let identifiers: Vec<HashSet<&str>> = candidates.iter().map(|line| identifiers(&line.text)).collect();
    let mut frequency: HashMap<&str, usize> = HashMap::new();
    for identifier in identifiers.iter().flatten() {
        *frequency.entry(identifier).or_default() += 1;
    }
    let most = (candidates.len() / 5).max(2);
    let score = |(line, identifiers): (&Candidate, &HashSet<&str>)| {
        let shared = identifiers.iter().filter(|identifier| (2..=most).contains(&frequency[*identifier]));
        let sum: f64 = shared.map(|identifier| if identifier.contains('/') { 2.0 } else { 1.0 }).sum();
        sum / (line.text.len().max(1) as f64).sqrt()
    };
    candidates.iter().zip(&identifiers).map(score).collect()
}

fn identifiers(text: &str) -> HashSet<&str> {
    let is_sign = |c: char| matches!(c, '_' | '.' | '/' | ':' | '-' | '#' | '@');
    text.split(|c: char| !(c.is_alphanumeric() || is_sign(c)))
        .map(|run| run.trim_matches(|c| matches!(c, '.' | ':' | '/' | '-')))
        .filter(|run| run.len() >= 4 && run.chars().skip(1).any(|c| is_sign(c) || c.is_numeric() || c.is_uppercase()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use condenser::EventId;

    fn request(events: &[(&str, &str)], previous: Option<&str>, max_tokens: u64) -> SummaryRequest {
        SummaryRequest {
            events: events.iter().map(|(id, text)| (EventId::new(*id), (*text).to_owned())).collect(),
            previous: previous.map(str::to_owned),
            max_tokens: Some(Tokens(max_tokens)),
            ..SummaryRequest::default()
        }
    }

    #[test]
    fn users_words_and_errors_are_chosen_before_others() {
        let filler: String = (0..200).map(|i| format!("line {i} of a long listing without much\n")).collect();
        let filler = format!("[result of bash] [event r1]\n{filler}");
        let events = [
            ("u", "[user] [event u]\nNever touch src/api.rs."),
            ("r1", filler.as_str()),
            ("r2", "[result of bash, an error] [event r2]\nerror[E0308]: mismatched types"),
        ];
        let summary = Extractive::default().summarize(&request(&events, None, 100)).unwrap();
        assert!(summary.text.contains("user: Never touch src/api.rs. [event u]"), "{}", summary.text);
        assert!(summary.text.contains("error: error[E0308]: mismatched types [event r2]"), "{}", summary.text);
        assert!(summary.output_tokens <= Tokens(100));
        assert!(summary.input_tokens > Tokens(1000));
    }

    #[test]
    fn the_size_stays_within_its_bound_over_many_rounds_and_lines_survive_as_they_are() {
        let mut previous: Option<String> = None;
        for round in 0..31 {
            let event =
                format!("[user]\nRule number {round} stands.\nMore words on round {round} and /a/path/{round}.rs");
            let text =
                Extractive::default().summarize(&request(&[("e", &event)], previous.as_deref(), 200)).unwrap().text;
            assert!(CharsPer4.count(&text) <= Tokens(200));
            assert_eq!(text.matches(HEAD).count(), 1);
            assert!(text.contains(&format!("user: Rule number {round} stands.")));
            previous = Some(text);
        }
    }

    #[test]
    fn nothing_to_choose_from_is_a_failed_call() {
        for events in [&[][..], &[("e", "[user]\n \n--")][..]] {
            assert_eq!(Extractive::default().summarize(&request(events, None, 100)), Err(SummarizeError::Empty));
        }
    }
}
