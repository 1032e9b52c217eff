//! The futures API.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use exobus_store::{Block, Clock, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use twox_hash::XxHash3_128;

use super::call::{Notify, ProgramCall};
use super::choices::Choices;
use super::compute::{Compute, Computing, Noted};
use super::home::{Home, OtherJobs};
use super::keep::KeepCalls;
use super::queue::{self, Teller};
use super::reference::{ObjectRef, ObjectSet, ObjectStream};
use super::window::Came;
use crate::event::SNAPSHOT_BYTES_MAX;
use crate::ids::{CopyNumber, EdgeId, JobId, JobSecret, NodeId, ObjectId, SetId, TaskId};
use crate::joblog::{Choice, FoldDue, NodeShape};
use crate::printing::Printer;
use crate::shell::Inlet;
use crate::task::{Arg, Description, FunctionName, JobError, Output, Returns, TaskFunction, TaskOptions, decode};
use crate::words::{Listens, Word, Words};

/// The Owner knows the bytes of what has at most so many and was put by the program: it puts them back where the store has lost them.
const PUT_KEPT_BYTES: usize = 4 << 10;

/// A job's way to the cluster. Cheap to clone; lives on the arbiter of the job's Owner.
#[derive(Clone)]
pub struct Futures(Rc<Inner>);

/// What undoes something that a program has made outside.
pub(crate) type CleanUp = Box<dyn FnOnce() + Send>;

struct Inner {
    job: JobId,
    secret: JobSecret,
    run: u32,
    /// How often each content was put in this run.
    puts: RefCell<HashMap<ObjectId, u32>>,
    owner: Rc<Inlet<ProgramCall>>,
    store: Store,
    functions: BTreeMap<Arc<str>, Vec<NodeId>>,
    nodes: Vec<NodeShape>,
    choices: RefCell<Choices>,
    random: Cell<u64>,
    lanes: Cell<u32>,
    /// How many edges were opened, by the hash of what is declared of them.
    edges: RefCell<HashMap<u128, u64>>,
    when_over: RefCell<Vec<CleanUp>>,
    clock: Arc<dyn Clock>,
    computing: Computing,
    printer: Printer,
    home: Home,
    others: OtherJobs,
    keeps: KeepCalls,
    words: Words,
    /// How many listeners were made.
    listeners: Cell<u64>,
}

/// What a [`Futures`] is made of.
pub(crate) struct FuturesParts {
    pub(crate) job: JobId,
    /// From what all ids of the job start.
    pub(crate) secret: JobSecret,
    /// Which run of the job it is, from 0.
    pub(crate) run: u32,
    pub(crate) owner: Inlet<ProgramCall>,
    pub(crate) store: Store,
    /// Which nodes offer each function, when the job started.
    pub(crate) functions: BTreeMap<Arc<str>, Vec<NodeId>>,
    pub(crate) nodes: Vec<NodeShape>,
    pub(crate) choices: Choices,
    pub(crate) seed: u64,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where the program computes.
    pub(crate) compute: Arc<dyn Compute>,
    pub(crate) printer: Printer,
    pub(crate) home: Home,
    pub(crate) others: OtherJobs,
    /// Where what the program keeps goes.
    pub(crate) keeps: KeepCalls,
    /// What people say to the job.
    pub(crate) words: Words,
}

impl fmt::Debug for Futures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Futures({})", self.0.job)
    }
}

impl Futures {
    pub(crate) fn new(parts: FuturesParts) -> Self {
        Self(Rc::new(Inner {
            job: parts.job,
            secret: parts.secret,
            run: parts.run,
            puts: RefCell::default(),
            owner: Rc::new(parts.owner),
            store: parts.store,
            functions: parts.functions,
            nodes: parts.nodes,
            choices: RefCell::new(parts.choices),
            random: Cell::new(parts.seed | 1),
            lanes: Cell::new(0),
            edges: RefCell::default(),
            when_over: RefCell::default(),
            clock: parts.clock,
            computing: Computing::new(parts.compute),
            printer: parts.printer,
            home: parts.home,
            others: parts.others,
            keeps: parts.keeps,
            words: parts.words,
            listeners: Cell::new(0),
        }))
    }

    /// The job.
    pub fn job(&self) -> JobId {
        self.0.job
    }

    /// Submits a task that returns one object.
    ///
    /// # Errors
    /// No node knows the function, or the runtime has ended.
    pub fn submit<F: TaskFunction>(
        &self,
        _function: F,
        params: &F::Params,
        args: &[Arg],
    ) -> Result<ObjectRef, JobError> {
        self.submit_with(_function, params, args, TaskOptions::default())
    }

    /// Submits a task that returns one object, with options.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_with<F: TaskFunction>(
        &self,
        _function: F,
        params: &F::Params,
        args: &[Arg],
        options: TaskOptions,
    ) -> Result<ObjectRef, JobError> {
        let options = TaskOptions { returns: Returns::One, ..options };
        let id = self.submit_named::<F>(encode(params)?, args, options)?;
        Ok(ObjectRef::adopt(&self.0.owner, id.output(0)))
    }

    /// Submits a task that returns `returns` objects.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_many<F: TaskFunction>(
        &self,
        _function: F,
        params: &F::Params,
        args: &[Arg],
        returns: u32,
        options: TaskOptions,
    ) -> Result<Vec<ObjectRef>, JobError> {
        let options = TaskOptions { returns: Returns::Many(returns), ..options };
        let id = self.submit_named::<F>(encode(params)?, args, options)?;
        Ok((0..returns).map(|index| ObjectRef::adopt(&self.0.owner, id.output(index))).collect())
    }

    /// Submits a task that returns a stream of objects of about `options.target_bytes`.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_stream<F: TaskFunction>(
        &self,
        _function: F,
        params: &F::Params,
        args: &[Arg],
        options: TaskOptions,
    ) -> Result<ObjectStream, JobError> {
        let options = TaskOptions { returns: Returns::Stream, ..options };
        let task = self.submit_named::<F>(encode(params)?, args, options)?;
        // The word that there will be no more is no result.
        let (queue, items) = queue::queue(|item| !matches!(item, Ok(None)));
        self.call(ProgramCall::TrackStream { task, queue })?;
        Ok(ObjectStream::adopt(&self.0.owner, task, items))
    }

    /// Submits by name; the references of the outputs are the caller's to adopt.
    fn submit_named<F: TaskFunction>(
        &self,
        params: Bytes,
        args: &[Arg],
        options: TaskOptions,
    ) -> Result<TaskId, JobError> {
        self.submit_described(F::key(), (F::DETERMINISTIC, F::COMMITS), params, args, options)
    }

    /// Submits a task of a function that the program was told, which returns one object.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn submit_function(
        &self,
        function: &FunctionName,
        params: &impl serde::Serialize,
        args: &[Arg],
        options: TaskOptions,
    ) -> Result<ObjectRef, JobError> {
        let options = TaskOptions { returns: Returns::One, ..options };
        let FunctionName { key, deterministic } = function.clone();
        let id = self.submit_described(key, (deterministic, false), encode(params)?, args, options)?;
        Ok(ObjectRef::adopt(&self.0.owner, id.output(0)))
    }

    fn submit_described(
        &self,
        function: Arc<str>,
        (deterministic, commits): (bool, bool),
        params: Bytes,
        args: &[Arg],
        options: TaskOptions,
    ) -> Result<TaskId, JobError> {
        if !self.0.functions.contains_key(&function) {
            let lacking = self.0.nodes.iter().map(|shape| shape.node.to_string()).collect();
            return Err(JobError::UnknownFunction { function: function.to_string(), lacking });
        }
        let description = Description { function, deterministic, commits, params, args: args.to_vec(), options };
        let id = description.id(self.0.secret);
        self.call(ProgramCall::Submit { id, description: Box::new(description) })?;
        Ok(id)
    }

    /// Waits until `n` of the objects exist, or for `timeout` (as long as it takes when `None`). Returns which exist, in
    /// the order in which they came, and which do not.
    ///
    /// # Errors
    /// A task failed, or the runtime has ended.
    pub async fn wait(
        &self,
        objects: &[ObjectRef],
        n: usize,
        timeout: Option<Duration>,
    ) -> Result<(Vec<ObjectRef>, Vec<ObjectRef>), JobError> {
        let replayed = self.0.choices.borrow_mut().replayed();
        let ready = match replayed {
            Some(Choice::Ready(ready)) => ready,
            Some(other) => return Err(not_deterministic("wait", &other)),
            None => {
                let ready = self.first(objects, n.min(objects.len()), timeout).await?;
                self.learned(Choice::Ready(ready.clone()));
                ready
            }
        };
        let by_id: BTreeMap<ObjectId, &ObjectRef> = objects.iter().map(|object| (object.id(), object)).collect();
        let is_ready: std::collections::BTreeSet<_> = ready.iter().copied().collect();
        let first: Option<_> = ready.iter().map(|id| by_id.get(id).map(|object| (*object).clone())).collect();
        let first = first.ok_or_else(|| not_deterministic("wait for other objects", &Choice::Ready(ready)))?;
        let rest = objects.iter().filter(|object| !is_ready.contains(&object.id())).cloned().collect();
        Ok((first, rest))
    }

    async fn first(
        &self,
        objects: &[ObjectRef],
        n: usize,
        timeout: Option<Duration>,
    ) -> Result<Vec<ObjectId>, JobError> {
        let (queue, mut news) = queue::queue(|_| true);
        for object in objects {
            self.call(ProgramCall::Track { object: object.id(), notify: Notify::Queue(queue.clone()) })?;
        }
        drop(queue);
        let mut ready = Vec::with_capacity(n);
        let collect = async {
            while ready.len() < n
                && let Some((id, outcome)) = news.recv().await
            {
                outcome?;
                ready.push(id);
            }
            Ok::<(), JobError>(())
        };
        match timeout {
            None => collect.await?,
            Some(timeout) => {
                // What is there when the time is over is the answer.
                if let Ok(outcome) = tokio::time::timeout(timeout, collect).await {
                    outcome?;
                }
            }
        }
        Ok(ready)
    }

    /// Waits until all of the objects exist.
    ///
    /// # Errors
    /// A task failed, or the runtime has ended.
    pub async fn wait_all(&self, objects: &[ObjectRef]) -> Result<(), JobError> {
        // All of them: nothing is chosen, so nothing is logged.
        self.first(objects, objects.len(), None).await.map(drop)
    }

    /// Waits until one object exists.
    ///
    /// # Errors
    /// Its task failed, or the runtime has ended.
    pub async fn ready(&self, object: &ObjectRef) -> Result<(), JobError> {
        let (sender, outcome) = oneshot::channel();
        self.call(ProgramCall::Track { object: object.id(), notify: Notify::Once(sender) })?;
        outcome.await.map_err(|_| JobError::Cancelled)?
    }

    /// The bytes of an object (or of the parts that are meant), when it exists, in this node's memory.
    ///
    /// # Errors
    /// Its task failed, the bytes cannot be had, or the runtime has ended.
    pub async fn get(&self, object: &ObjectRef) -> Result<Block, JobError> {
        let (answer, block) = oneshot::channel();
        self.call(ProgramCall::Get { object: object.id(), parts: object.parts_meant(), answer })?;
        block.await.map_err(|_| JobError::Cancelled)?
    }

    /// Bytes, rows and row hash of an object, when it exists; its bytes stay where they are.
    ///
    /// # Errors
    /// Its task failed, or the runtime has ended.
    pub async fn stat(&self, object: &ObjectRef) -> Result<Output, JobError> {
        let (answer, output) = oneshot::channel();
        self.call(ProgramCall::Stat { object: object.id(), answer })?;
        output.await.map_err(|_| JobError::Cancelled)?
    }

    /// The value that a task returned.
    ///
    /// # Errors
    /// As [`get`](Self::get), and bytes that are no such value.
    pub async fn get_value<T: DeserializeOwned>(&self, object: &ObjectRef) -> Result<T, JobError> {
        let block = self.get(object).await?;
        decode(&block)
    }

    /// Puts bytes into the store of this node. The same bytes are the same object.
    ///
    /// # Errors
    /// The store cannot take them.
    pub fn put(&self, bytes: &[u8]) -> Result<ObjectRef, JobError> {
        if bytes.is_empty() {
            return self.put_nothing();
        }
        let mut given = None;
        let meta = self.0.store.put(bytes, |content| {
            let object = ObjectId::of_content(self.0.secret, content);
            let number = self.next_number(object);
            given = Some((object, number));
            // A name that is not given: it says that there is none left.
            number.map_or(object.bare(self.0.job), |number| object.copy(self.0.job, number))
        })?;
        let (object, number) = given.expect("a content that was put has a name");
        let Some(number) = number else {
            self.0.store.delete(&[meta.id]);
            let reason = format!("object {object}: all numbers for copies of it were given");
            return Err(JobError::Runtime { reason });
        };
        let output = Output::from(&meta);
        let kept = (bytes.len() <= PUT_KEPT_BYTES).then(|| bytes.into());
        self.call(ProgramCall::Put { object, number, output, kept })?;
        Ok(ObjectRef::adopt(&self.0.owner, object))
    }

    /// What has no bytes is nowhere.
    fn put_nothing(&self) -> Result<ObjectRef, JobError> {
        let object = ObjectId::of_content(self.0.secret, XxHash3_128::oneshot(&[]));
        self.call(ProgramCall::Put { object, number: CopyNumber::FIRST, output: Output::default(), kept: None })?;
        Ok(ObjectRef::adopt(&self.0.owner, object))
    }

    /// Each put makes a copy with a number of its own: one may be freed while the next is made.
    fn next_number(&self, object: ObjectId) -> Option<CopyNumber> {
        let mut puts = self.0.puts.borrow_mut();
        let counted = puts.entry(object).or_default();
        let number = CopyNumber::put(self.0.run, *counted + 1)?;
        *counted += 1;
        Some(number)
    }

    /// Puts a value, as MessagePack.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_value<T: Serialize>(&self, value: &T) -> Result<ObjectRef, JobError> {
        self.put(&encode(value)?)
    }

    /// Makes an interned list of objects. Any number of tasks may read it, each of which must read what was sealed; what many tasks
    /// read part by part goes through an [edge](Self::edge).
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn set(&self, objects: &[ObjectRef]) -> Result<ObjectSet, JobError> {
        let members: Vec<_> = objects.iter().map(ObjectRef::id).collect();
        self.make_set(SetId::of(&members), members, None)
    }

    pub(super) fn make_set(
        &self,
        set: SetId,
        members: Vec<ObjectId>,
        edge: Option<EdgeId>,
    ) -> Result<ObjectSet, JobError> {
        let len = members.len();
        self.call(ProgramCall::MakeSet { set, members, edge })?;
        Ok(ObjectSet::adopt(&self.0.owner, set, len))
    }

    /// How many edges that are declared alike were opened before.
    pub(super) fn next_ordinal(&self, declaration: &[u8]) -> u64 {
        let mut edges = self.0.edges.borrow_mut();
        let opened = edges.entry(XxHash3_128::oneshot(declaration)).or_default();
        *opened += 1;
        *opened - 1
    }

    /// The task of this object is not wanted any more; whoever waits for what it would have made gets [`JobError::Cancelled`]. What it has made
    /// stays what it is: lost, it is made again for who reads it.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn cancel(&self, object: &ObjectRef) -> Result<(), JobError> {
        self.call(ProgramCall::Cancel(object.id()))
    }

    /// The nodes that hold an object; none while it does not exist.
    ///
    /// # Errors
    /// The runtime has ended.
    pub async fn locations(&self, object: &ObjectRef) -> Result<Vec<NodeId>, JobError> {
        if let Some(nodes) = self.0.choices.borrow_mut().located(object.id()) {
            return Ok(nodes);
        }
        let (answer, nodes) = oneshot::channel();
        self.call(ProgramCall::Locations { object: object.id(), answer })?;
        let nodes = nodes.await.map_err(|_| JobError::Cancelled)?;
        self.learned(Choice::Located(object.id(), nodes.clone()));
        Ok(nodes)
    }

    /// The nodes that there were when the job started.
    pub fn nodes(&self) -> Vec<NodeShape> {
        let nodes = self.0.choices.borrow_mut().nodes();
        if let Some(nodes) = nodes {
            return nodes;
        }
        self.learned(Choice::Nodes(self.0.nodes.clone()));
        self.0.nodes.clone()
    }

    /// A random number; the same one when the program is run again.
    pub fn random(&self) -> u64 {
        let replayed = self.0.choices.borrow_mut().replayed();
        match replayed {
            Some(Choice::Random(number)) => number,
            Some(other) => panic!("{}", not_deterministic("random", &other)),
            None => {
                // xorshift64*: seeded by the host, so that simulated runs repeat.
                let mut x = self.0.random.get();
                x ^= x >> 12;
                x ^= x << 25;
                x ^= x >> 27;
                self.0.random.set(x);
                let number = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
                self.learned(Choice::Random(number));
                number
            }
        }
    }

    /// The time: since the beginning of 1970, to the millisecond, by the clock of the node that hosts the job. The same
    /// one when the program is run again, so a resumed program does not see how long it was away: it is for what a
    /// program decides or writes down, not for measuring. It may go backwards when that clock is set.
    pub fn now(&self) -> Duration {
        let replayed = self.0.choices.borrow_mut().replayed();
        match replayed {
            Some(Choice::Time(ms)) => Duration::from_millis(ms),
            Some(other) => panic!("{}", not_deterministic("now", &other)),
            None => {
                let ms = self.0.clock.unix_ms();
                self.learned(Choice::Time(ms));
                Duration::from_millis(ms)
            }
        }
    }

    /// Says what the program is going to do, for progress and ETA.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn plan_stage(&self, stage: &str, tasks: u64, bytes: u64) -> Result<(), JobError> {
        self.call(ProgramCall::Plan { stage: stage.to_owned(), tasks, bytes })
    }

    /// Says something to who watches the job, once.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn say(&self, text: &str) -> Result<(), JobError> {
        let mut text = text.to_owned();
        self.0.printer.hide(&mut text);
        self.call(ProgramCall::Say { text })
    }

    /// Shows who watches the job what its result looks like by now, as JSON; a later snapshot takes the place of an earlier one. A program that is run again shows it again.
    ///
    /// # Errors
    /// It is larger than [`SNAPSHOT_BYTES_MAX`], or the runtime has ended.
    pub fn show_estimate(&self, snapshot: &impl Serialize) -> Result<(), JobError> {
        let mut snapshot = serde_json::to_string(snapshot).map_err(JobError::program)?;
        self.0.printer.hide(&mut snapshot);
        if snapshot.len() > SNAPSHOT_BYTES_MAX {
            let bytes = snapshot.len();
            return Err(JobError::program(format!(
                "a snapshot has {SNAPSHOT_BYTES_MAX} bytes at most, and not {bytes}"
            )));
        }
        self.call(ProgramCall::Estimate { snapshot })
    }

    /// Prints a line for who watches the job. It never waits, and may be lost; see [`printing`](crate::printing). A program that is run
    /// again prints again.
    pub fn print(&self, text: &str) {
        self.0.printer.line(text);
    }

    /// Where the program prints, for what writes to a [`std::io::Write`]; what it [computes](Self::compute) may take it along.
    pub fn printer(&self) -> Printer {
        self.0.printer.clone()
    }

    /// Where the job runs.
    pub fn home(&self) -> &Home {
        &self.0.home
    }

    /// Whether another job of this cluster neither runs nor is going to. A job that is over stays so; of one that is not, a
    /// program that is run again may be told otherwise, so it must not go on but with an error.
    ///
    /// # Errors
    /// That cannot be known now.
    pub async fn is_over(&self, job: JobId) -> Result<bool, JobError> {
        self.0.others.is_over(job).await
    }

    /// Bytes that the Owner's tables take now.
    ///
    /// # Errors
    /// The runtime has ended.
    pub async fn owner_bytes(&self) -> Result<u64, JobError> {
        let (answer, bytes) = oneshot::channel();
        self.call(ProgramCall::OwnerBytes { answer })?;
        bytes.await.map_err(|_| JobError::Cancelled)
    }

    /// What the program has learned so far, for a later run to replay.
    pub fn choices(&self) -> Vec<Choice> {
        self.0.choices.borrow().log().to_vec()
    }

    pub(super) fn track(
        &self,
        object: ObjectId,
        queue: &Teller<(ObjectId, Result<(), JobError>)>,
    ) -> Result<(), JobError> {
        self.call(ProgramCall::Track { object, notify: Notify::Queue(queue.clone()) })
    }

    /// What came first in the run that is replayed; `None` once live.
    pub(super) fn replayed_came(&self) -> Result<Option<Came>, JobError> {
        match self.0.choices.borrow_mut().replayed() {
            None => Ok(None),
            Some(Choice::Ready(ready)) if ready.len() == 1 => Ok(Some(Came::Made(ready[0]))),
            Some(Choice::GivenUp(object)) => Ok(Some(Came::GivenUp(object))),
            Some(other) => Err(not_deterministic("a window", &other)),
        }
    }

    /// What came next of several streams in the run that is replayed, or that no more did; `None` once live.
    pub(super) fn replayed_arrival(&self) -> Result<Option<Option<ObjectId>>, JobError> {
        match self.0.choices.borrow_mut().replayed() {
            None => Ok(None),
            Some(Choice::Ready(ready)) if ready.len() <= 1 => Ok(Some(ready.first().copied())),
            Some(other) => Err(not_deterministic("the next output of several streams", &other)),
        }
    }

    pub(super) fn log_arrival(&self, arrival: Option<ObjectId>) {
        self.learned(Choice::Ready(arrival.into_iter().collect()));
    }

    pub(super) fn log_came(&self, came: Came) {
        self.learned(match came {
            Came::Made(object) => Choice::Ready(vec![object]),
            Came::GivenUp(object) => Choice::GivenUp(object),
        });
    }

    /// The program can do without the task that makes `object`. In the run that is replayed it may have been made: then it is
    /// waited for.
    pub(super) fn may_give_up(&self, object: ObjectId) -> Result<(), JobError> {
        match self.0.choices.borrow().was_ready(object) {
            true => Ok(()),
            false => self.call(ProgramCall::MayGiveUp(object)),
        }
    }

    /// So many numbers of lanes that no other lanes of the job have.
    pub(super) fn lane_numbers(&self, count: u32) -> std::ops::Range<u32> {
        let first = self.0.lanes.get();
        self.0.lanes.set(first + count);
        first..first + count
    }

    /// The folds that were due in the run that is replayed; `None` once live.
    pub(super) fn replayed_folds(&self) -> Result<Option<Vec<FoldDue>>, JobError> {
        match self.0.choices.borrow_mut().replayed() {
            None => Ok(None),
            Some(Choice::Folds(folds)) => Ok(Some(folds)),
            Some(other) => Err(not_deterministic("folds", &other)),
        }
    }

    pub(super) fn log_folds(&self, folds: Vec<FoldDue>) {
        self.learned(Choice::Folds(folds));
    }

    pub(super) fn computing(&self) -> &Computing {
        &self.0.computing
    }

    pub(super) fn owner(&self) -> &Inlet<ProgramCall> {
        &self.0.owner
    }

    /// What came of a computation in the run that is replayed, if it was over then.
    pub(super) fn replayed_computed(&self, number: u64) -> Option<Noted> {
        self.0.choices.borrow_mut().computed(number)
    }

    pub(super) fn log_computed(&self, number: u64, noted: Noted) {
        self.learned(Choice::Computed(number, noted));
    }

    /// The number of the next listener.
    pub(super) fn next_listener(&self) -> u64 {
        let number = self.0.listeners.get();
        self.0.listeners.set(number + 1);
        number
    }

    /// What people say from now on.
    pub(super) fn words(&self) -> Listens {
        self.0.words.listen()
    }

    /// What a listener was told next in the run that is replayed; `None` once live.
    pub(super) fn replayed_word(&self, listener: u64) -> Option<(Word, u64)> {
        self.0.choices.borrow_mut().told(listener)
    }

    pub(super) fn log_word(&self, listener: u64, (word, at): (Word, u64)) {
        self.learned(Choice::Told(listener, word, at));
    }

    /// Something that could have been different: it is logged before anything that comes of it.
    fn learned(&self, choice: Choice) {
        self.0.choices.borrow_mut().append(choice.clone());
        // An Owner that is gone logs nothing, and the next call of the program says that it is.
        let _ = self.call(ProgramCall::Chose(choice));
    }

    /// Has `clean_up` called when the job is over, however it ended: its end is durable where it is logged, and no run of it goes on
    /// or begins any more, here or elsewhere. What was asked for last is called first, after the program is dropped and before who waits
    /// for the job is told. It is called on a thread of its own, and may take as long as it takes.
    ///
    /// A program that has made something outside undoes it here, and never when it fails or is dropped itself: the job may be
    /// another run's by then, or may be run again, by which what was made is used. A run that ends without its job calls nothing; nor
    /// does one whose process is killed.
    pub fn when_over(&self, clean_up: impl FnOnce() + Send + 'static) {
        self.0.when_over.borrow_mut().push(Box::new(clean_up));
    }

    /// What is to be called when the job is over.
    pub(crate) fn take_clean_ups(&self) -> Vec<CleanUp> {
        self.0.when_over.take()
    }

    pub(super) fn keeps(&self) -> &KeepCalls {
        &self.0.keeps
    }

    pub(super) fn call(&self, call: ProgramCall) -> Result<(), JobError> {
        self.0.owner.send(call).map_err(|error| JobError::Runtime { reason: error.to_string() })
    }
}

pub(super) fn not_deterministic(asked: &str, logged: &Choice) -> JobError {
    JobError::program(format!("the program asked for {asked} where its log has {logged:?}: it is not deterministic"))
}

pub(super) fn encode<T: Serialize>(value: &T) -> Result<Bytes, JobError> {
    rmp_serde::to_vec_named(value).map(Bytes::from).map_err(JobError::program)
}

#[cfg(test)]
#[path = "api_tests.rs"]
mod tests;
