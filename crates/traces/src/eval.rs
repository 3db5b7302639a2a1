//! Inspect's zipped logs (`.eval`): a ZIP archive of a header and a file a sample.
//!
//! Unpacked into the text that the same log has as one JSON document. Only what such archives use is read:
//! stored, deflated and zstd files, with sizes in the directory, and no archive of more than one part.

use std::io::{self, Read};

use flate2::bufread::DeflateDecoder;

/// One file of an archive.
struct Entry<'a> {
    name: &'a [u8],
    method: u16,
    packed: &'a [u8],
}

/// The log in an archive as one JSON text of at most `limit` bytes; `None` where the archive holds no log.
///
/// # Errors
///
/// Where a file of it cannot be unpacked, or the text is longer.
pub(crate) fn unpack(archive: &[u8], limit: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(entries) = entries(archive) else { return Ok(None) };
    let named = |name: &[u8]| entries.iter().find(|entry| entry.name == name);
    // A run that was cut short has what it began with.
    let Some(header) = named(b"header.json").or_else(|| named(b"_journal/start.json")) else { return Ok(None) };
    let mut text = Vec::new();
    add(header, &mut text, limit)?;
    while text.last().is_some_and(u8::is_ascii_whitespace) {
        text.pop();
    }
    if text.pop() != Some(b'}') {
        return Ok(None);
    }
    let is_empty = text.iter().skip_while(|byte| **byte != b'{').skip(1).all(u8::is_ascii_whitespace);
    text.extend_from_slice(if is_empty { b"\"samples\":[" } else { b",\"samples\":[" });
    let samples = entries.iter().filter(|entry| entry.name.starts_with(b"samples/") && entry.name.ends_with(b".json"));
    for (at, sample) in samples.enumerate() {
        if at > 0 {
            text.push(b',');
        }
        add(sample, &mut text, limit)?;
    }
    text.extend_from_slice(b"]}");
    Ok(Some(text))
}

/// Unpacks a file to the end of a text.
fn add(entry: &Entry<'_>, text: &mut Vec<u8>, limit: u64) -> io::Result<()> {
    let left = limit.saturating_sub(text.len() as u64);
    let mut packed = entry.packed;
    let n_read = match entry.method {
        0 => packed.take(left + 1).read_to_end(text)?,
        8 => DeflateDecoder::new(packed).take(left + 1).read_to_end(text)?,
        93 => {
            let frame = ruzstd::decoding::StreamingDecoder::new(&mut packed).map_err(io::Error::other)?;
            frame.take(left + 1).read_to_end(text)?
        }
        method => {
            let what = format!("a file of the archive is packed by method {method}, not stored, deflated or zstd");
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
    };
    if n_read as u64 > left {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("the archive unpacks to more than {limit} bytes"),
        ));
    }
    Ok(())
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(N)?)?;
    Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn place<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    number::<N>(bytes, at).and_then(|number| usize::try_from(number).ok())
}

/// The files of an archive in the order of its directory; `None` where there is no whole directory.
fn entries(archive: &[u8]) -> Option<Vec<Entry<'_>>> {
    const END: &[u8] = b"PK\x05\x06";
    const END_SIZE: usize = 22;
    const LONGEST_COMMENT: usize = 0xffff;
    let first = archive.len().saturating_sub(END_SIZE + LONGEST_COMMENT);
    let end = first + archive.get(first..)?.windows(END.len()).rposition(|window| window == END)?;
    archive.get(end..end + END_SIZE)?;
    let count = place::<2>(archive, end + 10)?;
    let mut at = place::<4>(archive, end + 16)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        if archive.get(at..at.checked_add(4)?)? != b"PK\x01\x02" {
            return None;
        }
        let method = u16::try_from(number::<2>(archive, at + 10)?).ok()?;
        let size = place::<4>(archive, at + 20)?;
        let (name, extra, comment) =
            (place::<2>(archive, at + 28)?, place::<2>(archive, at + 30)?, place::<2>(archive, at + 32)?);
        let local = place::<4>(archive, at + 42)?;
        // The local header's own name and extra field may differ in length from the directory's.
        let lengths = place::<2>(archive, local.checked_add(26)?)? + place::<2>(archive, local.checked_add(28)?)?;
        let data = local.checked_add(30)?.checked_add(lengths)?;
        let packed = archive.get(data..data.checked_add(size)?)?;
        entries.push(Entry { name: archive.get(at + 46..at + 46 + name)?, method, packed });
        at += 46 + name + extra + comment;
    }
    Some(entries)
}
