//! Input and numbers of a keyed job, before anything is moved.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exobus_actors::futures::Futures;
use exobus_actors::task::{JobError, TaskOptions};

use super::register::{KeyedFunction, Registered, stage};
use super::shares::{Places, Share, shares};
use super::tasks::{Found, ListParams, Listed, ProbeParams, Probed, SplitParams, rows_room};
use super::{KeyedJob, Split};
use crate::files::FileList;
use crate::jobs::inputs::Pages;
use crate::jobs::outputs::Output;
use crate::plan::{Plan, PlanError, Sizes};
use crate::strategies::auto::{self, Estimate};

/// Pieces of the input that are mapped to see how large its rows are.
const PROBES: u64 = 8;
/// Bytes of one of them.
const PROBE_BYTES: u64 = 256 << 10;
/// Small files of one of them: what takes long there is to open them.
const PROBE_FILES: usize = 32;
/// Combining is believed to save this much at most, however much it saves in the probe: where keys are spread unevenly
/// over the input, a partition that was thought to be small still fits into memory.
const COMBINED_SHARE_MIN: u64 = 4;
/// What the rows of a map have at most, where its parts have [`PART_BYTES_MIN`] then.
const CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Parts are not made smaller than this for the sake of caches: what is spilled is read back part by part.
const PART_BYTES_MIN: u64 = 256 << 10;
/// Marks are at least this far from each other, and there are at most so many in a file.
const MARK_STEP_BYTES_MIN: u64 = 64 << 10;
const MARKS_PER_FILE: u64 = 16 << 10;
/// Scratch memory of tasks that look at the input before there is a plan: this share of a node's, within these bounds.
const LOOK_SHARE_OF_MEMORY: u64 = 8;
const LOOK_BYTES_MIN: u64 = 512 << 10;
const LOOK_BYTES_MAX: u64 = 16 << 20;

/// See the module.
pub(super) struct Layout {
    /// Bytes of the files.
    pub(super) input_bytes: u64,
    /// Of what maps make of them.
    pub(super) sizes: Sizes,
    pub(super) plan: Plan,
    pub(super) pages: Pages,
    /// What of the input each map reads.
    pub(super) shares: Vec<Share>,
    /// Where there is one.
    pub(super) output: Option<Output>,
}

impl Layout {
    /// Lists the inputs, claims the output if there is one, and looks at the rows.
    pub(super) async fn of<J: Registered>(
        futures: &Futures,
        job: &Arc<J>,
        (inputs, partial): (Vec<PathBuf>, bool),
        output: Option<&Path>,
        partitions: Option<u32>,
    ) -> Result<Self, JobError> {
        let listing = ListParams { job: job.clone(), inputs, partial };
        let listed = futures.submit(KeyedFunction::<J, stage::List>::new(), &listing, &[])?;
        let Listed { files } = futures.get_value(&listed).await?;
        let output = match output {
            Some(output) => Some(Output::claim(futures, output, J::NAME).await?),
            None => None,
        };

        let input_bytes = files.bytes();
        let pages = Pages::put(futures, &files)?;
        let sizes = Sizes::of(&futures.nodes(), input_bytes);
        let look_bytes = (sizes.memory_bytes / LOOK_SHARE_OF_MEMORY).clamp(LOOK_BYTES_MIN, LOOK_BYTES_MAX);
        let places = places::<J>(futures, job, &files, &pages, look_bytes).await?;
        let probed = probe::<J>(futures, job, &files, &pages, &places, look_bytes).await?;
        let sizes = Sizes { input_bytes: probed.mapped_bytes(input_bytes), ..sizes };
        let plan = probed.plan(sizes, partitions).map_err(JobError::program)?;
        check_partitions(&**job, plan.partitions)?;
        let shares = shares(&files, &places, probed.piece_bytes(&plan, job.combines()));
        Ok(Self { input_bytes, sizes, plan, pages, shares, output })
    }

    pub(super) fn estimates(&self) -> Vec<Estimate> {
        auto::estimates(self.sizes, self.shares.len(), &self.plan)
    }
}

/// A job may have its own cuts: they have to make as many partitions as there are going to be.
fn check_partitions<J: KeyedJob>(job: &J, partitions: u32) -> Result<(), JobError> {
    match job.partitioner(partitions).map_err(JobError::program)?.partitions() {
        made if made == u64::from(partitions) => Ok(()),
        made => Err(JobError::program(format!(
            "the job spreads its keys over {made} partitions, but there are {partitions}: ask for {made}"
        ))),
    }
}

/// Where large files may be cut.
async fn places<J: Registered>(
    futures: &Futures,
    job: &Arc<J>,
    files: &FileList,
    pages: &Pages,
    scratch_bytes: u64,
) -> Result<Places, JobError> {
    match job.split() {
        Split::Records(bytes) => return Ok(Places::Multiples(bytes)),
        Split::Anywhere => return Ok(Places::Multiples(1)),
        Split::Marks => {}
    }
    let split = |file: Range<u64>| {
        let step_bytes = MARK_STEP_BYTES_MIN.max((file.end - file.start) / MARKS_PER_FILE);
        let params = SplitParams { job: job.clone(), at: file.start, step_bytes, scratch_bytes };
        let options = TaskOptions { scratch_bytes: vec![scratch_bytes], ..TaskOptions::default() };
        let function = KeyedFunction::<J, stage::Split>::new();
        Ok((file.start, futures.submit_with(function, &params, &[pages.at(file.start)], options)?))
    };
    let large = files.groups().into_iter().filter(|group| group.is_cut);
    let tasks = large.map(|group| split(group.range)).collect::<Result<Vec<_>, JobError>>()?;
    let mut marks = BTreeMap::new();
    for (at, task) in tasks {
        marks.insert(at, futures.get_value::<Found>(&task).await?.marks);
    }
    Ok(Places::Marks(marks))
}

/// Maps small pieces at random places.
async fn probe<J: Registered>(
    futures: &Futures,
    job: &Arc<J>,
    files: &FileList,
    pages: &Pages,
    places: &Places,
    scratch_bytes: u64,
) -> Result<Probed, JobError> {
    let input_bytes = files.bytes();
    let shares: Vec<Share> = match input_bytes {
        0 => return Ok(Probed::default()),
        // Where there is little, all of it.
        _ if input_bytes <= PROBES * PROBE_BYTES && files.len() <= PROBES as usize * PROBE_FILES => {
            shares(files, places, PROBE_BYTES)
        }
        _ => (0..PROBES).map(|_| probed(files, places, futures.random() % input_bytes)).collect(),
    };
    // The pages, each once, and which of them each share is in.
    let (mut args, mut indices) = (Vec::new(), BTreeMap::new());
    let mut of_page = |share: Share| {
        let argument = *indices.entry(pages.index(share.range.start)).or_insert_with(|| {
            args.push(pages.at(share.range.start));
            args.len() - 1
        });
        (argument, share)
    };
    let shares = shares.into_iter().map(&mut of_page).collect();
    let params = ProbeParams { job: job.clone(), shares, scratch_bytes };
    let options = TaskOptions { scratch_bytes: vec![scratch_bytes], ..TaskOptions::default() };
    futures.get_value(&futures.submit_with(KeyedFunction::<J, stage::Probe>::new(), &params, &args, options)?).await
}

/// What is mapped near byte `at` of the input: a piece of a large file, or some small ones of the same group.
fn probed(files: &FileList, places: &Places, at: u64) -> Share {
    let group = files.group_at(at);
    if group.is_cut {
        return places.near(&group.range, at, PROBE_BYTES);
    }
    let (mut range, mut count) = (at..at, 0);
    for part in files.parts(at..group.range.end) {
        if count == 0 {
            range.start = part.file_start;
        }
        range.end = part.file_start + part.file.bytes;
        count += 1;
        if range.end - range.start >= PROBE_BYTES || count == PROBE_FILES {
            break;
        }
    }
    Share { range, lines: 0 }
}

impl Probed {
    /// What maps are expected to make of each `read_bytes` that they read.
    fn made_bytes(&self) -> u128 {
        u128::from(self.combined_bytes.max(self.emitted_bytes / COMBINED_SHARE_MIN))
    }

    /// What maps are expected to make of the input.
    fn mapped_bytes(&self, input_bytes: u64) -> u64 {
        (u128::from(input_bytes) * self.made_bytes() / u128::from(self.read_bytes.max(1))) as u64
    }

    /// The numbers of the job. Rows are ordered, and combined, in any place of a map's memory: where that is no larger than caches
    /// are, and parts have some size all the same, it is quicker, and less new memory is touched.
    fn plan(&self, sizes: Sizes, partitions: Option<u32>) -> Result<Plan, PlanError> {
        let plan = Plan::new(sizes, partitions)?;
        let chunk_bytes = CHUNK_BYTES_MAX.max(u64::from(plan.partitions) * PART_BYTES_MIN);
        match chunk_bytes < plan.chunk_bytes {
            true => Plan::of_chunks(sizes, Some(plan.partitions), chunk_bytes),
            false => Ok(plan),
        }
    }

    /// How much input makes nine tenths of the rows of a chunk, or of those that a map has room for: one that has not runs over its
    /// input again.
    fn piece_bytes(&self, plan: &Plan, combines: bool) -> u64 {
        let row_bytes = self.combined_bytes.checked_div(self.combined_rows).unwrap_or(1);
        let rows_bytes = plan.chunk_bytes.min(rows_room(plan.map_scratch_bytes, row_bytes, combines));
        let made_bytes = self.made_bytes().max(1);
        let bytes = u128::from(rows_bytes) * 9 / 10 * u128::from(self.read_bytes) / made_bytes;
        // Where next to nothing is made of the input, a map still reads no more than this.
        bytes.clamp(1, u128::from(plan.chunk_bytes.saturating_mul(16))) as u64
    }
}

#[cfg(test)]
mod tests {
    use exobus_actors::registry::TaskError;

    use super::super::tasks::carve;
    use super::*;
    use crate::rows::{Combine, ROW_HEADER_BYTES, RowBuffer};

    fn everywhere(_: &[u8]) -> u32 {
        0
    }

    fn leave(_: &[u8], _: &mut Vec<u8>, _: &[u8]) -> Result<(), TaskError> {
        Ok(())
    }

    #[test]
    fn what_a_probe_sees_sizes_the_plan() {
        let sizes = Sizes { input_bytes: 1 << 30, nodes: 1, executors_per_node: 2, memory_bytes: 1 << 30 };
        let plan = Plan::of_chunks(sizes, None, 3 << 20).unwrap();
        let grows = Probed { read_bytes: 100, emitted_bytes: 400, combined_bytes: 300, combined_rows: 1 };
        assert_eq!((grows.mapped_bytes(1_000), grows.piece_bytes(&plan, false)), (3_000, (1 << 20) * 9 / 10));
        let shrinks = Probed { read_bytes: 100, emitted_bytes: 400, combined_bytes: 2, combined_rows: 1 };
        assert_eq!(shrinks.mapped_bytes(1_000), 1_000, "not as much as it seems to");
        let nothing = Probed::default();
        assert_eq!(nothing.mapped_bytes(0), 0);
        assert!(nothing.piece_bytes(&plan, true) > 0);
    }

    /// Each pass over the input parses it anew, which is most of what a map does.
    #[test]
    fn a_map_has_room_for_the_rows_of_its_piece() {
        for memory_mib in [64, 12 << 10] {
            for row_bytes in [16_u64, 24, 90, 300, 5_000] {
                for combines in [false, true] {
                    let sizes =
                        Sizes { input_bytes: 3 << 30, nodes: 1, executors_per_node: 4, memory_bytes: memory_mib << 20 };
                    let (read_bytes, rows) = (1 << 20, (1 << 20) / row_bytes);
                    let made = rows * row_bytes;
                    let probed = Probed { read_bytes, emitted_bytes: made, combined_bytes: made, combined_rows: rows };
                    let plan = probed.plan(sizes, None).unwrap();
                    let mut scratch = vec![0; plan.map_scratch_bytes as usize];
                    let (.., rest) = carve(&mut scratch);
                    let combine = combines.then_some(&leave as Combine<'_>);
                    let mut buffer = RowBuffer::new(rest, &everywhere, combine);
                    let value = vec![0; row_bytes as usize - ROW_HEADER_BYTES - size_of::<u64>()];
                    // All of them different, so that combining leaves them all.
                    for key in 0..probed.piece_bytes(&plan, combines) / row_bytes {
                        buffer.push(&key.to_le_bytes(), &value).unwrap();
                    }
                    let case = format!("{memory_mib} MiB, rows of {row_bytes} bytes, combined: {combines}");
                    assert!(!buffer.next_pass(), "{case}: another pass over the input");
                }
            }
        }
    }

    #[test]
    fn a_map_works_within_caches_where_parts_have_some_size_all_the_same() {
        let sizes = Sizes { input_bytes: 64 << 30, nodes: 1, executors_per_node: 2, memory_bytes: 12 << 30 };
        let plan = |partitions| Probed::default().plan(sizes, Some(partitions)).unwrap();
        assert_eq!((plan(16).chunk_bytes, plan(16).partitions), (CHUNK_BYTES_MAX, 16));
        assert_eq!(plan(200).chunk_bytes, 200 * PART_BYTES_MIN);
        assert_eq!(plan(4_000), Plan::new(sizes, Some(4_000)).unwrap());
    }
}
