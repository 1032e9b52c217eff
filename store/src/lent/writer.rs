//! Writing an output into room that another process lends.
//!
//! What is done with the writer is remembered as steps and told with the next question, so that many small parts cost
//! one. To know when to ask, this repeats what [`LocalWriter`](crate::writer::LocalWriter) decides while its current extent
//! has room; where it cannot know, it asks.

use std::{fmt, sync::Arc};

use super::{Lender, LentSpan, Loan, Medium, WriterStep};
use crate::{
    error::StoreError,
    ids::{CopyId, RowHash},
    meta::ObjectMeta,
    options::WriterOptions,
    region::Region,
    writer::EXTENT_MIN,
};

/// Steps that are kept before they are told although there is room: the lender hashes what was written while it is hot.
const STEPS_MAX: usize = 4096;

/// See the module, and [`ObjectWriter`](crate::ObjectWriter) for what its methods promise.
pub(crate) struct LentWriter {
    region: Arc<Region>,
    lender: Arc<dyn Lender>,
    number: u32,
    id: CopyId,
    /// Parts begin at multiples of this.
    align: u64,
    /// Not told yet.
    steps: Vec<WriterStep>,
    /// Whether the lender knows of it.
    told: bool,
    room: Option<Held>,
    part: Option<OpenPart>,
    /// Parts that were ended, and their bytes.
    parts: u32,
    bytes: u64,
}

struct Held {
    span: LentSpan,
    /// Where the span begins in the region.
    offset: u64,
    used: usize,
    medium: Medium,
}

struct OpenPart {
    bytes: u64,
    bytes_max: Option<u64>,
}

impl LentWriter {
    pub fn new(
        region: &Arc<Region>,
        lender: &Arc<dyn Lender>,
        number: u32,
        id: CopyId,
        options: WriterOptions,
    ) -> LentWriter {
        LentWriter {
            region: region.clone(),
            lender: lender.clone(),
            number,
            id,
            align: options.align.bytes(),
            steps: vec![WriterStep::Open { object: id, options }],
            told: false,
            room: None,
            part: None,
            parts: 0,
            bytes: 0,
        }
    }

    pub fn id(&self) -> CopyId {
        self.id
    }

    pub fn begin_part(&mut self, bytes_max: Option<u64>) -> Result<(), StoreError> {
        if self.part.is_some() {
            return Err(self.misused("end_part before the next begin_part"));
        }
        // Room ends at a multiple of 64, so there is always place for the gap.
        let gap = self.room.as_ref().map_or(0, |room| room.gap(self.align));
        let stays = match &self.room {
            None => false,
            Some(room) => match room.medium {
                Medium::Memory => room.rest() >= gap + bytes_max.unwrap_or(1) || bytes_max == Some(0),
                Medium::Disk => bytes_max.is_some_and(|bytes| bytes < EXTENT_MIN),
            },
        };
        match &mut self.room {
            // The lender fills it when it hears of this step.
            Some(room) if stays => room.used += gap as usize,
            _ => self.room = None,
        }
        self.steps.push(WriterStep::BeginPart { bytes_max });
        self.part = Some(OpenPart { bytes: 0, bytes_max });
        Ok(())
    }

    pub fn spare(&mut self) -> Result<&mut [u8], StoreError> {
        let Some(part) = &self.part else { return Err(self.misused("begin_part before spare")) };
        let left = part.bytes_max.map_or(u64::MAX, |most| most - part.bytes);
        if left == 0 {
            return Ok(&mut []);
        }
        let full = self.room.as_ref().is_none_or(|room| room.rest() == 0);
        if full || self.steps.len() >= STEPS_MAX {
            // The right to store to the old room ends before there is new.
            self.room = None;
            self.told = true;
            let room = self.lender.room(self.number, &self.steps)?;
            self.steps.clear();
            let span = LentSpan::new(&self.region, room.place, None)?;
            self.room = Some(Held { span, offset: room.place.offset, used: 0, medium: room.medium });
        }
        let room = self.room.as_mut().expect("there is room now");
        let rest = &mut room.span.bytes_mut()[room.used..];
        let most = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        Ok(&mut rest[..most])
    }

    pub fn advance(&mut self, count: usize) {
        let part = self.part.as_mut().expect("advance within a part");
        part.bytes += count as u64;
        assert!(part.bytes_max.is_none_or(|most| part.bytes <= most), "the part is longer than announced");
        if count == 0 {
            return;
        }
        let room = self.room.as_mut().expect("advance after spare");
        room.used += count;
        assert!(room.used <= room.span.bytes().len(), "more bytes written than were spare");
        match self.steps.last_mut() {
            Some(WriterStep::Advance { bytes }) => *bytes += count as u64,
            _ => self.steps.push(WriterStep::Advance { bytes: count as u64 }),
        }
    }

    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        if let Some(OpenPart { bytes: written, bytes_max: Some(most) }) = &self.part
            && written + bytes.len() as u64 > *most
        {
            return Err(StoreError::PartTooLong { object: self.id, part: self.parts, announced: *most });
        }
        while !bytes.is_empty() {
            let spare = self.spare()?;
            let count = spare.len().min(bytes.len());
            spare[..count].copy_from_slice(&bytes[..count]);
            self.advance(count);
            bytes = &bytes[count..];
        }
        Ok(())
    }

    pub fn end_part(&mut self, rows: u64, row_hash: RowHash) {
        let part = self.part.take().expect("end_part within a part");
        self.parts += 1;
        self.bytes += part.bytes;
        self.steps.push(WriterStep::EndPart { rows, row_hash });
    }

    pub fn part_bytes(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.bytes)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes + self.part_bytes()
    }

    pub fn seal(mut self) -> Result<ObjectMeta, StoreError> {
        if self.part.is_some() {
            return Err(self.misused("end_part before seal, and no error before that"));
        }
        self.room = None;
        // From here on the lender has no such writer.
        self.told = false;
        self.lender.seal(self.number, &self.steps)
    }

    fn misused(&self, what: &'static str) -> StoreError {
        StoreError::WriterMisused { object: self.id, what }
    }
}

impl Held {
    /// Bytes from here to where a part may begin. The lender's room begins at a multiple of 64 of the region, so where a part may begin
    /// in the object is where it may begin in the region.
    fn gap(&self, align: u64) -> u64 {
        let at = self.offset + self.used as u64;
        at.next_multiple_of(align) - at
    }

    fn rest(&self) -> u64 {
        (self.span.bytes().len() - self.used) as u64
    }
}

impl Drop for LentWriter {
    fn drop(&mut self) {
        self.room = None;
        if self.told {
            self.lender.given_back(Loan::Writer(self.number));
        }
    }
}

impl fmt::Debug for LentWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentWriter")
            .field("id", &self.id)
            .field("parts", &self.parts)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
