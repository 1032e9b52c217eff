//! The input of a job: its list is made by one task, and comes to those that read files in pages.

use std::path::PathBuf;

use exobus_actors::futures::{Futures, ObjectRef};
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task::{Arg, JobError};
use exobus_files::{FileStatus, Location, visit_files};

use crate::files::{self, FileList};

/// Lists the inputs; files that are no multiple of `row_bytes` long are refused. `partial`: directories that a job has claimed
/// and not committed are read, too.
pub(crate) fn list(
    context: &TaskContext<'_>,
    (inputs, partial): (&[PathBuf], bool),
    row_bytes: Option<u64>,
) -> Result<FileList, TaskError> {
    let mut list = FileList::default();
    let check = |location: &Location| context.check_path(location.as_ref());
    visit_files((inputs, partial), check, |location, FileStatus { bytes, .. }| {
        let path = location.as_ref();
        if let Some(row_bytes) = row_bytes {
            files::whole_rows(path, bytes, row_bytes)?;
        }
        list.push(path, bytes);
        context.check_cancelled()
    })?;
    Ok(list)
}

/// The pages of a list, as objects.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Where in the input each page begins.
    starts: Vec<u64>,
    objects: Vec<ObjectRef>,
}

impl Pages {
    /// Puts the pages of `files` into the store.
    pub(crate) fn put(futures: &Futures, files: &FileList) -> Result<Self, JobError> {
        let mut pages = Self { starts: Vec::new(), objects: Vec::new() };
        for page in files.pages() {
            pages.starts.push(page.start());
            pages.objects.push(futures.put_value(&page)?);
        }
        Ok(pages)
    }

    /// The page with byte `at` of the input, for a task that reads from there on what is a chunk or less.
    pub(crate) fn at(&self, at: u64) -> Arg {
        self.objects[self.index(at)].arg()
    }

    /// The number of that page.
    pub(crate) fn index(&self, at: u64) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }
}

/// The page that a task was given.
pub(crate) fn page(context: &TaskContext<'_>, argument: usize) -> Result<FileList, TaskError> {
    rmp_serde::from_slice(&context.block(argument)).map_err(TaskError::fatal)
}
