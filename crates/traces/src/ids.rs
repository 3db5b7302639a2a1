//! Unique event ids within one trace.

use std::collections::HashMap;

use condenser::event::EventId;

/// Hands out each id once.
#[derive(Debug, Default)]
pub(crate) struct Ids(HashMap<EventId, u64>);

impl Ids {
    /// The id as given where it is free, else the first free of `<id>#dup1`, `<id>#dup2`, …, and whether it was taken.
    pub(crate) fn claim(&mut self, id: &str) -> (EventId, bool) {
        let wanted = EventId::from(id);
        let Some(duplicates) = self.0.get_mut(&wanted) else {
            self.0.insert(wanted.clone(), 0);
            return (wanted, false);
        };
        let mut n = *duplicates;
        let free = loop {
            n += 1;
            let free = EventId::from(format!("{id}#dup{n}"));
            if !self.0.contains_key(&free) {
                break free;
            }
        };
        self.0.insert(wanted, n);
        self.0.insert(free.clone(), 0);
        (free, true)
    }
}
