//! The hash of a file's content, made of its blocks in any order, so that threads that write different places of a file make it
//! together, and several can check it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twox_hash::XxHash3_128;

use crate::{Access, FileError, Location};

/// Bytes that are hashed together: a multiple of [`ALIGNMENT`](crate::ALIGNMENT), and of the 100 bytes of a record.
pub const BLOCK_BYTES: usize = 102_400;

/// The wrapping sum over the blocks of [`BLOCK_BYTES`] bytes, the last one shorter, of the XXH3-128 of each with its number as
/// seed. Written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentHash(pub u128);

impl ContentHash {
    /// Of `bytes` that stand in a file from block `first` on.
    pub fn of_blocks(first: u64, bytes: &[u8]) -> Self {
        let blocks = (first..).zip(bytes.chunks(BLOCK_BYTES));
        Self(blocks.fold(0, |sum, (block, bytes)| sum.wrapping_add(XxHash3_128::oneshot_with_seed(block, bytes))))
    }

    /// Of a whole file.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_file(file: impl Into<Location>) -> Result<Self, FileError> {
        let file = file.into().open(Access::Cached)?;
        let bytes = file.status()?.bytes;
        let (mut hashing, mut buffer, mut at) = (Hashing::default(), vec![0; BLOCK_BYTES], 0);
        while at < bytes {
            let read = file.read_at(at, &mut buffer, (bytes - at).min(BLOCK_BYTES as u64) as usize)?;
            hashing.write(&buffer[..read]);
            at += read as u64;
        }
        Ok(hashing.finish())
    }
}

impl std::ops::AddAssign for ContentHash {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        u128::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

/// A [`ContentHash`] of what comes front to back, in pieces of any length.
#[derive(Clone, Default)]
pub(crate) struct Hashing {
    sum: ContentHash,
    /// The block that is not full yet: its number, its hash so far, and how many bytes are in it.
    block: u64,
    open: Option<XxHash3_128>,
    filled: usize,
}

impl Hashing {
    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.filled));
            if now.len() == BLOCK_BYTES {
                self.sum += ContentHash::of_blocks(self.block, now);
                self.block += 1;
            } else {
                let block = self.block;
                self.open.get_or_insert_with(|| XxHash3_128::with_seed(block)).write(now);
                self.filled += now.len();
                if self.filled == BLOCK_BYTES {
                    self.end_block();
                }
            }
            bytes = later;
        }
    }

    fn end_block(&mut self) {
        if let Some(open) = self.open.take() {
            self.sum += ContentHash(open.finish_128());
            (self.block, self.filled) = (self.block + 1, 0);
        }
    }

    pub(crate) fn finish(mut self) -> ContentHash {
        self.end_block();
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_hash_of_a_file_does_not_depend_on_the_pieces_in_which_it_comes(
            pieces in proptest::collection::vec(0usize..250_000, 0..8),
        ) {
            let bytes: Vec<u8> = (0..pieces.iter().sum::<usize>()).map(|at| (at % 251) as u8).collect();
            let (mut hashing, mut rest) = (Hashing::default(), &bytes[..]);
            for piece in pieces {
                let (now, later) = rest.split_at(piece);
                hashing.write(now);
                rest = later;
            }
            let whole = hashing.finish();
            prop_assert_eq!(whole, ContentHash::of_blocks(0, &bytes));
            let mut backwards = ContentHash::default();
            for (block, bytes) in (0..).zip(bytes.chunks(BLOCK_BYTES)).collect::<Vec<_>>().into_iter().rev() {
                backwards += ContentHash::of_blocks(block, bytes);
            }
            prop_assert_eq!(backwards, whole);
        }
    }

    #[test]
    fn a_changed_a_moved_and_a_missing_byte_show() {
        let bytes: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
        let whole = ContentHash::of_blocks(0, &bytes);
        let mut changed = bytes.clone();
        changed[200_000] ^= 1;
        let mut swapped = bytes.clone();
        swapped.rotate_left(BLOCK_BYTES);
        for other in [&changed[..], &swapped, &bytes[..299_999]] {
            assert_ne!(ContentHash::of_blocks(0, other), whole);
        }
        // Kept in manifests: it must never change.
        assert_eq!(whole.to_string(), "cccdb914fce1589af50fdee8bc4e16f9");
    }
}
