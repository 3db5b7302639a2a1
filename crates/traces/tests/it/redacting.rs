//! What is taken out of a trace before it travels.

use crate::common::{check_trace, read_one};
use condenser_traces::{Redacted, redact, write};
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
