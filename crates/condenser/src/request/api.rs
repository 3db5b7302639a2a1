//! The APIs a request can be made for, and what their lowerings and validators share.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::{Body, ERROR_PREFIX, Facts, Part, REJECTED_PREFIX, Request, anthropic, openai, responses};
use crate::event::Outcome;

/// Stands for an image where the API takes none, or not this one.
pub const IMAGE_MARKER: &str = "[image]";

/// Longest name of a tool that every API takes, in bytes.
const MAX_NAME: usize = 64;

/// An API that a request can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Api {
    /// OpenAI Chat Completions, and the many that copy it.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Anthropic Messages.
    Anthropic,
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OpenAiChat, Self::OpenAiResponses, Self::Anthropic];

    /// The stable name: `openai`, `responses` or `anthropic`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai",
            Self::OpenAiResponses => "responses",
            Self::Anthropic => "anthropic",
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no API's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown API {0:?}; known are openai, responses and anthropic")]
pub struct UnknownApi(String);

impl FromStr for Api {
    type Err = UnknownApi;

    fn from_str(name: &str) -> Result<Self, UnknownApi> {
        Self::ALL.into_iter().find(|api| api.name() == name).ok_or_else(|| UnknownApi(name.chars().take(60).collect()))
    }
}

impl Request<'_> {
    /// The request as an API takes it, without what a view does not know: the model and its limits.
    pub fn render(&self, api: Api) -> Value {
        self.render_counted(api).0
    }

    /// As [`Request::render`], with all that was repaired: by [`Request::build`], and for this API.
    pub fn render_counted(&self, api: Api) -> (Value, Facts) {
        let mut lowering = Lowering::new(self.facts, api);
        let json = match api {
            Api::OpenAiChat => openai::lower(self, &mut lowering),
            Api::OpenAiResponses => responses::lower(self, &mut lowering),
            Api::Anthropic => anthropic::lower(self, &mut lowering),
        };
        (json, lowering.facts)
    }
}

/// A rule of the API that a request breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, as a path into the JSON: `messages[3].tool_calls[0].id`.
    pub place: String,
    /// The rule.
    pub rule: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.rule)
    }
}

/// Checks a request against an API's published rules. Looks at shape, never at what a text says.
pub fn validate(api: Api, request: &Value) -> Vec<Violation> {
    match api {
        Api::OpenAiChat => openai::validate_openai_chat(request),
        Api::OpenAiResponses => responses::validate_openai_responses(request),
        Api::Anthropic => anthropic::validate_anthropic(request),
    }
}

/// What the lowering into one API keeps track of.
pub(super) struct Lowering {
    pub(super) facts: Facts,
    /// Longest call id, in characters.
    max_id: usize,
    /// Whether call ids are `[a-zA-Z0-9_-]` only.
    plain_ids: bool,
    /// Whether call ids are unique in the whole request and not only in their turn.
    unique_ids: bool,
    taken: HashSet<String>,
    /// Of each wanted id, the number to try next.
    repeats: HashMap<String, u32>,
    /// The calls of the newest turn: their ids in the neutral request and in this one.
    current: HashMap<String, String>,
}

impl Lowering {
    pub(super) fn new(facts: Facts, api: Api) -> Self {
        let (max_id, plain_ids, unique_ids) = match api {
            Api::OpenAiChat => (openai::MAX_ID, false, false),
            Api::OpenAiResponses => (responses::MAX_ID, false, true),
            Api::Anthropic => (usize::MAX, true, true),
        };
        Self {
            facts,
            max_id,
            plain_ids,
            unique_ids,
            taken: HashSet::new(),
            repeats: HashMap::new(),
            current: HashMap::new(),
        }
    }

    pub(super) fn begin_turn(&mut self) {
        self.current.clear();
        if !self.unique_ids {
            self.taken.clear();
            self.repeats.clear();
        }
    }

    /// The id of a call as this API takes it. Depends on earlier calls only, so that a prefix stays as it is.
    pub(super) fn call_id(&mut self, id: &str) -> String {
        let wanted: String =
            id.chars().take(self.max_id).map(|c| if !self.plain_ids || is_plain(c) { c } else { '_' }).collect();
        let mut fitted = wanted.clone();
        while self.taken.contains(&fitted) {
            let n = self.repeats.entry(wanted.clone()).or_insert(1);
            *n += 1;
            let suffix = format!("_{n}");
            fitted = wanted.chars().take(self.max_id - suffix.len()).collect();
            fitted.push_str(&suffix);
        }
        self.facts.renamed_calls += u64::from(fitted != id);
        self.taken.insert(fitted.clone());
        self.current.insert(id.to_owned(), fitted.clone());
        fitted
    }

    /// The id of the call that a result of the newest turn answers.
    pub(super) fn answered_id(&self, id: &str) -> String {
        self.current.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }

    /// The name of a tool as every API takes it.
    pub(super) fn tool_name<'n>(&mut self, name: &'n str) -> Cow<'n, str> {
        let fitted = fit_name(name);
        self.facts.renamed_tools += u64::from(fitted != name);
        fitted
    }

    /// What can be sent of an image; counted where it is nothing.
    pub(super) fn image<'u>(&mut self, url: &'u str) -> Option<Image<'u>> {
        let image = Image::parse(url);
        self.facts.images_as_text += u64::from(image.is_none());
        image
    }

    pub(super) fn image_left_out(&mut self) -> &'static str {
        self.facts.images_as_text += 1;
        IMAGE_MARKER
    }

    pub(super) fn thinking_left_out(&mut self) {
        self.facts.left_out_thinking += 1;
    }

    /// The texts of a turn where only text can stand. The first of a failed or refused call says so.
    pub(super) fn texts<'p>(&mut self, parts: &'p [Part<'p>], prefix: &'static str) -> Vec<Cow<'p, str>> {
        let mut texts: Vec<Cow<'p, str>> = Vec::new();
        for part in parts {
            match &part.body {
                Body::Text(text) => texts.push(Cow::Borrowed(text)),
                Body::Image(_) => texts.push(Cow::Borrowed(self.image_left_out())),
                Body::Thinking(_) => self.thinking_left_out(),
                Body::Call { .. } => {}
            }
        }
        if !prefix.is_empty() {
            match texts.first_mut() {
                Some(first) => *first = Cow::Owned(format!("{prefix}{first}")),
                None => texts.push(Cow::Borrowed(prefix)),
            }
        }
        texts
    }

    /// The parameters of a tool, as an object schema.
    pub(super) fn parameters(&mut self, tool: &ToolSchema<'_>) -> Option<Value> {
        let parameters = tool.parameters?;
        let fitted = object_schema(parameters);
        self.facts.changed_schemas += u64::from(fitted.is_some());
        Some(fitted.unwrap_or_else(|| parameters.clone()))
    }
}

/// Stands before the content of a call that did not go well, for APIs without a flag for it.
pub(super) fn prefix(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "",
        Outcome::Error => ERROR_PREFIX,
        Outcome::Rejected => REJECTED_PREFIX,
    }
}

pub(super) fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A name that the pattern `[a-zA-Z0-9_-]{1,64}` takes.
fn fit_name(name: &str) -> Cow<'_, str> {
    if !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let fitted: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(MAX_NAME).collect();
    Cow::Owned(if fitted.is_empty() { "unnamed".to_owned() } else { fitted })
}

/// An image that all three APIs take.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Image<'u> {
    Url(&'u str),
    Data { media_type: &'u str, data: &'u str },
}

const MEDIA_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

impl<'u> Image<'u> {
    pub(super) fn parse(url: &'u str) -> Option<Self> {
        if is_web_url(url) {
            return Some(Self::Url(url));
        }
        let (media_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
        let media_type = if media_type == "image/jpg" { "image/jpeg" } else { media_type };
        (is_media_type(media_type) && is_base64(data)).then_some(Self::Data { media_type, data })
    }

    /// As a URL, data included.
    pub(super) fn to_url(&self) -> String {
        match self {
            Self::Url(url) => (*url).to_owned(),
            Self::Data { media_type, data } => format!("data:{media_type};base64,{data}"),
        }
    }
}

pub(super) fn is_web_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(|c: char| c.is_whitespace() || c.is_control()))
}

pub(super) fn is_media_type(media_type: &str) -> bool {
    MEDIA_TYPES.contains(&media_type)
}

pub(super) fn is_base64(data: &str) -> bool {
    let body = data.trim_end_matches('=');
    !body.is_empty()
        && data.len().is_multiple_of(4)
        && data.len() - body.len() <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/')
}

/// The parts of a tool's schema, in whichever API's spelling it is kept.
#[derive(Clone, Copy, Debug)]
pub struct ToolSchema<'t> {
    /// The name; empty where there is none.
    pub name: &'t str,
    /// What it is for.
    pub description: Option<&'t str>,
    /// The JSON Schema of its arguments, where that is an object.
    pub parameters: Option<&'t Value>,
}

impl<'t> ToolSchema<'t> {
    /// Looks for the parts.
    pub fn of(schema: &'t Value) -> Self {
        let function = &schema["function"];
        let source = if function.is_object() { function } else { schema };
        Self {
            name: ["name", "title", "kind"].iter().find_map(|key| source[*key].as_str()).unwrap_or_default(),
            description: source["description"].as_str(),
            parameters: ["parameters", "input_schema", "inputSchema"]
                .iter()
                .map(|key| &source[*key])
                .find(|value| value.is_object()),
        }
    }
}

/// Keywords that no API takes at the top of a tool's parameters.
const NOT_AT_TOP: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// A schema whose type is `object` and which is no choice at the top; `None` where it is that already.
fn object_schema(schema: &Value) -> Option<Value> {
    if is_object_schema(schema) {
        return None;
    }
    let mut map: Map<String, Value> = schema.as_object().cloned().unwrap_or_default();
    map.retain(|key, _| !NOT_AT_TOP.contains(&key.as_str()));
    map.insert("type".to_owned(), json!("object"));
    Some(Value::Object(map))
}

pub(super) fn is_object_schema(schema: &Value) -> bool {
    schema["type"] == "object" && NOT_AT_TOP.iter().all(|key| schema.get(*key).is_none())
}

/// Checks a name against the pattern that all APIs share.
pub(super) fn check_name(name: &Value, place: String, fail: &mut impl FnMut(String, &'static str)) {
    let fits = name.as_str().is_some_and(|name| (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_plain));
    if !fits {
        fail(place, "is 1 to 64 characters of a-z, A-Z, 0-9, _ and -");
    }
}

pub(super) fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_apis_are_read_and_written() {
        for api in Api::ALL {
            assert_eq!(api.to_string().parse(), Ok(api));
        }
        let error = "openai-chat".parse::<Api>().unwrap_err();
        assert_eq!(error.to_string(), r#"unknown API "openai-chat"; known are openai, responses and anthropic"#);
    }

    #[test]
    fn images_are_sent_only_in_forms_that_every_api_takes() {
        let data = |media_type| Some(Image::Data { media_type, data: "QUJD" });
        let cases = [
            ("https://example.org/a.png", Some(Image::Url("https://example.org/a.png"))),
            ("https://", None),
            ("https://example.org/a b.png", None),
            ("file:///a.png", None),
            ("", None),
            ("data:image/png;base64,QUJD", data("image/png")),
            ("data:image/jpg;base64,QUJD", data("image/jpeg")),
            ("data:image/svg+xml;base64,QUJD", None),
            ("data:image/png;base64,QUJ", None),
            ("data:image/png;base64,", None),
            ("data:image/png;base64,Q=JD", None),
            ("data:image/png,QUJD", None),
        ];
        for (url, expected) in cases {
            assert_eq!(Image::parse(url), expected, "{url}");
        }
    }

    #[test]
    fn call_ids_are_fitted_and_kept_apart_by_what_came_before_only() {
        let mut lowering = Lowering::new(Facts::default(), Api::Anthropic);
        let ids: Vec<String> = ["a", "a.b", "a_b", "a", "a_2", "a"].iter().map(|id| lowering.call_id(id)).collect();
        assert_eq!(ids, ["a", "a_b", "a_b_2", "a_2", "a_2_2", "a_3"]);
        assert_eq!(lowering.facts.renamed_calls, 5);

        let mut lowering = Lowering::new(Facts::default(), Api::OpenAiChat);
        let long = "x".repeat(50);
        assert_eq!(lowering.call_id(&long), "x".repeat(40));
        assert_eq!(lowering.call_id(&format!("{long}y")), format!("{}_2", "x".repeat(38)));
        lowering.begin_turn();
        assert_eq!(lowering.call_id(&long), "x".repeat(40));
    }
}
