//! Files of attempts: written under a name of their own, which is none of input.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::direct::DirectFile;
use super::place::{Placed, place};
use crate::{ALIGNMENT, FileError, IoBuffer, Location, ReadFile as _, WriteFile, WriteRequest};

/// A file that is being written.
#[derive(Debug)]
pub(super) struct AttemptFile {
    file: DirectFile,
    path: PathBuf,
    /// What its token calls it.
    name: String,
    /// What it is called when it is finished, in place of its own name; `None`: the commit sees to that.
    becomes: Option<PathBuf>,
    finished: AtomicBool,
}

impl AttemptFile {
    /// Begins the file `name` in a folder, or in folders in it, which are there.
    pub(super) fn begin(folder: &Path, name: &str, becomes: Option<&Path>, bytes_hint: u64) -> Result<Self, FileError> {
        let path = folder.join(name);
        // What has the name may have its final one, too: a file that somebody reads is never written to.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FileError::io(&path, "remove", 0, error));
            }
            _ => {}
        }
        let (file, becomes) = (DirectFile::create(&path)?, becomes.map(Path::to_owned));
        let begun = Self { file, path, name: name.to_owned(), becomes, finished: AtomicBool::new(false) };
        begun.file.reserve(bytes_hint)?;
        Ok(begun)
    }

    /// Gives the file its name.
    fn take_name(&self, name: &Path) -> Result<(), FileError> {
        let placed = place(&self.path, name).map_err(|error| FileError::io(name, "rename", 0, error))?;
        if placed == Placed::Taken {
            return Err(FileError::Exists { path: name.to_path_buf() });
        }
        remove_quietly(&self.path);
        sync_dir(name.parent().unwrap_or(Path::new("")))
    }
}

impl WriteFile for AttemptFile {
    fn location(&self) -> &Location {
        self.file.location()
    }

    fn write(&self, request: WriteRequest) -> (IoBuffer, Result<(), FileError>) {
        let WriteRequest { offset, used, buffer, .. } = request;
        let padded = used.next_multiple_of(ALIGNMENT).min(buffer.len());
        let written = self.file.write_at(offset, &buffer[..padded]);
        (buffer, written)
    }

    fn finish(&self, bytes: u64) -> Result<String, FileError> {
        self.file.set_len(bytes)?;
        self.file.sync()?;
        if let Some(name) = &self.becomes {
            self.take_name(name)?;
        } else {
            match self.path.parent().map_or(Ok(()), sync_dir) {
                // There is no name to keep: another host of the job has committed, or the job has given up. Its commit finds out which.
                Err(FileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                synced => synced?,
            }
        }
        self.finished.store(true, Ordering::Release);
        Ok(self.name.clone())
    }
}

impl Drop for AttemptFile {
    fn drop(&mut self) {
        if !*self.finished.get_mut() {
            remove_quietly(&self.path);
        }
    }
}

/// What the temporary of an attempt at a file is called.
pub(super) fn temporary_name(name: &str, attempt: &str) -> String {
    format!("{name}.{attempt}")
}

/// Returns when the names in `directory` are on the disk: after the commits, where they must survive a power cut.
///
/// # Errors
/// What the system says.
pub fn sync_dir(directory: &Path) -> Result<(), FileError> {
    // The parent of a relative path of one name is the empty path.
    let opened = File::open(if directory.as_os_str().is_empty() { Path::new(".") } else { directory });
    let synced = opened.and_then(|opened| opened.sync_all());
    synced.map_err(|error| FileError::io(directory, "sync", 0, error))
}

/// Removes a temporary on a path where an error is already on its way.
fn remove_quietly(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "temporary file left behind");
    }
}
