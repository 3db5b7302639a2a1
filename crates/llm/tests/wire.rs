//! The three APIs against a server that answers by a script.

mod common;

use std::time::Duration;

use common::{Act, Stub, answer, asked, ok};
use condenser::request::Api;
use condenser::{SummarizeError, Tokens};
use condenser_llm::{AsyncSummarizer as _, CallError, Client, ClientError, Finish, Key, ModelSettings};
use serde_json::{Map, Value, json};

#[tokio::test]
async fn each_api_is_asked_in_its_own_words_and_read() {
    for (api, path, key, body) in [
        (
            Api::OpenAiChat,
            "/v1/chat/completions",
            ("authorization", "Bearer key-of-the-test"),
            json!({"messages": [{"role": "system", "content": "Write notes."}, {"role": "user", "content": "INPUT"}],
                   "model": "small-model", "max_tokens": 500}),
        ),
        (
            Api::OpenAiResponses,
            "/v1/responses",
            ("authorization", "Bearer key-of-the-test"),
            json!({"instructions": "Write notes.", "input": [{"role": "user", "content": "INPUT"}],
                   "model": "small-model", "max_output_tokens": 500, "store": false}),
        ),
        (
            Api::Anthropic,
            "/v1/messages",
            ("x-api-key", "key-of-the-test"),
            json!({"system": "Write notes.", "messages": [{"role": "user", "content": "INPUT"}],
                   "model": "small-model", "max_tokens": 500}),
        ),
    ] {
        let stub = Stub::start([ok(answer(api, "the notes"))]).await;
        let summary = stub.client(api).summarize(&asked()).await.unwrap();
        assert_eq!(summary.text, "the notes", "{api}");
        assert_eq!((summary.input_tokens, summary.output_tokens), (Tokens(100), Tokens(5)), "{api}");
        assert!(!summary.cut_by_length && !summary.tool_call && summary.response_id.is_some(), "{api}");
        let received = stub.received();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].path, path);
        assert_eq!(received[0].headers[key.0], key.1);
        assert_eq!(received[0].headers.contains_key("anthropic-version"), api == Api::Anthropic);
        let input = serde_json::to_string("<EVENT id=\"e1\">\n[user]\nFix the build.\n</EVENT>\n").unwrap();
        let expected: Value = serde_json::from_str(&body.to_string().replace("\"INPUT\"", &input)).unwrap();
        assert_eq!(received[0].body, expected, "{api}");
    }
}

#[tokio::test]
async fn a_host_may_send_its_own_request_and_is_given_disjoint_counters() {
    for api in Api::ALL {
        let stub = Stub::start([ok(answer(api, "hello"))]).await;
        let body = Map::from_iter([("messages".to_owned(), json!([]))]);
        let reply = stub.client(api).send(body, None).await.unwrap();
        let usage = reply.usage.unwrap();
        assert_eq!((usage.total_input(), usage.cache_read_tokens, usage.output_tokens), (Some(100), Some(20), Some(5)));
        assert_eq!(usage.model.as_deref(), Some("small-model"));
        assert_eq!((reply.text.as_str(), reply.finish), ("hello", Finish::Done));
    }
}

#[tokio::test]
async fn missing_usage_is_counted_and_not_zero() {
    let stub = Stub::start([ok(json!({"choices": [{"message": {"content": "the notes"}}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0}}))])
    .await;
    let summary = stub.client(Api::OpenAiChat).summarize(&asked()).await.unwrap();
    assert!(summary.input_tokens > Tokens(20), "{}", summary.input_tokens);
    assert_eq!(summary.output_tokens, Tokens(3));
}

/// What an error says about a body, in short.
fn kind(error: &CallError) -> String {
    match error {
        CallError::TooLong { limit, .. } => format!("too long {:?}", limit.map(|limit| limit.0)),
        CallError::Busy { status, .. } => format!("busy {status}"),
        CallError::Refused { status, .. } => format!("refused {status}"),
        CallError::Malformed(_) => "malformed".to_owned(),
        CallError::Connection { .. } => "connection".to_owned(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn each_provider_says_no_in_its_own_words() {
    let anthropic = |kind: &str, message: &str| {
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}).to_string()
    };
    let openai = |kind: &str, code: Value, message: &str| {
        json!({"error": {"message": message, "type": kind, "param": null, "code": code}}).to_string()
    };
    let cases = [
        // Context length.
        (
            Api::OpenAiChat,
            400,
            openai(
                "invalid_request_error",
                json!("context_length_exceeded"),
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 130012 tokens. \
             Please reduce the length of the messages.",
            ),
            "too long Some(128000)",
        ),
        (
            Api::OpenAiResponses,
            400,
            openai(
                "invalid_request_error",
                json!("context_length_exceeded"),
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
            ),
            "too long None",
        ),
        (
            Api::Anthropic,
            400,
            anthropic("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum"),
            "too long Some(200000)",
        ),
        (
            Api::Anthropic,
            400,
            anthropic(
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or \
             `max_tokens` and try again",
            ),
            "too long Some(200000)",
        ),
        (Api::Anthropic, 413, anthropic("request_too_large", "Request exceeds the maximum size"), "too long None"),
        (
            Api::OpenAiChat,
            400,
            json!({"error": {"code": 400, "type": "exceed_context_size_error",
            "message": "request (6024 tokens) exceeds the available context size (4096 tokens), try increasing it",
            "n_prompt_tokens": 6024, "n_ctx": 4096}})
            .to_string(),
            "too long Some(4096)",
        ),
        (
            Api::OpenAiChat,
            400,
            json!({"object": "error", "type": "BadRequestError", "code": 400,
            "message": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4500 \
             in the messages, 500 in the completion). Please reduce the length of the messages or completion."})
            .to_string(),
            "too long Some(4096)",
        ),
        (
            Api::OpenAiChat,
            400,
            openai(
                "invalid_request_error",
                Value::Null,
                "The input token count (1050000) exceeds the maximum number of tokens allowed (1048576).",
            ),
            "too long Some(1048576)",
        ),
        (
            Api::OpenAiChat,
            200,
            json!({"error": {"code": 400, "message":
            "This endpoint's maximum context length is 8192 tokens."}})
            .to_string(),
            "too long Some(8192)",
        ),
        // Too many, too busy, broken.
        (
            Api::OpenAiChat,
            429,
            openai(
                "tokens",
                json!("rate_limit_exceeded"),
                "Rate limit reached for small-model on tokens per min (TPM): Limit 30000, Used 29000.",
            ),
            "busy 429",
        ),
        (Api::OpenAiResponses, 429, openai("requests", json!("rate_limit_exceeded"), "Rate limit reached"), "busy 429"),
        (Api::Anthropic, 429, anthropic("rate_limit_error", "This request would exceed your rate limit"), "busy 429"),
        (Api::Anthropic, 529, anthropic("overloaded_error", "Overloaded"), "busy 529"),
        (
            Api::OpenAiChat,
            503,
            openai("server_error", Value::Null, "The server is currently overloaded with other requests."),
            "busy 503",
        ),
        (Api::OpenAiChat, 500, openai("server_error", Value::Null, "The server had an error"), "busy 500"),
        (Api::Anthropic, 500, anthropic("api_error", "Internal server error"), "busy 500"),
        (Api::OpenAiChat, 502, "<html>Bad gateway</html>".to_owned(), "busy 502"),
        (Api::OpenAiChat, 200, json!({"error": {"code": 429, "message": "upstream"}}).to_string(), "busy 429"),
        // No.
        (
            Api::OpenAiChat,
            401,
            openai("invalid_request_error", json!("invalid_api_key"), "Incorrect API key provided"),
            "refused 401",
        ),
        (Api::Anthropic, 401, anthropic("authentication_error", "invalid x-api-key"), "refused 401"),
        (Api::OpenAiChat, 404, String::new(), "refused 404"),
        (Api::OpenAiChat, 302, "moved".to_owned(), "refused 302"),
        (
            Api::OpenAiChat,
            400,
            openai("invalid_request_error", Value::Null, "Unsupported parameter: 'temperature'"),
            "refused 400",
        ),
        // Nothing that could be an answer.
        (Api::OpenAiChat, 200, "{\"choices\": [{\"mess".to_owned(), "malformed"),
        (Api::OpenAiChat, 200, String::new(), "malformed"),
        (Api::OpenAiChat, 200, "{}".to_owned(), "malformed"),
        (Api::OpenAiResponses, 200, "{\"output\": 5}".to_owned(), "malformed"),
        (Api::Anthropic, 200, "[]".to_owned(), "malformed"),
    ];
    for (api, status, body, expected) in cases {
        let stub = Stub::start([Act::Answer(status, "location: http://127.0.0.1:9/\r\n", body.clone())]).await;
        let mut settings = stub.settings(api);
        settings.retries = 0;
        let client = Client::new(settings, Key::new("key-of-the-test")).unwrap();
        let error = client.send(Map::new(), None).await.unwrap_err();
        assert_eq!(kind(&error), expected, "{api} {status} {body}");
        assert!(error.to_string().len() < 400, "{error}");
        assert_eq!(error.rejection().is_some(), expected.starts_with("too long"));
    }
}

#[tokio::test]
async fn a_busy_server_is_asked_again_and_no_other() {
    let busy = |status| Act::Answer(status, "retry-after: 0\r\n", "{}".into());
    let good = || ok(answer(Api::OpenAiChat, "the notes"));
    let patient = || Act::Answer(429, "retry-after: 3600\r\n", "{}".into());
    for (script, n_asked, expected) in [
        (vec![busy(429), busy(500), busy(529), good()], 4, "fine"),
        (vec![Act::Close, Act::Truncate("{\"choices\"".into()), good()], 3, "fine"),
        (vec![busy(503)], 4, "the server answered 503, after 4 tries: nothing further"),
        (vec![patient(), good()], 1, "the server answered 429, after 1 tries: nothing further"),
        (vec![Act::Answer(400, "", "{}".into()), good()], 1, "the server answered 400: nothing further"),
        (
            vec![ok("{"), good()],
            1,
            "the answer cannot be read: it is no JSON: EOF while parsing an object at line 1 column 1",
        ),
    ] {
        let stub = Stub::start(script.clone()).await;
        let outcome = match stub.client(Api::OpenAiChat).send(Map::new(), None).await {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(outcome, expected, "{script:?}");
        assert_eq!(stub.received().len(), n_asked, "{script:?}");
    }
}

#[tokio::test]
async fn a_truncated_answer_and_a_missing_server_are_failed_connections() {
    let stub = Stub::start([Act::Truncate("{\"choices\"".into())]).await;
    let error = stub.client(Api::OpenAiChat).send(Map::new(), None).await.unwrap_err();
    assert_eq!(kind(&error), "connection");
    assert_eq!(stub.received().len(), 4);

    let mut settings = ModelSettings::new(Api::OpenAiChat, "m");
    settings.base_url = Some("http://127.0.0.1:1/v1".into());
    settings.retries = 1;
    settings.first_wait_seconds = 0.001;
    let error = Client::new(settings, None).unwrap().send(Map::new(), None).await.unwrap_err();
    assert!(error.to_string().starts_with("the connection failed, after 2 tries: "), "{error}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_its_time_and_no_second_try() {
    let stub = Stub::start([Act::Hang]).await;
    let mut settings = stub.settings(Api::OpenAiChat);
    settings.timeout_seconds = 0.05;
    let client = Client::new(settings, None).unwrap();
    let error = client.send(Map::new(), None).await.unwrap_err();
    assert!(matches!(error, CallError::TimedOut(limit) if limit == Duration::from_millis(50)), "{error:?}");
    assert_eq!(client.summarize(&asked()).await, Err(SummarizeError::TimedOut));
    assert_eq!(stub.received().len(), 2);
}

#[tokio::test]
async fn what_is_no_summary_is_said_to_be_none() {
    let chat = |message: Value, finish: &str| json!({"id": "c", "choices": [{"message": message, "finish_reason": finish}], "usage": {"prompt_tokens": 9}});
    let call = json!([{"id": "c1", "type": "function", "function": {"name": "sh", "arguments": "{}"}}]);
    let responses = |status: &str, reason: &str, output: Value| json!({"id": "r", "status": status, "incomplete_details": {"reason": reason}, "output": output});
    for (api, body, expected) in [
        (Api::OpenAiChat, chat(json!({"content": "cut"}), "length"), "cut"),
        (Api::OpenAiChat, chat(json!({"content": null, "tool_calls": call}), "tool_calls"), "called"),
        (Api::OpenAiChat, chat(json!({"content": ""}), "stop"), "blank"),
        (Api::OpenAiChat, chat(json!({"content": "<think>about it"}), "stop"), "blank"),
        (Api::OpenAiChat, chat(json!({"content": [{"type": "text", "text": "fine"}]}), "stop"), "text"),
        (Api::OpenAiChat, chat(json!({"content": "x"}), "content_filter"), "declined"),
        (Api::OpenAiChat, chat(json!({"content": null, "refusal": "I won't"}), "stop"), "declined"),
        (Api::OpenAiResponses, responses("incomplete", "max_output_tokens", json!([])), "cut"),
        (Api::OpenAiResponses, responses("incomplete", "content_filter", json!([])), "declined"),
        (
            Api::OpenAiResponses,
            responses(
                "completed",
                "",
                json!([{"type": "function_call", "call_id": "c", "name": "sh", "arguments": "{}"}]),
            ),
            "called",
        ),
        (Api::Anthropic, json!({"content": [{"type": "text", "text": "cut"}], "stop_reason": "max_tokens"}), "cut"),
        (Api::Anthropic, json!({"content": [], "stop_reason": "model_context_window_exceeded"}), "cut"),
        (Api::Anthropic, json!({"content": [], "stop_reason": "refusal"}), "declined"),
        (
            Api::Anthropic,
            json!({"content": [{"type": "thinking", "thinking": "hm"}], "stop_reason": "end_turn"}),
            "blank",
        ),
        (
            Api::Anthropic,
            json!({"content": [{"type": "tool_use", "id": "t", "name": "sh", "input": {}}],
            "stop_reason": "tool_use"}),
            "called",
        ),
    ] {
        let stub = Stub::start([ok(&body)]).await;
        let told = match stub.client(api).summarize(&asked()).await {
            Ok(summary) if summary.cut_by_length => "cut",
            Ok(summary) if summary.tool_call => "called",
            Ok(summary) if summary.text.is_empty() => "blank",
            Ok(_) => "text",
            Err(SummarizeError::Failed(why)) if why.contains("declined") => "declined",
            Err(error) => panic!("{body}: {error}"),
        };
        assert_eq!(told, expected, "{body}");
    }
}

#[tokio::test]
async fn a_summary_may_be_asked_for_as_a_call() {
    let arguments = json!({"user_context": "wants a parser", "completed_tasks": "", "pending_tasks": "tests",
                           "branch_name": "feature/parser", "tests_passing": false});
    let request = condenser::SummaryRequest { tool_call: true, ..asked() };
    for api in Api::ALL {
        let body = |name: &str| match api {
            Api::Anthropic => json!({"content": [{"type": "tool_use", "id": "t", "name": name, "input": arguments}],
                "stop_reason": "tool_use"}),
            Api::OpenAiResponses => json!({"status": "completed", "output": [{"type": "function_call",
                "call_id": "t", "name": name, "arguments": arguments.to_string()}]}),
            _ => json!({"choices": [{"finish_reason": "tool_calls", "message": {"content": null, "tool_calls": [
                {"id": "t", "function": {"name": name, "arguments": arguments.to_string()}}]}}]}),
        };
        let stub = Stub::start([ok(body("create_state_summary")), ok(body("sh")), ok(answer(api, "text"))]).await;
        let client = stub.client(api);
        let summary = client.summarize(&request).await.unwrap();
        assert!(summary.tool_call);
        assert_eq!(
            summary.text,
            "# State summary\n\n## Core information\n\n**User context**: wants a parser\n\n**Pending tasks**: tests\n\n\
             ## Testing\n\n**Tests passing**: false\n\n## Version control\n\n**Branch name**: feature/parser"
        );
        for expected in ["called \"sh\" instead", "did not call create_state_summary"] {
            let error = client.summarize(&request).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{api}: {error}");
        }
        let sent = &stub.received()[0].body;
        let name = ["/tools/0/name", "/tools/0/function/name"].iter().find_map(|at| sent.pointer(at)).unwrap();
        assert_eq!(name, "create_state_summary");
        let chosen = ["/tool_choice/name", "/tool_choice/function/name"].iter().find_map(|at| sent.pointer(at));
        assert_eq!(chosen.unwrap(), "create_state_summary");
        assert!(condenser::request::validate(api, &stub.received()[2].body).is_empty(), "{sent}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_a_way_out() {
    let with = |change: &dyn Fn(&mut ModelSettings)| {
        let mut settings = ModelSettings::new(Api::OpenAiChat, "m");
        change(&mut settings);
        Client::new(settings, None).map(drop).unwrap_err().to_string()
    };
    let url = |url: &str| with(&|settings| settings.base_url = Some(url.into()));
    for (message, expected) in [
        (url("example"), "the base URL \"example\" cannot be used: "),
        (url("ftp://example.com"), "it has to begin with http:// or https://"),
        (url("https://me:hunter22@example.com/v1"), "it may hold no user, password or query"),
        (with(&|settings| settings.timeout_seconds = 0.0), "`timeout_seconds` is 0; it has to be more than 0"),
        (with(&|settings| settings.first_wait_seconds = f64::NAN), "`first_wait_seconds` is NaN"),
    ] {
        assert!(message.contains(expected) && !message.contains("hunter22"), "{message}");
    }
    let mut settings = ModelSettings::new(Api::OpenAiChat, "m");
    settings.key_env = Some("CONDENSER_TEST_NO_SUCH_KEY".into());
    assert!(matches!(settings.key(), Err(ClientError::NoKey(name)) if name == "CONDENSER_TEST_NO_SUCH_KEY"));
    settings.key_env = Some(String::new());
    assert_eq!(settings.key().unwrap(), None);
}
