//! Pages inflated into just the bytes that their headers say, and not one more.

use std::io::Read;

use parquet::basic::Compression;

/// Inflates the bytes of a page into `page`, all of it.
///
/// # Errors
/// What is wrong: the codec finds it damaged, or it has more or fewer bytes than `page`.
pub(super) fn inflate(codec: Compression, stored: &[u8], page: &mut [u8]) -> Result<(), String> {
    match codec {
        Compression::UNCOMPRESSED if stored.len() == page.len() => {
            page.copy_from_slice(stored);
            Ok(())
        }
        Compression::UNCOMPRESSED => {
            Err(format!("{} bytes that are not compressed, of which its header says {}", stored.len(), page.len()))
        }
        Compression::SNAPPY => {
            let bytes = snap::raw::decompress_len(stored).map_err(|error| error.to_string())?;
            same(bytes, page.len())?;
            let written = snap::raw::Decoder::new().decompress(stored, page).map_err(|error| error.to_string())?;
            same(written, page.len())
        }
        Compression::ZSTD(_) => {
            let inflated = zstd::bulk::Decompressor::new().and_then(|mut zstd| zstd.decompress_to_buffer(stored, page));
            let written = inflated.map_err(|error| format!("{error}, of {} bytes as its header says", page.len()))?;
            same(written, page.len())
        }
        Compression::GZIP(_) => gzip(stored, page),
        Compression::LZ4_RAW => lz4(stored, page),
        Compression::LZ4 => hadoop_lz4(stored, page).or_else(|_| lz4(stored, page)),
        other => Err(format!("it is compressed with {other}, which this release does not read")),
    }
}

/// Whether pages of that codec are read.
pub(super) fn is_read(codec: Compression) -> bool {
    use Compression::{GZIP, LZ4, LZ4_RAW, SNAPPY, UNCOMPRESSED, ZSTD};
    matches!(codec, UNCOMPRESSED | SNAPPY | GZIP(_) | LZ4 | LZ4_RAW | ZSTD(_))
}

fn same(written: usize, said: usize) -> Result<(), String> {
    match written == said {
        true => Ok(()),
        false => Err(format!("it inflates to {written} bytes, where its header says {said}")),
    }
}

fn gzip(stored: &[u8], page: &mut [u8]) -> Result<(), String> {
    let mut gzip = flate2::read::MultiGzDecoder::new(stored);
    gzip.read_exact(page).map_err(|error| format!("{error}, of {} bytes as its header says", page.len()))?;
    match gzip.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(format!("it inflates to more than the {} bytes that its header says", page.len())),
        Err(error) => Err(error.to_string()),
    }
}

fn lz4(stored: &[u8], page: &mut [u8]) -> Result<(), String> {
    let written = lz4_flex::block::decompress_into(stored, page).map_err(|error| error.to_string())?;
    same(written, page.len())
}

/// Blocks as Hadoop frames them: how long each will be and is, as big-endian numbers before it.
fn hadoop_lz4(mut stored: &[u8], mut page: &mut [u8]) -> Result<(), String> {
    while !stored.is_empty() {
        let (head, rest) = stored.split_at_checked(8).ok_or("a frame ends early")?;
        let number = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let (inflated, block) = (number(0), number(4));
        let (block, rest) = rest.split_at_checked(block).ok_or("a frame ends early")?;
        let (now, later) = page.split_at_mut_checked(inflated).ok_or("frames are longer than the page")?;
        lz4(block, now)?;
        (stored, page) = (rest, later);
    }
    same(0, page.len())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    fn framed(bytes: &[u8]) -> Vec<u8> {
        let mut frames = Vec::new();
        for part in bytes.chunks(300) {
            let block = lz4_flex::block::compress(part);
            frames.extend((part.len() as u32).to_be_bytes());
            frames.extend((block.len() as u32).to_be_bytes());
            frames.extend(block);
        }
        frames
    }

    #[test]
    fn a_page_inflates_to_what_its_header_says_and_nothing_else() {
        let bytes: Vec<u8> = (0..1000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let stored = [
            (Compression::UNCOMPRESSED, bytes.clone()),
            (Compression::SNAPPY, snap::raw::Encoder::new().compress_vec(&bytes).unwrap()),
            (Compression::GZIP(Default::default()), gzipped(&bytes)),
            (Compression::ZSTD(Default::default()), zstd::bulk::compress(&bytes, 1).unwrap()),
            (Compression::LZ4_RAW, lz4_flex::block::compress(&bytes)),
            (Compression::LZ4, lz4_flex::block::compress(&bytes)),
            (Compression::LZ4, framed(&bytes)),
        ];
        for (codec, stored) in stored {
            let mut page = vec![0; bytes.len()];
            inflate(codec, &stored, &mut page).unwrap();
            assert!(page == bytes, "{codec}");
            for wrong in [0, 1, bytes.len() - 1, bytes.len() + 1, bytes.len() * 2] {
                inflate(codec, &stored, &mut vec![0; wrong]).unwrap_err();
            }
            inflate(codec, &stored[..stored.len() / 2], &mut page).unwrap_err();
        }
        let brotli = inflate(Compression::BROTLI(Default::default()), &[1, 2], &mut [0; 4]).unwrap_err();
        assert!(brotli.contains("BROTLI"), "{brotli}");
    }
}
