//! Text that is packed as it is written.

use std::io::{self, Write};
use std::sync::Arc;

use super::{Compression, SinkError, packing_bytes};
use crate::sources::{MemoryBudget, Reservation};

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
