//! What a program keeps beyond its job: files of its result, made of objects.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::api::Futures;
use super::call::{FoundCopy, ProgramCall};
use super::reference::ObjectRef;
use crate::ids::CopyId;
use crate::protocol::results::{FILES_MAX, MEMBERS_MAX, NAME_BYTES_MAX};
use crate::task::{JobError, Parts};

/// What a program says of its result, in order.
#[derive(Debug)]
pub(crate) enum KeepCall {
    /// An object goes to the end of a file; the reference is held until it is kept.
    Append { file: u32, name: Arc<str>, object: ObjectRef },
    /// Nothing more will be appended to a file.
    Complete { file: u32, name: Arc<str> },
}

/// Where the calls of a program go; the default leads nowhere.
#[derive(Debug, Default)]
pub(crate) struct KeepCalls {
    sender: RefCell<Option<mpsc::UnboundedSender<KeepCall>>>,
    names: RefCell<BTreeSet<Arc<str>>>,
    members: Cell<usize>,
}

impl KeepCalls {
    /// A queue, and its other end.
    pub(crate) fn queue() -> (Self, mpsc::UnboundedReceiver<KeepCall>) {
        let (sender, calls) = mpsc::unbounded_channel();
        (Self { sender: RefCell::new(Some(sender)), ..Self::default() }, calls)
    }

    /// The program is over: no more calls come.
    pub(super) fn end(&self) {
        self.sender.take();
    }

    fn begin(&self, name: &str) -> Result<(u32, Arc<str>), JobError> {
        let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
        if !is_name {
            let text = format!("{name:?} is no name of a file: 1 to {NAME_BYTES_MAX} bytes without control characters");
            return Err(JobError::program(text));
        }
        let mut names = self.names.borrow_mut();
        if names.len() >= FILES_MAX {
            return Err(JobError::program(format!("a result has up to {FILES_MAX} files")));
        }
        let (file, name) = (names.len() as u32, Arc::<str>::from(name));
        if !names.insert(name.clone()) {
            return Err(JobError::program(format!("the result has a file {name:?} already")));
        }
        Ok((file, name))
    }

    fn call(&self, call: KeepCall) -> Result<(), JobError> {
        let sender = self.sender.borrow();
        let ended = || JobError::Runtime { reason: "nothing is kept here any more".to_owned() };
        sender.as_ref().ok_or_else(ended)?.send(call).map_err(|_| ended())
    }

    fn append(&self, file: u32, name: &Arc<str>, object: &ObjectRef) -> Result<(), JobError> {
        if object.parts_meant() != Parts::All {
            return Err(JobError::program("a file of a result is made of whole objects, not of parts"));
        }
        if self.members.get() >= MEMBERS_MAX {
            return Err(JobError::program(format!("a result has up to {MEMBERS_MAX} members in all of its files")));
        }
        self.members.set(self.members.get() + 1);
        self.call(KeepCall::Append { file, name: name.clone(), object: object.clone() })
    }
}

/// A file of the job's result that grows: readers see what was appended by now. It is complete with [`complete`](Self::complete), or
/// when the program has returned.
pub struct ResultFile {
    futures: Futures,
    file: u32,
    name: Arc<str>,
}

impl fmt::Debug for ResultFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResultFile({:?})", self.name)
    }
}

impl ResultFile {
    /// Puts the bytes of a whole object at the end of the file, once it exists. The file holds a reference to it until then.
    ///
    /// # Errors
    /// Parts of an object, more members than a result has, or the runtime has ended.
    pub fn append(&self, object: &ObjectRef) -> Result<(), JobError> {
        self.futures.keeps().append(self.file, &self.name, object)
    }

    /// Nothing more will be appended: its length is known from now on.
    ///
    /// # Errors
    /// The runtime has ended.
    pub fn complete(self) -> Result<(), JobError> {
        self.futures.keeps().call(KeepCall::Complete { file: self.file, name: self.name.clone() })
    }
}

impl Futures {
    /// Keeps an object beyond the job, as a file of its result of this name. It is there for a time that the cluster sets, an hour by default,
    /// and can be read by [clients](crate::results) under the job's id. Whether it could be kept, the job's end says
    /// ([`JobEnd::kept`](crate::protocol::host::JobEnd::kept)); a job that fails or is cancelled has no result.
    ///
    /// # Errors
    /// Another file has this name, it is no name, there are too many files, or the runtime has ended.
    pub fn keep_result(&self, name: &str, object: &ObjectRef) -> Result<(), JobError> {
        let file = self.result_file(name)?;
        file.append(object)?;
        file.complete()
    }

    /// Begins a file of the job's result, which is there for readers from the first object on that is appended to it.
    ///
    /// # Errors
    /// As [`keep_result`](Self::keep_result).
    pub fn result_file(&self, name: &str) -> Result<ResultFile, JobError> {
        let (file, name) = self.keeps().begin(name)?;
        Ok(ResultFile { futures: self.clone(), file, name })
    }

    /// Whether the program wanted anything kept.
    pub(crate) fn has_kept(&self) -> bool {
        !self.keeps().names.borrow().is_empty()
    }

    /// The program is over.
    pub(crate) fn end_keeping(&self) {
        self.keeps().end();
    }

    /// Where an object is, when it exists; it is made again where it was lost, or where `unreadable`, the copy that was found before, is of
    /// no use.
    pub(crate) async fn find(&self, object: &ObjectRef, unreadable: Option<CopyId>) -> Result<FoundCopy, JobError> {
        let (answer, found) = oneshot::channel();
        self.call(ProgramCall::Find { object: object.id(), unreadable, answer })?;
        found.await.map_err(|_| JobError::Cancelled)?
    }
}
