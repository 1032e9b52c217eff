//! Memory for a task's own use, counted like everything else.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use crate::hold::OwnedSpan;

/// Zero or more bytes of the region, beginning at a page; content unspecified at first. Given back when dropped.
///
/// The law is: no large memory without asking. What a task sorts, hashes or decompresses in comes from here
/// ([`Store::scratch`](crate::Store::scratch)).
pub struct Scratch {
    span: Option<OwnedSpan>,
    bytes: usize,
}

impl Scratch {
    pub(crate) fn new(span: Option<OwnedSpan>, bytes: usize) -> Scratch {
        Scratch { span, bytes }
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.span.as_ref().map_or(&[], |span| &span.bytes()[..self.bytes])
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.span.as_mut().map_or(&mut [], |span| &mut span.bytes_mut()[..self.bytes])
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scratch({} bytes)", self.bytes)
    }
}
