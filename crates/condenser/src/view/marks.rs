//! A set of dense numbers that is emptied in no time.

/// A set of interned ids. Filling it costs its members, whatever was in it before and however many ids there are.
///
/// It is scratch space: a clone is empty.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// By number: the round in which it was put in.
    rounds: Vec<u32>,
    round: u32,
    len: usize,
}

impl Clone for Marks {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Marks {
    /// Replaces the members.
    pub(super) fn fill(&mut self, numbers: &[u32]) {
        if self.round == u32::MAX {
            self.rounds.clear();
            self.round = 0;
        }
        self.round += 1;
        self.len = 0;
        if let Some(&largest) = numbers.iter().max()
            && largest as usize >= self.rounds.len()
        {
            self.rounds.resize(largest as usize + 1, 0);
        }
        for &number in numbers {
            let round = &mut self.rounds[number as usize];
            self.len += usize::from(std::mem::replace(round, self.round) != self.round);
        }
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.rounds.get(number as usize).is_some_and(|&round| round == self.round)
    }

    /// Takes a member out. Whether it was there.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let was_there = self.contains(number);
        if was_there {
            self.rounds[number as usize] = 0;
            self.len -= 1;
        }
        was_there
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}
