//! What a program asks of its Owner. Both live on the same arbiter, so these calls never leave the process.

use std::ops::Range;

use exobus_store::Block;
use tokio::sync::{mpsc, oneshot};

use super::queue::Teller;
use crate::ids::{CopyId, CopyNumber, EdgeId, NodeId, ObjectId, SetId, TaskId};
use crate::joblog::{Choice, FoldDue};
use crate::task::{Description, EdgeShape, JobError, Output, Parts};

/// Who is told that an object exists, or never will.
#[derive(Debug)]
pub enum Notify {
    /// One who waits for this object only.
    Once(oneshot::Sender<Result<(), JobError>>),
    /// One who waits for the first of several.
    Queue(Teller<(ObjectId, Result<(), JobError>)>),
}

/// An object that exists, and the copy of it that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCopy {
    /// Size, rows and hash. Of an object without bytes nothing is anywhere.
    pub output: Output,
    /// The node that has the copy.
    pub node: NodeId,
    /// The copy.
    pub copy: CopyId,
}

/// One call of a program.
#[derive(Debug)]
pub enum ProgramCall {
    /// A task; its outputs get one reference each.
    Submit {
        /// The hash of the description.
        id: TaskId,
        /// What to run.
        description: Box<Description>,
    },
    /// Bytes that the program put into the node's store.
    Put {
        /// The hash of the bytes.
        object: ObjectId,
        /// Which copy of it was made.
        number: CopyNumber,
        /// How many.
        output: Output,
        /// The bytes, where they are few.
        kept: Option<Box<[u8]>>,
    },
    /// Tell when an object exists.
    Track {
        /// The object.
        object: ObjectId,
        /// Whom to tell.
        notify: Notify,
    },
    /// Tell of each output of a stream, then of its end.
    TrackStream {
        /// The streaming task.
        task: TaskId,
        /// Whom to tell; each object comes with a reference.
        queue: Teller<Result<Option<ObjectId>, JobError>>,
    },
    /// The bytes of an object, when it exists.
    Get {
        /// The object.
        object: ObjectId,
        /// Which parts.
        parts: Parts,
        /// Whom to give them.
        answer: oneshot::Sender<Result<Block, JobError>>,
    },
    /// Size, rows and hash of an object, when it exists.
    Stat {
        /// The object.
        object: ObjectId,
        /// Whom to tell.
        answer: oneshot::Sender<Result<Output, JobError>>,
    },
    /// Where is an object, when it exists? One that was lost is made again first.
    Find {
        /// The object.
        object: ObjectId,
        /// This copy of it was found before, and is of no use where it is.
        unreadable: Option<CopyId>,
        /// Whom to tell.
        answer: oneshot::Sender<Result<FoundCopy, JobError>>,
    },
    /// A list of objects, with one reference.
    MakeSet {
        /// The hash of the list.
        set: SetId,
        /// The list.
        members: Vec<ObjectId>,
        /// The edge that they have joined, where it is of one.
        edge: Option<EdgeId>,
    },
    /// An edge, which objects may join from now on.
    OpenEdge {
        /// Its name.
        edge: EdgeId,
        /// What is declared of it.
        shape: EdgeShape,
    },
    /// An object joins an edge.
    JoinEdge {
        /// The edge.
        edge: EdgeId,
        /// The object.
        object: ObjectId,
    },
    /// Nobody will read these parts of the members of an edge, but for who has.
    Unread {
        /// The edge.
        edge: EdgeId,
        /// The parts.
        parts: Range<u32>,
    },
    /// Nobody will read anything more of this edge, or of any.
    StopEdges(Option<EdgeId>),
    /// Nothing joins an edge any more.
    ReleaseEdge(EdgeId),
    /// One reference less.
    ReleaseObject(ObjectId),
    /// One reference less.
    ReleaseSet(SetId),
    /// One reference less.
    ReleaseStream(TaskId),
    /// The task is not wanted any more.
    Cancel(ObjectId),
    /// Parts are going to be pushed to a node.
    OpenLane {
        /// A number of its own.
        lane: u32,
        /// The node.
        node: NodeId,
        /// What is wanted of each object, in the pieces in which tasks will ask for it.
        ranges: Vec<Parts>,
        /// How many blocks make a fold.
        fold_at: u32,
        /// Who is told which blocks are to be folded.
        news: mpsc::UnboundedSender<FoldDue>,
    },
    /// An object that exists will be merged in these lanes.
    Push {
        /// The object.
        object: ObjectId,
        /// The lanes.
        lanes: Range<u32>,
    },
    /// The program can do without the task that makes this object, where it is overdue.
    MayGiveUp(ObjectId),
    /// Which nodes hold an object?
    Locations {
        /// The object.
        object: ObjectId,
        /// Whom to tell.
        answer: oneshot::Sender<Vec<NodeId>>,
    },
    /// The program says what it is going to do, for progress.
    Plan {
        /// Name of the stage.
        stage: String,
        /// How many tasks.
        tasks: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// The program has something to say to who watches the job.
    Say {
        /// In words.
        text: String,
    },
    /// The program shows what its result looks like by now.
    Estimate {
        /// JSON.
        snapshot: String,
    },
    /// How many bytes does the Owner take?
    OwnerBytes {
        /// Whom to tell.
        answer: oneshot::Sender<u64>,
    },
    /// The program has learned something that could have been different.
    Chose(Choice),
    /// A computation of the program begins.
    Computes {
        /// Its number.
        number: u64,
        /// What its thread is called.
        thread: String,
    },
    /// The thread of a computation has nothing more to do for the program.
    Computed {
        /// Its number.
        number: u64,
    },
    /// The program is over.
    Finished(Result<Vec<u8>, JobError>),
}
