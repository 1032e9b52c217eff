//! Memory that encoders take. Zstandard has its tables from the C library, so nothing but this asks for them.

use super::Compression;

/// What a gzip encoder takes.
const GZIP_BYTES: u64 = 512 << 10;
/// What an encoder of text by Zstandard takes beside the tables of its level: buffers, and what is written at a time.
const STREAM_BYTES: u64 = 1 << 20;
/// A page of Parquet, one of a dictionary, too, ends behind the values with which it has so many bytes.
pub(super) const PAGE_BYTES: u64 = (1 << 20) - LARGE_BYTES;
/// A value of more is large: it may be all of a page, whatever its size.
pub(super) const LARGE_BYTES: u64 = 64 << 10;
/// Values are written some at a time, which are no more than a page and one of them: so pages without large values have less than this.
const LARGEST_PAGE_BYTES: u64 = 2 << 20;

/// What an encoder of text takes.
pub(crate) fn packing_bytes(compression: Compression) -> u64 {
    match compression {
        Compression::Gzip(_) => GZIP_BYTES,
        Compression::Zstd(level) => STREAM_BYTES + stream_table_bytes(level),
        Compression::None | Compression::Snappy | Compression::Lz4 => 0,
    }
}

/// Bytes of the largest page that a column of so many bytes can have. `has_large`: one of its values is large.
pub(super) fn largest_page(bytes: u64, has_large: bool) -> u64 {
    if has_large { bytes } else { bytes.min(LARGEST_PAGE_BYTES) }
}

/// What the encoder of a column takes, of which the library of Parquet has one for each column while a row group is written, whose largest page has so many bytes.
pub(super) fn encoder_bytes(compression: Compression, page: u64) -> u64 {
    match compression {
        Compression::Zstd(level) => page_table_bytes(level, page),
        // An encoder of gzip is made for each page anew: see `passing_bytes`.
        Compression::Gzip(_) | Compression::None | Compression::Snappy | Compression::Lz4 => 0,
    }
}

/// What encoders take for a page, and end with it.
pub(super) fn passing_bytes(compression: Compression) -> u64 {
    if matches!(compression, Compression::Gzip(_)) { GZIP_BYTES } else { 0 }
}

/// What encoders of so many columns take at most that have so many bytes together, and no large values.
pub(super) fn encoders_bytes(compression: Compression, columns: u64, bytes: u64) -> u64 {
    let each = |page| encoder_bytes(compression, page);
    let least = each(0);
    let of_largest_pages = columns * each(largest_page(bytes, false));
    // A page of more than half of a size in the table has so much more than the least for each of its bytes.
    let most_for_a_byte = (SMALLEST_PAGE_LOG..=LARGEST_PAGE_LOG)
        .map(|log| 1 << log)
        .filter(|page| *page <= LARGEST_PAGE_BYTES)
        .map(|page| (each(page) - least).div_ceil(page / 2))
        .max();
    of_largest_pages.min(columns * least + most_for_a_byte.unwrap_or(0) * bytes)
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

/// Pages of powers of two bytes have a place in [`PAGE_TABLES_KIB`] from this one on.
const SMALLEST_PAGE_LOG: u32 = 10;
const LARGEST_PAGE_LOG: u32 = 23;

/// What the library takes for pages of up to 1 KiB, 2 KiB, and so on to 8 MiB, by levels from the first one on: it knows how long a page is, and tables and window follow from that.
#[rustfmt::skip]
const PAGE_TABLES_KIB: [(i32, [u32; 14]); 8] = [
    (1, [38, 50, 74, 121, 215, 275, 395, 635, 635, 763, 763, 763, 763, 763]),
    (3, [42, 58, 90, 153, 279, 531, 651, 891, 1_019, 1_275, 1_275, 1_275, 1_275, 1_275]),
    (4, [42, 58, 90, 153, 215, 531, 1_035, 1_531, 1_531, 2_555, 2_555, 2_555, 2_555, 2_555]),
    (5, [42, 58, 90, 153, 215, 467, 907, 1_147, 3_067, 3_067, 3_067, 3_067, 3_067, 3_067]),
    (7, [42, 58, 90, 153, 215, 467, 907, 1_147, 3_067, 5_627, 5_627, 5_627, 5_627, 5_627]),
    (9, [46, 66, 106, 185, 279, 467, 907, 1_147, 3_067, 5_627, 10_747, 20_987, 20_987, 20_987]),
    (11, [197, 222, 271, 370, 503, 659, 1_291, 2_043, 4_603, 5_627, 10_747, 20_987, 41_467, 41_467]),
    (13, [197, 222, 271, 370, 567, 962, 1_751, 2_818, 5_378, 9_474, 17_666, 34_050, 66_818, 132_354]),
];

/// The window and the tables of a level for a page of so many bytes; larger ones have those of inputs of any length.
fn page_table_bytes(level: i32, page: u64) -> u64 {
    let log = page.max(1).next_power_of_two().ilog2().max(SMALLEST_PAGE_LOG);
    if log > LARGEST_PAGE_LOG {
        return stream_table_bytes(level);
    }
    let of_levels = PAGE_TABLES_KIB.iter().rev().find(|(first, _)| *first <= level).unwrap_or(&PAGE_TABLES_KIB[0]);
    u64::from(of_levels.1[(log - SMALLEST_PAGE_LOG) as usize]) << 10
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
            let (takes, asked) = (context.sizeof() as u64, packing_bytes(Compression::Zstd(level)));
            assert!(takes <= asked && asked <= 2 * takes + (2 << 20), "level {level}: {takes} bytes of {asked}");
        }
    }

    /// What the library says itself that it takes for pages up to a size, one after the other.
    #[test]
    fn what_encoders_of_pages_take_is_known_for_each_level_and_size() {
        for level in 1..=22 {
            let mut context = context(level);
            for log in 9..=24 {
                for page in [(1 << log) - 1, 1 << log, (1 << log) + 1] {
                    let bytes = vec![level as u8; page];
                    context.compress2(&mut Vec::with_capacity(compress_bound(page)), &bytes).unwrap();
                    let (takes, asked) = (context.sizeof() as u64, page_table_bytes(level, page as u64));
                    assert!(takes <= asked, "level {level}, {page} bytes: {takes} of {asked}");
                    // The levels of one line of the table are about alike, but for pages that large values alone have.
                    let is_near = asked <= 2 * takes + (512 << 10);
                    assert!(is_near || log > 20, "level {level}, {page} bytes: {takes} of {asked}");
                }
            }
        }
    }

    /// However bytes are divided among columns.
    #[test]
    fn what_all_encoders_take_is_no_less_than_what_each_takes() {
        for level in [1, 3, 6, 7, 9, 12, 19, 22] {
            let compression = Compression::Zstd(level);
            for bytes in [1_000, 100_000, 5 << 20, 64 << 20] {
                for of_each in (8..25).map(|log| 1 << log) {
                    for columns in [1, 7, 50, 1_000] {
                        let large = columns.min(bytes / of_each);
                        let each = |bytes| encoder_bytes(compression, largest_page(bytes, false));
                        let takes = large * each(of_each) + (columns - large) * each(0);
                        let said = encoders_bytes(compression, columns, bytes);
                        assert!(takes <= said, "level {level}, {columns} columns, {bytes} bytes: {takes} of {said}");
                    }
                }
            }
        }
    }
}
