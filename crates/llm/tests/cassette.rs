//! Recording what a model answered, and playing it without the model.

mod common;

use common::{Act, Stub, answer, asked, ok};
use condenser::request::Api;
use condenser::{SummarizeError, SummaryRequest};
use condenser_llm::{AsyncSummarizer as _, Cassette, CassetteError, Client, ModelSettings};

fn other() -> SummaryRequest {
    SummaryRequest { instructions: "Write other notes.".into(), ..asked() }
}

fn settings() -> ModelSettings {
    ModelSettings::new(Api::OpenAiChat, "small-model")
}

#[tokio::test]
async fn what_was_recorded_is_played_without_key_or_network() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let too_long = "{\"error\": {\"message\": \"prompt is too long: 9 tokens > 5 maximum\"}}";
    let stub = Stub::start([
        ok(answer(Api::OpenAiChat, "first")),
        Act::Answer(400, "", too_long.into()),
        ok(answer(Api::OpenAiChat, "another way")),
    ])
    .await;
    let recording = |sample| {
        let cassette = Cassette::record(&path).unwrap().with_sample(sample);
        stub.client(Api::OpenAiChat).with_cassette(cassette)
    };
    let client = recording(0);
    let live = client.summarize(&asked()).await.unwrap();
    assert_eq!(live.text, "first");
    assert!(client.summarize(&other()).await.unwrap_err().to_string().contains("(5 tokens are the most)"));
    // What it holds is not asked again, by this client or the next one.
    assert_eq!(client.summarize(&asked()).await.unwrap(), live);
    assert_eq!(recording(0).summarize(&asked()).await.unwrap(), live);
    assert_eq!(stub.received().len(), 2);
    assert_eq!(recording(1).summarize(&asked()).await.unwrap().text, "another way");
    assert_eq!(stub.received().len(), 3);

    let playing = |sample| Client::replaying(settings(), Cassette::open(&path).unwrap().with_sample(sample));
    assert_eq!(playing(0).summarize(&asked()).await.unwrap(), live);
    assert_eq!(playing(1).summarize(&asked()).await.unwrap().text, "another way");
    assert!(playing(0).summarize(&other()).await.unwrap_err().to_string().contains("(5 tokens are the most)"));
    assert_eq!(stub.received().len(), 3);
}

#[tokio::test]
async fn a_missing_answer_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let stub = Stub::start([ok(answer(Api::OpenAiChat, "first"))]).await;
    stub.client(Api::OpenAiChat).with_cassette(Cassette::record(&path).unwrap()).summarize(&asked()).await.unwrap();
    let of_other_model = ModelSettings { model: "other-model".into(), ..settings() };
    for (settings, request, sample, expected) in [
        (settings(), other(), 0, " to small-model ("),
        (of_other_model, asked(), 0, " to other-model ("),
        (settings(), asked(), 3, "has no sample 3 of request "),
    ] {
        let client = Client::replaying(settings, Cassette::open(&path).unwrap().with_sample(sample));
        let Err(SummarizeError::Failed(why)) = client.summarize(&request).await else { panic!("{expected}") };
        assert!(why.contains(expected) && why.contains("run.jsonl has no sample"), "{why}");
        assert!(client.missing().is_some_and(|(n, first)| n == 1 && why.ends_with(&first)));
    }
}

#[tokio::test]
async fn what_may_be_another_the_next_time_is_not_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    for act in [Act::Answer(500, "", "{}".into()), Act::Answer(401, "", "{}".into()), ok("{"), Act::Close] {
        let stub = Stub::start([act]).await;
        let client = stub.client(Api::OpenAiChat).with_cassette(Cassette::record(&path).unwrap());
        client.summarize(&asked()).await.unwrap_err();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
}

#[test]
fn a_file_that_is_no_cassette_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    assert!(matches!(Cassette::open(&path), Err(CassetteError::Io { .. })));
    std::fs::write(&path, "\n{\"digest\": \"d\"}\n").unwrap();
    let error = Cassette::open(&path).unwrap_err().to_string();
    assert!(error.contains("run.jsonl, line 2: it is no entry: missing field"), "{error}");
}
