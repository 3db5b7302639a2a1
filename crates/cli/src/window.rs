//! Windows in tokens, or as shares of a trace.

use condenser::Tokens;

use crate::subjects::parse_tokens;

/// A context window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Window {
    /// So many tokens.
    Tokens(Tokens),
    /// This part of the trace's last request under `none`. No room is kept for the answer.
    Share(f64),
}

impl Window {
    /// The window for a trace of this size, and the reserve, which is `reserve` where the window is no share.
    pub(crate) fn of(self, full: Tokens, reserve: Tokens) -> (Tokens, Tokens) {
        match self {
            Self::Tokens(tokens) => (tokens, reserve),
            Self::Share(share) => (Tokens((full.0 as f64 * share).round() as u64), Tokens(0)),
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tokens(tokens) => write!(f, "{}", tokens.0),
            Self::Share(share) => write!(f, "{}% of the trace", share * 100.0),
        }
    }
}

/// `32k`, or `20%`.
pub(crate) fn parse_window(text: &str) -> Result<Window, String> {
    let Some(number) = text.trim().strip_suffix('%') else { return parse_tokens(text).map(Window::Tokens) };
    match number.trim().parse::<f64>() {
        Ok(percent) if (1.0..=100.0).contains(&percent) => Ok(Window::Share(percent / 100.0)),
        _ => Err("a share of a trace is like 20%, from 1% to 100%".to_owned()),
    }
}
