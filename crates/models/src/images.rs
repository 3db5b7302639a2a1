//! How many tokens an image is, by the rule of a provider.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use condenser::request::TOKENS_PER_IMAGE;
use condenser::tokens::{TokenCounter, Tokens};
use serde::Deserialize;

/// Characters of an image's data that are looked at: its header, with some room for what stands before the size.
const HEADER: usize = 256 << 10;

/// A provider's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ImageRule {
    /// The same for every image.
    Flat {
        /// Tokens.
        tokens: Tokens,
    },
    /// By its area, after it was made small enough.
    Area {
        /// Pixels that are a token.
        pixels_per_token: u64,
        /// The longest edge that is not made smaller.
        longest_edge: Option<u64>,
        /// The most tokens.
        most: Option<Tokens>,
    },
    /// Made to fit into 2,048 pixels square, then its short edge to 768; a price for each tile of 512 pixels square.
    Tiles {
        /// Tokens of any image.
        base: Tokens,
        /// Tokens of a tile.
        per_tile: Tokens,
    },
}

impl ImageRule {
    /// The tokens of an image of this size, in pixels.
    pub fn tokens(&self, width: u64, height: u64) -> Tokens {
        let size = (width as f64, height as f64);
        match *self {
            Self::Flat { tokens } => tokens,
            Self::Area { pixels_per_token, longest_edge, most } => {
                let longest = size.0.max(size.1);
                let (width, height) = longest_edge.map_or(size, |most| shrunk(size, longest, most as f64));
                let tokens = Tokens((width * height / pixels_per_token.max(1) as f64).ceil() as u64);
                most.map_or(tokens, |most| tokens.min(most))
            }
            Self::Tiles { base, per_tile } => {
                let size = shrunk(size, size.0.max(size.1), 2048.0);
                let (width, height) = shrunk(size, size.0.min(size.1), 768.0);
                let tiles = (width / 512.0).ceil().max(1.0) * (height / 512.0).ceil().max(1.0);
                Tokens(base.0.saturating_add(per_tile.0.saturating_mul(tiles as u64)))
            }
        }
    }

    /// The tokens of an image as a request holds it: a data URL, plain Base64, or the URL of an image that is not
    /// here. Of the last, and of what is no image, the size is unknown: 765 tokens, unless the rule is flat.
    pub fn of(&self, url: &str) -> Tokens {
        if let Self::Flat { tokens } = self {
            return *tokens;
        }
        size(url).map_or(TOKENS_PER_IMAGE, |(width, height)| self.tokens(width, height))
    }
}

/// The size after an edge was made so short, where it is longer.
fn shrunk((width, height): (f64, f64), edge: f64, most: f64) -> (f64, f64) {
    if edge > most { (width * most / edge, height * most / edge) } else { (width, height) }
}

/// Width and height in pixels, from the image's own header.
fn size(url: &str) -> Option<(u64, u64)> {
    let data = match url.strip_prefix("data:") {
        Some(data) => data.split_once(";base64,")?.1,
        None if url.contains(':') => return None,
        None => url,
    };
    let data = data.as_bytes();
    let header = &data[..data.len().min(HEADER) / 4 * 4];
    let size = imagesize::blob_size(&STANDARD.decode(header).ok()?).ok()?;
    Some((size.width as u64, size.height as u64))
}

/// A token counter that counts images by a rule.
pub struct WithImages<'c> {
    inner: &'c dyn TokenCounter,
    rule: ImageRule,
}

impl<'c> WithImages<'c> {
    /// Text is counted as before.
    pub fn new(inner: &'c dyn TokenCounter, rule: ImageRule) -> Self {
        Self { inner, rule }
    }
}

impl std::fmt::Debug for WithImages<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithImages").field("inner", &self.inner.name()).field("rule", &self.rule).finish()
    }
}

impl TokenCounter for WithImages<'_> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn count(&self, text: &str) -> Tokens {
        self.inner.count(text)
    }

    fn image(&self, url: &str) -> Tokens {
        self.rule.of(url)
    }

    fn is_estimate(&self) -> bool {
        self.inner.is_estimate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: ImageRule = ImageRule::Area { pixels_per_token: 750, longest_edge: None, most: None };
    const TILES: ImageRule = ImageRule::Tiles { base: Tokens(85), per_tile: Tokens(170) };

    #[test]
    fn sizes_become_tokens_as_the_providers_say() {
        let small = ImageRule::Area { pixels_per_token: 750, longest_edge: Some(1568), most: Some(Tokens(1600)) };
        for (rule, width, height, expected) in [
            (AREA, 1920, 1080, 2765),
            (AREA, 200, 200, 54),
            (small, 1000, 1000, 1334),
            (small, 3000, 3000, 1600),
            (small, 3136, 200, 210),
            (TILES, 512, 512, 255),
            (TILES, 1024, 1024, 765),
            (TILES, 2048, 4096, 1105),
            (ImageRule::Flat { tokens: Tokens(258) }, 9, 9, 258),
        ] {
            assert_eq!(rule.tokens(width, height), Tokens(expected), "{rule:?} {width}x{height}");
        }
    }

    #[test]
    fn the_size_is_read_from_the_image_and_an_unknown_one_is_not_zero() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend(1920u32.to_be_bytes());
        png.extend(1080u32.to_be_bytes());
        png.extend([8, 6, 0, 0, 0, 1, 2, 3, 4]);
        let data = STANDARD.encode(&png);
        for (url, expected) in [
            (format!("data:image/png;base64,{data}"), 2765),
            (data.clone(), 2765),
            ("https://example.com/a.png".to_owned(), 765),
            ("data:image/png;base64,!!!!".to_owned(), 765),
            (String::new(), 765),
        ] {
            assert_eq!(AREA.of(&url), Tokens(expected), "{url}");
        }
    }
}
