//! Exit codes: what a script can tell apart. Listed in `exobus --help` and `docs/cli.md`.

use std::fmt;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Success = 0,
    /// The data is not what it should be: unsorted records, a checksum that differs, half a record, a quote that is not closed.
    DataWrong = 1,
    /// The command line or the configuration is wrong; nothing was made.
    Usage = 2,
    /// Reading or writing failed: a missing file, no permission, a full disk.
    InputOutput = 3,
    /// No cluster: its NATS server or its nodes did not answer in time.
    Unreachable = 4,
    /// The job failed; the message names the task and why.
    JobFailed = 5,
    /// Ended by Ctrl-C (or SIGTERM where that is not the ordinary way to stop).
    Interrupted = 130,
}

impl Exit {
    /// All of them, with the words of the help text.
    pub const ALL: [(Exit, &'static str); 7] = [
        (Exit::Success, "done"),
        (Exit::DataWrong, "the data is wrong: unsorted records, a truncated file, a value that is not a number"),
        (Exit::Usage, "the command line or the configuration is wrong, or names a column that is not there"),
        (
            Exit::InputOutput,
            "reading or writing failed: missing file, no permission, output folder not empty, disk full",
        ),
        (Exit::Unreachable, "the cluster cannot be reached"),
        (Exit::JobFailed, "the job failed"),
        (Exit::Interrupted, "interrupted by Ctrl-C"),
    ];

    /// The number the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// An error with the exit code that it leads to.
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// The error for people.
    pub error: anyhow::Error,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// A failure of this kind with this text.
    pub fn text(exit: Exit, text: impl fmt::Display) -> Self {
        Self { exit, error: anyhow::anyhow!("{text}") }
    }

    /// Says on top what was being done.
    #[must_use]
    pub fn context(self, text: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self { exit: self.exit, error: self.error.context(text) }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.exit)
    }
}

/// One line: the error and its causes, each said once.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        for cause in self.error.chain() {
            let text = cause.to_string();
            // Many errors repeat their source in their own text.
            if said.ends_with(&text) {
                continue;
            }
            if !said.is_empty() {
                said.push_str(": ");
            }
            said.push_str(&text);
        }
        f.write_str(&said)
    }
}

/// Attaches an exit code to any error.
pub trait OrExit<T> {
    /// The error leads to this exit code.
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(exit, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_was_said_is_not_said_again() {
        let source = std::io::Error::other("disk full");
        let error = anyhow::Error::new(source).context("write part 3: disk full");
        assert_eq!(Failure::new(Exit::InputOutput, error).to_string(), "write part 3: disk full");
        let error = anyhow::anyhow!("disk full").context("write part 3");
        assert_eq!(Failure::new(Exit::InputOutput, error).to_string(), "write part 3: disk full");
    }

    #[test]
    fn every_code_is_listed_once() {
        let codes: std::collections::BTreeSet<u8> = Exit::ALL.iter().map(|(exit, _)| exit.code()).collect();
        assert_eq!(codes.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 130]);
    }
}
