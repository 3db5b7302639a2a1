//! Spans.

use serde_json::{Value, json};

use crate::script::{check, check_traces, lines, view_of};

fn span(id: &str, start: u64, attributes: Value) -> Value {
    json!({"name": "chat", "spanContext": {"traceId": "t", "spanId": id}, "startTime": [start, 0], "attributes": attributes})
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "parts": [{"type": "text", "content": text}]})
}

fn called() -> Value {
    json!({"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"},
        {"type": "tool_call", "id": "c", "name": "ls", "arguments": {"p": "."}}]})
}

fn answered(text: &str) -> Value {
    json!({"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": text}]})
}

#[test]
fn each_request_adds_what_is_new_and_takes_away_what_is_gone() {
    let chat = |id: &str, start: u64, input: Value, output: Value| {
        span(
            id,
            start,
            json!({"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "k",
            "gen_ai.system_instructions": [{"type": "text", "content": "you are"}],
            "gen_ai.tool.definitions": "[{\"type\": \"function\", \"name\": \"ls\"}]",
            // Structured in one span, JSON text in the next.
            "gen_ai.input.messages": if start == 1 { input } else { Value::from(input.to_string()) },
            "gen_ai.output.messages": json!([output]), "gen_ai.response.id": format!("resp-{id}"),
            "gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 1}),
        )
    };
    let traces = check(
        &json!([
            chat("b", 2, json!([said("user", "task"), called(), answered("long")]), said("assistant", "done")),
            chat("a", 1, json!([said("user", "task")]), called()),
            chat("c", 3, json!([said("user", "task"), called(), answered("cut"), said("assistant", "done"), said("user", "more")]), said("assistant", "ok")),
            chat("d", 4, json!([said("user", "summary"), said("user", "more"), said("assistant", "ok"), said("user", "last")]), said("assistant", "end")),
            {"name": "agent", "spanContext": {"traceId": "t", "spanId": "z"}, "startTime": [0, 0],
             "attributes": {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": [said("user", "task")]}}
        ]),
        "otel-genai",
        5,
        r#"
        z unknown agent
        a unknown chat
        a/1 system "you are" +1 tools
        a/1#1 user "task"
        a/2 calls c ls {"p":"."} thinks "hm" of resp-a $9/-/-/1
        b unknown chat
        b/1 result c ls "long"
        b/2 says "done" of resp-b $9/-/-/1
        c unknown chat
        c/1 condenses ~b/1
        c/1#1 user "more"
        c/2 says "ok" of resp-c $9/-/-/1
        d unknown chat
        d/1 condenses -a/1#1,a/2,b/1,b/2 "summary"@1
        d/1#1 user "last"
        d/2 says "end" of resp-d $9/-/-/1
        "#,
    );
    assert_eq!(traces[0].session.as_deref(), Some("k"));
    assert_eq!(view_of(&traces[0]), ["a/1", "d/1-summary", "c/1#1", "c/2", "d/1#1", "d/2"]);
}

/// One call, answered by the span of its tool, in the words of these attributes and events.
#[track_caller]
fn check_words(attributes: Value, events: Value) {
    let mut chat = span("a", 1, attributes);
    chat["events"] = events;
    let tool = span(
        "b",
        2,
        json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c", "gen_ai.tool.call.result": "x"}),
    );
    check(
        &json!([chat, tool]),
        "otel-genai",
        2,
        r#"
        a unknown chat
        a/1 system "you are"
        a/1#1 user "task"
        a/2 calls c ls {"p":"."} after "look" of a/1
        b unknown chat
        b/result result c ls "x"
        "#,
    );
}

#[test]
fn older_conventions_and_vendors_say_the_same_in_other_words() {
    let event = |name: &str, attributes: Value| json!({"name": name, "attributes": attributes});
    check_words(
        json!({}),
        json!([
            event("gen_ai.system.message", json!({"content": "you are"})),
            event("gen_ai.user.message", json!({"body": "{\"content\": \"task\"}"})),
            event(
                "gen_ai.choice",
                json!({"index": 0, "message": {"content": "look",
                "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{\"p\":\".\"}"}}]}})
            )
        ]),
    );
    check_words(
        json!({"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "you are",
            "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "task",
            "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "look",
            "gen_ai.completion.0.tool_calls.0.id": "c", "gen_ai.completion.0.tool_calls.0.name": "ls",
            "gen_ai.completion.0.tool_calls.0.arguments": "{\"p\":\".\"}"}),
        json!([]),
    );
    check_words(
        json!({"llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "you are",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.contents.0.message_content.type": "text",
            "llm.input_messages.1.message.contents.0.message_content.text": "task",
            "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "look",
            "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "ls",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{\"p\":\".\"}"}),
        json!([]),
    );
    check_words(
        json!({"ai.prompt.messages": "[{\"role\":\"system\",\"content\":\"you are\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"task\"}]}]",
            "ai.response.text": "look",
            "ai.response.toolCalls": "[{\"toolCallId\":\"c\",\"toolName\":\"ls\",\"input\":{\"p\":\".\"}}]"}),
        json!([]),
    );
}

#[test]
fn an_export_types_its_values_and_may_be_one_a_line() {
    let attribute = |key: &str, value: Value| json!({"key": key, "value": value});
    let export = |id: &str, start: &str, output: &str| {
        json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "chat", "traceId": "t", "spanId": id, "startTimeUnixNano": start,
            "attributes": [
                attribute("gen_ai.input.messages", json!({"stringValue": json!([said("user", "task")]).to_string()})),
                attribute("gen_ai.output.messages", json!({"arrayValue": {"values": [{"kvlistValue": {"values": [
                    attribute("role", json!({"stringValue": "assistant"})),
                    attribute("content", json!({"stringValue": output}))]}}]}})),
                attribute("gen_ai.usage.input_tokens", json!({"intValue": "12"}))]}]}]}]})
    };
    check(
        &export("a", "1", "done"),
        "otel-genai",
        1,
        "a unknown chat\na/1 user \"task\"\na/2 says \"done\" of a/1 $12/-/-/-",
    );
    let mut other = export("b", "2", "again");
    other["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = json!("u");
    check_traces(
        lines(&[export("a", "1", "done"), other]),
        "otel-genai",
        2,
        r#"
        == t.json#0
        a unknown chat
        a/1 user "task"
        a/2 says "done" of a/1 $12/-/-/-
        == t.json#1
        b unknown chat
        b/1 user "task"
        b/2 says "again" of b/1 $12/-/-/-
        "#,
    );
}
