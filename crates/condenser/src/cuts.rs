//! The legal cut points of a view, as a bit set with one summary level.

/// A set of boundaries `0..=n`, each legal or struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cuts {
    words: Vec<u64>,
    /// One bit per word: whether it holds any legal boundary.
    summary: Vec<u64>,
    len: usize,
}

impl Cuts {
    /// The boundaries of an empty list: 0, which is legal.
    pub(crate) fn new() -> Self {
        let mut cuts = Self { words: Vec::new(), summary: Vec::new(), len: 0 };
        cuts.push(true);
        cuts
    }

    /// Adds the next boundary.
    pub(crate) fn push(&mut self, legal: bool) {
        let (word, bit) = (self.len / 64, self.len % 64);
        if bit == 0 {
            self.words.push(0);
            if word.is_multiple_of(64) {
                self.summary.push(0);
            }
        }
        if legal {
            self.words[word] |= 1 << bit;
            self.summary[word / 64] |= 1 << (word % 64);
        }
        self.len += 1;
    }

    /// Strikes the boundaries from `start` up to and including `end`.
    pub(crate) fn strike(&mut self, start: usize, end: usize) {
        let end = (end + 1).min(self.len);
        let mut at = start;
        while at < end {
            let (word, bit) = (at / 64, at % 64);
            let upto = ((word + 1) * 64).min(end);
            let width = upto - at;
            let mask = if width == 64 { u64::MAX } else { ((1u64 << width) - 1) << bit };
            self.words[word] &= !mask;
            if self.words[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
            at = upto;
        }
    }

    /// The smallest legal boundary at or above `from`.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        if from >= self.len {
            return None;
        }
        let word = from / 64;
        let rest = self.words[word] >> (from % 64);
        if rest != 0 {
            return Some(from + rest.trailing_zeros() as usize);
        }
        let from_word = word + 1;
        let mut block = from_word / 64;
        let mut mask = u64::MAX.checked_shl((from_word % 64) as u32).unwrap_or(0);
        while block < self.summary.len() {
            let hits = self.summary[block] & mask;
            if hits != 0 {
                let word = block * 64 + hits.trailing_zeros() as usize;
                return Some(word * 64 + self.words[word].trailing_zeros() as usize);
            }
            mask = u64::MAX;
            block += 1;
        }
        None
    }

    /// The largest legal boundary at or below `from`.
    pub(crate) fn previous(&self, from: usize) -> Option<usize> {
        let from = from.min(self.len - 1);
        let mut word = from / 64;
        let mut bits = self.words[word] & (u64::MAX >> (63 - from % 64));
        loop {
            if bits != 0 {
                return Some(word * 64 + 63 - bits.leading_zeros() as usize);
            }
            word = word.checked_sub(1)?;
            bits = self.words[word];
        }
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        index < self.len && self.words[index / 64] >> (index % 64) & 1 == 1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = self.next(from)?;
            from = found + 1;
            Some(found)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_bit_set_agrees_with_a_plain_list(
            legal in proptest::collection::vec(proptest::bool::weighted(0.05), 0..9000),
            strikes in proptest::collection::vec((0usize..9000, 0usize..3000), 0..4),
            queries in proptest::collection::vec(0usize..9100, 1..20),
        ) {
            let mut cuts = Cuts::new();
            let mut plain = vec![true];
            for &bit in &legal {
                cuts.push(bit);
                plain.push(bit);
            }
            for &(start, width) in &strikes {
                cuts.strike(start, start + width);
                for bit in plain.iter_mut().skip(start).take(width + 1) {
                    *bit = false;
                }
            }
            let set: Vec<usize> = (0..plain.len()).filter(|&i| plain[i]).collect();
            prop_assert_eq!(cuts.iter().collect::<Vec<_>>(), set.clone());
            for query in queries {
                prop_assert_eq!(cuts.next(query), set.iter().copied().find(|&i| i >= query));
                prop_assert_eq!(cuts.previous(query), set.iter().rev().copied().find(|&i| i <= query));
            }
        }
    }
}
