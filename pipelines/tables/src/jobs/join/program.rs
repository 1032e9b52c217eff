//! The program: which tasks, in which order, and what is checked.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::pin;

use ::futures::TryStreamExt as _;
use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::task::{Arg, JobError, Output, Place, TaskOptions};
use exobus_files::part_name;
use exobus_shuffle::jobs::outputs;
use exobus_shuffle::jobs::values::read_values;
use exobus_shuffle::strategies::auto::{self, Estimate, Explained, PartsRead};
use exobus_shuffle::{Job, Plan, Sizes, Strategy};
use serde_bytes::ByteBuf;

use super::assemble::{AssembleParams, Turn, assemble};
use super::broadcast::{self, small_side};
use super::cuts::{JoinCuts, Share, frequent_keys, join_cuts};
use super::exchange::{Arranged, BindParams, MapParams, Mapped, MergeParams, bind, map, merge};
use super::filter::{Filtering, SIEVE_BYTES, make_filter};
use super::query::{Joined, Side};
use super::reduce::{ReduceParams, Reduced, StretchParams, Stretched, reduce, stretch};
use super::{ExplainedJoin, JoinTables};
use crate::jobs::described::{Described, LOOK_BYTES, PLACE_BYTES};
use crate::jobs::output::{FileParams, FileSize, WriteOptions, manifest};
use crate::jobs::parts::{options, two};
use crate::jobs::rewrite::{
    FileAbout, Rewrite, Rewritten, check_file, check_splits, estimates, map_bytes, map_outside_bytes, maps,
};
use crate::jobs::row_limit::RowLimit;
use crate::jobs::table::{Piece, Table};
use crate::reading::Reading;

/// A job as strategies run it.
struct Joining {
    arranged: Arranged,
    readings: [Reading; 2],
    layouts: [ObjectRef; 2],
    borders: ObjectRef,
    /// Of each partition, which file it is of, and what of that.
    shares: Vec<(u32, Share)>,
    /// Of each file, keys of which rows of the left table are in other files, too.
    divided: Vec<Vec<ByteBuf>>,
    /// What each map reads, and of which table.
    maps: Vec<(Side, Vec<Piece>)>,
    row_bytes_max: RowLimit,
    plan: Plan,
    about: FileAbout,
    parts: PartsRead,
    /// What files are, but for their names.
    file: FileParams,
    /// Which table says its keys to maps of the other one.
    filtering: Option<Filtering>,
    /// The hashes of its keys, and the filter that is made of them, until all maps were submitted: a filter that is lost is made of them again.
    hashes: RefCell<Vec<ObjectRef>>,
    filter: RefCell<Option<ObjectRef>>,
    /// The second output of each map.
    mapped: RefCell<Vec<ObjectRef>>,
    /// Rows of partitions that are stretches or cells of a file.
    stretches: RefCell<BTreeMap<u32, ObjectRef>>,
}

impl Job for Joining {
    fn name(&self) -> &'static str {
        "join"
    }

    fn map(&self, futures: &Futures, index: usize, place: Place) -> Result<ObjectRef, JobError> {
        let (side, pieces) = &self.maps[index];
        let reading = self.readings[*side as usize].clone();
        let arranged = self.arranged.clone();
        let says_keys = self.filtering.is_some_and(|filtering| filtering.by == *side);
        let filter = if says_keys { None } else { self.filter(futures)? };
        let params = MapParams {
            side: *side,
            says_keys,
            is_filtered: filter.is_some(),
            reading,
            arranged,
            row_bytes_max: self.row_bytes_max,
        };
        let beside = if filter.is_some() { SIEVE_BYTES } else { 0 };
        let options = options(place, map_outside_bytes(pieces, self.about.columns) + beside);
        let pieces = futures.put_value(pieces)?;
        let mut args = self.args(&[self.borders.arg(), pieces.arg()]);
        args.extend(filter.as_ref().map(ObjectRef::arg));
        let outputs = 2 + u32::from(says_keys);
        let mut made = futures.submit_many(map, &params, &args, outputs, options)?;
        self.hashes.borrow_mut().extend(made.drain(2..));
        let [parts, mapped] = two(made)?;
        self.mapped.borrow_mut().push(mapped);
        if index + 1 == self.maps.len() {
            drop((self.filter.take(), self.hashes.take()));
        }
        Ok(parts)
    }

    fn merge(
        &self,
        futures: &Futures,
        blocks: &[Arg],
        pieces: &[u32],
        place: Place,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let params = MergeParams { pieces: pieces.to_vec(), arranged: self.arranged.clone() };
        let options = options(place, self.about.merge_bytes(self.parts, self.maps.len() as u64));
        futures.submit_many(merge, &params, &self.args(blocks), pieces.len() as u32, options)
    }

    fn reduce(&self, futures: &Futures, partition: u32, columns: &[Arg], place: Place) -> Result<ObjectRef, JobError> {
        let (number, share) = self.shares[partition as usize];
        let (arranged, divided) = (self.arranged.clone(), self.divided[number as usize].clone());
        let outside_bytes = self.about.reduce_bytes(self.parts.by_reduce);
        if share != Share::Whole {
            let params = StretchParams { arranged, divided, is_cell: share != Share::Stretch };
            let made = futures.submit_many(stretch, &params, &self.args(columns), 2, options(place, outside_bytes))?;
            let [rows, stretched] = two(made)?;
            self.stretches.borrow_mut().insert(partition, rows);
            return Ok(stretched);
        }
        let file = self.file(number);
        let options = writing(&file, place, outside_bytes);
        futures.submit_with(reduce, &ReduceParams { file, arranged, divided }, &self.args(columns), options)
    }
}

/// Of tasks that write this file, and take so much beside the store.
fn writing(file: &FileParams, place: Place, outside_bytes: u64) -> TaskOptions {
    TaskOptions { place, scratch_bytes: vec![file.buffer_bytes; 2], outside_bytes, ..TaskOptions::default() }
}

impl Joining {
    fn args(&self, others: &[Arg]) -> Vec<Arg> {
        self.layouts.iter().map(ObjectRef::arg).chain(others.iter().cloned()).collect()
    }

    /// The filter of the keys of the small table, when all maps of that were submitted; they are before those of the other one.
    fn filter(&self, futures: &Futures) -> Result<Option<ObjectRef>, JobError> {
        let Some(filtering) = self.filtering else { return Ok(None) };
        let maps = self.maps.iter().filter(|(side, _)| *side == filtering.by).count();
        if self.filter.borrow().is_none() && self.hashes.borrow().len() == maps {
            let args: Vec<Arg> = self.hashes.borrow().iter().map(ObjectRef::arg).collect();
            let options = TaskOptions { outside_bytes: LOOK_BYTES + filtering.bytes(), ..TaskOptions::default() };
            *self.filter.borrow_mut() = Some(futures.submit_with(make_filter, &filtering.params(), &args, options)?);
        }
        Ok(self.filter.borrow().clone())
    }

    /// What the file of this number is.
    fn file(&self, number: u32) -> FileParams {
        let name = self.file.form.file_name(&part_name(number as usize, self.divided.len()));
        FileParams { name, ..self.file.clone() }
    }

    /// The files of these outputs of partitions, each of which is one, or is assembled, and how many rows came to those that are assembled.
    async fn files(&self, futures: &Futures, outputs: Vec<ObjectRef>) -> Result<(Vec<ObjectRef>, u64), JobError> {
        let (mut files, mut came) = (Vec::with_capacity(self.divided.len()), 0);
        let mut partitions = self.shares.iter().zip(outputs).enumerate().peekable();
        while let Some((first, ((number, share), output))) = partitions.next() {
            if *share == Share::Whole {
                files.push(output);
                continue;
            }
            let (mut args, mut stretched) = (Vec::new(), vec![output]);
            while let Some((_, (_, output))) = partitions.next_if(|(_, ((other, _), _))| other == number) {
                stretched.push(output);
            }
            let mut of_file: Vec<Stretched> = Vec::with_capacity(stretched.len());
            let mut values = pin!(read_values::<Stretched>(futures, &stretched));
            while let Some(value) = values.try_next().await? {
                came += value.came;
                args.extend(self.stretches.borrow_mut().remove(&((first + of_file.len()) as u32)));
                of_file.push(value);
            }
            let turns = turns(self.shares[first..].iter().map(|(_, share)| *share).zip(&of_file))?;
            let params = AssembleParams { file: self.file(*number), arranged: self.arranged.clone(), turns };
            let options = writing(&params.file, Place::Anywhere, LOOK_BYTES + self.about.sink_bytes);
            let args: Vec<Arg> = args.iter().map(ObjectRef::arg).collect();
            files.push(futures.submit_with(assemble, &params, &self.args(&args), options)?);
        }
        Ok((files, came))
    }
}

/// In which turns a file takes rows of its partitions.
fn turns<'a>(partitions: impl Iterator<Item = (Share, &'a Stretched)>) -> Result<Vec<Turn>, JobError> {
    let (mut turns, mut left) = (Vec::<Turn>::new(), 0);
    for (share, Stretched { rows, rounds, .. }) in partitions {
        if left == 0 {
            turns.push(Turn { rounds: *rounds, rows: Vec::new() });
            left = if let Share::Cell(pieces) = share { pieces } else { 1 };
        }
        let turn = turns.last_mut().filter(|turn| turn.rounds == *rounds);
        let turn = turn.ok_or_else(|| JobError::program("cells of a key have other rows of the left table"))?;
        turn.rows.push(rows / rounds);
        left -= 1;
    }
    Ok(turns)
}

/// How a job is done.
struct Planned {
    /// The tables, with keys of the same types.
    described: [Described; 2],
    joined: Joined,
    sizes: Sizes,
    about: FileAbout,
    maps: Vec<(Side, Vec<Piece>)>,
    filtering: Option<Filtering>,
    plan: Plan,
    /// What each strategy would do, the one first that is taken unless another one is told.
    estimates: Vec<Estimate>,
    strategy: Strategy,
}

/// Both tables, as they were found.
struct Tables {
    /// With keys of the same types.
    described: [Described; 2],
    joined: Joined,
    /// What the right one is read by.
    right: Rewrite,
}

impl Tables {
    /// Looks at both tables, and refuses a query that is none for them.
    async fn of(futures: &Futures, params: &JoinTables) -> Result<Self, JobError> {
        let query = &params.query;
        params.check().map_err(|(_, what)| JobError::program(what))?;
        if let FileSize::Rows(_) = params.table.writing.file_size {
            return Err(JobError::program("nobody knows how many rows a join has: say how many bytes or files"));
        }
        let reading = match query.kind.has_pairs() {
            true => params.right_reading.clone(),
            false => params.right_reading.of_columns(query.on.iter().map(|pair| pair.right.clone()).collect()),
        };
        let of_left = Described::of(futures, &params.table, &query.left_key(), true).await?;
        // Files are written as those of the left table are, whatever those of the right one are.
        let writing = WriteOptions { format: Some(of_left.form.format()), ..params.table.writing };
        let right = Rewrite { inputs: params.right.clone(), reading, writing, ..params.table.clone() };
        let of_right = Described::of(futures, &right, &query.right_key(), true).await?;
        let mut described = [of_left, of_right];
        let layouts = [futures.put(&described[0].layout)?, futures.put(&described[1].layout)?];
        let told = BindParams { query: query.clone(), form: described[0].form };
        let bound: [ByteBuf; 2] =
            futures.get_value(&futures.submit(bind, &told, &layouts.each_ref().map(ObjectRef::arg))?).await?;
        for (table, layout) in described.iter_mut().zip(bound) {
            table.layout = layout;
        }
        let table = |side: Side| Table::decode(&described[side as usize].layout).map_err(JobError::program);
        let (left, of_right) = (table(Side::Left)?, table(Side::Right)?);
        let joined = Joined::new(query, &left.schema, &of_right.schema).map_err(JobError::program)?;
        Ok(Self { described, joined, right })
    }
}

impl Planned {
    /// Refuses tables for which there is too little memory.
    fn of(futures: &Futures, params: &JoinTables, tables: Tables) -> Result<Self, JobError> {
        let Tables { described, joined, .. } = tables;
        let value_bytes = described.iter().map(Described::value_bytes).sum::<u64>();
        let rows: u64 = described.iter().flat_map(Described::splits).map(|split| split.rows_about()).sum();
        let sizes = Sizes::of(&futures.nodes(), value_bytes);
        described.iter().try_for_each(|table| check_splits(table, sizes))?;
        let writing = &params.table.writing;
        let files = writing.file_size.files(value_bytes + rows * PLACE_BYTES, rows);
        let (bytes, rows) = (value_bytes / files, rows.div_ceil(files));
        let columns = joined.tables.iter().map(|table| table.fields().len() as u64 + 1).sum();
        let sink_bytes = writing.sink_bytes(described[0].form, &joined.schema, (bytes, rows));
        let key_bytes = Arranged::new(params.query.clone()).of(Side::Left).key_bytes();
        let about = FileAbout { bytes, rows, columns, key_bytes, sink_bytes };
        let of_side = |side: Side| {
            maps(&described[side as usize], map_bytes(sizes)).into_iter().map(move |pieces| (side, pieces))
        };
        let filtering = Filtering::of(params.query.kind, &described, sizes);
        // Those that say their keys are first.
        let first = filtering.map_or(Side::Left, |filtering| filtering.by);
        let maps: Vec<(Side, Vec<Piece>)> = [first, first.other()].into_iter().flat_map(of_side).collect();
        let chunk_bytes = value_bytes.div_ceil(maps.len().max(1) as u64).max(1);
        let partitions = u32::try_from(files).map_err(|_| JobError::program(format!("{files} files are too many")))?;
        let plan = Plan::of_chunks(sizes, Some(partitions), chunk_bytes).map_err(JobError::program)?;
        let estimates = estimates(sizes, maps.len(), &plan);
        let strategy = params.table.strategy.unwrap_or(estimates[0].strategy);
        let parts = auto::parts_read(strategy, maps.len() as u64, &plan);
        check_file(sizes, (about, parts, maps.len() as u64))?;
        Ok(Self { described, joined, sizes, about, maps, filtering, plan, estimates, strategy })
    }

    fn input_bytes(&self) -> u64 {
        self.described.iter().map(Described::input_bytes).sum()
    }
}

/// Says how it would be done; of the tables the keys of some rows are read.
pub(super) async fn explain(futures: &Futures, params: &JoinTables) -> Result<ExplainedJoin, JobError> {
    let tables = Tables::of(futures, params).await?;
    let broadcast = small_side(params, &tables.described).map(|side| side.to_string());
    let table_bytes = [tables.described[0].value_bytes(), tables.described[1].value_bytes()];
    let planned = Planned::of(futures, params, tables)?;
    let input_bytes = planned.input_bytes();
    let Planned { described, sizes, maps, filtering, plan, estimates, .. } = planned;
    let layouts = [futures.put(&described[0].layout)?, futures.put(&described[1].layout)?];
    let arranged = Arranged::new(params.query.clone());
    let frequent = frequent_keys(futures, (&described, &layouts), &arranged, plan.partitions).await?;
    let copied = |side: Side| {
        let others = u64::from(sizes.nodes.max(1)) - 1;
        let can = params.query.kind.can_broadcast(side);
        can.then(|| broadcast::object_bytes(&described[side as usize]) * others)
    };
    let broadcast_bytes = Side::BOTH.map(copied);
    let shuffled = Explained { input_bytes, sizes, maps: maps.len() as u64, plan, estimates };
    let filtered = filtering.map(|filtering| filtering.by.other().to_string());
    Ok(ExplainedJoin { broadcast, table_bytes, frequent, filtered, broadcast_bytes, shuffled })
}

/// Joins two tables.
pub(super) async fn run(futures: Futures, name: &'static str, params: JoinTables) -> Result<Rewritten, JobError> {
    let tables = Tables::of(&futures, &params).await?;
    if let Some(side) = small_side(&params, &tables.described) {
        return broadcast::run(futures, name, params, (side, tables.described), tables.right).await;
    }
    let planned = Planned::of(&futures, &params, tables)?;
    let input_bytes = planned.input_bytes();
    let Planned { described, joined, sizes, about, maps, filtering, plan, strategy, .. } = planned;
    let output = outputs::Output::claim(&futures, &params.table.output, name).await?;
    let value_bytes = described.iter().map(Described::value_bytes).sum();
    futures.plan_stage("join.map", maps.len() as u64, value_bytes)?;
    let layouts = [futures.put(&described[0].layout)?, futures.put(&described[1].layout)?];
    let arranged = Arranged::new(params.query);
    let JoinCuts { borders, divided } = join_cuts(&futures, (&described, &layouts), &arranged, plan.partitions).await?;
    let shares = borders.shares();
    let files = shares.iter().filter(|(_, share)| *share == Share::Whole).count() as u64;
    futures.plan_stage("join.reduce", files, value_bytes)?;
    let buffer_bytes = outputs::buffer_bytes(&plan, &params.table.output);
    let plan = match shares.len() as u64 - files {
        0 => plan,
        stretches => {
            futures.plan_stage("join.stretch", stretches, 0)?;
            futures.plan_stage("join.assemble", u64::from(plan.partitions) - files, 0)?;
            let partitions = u32::try_from(shares.len()).ok();
            Plan::of_chunks(sizes, partitions, plan.chunk_bytes).map_err(JobError::program)?
        }
    };
    let parts = auto::parts_read(strategy, maps.len() as u64, &plan);
    let file = FileParams {
        directory: params.table.output.clone(),
        name: String::new(),
        form: described[0].form,
        options: params.table.writing,
        sorted_by: arranged.query.left_key(),
        buffer_bytes,
    };
    let rows: Option<u64> = described.iter().map(Described::rows).sum();
    let job = Joining {
        arranged,
        readings: described.map(|table| table.reading),
        layouts,
        borders: futures.put_value(&borders)?,
        shares,
        divided,
        maps,
        row_bytes_max: RowLimit::of(sizes),
        plan,
        about,
        parts,
        file,
        filtering,
        hashes: RefCell::default(),
        filter: RefCell::default(),
        mapped: RefCell::default(),
        stretches: RefCell::default(),
    };
    let shuffled = strategy.run(&futures, &job, job.maps.len(), &job.plan).await?;
    let (reduced, came) = job.files(&futures, shuffled.outputs).await?;
    futures.wait_all(&reduced).await?;
    drop(shuffled.kept);
    let (read, written) = ended(&futures, &job, rows, (&reduced, came)).await?;
    output.commit(&reduced, manifest(job.file.form.format(), &joined.schema)).await?;
    Ok(Rewritten {
        rows_read: read,
        rows: written.rows,
        input_bytes,
        output_bytes: written.bytes,
        row_hash_in: written.row_hash,
        row_hash_out: written.row_hash,
        strategy: Some(strategy),
        maps: job.maps.len() as u64,
        files: reduced.len() as u64,
        owner_bytes: futures.owner_bytes().await?,
    })
}

/// Law 1, from what was read to what was matched: each row was left out by a map, or has come to each partition where it belongs. `rows`: as many as input files say, where they do. `came`: rows that came
/// to files that were assembled. How many were read, and what was written.
async fn ended(
    futures: &Futures,
    job: &Joining,
    rows: Option<u64>,
    (reduced, mut came): (&[ObjectRef], u64),
) -> Result<(u64, Output), JobError> {
    let (mut all, of_maps) = (Mapped::default(), job.mapped.take());
    let mut values = pin!(read_values(futures, &of_maps));
    while let Some(Mapped { read, dropped, divided, passed }) = values.try_next().await? {
        all.read += read;
        all.dropped += dropped;
        all.divided += divided;
        all.passed += passed;
    }
    let mut written = Output::default();
    let mut values = pin!(read_values(futures, reduced));
    while let Some(Reduced { token, row_hash, came: of_rows }) = values.try_next().await? {
        came += of_rows;
        written.add(Output { bytes: token.bytes, rows: token.rows, row_hash });
    }
    let Mapped { read, dropped, divided, passed } = all;
    if read + divided == dropped + passed && passed == came && rows.is_none_or(|rows| rows == read) {
        return Ok((read, written));
    }
    let said =
        rows.map_or("nobody says how many rows there are".to_owned(), |rows| format!("input files say {rows} rows"));
    let detail = format!(
        "{said}; read {read} rows, of which {dropped} were left out and {divided} went to one partition more; passed on {passed} rows; {came} came"
    );
    Err(JobError::Conservation { edge: "input -> pairs".to_owned(), detail })
}
