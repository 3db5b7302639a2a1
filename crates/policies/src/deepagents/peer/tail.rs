//! Large results: evicted when they return, and clipped at the end of a list that does not fit.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::message::{block_text, call_id, calls, content_text, head, is_assistant, is_tool, shortened};
use super::{Backend, Counter, Size, Stored, Thrown};
use crate::exact::python_lines;

/// Where evicted results are, below the root for artifacts.
pub const RESULTS_FOLDER: &str = "/large_tool_results/";
/// Bytes of a name that is still one for a file.
const NAME_BYTES: usize = 128;

/// How large texts are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Lines shown at either end.
    pub lines: usize,
    /// The most characters of a line.
    pub line_characters: usize,
    /// The most characters of a call's id.
    pub id_characters: usize,
}

impl Default for Preview {
    fn default() -> Self {
        Self { lines: 5, line_characters: 1000, id_characters: 32 }
    }
}

/// How the end of a list is clipped.
#[derive(Clone, Debug, PartialEq)]
pub struct Clip {
    /// A run of results of fewer tokens is left alone.
    pub keep: Size,
    /// The threshold where `keep` gives none.
    pub unknown_tokens: u64,
    /// The characters that stay of a file that was read.
    pub head_characters: usize,
    /// The preview of the others.
    pub preview: Preview,
}

impl Default for Clip {
    fn default() -> Self {
        Self { keep: Size::Tokens(1), unknown_tokens: 5000, head_characters: 4000, preview: Preview::default() }
    }
}

/// A result that went to a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Evicted {
    /// The result with the stub.
    pub message: Value,
    /// Where the text is.
    pub path: String,
    /// The lines that are shown.
    pub preview: String,
    /// Whether lines are missing.
    pub lines_omitted: bool,
    /// Whether a line is cut.
    pub lines_clipped: bool,
}

/// The fewest tokens of a run of results that is clipped.
pub fn threshold(clip: &Clip, limit: Option<u64>) -> u64 {
    clip.keep.tokens(limit).unwrap_or(clip.unknown_tokens)
}

/// Where the run of results begins that ends a list. `None`: it ends with another message.
pub fn tail_start(messages: &[Value]) -> Option<usize> {
    let n = messages.iter().rev().take_while(|message| is_tool(message)).count();
    (n > 0).then(|| messages.len() - n)
}

/// The list with its results at the end made small, and the replacements: the whole run where one of it changed.
///
/// # Errors
/// Whatever the backend throws.
pub fn clip(
    messages: &[Value],
    settings: &Clip,
    limit: Option<u64>,
    counter: &dyn Counter,
    backend: &mut dyn Backend,
) -> Result<(Vec<Value>, Vec<Value>), Thrown> {
    let mut list = messages.to_vec();
    let Some(start) = tail_start(messages) else { return Ok((list, Vec::new())) };
    if counter.tokens(&messages[start..]) < threshold(settings, limit) {
        return Ok((list, Vec::new()));
    }
    let mut is_changed = false;
    for at in start..list.len() {
        let clipped = match read_file(messages, call_id(&messages[at])) {
            Some(path) => Some(head_clip(&messages[at], &path, settings.head_characters)),
            None => evict(&messages[at], settings.preview, backend)?.map(|evicted| evicted.message),
        };
        if let Some(clipped) = clipped {
            is_changed |= clipped != list[at];
            list[at] = clipped;
        }
    }
    let replacements = if is_changed { list[start..].to_vec() } else { Vec::new() };
    Ok((list, replacements))
}

/// The file that the call of this id reads.
fn read_file(messages: &[Value], id: &str) -> Option<String> {
    let all = messages.iter().filter(|message| is_assistant(message)).flat_map(calls);
    let call = all.filter(|call| call.id() == id).last().filter(|call| call.name() == "read_file")?;
    let path = call.arguments().get("file_path")?.as_str()?.to_owned();
    (!path.is_empty()).then_some(path)
}

/// The result with the first characters of its text, and how to read the rest. No check whether that is less.
pub fn head_clip(message: &Value, path: &str, characters: usize) -> Value {
    let text = content_text(&message["content"]);
    let mut message = message.clone();
    message["content"] = json!(format!(
        "{}\n\n[Only the first {characters} characters of {path} are kept here. Read the file again with an offset and a \
         limit for the rest.]",
        head(&text, characters)
    ));
    message
}

/// When results and prompts are evicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction {
    /// A longer result is evicted, in tokens. `None` or 0: none is.
    pub tokens: Option<u64>,
    /// Characters that count for a token.
    pub characters_per_token: u64,
    /// Tools whose results stay.
    pub exempt: Vec<String>,
}

impl Default for Eviction {
    fn default() -> Self {
        let exempt = ["ls", "glob", "grep", "read_file", "edit_file", "write_file", "delete"];
        Self { tokens: Some(20_000), characters_per_token: 4, exempt: exempt.map(str::to_owned).to_vec() }
    }
}

impl Eviction {
    /// Whether a text is too long.
    pub fn is_large(&self, text: &str) -> bool {
        let most = self.tokens.unwrap_or(0).saturating_mul(self.characters_per_token);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        most > 0 && text.len() > most && text.chars().count() > most
    }
}

/// A result that has just returned, evicted if it is too long.
///
/// # Errors
/// Whatever the backend throws: the original does not catch it.
pub fn evict_result(
    message: &Value,
    settings: &Eviction,
    preview: Preview,
    backend: &mut dyn Backend,
) -> Result<Option<Evicted>, Thrown> {
    let is_exempt = settings.exempt.iter().any(|tool| message["name"] == *tool);
    if is_exempt || !settings.is_large(&content_text(&message["content"])) {
        return Ok(None);
    }
    evict(message, preview, backend)
}

/// The result with a stub, and its text in a file. `None` where it could not be stored.
///
/// # Errors
/// Whatever the backend throws.
pub fn evict(message: &Value, settings: Preview, backend: &mut dyn Backend) -> Result<Option<Evicted>, Thrown> {
    let text = content_text(&message["content"]);
    let id = call_id(message);
    let path = format!("{RESULTS_FOLDER}{}", file_name(id, backend));
    if backend.write(&path, &text)? != Stored::Done {
        return Ok(None);
    }
    let (preview, lines_omitted, lines_clipped) = preview(&text, settings);
    let stub = stub(&shown_id(id, settings), &backend.address(&path, message), &preview);
    let mut message = message.clone();
    message["content"] = match &message["content"] {
        Value::Array(blocks) => {
            let others = blocks.iter().filter(|block| block_text(block).is_none()).cloned();
            std::iter::once(json!({"type": "text", "text": stub})).chain(others).collect()
        }
        _ => Value::String(stub),
    };
    Ok(Some(Evicted { message, path, preview, lines_omitted, lines_clipped }))
}

/// The id as a stub shows it.
pub fn shown_id(id: &str, settings: Preview) -> String {
    shortened(id, settings.id_characters)
}

/// What stands for a text that is stored at an address.
pub fn stub(id: &str, address: &str, preview: &str) -> String {
    format!("[The result of call {id} is too long to show. All of it is at {address}. Its lines:]\n{preview}")
}

/// The name of the file for a call's result.
pub fn file_name(id: &str, backend: &mut dyn Backend) -> String {
    if id.is_empty() {
        return format!("unknown-{}", head(&backend.random(), 8));
    }
    let name = id.replace(['.', '/', '\\'], "_");
    if name.len() <= NAME_BYTES {
        return name;
    }
    let digest = Sha256::digest(id.as_bytes());
    format!("call-{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// The numbered first and last lines of a text, whether any are missing, and whether any is cut.
pub fn preview(text: &str, settings: Preview) -> (String, bool, bool) {
    let lines: Vec<&str> = python_lines(text).collect();
    let is_omitted = lines.len() > 2 * settings.lines;
    let mut is_clipped = false;
    let mut numbered = |from: usize, to: usize| -> Vec<String> {
        let width = to.to_string().len();
        let line = |at: usize| {
            let line = head(lines[at], settings.line_characters);
            is_clipped |= line.len() < lines[at].len();
            format!("{:>width$}  {line}", at + 1)
        };
        (from..to).map(line).collect()
    };
    let mut shown = numbered(0, if is_omitted { settings.lines } else { lines.len() });
    if is_omitted {
        shown.push(format!("... [{} lines truncated] ...", lines.len() - 2 * settings.lines));
        shown.extend(numbered(lines.len() - settings.lines, lines.len()));
    }
    (shown.join("\n"), is_omitted, is_clipped)
}
