//! Writes the benchmarks' input as OpenHands event JSON lines: `generate N_EVENTS CONDENSE_EVERY > FILE`.

use std::io::{BufWriter, Write as _};

use condenser_benches::{Shape, openhands_events};

fn main() -> std::io::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let (Some(Ok(n_events)), Some(Ok(condense_every))) = (numbers.next(), numbers.next()) else {
        return Err(std::io::Error::other("usage: generate N_EVENTS CONDENSE_EVERY (0: no condensations)"));
    };
    let mut output = BufWriter::new(std::io::stdout());
    for event in openhands_events(Shape { n_events, condense_every }) {
        writeln!(output, "{event}")?;
    }
    output.flush()
}
