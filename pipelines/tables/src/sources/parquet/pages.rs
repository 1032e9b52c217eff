//! Pages of one column of a row group, read one at a time, each asked for before it is inflated.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::IntervalUnit;
use bytes::Bytes;
use exobus_files::{ALIGNMENT, AlignedBuffer};
use parquet::basic::{Compression, Encoding, Type as PhysicalType};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::schema::types::ColumnDescPtr;

use super::super::memory::{MemoryBudget, Reservation};
use super::super::{InputFile, Place, SourceError};
use super::offset_index::WantedPages;
use super::page_header::{PageHeader, PageKind};
use super::thrift::Wrong;
use super::{delta, inflate, intervals};
use crate::ELEMENTS_MAX;

/// Most bytes of the header of a page, which may have the smallest and largest value in it.
const HEADER_MAX: u64 = 16 << 20;
/// Most bytes of a decimal in a dictionary.
const DECIMAL_BYTES_MAX: u32 = 32;

/// Where the pages of a column lie, and what its decoder makes of them.
pub(super) struct ColumnChunk {
    pub(super) file: InputFile,
    pub(super) group: usize,
    /// Path of names, with dots.
    pub(super) column: Arc<str>,
    pub(super) descriptor: ColumnDescPtr,
    pub(super) codec: Compression,
    /// Bytes of the file, half open.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Values, nulls too, that the footer says there are.
    pub(super) values: u64,
    /// Rows of the row group.
    pub(super) rows: u64,
    /// Of which intervals it is, if it is of such.
    pub(super) intervals: Option<IntervalUnit>,
    /// Where its pages are, of a column that has a value a row, where only some rows are read.
    pub(super) wanted: Option<WantedPages>,
    /// Whether its decoder copies its values instead of pointing to them in the page.
    pub(super) copies: bool,
    pub(super) budget: Arc<dyn MemoryBudget>,
    pub(super) unpacked: Arc<Unpacking>,
}

/// Memory of what decoders make of pages, where rows alone do not tell how much it is: shared by who reads pages and who takes batches.
pub(super) struct Unpacking {
    memory: Mutex<(Reservation, u64)>,
    /// Whether a page had an encoding whose texts the library checks as one, so that each has to be looked at again.
    joined_texts: AtomicBool,
    /// Why reading pages failed: the library passes on texts only.
    failure: Mutex<Option<SourceError>>,
}

impl Unpacking {
    pub(super) fn new(budget: &Arc<dyn MemoryBudget>) -> Self {
        Self {
            memory: Mutex::new((Reservation::none(budget), 0)),
            joined_texts: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    fn page(&self, bytes: u64) -> Result<(), super::super::memory::MemoryDenied> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let all = memory.0.bytes() + bytes;
        memory.0.resize(all)?;
        memory.1 = bytes;
        Ok(())
    }

    /// A batch was taken: what is left is of the last page, whose values may come in the next one.
    pub(super) fn batch_taken(&self) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let last = memory.1.min(memory.0.bytes());
        // Smaller is never denied.
        let _ = memory.0.resize(last);
    }

    /// Keeps why reading failed, for who asks the library for rows.
    pub(super) fn fail(&self, error: SourceError) -> ParquetError {
        let text = error.to_string();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        ParquetError::General(text)
    }

    /// Why reading pages failed, if it did.
    pub(super) fn failure(&self) -> Option<SourceError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn has_joined_texts(&self) -> bool {
        self.joined_texts.load(Ordering::Relaxed)
    }
}

/// The bytes of a page, with the memory that they have for as long as arrays point to them.
struct GrantedPage {
    stored: Stored,
    _memory: Reservation,
}

impl AsRef<[u8]> for GrantedPage {
    fn as_ref(&self) -> &[u8] {
        self.stored.bytes()
    }
}

/// Bytes of a page.
enum Stored {
    Whole(Vec<u8>),
    /// This range of what was read.
    Within(AlignedBuffer, Range<usize>),
}

impl Stored {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Within(read, range) => &read[range.clone()],
        }
    }
}

/// Pages of so many bytes are read past the page cache, each with the header of the next one. Smaller ones are read some together.
const LARGE_PAGE: usize = 64 << 10;
/// Bytes that the header of a large page mostly has at most.
const HEADER_BYTES: u64 = 4 << 10;
/// What memory of a page has besides its bytes: where it begins and ends as direct I/O wants it.
const AROUND: u64 = 3 * ALIGNMENT as u64;

/// Reads the pages of a column: one behind the other, or, where it is known which are wanted and where they are, those alone, and the dictionary when one of them needs it.
pub(super) struct ColumnPages {
    chunk: ColumnChunk,
    /// What was read of the file, of which the first bytes are used, and the memory for it.
    window: Vec<u8>,
    used: usize,
    memory: Reservation,
    window_bytes: u64,
    /// How much is read where a header is looked for, and where that ends at most.
    header_bytes: u64,
    read_until: u64,
    /// Where the next header or page is.
    at: u64,
    next: Option<PageHeader>,
    /// The number of the next page of data, where it is known where they are.
    number: usize,
    /// Values of the pages so far.
    seen: u64,
    /// What the dictionary takes beside its page, where it was read.
    dictionary: Option<Reservation>,
}

impl ColumnPages {
    /// Reads small pages, and their headers, with so many bytes at a time.
    pub(super) fn new(chunk: ColumnChunk, window_bytes: u64) -> Self {
        let (memory, at) = (Reservation::none(&chunk.budget), chunk.begin);
        // Pages of a small chunk are small.
        let is_small = chunk.end - chunk.begin < LARGE_PAGE as u64;
        let header_bytes = if is_small { window_bytes } else { window_bytes.min(HEADER_BYTES) };
        Self {
            window: Vec::new(),
            used: 0,
            memory,
            window_bytes,
            header_bytes,
            read_until: chunk.end,
            at,
            next: None,
            number: 0,
            seen: 0,
            dictionary: None,
            chunk,
        }
    }

    fn place(&self) -> Place {
        Place::Page(self.chunk.group, self.chunk.column.clone(), self.at)
    }

    fn damaged(&self, what: impl Into<String>) -> SourceError {
        SourceError::Damaged { file: self.chunk.file.name().clone(), place: self.place(), what: what.into() }
    }

    fn reserve(&self, bytes: u64, what: &'static str) -> Result<Reservation, SourceError> {
        Reservation::of(&self.chunk.budget, bytes).map_err(|denied| self.denied(denied, what))
    }

    fn denied(&self, denied: super::super::memory::MemoryDenied, what: &'static str) -> SourceError {
        SourceError::Memory { file: self.chunk.file.name().clone(), place: self.place(), what, denied }
    }

    /// Reads so many bytes, or as many as there are, from `at` on.
    fn fill(&mut self, bytes: u64) -> Result<(), SourceError> {
        let bytes = bytes.min(self.read_until.saturating_sub(self.at));
        (self.window, self.used) = (Vec::new(), 0);
        if let Err(denied) = self.memory.resize(bytes) {
            return Err(self.denied(denied, "a piece of the file"));
        }
        self.window = vec![0; bytes as usize];
        self.chunk.file.read_at(self.at, &mut self.window)
    }

    /// Goes on by so many bytes, which are in the chunk.
    fn advance(&mut self, bytes: u64) {
        self.at += bytes;
        self.used = self.window.len().min(self.used.saturating_add(bytes as usize));
    }

    /// What was read and not used.
    fn ahead(&self) -> &[u8] {
        &self.window[self.used..]
    }

    /// Goes to where something begins that is read up to there, and whose first page has so many bytes.
    fn go_to(&mut self, begin: u64, read_until: u64, page_bytes: u64) {
        match begin.checked_sub(self.at) {
            Some(bytes) => self.advance(bytes),
            None => (self.at, self.window, self.used) = (begin, Vec::new(), 0),
        }
        self.read_until = read_until;
        let is_large = page_bytes >= LARGE_PAGE as u64;
        self.header_bytes = if is_large { self.window_bytes.min(HEADER_BYTES) } else { self.window_bytes };
    }

    /// Where it is known where pages are: goes to the next one of data and reads its header, or to the dictionary, where the page needs it and it was not read. Nothing happens behind the last one.
    fn go_to_wanted(&mut self) -> Result<(), SourceError> {
        let Some(wanted) = &self.chunk.wanted else { return Ok(()) };
        let Some(page) = wanted.page(self.number) else { return Ok(()) };
        let (rows, read_until, first) = (wanted.rows_of(self.number), wanted.read_until(self.number), wanted.begin());
        self.go_to(page.begin, read_until, page.bytes);
        let Some(header) = self.header()?.cloned() else { return Ok(()) };
        let (rows_of_page, encoding) = match header.kind {
            PageKind::Data { values, encoding, .. } => (values, encoding),
            PageKind::DataV2 { rows, encoding, .. } => (rows, encoding),
            _ => return Err(self.damaged("it is no page of data, as its index of pages says")),
        };
        if u64::from(rows_of_page) != rows || self.at + u64::from(header.stored_bytes) != page.begin + page.bytes {
            return Err(self.damaged(format!(
                "a page of {rows_of_page} rows ends at {}, where its index of pages says that one of {rows} ends at {}",
                self.at + u64::from(header.stored_bytes),
                page.begin + page.bytes
            )));
        }
        #[allow(deprecated, reason = "what old files call it")]
        let needs_dictionary = matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        if needs_dictionary && self.dictionary.is_none() && self.chunk.begin < first {
            self.next = None;
            self.go_to(self.chunk.begin, first, first - self.chunk.begin);
            let before = self.header()?;
            if !before.is_some_and(|header| matches!(header.kind, PageKind::Dictionary { .. })) {
                return Err(self.damaged("there is no dictionary before the first page of data"));
            }
        }
        Ok(())
    }

    /// The header of the next page; `None`: there is none.
    fn header(&mut self) -> Result<Option<&PageHeader>, SourceError> {
        while self.next.is_none() {
            if self.seen >= self.chunk.values {
                return Ok(None);
            }
            if self.at >= self.chunk.end {
                let (seen, values) = (self.seen, self.chunk.values);
                return Err(self.damaged(format!("its pages have {seen} values, where the footer says {values}")));
            }
            let (header, bytes) = self.read_header()?;
            self.advance(bytes);
            if u64::from(header.stored_bytes) > self.read_until.saturating_sub(self.at) {
                return Err(
                    self.damaged(format!("its header says {} bytes, more than the column has", header.stored_bytes))
                );
            }
            if let PageKind::DataV2 { values, rows, .. } = header.kind
                && values != rows
                && self.chunk.descriptor.max_rep_level() == 0
            {
                return Err(self.damaged(format!("it has {values} values in {rows} rows, where a row has one")));
            }
            match header.kind {
                // A decoder takes a page without values for the end.
                PageKind::Other | PageKind::Data { values: 0, .. } | PageKind::DataV2 { values: 0, .. } => {
                    self.advance(u64::from(header.stored_bytes));
                }
                _ => self.next = Some(header),
            }
        }
        Ok(self.next.as_ref())
    }

    fn read_header(&mut self) -> Result<(PageHeader, u64), SourceError> {
        let mut wanted = self.header_bytes;
        loop {
            match PageHeader::read(self.ahead()) {
                Ok((header, bytes)) => return Ok((header, bytes as u64)),
                Err(Wrong::Short) => {
                    let has = self.ahead().len() as u64;
                    if has >= HEADER_MAX || has >= self.read_until.saturating_sub(self.at) {
                        return Err(self.damaged(Wrong::Short.to_string()));
                    }
                    wanted = wanted.max(has * 2);
                    self.fill(wanted)?;
                }
                Err(wrong) => return Err(self.damaged(wrong.to_string())),
            }
        }
    }

    /// Takes the next bytes of the chunk, which are all in it.
    fn take(&mut self, count: usize) -> Result<Stored, SourceError> {
        if count >= LARGE_PAGE {
            return self.take_large(count);
        }
        self.header_bytes = self.window_bytes;
        let has = self.ahead().len().min(count);
        let mut bytes = vec![0; count];
        bytes[..has].copy_from_slice(&self.ahead()[..has]);
        if has < count {
            self.chunk.file.read_at(self.at + has as u64, &mut bytes[has..])?;
        }
        self.advance(count as u64);
        Ok(Stored::Whole(bytes))
    }

    /// As [`take`](Self::take); what is read behind them is the next window.
    fn take_large(&mut self, count: usize) -> Result<Stored, SourceError> {
        let end = self.at + count as u64;
        self.header_bytes = self.window_bytes.min(HEADER_BYTES);
        let ahead = self.header_bytes.min(self.read_until.saturating_sub(end));
        if let Err(denied) = self.memory.resize(ahead) {
            return Err(self.denied(denied, "a piece of the file"));
        }
        let (read, begin) = self.chunk.file.read_once(self.at..end + ahead)?;
        let range = begin..begin + count;
        self.window = read[range.end..range.end + ahead as usize].to_vec();
        (self.at, self.used) = (end, 0);
        Ok(Stored::Within(read, range))
    }

    /// Reads and inflates the page behind a header.
    fn body(&mut self, header: &PageHeader) -> Result<GrantedPage, SourceError> {
        let levels = match header.kind {
            PageKind::DataV2 { definition_bytes, repetition_bytes, .. } => {
                (definition_bytes + repetition_bytes) as usize
            }
            _ => 0,
        };
        let inflates = match header.kind {
            PageKind::DataV2 { inflates, .. } => inflates,
            _ => true,
        };
        let codec = if inflates { self.chunk.codec } else { Compression::UNCOMPRESSED };
        let is_large = header.stored_bytes as usize >= LARGE_PAGE;
        let around = if is_large { AROUND + HEADER_BYTES } else { 0 };
        let memory = self.reserve(u64::from(header.bytes) + around, "a page")?;
        if codec == Compression::UNCOMPRESSED {
            if header.bytes != header.stored_bytes {
                let (stored, said) = (header.stored_bytes, header.bytes);
                return Err(
                    self.damaged(format!("{stored} bytes that are not compressed, where its header says {said}"))
                );
            }
            let stored = self.stored(header)?;
            return Ok(GrantedPage { stored, _memory: memory });
        }
        let _stored_memory = self.reserve(u64::from(header.stored_bytes) + around, "a compressed page")?;
        let (packed, mut bytes) = (self.stored(header)?, vec![0; header.bytes as usize]);
        let (packed, page) = (packed.bytes(), &mut bytes[..]);
        page[..levels].copy_from_slice(&packed[..levels]);
        let (packed, page) = (&packed[levels..], &mut page[levels..]);
        if !(packed.is_empty() && page.is_empty()) {
            inflate::inflate(codec, packed, page).map_err(|what| self.damaged(what))?;
        }
        Ok(GrantedPage { stored: Stored::Whole(bytes), _memory: memory })
    }

    /// The bytes of a page as they are in the file.
    fn stored(&mut self, header: &PageHeader) -> Result<Stored, SourceError> {
        let stored = self.take(header.stored_bytes as usize)?;
        let Some(said) = header.crc else { return Ok(stored) };
        let crc = crc32fast::hash(stored.bytes());
        if said != crc {
            return Err(self.damaged(format!("its bytes have the CRC {crc:08x}, not {said:08x} as its header says")));
        }
        Ok(stored)
    }

    fn next_page(&mut self) -> Result<Option<Page>, SourceError> {
        if self.chunk.wanted.as_ref().is_some_and(|wanted| wanted.page(self.number).is_none()) {
            return Ok(None);
        }
        self.go_to_wanted()?;
        self.header()?;
        let Some(header) = self.next.take() else { return Ok(None) };
        let page = self.body(&header)?;
        match header.kind {
            PageKind::Dictionary { values, .. } => {
                self.check_intervals(Encoding::PLAIN, page.as_ref())?;
                self.check_dictionary(values, page.as_ref())?;
            }
            PageKind::Data { values, encoding, .. } => {
                let levels = self.levels_of(&header.kind, page.as_ref())?;
                self.check_values(values, encoding, &page.as_ref()[levels..])?;
            }
            PageKind::DataV2 { values, encoding, definition_bytes, repetition_bytes, .. } => {
                let levels = (definition_bytes + repetition_bytes) as usize;
                self.check_values(values, encoding, &page.as_ref()[levels..])?;
            }
            PageKind::Other => (),
        }
        Ok(Some(page_of(header.kind, Bytes::from_owner(page))))
    }

    fn check_intervals(&self, encoding: Encoding, values: &[u8]) -> Result<(), SourceError> {
        let Some(unit) = self.chunk.intervals else { return Ok(()) };
        intervals::check(unit, encoding, values).map_err(|what| SourceError::NotRead {
            file: self.chunk.file.name().clone(),
            place: self.place(),
            what: what.to_owned(),
        })
    }

    /// How many bytes of a page of the first version are levels.
    fn levels_of(&self, kind: &PageKind, page: &[u8]) -> Result<usize, SourceError> {
        let PageKind::Data { values, definitions, repetitions, .. } = kind else { return Ok(0) };
        let descriptor = &self.chunk.descriptor;
        let mut at = 0;
        for (level_max, encoding) in
            [(descriptor.max_rep_level(), repetitions), (descriptor.max_def_level(), definitions)]
        {
            if level_max == 0 {
                continue;
            }
            #[allow(deprecated, reason = "levels of old files are packed bits")]
            let bytes = match encoding {
                Encoding::RLE => {
                    let head = page.get(at..at + 4).ok_or_else(|| self.damaged("it ends within its levels"))?;
                    4 + u64::from(u32::from_le_bytes([head[0], head[1], head[2], head[3]]))
                }
                Encoding::BIT_PACKED => {
                    let bits = u64::from(u16::BITS - (level_max as u16).leading_zeros());
                    (u64::from(*values) * bits).div_ceil(8)
                }
                other => return Err(self.damaged(format!("its levels are of the encoding {other}"))),
            };
            let end = at as u64 + bytes;
            if end > page.len() as u64 {
                return Err(self.damaged("it ends within its levels"));
            }
            at = end as usize;
        }
        Ok(at)
    }

    /// Looks at a page of data before the library does, and asks for the memory of what is made of it.
    fn check_values(&mut self, values: u32, encoding: Encoding, bytes: &[u8]) -> Result<(), SourceError> {
        self.check_intervals(encoding, bytes)?;
        let repeats = self.chunk.descriptor.max_rep_level() > 0;
        self.seen += u64::from(values);
        self.number += 1;
        if !repeats && self.seen > self.chunk.rows {
            return Err(
                self.damaged(format!("its pages have more than the {} values of the row group", self.chunk.rows))
            );
        }
        if u64::from(values) > ELEMENTS_MAX {
            return Err(self.damaged(format!("it says that it has {values} values; it may have {ELEMENTS_MAX}")));
        }
        let mut unpacked = 0;
        if repeats {
            unpacked += u64::from(values) * value_bytes(&self.chunk.descriptor);
        }
        let texts = match encoding {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => Some(delta::lengths(bytes, u64::from(values)).map(|texts| (texts, 4))),
            Encoding::DELTA_BYTE_ARRAY => Some(delta::prefixed(bytes, u64::from(values)).map(|texts| (texts, 8))),
            _ => None,
        };
        if let Some(texts) = texts {
            self.chunk.unpacked.joined_texts.store(true, Ordering::Relaxed);
            let (texts, of_value) = texts.map_err(|what| self.damaged(format!("it has {what}")))?;
            // Buffers grow by doubling.
            unpacked += texts.bytes.saturating_mul(2) + u64::from(values) * of_value;
        } else if self.chunk.copies && self.chunk.descriptor.physical_type() == PhysicalType::BYTE_ARRAY {
            unpacked += 2 * bytes.len() as u64;
        }
        self.chunk.unpacked.page(unpacked).map_err(|denied| self.denied(denied, "what a page unpacks to"))
    }

    fn check_dictionary(&mut self, values: u32, bytes: &[u8]) -> Result<(), SourceError> {
        let least = match self.chunk.descriptor.physical_type() {
            PhysicalType::BOOLEAN => 1,
            PhysicalType::INT32 | PhysicalType::FLOAT | PhysicalType::BYTE_ARRAY => 4,
            PhysicalType::INT64 | PhysicalType::DOUBLE => 8,
            PhysicalType::INT96 => 12,
            PhysicalType::FIXED_LEN_BYTE_ARRAY => u64::from(self.chunk.descriptor.type_length().max(0) as u32),
        };
        if u64::from(values) * least > bytes.len() as u64 {
            return Err(self.damaged(format!("a dictionary of {values} values in {} bytes", bytes.len())));
        }
        if self.chunk.copies && self.chunk.descriptor.physical_type() == PhysicalType::BYTE_ARRAY {
            let mut rest = bytes;
            while let Some((head, behind)) = rest.split_first_chunk::<4>() {
                let len = u32::from_le_bytes(*head);
                if len > DECIMAL_BYTES_MAX {
                    return Err(self.damaged(format!("a decimal of {len} bytes")));
                }
                rest = behind.get(len as usize..).unwrap_or_default();
            }
        }
        let decoded = u64::from(values) * 32 + bytes.len() as u64;
        self.dictionary = Some(self.reserve(decoded, "a dictionary")?);
        Ok(())
    }
}

/// Most bytes that a value, null or not, takes while a batch is made of it: levels, growing buffers, and a copy where its type is made another.
pub(super) fn value_bytes(descriptor: &ColumnDescPtr) -> u64 {
    let width = match descriptor.physical_type() {
        PhysicalType::BYTE_ARRAY => 32,
        PhysicalType::FIXED_LEN_BYTE_ARRAY => u64::from(descriptor.type_length().max(0) as u32).max(8),
        PhysicalType::INT96 => 12,
        _ => 8,
    };
    let levels = 8 * (1 + descriptor.max_def_level().max(0) as u64 + descriptor.max_rep_level().max(0) as u64);
    3 * width + levels
}

fn page_of(kind: PageKind, buf: Bytes) -> Page {
    match kind {
        PageKind::Dictionary { values, encoding, sorted } => {
            Page::DictionaryPage { buf, num_values: values, encoding, is_sorted: sorted }
        }
        PageKind::DataV2 { values, nulls, rows, encoding, definition_bytes, repetition_bytes, .. } => {
            Page::DataPageV2 {
                buf,
                num_values: values,
                encoding,
                num_nulls: nulls,
                num_rows: rows,
                def_levels_byte_len: definition_bytes,
                rep_levels_byte_len: repetition_bytes,
                is_compressed: false,
                statistics: None,
            }
        }
        PageKind::Data { values, encoding, definitions, repetitions } => Page::DataPage {
            buf,
            num_values: values,
            encoding,
            def_level_encoding: definitions,
            rep_level_encoding: repetitions,
            statistics: None,
        },
        PageKind::Other => unreachable!("such pages are passed over"),
    }
}

impl PageReader for ColumnPages {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        self.next_page().map_err(|error| self.chunk.unpacked.fail(error))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        if let Some(wanted) = &self.chunk.wanted {
            // Dictionaries come where they are needed.
            let page = |_| {
                let rows = wanted.rows_of(self.number) as usize;
                PageMetadata { num_rows: Some(rows), num_levels: None, is_dict: false }
            };
            return Ok(wanted.page(self.number).map(page));
        }
        let header = match self.header() {
            Ok(header) => header.cloned(),
            Err(error) => return Err(self.chunk.unpacked.fail(error)),
        };
        Ok(header.map(|header| match &header.kind {
            PageKind::Data { values, .. } => {
                PageMetadata { num_rows: None, num_levels: Some(*values as usize), is_dict: false }
            }
            PageKind::DataV2 { values, rows, .. } => {
                PageMetadata { num_rows: Some(*rows as usize), num_levels: Some(*values as usize), is_dict: false }
            }
            _ => PageMetadata { num_rows: None, num_levels: None, is_dict: true },
        }))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        if let Some(wanted) = &self.chunk.wanted {
            if wanted.page(self.number).is_some() {
                self.seen += wanted.rows_of(self.number);
                self.number += 1;
            }
            return Ok(());
        }
        if let Err(error) = self.header() {
            return Err(self.chunk.unpacked.fail(error));
        }
        if let Some(header) = self.next.take() {
            if let PageKind::Data { values, .. } | PageKind::DataV2 { values, .. } = header.kind {
                self.seen += u64::from(values);
            }
            self.advance(u64::from(header.stored_bytes));
        }
        Ok(())
    }
}

impl Iterator for ColumnPages {
    type Item = Result<Page, ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}
