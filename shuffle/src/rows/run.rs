//! Sorted runs of rows: where they lie in memory, or as a stream through a window.

use std::io;
use std::ops::DerefMut;

use super::{ROW_HEADER_BYTES, Row, RowError, RowsError, lengths};

/// Rows one after the other.
///
/// Implementers owe: there is no row before the first [`advance`](Self::advance) and behind the last row; between two calls
/// the row stays what it is.
pub trait RowRun {
    /// The present row.
    fn row(&self) -> Option<Row<'_>>;

    /// Goes to the next row; false when there is none, and from then on.
    ///
    /// # Errors
    /// Bytes that are no rows; whatever reading fails with.
    fn advance(&mut self) -> Result<bool, RowsError>;
}

/// A run that lies in memory.
#[derive(Clone, Debug)]
pub struct SliceRows<'a> {
    bytes: &'a [u8],
    /// Where the next row begins.
    offset: usize,
    row: Option<Row<'a>>,
}

impl<'a> SliceRows<'a> {
    /// The rows of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, row: None }
    }
}

impl RowRun for SliceRows<'_> {
    #[inline]
    fn row(&self) -> Option<Row<'_>> {
        self.row
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, RowsError> {
        let rest = &self.bytes[self.offset..];
        self.row = match rest.is_empty() {
            true => None,
            false => Some(Row::first_of(rest, self.offset)?),
        };
        self.offset += self.row.map_or(0, |row| row.bytes().len());
        Ok(self.row.is_some())
    }
}

/// A run that is read from a stream through memory of the caller's. A row that is larger than that memory is on the heap
/// while it is the present one.
#[derive(Debug)]
pub struct ReadRows<R, B> {
    reader: R,
    window: B,
    /// What of the window has been read; it begins with the present row.
    from: usize,
    to: usize,
    /// Bytes and end of the key of the present row; (0, 0) when there is none.
    row: (usize, usize),
    /// The present row where it does not fit into the window.
    large: Vec<u8>,
    /// Where the present row begins in the run.
    offset: usize,
}

impl<R: io::Read, B: DerefMut<Target = [u8]>> ReadRows<R, B> {
    /// The rows of `reader`, to its end.
    ///
    /// # Panics
    /// When `window` does not hold the header of a row.
    pub fn new(reader: R, window: B) -> Self {
        assert!(window.len() >= ROW_HEADER_BYTES, "a window of {} bytes holds no row", window.len());
        Self { reader, window, from: 0, to: 0, row: (0, 0), large: Vec::new(), offset: 0 }
    }

    /// Reads until there are `bytes` bytes, at most as many as the window has; how many there are.
    fn fill(&mut self, bytes: usize) -> io::Result<usize> {
        if self.from + bytes > self.window.len() {
            self.window.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        while self.to - self.from < bytes {
            match self.reader.read(&mut self.window[self.to..]) {
                Ok(0) => break,
                Ok(read) => self.to += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.to - self.from)
    }

    /// Goes behind the present row.
    fn leave(&mut self) {
        self.offset += self.row.0;
        if self.large.is_empty() {
            self.from += self.row.0;
        }
        self.large = Vec::new();
        self.row = (0, 0);
    }

    /// Reads a row of `bytes` bytes, of which the window holds the beginning.
    fn read_large(&mut self, bytes: usize) -> io::Result<usize> {
        let mut large = Vec::with_capacity(bytes);
        large.extend_from_slice(&self.window[self.from..self.to]);
        let rest = (bytes - large.len()) as u64;
        io::Read::read_to_end(&mut io::Read::take(&mut self.reader, rest), &mut large)?;
        (self.from, self.to) = (0, 0);
        self.large = large;
        Ok(self.large.len())
    }
}

impl<R: io::Read, B: DerefMut<Target = [u8]>> RowRun for ReadRows<R, B> {
    #[inline]
    fn row(&self) -> Option<Row<'_>> {
        let (bytes, key_end) = self.row;
        let row = if self.large.is_empty() { &self.window[self.from..self.from + bytes] } else { &self.large };
        (bytes > 0).then_some(Row { bytes: row, key_end })
    }

    fn advance(&mut self) -> Result<bool, RowsError> {
        self.leave();
        let offset = self.offset;
        let torn = |needed: usize, left| RowsError::Torn(RowError { offset, needed: needed as u64, left });
        let there = match self.to - self.from {
            there @ ROW_HEADER_BYTES.. => there,
            _ => self.fill(ROW_HEADER_BYTES)?,
        };
        let Some(header) = self.window[self.from..self.to].first_chunk() else {
            return if there == 0 { Ok(false) } else { Err(torn(ROW_HEADER_BYTES, there)) };
        };
        let (key, value) = lengths(header);
        let needed = ROW_HEADER_BYTES + key as usize + value as usize;
        let there = match needed {
            _ if needed <= there => needed,
            _ if needed <= self.window.len() => self.fill(needed)?,
            _ => self.read_large(needed)?,
        };
        if there < needed {
            return Err(torn(needed, there));
        }
        self.row = (needed, ROW_HEADER_BYTES + key as usize);
        Ok(true)
    }
}
