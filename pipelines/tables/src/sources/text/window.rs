//! The bytes of a piece of text that are looked at: read ahead, passed over, and counted by lines.

use std::sync::Arc;

use memchr::memchr_iter;

use super::super::memory::{MemoryBudget, Reservation};
use super::super::{InputFile, Place, SourceError, Split};
use super::BYTE_ORDER_MARK;
use super::bytes::{Packing, TextBytes};

/// Bytes that are read of a file at a time.
pub(in crate::sources) const READ_BYTES: usize = 1 << 20;
/// Bytes that are read behind a piece, for the row that begins in it and ends there: more, where that is not all of it.
const BEHIND_BYTES: usize = 16 << 10;

/// Where a piece of text begins and ends in its file: rows that begin in it are its own. A packed file is one piece, whose end is not known.
#[derive(Clone, Copy, Debug)]
pub(in crate::sources) struct Piece {
    pub(in crate::sources) packing: Packing,
    pub(in crate::sources) begin: u64,
    pub(in crate::sources) end: Option<u64>,
    is_first: bool,
}

impl Piece {
    /// That of a split of so many bytes of a file; of a packed file all of it. Without the mark before the text.
    pub(in crate::sources) fn of_split(
        file: &InputFile,
        packing: Packing,
        split: usize,
        split_bytes: u64,
    ) -> Result<Self, SourceError> {
        if packing != Packing::None {
            return Ok(Self { packing, begin: 0, end: None, is_first: true });
        }
        let begin = split as u64 * split_bytes;
        let end = begin + (file.len() - begin).min(split_bytes);
        let mut head = [0; 3];
        if split == 0 {
            let known = (file.len() as usize).min(head.len());
            file.read_at(0, &mut head[..known])?;
        }
        let begin = if head == BYTE_ORDER_MARK { 3 } else { begin };
        Ok(Self { packing, begin, end: Some(end.max(begin)), is_first: split == 0 })
    }

    /// The splits of a file: every so many bytes of it, at most as many in the last one; one where it is packed or empty.
    pub(in crate::sources) fn splits(file: &InputFile, packing: Packing, split_bytes: u64) -> Vec<Split> {
        let len = file.len();
        if packing != Packing::None {
            return vec![Split { index: 0, bytes: len, rows: None }];
        }
        let bytes = |index: usize| (len - index as u64 * split_bytes).min(split_bytes);
        let count = len.div_ceil(split_bytes).max(1) as usize;
        (0..count).map(|index| Split { index, bytes: bytes(index), rows: None }).collect()
    }

    /// Whether it is the first one of its file.
    pub(in crate::sources) fn is_first(&self) -> bool {
        self.is_first
    }

    /// Whether what is at that byte of the text is behind it.
    pub(in crate::sources) fn ends_before(&self, at: u64) -> bool {
        self.end.is_some_and(|end| at >= end)
    }
}

/// Bytes of a piece, and as many behind it as its last row has.
pub(in crate::sources) struct Window {
    file: InputFile,
    piece: Piece,
    bytes: TextBytes,
    /// Bytes that were read: those behind `used` are looked at next, and the first of them is byte `at` of the text.
    window: Vec<u8>,
    used: usize,
    at: u64,
    memory: Reservation,
    is_read: bool,
    /// Line ends from the beginning of the piece to `at`.
    lines: u64,
    read_to: u64,
}

impl Window {
    /// At the beginning of a piece.
    pub(in crate::sources) fn new(
        file: &InputFile,
        piece: Piece,
        budget: &Arc<dyn MemoryBudget>,
    ) -> Result<Self, SourceError> {
        Ok(Self {
            file: file.clone(),
            piece,
            bytes: TextBytes::new(file, piece.packing, piece.begin, budget)?,
            window: Vec::new(),
            used: 0,
            at: piece.begin,
            memory: Reservation::none(budget),
            is_read: false,
            lines: 0,
            read_to: piece.begin,
        })
    }

    /// The file.
    pub(in crate::sources) fn file(&self) -> &InputFile {
        &self.file
    }

    /// The piece.
    pub(in crate::sources) fn piece(&self) -> &Piece {
        &self.piece
    }

    /// What was read and not passed over.
    pub(in crate::sources) fn ahead(&self) -> &[u8] {
        &self.window[self.used..]
    }

    /// Where that begins in the text.
    pub(in crate::sources) fn at(&self) -> u64 {
        self.at
    }

    /// Line ends between the beginning of the piece and there.
    pub(in crate::sources) fn lines(&self) -> u64 {
        self.lines
    }

    /// Whether the text ends with what was read.
    pub(in crate::sources) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Passes over the mark before the text.
    ///
    /// # Errors
    /// It is the one of UTF-16; those of reading.
    pub(in crate::sources) fn pass_mark(&mut self) -> Result<(), SourceError> {
        if self.window.is_empty() {
            self.fill(READ_BYTES)?;
        }
        let head = self.ahead();
        if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
            let what = "it is UTF-16; write it as UTF-8, by iconv for one".to_owned();
            return Err(SourceError::OtherFormat { file: self.file.name().clone(), format: "text", what });
        }
        if self.piece.packing != Packing::None && head.starts_with(&BYTE_ORDER_MARK) {
            self.advance(BYTE_ORDER_MARK.len());
        }
        Ok(())
    }

    /// Passes over bytes that were read.
    pub(in crate::sources) fn advance(&mut self, len: usize) {
        let passed = &self.window[self.used..self.used + len];
        self.lines += memchr_iter(b'\n', passed).count() as u64;
        self.used += len;
        self.at += len as u64;
    }

    /// As [`advance`](Self::advance), and gives the bytes that were passed over.
    pub(in crate::sources) fn take(&mut self, len: usize) -> &[u8] {
        self.advance(len);
        &self.window[self.used - len..self.used]
    }

    /// How many bytes of the piece were not read; of a packed file nobody knows.
    pub(in crate::sources) fn left_of_piece(&self) -> usize {
        let left = self.piece.end.map_or(u64::MAX, |end| end.saturating_sub(self.read_to));
        usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Reads more behind what is there, and gives what of that is the piece's own; `None`: there was no more. No more than that are read, and no more behind the piece than a row may need: as many bytes as are there of it
    /// by now, at least.
    pub(in crate::sources) fn fill(&mut self, bytes: usize) -> Result<Option<&[u8]>, SourceError> {
        if self.is_read {
            return Ok(None);
        }
        self.window.drain(..self.used);
        self.used = 0;
        let has = self.window.len();
        let left = match self.piece.packing {
            Packing::None => self.file.len().saturating_sub(self.read_to),
            _ => u64::MAX,
        };
        let of_piece = self.left_of_piece();
        let bytes = left.min(bytes.min(of_piece.saturating_add(BEHIND_BYTES.max(has))) as u64) as usize;
        let denied = |denied| SourceError::Memory {
            file: self.file.name().clone(),
            place: Place::Byte(self.at),
            what: "a piece of the file",
            denied,
        };
        // While it grows, the old one is there, too.
        self.memory.at_least(2 * (has + bytes) as u64).map_err(denied)?;
        self.window.reserve_exact(bytes);
        self.window.resize(has + bytes, 0);
        let count = self.bytes.read(&mut self.window[has..])?;
        self.window.truncate(has + count);
        self.is_read = count == 0;
        let of_piece = count.min(of_piece);
        self.read_to += count as u64;
        Ok((count > 0).then(|| &self.window[has..has + of_piece]))
    }

    /// Whether all of the piece was read.
    pub(in crate::sources) fn has_piece(&self) -> bool {
        self.is_read || self.piece.ends_before(self.read_to)
    }

    /// The line, from 1, that has so many line ends between the beginning of the piece and it: those before the piece are counted now.
    pub(in crate::sources) fn line(&self, lines: u64) -> Result<u64, SourceError> {
        let (mut at, mut before) = (0, 0);
        let mut bytes = vec![0; 64 << 10];
        while at < self.piece.begin {
            let count = (self.piece.begin - at).min(bytes.len() as u64) as usize;
            self.file.read_at(at, &mut bytes[..count])?;
            before += bytes[..count].iter().filter(|byte| **byte == b'\n').count() as u64;
            at += count as u64;
        }
        Ok(before + lines + 1)
    }
}
