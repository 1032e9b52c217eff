//! The bytes of a text, from a place of its file on, or unpacked from its beginning.

use std::io::{self, Read};
use std::sync::Arc;

use exobus_files::FileError;

use super::super::memory::{MemoryBudget, Reservation};
use super::super::{InputFile, InputFormat, Place, SourceError};

/// How a file of text is packed: told by its first bytes, with which no text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// Gzip, of one member or several.
    Gzip,
    /// Zstandard, of one frame or several.
    Zstd,
}

/// What a gzip decoder takes, and a zstd decoder beside its window.
const GZIP_BYTES: u64 = 256 << 10;
const ZSTD_BYTES: u64 = 1 << 20;
/// Least and most bits of a zstd window: what level 19 has, and what the tool unpacks without being told.
const WINDOW_BITS: std::ops::RangeInclusive<u32> = 23..=27;

impl Packing {
    /// How a file is packed.
    ///
    /// # Errors
    /// It is a file of another format; those of reading.
    pub fn of(file: &InputFile) -> Result<Self, SourceError> {
        let mut head = [0; 8];
        let known = (file.len() as usize).min(head.len());
        file.read_at(0, &mut head[..known])?;
        let other = |is: &str, format: InputFormat| {
            let what = format!("it begins as a file of {is} does: say --input-format {format}");
            Err(SourceError::OtherFormat { file: file.name().clone(), format: "text", what })
        };
        // Behind the letters, which a header may begin with, these have what is in no text.
        match head {
            [b'P', b'A', b'R', b'1', 0x15, ..] => other("Parquet", InputFormat::Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', 0, 0] => other("Arrow", InputFormat::Arrow),
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Self::Zstd),
            _ => Ok(Self::None),
        }
    }
}

/// Bytes of a text, one piece behind the other.
pub(super) struct TextBytes {
    file: InputFile,
    from: From,
    _memory: Reservation,
}

enum From {
    Plain(FileBytes),
    Unpacked(Box<dyn Read + Send>),
}

/// A file from a place on.
struct FileBytes {
    file: InputFile,
    at: u64,
}

impl TextBytes {
    /// From that byte of the file on; of a packed one, from its beginning.
    pub(super) fn new(
        file: &InputFile,
        packing: Packing,
        at: u64,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        let bytes = FileBytes { file: file.clone(), at: if packing == Packing::None { at } else { 0 } };
        let reserve = |bytes| {
            let denied = |denied| SourceError::Memory {
                file: file.name().clone(),
                place: Place::Byte(0),
                what: "a decoder",
                denied,
            };
            Reservation::of(budget, bytes).map_err(denied)
        };
        let (from, memory) = match packing {
            Packing::None => (From::Plain(bytes), Reservation::none(budget)),
            Packing::Gzip => {
                let memory = reserve(GZIP_BYTES)?;
                let buffered = io::BufReader::with_capacity(128 << 10, bytes);
                (From::Unpacked(Box::new(flate2::bufread::MultiGzDecoder::new(buffered))), memory)
            }
            Packing::Zstd => {
                let bits = window_bits(file)?;
                let memory = reserve((1 << bits) + ZSTD_BYTES)?;
                let made = zstd::stream::read::Decoder::new(bytes).and_then(|mut zstd| {
                    zstd.window_log_max(bits)?;
                    Ok(zstd)
                });
                let zstd = made.map_err(|error| damaged(file, &error))?;
                (From::Unpacked(Box::new(zstd)), memory)
            }
        };
        Ok(Self { file: file.clone(), from, _memory: memory })
    }

    /// Reads some bytes; none: it is over.
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> Result<usize, SourceError> {
        match &mut self.from {
            From::Plain(plain) => plain.fill(bytes),
            From::Unpacked(unpacked) => unpacked.read(bytes).map_err(|error| match error.downcast::<FileError>() {
                Ok(error) => error.into(),
                Err(error) => damaged(&self.file, &error),
            }),
        }
    }
}

fn damaged(file: &InputFile, error: &io::Error) -> SourceError {
    let what = format!("it cannot be unpacked: {error}");
    SourceError::Damaged { file: file.name().clone(), place: Place::Byte(0), what }
}

impl FileBytes {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, SourceError> {
        let count = (self.file.len() - self.at).min(bytes.len() as u64) as usize;
        self.file.read_at(self.at, &mut bytes[..count])?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Read for FileBytes {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.fill(bytes).map_err(|error| match error {
            SourceError::File(error) => io::Error::other(error),
            error => io::Error::other(error.to_string()),
        })
    }
}

/// Bits of the window that the first frame of a zstd file asks for, and no fewer than frames commonly do.
fn window_bits(file: &InputFile) -> Result<u32, SourceError> {
    let mut head = [0; 6];
    let known = (file.len() as usize).min(head.len());
    file.read_at(0, &mut head[..known])?;
    // A frame with one segment has no window: it is unpacked to its length, whose first byte is here then.
    let is_single = head[4] & 0x20 != 0;
    let bits = if is_single { 0 } else { 10 + u32::from(head[5] >> 3) + u32::from(head[5] & 7 != 0) };
    match bits <= *WINDOW_BITS.end() {
        true => Ok(bits.max(*WINDOW_BITS.start())),
        false => Err(SourceError::NotRead {
            file: file.name().clone(),
            place: Place::Byte(0),
            what: format!("it was packed with a window of 2^{bits} bytes; pack it again without --long or --ultra"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::super::FixedBudget;
    use super::*;
    use crate::samples::MemoryFile;

    fn unpack(packed: Vec<u8>, budget: u64) -> Result<Vec<u8>, SourceError> {
        let file = MemoryFile::input("t.csv", packed);
        let budget: Arc<dyn MemoryBudget> = Arc::new(FixedBudget::new(budget));
        let mut bytes = TextBytes::new(&file, Packing::of(&file)?, 0, &budget)?;
        let (mut all, mut piece) = (Vec::new(), [0; 1000]);
        loop {
            match bytes.read(&mut piece)? {
                0 => return Ok(all),
                count => all.extend(&piece[..count]),
            }
        }
    }

    #[test]
    fn packed_files_are_told_by_their_first_bytes_and_unpacked_to_their_end() {
        let text: Vec<u8> = (0..20_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let gzip = |text: &[u8]| {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gzip.write_all(text).unwrap();
            gzip.finish().unwrap()
        };
        let zstd = |text: &[u8]| zstd::bulk::compress(text, 3).unwrap();
        let (first, second) = text.split_at(50_000);
        for packed in [text.clone(), gzip(&text), zstd(&text)] {
            assert!(unpack(packed, 16 << 20).unwrap() == text);
        }
        // Of several members and frames.
        assert!(unpack([gzip(first), gzip(second)].concat(), 16 << 20).unwrap() == text);
        assert!(unpack([zstd(first), zstd(second)].concat(), 16 << 20).unwrap() == text);
        for mut packed in [gzip(&text), zstd(&text)] {
            assert!(matches!(unpack(packed.clone(), 1000).unwrap_err(), SourceError::Memory { .. }));
            packed.truncate(packed.len() / 2);
            assert!(matches!(unpack(packed.clone(), 16 << 20).unwrap_err(), SourceError::Damaged { .. }));
            packed[20] ^= 0xff;
            assert!(matches!(unpack(packed, 16 << 20).unwrap_err(), SourceError::Damaged { .. }));
        }
    }

    #[test]
    fn a_window_that_is_too_large_is_refused() {
        let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        zstd.window_log(28).unwrap();
        zstd.write_all(b"a\n1\n").unwrap();
        let error = unpack(zstd.finish().unwrap(), 1 << 30).unwrap_err();
        assert!(matches!(&error, SourceError::NotRead { .. }) && error.to_string().contains("2^28"), "{error}");
    }
}
