//! Unique event ids within one trace.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use condenser::event::EventId;

/// Hands out each id once.
///
/// Ids are remembered by a hash of 64 bits. Among ten million ids two share one with odds of one to 400,000; then the
/// later is called a duplicate.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    taken: HashSet<u64>,
    /// The highest number that was appended to an id that is taken.
    duplicates: HashMap<u64, u64>,
}

/// The hash an id is remembered by.
pub(crate) fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl Ids {
    /// The id as given where it is free, else the first free of `<id>#dup1`, `<id>#dup2`, …, and whether it was taken.
    pub(crate) fn claim(&mut self, id: &str) -> (EventId, bool) {
        let wanted = hash(id);
        if self.taken.insert(wanted) {
            return (EventId::from(id), false);
        }
        let n = self.duplicates.entry(wanted).or_default();
        loop {
            *n += 1;
            let free = format!("{id}#dup{n}");
            if self.taken.insert(hash(&free)) {
                return (EventId::from(free), true);
            }
        }
    }

    /// Whether an id was handed out.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.taken.contains(&hash(id))
    }
}
