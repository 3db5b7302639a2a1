//! Condensations driven to their outcome by a model behind HTTP.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Act, Stub, answer, asked, ok, session};
use condenser::request::Api;
use condenser::tokens::CharsPer4;
use condenser::{
    Budget, Condenser, Failure, Outcome, OutcomeKind, Rules, Sizer, State, SummarizeError, Summarizer as _, Summary,
    SummaryRequest, Tokens, View,
};
use condenser_llm::{AsyncSummarizer, Blocking, Client, Key, condense};
use serde_json::json;

/// Condenses a session that is over its budget.
async fn run(summarizer: &impl AsyncSummarizer) -> Outcome {
    let events = session(30);
    let view = View::replay(&events, Rules::Sound);
    let sizer = Sizer::new(&CharsPer4);
    let state = State::new(&view, &events, &sizer, Budget { window: Some(Tokens(7000)), reserve: Tokens(500) });
    let policy = condenser_policies::by_name("llm-summarizing").unwrap();
    condense(&Condenser::default(), &*policy, &state, summarizer).await
}

#[tokio::test]
async fn a_record_names_who_wrote_the_summary_and_what_it_cost() {
    for api in Api::ALL {
        let stub = Stub::start([ok(answer(api, "```\nThe parser is written.\n```"))]).await;
        let outcome = run(&stub.client(api)).await;
        let OutcomeKind::Applied(record) = outcome.result else { panic!("{}", outcome.explain()) };
        assert_eq!(record.summary.as_deref(), Some("The parser is written."));
        let provenance = record.provenance.unwrap();
        assert_eq!(provenance.summarizer, Some(format!("{api}/small-model")));
        let cost =
            (provenance.summarizer_calls, provenance.summarizer_input_tokens, provenance.summarizer_output_tokens);
        assert_eq!(cost, (1, 100, 5));
        assert!(record.llm_response_id.is_some());
    }
}

#[tokio::test]
async fn what_is_no_summary_is_refused_and_the_next_good_one_taken() {
    let chat = |content: &str, finish: &str| {
        ok(json!({"choices": [{"message": {"content": content}, "finish_reason": finish}],
                  "usage": {"prompt_tokens": 100, "completion_tokens": 5}}))
    };
    let refused = Act::Answer(400, "", "{\"error\": {\"message\": \"no\"}}".into());
    for (bad, expected) in [
        (chat("The parser is wr", "length"), Failure::Summarizer(SummarizeError::CutByLength)),
        (chat(" \n", "stop"), Failure::Summarizer(SummarizeError::Empty)),
        (refused, Failure::Summarizer(SummarizeError::Failed("the server answered 400: no".into()))),
    ] {
        let stub = Stub::start([bad, chat("The parser is written.", "stop")]).await;
        let outcome = run(&stub.client(Api::OpenAiChat)).await;
        assert_eq!(outcome.facts.tried, [expected]);
        assert_eq!(outcome.facts.summarizer_calls, 2);
        let OutcomeKind::Applied(record) = outcome.result else { panic!("{}", outcome.explain()) };
        assert_eq!(record.summary.as_deref(), Some("The parser is written."));
    }
}

#[tokio::test]
async fn a_summarizer_that_always_fails_leaves_everything_as_it_was() {
    let stub = Stub::start([Act::Answer(401, "", "{}".into())]).await;
    let outcome = run(&stub.client(Api::OpenAiChat)).await;
    assert!(!matches!(outcome.result, OutcomeKind::Applied(_)), "{}", outcome.explain());
    assert!(outcome.refusal().is_some(), "the attempt is counted");
    assert_eq!(outcome.facts.summarizer_calls as usize, stub.received().len());
}

#[tokio::test]
async fn dropping_the_future_hangs_up_and_records_nothing() {
    let stub = Stub::start([Act::Hang]).await;
    let client = stub.client(Api::OpenAiChat);
    tokio::select! {
        outcome = run(&client) => panic!("{}", outcome.explain()),
        () = stub.arrived.notified() => {}
    }
    // The future is gone, and with it the only place a record could come from.
    stub.hung_up.notified().await;
    assert_eq!(stub.received().len(), 1);
}

/// Answers after having been asked so often.
struct Slow(AtomicUsize);

impl AsyncSummarizer for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    async fn summarize(&self, request: &SummaryRequest) -> Result<Summary, SummarizeError> {
        assert!(!request.events.is_empty());
        tokio::task::yield_now().await;
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Err(SummarizeError::TimedOut),
            _ => Ok(Summary { text: "notes".into(), ..Summary::default() }),
        }
    }
}

#[tokio::test]
async fn anything_that_answers_later_can_summarize() {
    let outcome = run(&Slow(AtomicUsize::new(0))).await;
    let OutcomeKind::Applied(record) = outcome.result else { panic!("{}", outcome.explain()) };
    assert_eq!(record.provenance.unwrap().summarizer.as_deref(), Some("slow"));
    assert_eq!(outcome.facts.tried, [Failure::Summarizer(SummarizeError::TimedOut)]);
}

#[test]
fn a_caller_without_a_runtime_blocks_and_one_with_a_runtime_is_told() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let stub = runtime.block_on(Stub::start([ok(answer(Api::OpenAiChat, "notes"))]));
    let client = Client::new(stub.settings(Api::OpenAiChat), Key::new("k")).unwrap();
    let blocking = Blocking::new(client).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(blocking.summarize(&asked()).unwrap().text, "notes"));
        }
    });
    assert_eq!(blocking.name(), "openai/small-model");
    assert_eq!(stub.received().len(), 4);
    let told = runtime.block_on(async { blocking.summarize(&asked()) }).unwrap_err().to_string();
    assert!(told.contains("use `condense` there"), "{told}");
}
