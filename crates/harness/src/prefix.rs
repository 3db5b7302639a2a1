//! The longest common prefix of two requests, in tokens.
//!
//! A request is a sequence of pieces: the tools, then for each message its head and its parts. Each distinct piece is
//! stored and hashed once, so that two requests are compared number by number.

use std::hash::{DefaultHasher, Hash, Hasher};

use condenser::event::Outcome;
use condenser::request::{Body, Part, Request, Sizer, Speaker, TOKENS_PER_MESSAGE};
use condenser::tokens::{TokenCounter, Tokens};
use hashbrown::HashMap;

/// All pieces of the requests of one run.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    all: Vec<Piece>,
    by_hash: HashMap<u64, u32>,
    /// By the log positions that name a part's content, and the number of the part in it.
    by_key: HashMap<(usize, usize, u32), u32>,
    /// The newest request, with the number of the tools' piece, and of the pieces before each turn.
    tools: Option<u32>,
    newest: Vec<u32>,
    turns: Vec<usize>,
    tokens: Tokens,
    /// The request before it, tools first.
    previous: Vec<u32>,
}

#[derive(Debug)]
struct Piece {
    tokens: Tokens,
    /// Text in which a prefix can be shared, and what has to be equal before it.
    text: Option<(String, String)>,
}

impl Pieces {
    /// Takes in the next request: the first `n_turns` turns of the one before, and these. Its size.
    pub(crate) fn add(&mut self, n_turns: usize, tail: &Request<'_>, sizer: &Sizer<'_>) -> Tokens {
        self.previous.clear();
        self.previous.extend(self.tools.iter().chain(&self.newest));
        let n_pieces = self.turns.get(n_turns).copied().unwrap_or(self.newest.len());
        self.turns.truncate(n_turns);
        self.tokens = self.tokens - self.newest.drain(n_pieces..).map(|piece| self.all[piece as usize].tokens).sum();
        for turn in &tail.turns {
            let head = match &turn.speaker {
                Speaker::System => ("system", "", Outcome::Ok),
                Speaker::User => ("user", "", Outcome::Ok),
                Speaker::Assistant => ("assistant", "", Outcome::Ok),
                Speaker::Tool { call_id, outcome, .. } => ("tool", call_id.as_str(), *outcome),
            };
            self.turns.push(self.newest.len());
            let head = self.piece(&head, TOKENS_PER_MESSAGE, || None);
            self.push(head);
            let mut ordinal = 0;
            let mut previous = None;
            sizer.each(&turn.parts, |part, tokens| {
                ordinal = if previous == part.key { ordinal + 1 } else { 0 };
                previous = part.key;
                if !matches!(part.body, Body::Thinking(_)) {
                    let piece = self.part(part, ordinal, tokens);
                    self.push(piece);
                }
            });
        }
        let tools = tail.tools.map(|tools| (tools.0, sizer.tools(tools)));
        self.tools = tools.map(|(seq, tokens)| self.piece(&("tools", seq), tokens, || None));
        self.tokens + tools.map_or(Tokens::ZERO, |(_, tokens)| tokens)
    }

    fn push(&mut self, piece: u32) {
        self.newest.push(piece);
        self.tokens += self.all[piece as usize].tokens;
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

    /// The tokens that the newest request and the one before share at their beginning.
    ///
    /// Inside the first piece that differs, the text up to the first difference is counted on its own.
    pub(crate) fn common(&self, counter: &dyn TokenCounter) -> Tokens {
        let mut pairs = self.previous.iter().zip(self.tools.iter().chain(&self.newest));
        let mut whole = Tokens::ZERO;
        for (&a, &b) in &mut pairs {
            if a != b {
                return whole + self.common_inside(a, b, counter);
            }
            whole += self.all[a as usize].tokens;
        }
        whole
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
