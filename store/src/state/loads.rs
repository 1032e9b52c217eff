//! How an item of a request can be had: shared, loaded, or copied together, and the jobs for the disk that follow.

use std::ops::Range;

use super::{
    Effect, State,
    grants::{Granted, RequestItem},
};
use crate::{
    alloc::{Allocator, PAGE, Span},
    budget::Ticket,
    directory::{PartSlice, byte_range},
    error::StoreError,
    ids::CopyId,
    meta::Parts,
    table::{ExtentKey, FileId, ObjectKey},
};

/// Where the bytes of a load come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Sealed bytes in the region, pinned until the load ends.
    Memory { offset: u64, bytes: u64, to: u64 },
    /// Bytes of a spill file.
    Disk { file: FileId, offset: u64, bytes: u64, to: u64 },
}

/// What a load fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadTarget {
    /// An extent of the table, for all who wait for it.
    Extent(ExtentKey),
    /// A private copy of one request.
    Private(Ticket),
}

/// A load under way: `span` is exclusively the loader's until it reports.
#[derive(Debug)]
pub(crate) struct LoadJob {
    pub target: LoadTarget,
    pub span: Span,
    /// Length of the content; bytes between two sources are zeros.
    pub bytes: u64,
    /// In order of `to`, none: only make sure that there is memory.
    pub sources: Vec<Source>,
    pub object: CopyId,
    /// The parts that lie in it completely, to verify; the first byte of the target is byte `start` of the object.
    pub parts: PartSlice,
    pub first_part: u32,
    pub start: u64,
}

/// How an item can be had now.
pub(super) enum Plan {
    Empty,
    Resident { extent: ExtentKey, offset: u64, bytes: u64 },
    Loading { extent: ExtentKey, offset: u64, bytes: u64 },
    Load { object: ObjectKey, extent: ExtentKey, offset: u64, bytes: u64 },
    Copy { object: ObjectKey, parts: PartSlice, first_part: u32, range: Range<u64> },
    Room { bytes: u64 },
    Outside { bytes: u64 },
}

impl Plan {
    /// Memory of the region that it takes; what is or will be in memory anyhow takes none.
    pub fn needs(&self, state: &State) -> u64 {
        match self {
            Plan::Empty | Plan::Resident { .. } | Plan::Loading { .. } | Plan::Outside { .. } => 0,
            Plan::Load { extent, .. } => Allocator::rounded(state.table.extent(*extent).bytes),
            Plan::Copy { range, .. } => Allocator::rounded(range.end - range.start),
            Plan::Room { bytes } => State::takes(*bytes, self.is_paged()),
        }
    }

    /// Whether it is memory of whole pages, which is not taken from a slab: a window is divided into halves.
    pub fn is_paged(&self) -> bool {
        matches!(self, Plan::Room { bytes } if bytes.is_multiple_of(PAGE))
    }
}

impl State {
    /// Makes a plan true; `span` is the memory that it needs.
    pub(super) fn carry_out(
        &mut self,
        ticket: Ticket,
        plan: Plan,
        span: Option<Span>,
        sources: &mut Vec<ExtentKey>,
        reads: &mut usize,
    ) -> Granted {
        match (plan, span) {
            (Plan::Resident { extent, offset, bytes }, _) => {
                let memory = self.table.extent(extent).memory().expect("a resident extent is in memory");
                Granted::Shared { extent, offset: memory.offset + offset, bytes }
            }
            (Plan::Loading { extent, offset, bytes }, _) => {
                *reads += 1;
                self.loading.get_mut(&extent).expect("its load is under way").push(ticket);
                let memory = self.table.extent(extent).memory().expect("a loading extent has memory");
                Granted::Shared { extent, offset: memory.offset + offset, bytes }
            }
            (Plan::Load { object, extent, offset, bytes }, Some(span)) => {
                *reads += 1;
                self.table.begin_load(extent, span);
                self.loading.insert(extent, vec![ticket]);
                let job = self.job_for_extent(object, extent, span);
                self.effects.push(Effect::Load(job));
                Granted::Shared { extent, offset: span.offset + offset, bytes }
            }
            (Plan::Copy { object, parts, first_part, range }, Some(span)) => {
                *reads += 1;
                let job = self.job_for_copy(ticket, object, parts, first_part, range.clone(), span);
                sources.extend(self.overlapping(object, &range).map(|(extent, ..)| extent));
                self.effects.push(Effect::Load(job));
                Granted::Private { span, bytes: range.end - range.start }
            }
            (Plan::Room { bytes }, Some(span)) => {
                if span.end() > self.backed {
                    *reads += 1;
                    let parts = PartSlice::default();
                    let (object, sources) = (CopyId::default(), Vec::new());
                    let target = LoadTarget::Private(ticket);
                    let job = LoadJob { target, span, bytes, sources, object, parts, first_part: 0, start: 0 };
                    self.effects.push(Effect::Load(job));
                }
                Granted::Private { span, bytes }
            }
            (Plan::Outside { bytes }, _) => Granted::Outside { bytes },
            _ => Granted::Empty,
        }
    }

    fn job_for_extent(&self, object: ObjectKey, extent: ExtentKey, span: Span) -> LoadJob {
        let (object, entry) = (self.table.object(object), self.table.extent(extent));
        let place = entry.disk().expect("a loaded extent is on disk");
        let parts = object.directory.slice(0..object.directory.len());
        let first = parts.partition_point(|part| part.offset < entry.start);
        let end = parts.partition_point(|part| part.offset < entry.start + entry.bytes).max(first);
        LoadJob {
            target: LoadTarget::Extent(extent),
            span,
            bytes: entry.bytes,
            sources: vec![Source::Disk { file: place.file, offset: place.offset, bytes: entry.bytes, to: 0 }],
            object: object.id(),
            parts: parts.slice(first..end),
            first_part: first as u32,
            start: entry.start,
        }
    }

    fn job_for_copy(
        &self,
        ticket: Ticket,
        object: ObjectKey,
        parts: PartSlice,
        first_part: u32,
        range: Range<u64>,
        span: Span,
    ) -> LoadJob {
        let sources = self.sources(object, &range);
        LoadJob {
            target: LoadTarget::Private(ticket),
            span,
            bytes: range.end - range.start,
            sources,
            object: self.table.object(object).id(),
            parts,
            first_part,
            start: range.start,
        }
    }

    /// Where the bytes of a range of an object can be read from now, in order. The caller pins their extents.
    pub fn sources(&self, object: ObjectKey, range: &Range<u64>) -> Vec<Source> {
        self.overlapping(object, range)
            .map(|(key, from, bytes)| {
                let (extent, to) = (self.table.extent(key), from - range.start);
                let within = from - extent.start;
                match (extent.memory(), extent.disk()) {
                    (Some(memory), _) if extent.resident() => {
                        Source::Memory { offset: memory.offset + within, bytes, to }
                    }
                    (_, Some(place)) => Source::Disk { file: place.file, offset: place.offset + within, bytes, to },
                    _ => panic!("extent {extent:?} is nowhere"),
                }
            })
            .collect()
    }

    /// The extents that have bytes of a range of an object: which, from where in the object, how many.
    pub fn overlapping(&self, object: ObjectKey, range: &Range<u64>) -> impl Iterator<Item = (ExtentKey, u64, u64)> {
        let range = range.clone();
        self.table.extents_of(object).filter_map(move |(key, extent)| {
            let from = extent.start.max(range.start);
            let end = (extent.start + extent.bytes).min(range.end);
            (from < end).then(|| (key, from, end - from))
        })
    }

    /// The extents that a plan reads or shows.
    pub(super) fn extents_in(&self, plan: &Plan) -> Vec<ExtentKey> {
        match plan {
            Plan::Empty | Plan::Room { .. } | Plan::Outside { .. } => Vec::new(),
            Plan::Resident { extent, .. } | Plan::Loading { extent, .. } | Plan::Load { extent, .. } => vec![*extent],
            Plan::Copy { object, range, .. } => self.overlapping(*object, range).map(|(extent, ..)| extent).collect(),
        }
    }

    /// How an item can be had now.
    pub(super) fn plan(&self, item: &RequestItem) -> Result<Plan, StoreError> {
        let (object, parts) = match item {
            RequestItem::Remote { metas } => {
                let range = byte_range(metas);
                let bytes = range.end - range.start;
                return Ok(if bytes == 0 { Plan::Empty } else { Plan::Room { bytes } });
            }
            RequestItem::Outside { bytes } => return Ok(Plan::Outside { bytes: *bytes }),
            RequestItem::Local { object, parts } => (object, *parts),
        };
        let first_part = if let Parts::Range(from, _) = parts { from } else { 0 };
        let (object, _, parts) = self.find(object, parts)?;
        let range = byte_range(&parts);
        if range.is_empty() {
            return Ok(Plan::Empty);
        }
        let bytes = range.end - range.start;
        let mut overlapping = self.overlapping(object, &range);
        let (extent, ..) = overlapping.next().expect("bytes of a part are in an extent");
        let alone = overlapping.next().is_none();
        drop(overlapping);
        let entry = self.table.extent(extent);
        let offset = range.start - entry.start.min(range.start);
        Ok(match alone {
            true if entry.resident() => Plan::Resident { extent, offset, bytes },
            true if entry.loading => Plan::Loading { extent, offset, bytes },
            // Part of an extent is read alone and not kept: the other parts are for others.
            true if bytes == entry.bytes => Plan::Load { object, extent, offset, bytes },
            _ => Plan::Copy { object, parts, first_part, range },
        })
    }
}
