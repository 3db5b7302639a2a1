//! What reading a file of JSON lines costs, as a ratio to what `serde_json` needs to decode the same lines into values:
//! `import FILE [REPEATS]`. With 0 repeats the file is only read, so that the peak of memory is that of the reader.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Error, Result, Write as _, stdout};
use std::path::Path;
use std::time::Instant;

use condenser_traces::{Item, Reader};
use serde_json::Value;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or_else(|| Error::other("usage: import FILE [REPEATS]"))?;
    let repeats: usize = arguments.next().map_or(Ok(5), |text| text.parse()).map_err(Error::other)?;
    let path = Path::new(&path);
    let (mut floors, mut imports) = (Vec::new(), Vec::new());
    let mut n_events = 0;
    for _ in 0..repeats.max(1) {
        if repeats > 0 {
            let start = Instant::now();
            decode(path)?;
            floors.push(start.elapsed().as_secs_f64());
        }
        let start = Instant::now();
        n_events = import(path)?;
        imports.push(start.elapsed().as_secs_f64());
    }
    let mut output = stdout().lock();
    // Other programs can only make a run slower.
    writeln!(output, "{n_events} events, read in {:.3} s (best of {})", best(&imports), repeats.max(1))?;
    if repeats > 0 {
        writeln!(output, "lines to values: {:.3} s", best(&floors))?;
        writeln!(output, "ratio: {:.2}", best(&imports) / best(&floors))?;
    }
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        for line in status.lines().filter(|line| line.starts_with("VmHWM")) {
            writeln!(output, "{line}")?;
        }
    }
    Ok(())
}

/// The floor: every line into a value, which is dropped.
fn decode(path: &Path) -> Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        black_box(serde_json::from_slice::<Value>(&line)?);
        line.clear();
    }
    Ok(())
}

fn import(path: &Path) -> Result<usize> {
    let mut n_events = 0;
    for item in Reader::open(path, None).map_err(Error::other)? {
        if let Item::Event(event) = item.map_err(Error::other)? {
            black_box(event);
            n_events += 1;
        }
    }
    Ok(n_events)
}

fn best(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}
