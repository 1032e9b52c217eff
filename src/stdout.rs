//! Standard output: all commands print through here, and none looks whether that went well.
//!
//! What could not be written is an error of the command, told when it ends ([`check`]): what it does besides is done to its end. Behind such an error nothing more is written. Who reads, and has seen enough
//! (`| head`), is no error.

use std::{
    io::{self, ErrorKind, Write},
    sync::{Mutex, PoisonError},
};

use crate::exit::{Exit, Failure, OrExit};

/// Why nothing more is written.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a text as it is.
pub fn print(text: &str) {
    // It is told when the command ends.
    let _ = write(text.as_bytes());
}

/// Prints a text, and ends its line.
pub fn print_line(text: impl std::fmt::Display) {
    print(&format!("{text}\n"));
}

/// Writes bytes as they are, for who has many more of them.
///
/// # Errors
/// They could not be written, or those before them.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    written(|| io::stdout().lock().write_all(bytes))
}

/// The same for what others write there.
///
/// # Errors
/// As [`write`].
pub fn written(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.is_none() {
        *failed = write().err();
    }
    failed.as_ref().map_or(Ok(()), |error| Err(io::Error::new(error.kind(), format!("write standard output: {error}"))))
}

/// Writes what waits to be written.
///
/// # Errors
/// Exit code 3: something could not be written, though somebody reads.
pub fn check() -> Result<(), Failure> {
    match written(|| io::stdout().lock().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).or_exit(Exit::InputOutput),
        _ => Ok(()),
    }
}
