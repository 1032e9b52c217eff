//! The program of these jobs: which tasks, in which order, and what is checked.

use std::cell::RefCell;
use std::pin::pin;

use ::futures::TryStreamExt as _;
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use exobus_files::part_name;
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::jobs::values::read_values;
use exobus_shuffle::strategies::auto::{self, Estimate, Explained, PartsRead};
use exobus_shuffle::{Job, Plan, Sizes, Strategy};

use super::arrangement::Arrangement;
use super::cuts::{LookedAt, cuts};
use super::folders::{SplitColumns, TooMany, reduce_folders, refuse_folders};
use super::map::{MapParams, Mapped, map};
use super::merge::{MergeParams, ReduceParams, Reduced, merge, reduce};
use super::plan::{FileAbout, check_file, check_splits, map_bytes, map_outside_bytes, maps};
use super::{Rewrite, Rewritten};
use crate::TableError;
use crate::jobs::count::count;
use crate::jobs::described::{Described, PLACE_BYTES};
use crate::jobs::output::{FileParams, FileSize, manifest};
use crate::jobs::parts::{options, two};
use crate::jobs::row_limit::RowLimit;
use crate::jobs::table::{Piece, Table};
use crate::reading::Reading;

/// A job as strategies run it.
struct Rewriting {
    arrangement: Arrangement,
    reading: Reading,
    layout: ObjectRef,
    cuts: ObjectRef,
    /// What each map reads.
    maps: Vec<Vec<Piece>>,
    /// How large a row may be.
    row_bytes_max: RowLimit,
    plan: Plan,
    /// A file that is written, about.
    about: FileAbout,
    parts: PartsRead,
    /// What files are, but for their names.
    file: FileParams,
    /// The second output of each map.
    mapped: RefCell<Vec<ObjectRef>>,
}

impl Job for Rewriting {
    fn name(&self) -> &'static str {
        "table"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let pieces = &self.maps[index];
        let (reading, arrangement) = (self.reading.clone(), self.arrangement.clone());
        let params = MapParams { reading, arrangement, row_bytes_max: self.row_bytes_max };
        let options = options(place, map_outside_bytes(pieces, self.about.columns));
        let pieces = futures.put_value(pieces)?;
        let args = [self.layout.arg(), self.cuts.arg(), pieces.arg()];
        let [parts, mapped] = two(futures.submit_many(map, &params, &args, 2, options)?)?;
        self.mapped.borrow_mut().push(mapped);
        Ok(parts)
    }

    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let params = MergeParams { pieces: pieces.to_vec(), arrangement: self.arrangement.clone() };
        let options = options(place, self.about.merge_bytes(self.parts, self.maps.len() as u64));
        futures.submit_many(merge, &params, &self.args(blocks), pieces.len() as u32, options)
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        let name = self.file.form.file_name(&part_name(partition as usize, self.plan.partitions as usize));
        let file = FileParams { name, ..self.file.clone() };
        let outside_bytes = self.about.reduce_bytes(self.parts.by_reduce);
        let scratch_bytes = vec![file.buffer_bytes; 2];
        let params = ReduceParams { file, arrangement: self.arrangement.clone() };
        let options = TaskOptions { place, scratch_bytes, outside_bytes, ..TaskOptions::default() };
        match self.arrangement.folders() {
            None => futures.submit_with(reduce, &params, &self.args(columns), options),
            Some(_) => futures.submit_with(reduce_folders, &params, &self.args(columns), options),
        }
    }
}

impl Rewriting {
    fn args(&self, blocks: &[Arg]) -> Vec<Arg> {
        std::iter::once(self.layout.arg()).chain(blocks.iter().cloned()).collect()
    }
}

/// How a job is done.
struct Planned {
    described: Described,
    sizes: Sizes,
    about: FileAbout,
    maps: Vec<Vec<Piece>>,
    plan: Plan,
    /// What each strategy would do, the one first that is taken unless another one is told.
    estimates: Vec<Estimate>,
    strategy: Strategy,
    parts: PartsRead,
}

impl Planned {
    /// Looks at the table, and refuses one for which there is too little memory.
    async fn of(futures: &Futures, rewrite: &Rewrite, arrangement: &Arrangement) -> Result<Self, JobError> {
        if arrangement.key().is_some_and(<[_]>::is_empty) {
            return Err(JobError::program(TableError::NoKey));
        }
        let mut described =
            Described::in_folders(futures, rewrite, &arrangement.columns(), arrangement.folders()).await?;
        let is_of_rows = arrangement.seed().is_some() || matches!(rewrite.writing.file_size, FileSize::Rows(_));
        if described.rows().is_none() && is_of_rows {
            count(futures, &mut described).await?;
        }
        let value_bytes = described.value_bytes();
        let sizes = Sizes::of(&futures.nodes(), value_bytes);
        let rows: u64 = described.splits().map(|split| split.rows_about()).sum();
        // Rows have their places with them until they are in files: of narrow ones a file has fewer bytes of values.
        let files = rewrite.writing.file_size.files(value_bytes + rows * PLACE_BYTES, rows);
        let (bytes, rows) = (value_bytes / files, rows.div_ceil(files));
        let schema = Table::decode(&described.layout).map_err(JobError::program)?.schema;
        let columns = schema.fields().len() as u64 + 1;
        let sink_bytes = rewrite.writing.sink_bytes(described.form, &schema, (bytes, rows));
        let about = FileAbout { bytes, rows, columns, key_bytes: arrangement.key_bytes(), sink_bytes };
        let maps = maps(&described, map_bytes(sizes));
        let chunk_bytes = value_bytes.div_ceil(maps.len().max(1) as u64).max(1);
        let partitions = u32::try_from(files).map_err(|_| JobError::program(format!("{files} files are too many")))?;
        let plan = Plan::of_chunks(sizes, Some(partitions), chunk_bytes).map_err(JobError::program)?;
        let estimates = estimates(sizes, maps.len(), &plan);
        let strategy = rewrite.strategy.unwrap_or(estimates[0].strategy);
        let parts = auto::parts_read(strategy, maps.len() as u64, &plan);
        check_splits(&described, sizes)?;
        check_file(sizes, (about, parts, maps.len() as u64))?;
        Ok(Self { described, sizes, about, maps, plan, estimates, strategy, parts })
    }
}

/// What each strategy would do, the one first that is taken unless another one is told.
pub(in crate::jobs) fn estimates(sizes: Sizes, maps: usize, plan: &Plan) -> Vec<Estimate> {
    let partitions = u64::from(plan.partitions);
    let mut estimates = auto::estimates(sizes, maps, plan);
    if plan.chunk_bytes / partitions < PART_BYTES_MIN && maps as u64 * partitions >= PARTS_MANY {
        estimates.sort_by_key(|estimate| estimate.strategy != Strategy::TwoStage);
    }
    estimates
}

/// Where there are many parts, and they are smaller on average, they are merged in rounds: each is a message at least, whose header says something of each column.
const PART_BYTES_MIN: u64 = 16 << 10;
const PARTS_MANY: u64 = 4096;

/// Says how it would be done; the table is looked at and not read.
pub(in crate::jobs) async fn explain(
    futures: &Futures,
    rewrite: &Rewrite,
    arrangement: &Arrangement,
) -> Result<Explained, JobError> {
    let planned = Planned::of(futures, rewrite, arrangement).await?;
    let input_bytes = planned.described.input_bytes();
    let Planned { sizes, maps, plan, estimates, .. } = planned;
    Ok(Explained { input_bytes, sizes, maps: maps.len() as u64, plan, estimates })
}

/// Puts the rows of a table in another order.
pub(in crate::jobs) async fn run(
    futures: Futures,
    name: &'static str,
    rewrite: Rewrite,
    arrangement: Arrangement,
) -> Result<Rewritten, JobError> {
    let planned = Planned::of(&futures, &rewrite, &arrangement).await?;
    let Planned { described, sizes, about, maps, plan, strategy, parts, .. } = planned;
    let row_bytes_max = RowLimit::of(sizes);
    let (value_bytes, rows, partitions) = (described.value_bytes(), described.rows(), plan.partitions);
    let output = outputs::Output::claim(&futures, &rewrite.output, name).await?;
    futures.plan_stage("table.map", maps.len() as u64, value_bytes)?;
    let stage = arrangement.folders().map_or("table.reduce", |_| "table.reduce_folders");
    futures.plan_stage(stage, u64::from(partitions), value_bytes)?;

    let layout = futures.put(&described.layout)?;
    let schema = Table::decode(&described.layout).map_err(JobError::program)?.schema;
    let cuts = cuts(&futures, &described, &arrangement, &layout, (partitions, LookedAt::FOR_FILES)).await?;
    let input_bytes = described.input_bytes();
    let file = FileParams {
        directory: rewrite.output.clone(),
        name: String::new(),
        form: described.form,
        options: rewrite.writing,
        sorted_by: arrangement.sorted_by(),
        buffer_bytes: outputs::buffer_bytes(&plan, &rewrite.output),
    };
    let (reading, cuts, mapped) = (described.reading.clone(), futures.put_value(&cuts)?, RefCell::default());
    drop(described);
    let job = Rewriting { arrangement, reading, layout, cuts, maps, row_bytes_max, plan, about, parts, file, mapped };
    let shuffled = strategy.run(&futures, &job, job.maps.len(), &plan).await?;
    let (reduced, mapped) = (shuffled.outputs, shuffled.mapped);
    futures.wait_all(&reduced).await?;
    drop(shuffled.kept);
    let ended = ended(&futures, &job, &reduced, mapped).await?;
    ended.check(rows)?;
    if let Some(folders) = job.arrangement.folders().filter(|folders| ended.folders > folders.folders_max) {
        let params = TooMany { folders: folders.clone(), count: ended.folders };
        futures.ready(&futures.submit(refuse_folders, &params, &[])?).await?;
    }
    let schema = match job.arrangement.folders() {
        None => schema,
        Some(folders) => {
            let columns = SplitColumns::of(&schema, folders, job.file.form.format()).map_err(JobError::program)?;
            columns.file_schema().clone()
        }
    };
    output.commit(&reduced, manifest(job.file.form.format(), &schema)).await?;
    Ok(Rewritten {
        rows_read: ended.read.rows,
        rows: ended.written.rows,
        input_bytes,
        output_bytes: ended.written.bytes,
        row_hash_in: ended.read.row_hash,
        row_hash_out: ended.dropped_and_written().row_hash,
        strategy: Some(strategy),
        maps: job.maps.len() as u64,
        files: ended.files,
        owner_bytes: futures.owner_bytes().await?,
    })
}

/// What became of the rows.
struct Ended {
    /// By maps, as they read them. Bytes are told of what was written alone.
    read: Output,
    /// Sealed by maps.
    mapped: Output,
    written: Output,
    /// Left out by maps and by reduces.
    dropped: [Output; 2],
    files: u64,
    /// Where files are in folders, how many of these there are.
    folders: u64,
}

/// The folder that a file of such a name is in.
fn folder_of(name: &str) -> Option<&str> {
    Some(name.rsplit_once('/')?.0)
}

/// Sums up what maps and reduces say.
async fn ended(futures: &Futures, job: &Rewriting, reduced: &[ObjectRef], mapped: Output) -> Result<Ended, JobError> {
    let mut ended = Ended {
        read: Output::default(),
        mapped: Output { bytes: 0, ..mapped },
        written: Output::default(),
        dropped: Default::default(),
        files: 0,
        folders: 0,
    };
    let of_maps = job.mapped.take();
    let mut values = pin!(read_values(futures, &of_maps));
    while let Some(Mapped { read, dropped }) = values.try_next().await? {
        ended.read.add(read);
        ended.dropped[0].add(dropped);
    }
    let mut values = pin!(read_values(futures, reduced));
    let mut last = None;
    while let Some(Reduced { tokens, row_hash, dropped }) = values.try_next().await? {
        let (bytes, rows) = tokens.iter().fold((0, 0), |(bytes, rows), token| (bytes + token.bytes, rows + token.rows));
        ended.written.add(Output { bytes, rows, row_hash });
        ended.dropped[1].add(dropped);
        ended.files += tokens.len() as u64;
        for folder in tokens.iter().filter_map(|token| folder_of(&token.name)) {
            if last.as_deref() != Some(folder) {
                ended.folders += 1;
                last = Some(folder.to_owned());
            }
        }
    }
    Ok(ended)
}

impl Ended {
    /// What was left out, and what was written.
    fn dropped_and_written(&self) -> Output {
        let [mut all, by_reduces] = self.dropped;
        all.add(by_reduces);
        all.add(Output { bytes: 0, ..self.written });
        all
    }

    /// Law 1, from what was read to what was written. `rows`: as many as input files say, where they do.
    fn check(&self, rows: Option<u64>) -> Result<(), JobError> {
        let Self { read, mapped, written, dropped, .. } = self;
        let mut by_maps = *mapped;
        by_maps.add(dropped[0]);
        if *read == by_maps && *read == self.dropped_and_written() && rows.is_none_or(|rows| rows == read.rows) {
            return Ok(());
        }
        let said = rows
            .map_or("nobody says how many rows there are".to_owned(), |rows| format!("input files say {rows} rows"));
        let detail = format!(
            "{said}; read {} rows, hash {}; mapped {} rows, hash {}; wrote {} rows, hash {}; left out {} and {} rows, hashes {} and {}",
            read.rows,
            read.row_hash,
            mapped.rows,
            mapped.row_hash,
            written.rows,
            written.row_hash,
            dropped[0].rows,
            dropped[1].rows,
            dropped[0].row_hash,
            dropped[1].row_hash,
        );
        Err(JobError::Conservation { edge: "input -> output".to_owned(), detail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_parts_are_merged_in_rounds_and_few_are_not() {
        let strategy = |input_bytes: u64, maps: usize, partitions| {
            let sizes = Sizes { input_bytes, nodes: 1, executors_per_node: 2, memory_bytes: 64 << 30 };
            let plan = Plan::of_chunks(sizes, Some(partitions), input_bytes / maps as u64).unwrap();
            estimates(sizes, maps, &plan)[0].strategy
        };
        assert_eq!(strategy(1 << 30, 1000, 1000), Strategy::TwoStage);
        assert_eq!(strategy(1 << 30, 100, 10), Strategy::Simple);
        assert_eq!(strategy(1 << 20, 10, 100), Strategy::Simple);
    }
}
