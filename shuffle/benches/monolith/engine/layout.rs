//! How the memory is divided. All sizes are derived here, from the input's size, the partitions and the limit.

use exobus_shuffle::files::{REQUEST_BYTES, STRIDE_BYTES};
use exobus_shuffle::kernels::sort_scratch_bytes;
use exobus_shuffle::records::RECORD_BYTES;

use super::Failure;

/// Buffers for requests: those of readers, later those being filled or written.
const IO_BUFFERS: usize = 8;
/// Threads that sort: one per core of the reference machine.
pub(super) const SORTERS: usize = 2;
/// Most strides of a segment: 1 MB, from which on requests are as fast as the disk.
const SEGMENT_STRIDES_MAX: u64 = 10;
/// Buckets that must fit into memory: one per sorter, one being loaded, and as much again for uneven cuts.
const BUCKETS_IN_MEMORY: u64 = 6;
/// Room for buckets that are larger than the average, in percent of the scratch for an average one.
const UNEVEN_PERCENT: u64 = 150;

/// The division of the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Files of the output.
    pub(super) partitions: usize,
    /// Consecutive buckets that make one file.
    pub(super) buckets_per_partition: usize,
    /// Bytes of a buffer for requests, a multiple of the stride.
    pub(super) request_bytes: usize,
    /// How many of them there are.
    pub(super) io_buffers: usize,
    /// Bytes of a segment, a multiple of the stride.
    pub(super) segment_bytes: usize,
    /// How many of them there are.
    pub(super) segments: usize,
    /// Scatters that fill segments, so threads that do so at once.
    pub(super) scatters: usize,
    /// Bytes of scratch that all sorters together may take.
    pub(super) scratch_bytes: u64,
    /// Segments that are free or on their way to the disk at any time while buckets are written there.
    pub(super) reserve: usize,
}

impl Layout {
    /// Divides `memory_bytes` for `bytes` of input.
    ///
    /// # Errors
    /// [`Failure::Memory`] when it does not suffice for a segment per bucket and some more.
    pub(super) fn new(bytes: u64, partitions: usize, memory_bytes: Option<u64>) -> Result<Layout, Failure> {
        let stride = STRIDE_BYTES as u64;
        let partition_bytes = bytes.div_ceil(partitions.max(1) as u64).max(1);
        let strides = |bytes: u64, most: u64| (bytes / stride).clamp(1, most) * stride;
        // Without a limit: the input, segments that are not full, and the rest below.
        let all_in_memory = bytes + (partitions as u64 * 2 * SORTERS as u64 + 16) * SEGMENT_STRIDES_MAX * stride;
        let limit = memory_bytes.unwrap_or(u64::MAX);
        let request_bytes = strides(limit / 64, REQUEST_BYTES as u64 / stride);
        let left = limit.saturating_sub(request_bytes * IO_BUFFERS as u64);

        let per_partition = partition_bytes.div_ceil((left / BUCKETS_IN_MEMORY).max(1));
        let buckets = per_partition * partitions as u64;
        let bucket_rows = bytes.div_ceil(buckets.max(1)).div_ceil(RECORD_BYTES as u64) as usize;
        let scratch_bytes = (sort_scratch_bytes(bucket_rows) * SORTERS) as u64 * UNEVEN_PERCENT / 100;
        let left = left.saturating_sub(scratch_bytes);

        let spills = left < all_in_memory;
        // A scatter alone keeps up with the disk when that also has to write.
        let scatters = if spills && left < bytes / 2 { 1 } else { SORTERS };
        let segment_bytes = strides(left / (3 * scatters as u64 * buckets), SEGMENT_STRIDES_MAX);
        let segments = left.min(all_in_memory) / segment_bytes;
        let reserve = segments / 8;
        let least = scatters as u64 * buckets + 2 * reserve.max(8);
        if segments < least {
            let text = format!(
                "{limit} bytes of memory are too little for {bytes} bytes in {partitions} partitions: room for \
                 {segments} segments of {segment_bytes} bytes, {least} are needed"
            );
            return Err(Failure::Memory(text));
        }
        Ok(Layout {
            partitions,
            buckets_per_partition: per_partition as usize,
            request_bytes: request_bytes as usize,
            io_buffers: IO_BUFFERS,
            segment_bytes: segment_bytes as usize,
            segments: segments as usize,
            scatters,
            scratch_bytes,
            reserve: if spills { reserve.min((64 << 20) / segment_bytes) as usize } else { 0 },
        })
    }

    /// How many buckets there are.
    pub(super) fn buckets(&self) -> usize {
        self.partitions * self.buckets_per_partition
    }

    /// Bytes of memory in all.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.io_buffers * self.request_bytes + self.segments * self.segment_bytes) as u64 + self.scratch_bytes
    }

    /// The buckets in the order in which they are sorted: as many files at a time as there are sorters, bucket by bucket
    /// in turn. Loading in this order, a bucket that is waited for never stands behind one that waits for it.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.buckets());
        for first in (0..self.partitions).step_by(SORTERS) {
            for step in 0..self.buckets_per_partition {
                let files = first..(first + SORTERS).min(self.partitions);
                order.extend(files.map(|file| file * self.buckets_per_partition + step));
            }
        }
        order
    }
}
