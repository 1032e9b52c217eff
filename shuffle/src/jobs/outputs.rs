//! Part files of a job that are not committed yet, and committing them: the same for all jobs that write files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use exobus_actors::futures::Futures;
use exobus_actors::registry::{TaskContext, TaskError};
use exobus_actors::task;
use serde::Deserialize;

use crate::files::{self, FileError, IoBuffer, Token};

impl From<FileError> for TaskError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::DiskFull { .. } => Self::DiskFull(error.to_string()),
            _ if error.retry_is_of_use() => Self::failed(error),
            _ => Self::fatal(error),
        }
    }
}

/// Prepares the output directory: true when it was made for this job. A task of its own, since what it returns always fits the
/// job's log: run again when a job is taken up, it would find what the job itself has written there.
#[task(name = "shuffle.prepare")]
pub(crate) fn prepare(context: &mut TaskContext<'_>, output: PathBuf) -> Result<bool, TaskError> {
    context.check_path(&output)?;
    // A second attempt finds the directory that the first one made: empty, as it must be.
    Ok(files::prepare_output_dir(&output)?)
}

/// Removes temporaries unless the job got to its end.
#[derive(Debug)]
pub(crate) struct Cleanup {
    futures: Futures,
    directory: PathBuf,
    created: bool,
    armed: bool,
}

impl Cleanup {
    /// For this output directory; `created`: it was made for the job.
    pub(crate) fn new(futures: &Futures, directory: &Path, created: bool) -> Self {
        Self { futures: futures.clone(), directory: directory.to_owned(), created, armed: true }
    }

    /// All files have their final names.
    pub(crate) fn committed(mut self) {
        self.armed = false;
        // A second attempt that was not stopped in time has left a file that nobody asked for.
        remove_temporaries(&self.directory, false);
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // They are those of another run, should the job go on elsewhere.
        if self.armed && !self.futures.is_abandoned() {
            remove_temporaries(&self.directory, self.created);
        }
    }
}

/// A directory is looked at so often: tasks that still run may begin files in it while it is emptied.
const CLEANUPS_MAX: usize = 100;

/// Removes what a job that failed has left in its output directory, and the directory when the job had made it.
/// Tasks that still run remove their own.
fn remove_temporaries(directory: &Path, created: bool) {
    for _ in 0..CLEANUPS_MAX {
        let others = files::remove_unfinished(directory);
        // Not when there is something in it that is not ours.
        if !created || others {
            return;
        }
        match std::fs::remove_dir(directory) {
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}

/// The two buffers of `bytes` bytes that a file is written with. A task that takes them asks for them, each, when it is
/// submitted.
///
/// # Errors
/// It did not, and there is no room.
pub(crate) fn output_buffers(context: &mut TaskContext<'_>, bytes: u64) -> Result<Vec<IoBuffer>, TaskError> {
    let mut buffer = || -> Result<IoBuffer, TaskError> { Ok(Box::new(context.scratch(bytes)?)) };
    Ok(vec![buffer()?, buffer()?])
}

/// What a reduce returns besides what its job wants to know of it.
#[derive(Deserialize)]
struct Finished {
    token: Token,
}

/// Gives the files of a set of outputs of reduces their final names. Each member of the only argument is one of them, a value
/// with a field `token`.
pub(crate) fn commit(context: &mut TaskContext<'_>, directory: &Path) -> Result<(), TaskError> {
    for block in context.blocks(0) {
        let Finished { token } = rmp_serde::from_slice(&block).map_err(TaskError::fatal)?;
        context.check_path(&token.temp_path)?;
        context.check_path(&token.final_path)?;
        files::commit(&token)?;
    }
    context.check_path(directory)?;
    files::sync_dir(directory)?;
    Ok(())
}
