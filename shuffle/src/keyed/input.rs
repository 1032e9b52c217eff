//! A piece of a file as a map sees it: a stream through a window of fixed size.
//!
//! Reads go through the page cache: the system reads ahead while the map computes, and nothing is read twice soon.

use std::path::Path;
use std::sync::Arc;

use exobus_actors::registry::TaskError;
use exobus_files::{Access, FileError, Location, ReadFile};
use serde::{Deserialize, Serialize};

use crate::files::{InputFile, SIGNATURE_BYTES, refuse_compressed};

/// Where a row begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Byte offset in the file.
    pub offset: u64,
    /// Lines of the file before it; 0 where files are not cut by marks.
    pub lines: u64,
}

/// A range of a file, for one map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The file.
    pub file: InputFile,
    /// Where the piece begins.
    pub start: Mark,
    /// Byte offset where it ends.
    pub end: u64,
    /// Bytes of all files before this one.
    pub before_bytes: u64,
}

impl Piece {
    /// The whole file.
    pub fn whole(file: InputFile, before_bytes: u64) -> Self {
        let end = file.bytes;
        Self { file, start: Mark { offset: 0, lines: 0 }, end, before_bytes }
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.end - self.start.offset
    }
}

/// See the module.
#[derive(Debug)]
pub struct Input<'a> {
    piece: &'a Piece,
    source: Arc<dyn ReadFile>,
    window: &'a mut [u8],
    /// Taken once by a map that needs room for what it decodes.
    spare: &'a mut [u8],
    /// What of the window has been read and not consumed.
    from: usize,
    to: usize,
    /// Byte offset in the file of `to`.
    at: u64,
}

impl<'a> Input<'a> {
    /// Opens the file of `piece`. `window` bounds how long a row may be; `spare` is for the map.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(piece: &'a Piece, window: &'a mut [u8], spare: &'a mut [u8]) -> Result<Self, FileError> {
        let path = &piece.file.path;
        let source = Location::from(path).open(Access::Cached)?;
        Ok(Self { piece, source, window, spare, from: 0, to: 0, at: piece.start.offset })
    }

    /// The piece.
    pub fn piece(&self) -> &'a Piece {
        self.piece
    }

    /// The file.
    pub fn path(&self) -> &'a Path {
        &self.piece.file.path
    }

    /// Byte offset in the file of the first byte that is not consumed.
    pub fn offset(&self) -> u64 {
        self.at - (self.to - self.from) as u64
    }

    /// What has been read and not consumed; empty at first.
    pub fn present(&self) -> &[u8] {
        &self.window[self.from..self.to]
    }

    /// What is [present](Self::present), and the memory for the map.
    pub fn present_and_spare(&mut self) -> (&[u8], &mut [u8]) {
        (&self.window[self.from..self.to], self.spare)
    }

    /// Text has no meaning while it is compressed: such a file is refused where it begins. To be called before anything is
    /// consumed; of pieces further behind it asks nothing.
    ///
    /// # Errors
    /// The file is compressed; those of [`more`](Self::more).
    pub fn refuse_compressed(&mut self) -> Result<(), TaskError> {
        if self.offset() == 0 {
            while self.present().len() < SIGNATURE_BYTES && self.more(self.piece.end)? {}
            refuse_compressed(self.path(), self.present())?;
        }
        Ok(())
    }

    /// The first `bytes` of what is present are done with.
    ///
    /// # Panics
    /// There are fewer.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.to - self.from, "{bytes} of {} bytes are consumed", self.to - self.from);
        self.from += bytes;
    }

    /// Goes back to the `bytes` before the piece; before anything has been read only.
    pub(super) fn back(&mut self, bytes: u64) {
        self.at -= bytes;
    }

    /// Reads on behind what is present, up to `end`. False when nothing is left before it.
    ///
    /// # Errors
    /// The window is full: a row is too long. What the system says; a file that has become shorter.
    pub fn more(&mut self, end: u64) -> Result<bool, TaskError> {
        if self.at >= end {
            return Ok(false);
        }
        if self.from > 0 {
            self.window.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        let room = ((self.window.len() - self.to) as u64).min(end - self.at) as usize;
        if room == 0 {
            return Err(self.too_long());
        }
        // As much as comes at once: the system reads ahead meanwhile.
        match self.source.read_at(self.at, &mut self.window[self.to..self.to + room], 1) {
            Ok(read) => {
                (self.to, self.at) = (self.to + read, self.at + read as u64);
                Ok(true)
            }
            Err(FileError::EndedEarly { path, offset, .. }) => {
                Err(FileError::EndedEarly { path, offset, expected: end }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The error of a row that begins here and does not fit.
    pub fn too_long(&self) -> TaskError {
        TaskError::fatal(format!(
            "{} at offset {}: a row of more than {} bytes; give the nodes more memory",
            self.path().display(),
            self.offset(),
            self.window.len()
        ))
    }

    /// The next record of `bytes` bytes; `None` at the end of the piece.
    ///
    /// # Errors
    /// Those of [`more`](Self::more).
    pub fn next_record(&mut self, bytes: usize) -> Result<Option<&[u8]>, TaskError> {
        while self.present().len() < bytes {
            if !self.more(self.piece.end)? {
                return Ok(None);
            }
        }
        self.from += bytes;
        Ok(Some(&self.window[self.from - bytes..self.from]))
    }

    /// The next token: bytes of which none is a separator, as many as there are in a row. Tokens that begin inside the
    /// piece belong to it, wherever they end. `None` when there is no other.
    ///
    /// # Errors
    /// Those of [`more`](Self::more); a token is one row.
    pub fn next_token(&mut self, is_separator: fn(u8) -> bool) -> Result<Option<&[u8]>, TaskError> {
        let first = self.piece.start.offset;
        if first > 0 && self.at == first && self.to == 0 {
            // Whether a token goes across the border is seen from the byte before it.
            self.back(1);
            self.skip(|byte| !is_separator(byte), self.piece.file.bytes)?;
        }
        self.skip(is_separator, self.piece.end)?;
        if self.offset() >= self.piece.end {
            return Ok(None);
        }
        let mut length = 0;
        loop {
            let rest = &self.present()[length..];
            if let Some(found) = rest.iter().position(|byte| is_separator(*byte)) {
                length += found;
                break;
            }
            length += rest.len();
            if !self.more(self.piece.file.bytes)? {
                break;
            }
        }
        self.from += length;
        Ok(Some(&self.window[self.from - length..self.from]))
    }

    /// Consumes bytes as long as `skipped` says so, up to `end`.
    fn skip(&mut self, skipped: impl Fn(u8) -> bool, end: u64) -> Result<(), TaskError> {
        loop {
            match self.present().iter().position(|byte| !skipped(*byte)) {
                Some(found) => {
                    self.from += found;
                    return Ok(());
                }
                None => self.from = self.to,
            }
            if !self.more(end)? {
                return Ok(());
            }
        }
    }
}

/// Where a line is, and what is to be said of it.
pub(crate) fn at_line(path: &Path, line: u64, text: impl std::fmt::Display) -> String {
    format!("{}:{line}: {text}", path.display())
}
