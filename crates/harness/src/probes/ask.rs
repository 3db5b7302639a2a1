//! Probes answered by a model.
//!
//! The model is handed what the request shows as a transcript, and the question. Its answer is first held against the
//! probe's values as a request is; only where that fails, and only for decisions and continuations, is a judge asked.
//! Every answer is kept, so that others can read what was called right.

use condenser::event::EventId;
use condenser::policy::{Summarizer, SummaryRequest};
use condenser::request::Body;
use condenser::tokens::Tokens;
use serde::Serialize;

use super::text::{holds, of_arguments};
use super::{Probe, ProbeKind};
use crate::replay::Seen;

const ASK: &str = include_str!("../../prompts/ask-v1.md");
const JUDGE: &str = include_str!("../../prompts/judge-v1.md");
const ASK_VERSION: &str = "ask-v1";
const JUDGE_VERSION: &str = "judge-v1";
/// The longest answer, and the longest word of a judge.
const ANSWER_TOKENS: Tokens = Tokens(400);
const JUDGE_TOKENS: Tokens = Tokens(20);

/// What a model answered to one probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The probe.
    pub probe: String,
    /// Its kind.
    pub kind: ProbeKind,
    /// Which time it was asked, from 0.
    pub repeat: usize,
    /// The model.
    pub model: String,
    /// The question.
    pub question: String,
    /// The answer as it came; `None` where the call failed.
    pub answer: Option<String>,
    /// Why there is no answer, or no judgement.
    pub error: Option<String>,
    /// Whether the answer holds the probe's values, and no stale one.
    pub exact: bool,
    /// The judge, where one was asked.
    pub judge: Option<String>,
    /// What the judge said, as it came.
    pub judged: Option<String>,
    /// Whether the answer counts as right.
    pub passes: bool,
    /// Tokens read by the model and the judge.
    pub input_tokens: u64,
    /// Tokens written by both.
    pub output_tokens: u64,
}

/// Who is asked: one model per repeat, so that each may play its own sample of a cassette.
#[derive(Clone, Copy)]
pub struct Panel<'m> {
    /// Who answers, by repeat.
    pub models: &'m [Box<dyn Summarizer>],
    /// Who judges decisions and continuations, by repeat. Empty: nobody; then only exact answers count.
    pub judges: &'m [Box<dyn Summarizer>],
}

impl std::fmt::Debug for Panel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.models.iter().chain(self.judges).map(|model| model.name()).collect();
        f.debug_tuple("Panel").field(&names).finish()
    }
}

impl Panel<'_> {
    /// Asks every model about a probe. `seen` is the step of the probe.
    pub fn ask(&self, probe: &Probe, seen: &Seen<'_>) -> Vec<Answer> {
        let request = SummaryRequest {
            instructions: format!("{ASK}\nQuestion: {}", probe.question),
            events: transcript(seen),
            max_tokens: Some(ANSWER_TOKENS),
            prompt_version: ASK_VERSION.to_owned(),
            ..SummaryRequest::default()
        };
        self.models.iter().enumerate().map(|(repeat, model)| self.ask_once(probe, &request, repeat, &**model)).collect()
    }

    fn ask_once(&self, probe: &Probe, request: &SummaryRequest, repeat: usize, model: &dyn Summarizer) -> Answer {
        let mut answer = Answer {
            probe: probe.id.clone(),
            kind: probe.kind,
            repeat,
            model: model.name().to_owned(),
            question: probe.question.clone(),
            answer: None,
            error: None,
            exact: false,
            judge: None,
            judged: None,
            passes: false,
            input_tokens: 0,
            output_tokens: 0,
        };
        match model.summarize(request) {
            Err(error) => answer.error = Some(error.to_string()),
            Ok(reply) => {
                answer.input_tokens += reply.input_tokens.0;
                answer.output_tokens += reply.output_tokens.0;
                answer.exact = is_exact(probe, &reply.text);
                answer.passes = answer.exact;
                let is_judged = matches!(probe.kind, ProbeKind::Decision | ProbeKind::Continuation) && !answer.exact;
                if let Some(judge) = self.judges.get(repeat).filter(|_| is_judged) {
                    judge_answer(probe, &reply.text, &**judge, &mut answer);
                }
                answer.answer = Some(reply.text);
            }
        }
        answer
    }
}

fn judge_answer(probe: &Probe, text: &str, judge: &dyn Summarizer, answer: &mut Answer) {
    let right = probe.answer.join("; ");
    let request = SummaryRequest {
        instructions: format!("{JUDGE}\nQuestion: {}\nA right answer says: {right}", probe.question),
        events: vec![(EventId::from("answer"), text.to_owned())],
        max_tokens: Some(JUDGE_TOKENS),
        prompt_version: JUDGE_VERSION.to_owned(),
        ..SummaryRequest::default()
    };
    answer.judge = Some(judge.name().to_owned());
    match judge.summarize(&request) {
        Err(error) => answer.error = Some(format!("the judge: {error}")),
        Ok(reply) => {
            answer.input_tokens += reply.input_tokens.0;
            answer.output_tokens += reply.output_tokens.0;
            answer.passes = says_yes(&reply.text);
            answer.judged = Some(reply.text);
        }
    }
}

fn is_exact(probe: &Probe, text: &str) -> bool {
    probe.units().iter().all(|unit| unit.is_in(text)) && !probe.stale.iter().any(|stale| holds(text, stale))
}

/// Whether the first word is "yes". Whatever is not, is no.
fn says_yes(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    words.next().is_some_and(|word| word.eq_ignore_ascii_case("yes"))
}

/// What the request shows, piece by piece.
fn transcript(seen: &Seen<'_>) -> Vec<(EventId, String)> {
    let parts = seen.request.turns.iter().flat_map(|turn| &turn.parts);
    parts
        .filter_map(|part| {
            let id = seen.view.get(part.entry?)?.id().clone();
            match &part.body {
                Body::Text(text) => Some((id, text.to_string())),
                Body::Call { name, arguments, .. } => Some((id, format!("{name}\n{}", of_arguments(arguments)))),
                Body::Image(_) | Body::Thinking(_) => None,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_says_yes_with_its_first_word() {
        for (text, expected) in [
            ("yes", true),
            (" **Yes**, it is", true),
            ("no", false),
            ("", false),
            ("I say yes", false),
            ("yesterday", false),
        ] {
            assert_eq!(says_yes(text), expected, "{text:?}");
        }
    }
}
