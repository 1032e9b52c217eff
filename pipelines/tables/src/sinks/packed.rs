//! Text that is packed as it is written.

use std::io::{self, Write};
use std::sync::Arc;

use super::{Compression, SinkError};
use crate::sources::{MemoryBudget, Reservation};

/// What a gzip encoder takes.
const GZIP_BYTES: u64 = 512 << 10;
/// What a zstd encoder takes beside the tables of its level: buffers, and what is written at a time.
const ZSTD_BYTES: u64 = 1 << 20;

/// Packs what is written to it, in one thread and with settings that follow from the compression alone: so the bytes follow from what is written, piece by piece.
pub struct Packed<W: Write> {
    write: Packer<W>,
    _memory: Reservation,
}

enum Packer<W: Write> {
    Plain(W),
    /// Without a name and a time in its head.
    Gzip(flate2::write::GzEncoder<W>),
    Zstd(zstd::stream::write::Encoder<'static, W>),
}

impl<W: Write> Packed<W> {
    /// Packs for `write`. Codecs of pages alone pack nothing here.
    ///
    /// # Errors
    /// Memory that was denied.
    pub fn new(write: W, compression: Compression, budget: &Arc<dyn MemoryBudget>) -> Result<Self, SinkError> {
        let denied = |denied| SinkError::Memory { what: "packed text", denied };
        let memory = Reservation::of(budget, packing_bytes(compression)).map_err(denied)?;
        let write = match compression {
            Compression::Gzip(level) => {
                Packer::Gzip(flate2::write::GzEncoder::new(write, flate2::Compression::new(level)))
            }
            Compression::Zstd(level) => Packer::Zstd(zstd_encoder(write, level).map_err(failed)?),
            Compression::None | Compression::Snappy | Compression::Lz4 => Packer::Plain(write),
        };
        Ok(Self { write, _memory: memory })
    }

    /// Ends what is packed, and gives back what it was written to.
    ///
    /// # Errors
    /// What is written to says one.
    pub fn finish(self) -> Result<W, SinkError> {
        match self.write {
            Packer::Plain(write) => Ok(write),
            Packer::Gzip(gzip) => gzip.finish().map_err(failed),
            Packer::Zstd(zstd) => zstd.finish().map_err(failed),
        }
    }
}

impl<W: Write> Write for Packed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.write {
            Packer::Plain(write) => write.write(bytes),
            Packer::Gzip(gzip) => gzip.write(bytes),
            Packer::Zstd(zstd) => zstd.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.write {
            Packer::Plain(write) => write.flush(),
            Packer::Gzip(gzip) => gzip.flush(),
            Packer::Zstd(zstd) => zstd.flush(),
        }
    }
}

fn failed(error: io::Error) -> SinkError {
    SinkError::Write { format: "text", source: error.into() }
}

/// With a sum at the end, as the tool writes it.
fn zstd_encoder<W: Write>(write: W, level: i32) -> io::Result<zstd::stream::write::Encoder<'static, W>> {
    let mut zstd = zstd::stream::write::Encoder::new(write, level)?;
    zstd.include_checksum(true)?;
    Ok(zstd)
}

/// Memory that an encoder takes.
pub(crate) fn packing_bytes(compression: Compression) -> u64 {
    match compression {
        Compression::Gzip(_) => GZIP_BYTES,
        Compression::Zstd(level) => ZSTD_BYTES + zstd_table_bytes(level),
        Compression::None | Compression::Snappy | Compression::Lz4 => 0,
    }
}

/// The window and the tables of a level, as the library takes them for inputs of unknown length.
fn zstd_table_bytes(level: i32) -> u64 {
    let mib = match level {
        ..=2 => 2,
        3..=4 => 4,
        5..=6 => 5,
        7..=8 => 8,
        9 => 15,
        10..=11 => 25,
        12 => 45,
        13 => 37,
        14 => 53,
        15 => 69,
        16 => 38,
        17..=18 => 58,
        _ => 90,
    };
    mib << 20
}

#[cfg(test)]
mod tests {
    use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

    use super::*;

    /// What the library says itself, of more bytes than any window has.
    #[test]
    fn what_encoders_of_zstd_take_is_known_for_each_level() {
        for level in 1..=super::super::TEXT_ZSTD_MAX {
            let mut context = CCtx::create();
            context.set_parameter(CParameter::CompressionLevel(level)).unwrap();
            context.set_parameter(CParameter::ChecksumFlag(true)).unwrap();
            let (piece, mut packed) = (vec![level as u8; 1 << 20], vec![0; 1 << 20]);
            for _ in 0..18 {
                let mut bytes = InBuffer::around(&piece);
                while bytes.pos() < piece.len() {
                    context.compress_stream(&mut OutBuffer::around(&mut packed[..]), &mut bytes).unwrap();
                }
            }
            let (takes, asked) = (context.sizeof() as u64, packing_bytes(Compression::Zstd(level)));
            assert!(
                takes <= asked && asked <= 2 * takes + (2 << 20),
                "level {level}: {takes} bytes, {asked} asked for"
            );
        }
    }
}
