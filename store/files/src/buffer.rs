//! Memory for direct I/O where no store lends any: the command line's own tools and tests.

use std::ops::{Deref, DerefMut};

use crate::ALIGNMENT;

/// Zeroed memory of its own whose address is a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub struct AlignedBuffer {
    /// Longer than asked for by one alignment; never grown, so it stays where it is.
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    /// `len` bytes.
    pub fn new(len: usize) -> AlignedBuffer {
        let memory = vec![0; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        AlignedBuffer { memory, start, len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked() {
        for len in [0, 1, 4096, 100_001] {
            let mut buffer = AlignedBuffer::new(len);
            assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!(buffer.len(), len);
            buffer.fill(7);
        }
    }
}
