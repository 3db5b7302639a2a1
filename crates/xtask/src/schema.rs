//! `cargo xtask schema`: the JSON Schemas of events and records, from their types to `docs/schema`.

use std::fs;

use anyhow::Context as _;
use serde_json::Value;

fn schemas() -> [(&'static str, Value); 2] {
    [("event.json", condenser::schema::event().into()), ("condensation.json", condenser::schema::condensation().into())]
}

/// Writes the schemas, or, with `check`, says whether they are as they would be written.
pub(crate) fn command(check: bool) -> anyhow::Result<bool> {
    let folder = crate::root().join("docs/schema");
    if !check {
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let mut is_current = true;
    for (name, schema) in schemas() {
        let path = folder.join(name);
        let text = format!("{schema:#}\n");
        if !check {
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        } else if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            println!("docs/schema/{name} is not what the types say; run `cargo xtask schema`");
            is_current = false;
        }
    }
    Ok(is_current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use condenser::Event;
    use serde_json::json;

    #[test]
    fn the_schemas_in_docs_are_what_the_types_say() {
        assert!(command(true).unwrap());
    }

    /// Whether a value meets a schema, as far as our schemas go: an unknown keyword fails the test.
    fn meets(value: &Value, schema: &Value, root: &Value) -> bool {
        let Some(keywords) = schema.as_object() else { return schema == true };
        let all = |schemas: &Value| schemas.as_array().unwrap().iter().filter(|s| meets(value, s, root)).count();
        keywords.iter().all(|(keyword, wanted)| match keyword.as_str() {
            "$ref" => meets(value, root.pointer(&wanted.as_str().unwrap()[1..]).unwrap(), root),
            "oneOf" => all(wanted) == 1,
            "anyOf" => all(wanted) > 0,
            "const" => value == wanted,
            "enum" => wanted.as_array().unwrap().contains(value),
            "type" => {
                wanted.as_array().unwrap_or(&vec![wanted.clone()]).iter().any(|name| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    "integer" => value.is_i64() || value.is_u64(),
                    other => panic!("{other}"),
                })
            }
            "properties" => wanted
                .as_object()
                .unwrap()
                .iter()
                .all(|(name, schema)| value.get(name).is_none_or(|value| meets(value, schema, root))),
            "additionalProperties" => {
                *wanted == true
                    || value.as_object().is_none_or(|map| map.values().all(|value| meets(value, wanted, root)))
            }
            "required" => wanted
                .as_array()
                .unwrap()
                .iter()
                .all(|name| !value.is_object() || value.get(name.as_str().unwrap()).is_some()),
            "items" => value.as_array().is_none_or(|items| items.iter().all(|item| meets(item, wanted, root))),
            "uniqueItems" => value
                .as_array()
                .is_none_or(|items| items.iter().enumerate().all(|(at, item)| !items[..at].contains(item))),
            "minimum" => value.as_i64().is_none_or(|value| value >= wanted.as_i64().unwrap()),
            "maximum" => value.as_i64().is_none_or(|value| value <= wanted.as_i64().unwrap()),
            "not" => !meets(value, wanted, root),
            "description" | "title" | "default" | "format" | "$schema" | "$defs" => true,
            other => panic!("keyword {other}"),
        })
    }

    fn event(kind: &str, body: Value) -> Value {
        let mut json = json!({"schema": 1, "id": "e", "source": "agent", "kind": kind});
        json.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        json
    }

    /// Gives a field of a newer version to every object of ours.
    fn add_field_to_objects(json: &mut Value) -> usize {
        let mut n_objects = 0;
        match json {
            Value::Array(items) => n_objects += items.iter_mut().map(add_field_to_objects).sum::<usize>(),
            Value::Object(map) => {
                // Foreign values are not ours, and the keys of rewrites are ids.
                let ours =
                    map.iter_mut().filter(|(key, _)| !["value", "foreign", "payload", "tools"].contains(&key.as_str()));
                n_objects += 1 + ours.map(|(_, value)| add_field_to_objects(value)).sum::<usize>();
                if !map.contains_key("6") {
                    map.insert("newer".to_owned(), json!({"x": [1]}));
                }
            }
            _ => {}
        }
        n_objects
    }

    #[test]
    fn what_is_written_meets_the_schema_and_what_is_refused_does_not() {
        let blocks = json!([
            {"type": "text", "text": "t", "cache": true},
            {"type": "image", "urls": ["u"]},
            {"type": "thinking", "thinking": "h", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            {"type": "other", "value": null},
            {"type": "other", "value": {"type": "text"}},
            {"type": "video", "url": "u"},
        ]);
        let events = [
            event("system_prompt", json!({"content": blocks, "dynamic_context": blocks, "tools": [{}]})),
            event(
                "message",
                json!({
                    "parent": "p", "origin": {"record": "1", "part": 2}, "timestamp": "t", "role": "assistant",
                    "content": blocks, "name": "n", "call_id": "c", "response_id": "r", "reasoning": "x",
                    "extended_content": blocks, "tool_calls": [{"id": "c", "name": "n", "arguments": "{}"}],
                    "usage": {"input_tokens": 1, "cache_read_tokens": 2, "cache_write_tokens": 3, "output_tokens": 4, "model": "m"},
                    "foreign": {"x": [1]}, "of_the_future": 1,
                }),
            ),
            event(
                "action",
                json!({
                    "call_id": "c", "tool_name": "t", "arguments": "{", "thought": blocks, "reasoning": "x",
                    "thinking": blocks, "response_id": "r",
                }),
            ),
            event(
                "observation",
                json!({
                    "call_id": "c", "tool_name": "t", "content": blocks, "extended_content": blocks, "outcome": "rejected",
                    "interim": true,
                }),
            ),
            event(
                "condensation",
                json!({
                    "forgotten_event_ids": ["a", "b"], "summary": "s", "summary_offset": 3, "llm_response_id": "l",
                    "rewrites": {
                        "1": {"op": "clear", "text": "t", "tokens": 1}, "2": {"op": "clip", "head": 1, "tail": 2},
                        "3": {"op": "replace", "content": blocks}, "4": {"op": "note", "text": "t"},
                        "5": {"op": "strip", "kinds": ["image", "thinking", "other"]}, "6": {"op": "arguments", "text": "{}"},
                    },
                    "provenance": {
                        "policy": "p", "config_digest": "d", "reasons": ["r"], "tokens_before": 2, "tokens_after": 1,
                        "counter": "c", "pinned_digest": "d", "summarizer_calls": 1, "summarizer_input_tokens": 1,
                        "summarizer_output_tokens": 1, "summarizer": "s", "prompt_version": "v", "fallbacks": ["f"],
                        "extended": 1, "basis": "e",
                    },
                }),
            ),
            event("condensation_request", json!({"requested_by": "user", "guidance": "g"})),
            event("condensation_failed", json!({"policy": "p", "reason": "r", "tokens_before": 1, "limit": 2})),
            event("undo", json!({"condensation": "c"})),
            event("pin", json!({"ids": ["a"]})),
            event("unpin", json!({"ids": []})),
            event("unknown", json!({"foreign_kind": "f", "payload": {"x": 1}})),
        ];
        let [(_, schema), (_, record)] = schemas();
        for json in &events {
            let read: Event = serde_json::from_value(json.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), *json);
            assert!(meets(json, &schema, &schema), "{json}");
            assert!(read.unread.is_empty(), "every field is a known one: {:?}", read.unread);

            let mut newer = json.clone();
            let n_objects = add_field_to_objects(&mut newer);
            let read: Event = serde_json::from_value(newer.clone()).unwrap();
            assert_eq!(serde_json::to_value(&read).unwrap(), newer);
            assert!(meets(&newer, &schema, &schema), "{newer}");
            if let condenser::EventKind::Condensation(record) = &read.kind {
                let alone: condenser::Condensation = serde_json::from_value(newer).unwrap();
                assert_eq!(alone.unread, record.unread);
                assert!(record.unread.iter().count() > 6, "of {n_objects}");
            }
        }
        assert!(meets(&events[4], &record, &record));
        let refused = [
            json!([]),
            json!({"source": "agent", "kind": "pin", "ids": []}),
            json!({"id": "e", "kind": "pin", "ids": []}),
            event("pin", json!({"ids": "a"})),
            event("pin", json!({"ids": [], "schema": 2})),
            event("action", json!({"call_id": "c", "tool_name": "t"})),
            event("message", json!({"role": "robot"})),
            event("condensation", json!({"rewrites": {"1": {"op": "burn"}}})),
            event("observation", json!({"call_id": "c", "content": [{"type": "text"}]})),
        ];
        for json in refused {
            assert!(serde_json::from_value::<Event>(json.clone()).is_err(), "{json}");
            assert!(!meets(&json, &schema, &schema), "{json}");
        }
    }
}
