//! What stands before each page.

use parquet::basic::Encoding;

use super::thrift::{Cursor, DEPTH_MAX, ThriftType, Wrong};

/// The header of a page, checked as far as it can be without the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) kind: PageKind,
    /// Bytes in the file behind the header.
    pub(super) stored_bytes: u32,
    /// Bytes that they inflate to.
    pub(super) bytes: u32,
    /// CRC-32 of the bytes in the file.
    pub(super) crc: Option<u32>,
}

/// What is in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Dictionary {
        values: u32,
        encoding: Encoding,
        sorted: bool,
    },
    Data {
        values: u32,
        encoding: Encoding,
        definitions: Encoding,
        repetitions: Encoding,
    },
    DataV2 {
        values: u32,
        nulls: u32,
        rows: u32,
        encoding: Encoding,
        definition_bytes: u32,
        repetition_bytes: u32,
        inflates: bool,
    },
    /// Of an index or of what this release does not know: passed over.
    Other,
}

impl PageHeader {
    /// Reads one from the beginning of `bytes`, and says how many bytes it has there. [`Wrong::Short`]: `bytes` end before it does.
    pub(super) fn read(bytes: &[u8]) -> Result<(Self, usize), Wrong> {
        let mut cursor = Cursor::new(bytes);
        let (mut last, mut structs) = (0, 0);
        let (mut kind, mut stored, mut inflated, mut crc, mut body) = (None, None, None, None, None);
        while let Some((number, of)) = cursor.field(last)? {
            match (number, of) {
                (1, ThriftType::I32) => kind = Some(cursor.int()?),
                (2, ThriftType::I32) => inflated = Some(size(cursor.int()?)?),
                (3, ThriftType::I32) => stored = Some(size(cursor.int()?)?),
                (4, ThriftType::I32) => crc = Some(cursor.int()? as u32),
                (5, ThriftType::Struct) => body = Some((0, KindFields::read(&mut cursor)?)),
                (7, ThriftType::Struct) => body = Some((2, KindFields::read(&mut cursor)?)),
                (8, ThriftType::Struct) => body = Some((3, KindFields::read(&mut cursor)?)),
                _ => cursor.skip(of, DEPTH_MAX, &mut structs)?,
            }
            last = number;
        }
        let missing = Wrong::Malformed("a page header without sizes or type");
        let kind = match (kind.ok_or(missing)?, body) {
            (0, Some((0, body))) => body.data()?,
            (2, Some((2, body))) => body.dictionary()?,
            (3, Some((3, body))) => body.data_v2()?,
            (0 | 2 | 3, _) => return Err(Wrong::Malformed("a page header without what its type of page has")),
            _ => PageKind::Other,
        };
        let header = Self { kind, stored_bytes: stored.ok_or(missing)?, bytes: inflated.ok_or(missing)?, crc };
        header.check()?;
        Ok((header, cursor.at()))
    }

    fn check(&self) -> Result<(), Wrong> {
        if let PageKind::DataV2 { values, nulls, rows, definition_bytes, repetition_bytes, .. } = &self.kind {
            let levels = definition_bytes.checked_add(*repetition_bytes);
            if levels.is_none_or(|levels| levels > self.bytes || levels > self.stored_bytes) {
                return Err(Wrong::Malformed("a page header with levels longer than the page"));
            }
            if nulls > values || rows > values {
                return Err(Wrong::Malformed("a page header with more nulls or rows than values"));
            }
        }
        Ok(())
    }
}

/// Fields of the three headers for kinds of pages, by their numbers, which differ between them.
#[derive(Default)]
struct KindFields {
    ints: [Option<i32>; 8],
    flags: [Option<bool>; 8],
}

impl KindFields {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Wrong> {
        let (mut body, mut last, mut structs) = (Self::default(), 0, 0);
        while let Some((number, kind)) = cursor.field(last)? {
            let place = usize::try_from(number).ok().filter(|place| *place < 8);
            match (place, kind) {
                (Some(place), ThriftType::I32) => body.ints[place] = Some(cursor.int()?),
                (Some(place), ThriftType::Bool(flag)) => body.flags[place] = Some(flag),
                _ => cursor.skip(kind, DEPTH_MAX, &mut structs)?,
            }
            last = number;
        }
        Ok(body)
    }

    fn int(&self, number: usize) -> Result<i32, Wrong> {
        self.ints[number].ok_or(Wrong::Malformed("a page header that lacks a number"))
    }

    fn count(&self, number: usize) -> Result<u32, Wrong> {
        size(self.int(number)?)
    }

    fn encoding(&self, number: usize) -> Result<Encoding, Wrong> {
        encoding(self.int(number)?)
    }

    fn data(&self) -> Result<PageKind, Wrong> {
        Ok(PageKind::Data {
            values: self.count(1)?,
            encoding: self.encoding(2)?,
            definitions: self.encoding(3)?,
            repetitions: self.encoding(4)?,
        })
    }

    fn dictionary(&self) -> Result<PageKind, Wrong> {
        let sorted = self.flags[3].unwrap_or(false);
        Ok(PageKind::Dictionary { values: self.count(1)?, encoding: self.encoding(2)?, sorted })
    }

    fn data_v2(&self) -> Result<PageKind, Wrong> {
        Ok(PageKind::DataV2 {
            values: self.count(1)?,
            nulls: self.count(2)?,
            rows: self.count(3)?,
            encoding: self.encoding(4)?,
            definition_bytes: self.count(5)?,
            repetition_bytes: self.count(6)?,
            inflates: self.flags[7].unwrap_or(true),
        })
    }
}

fn size(number: i32) -> Result<u32, Wrong> {
    u32::try_from(number).map_err(|_| Wrong::Malformed("a page header with a number below zero"))
}

fn encoding(number: i32) -> Result<Encoding, Wrong> {
    #[allow(deprecated, reason = "levels of old files are packed bits")]
    Ok(match number {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        4 => Encoding::BIT_PACKED,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return Err(Wrong::Malformed("a page of an encoding that there is not")),
    })
}
