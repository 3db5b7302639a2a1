//! JSON as found in the wild.

use condenser_traces::json::decode;
use serde_json::{Value, json};

#[track_caller]
fn check(content: impl Into<Vec<u8>>, values: &[(u64, Value)], diagnostics: &[&str]) {
    let decoded = decode(content.into()).unwrap().unwrap();
    let found: Vec<_> = decoded.records.into_iter().map(|record| (record.line, record.value)).collect();
    assert_eq!(found, values);
    assert_eq!(decoded.diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>(), diagnostics);
}

#[track_caller]
fn check_refused(content: &str, reason: &str) {
    assert_eq!(decode(content.into()).unwrap_err().to_string(), reason);
}

#[test]
fn one_document_may_span_lines() {
    check("\u{feff}\r\n {\r\n \"a\": [1,\n2]}\n", &[(2, json!({"a": [1, 2]}))], &[]);
    check("[\n]", &[(1, json!([]))], &[]);
}

#[test]
fn json_lines_end_in_any_way_and_may_leave_lines_blank() {
    check("{\"a\":1}\r\n\r\n{\"a\":2}", &[(1, json!({"a": 1})), (3, json!({"a": 2}))], &[]);
    check("\u{feff}{\"a\":1}\n{\"a\":2}\n\n", &[(1, json!({"a": 1})), (2, json!({"a": 2}))], &[]);
}

#[test]
fn two_values_on_one_line_are_two_records() {
    check(
        "{\"a\":1}{\"a\":2}\n{\"a\":3} {\"a\":4}",
        &[(1, json!({"a": 1})), (1, json!({"a": 2})), (2, json!({"a": 3})), (2, json!({"a": 4}))],
        &[],
    );
}

#[test]
fn documents_that_span_lines_may_follow_each_other() {
    check("{\n\"a\":1}\n{\n\"a\":2}", &[(1, json!({"a": 1})), (3, json!({"a": 2}))], &[]);
    check(
        "{\n\"a\":1}\n{\n\"a\":",
        &[(1, json!({"a": 1}))],
        &["line 4: not JSON: the text ends inside a value; the rest of the file is left out"],
    );
}

#[test]
fn a_torn_last_line_is_reported_and_the_rest_kept() {
    check(
        "{\"a\":1}\n{\"b\":\"x",
        &[(1, json!({"a": 1}))],
        &["line 2: the last record is torn after 7 bytes and left out"],
    );
    check(
        "{\"a\":1}\n{\"b\":tr\n\n",
        &[(1, json!({"a": 1}))],
        &["line 2: the last record is torn after 7 bytes and left out"],
    );
    // After a crash the file may end in zeros.
    check(
        b"{\"a\":1}\n\0\0\0".to_vec(),
        &[(1, json!({"a": 1}))],
        &["line 2: not JSON: a value was expected; the rest of the line is left out"],
    );
}

#[test]
fn a_bad_line_in_the_middle_is_reported_with_its_number() {
    check(
        "{\"a\":1}\n{\"b\":}\nplain words\n7\n{\"a\":2}\n",
        &[(1, json!({"a": 1})), (5, json!({"a": 2}))],
        &[
            "line 2: not JSON: a value was expected; the rest of the line is left out",
            "line 3: not JSON: a value was expected; the rest of the line is left out",
            "line 4: neither an object nor a list; the rest of the line is left out",
        ],
    );
    check(
        "{\"a\":\n{\"a\":2}\n",
        &[(2, json!({"a": 2}))],
        &["line 1: not JSON: the text ends inside a value; the rest of the line is left out"],
    );
}

#[test]
fn many_bad_lines_are_counted_instead_of_listed() {
    let decoded = decode(format!("{{}}\n{}{{}}", "no\n".repeat(5_000)).into()).unwrap().unwrap();
    assert_eq!(decoded.records.len(), 2);
    assert_eq!(decoded.diagnostics.len(), 101);
    assert_eq!(decoded.diagnostics[100].to_string(), "file: 4900 more lines are not JSON and left out");
}

#[test]
fn what_json_forbids_and_writers_write_is_replaced_and_counted() {
    check(
        "{\"a\":NaN}\n{\"a\":[Infinity,-Infinity,1e999]}\n",
        &[(1, json!({"a": null})), (2, json!({"a": [null, null, null]}))],
        &[
            "line 1: numbers that JSON has not (NaN, Infinity, out of range), read as null; 4 in the file, the first here",
        ],
    );
    check(
        r#"{"a":"x\ud83d","\udc00":"\ud83d\ude00\ud83dy"}"#,
        &[(1, json!({"a": "x\u{fffd}", "\u{fffd}": "😀\u{fffd}y"}))],
        &["line 1: lone surrogates, replaced by U+FFFD; 3 in the file, the first here"],
    );
    check(
        b"{\"a\":\"ok\"}\n{\"a\":\"\xff\xfe!\"}".to_vec(),
        &[(1, json!({"a": "ok"})), (2, json!({"a": "\u{fffd}\u{fffd}!"}))],
        &["line 2: bytes that are not UTF-8, replaced by U+FFFD; 2 in the file, the first here"],
    );
    check(
        "{\"a\":\"b\tc\"}",
        &[(1, json!({"a": "b\tc"}))],
        &["line 1: raw control characters in strings, kept; 1 in the file, the first here"],
    );
}

#[test]
fn the_fallback_reads_numbers_and_escapes_as_the_strict_decoder_does() {
    let text = r#"[1, -2.5e3, 18446744073709551615, 1e400, true, false, null, {"k\u00e9\n\/\b\f\t\"\\": {}}, []]"#;
    check(
        text,
        &[(1, json!([1, -2500.0, u64::MAX, null, true, false, null, {"ké\n/\u{8}\u{c}\t\"\\": {}}, []]))],
        &[
            "line 1: numbers that JSON has not (NaN, Infinity, out of range), read as null; 1 in the file, the first here",
        ],
    );
}

#[test]
fn nesting_is_bounded() {
    let deep = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(decode(deep(126).into()).unwrap().unwrap().records.len(), 1);
    check_refused(&deep(100_000), "line 1: not JSON: nested deeper than 127 levels; the rest of the file is left out");
    check(
        format!("{{}}\n{}\n{{}}", deep(100_000)),
        &[(1, json!({})), (3, json!({}))],
        &["line 2: not JSON: nested deeper than 127 levels; the rest of the line is left out"],
    );
}

#[test]
fn what_is_no_json_at_all_is_refused_with_the_place() {
    check_refused("once upon a time\nthere was\n", "line 1: not JSON: a value was expected");
    check_refused("{\n  \"a\": 1,\n  \"b\": oops\n}\n", "line 3: not JSON: a value was expected");
    check_refused("{\n  \"a\": 1,\n  \"b\": [", "line 3: not JSON: the text ends inside a value");
    assert_eq!(decode(b" \r\n\t\xef\xbb\xbf".to_vec()), Ok(None));
    assert_eq!(decode(Vec::new()), Ok(None));
}
