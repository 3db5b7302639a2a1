//! What is taken out of a trace before it travels.

use crate::common::{check_trace, read_one};
use condenser::recall::Redact as _;
use condenser_traces::{Redacted, Secrets, redact, write};
use serde_json::json;

#[test]
fn secrets_addresses_and_names_give_way_to_the_same_placeholder_everywhere() {
    let key = format!("sk-ant-{}", "a1B2".repeat(8));
    let mut trace = read_one(
        json!([
            {"role": "system", "content": "You work in /home/mireille/app for mireille@corp.test."},
            {"role": "user", "content": format!("My key is {key}; export DB_PASSWORD=hunter2hunter2")},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function":
                {"name": "sh", "arguments": json!({"command": format!("curl -H 'Bearer {key}' C:\\Users\\mireille")}).to_string()}}]},
            {"role": "tool", "tool_call_id": "c", "name": "sh", "content": "-rw mireille /Users/user/x mail: mireille@corp.test"},
        ])
        .to_string(),
    );
    let redacted = redact(&mut trace);
    check_trace(&trace);
    assert_eq!(
        write(&[trace], "openai-chat").unwrap().values,
        [json!([
            {"role": "system", "content": "You work in /home/user1/app for mail1@example.com."},
            {"role": "user", "content": "My key is REDACTED_SECRET_1; export DB_PASSWORD=REDACTED_SECRET_2"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function":
                {"name": "sh", "arguments": json!({"command": "curl -H 'Bearer REDACTED_SECRET_1' C:\\Users\\user1"}).to_string()}}]},
            {"role": "tool", "tool_call_id": "c", "name": "sh", "content": "-rw user1 /Users/user/x mail: mail1@example.com"},
        ])]
    );
    assert_eq!(redacted, Redacted { secrets: 3, mails: 2, users: 3 });
}

#[test]
fn what_has_no_such_shape_stays() {
    let text = "git@github.com is no secret, nor is sk-learn, password: or https://example.com/a?b=c";
    let mut trace =
        read_one(json!([{"role": "user", "content": text}, {"role": "assistant", "content": "ok"}]).to_string());
    let before = trace.events.clone();
    redact(&mut trace);
    assert_eq!(trace.events[1], before[1]);
    let after = write(&[trace], "openai-chat").unwrap().values;
    assert_eq!(after[0][0]["content"], json!(text.replace("git@github.com", "mail1@example.com")));
}

#[test]
fn what_a_model_is_shown_holds_one_placeholder_and_is_counted() {
    let rules = Secrets::default()
        .with_pattern(r"ticket-(\d{6})")
        .unwrap()
        .with_value("correct horse")
        .with_value("short")
        .with_variables(
            [("MY_TOKEN", "from-the-env"), ("HOME_DIR", "not-a-secret")].map(|(n, v)| (n.into(), v.into())),
        );
    let long = |n: usize| "aB3".repeat(n);
    for (text, expected, n) in [
        ("nothing here, not even a password: or a token".to_owned(), None, 0),
        (
            "ticket-123456 of correct horse; short stays".to_owned(),
            Some("ticket-REDACTED_SECRET of REDACTED_SECRET; short stays"),
            2,
        ),
        ("echo from-the-env not-a-secret".to_owned(), Some("echo REDACTED_SECRET not-a-secret"), 1),
        (format!("gsk_{0} and SG.{0}.{0}", long(11)), Some("REDACTED_SECRET and REDACTED_SECRET"), 2),
        (
            format!("{{\"Authorization\": \"Basic {}==\"}}", long(5)),
            Some("{\"Authorization\": \"Basic REDACTED_SECRET\"}"),
            1,
        ),
        (format!("AccountKey={};x", long(9)), Some("AccountKey=REDACTED_SECRET;x"), 1),
        (
            format!("https://hooks.slack.com/services/T0/B0/{}", long(8)),
            Some("https://hooks.slack.com/services/REDACTED_SECRET"),
            1,
        ),
        ("api_key=REDACTED_SECRET".to_owned(), None, 0),
    ] {
        let (shown, found) = rules.redact(&text);
        assert_eq!((shown.as_ref(), found), (expected.unwrap_or(&text), n));
        let (again, found) = rules.redact(&shown);
        assert_eq!((again.as_ref(), found), (shown.as_ref(), 0), "a second time");
    }
    let error = Secrets::default().with_pattern("(").unwrap_err().to_string();
    assert!(error.starts_with("the pattern \"(\" cannot be used: "), "{error}");
}
