//! Where the bytes of a trace come from.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::document::{MAX_BYTES, binary};
use crate::{ReadError, eval};

/// A file that can be read from its beginning more than once. Gzip and zstd archives and Inspect's zipped logs are
/// unpacked on the way.
#[derive(Debug)]
pub(crate) struct Input {
    path: PathBuf,
    from: From,
}

#[derive(Debug)]
enum From {
    /// The file at the path.
    Path,
    /// A copy of what was read from a pipe.
    Copy(File),
}

/// What an [`Input`] is read through.
pub(crate) type Bytes = Box<dyn BufRead + Send>;

impl Input {
    /// The plain file at a path.
    pub(crate) fn file(path: &Path) -> Result<Self, ReadError> {
        let input = Self { path: path.to_owned(), from: From::Path };
        let metadata = fs::metadata(path).map_err(|source| input.failed(source))?;
        if !metadata.is_file() {
            return Err(ReadError::NotAFile { path: input.path });
        }
        Ok(input)
    }

    /// What a reader gives, copied to a temporary file since it has to be read more than once.
    pub(crate) fn copy(path: &Path, mut reader: impl Read) -> Result<Self, ReadError> {
        let copied = tempfile::tempfile().and_then(|mut file| {
            io::copy(&mut reader, &mut file)?;
            Ok(file)
        });
        match copied {
            Ok(file) => Ok(Self { path: path.to_owned(), from: From::Copy(file) }),
            Err(source) => Err(ReadError::Io { path: path.to_owned(), source }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn failed(&self, source: io::Error) -> ReadError {
        match source.kind() {
            io::ErrorKind::NotFound => ReadError::NotFound { path: self.path.clone() },
            _ => ReadError::Io { path: self.path.clone(), source },
        }
    }

    /// The unpacked text from its beginning.
    pub(crate) fn open(&self) -> Result<Bytes, ReadError> {
        let raw: Bytes = match &self.from {
            From::Path => Box::new(BufReader::with_capacity(1 << 16, self.reopen(File::open(&self.path))?)),
            From::Copy(file) => Box::new(BufReader::with_capacity(1 << 16, self.reopen(file.try_clone())?)),
        };
        let mut text = self.unpack(raw)?;
        match binary(text.fill_buf().map_err(|source| self.failed(source))?) {
            Some(what) => Err(ReadError::Binary { path: self.path.clone(), what }),
            None => Ok(text),
        }
    }

    /// The file, where it is a Parquet file.
    #[cfg(feature = "parquet")]
    pub(crate) fn parquet(&self) -> Result<Option<File>, ReadError> {
        let mut file = match &self.from {
            From::Path => self.reopen(File::open(&self.path))?,
            From::Copy(file) => self.reopen(file.try_clone())?,
        };
        let mut magic = [0; 4];
        let is_parquet = file.read_exact(&mut magic).is_ok() && &magic == b"PAR1";
        if is_parquet { self.reopen(Ok(file)).map(Some) } else { Ok(None) }
    }

    fn reopen(&self, file: io::Result<File>) -> Result<File, ReadError> {
        let rewound = file.and_then(|mut file| file.seek(SeekFrom::Start(0)).map(|_| file));
        rewound.map_err(|source| self.failed(source))
    }

    fn unpack(&self, mut raw: Bytes) -> Result<Bytes, ReadError> {
        let head = raw.fill_buf().map_err(|source| self.failed(source))?;
        if head.starts_with(b"\x1f\x8b") {
            return Ok(Box::new(BufReader::with_capacity(1 << 16, flate2::bufread::MultiGzDecoder::new(raw))));
        }
        if head.starts_with(b"\x28\xb5\x2f\xfd") {
            return Ok(Box::new(BufReader::with_capacity(1 << 16, Frames { packed: Some(raw), frame: None })));
        }
        if head.starts_with(b"PK\x03\x04") {
            let mut archive = Vec::new();
            raw.take(MAX_BYTES).read_to_end(&mut archive).map_err(|source| self.failed(source))?;
            let text = eval::unpack(&archive, MAX_BYTES).map_err(|source| self.failed(source))?;
            return Ok(Box::new(io::Cursor::new(text.unwrap_or(archive))));
        }
        Ok(raw)
    }

    /// The whole unpacked text.
    pub(crate) fn read_all(&self) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        self.open()?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|source| self.failed(source))?;
        let size = bytes.len() as u64;
        if size > MAX_BYTES {
            return Err(ReadError::TooLarge { path: self.path.clone(), size, limit: MAX_BYTES });
        }
        Ok(bytes)
    }
}

/// The frames of a zstd archive, one after another.
struct Frames {
    packed: Option<Bytes>,
    frame: Option<Frame>,
}

type Frame = ruzstd::decoding::StreamingDecoder<Bytes, ruzstd::decoding::FrameDecoder>;

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let n_read = frame.read(buffer)?;
                if n_read > 0 || buffer.is_empty() {
                    return Ok(n_read);
                }
            }
            if let Some(frame) = self.frame.take() {
                self.packed = Some(frame.into_inner());
            }
            let Some(mut packed) = self.packed.take() else { return Ok(0) };
            if packed.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.frame = Some(Frame::new(packed).map_err(io::Error::other)?);
        }
    }
}
