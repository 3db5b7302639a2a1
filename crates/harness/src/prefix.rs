//! The longest common prefix of two requests, in tokens.
//!
//! A request is a sequence of pieces: the tools, then for each message its head and its parts. Each distinct piece is
//! stored and hashed once, so that two requests are compared number by number.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use condenser::event::Outcome;
use condenser::request::{Body, Part, Request, Sizer, Speaker, TOKENS_PER_MESSAGE};
use condenser::tokens::{TokenCounter, Tokens};

/// A lowered request: the numbers of its pieces, and its size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lowered {
    pieces: Vec<u32>,
    pub(crate) tokens: Tokens,
}

/// All pieces of the requests of one run.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    all: Vec<Piece>,
    by_hash: HashMap<u64, u32>,
    /// By the log positions that name a part's content, and the number of the part in it.
    by_key: HashMap<(usize, usize, u32), u32>,
}

#[derive(Debug)]
struct Piece {
    tokens: Tokens,
    /// Text in which a prefix can be shared, and what has to be equal before it.
    text: Option<(String, String)>,
}

impl Pieces {
    /// Lowers a request.
    pub(crate) fn lower(&mut self, request: &Request<'_>, sizer: &Sizer<'_>) -> Lowered {
        let mut lowered = Lowered::default();
        if let Some(tools) = request.tools {
            let tokens = sizer.tools(tools);
            lowered.add(self.piece(&("tools", tools.0), tokens, || None), tokens);
        }
        for turn in &request.turns {
            let head = match &turn.speaker {
                Speaker::System => ("system", "", Outcome::Ok),
                Speaker::User => ("user", "", Outcome::Ok),
                Speaker::Assistant => ("assistant", "", Outcome::Ok),
                Speaker::Tool { call_id, outcome, .. } => ("tool", call_id.as_str(), *outcome),
            };
            lowered.add(self.piece(&head, TOKENS_PER_MESSAGE, || None), TOKENS_PER_MESSAGE);
            let mut ordinal = 0;
            let mut previous = None;
            sizer.each(&turn.parts, |part, tokens| {
                ordinal = if previous == part.key { ordinal + 1 } else { 0 };
                previous = part.key;
                if !matches!(part.body, Body::Thinking(_)) {
                    lowered.add(self.part(part, ordinal, tokens), tokens);
                }
            });
        }
        lowered
    }

    fn part(&mut self, part: &Part<'_>, ordinal: u32, tokens: Tokens) -> u32 {
        let key = part.key.map(|(seq, rewritten_by)| (seq, rewritten_by, ordinal));
        if let Some(&number) = key.and_then(|key| self.by_key.get(&key)) {
            return number;
        }
        let number = match &part.body {
            Body::Text(text) => self.piece(&("text", &**text), tokens, || Some((String::new(), text.to_string()))),
            Body::Image(url) => self.piece(&("image", &**url), tokens, || None),
            Body::Call { id, name, arguments } => self.piece(&("call", id, &**name, &**arguments), tokens, || {
                Some((name.to_string(), arguments.to_string()))
            }),
            Body::Thinking(_) => self.piece(&"thinking", tokens, || None),
        };
        if let Some(key) = key {
            self.by_key.insert(key, number);
        }
        number
    }

    fn piece(&mut self, content: &impl Hash, tokens: Tokens, text: impl FnOnce() -> Option<(String, String)>) -> u32 {
        // The standard hasher with its fixed keys: the same in every run.
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        *self.by_hash.entry(hasher.finish()).or_insert_with(|| {
            self.all.push(Piece { tokens, text: text() });
            (self.all.len() - 1) as u32
        })
    }

    /// The tokens that two requests share at their beginning.
    ///
    /// Inside the first piece that differs, the text up to the first difference is counted on its own.
    pub(crate) fn common(&self, a: &Lowered, b: &Lowered, counter: &dyn TokenCounter) -> Tokens {
        let equal = a.pieces.iter().zip(&b.pieces).take_while(|(a, b)| a == b).count();
        let whole: Tokens = a.pieces[..equal].iter().map(|&piece| self.all[piece as usize].tokens).sum();
        let inside = match (a.pieces.get(equal), b.pieces.get(equal)) {
            (Some(&a), Some(&b)) => self.common_inside(a, b, counter),
            _ => Tokens::ZERO,
        };
        whole + inside
    }

    fn common_inside(&self, a: u32, b: u32, counter: &dyn TokenCounter) -> Tokens {
        let (a, b) = (&self.all[a as usize], &self.all[b as usize]);
        let (Some((head, a_text)), Some((other_head, b_text))) = (&a.text, &b.text) else { return Tokens::ZERO };
        if head != other_head {
            return Tokens::ZERO;
        }
        let shared = a_text.chars().zip(b_text.chars()).take_while(|(a, b)| a == b).map(|(c, _)| c.len_utf8()).sum();
        (counter.count(head) + counter.count(&a_text[..shared])).min(a.tokens).min(b.tokens)
    }
}

impl Lowered {
    fn add(&mut self, piece: u32, tokens: Tokens) {
        self.pieces.push(piece);
        self.tokens += tokens;
    }
}
