//! Memory that encoders take. Zstandard has its tables from the C library, so nothing but this asks for them.

use super::Compression;

/// What a gzip encoder takes.
const GZIP_BYTES: u64 = 512 << 10;
/// What an encoder of text by Zstandard takes beside the tables of its level: buffers, and what is written at a time.
const STREAM_BYTES: u64 = 1 << 20;
/// A page of Parquet ends behind the values with which it has so many bytes. These are written some at a time, so it has less than three times as much, unless one of them has more alone.
const PAGE_BYTES: usize = 1 << 20;
/// As [`PAGE_BYTES`], by levels of Zstandard whose tables follow from how large a page is: for three times as much they take a third, or a sixth, of what they do for a MiB.
const SMALL_PAGE_BYTES: usize = 80 << 10;
/// The first of these levels.
const SMALL_PAGES_FROM: i32 = 7;

/// What an encoder of text takes.
pub(crate) fn packing_bytes(compression: Compression) -> u64 {
    match compression {
        Compression::Gzip(_) => GZIP_BYTES,
        Compression::Zstd(level) => STREAM_BYTES + stream_table_bytes(level),
        Compression::None | Compression::Snappy | Compression::Lz4 => 0,
    }
}

/// How large pages of Parquet become, about.
pub(super) fn page_bytes(compression: Compression) -> usize {
    match compression {
        Compression::Zstd(SMALL_PAGES_FROM..) => SMALL_PAGE_BYTES,
        _ => PAGE_BYTES,
    }
}

/// What encoders of pages take, of which the library of Parquet has one for each column of a row group, when pages of so many of the columns are of values that are larger than
/// [`page_bytes`].
pub(super) fn codecs_bytes(compression: Compression, columns: u64, of_large_values: u64) -> u64 {
    match compression {
        // It is made for each page anew.
        Compression::Gzip(_) => GZIP_BYTES,
        Compression::Zstd(level) => {
            (columns - of_large_values) * page_table_bytes(level) + of_large_values * stream_table_bytes(level)
        }
        Compression::None | Compression::Snappy | Compression::Lz4 => 0,
    }
}

/// The window and the tables of a level, as the library takes them for inputs of unknown length.
fn stream_table_bytes(level: i32) -> u64 {
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
        19 => 90,
        20 => 170,
        21 => 330,
        _ => 650,
    };
    mib << 20
}

/// The tables of a level for a page of three times [`page_bytes`].
fn page_table_bytes(level: i32) -> u64 {
    let kib = match level {
        ..=1 => 768,
        2 => 896,
        3 => 1_408,
        4 => 2_688,
        5..=10 => 3_200,
        11 => 3_712,
        12 => 4_736,
        13 => 3_968,
        14..=15 => 4_480,
        _ => 5_504,
    };
    kib << 10
}

#[cfg(test)]
mod tests {
    use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, compress_bound};

    use super::*;

    fn context(level: i32) -> CCtx<'static> {
        let mut context = CCtx::create();
        context.set_parameter(CParameter::CompressionLevel(level)).unwrap();
        context
    }

    /// What the library says itself.
    fn is_about(level: i32, takes: usize, asked: u64) {
        let takes = takes as u64;
        assert!(takes <= asked && asked <= 2 * takes + (2 << 20), "level {level}: {takes} bytes, {asked} asked for");
    }

    /// Of more bytes than any window of these levels has.
    #[test]
    fn what_encoders_of_text_take_is_known_for_each_level() {
        for level in 1..=super::super::TEXT_ZSTD_MAX {
            let mut context = context(level);
            context.set_parameter(CParameter::ChecksumFlag(true)).unwrap();
            let (piece, mut packed) = (vec![level as u8; 1 << 20], vec![0; 1 << 20]);
            for _ in 0..18 {
                let mut bytes = InBuffer::around(&piece);
                while bytes.pos() < piece.len() {
                    context.compress_stream(&mut OutBuffer::around(&mut packed[..]), &mut bytes).unwrap();
                }
            }
            is_about(level, context.sizeof(), packing_bytes(Compression::Zstd(level)));
        }
    }

    #[test]
    fn what_encoders_of_pages_take_is_known_for_each_level() {
        let takes = |level: i32, bytes: usize| {
            let (mut context, page) = (context(level), vec![level as u8; bytes]);
            context.compress2(&mut Vec::with_capacity(compress_bound(bytes)), &page).unwrap();
            context.sizeof()
        };
        for level in 1..=22 {
            let compression = Compression::Zstd(level);
            is_about(level, takes(level, 3 * page_bytes(compression)), codecs_bytes(compression, 1, 0));
            let large = takes(level, 64 << 20) as u64;
            let asked = codecs_bytes(compression, 3, 1) - codecs_bytes(compression, 2, 0);
            assert!(large <= asked, "level {level}: {large} bytes, {asked} asked for");
            assert!(
                level >= SMALL_PAGES_FROM || large <= codecs_bytes(compression, 1, 0),
                "level {level}: {large} bytes"
            );
        }
    }
}
