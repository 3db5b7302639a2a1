//! A part of the traces.

/// One of several parts, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) number: u64,
    pub(crate) of: u64,
}

impl Shard {
    /// Whether a trace belongs to this part: by its name alone, so that other traces do not matter.
    pub(crate) fn holds(self, trace: &str) -> bool {
        let digest = condenser::condenser::digest([trace]);
        let hash = u64::from_str_radix(digest.get(..16).unwrap_or_default(), 16).unwrap_or_default();
        hash % self.of == self.number - 1
    }
}

/// `2/4`.
pub(crate) fn parse_shard(text: &str) -> Result<Shard, String> {
    let explain = || "a part is like 2/4: the second of four".to_owned();
    let (number, of) = text.split_once('/').ok_or_else(explain)?;
    let shard = Shard { number: number.parse().map_err(|_| explain())?, of: of.parse().map_err(|_| explain())? };
    if (1..=shard.of).contains(&shard.number) && shard.of <= 10_000 { Ok(shard) } else { Err(explain()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trace_is_in_one_part() {
        let mut sizes = [0; 4];
        for n in 0..1000 {
            let name = format!("runs/{n}.jsonl");
            let parts: Vec<u64> = (1..=4).filter(|&number| Shard { number, of: 4 }.holds(&name)).collect();
            assert_eq!(parts.len(), 1, "{name}");
            sizes[parts[0] as usize - 1] += 1;
        }
        assert!(sizes.iter().all(|size| *size > 180), "{sizes:?}");
    }

    #[test]
    fn parts_are_numbered_from_one() {
        assert_eq!(parse_shard("2/4"), Ok(Shard { number: 2, of: 4 }));
        for wrong in ["", "2", "0/4", "5/4", "1/0", "a/b", "1/99999"] {
            assert!(parse_shard(wrong).is_err(), "{wrong}");
        }
    }
}
