//! Content blocks as Anthropic, OpenAI, Pi and their users write them.

use condenser::event::{Action, ContentBlock};

use crate::fields::{Members, Tree, take_text};

/// One content part as a block, and whether the block tells everything that the part did.
///
/// What is neither text nor a complete image is kept verbatim.
pub(crate) fn block<T: Tree>(part: &T) -> (ContentBlock, bool) {
    let other = || (ContentBlock::Other { value: part.to_value() }, true);
    let Some(map) = part.members() else {
        return match part.text() {
            Some(text) => (ContentBlock::text(text), true),
            None => other(),
        };
    };
    let mark = map.get("cache_control").filter(|mark| !mark.is_null());
    let cache = mark.is_some();
    let is_plain_mark = mark.is_none_or(|mark| mark.at("type").is_some() && only_in(mark, &["type"]));
    let exact = |known: &[&str]| is_plain_mark && only(map, known);
    match text(map, "type") {
        Some("text") => match text(map, "text") {
            Some(text) => {
                (ContentBlock::Text { text: text.to_owned(), cache }, exact(&["type", "text", "cache_control"]))
            }
            None => other(),
        },
        Some("image" | "image_url") => match image_url(map) {
            Some(url) => (
                ContentBlock::Image { urls: vec![url], cache },
                exact(&["type", "source", "image_url", "data", "mimeType", "cache_control"]),
            ),
            None => other(),
        },
        Some("thinking") => match text(map, "thinking") {
            Some(thinking) => {
                let signature = text(map, "signature").or_else(|| text(map, "thinkingSignature")).map(str::to_owned);
                let exact = only(map, &["type", "thinking", "signature", "thinkingSignature"]);
                (ContentBlock::Thinking { thinking: thinking.to_owned(), signature }, exact)
            }
            None => other(),
        },
        Some("redacted_thinking") => match text(map, "data") {
            Some(data) => (ContentBlock::RedactedThinking { data: data.to_owned() }, only(map, &["type", "data"])),
            None => other(),
        },
        _ => other(),
    }
}

/// Whether a block holds something that a reader of the conversation sees.
pub(crate) fn is_visible(block: &ContentBlock) -> bool {
    match block {
        ContentBlock::Text { text, .. } => !text.trim().is_empty(),
        other => !other.is_thinking(),
    }
}

fn text<'a, M: Members>(map: &'a M, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Tree::text)
}

fn only<M: Members>(map: &M, known: &[&str]) -> bool {
    map.all(|key, _| known.contains(&key))
}

fn only_in<T: Tree>(value: &T, known: &[&str]) -> bool {
    value.members().is_some_and(|map| only(map, known))
}

fn image_url<M: Members>(map: &M) -> Option<String> {
    let data_url = |media: &str, data: &str| format!("data:{media};base64,{data}");
    if let Some(source) = map.get("source").and_then(Tree::members) {
        return match text(source, "type") {
            Some("base64") => Some(data_url(text(source, "media_type")?, text(source, "data")?)),
            Some("url") => text(source, "url").map(str::to_owned),
            _ => None,
        };
    }
    match map.get("image_url") {
        Some(image) if image.members().is_some() => image.at("url").and_then(Tree::text).map(str::to_owned),
        Some(image) if image.text().is_some() => image.text().map(str::to_owned),
        _ => Some(data_url(text(map, "mimeType")?, text(map, "data")?)),
    }
}

/// A call block as an action, with the blocks that stood before it. `arguments` is the member that holds them.
pub(crate) fn take_action<M: Members>(
    call: &mut M,
    arguments: &str,
    before: Vec<ContentBlock>,
    response: &str,
) -> Action {
    call.take("type");
    let (thinking, thought) = before.into_iter().partition(ContentBlock::is_thinking);
    let arguments = match call.take(arguments).filter(|arguments| !arguments.is_null()).map(Tree::into_text) {
        None => "{}".to_owned(),
        Some(Ok(text)) => text,
        Some(Err(arguments)) => arguments.to_value().to_string(),
    };
    Action {
        call_id: take_text(call, "id").unwrap_or_default(),
        tool_name: take_text(call, "name").unwrap_or_default(),
        arguments,
        thought,
        thinking,
        response_id: Some(response.to_owned()),
        ..Action::default()
    }
}
