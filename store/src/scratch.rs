//! Memory for a task's own use, counted like everything else.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use crate::{hold::OwnedSpan, lent::LentSpan};

/// Zero or more bytes of the region, beginning at a page; content unspecified at first. Given back when dropped.
///
/// The law is: no large memory without asking. What a task sorts, hashes or decompresses in comes from here
/// ([`Store::scratch`](crate::Store::scratch)).
pub struct Scratch {
    memory: Memory,
    bytes: usize,
}

enum Memory {
    None,
    Own(OwnedSpan),
    Lent(LentSpan),
}

impl Scratch {
    pub(crate) fn new(span: Option<OwnedSpan>, bytes: usize) -> Scratch {
        Scratch { memory: span.map_or(Memory::None, Memory::Own), bytes }
    }

    /// The bytes of this process's store alone; `None`: there are none.
    pub(crate) fn into_span(self) -> Option<OwnedSpan> {
        match self.memory {
            Memory::Own(span) => Some(span),
            Memory::None | Memory::Lent(_) => None,
        }
    }

    /// Memory that another process has lent.
    pub(crate) fn lent(span: Option<LentSpan>) -> Scratch {
        let bytes = span.as_ref().map_or(0, |span| span.bytes().len());
        Scratch { memory: span.map_or(Memory::None, Memory::Lent), bytes }
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::None => &[],
            Memory::Own(span) => &span.bytes()[..self.bytes],
            Memory::Lent(span) => span.bytes(),
        }
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::None => &mut [],
            Memory::Own(span) => &mut span.bytes_mut()[..self.bytes],
            Memory::Lent(span) => span.bytes_mut(),
        }
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scratch({} bytes)", self.bytes)
    }
}
