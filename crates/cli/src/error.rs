//! What can go wrong, and the exit code that says so.

use std::path::PathBuf;

/// Why a command ended early. Each kind has an exit code that scripts may rely on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The words of the command make no sense together.
    #[error("{0}")]
    Usage(String),
    /// A named input cannot be read.
    #[error("{0}")]
    Input(String),
    /// The output cannot be written.
    #[error("cannot write {}: {source}", target(path))]
    Output { path: Option<PathBuf>, source: std::io::Error },
}

/// An error with its causes, each said once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        source = cause.source();
    }
    message
}

/// Where a text is no TOML, and why, without the excerpt that the error shows below.
pub(crate) fn toml_error(error: &toml::de::Error) -> String {
    let text = error.to_string();
    format!("{}: {}", text.lines().next().unwrap_or_default(), error.message())
}

fn target(path: &Option<PathBuf>) -> String {
    path.as_ref().map_or_else(|| "standard output".to_owned(), |path| path.display().to_string())
}

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// All went well.
    Ok = 0,
    /// A check failed, or what was asked for could not be done.
    Check = 1,
    /// The command was misused.
    Usage = 2,
    /// A named input was unreadable; everything else was done.
    Input = 3,
    /// There were diagnostics under `--strict`.
    Diagnostics = 4,
    /// The output failed.
    Output = 5,
}

impl CliError {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Input(_) => Exit::Input,
            Self::Output { .. } => Exit::Output,
        }
    }
}
