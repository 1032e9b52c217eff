//! References that a program holds. Dropping the last clone of one releases it.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use futures::stream::{Stream, StreamExt};

use super::call::ProgramCall;
use super::queue::Told;
use crate::ids::{ObjectId, SetId, TaskId};
use crate::shell::Inlet;
use crate::task::{Arg, JobError, Parts, Source};

/// What is released when the last clone goes.
enum Held {
    Object(ObjectId),
    Set(SetId),
    Stream(TaskId),
}

struct Handle {
    owner: Rc<Inlet<ProgramCall>>,
    held: Held,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let call = match self.held {
            Held::Object(object) => ProgramCall::ReleaseObject(object),
            Held::Set(set) => ProgramCall::ReleaseSet(set),
            Held::Stream(task) => ProgramCall::ReleaseStream(task),
        };
        // An Owner that is gone has released everything.
        let _ = self.owner.send(call);
    }
}

/// An object, or parts of it; refers to it before it exists.
#[derive(Clone)]
pub struct ObjectRef {
    handle: Rc<Handle>,
    id: ObjectId,
    parts: Parts,
}

impl ObjectRef {
    /// Takes over a reference that the Owner has counted already.
    pub(super) fn adopt(owner: &Rc<Inlet<ProgramCall>>, id: ObjectId) -> Self {
        let handle = Rc::new(Handle { owner: owner.clone(), held: Held::Object(id) });
        Self { handle, id, parts: Parts::All }
    }

    /// The object.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Which parts of it are meant.
    pub fn parts_meant(&self) -> Parts {
        self.parts
    }

    /// Part `index` of it: only those bytes move.
    pub fn part(&self, index: u32) -> Self {
        self.parts(index..index + 1)
    }

    /// Parts of it, a half-open range: only those bytes move.
    pub fn parts(&self, range: std::ops::Range<u32>) -> Self {
        Self { handle: self.handle.clone(), id: self.id, parts: Parts::Range(range.start, range.end) }
    }

    /// It as an argument of a task.
    pub fn arg(&self) -> Arg {
        Arg { source: Source::Object(self.id), parts: self.parts }
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectRef({}, {:?}, {} clones)", self.id, self.parts, Rc::strong_count(&self.handle))
    }
}

/// An interned list of objects: as an argument it is sent once per node, not once per task.
#[derive(Clone)]
pub struct ObjectSet {
    _handle: Rc<Handle>,
    id: SetId,
    len: usize,
}

impl ObjectSet {
    pub(super) fn adopt(owner: &Rc<Inlet<ProgramCall>>, id: SetId, len: usize) -> Self {
        Self { _handle: Rc::new(Handle { owner: owner.clone(), held: Held::Set(id) }), id, len }
    }

    /// The set.
    pub fn id(&self) -> SetId {
        self.id
    }

    /// How many objects.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it as an argument.
    pub fn arg(&self) -> Arg {
        Arg { source: Source::Set(self.id), parts: Parts::All }
    }

    /// Part `index` of every member as an argument: a column.
    pub fn part(&self, index: u32) -> Arg {
        self.parts(index..index + 1)
    }

    /// Parts of every member as an argument.
    pub fn parts(&self, range: std::ops::Range<u32>) -> Arg {
        Arg { source: Source::Set(self.id), parts: Parts::Range(range.start, range.end) }
    }
}

impl fmt::Debug for ObjectSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectSet({}, {} members)", self.id, self.len)
    }
}

/// The outputs of a streaming task, in order, as they are sealed.
pub struct ObjectStream {
    owner: Rc<Inlet<ProgramCall>>,
    _handle: Rc<Handle>,
    task: TaskId,
    queue: Told<Result<Option<ObjectId>, JobError>>,
    taken: u32,
    over: bool,
}

impl ObjectStream {
    pub(super) fn adopt(
        owner: &Rc<Inlet<ProgramCall>>,
        task: TaskId,
        queue: Told<Result<Option<ObjectId>, JobError>>,
    ) -> Self {
        let handle = Rc::new(Handle { owner: owner.clone(), held: Held::Stream(task) });
        Self { owner: owner.clone(), _handle: handle, task, queue, taken: 0, over: false }
    }

    /// The task that makes the stream.
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// What its next output is called.
    pub(super) fn next_id(&self) -> ObjectId {
        self.task.output(self.taken)
    }

    /// The next output, when it is sealed; `None` at the end.
    ///
    /// # Errors
    /// The task failed.
    pub async fn next(&mut self) -> Result<Option<ObjectRef>, JobError> {
        StreamExt::next(self).await.transpose()
    }
}

impl Stream for ObjectStream {
    type Item = Result<ObjectRef, JobError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let item = ready!(self.queue.poll_recv(cx)).ok_or(JobError::Cancelled).flatten();
        self.over = !matches!(item, Ok(Some(_)));
        self.taken += u32::from(!self.over);
        let item = item.map(|id| id.map(|id| ObjectRef::adopt(&self.owner, id)));
        Poll::Ready(item.transpose())
    }
}

impl Drop for ObjectStream {
    fn drop(&mut self) {
        // What was announced and not taken carries references.
        self.queue.close();
        while let Ok(item) = self.queue.try_recv() {
            if let Ok(Some(id)) = item {
                drop(ObjectRef::adopt(&self.owner, id));
            }
        }
    }
}

impl fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectStream({})", self.task)
    }
}
