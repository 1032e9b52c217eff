//! Reads that wait for a disk thread, in the order in which they were asked for; what follows in a file goes along.
//!
//! Tasks that read small parts of the same objects are prefetched side by side (reduces of consecutive partitions): what one
//! of them reads lies in each file right behind what the one before it reads, but is asked for much later. One request for
//! all of that which waits is what makes small parts as fast as large ones.

use std::collections::BTreeMap;

use crate::{
    alloc::PAGE,
    spill::{BUFFER_BYTES, REQUEST_BYTES},
    state::{LoadJob, Source},
    table::FileId,
};

/// Loads that no thread has taken.
#[derive(Default)]
pub(crate) struct LoadQueue {
    /// By when they came.
    waiting: BTreeMap<u64, LoadJob>,
    /// Those that are one run of a file, by file and first byte. Of two that begin alike it knows the later.
    places: BTreeMap<(FileId, u64), u64>,
    pushed: u64,
}

impl LoadQueue {
    pub fn push(&mut self, job: LoadJob) {
        self.pushed += 1;
        if let Some((file, start, _)) = job.disk_run() {
            self.places.insert((file, start), self.pushed);
        }
        self.waiting.insert(self.pushed, job);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The load that has waited longest, and those that go on in the file where it ends: up to one large request if the disk
    /// can write them where they belong, else as much as a thread has a buffer for.
    pub fn next(&mut self) -> Option<Vec<LoadJob>> {
        let first = *self.waiting.first_key_value()?.0;
        let mut run = vec![self.take(first)?];
        let Some((file, start, mut end)) = run[0].disk_run() else { return Some(run) };
        let mut in_place = run[0].in_place();
        // Blocks are padded to pages at most, so a smaller gap is no gap.
        while let Some((_, next)) = self.places.range((file, end)..(file, end + PAGE)).next() {
            let next = *next;
            let Some(job) = self.waiting.get(&next) else { break };
            let Some((_, _, next_end)) = job.disk_run() else { break };
            in_place &= job.in_place();
            if next_end - start > if in_place { REQUEST_BYTES } else { BUFFER_BYTES } {
                break;
            }
            end = next_end;
            run.extend(self.take(next));
        }
        Some(run)
    }

    fn take(&mut self, number: u64) -> Option<LoadJob> {
        let job = self.waiting.remove(&number)?;
        if let Some((file, start, _)) = job.disk_run()
            && self.places.get(&(file, start)) == Some(&number)
        {
            self.places.remove(&(file, start));
        }
        Some(job)
    }
}

impl LoadJob {
    /// File, start and end of the only source, where that is a run of a file.
    fn disk_run(&self) -> Option<(FileId, u64, u64)> {
        match self.sources[..] {
            [Source::Disk { file, offset, bytes, .. }] if bytes == self.bytes => Some((file, offset, offset + bytes)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{alloc::Span, budget::Ticket, directory::PartSlice, ids::CopyId, state::LoadTarget};

    fn load(sources: Vec<Source>, bytes: u64) -> LoadJob {
        LoadJob {
            target: LoadTarget::Private(Ticket(0)),
            span: Span { offset: 0, bytes },
            bytes,
            sources,
            object: CopyId::new(1, 0),
            parts: PartSlice::default(),
            first_part: 0,
            start: 0,
        }
    }

    fn on_disk(file: FileId, offset: u64, bytes: u64) -> LoadJob {
        load(vec![Source::Disk { file, offset, bytes, to: 0 }], bytes)
    }

    /// File and offset of each load, request by request.
    fn requests(mut queue: LoadQueue) -> Vec<Vec<(FileId, u64)>> {
        let mut requests = Vec::new();
        while let Some(run) = queue.next() {
            let place = |job: &LoadJob| job.disk_run().map_or((FileId::MAX, 0), |(file, start, _)| (file, start));
            requests.push(run.iter().map(place).collect());
        }
        assert!(queue.is_empty() && queue.places.is_empty());
        requests
    }

    fn queue(jobs: impl IntoIterator<Item = LoadJob>) -> LoadQueue {
        let mut queue = LoadQueue::default();
        jobs.into_iter().for_each(|job| queue.push(job));
        queue
    }

    #[test]
    fn tasks_that_read_one_behind_the_other_share_requests() {
        // Three reduces, each of a part of two objects.
        let reduces = (0..3).flat_map(|part| [on_disk(1, part * 100, 100), on_disk(2, 7_000 + part * 50, 50)]);
        assert_eq!(requests(queue(reduces)), [[(1, 0), (1, 100), (1, 200)], [(2, 7_000), (2, 7_050), (2, 7_100)]]);
    }

    #[test]
    fn who_waits_longest_is_next_and_a_gap_of_a_page_ends_a_request() {
        let far = 10 * PAGE;
        let jobs = [on_disk(1, far, 10), on_disk(1, 0, 10), on_disk(1, far + 10 + PAGE, 10), on_disk(1, 9 + PAGE, 10)];
        assert_eq!(requests(queue(jobs)), [vec![(1, far)], vec![(1, 0), (1, 9 + PAGE)], vec![(1, far + 10 + PAGE)]]);
    }

    #[test]
    fn a_request_is_no_larger_than_requests_are() {
        let half = REQUEST_BYTES / 2;
        let jobs = [on_disk(1, 0, half), on_disk(1, half, half), on_disk(1, 2 * half, half)];
        assert_eq!(requests(queue(jobs)), [vec![(1, 0), (1, half)], vec![(1, 2 * half)]]);
        assert_eq!(requests(queue([on_disk(1, 0, 3 * half), on_disk(1, 3 * half, 1)])), [[(1, 0)], [(1, 3 * half)]]);
    }

    #[test]
    fn what_cannot_be_read_into_its_place_fits_a_buffer() {
        // The memory of the second one is not whole pages.
        let odd = |offset| LoadJob { span: Span { offset: 64, bytes: PAGE }, ..on_disk(1, offset, PAGE) };
        let most = BUFFER_BYTES / PAGE;
        let jobs = (0..2 * most).map(|page| if page == 1 { odd(PAGE) } else { on_disk(1, page * PAGE, PAGE) });
        let lengths: Vec<usize> = requests(queue(jobs)).iter().map(Vec::len).collect();
        assert_eq!(lengths, [most as usize; 2]);
    }

    #[test]
    fn equal_and_overlapping_loads_are_each_done_once() {
        let jobs = [on_disk(1, 0, 10), on_disk(1, 0, 10), on_disk(1, 5, 10), on_disk(1, 10, 10)];
        assert_eq!(requests(queue(jobs)), [vec![(1, 0), (1, 10)], vec![(1, 0)], vec![(1, 5)]]);
    }

    #[test]
    fn what_is_in_several_pieces_or_nowhere_goes_alone() {
        let pieces = || load(vec![Source::Memory { offset: 0, bytes: 5, to: 0 }], 10);
        let jobs = [on_disk(1, 0, 10), pieces(), load(Vec::new(), 10), on_disk(1, 10, 10)];
        let nowhere = (FileId::MAX, 0);
        assert_eq!(requests(queue(jobs)), [vec![(1, 0), (1, 10)], vec![nowhere], vec![nowhere]]);
    }
}
