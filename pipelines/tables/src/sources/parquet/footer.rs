//! The footer of a file: found, looked over, and only then given to the library.
//!
//! The library makes room for as many row groups and children as a footer says there are, and goes into its schema as deep as that says; a footer that lies would end the
//! process. So its bytes are walked first: lists are no longer than the bytes behind them, children no more than elements, nothing is too deep, and the structs are counted,
//! which foretells the memory of what the library makes of them.

use std::sync::Arc;

use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use super::super::memory::{MemoryBudget, Reservation};
use super::super::{InputFile, Place, SourceError};
use super::thrift::{Cursor, DEPTH_MAX, ThriftType, Wrong};
use crate::guard::guarded;

/// Bytes at the end of a file: how long the footer is, and the format's name.
const TAIL: u64 = 8;
/// Most bytes of memory that the library has for a struct of the footer, beside its texts; a column chunk has some 900.
const STRUCT_BYTES: u64 = 1024;
/// How deep columns may lie in each other.
const SCHEMA_DEPTH_MAX: usize = 64;

/// What a footer says, and the memory that it has.
pub(super) struct Footer {
    pub(super) metadata: ParquetMetaData,
    /// Where it begins in the file: data lies before.
    pub(super) begin: u64,
    pub(super) memory: Reservation,
}

/// Reads the footer of a file.
pub(super) fn read(file: &InputFile, budget: &Arc<dyn MemoryBudget>) -> Result<Footer, SourceError> {
    let begin = find(file)?;
    let bytes = file.len() - TAIL - begin;
    let denied = |denied| SourceError::Memory {
        file: file.name().clone(),
        place: Place::Footer,
        what: "what the footer says",
        denied,
    };
    let mut memory = Reservation::of(budget, bytes).map_err(denied)?;
    // Granted, so it fits the address space.
    let mut footer = vec![0; bytes as usize];
    file.read_at(begin, &mut footer)?;
    let damaged = |what: String| SourceError::Damaged { file: file.name().clone(), place: Place::Footer, what };
    let seen = look_over(&footer).map_err(|wrong| damaged(wrong.to_string()))?;
    if seen.encrypted {
        return Err(SourceError::Encrypted { file: file.name().clone() });
    }
    // Texts lie in it as they are written, and once more while they are copied.
    memory.resize(bytes * 3 + seen.structs.saturating_mul(STRUCT_BYTES)).map_err(denied)?;
    let metadata = guarded(|| ParquetMetaDataReader::decode_metadata(&footer)).map_err(damaged)?;
    drop(footer);
    memory.resize((metadata.memory_size() as u64).min(memory.bytes())).map_err(denied)?;
    Ok(Footer { metadata, begin, memory })
}

/// Where the footer begins.
fn find(file: &InputFile) -> Result<u64, SourceError> {
    let other =
        |what: &str| SourceError::OtherFormat { file: file.name().clone(), format: "parquet", what: what.to_owned() };
    let mut head = [0; 4];
    if file.len() < 4 {
        return Err(other("it is too short"));
    }
    file.read_at(0, &mut head)?;
    match &head {
        b"PAR1" => (),
        b"PARE" => return Err(SourceError::Encrypted { file: file.name().clone() }),
        _ => return Err(other("it does not begin with PAR1; say --input-format if it is of another one")),
    }
    let cut =
        |what: &str| SourceError::Damaged { file: file.name().clone(), place: Place::Footer, what: what.to_owned() };
    let Some(end) = file.len().checked_sub(TAIL).filter(|end| *end >= 4) else {
        return Err(cut("the file ends before it, as one does that was not written to its end"));
    };
    let mut tail = [0; TAIL as usize];
    file.read_at(end, &mut tail)?;
    match &tail[4..] {
        b"PAR1" => (),
        b"PARE" => return Err(SourceError::Encrypted { file: file.name().clone() }),
        _ => return Err(cut("the file does not end with PAR1, so it was not written or copied to its end")),
    }
    let bytes = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    end.checked_sub(bytes)
        .filter(|begin| *begin >= 4)
        .ok_or_else(|| cut(&format!("it says that it has {bytes} bytes, more than the file")))
}

/// What a walk over a footer has seen.
#[derive(Debug, Default)]
struct Seen {
    structs: u64,
    encrypted: bool,
}

fn look_over(footer: &[u8]) -> Result<Seen, Wrong> {
    let mut cursor = Cursor::new(footer);
    let mut seen = Seen::default();
    let mut last = 0;
    while let Some((number, kind)) = cursor.field(last)? {
        match (number, kind) {
            (2, ThriftType::List) => schema(&mut cursor, &mut seen)?,
            (8, ThriftType::Struct) => {
                seen.encrypted = true;
                cursor.skip(kind, DEPTH_MAX, &mut seen.structs)?;
            }
            _ => cursor.skip(kind, DEPTH_MAX, &mut seen.structs)?,
        }
        last = number;
    }
    Ok(seen)
}

/// Walks over the elements of the schema, each of which is before its children.
fn schema(cursor: &mut Cursor<'_>, seen: &mut Seen) -> Result<(), Wrong> {
    let (count, kind) = cursor.list()?;
    if count > 0 && kind != ThriftType::Struct {
        return Err(Wrong::Malformed("a schema that is no list of columns"));
    }
    // How many children are still to come at each level.
    let mut open: Vec<usize> = Vec::with_capacity(SCHEMA_DEPTH_MAX);
    for element in 0..count {
        seen.structs += 1;
        let children = children(cursor, seen)?;
        if children > count - element {
            return Err(Wrong::Malformed("a column with more children than there are columns"));
        }
        if let Some(siblings) = open.last_mut() {
            *siblings -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        if open.len() > SCHEMA_DEPTH_MAX {
            return Err(Wrong::Malformed("columns more than 64 deep in each other"));
        }
    }
    Ok(())
}

/// How many children an element of the schema says that it has.
fn children(cursor: &mut Cursor<'_>, seen: &mut Seen) -> Result<usize, Wrong> {
    let (mut children, mut last) = (0, 0);
    while let Some((number, kind)) = cursor.field(last)? {
        match (number, kind) {
            (5, ThriftType::I32) => {
                children = usize::try_from(cursor.int()?)
                    .map_err(|_| Wrong::Malformed("a column with fewer than no children"))?;
            }
            _ => cursor.skip(kind, DEPTH_MAX, &mut seen.structs)?,
        }
        last = number;
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer of a schema with elements that say they have so many children.
    fn footer_of(children: &[u8]) -> Vec<u8> {
        // Field 2, a list of more than 14 structs.
        let mut footer = vec![0x29, 0xfc, children.len() as u8];
        for count in children {
            // Field 5, an i32 as zigzag, and the end of the struct.
            footer.extend([0x55, count << 1, 0]);
        }
        footer.push(0);
        footer
    }

    #[test]
    fn a_schema_has_no_more_children_than_columns_and_is_not_too_deep() {
        assert_eq!(look_over(&footer_of(&[2, 0, 1, 0])).unwrap().structs, 4);
        assert_eq!(
            look_over(&footer_of(&[63, 0])).unwrap_err(),
            Wrong::Malformed("a column with more children than there are columns")
        );
        // Each column is the only child of the one before.
        let mut chain = vec![1; 64];
        chain.push(0);
        look_over(&footer_of(&chain)).unwrap();
        chain.insert(0, 1);
        assert_eq!(
            look_over(&footer_of(&chain)).unwrap_err(),
            Wrong::Malformed("columns more than 64 deep in each other")
        );
    }

    #[test]
    fn a_list_of_row_groups_is_no_longer_than_the_footer() {
        // Field 4, a list of 2^31 - 1 structs.
        let footer = [0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0];
        assert_eq!(look_over(&footer).unwrap_err(), Wrong::Short);
    }
}
