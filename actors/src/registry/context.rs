//! What a task function sees of the world.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use exobus_store::lent::LentStore;
use exobus_store::{
    Block, Clock, Grant, ObjectReader, ObjectWriter, PartMeta, RowHash, Scratch, Store, StoreError, WriterOptions,
};
use serde::Serialize;

use super::Function;
use super::error::TaskError;
use super::in_place::InPlace;
use super::outside::{Account, Outside};
use super::roots::Roots;
use crate::ids::{Attempt, CopyId, JobId, TaskId};
use crate::printing::Printer;
use crate::task::{Align, Consumed, Left, Output, Returns, TaskFailure, TaskFigures};

/// Outputs of so many bytes at most are told to the Owner with the completion.
pub(crate) const VALUE_MAX_BYTES: usize = 2048;

/// One argument of a running task.
pub enum Argument {
    /// In memory: one block for an object, one for each member of a set.
    Whole(Vec<Block>),
    /// To be read while the task runs: one reader for an object, one for each member of a set.
    Stream(VecDeque<ObjectReader>),
    /// Where it lies: one for an object, one for each member of a set.
    InPlace(Vec<InPlace>),
}

/// Memory that a task was granted before it started, with its arguments.
#[derive(Debug, Default)]
pub struct Granted {
    /// What was asked for when it was submitted.
    pub(crate) scratch: Vec<Scratch>,
    /// A window for each reader of its streamed arguments.
    pub(crate) windows: Vec<Scratch>,
    /// Memory beside the store; `None`: nothing.
    pub(crate) outside: Option<Grant>,
    /// What was declared for the process that runs it; `None`: nothing.
    pub(crate) declared: Option<Grant>,
}

/// Called when a streaming task seals an output: index and what it is.
pub type Yield<'a> = &'a mut dyn FnMut(u32, Output);

/// Everything that a running attempt may use.
pub struct TaskContext<'a> {
    parts: ContextParts,
    announce: Yield<'a>,
    state: Option<&'a mut super::SetupState>,
    /// Told of each path before the function uses it.
    note: Option<&'a dyn Fn(&Path)>,
    /// One for each output; of a stream, the one that is being made.
    made: Vec<Made>,
    /// Of a stream: what was announced.
    announced: Vec<Output>,
    /// What each argument has, by the directories of its objects; of one that stays in place nothing is read.
    given: Vec<Option<Output>>,
    consumed: Vec<Reading>,
    figures: TaskFigures,
    /// What was returned, where it is small.
    value: Option<Bytes>,
}

/// What a function says of an argument that it reads.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// What it has read; nothing where it has not said.
    read: Option<Output>,
    /// It reads no further.
    ends: bool,
}

/// What has become of an output.
enum Made {
    Unwritten,
    Open(Box<ObjectWriter>),
    Sealed(Output),
    /// Sealing it failed: what was written is gone, and must not be taken for nothing.
    Failed,
}

/// Where objects are made.
pub(crate) enum Objects {
    /// In the store of this process.
    Here(Store),
    /// In the store of the node, which has lent its region to this process.
    Lent(LentStore),
}

impl Objects {
    fn writer(&self, id: CopyId, options: WriterOptions) -> ObjectWriter {
        match self {
            Self::Here(store) => store.writer(id, options),
            Self::Lent(store) => store.writer(id, options),
        }
    }

    fn scratch(&self, bytes: u64) -> Result<Scratch, StoreError> {
        match self {
            Self::Here(store) => store.scratch(bytes),
            Self::Lent(store) => store.scratch(bytes),
        }
    }

    fn no_grant(&self) -> Grant {
        match self {
            Self::Here(store) => store.no_grant(),
            Self::Lent(store) => store.no_grant(),
        }
    }
}

/// What an executor makes a context of.
pub(crate) struct ContextParts {
    pub(crate) store: Objects,
    pub(crate) roots: Roots,
    pub(crate) job: JobId,
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
    pub(crate) args: Vec<Argument>,
    pub(crate) memory: Granted,
    pub(crate) returns: Returns,
    pub(crate) target_bytes: u64,
    pub(crate) align: Align,
    pub(crate) cancelled: Arc<AtomicBool>,
    pub(crate) printer: Printer,
    pub(crate) account: Arc<Account>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What an attempt leaves behind when it succeeded.
pub(crate) struct Finished {
    pub(crate) outputs: Vec<Output>,
    pub(crate) consumed: Vec<Consumed>,
    pub(crate) figures: TaskFigures,
    /// The bytes of the only output, where a small value was returned: its object may be on disk by now.
    pub(crate) value: Option<Bytes>,
}

/// Whether a task should stop, as [`TaskContext::cancelled`] says.
#[derive(Clone, Debug)]
pub struct CancelSignal(Arc<AtomicBool>);

impl CancelSignal {
    /// An error when the task should stop; for `?` inside loops.
    ///
    /// # Errors
    /// [`TaskError::Cancelled`].
    pub fn check(&self) -> Result<(), TaskError> {
        if self.0.load(Ordering::Relaxed) { Err(TaskError::Cancelled) } else { Ok(()) }
    }
}

impl<'a> TaskContext<'a> {
    pub(crate) fn new(parts: ContextParts, announce: Yield<'a>, state: Option<&'a mut super::SetupState>) -> Self {
        let outputs = match parts.returns {
            Returns::One => 1,
            Returns::Many(n) => n as usize,
            Returns::Stream => 1,
        };
        let given: Vec<_> = parts.args.iter().map(argument_output).collect();
        let args_bytes = given.iter().flatten().map(|given| given.bytes).sum();
        parts.account.begins_with(parts.memory.outside.as_ref().map_or(0, Grant::bytes));
        Self {
            parts,
            announce,
            state,
            note: None,
            made: (0..outputs).map(|_| Made::Unwritten).collect(),
            announced: Vec::new(),
            value: None,
            consumed: vec![Reading::default(); given.len()],
            given,
            figures: TaskFigures { args_bytes, ..TaskFigures::default() },
        }
    }

    /// From now on `note` is told of each path before the function uses it.
    pub(crate) fn note_paths(&mut self, note: &'a dyn Fn(&Path)) {
        self.note = Some(note);
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.parts.job
    }

    /// The task.
    pub fn task(&self) -> TaskId {
        self.parts.task
    }

    /// Which try this is, from 1.
    pub fn attempt(&self) -> Attempt {
        self.parts.attempt
    }

    /// Prints a line for who watches the job. It never waits, and may be lost; see [`printing`](crate::printing).
    pub fn print(&self, text: &str) {
        self.parts.printer.line(text);
    }

    /// Where the task prints, for what writes to a [`std::io::Write`] or prints on other threads.
    pub fn printer(&self) -> Printer {
        self.parts.printer.clone()
    }

    /// Checks a file or folder that the task is about to read, make, rename or remove: jobs may use what is below the
    /// roots of the job's tenant. Every function that takes paths from its parameters calls this first, for each at the time when it uses
    /// it: should its executor process die, the path that was checked last is in the error.
    ///
    /// # Errors
    /// [`TaskError::Files`], naming the path and the roots.
    pub fn check_path(&self, path: &Path) -> Result<(), TaskError> {
        if let Some(note) = self.note {
            note(path);
        }
        Ok(self.parts.roots.check(path)?)
    }

    /// How many arguments there are.
    pub fn args(&self) -> usize {
        self.parts.args.len()
    }

    /// Whether an argument comes as a stream: what a function asks that takes [`Either`](super::Mode::Either).
    pub fn is_stream(&self, index: usize) -> bool {
        matches!(self.parts.args.get(index), Some(Argument::Stream(_)))
    }

    /// The blocks of a whole argument: one for an object, one for each member of a set, in order.
    ///
    /// # Panics
    /// When there is no such argument or it is a stream: both are mistakes of the function.
    pub fn blocks(&self, index: usize) -> Vec<Block> {
        match &self.parts.args[index] {
            Argument::Whole(blocks) => blocks.clone(),
            Argument::Stream(_) => panic!("argument {index} is a stream"),
            Argument::InPlace(_) => panic!("argument {index} is in place"),
        }
    }

    /// The only block of a whole argument that is an object.
    ///
    /// # Panics
    /// As [`blocks`](Self::blocks), and for a set.
    pub fn block(&self, index: usize) -> Block {
        let mut blocks = self.blocks(index);
        assert_eq!(blocks.len(), 1, "argument {index} is a set");
        blocks.remove(0)
    }

    /// The readers of a streamed argument: one for an object, one for each member of a set, in order. Taken once.
    ///
    /// # Panics
    /// When there is no such argument or it is whole.
    pub fn readers(&mut self, index: usize) -> VecDeque<ObjectReader> {
        match &mut self.parts.args[index] {
            Argument::Stream(readers) => std::mem::take(readers),
            Argument::Whole(_) => panic!("argument {index} is whole"),
            Argument::InPlace(_) => panic!("argument {index} is in place"),
        }
    }

    /// The objects of an argument that is [in place](super::Mode::InPlace): one for an object, one for each member of a
    /// set, in order.
    ///
    /// # Panics
    /// When there is no such argument or it is taken otherwise.
    pub fn in_place(&self, index: usize) -> &[InPlace] {
        match &self.parts.args[index] {
            Argument::InPlace(objects) => objects,
            Argument::Whole(_) | Argument::Stream(_) => panic!("argument {index} is not in place"),
        }
    }

    /// The same, for functions that go on with the context while they look. Taken once.
    ///
    /// # Panics
    /// As [`in_place`](Self::in_place).
    pub fn take_in_place(&mut self, index: usize) -> Vec<InPlace> {
        match &mut self.parts.args[index] {
            Argument::InPlace(objects) => std::mem::take(objects),
            Argument::Whole(_) | Argument::Stream(_) => panic!("argument {index} is not in place"),
        }
    }

    /// Gives the memory of a whole argument back before the task ends.
    pub fn release(&mut self, index: usize) {
        if let Argument::Whole(blocks) = &mut self.parts.args[index] {
            blocks.clear();
        }
        if let Objects::Lent(store) = &self.parts.store {
            store.flush();
        }
    }

    /// The writer of the only output.
    ///
    /// # Errors
    /// See [`output_at`](Self::output_at).
    pub fn output(&mut self) -> Result<&mut ObjectWriter, TaskError> {
        self.output_at(0)
    }

    /// The writer of the only output, which will have about `bytes` bytes.
    ///
    /// # Errors
    /// See [`output_at`](Self::output_at).
    pub fn output_sized(&mut self, bytes: u64) -> Result<&mut ObjectWriter, TaskError> {
        self.output_at_sized(0, bytes)
    }

    /// The writer of output `index`, made when it is first asked for. For a stream: of the output that is being made.
    ///
    /// # Errors
    /// No such output, or it is sealed.
    pub fn output_at(&mut self, index: usize) -> Result<&mut ObjectWriter, TaskError> {
        self.output_at_sized(index, self.parts.target_bytes)
    }

    /// The writer of output `index`, which will have about `bytes` bytes.
    ///
    /// # Errors
    /// See [`output_at`](Self::output_at).
    pub fn output_at_sized(&mut self, index: usize, bytes: u64) -> Result<&mut ObjectWriter, TaskError> {
        let (position, number) = match self.parts.returns {
            Returns::Stream => (0, self.announced.len()),
            Returns::One | Returns::Many(_) => (index, index),
        };
        let outputs = self.made.len();
        let missing = || TaskError::fatal(format!("output {index} of {outputs}"));
        let made = self.made.get_mut(position).ok_or_else(missing)?;
        if let Made::Unwritten = made {
            let maker = self.parts.attempt.makes();
            let options = WriterOptions { align: self.parts.align, bytes_hint: bytes, maker: maker.get() };
            let copy = self.parts.task.output(number as u32).copy(self.parts.job, maker);
            let writer = self.parts.store.writer(copy, options);
            *made = Made::Open(Box::new(writer));
        }
        match made {
            Made::Open(writer) => Ok(writer),
            Made::Failed => Err(TaskError::fatal(format!("output {index} could not be sealed"))),
            _ => Err(TaskError::fatal(format!("output {index} is sealed"))),
        }
    }

    /// Seals output `index` of several while the task goes on with others: from here on the store may spill it, so that
    /// a task holds no more than the output that it writes, however much it makes in all.
    ///
    /// Nobody hears of it before the attempt has completed, with all outputs: an attempt that fails or is cancelled leaves
    /// none, and another one makes all of them again. That is why such a task returns [`Returns::Many`] and not a stream,
    /// which announces outputs at once and so can neither be made again nor be copied. An output that was never written is
    /// sealed empty.
    ///
    /// # Errors
    /// The task does not return several outputs, there is no such output or it is sealed, or the store fails.
    pub fn seal_output(&mut self, index: usize) -> Result<(), TaskError> {
        if !matches!(self.parts.returns, Returns::Many(_)) {
            return Err(TaskError::fatal("seal_output in a task that does not return several outputs"));
        }
        let outputs = self.made.len();
        let made = self.made.get_mut(index);
        let made = made.ok_or_else(|| TaskError::fatal(format!("output {index} of {outputs}")))?;
        if let Made::Sealed(_) = made {
            return Err(TaskError::fatal(format!("output {index} is sealed")));
        }
        let output = std::mem::replace(made, Made::Failed).seal()?;
        self.made[index] = Made::Sealed(output);
        Ok(())
    }

    /// Seals the current output of a stream and announces it; the next [`output`](Self::output) is a new one.
    ///
    /// # Errors
    /// The task does not return a stream, or the store fails.
    pub fn next_output(&mut self) -> Result<(), TaskError> {
        if self.parts.returns != Returns::Stream {
            return Err(TaskError::fatal("next_output in a task that does not return a stream"));
        }
        self.output()?;
        let output = std::mem::replace(&mut self.made[0], Made::Failed).seal()?;
        self.made[0] = Made::Unwritten;
        (self.announce)(self.announced.len() as u32, output);
        self.announced.push(output);
        Ok(())
    }

    /// For streams: the size in bytes that outputs should have; 0 when the function decides.
    pub fn target_bytes(&self) -> u64 {
        self.parts.target_bytes
    }

    /// Scratch memory of at least so many bytes: one of the pieces that were granted before the task started
    /// ([`TaskOptions::scratch_bytes`](crate::task::TaskOptions::scratch_bytes)), the smallest that will do. Beyond those
    /// it comes from the node's budget, or is refused at once: then write to disk instead.
    ///
    /// # Errors
    /// [`StoreError::Denied`].
    pub fn scratch(&mut self, bytes: u64) -> Result<Scratch, StoreError> {
        let granted = self.parts.memory.scratch.iter().enumerate().filter(|(_, piece)| piece.len() as u64 >= bytes);
        match granted.min_by_key(|(_, piece)| piece.len()).map(|(position, _)| position) {
            Some(position) => Ok(self.parts.memory.scratch.swap_remove(position)),
            None => self.parts.store.scratch(bytes),
        }
    }

    /// Memory beside the store, for what the function allocates itself (decoders, builders, hash tables): first of what was granted before the
    /// task started ([`TaskOptions::outside_bytes`](crate::task::TaskOptions::outside_bytes)). Beyond that the store of the node gives way if it
    /// can, or it is denied: an answer within some 100 ms, never a wait. Who is denied does with less, or on disk. Who cannot go on without fails:
    /// where that was denied twice within 10 s and nothing granted since, or the error is passed on, the attempt is nobody's fault, and the task begins again when as
    /// much is there as it has asked for.
    ///
    /// # Errors
    /// [`StoreError::Denied`]; [`StoreError::NeverGranted`] where the store could not give it whoever gave way.
    pub fn outside(&mut self, bytes: u64) -> Result<Outside, StoreError> {
        let ContextParts { memory, store, account, clock, .. } = &mut self.parts;
        if let Some(grant) = memory.outside.as_mut().and_then(|granted| granted.split(bytes)) {
            account.granted();
            return Ok(Outside::counted(grant, account, clock));
        }
        let granted = memory.outside.take().unwrap_or_else(|| store.no_grant());
        let before = granted.bytes();
        let mut outside = Outside::counted(granted, account, clock);
        match outside.resize(bytes) {
            Ok(()) => Ok(outside),
            Err(error) => {
                memory.outside = (before > 0).then(|| outside.into_grant());
                Err(error)
            }
        }
    }

    /// All memory beside the store that was granted before the task started and has not been taken: what it said that it needs, and more where an attempt
    /// before was denied some. It may be nothing; it grows as what [`outside`](Self::outside) gives.
    pub fn outside_granted(&mut self) -> Outside {
        let ContextParts { memory, store, account, clock, .. } = &mut self.parts;
        let granted = memory.outside.take().unwrap_or_else(|| store.no_grant());
        Outside::counted(granted, account, clock)
    }

    /// Memory to put rows together in that go on from one chunk of a stream to the next: a window for each reader of all
    /// streamed arguments, as many bytes each and at least 4096, granted with them. Taken once.
    pub fn windows(&mut self) -> Vec<Scratch> {
        std::mem::take(&mut self.parts.memory.windows)
    }

    /// Whether the task should stop: it was cancelled, or another attempt has won.
    pub fn cancelled(&self) -> bool {
        self.parts.cancelled.load(Ordering::Relaxed)
    }

    /// An error when the task should stop; for `?` inside loops.
    ///
    /// # Errors
    /// [`TaskError::Cancelled`].
    pub fn check_cancelled(&self) -> Result<(), TaskError> {
        if self.cancelled() { Err(TaskError::Cancelled) } else { Ok(()) }
    }

    /// What says the same where the context is in other hands.
    pub fn cancel_signal(&self) -> CancelSignal {
        CancelSignal(self.parts.cancelled.clone())
    }

    /// The state that the function's `setup` made in this executor.
    ///
    /// # Panics
    /// When the function has no `setup`, or it makes another type.
    pub fn state<T: 'static>(&mut self) -> &mut T {
        let state = self.state.as_mut().expect("the function declares a setup");
        state.downcast_mut::<T>().expect("the type that the setup makes")
    }

    /// Says what was read of argument `arg`, counted from the bytes consumed (law 1). Calls add up. Who says nothing is taken to have read
    /// what it was given, but of an [edge](crate::futures::Edge), whose readers have to say it. Bytes are those of parts
    /// ([`BlockHeader::bytes`](exobus_store::BlockHeader::bytes)): a block of several parts that are [aligned](crate::task::TaskOptions::align)
    /// is longer, by the gaps between them.
    ///
    /// # Panics
    /// There is no such argument.
    pub fn consumed(&mut self, arg: usize, bytes: u64, rows: u64, row_hash: RowHash) {
        self.consumed[arg].read.get_or_insert_default().add(Output { bytes, rows, row_hash });
    }

    /// Says that argument `arg` is read no further than [`consumed`](Self::consumed) says, since the function has what it wants (a limit,
    /// say): the rest of it counts as unread.
    ///
    /// # Panics
    /// There is no such argument.
    pub fn reads_no_further(&mut self, arg: usize) {
        self.consumed[arg].ends = true;
        self.consumed[arg].read.get_or_insert_default();
    }

    /// Says how many bytes were read from outside the store (input files). Calls add up.
    pub fn read_outside(&mut self, bytes: u64) {
        self.figures.outside_in_bytes += bytes;
    }

    /// Says how many bytes were written outside the store (output files). Calls add up.
    pub fn wrote_outside(&mut self, bytes: u64) {
        self.figures.outside_out_bytes += bytes;
    }

    /// Writes a value as the only part of output 0, unless the function wrote an output itself.
    ///
    /// # Errors
    /// The value cannot be encoded, or the store fails.
    pub fn return_value<T: Serialize>(&mut self, value: &T) -> Result<(), TaskError> {
        if size_of::<T>() == 0 || self.parts.returns != Returns::One || !matches!(self.made[0], Made::Unwritten) {
            return Ok(());
        }
        let bytes = rmp_serde::to_vec_named(value).map_err(TaskError::fatal)?;
        let writer = self.output()?;
        writer.begin_part(Some(bytes.len() as u64))?;
        writer.write(&bytes)?;
        writer.end_part(1, RowHash::default());
        if bytes.len() <= VALUE_MAX_BYTES {
            self.value = Some(bytes.into());
        }
        Ok(())
    }

    /// Calls a function in this context, and seals what it left open.
    pub(crate) fn call(mut self, function: &Function, params: &[u8]) -> Result<Finished, TaskFailure> {
        let called = (function.call)(&mut self, params);
        let finished = called.and_then(|()| self.finish());
        finished.map_err(|error| self.parts.account.failure(error.into_failure(), self.parts.clock.now()))
    }

    /// Seals what is open. Outputs that were never written are empty, and empty objects take no place anywhere.
    fn finish(&mut self) -> Result<Finished, TaskError> {
        let consumed = std::mem::take(&mut self.consumed).into_iter().zip(std::mem::take(&mut self.given));
        let consumed =
            (0..).zip(consumed).filter_map(|(arg, (reading, given))| Some(reading.of(arg, given?))).collect();
        if self.parts.returns == Returns::Stream {
            if !matches!(self.made[0], Made::Unwritten) {
                self.next_output()?;
            }
            let outputs = std::mem::take(&mut self.announced);
            return Ok(Finished { outputs, consumed, figures: self.figures, value: None });
        }
        let outputs = self.made.drain(..).map(Made::seal).collect::<Result<_, _>>()?;
        Ok(Finished { outputs, consumed, figures: self.figures, value: self.value.take() })
    }
}

impl Reading {
    /// The same of argument `arg`, of which the attempt was given so much.
    fn of(self, arg: u32, given: Output) -> Consumed {
        let read = self.read.unwrap_or(given);
        let left = match given.beyond(read) {
            left if left == Output::default() => Left::Nothing,
            left if self.ends => Left::Unread(left),
            left => Left::Missing(left),
        };
        Consumed { arg, read, unsaid: self.read.is_none(), left }
    }
}

impl Made {
    fn seal(self) -> Result<Output, TaskError> {
        match self {
            Self::Unwritten => Ok(Output::default()),
            Self::Open(writer) => {
                let meta = writer.seal()?;
                Ok(Output::from(&meta))
            }
            Self::Sealed(output) => Ok(output),
            Self::Failed => Err(TaskError::fatal("an output could not be sealed")),
        }
    }
}

/// What an argument has, by the directories of its objects.
fn argument_output(argument: &Argument) -> Option<Output> {
    let mut given = Output::default();
    let mut add = |parts: &[PartMeta]| {
        let of_part = |part: &PartMeta| Output { bytes: part.bytes, rows: part.rows, row_hash: part.row_hash };
        parts.iter().for_each(|part| given.add(of_part(part)));
    };
    match argument {
        Argument::Whole(blocks) => blocks.iter().for_each(|block| add(block.parts())),
        Argument::Stream(readers) => readers.iter().for_each(|reader| add(reader.parts())),
        Argument::InPlace(_) => return None,
    }
    Some(given)
}
