//! Unique event ids within one trace.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher};

use condenser::event::EventId;

/// Hands out each id once.
///
/// Ids are remembered by a hash of 64 bits. Among ten million ids two share one with odds of one to 400,000; then the
/// later is called a duplicate.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    taken: Hashes,
    /// The highest number that was appended to an id that is taken.
    duplicates: ByHash<u64>,
}

/// Hashes of ids.
pub(crate) type Hashes = HashSet<u64, BuildHasherDefault<Given>>;

/// What is known of ids, by their hash.
pub(crate) type ByHash<T> = HashMap<u64, T, BuildHasherDefault<Given>>;

/// Takes a hash as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given(u64);

impl Hasher for Given {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// The hash an id is remembered by.
pub(crate) fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl Ids {
    /// Takes an id. Where it was taken before, the first free of `<id>#dup1`, `<id>#dup2`, … takes its place.
    pub(crate) fn claim(&mut self, id: &str) -> Option<EventId> {
        let wanted = hash(id);
        if self.taken.insert(wanted) {
            return None;
        }
        let n = self.duplicates.entry(wanted).or_default();
        loop {
            *n += 1;
            let free = format!("{id}#dup{n}");
            if self.taken.insert(hash(&free)) {
                return Some(EventId::from(free));
            }
        }
    }

    /// Whether an id was handed out.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.taken.contains(&hash(id))
    }
}
