//! How rows lie in a part of an object.
//!
//! A part is a row of record batch messages of [Arrow's IPC format](https://arrow.apache.org/docs/format/Columnar.html), each as the format
//! encapsulates it: marker, length of the header, header, body. Their schema stands once beside them, not in each part: [`Layout`]. So
//! any reader of Arrow reads a part that has the schema's message before it.
//!
//! Promises, which [`read`](Part) relies on:
//! - Messages and buffers begin at multiples of [`ALIGNMENT`] bytes of the part; where parts do of their object
//!   ([`Align::SixtyFour`](exobus_store::Align)), arrays are read where they lie.
//! - The header of each message says of which version and schema it is, as metadata of the message that readers of Arrow pass over.
//! - No dictionaries, run ends, views or compression inside. No unions.
//! - At most [`ROWS_MAX`] rows and [`BYTES_MAX`] bytes in a message; a row that is larger is alone in its message, one that is larger than who writes
//!   allows is refused.
//! - What is under nulls, behind the end of bitmaps and between buffers is zero: bytes follow from rows alone.
//!
//! [`Gather`] takes rows from batches, in any order, and writes them straight into memory that it is given; [`Part`] reads them without a copy.
//! [`write_part`] does the former with a writer of the store.
//!
//! # Cost
//! A message has 16 bytes for each array and 16 for each buffer in its header, and buffers lose 32 bytes each on average: 1000 columns of text take some 150 kB
//! before the first value. Parts should have several times that.

mod column;
mod fill;
mod gather;
mod hash;
mod layout;
mod measure;
mod part;
mod picks;
mod read;
mod streamed;

pub use gather::{Gather, Limits, Message};
pub use layout::Layout;
pub(crate) use part::{Source, write_messages};
pub use part::{write_part, write_part_with_more};
pub use picks::Pick;
pub(crate) use read::Messages;
pub use read::Part;
pub(crate) use streamed::Streamed;

/// Where messages and their buffers begin: at multiples of so many bytes of the part.
pub const ALIGNMENT: usize = 64;
/// Most rows of a message.
pub const ROWS_MAX: usize = 64 << 10;
/// Most bytes of a message that has more than one row.
pub const BYTES_MAX: u64 = 8 << 20;

/// The next multiple of [`ALIGNMENT`].
fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT as u64)
}

#[cfg(test)]
mod tests;
