//! The files that show a job afterwards.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Seek as _, Write},
    path::{Path, PathBuf},
};

use exobus_actors::event::Event;

use super::{plot, timeline::Timeline, trace};
use crate::exit::{Exit, Failure, OrExit};

/// How often nodes tell their figures when somebody wants to look at them, milliseconds.
const SAMPLE_MS: u64 = 100;

/// What this process was started with, as far as it is text.
pub fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once("exobus".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// What was asked for, and what has been heard for it so far.
#[derive(Debug, Default)]
pub struct Views {
    trace: Option<Target>,
    plot: Option<Target>,
    events: Option<Stream>,
    timeline: Timeline,
    /// What is known of a result goes to stdout, a line of JSON for each look.
    estimates_as_json: bool,
}

/// Events as they come, a line of JSON each.
#[derive(Debug)]
struct Stream {
    target: Target,
    failed: Option<io::Error>,
}

#[derive(Debug)]
struct Target {
    path: PathBuf,
    file: File,
    /// Made here, and nothing is in it yet.
    empty: bool,
}

impl Views {
    /// Opens the files, so that what is wrong with their names is known before the job begins. What is in them stays until
    /// [`Views::write`].
    ///
    /// # Errors
    /// A file that cannot be made or written to.
    pub fn open(trace: Option<&Path>, plot: Option<&Path>, events: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self {
            trace: trace.map(Target::open).transpose()?,
            plot: plot.map(Target::open).transpose()?,
            events: events.map(Stream::open).transpose()?,
            timeline: Timeline::of_command(command_line()),
            estimates_as_json: false,
        })
    }

    /// Where stdout has JSON, what is known of a result before the end has, too.
    pub fn as_json(self, is_json: bool) -> Self {
        Self { estimates_as_json: is_json, ..self }
    }

    /// Whether that is so.
    pub fn are_estimates_json(&self) -> bool {
        self.estimates_as_json
    }

    /// Of a job that somebody else has started.
    ///
    /// # Errors
    /// As [`Views::open`].
    pub fn of_job(trace: Option<&Path>, plot: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self { timeline: Timeline::default(), ..Self::open(trace, plot, None)? })
    }

    /// So many events are not to be had any more.
    pub fn miss(&mut self, events: u64) {
        self.timeline.miss(events);
    }

    /// How often it wants the figures of nodes, milliseconds; 0: it does not need them.
    pub fn sample_ms(&self) -> u64 {
        if self.wanted() { SAMPLE_MS } else { 0 }
    }

    /// Takes an event in, where anything was asked for.
    pub fn on(&mut self, event: &Event) {
        if self.wanted() {
            self.timeline.on(event);
        }
        if let Some(events) = &mut self.events {
            events.write(event);
        }
    }

    /// Writes the files; of a job that did not end well, what is known. Says which.
    ///
    /// # Errors
    /// The first file that cannot be written.
    pub fn write(self) -> Result<Vec<String>, Failure> {
        let Self { trace, plot, events, timeline, .. } = self;
        let mut said = Vec::new();
        if let Some(Stream { target, failed: Some(error) }) = events {
            let failure = Err(error).or_exit(Exit::InputOutput);
            return failure.map_err(|failure: Failure| failure.context(format!("write {}", target.path.display())));
        }
        if let Some(target) = trace {
            said.push(format!("timeline in {} (open it at https://ui.perfetto.dev)", target.path.display()));
            target.fill(|out| trace::write(&timeline, out))?;
        }
        if let Some(target) = plot {
            said.push(format!("plot in {}", target.path.display()));
            target.fill(|out| out.write_all(plot::svg(&timeline).as_bytes()))?;
        }
        Ok(said)
    }

    fn wanted(&self) -> bool {
        self.trace.is_some() || self.plot.is_some()
    }
}

impl Stream {
    fn open(path: &Path) -> Result<Self, Failure> {
        let mut target = Target::open(path)?;
        target.empty = false;
        let emptied = target.begin().or_exit(Exit::InputOutput);
        emptied.map_err(|failure| failure.context(format!("write {}", path.display())))?;
        Ok(Self { target, failed: None })
    }

    /// At once: somebody may read along. After an error nothing more is written; the job goes on.
    fn write(&mut self, event: &Event) {
        if self.failed.is_none() {
            let line = serde_json::to_string(event).map_err(io::Error::other);
            let written = line.and_then(|line| self.target.file.write_all(format!("{line}\n").as_bytes()));
            self.failed = written.err();
        }
    }
}

impl Target {
    fn open(path: &Path) -> Result<Self, Failure> {
        let opened = match OpenOptions::new().write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                OpenOptions::new().write(true).open(path).map(|file| (file, false))
            }
            made => made.map(|file| (file, true)),
        };
        let opened = opened.or_exit(Exit::InputOutput);
        let (file, empty) = opened.map_err(|failure| failure.context(format!("write {}", path.display())))?;
        Ok(Self { path: path.to_owned(), file, empty })
    }

    fn begin(&mut self) -> io::Result<()> {
        // A pipe or a terminal has no length and no place to go back to.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
            self.file.rewind()?;
        }
        Ok(())
    }

    fn fill(mut self, write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>) -> Result<(), Failure> {
        self.empty = false;
        let replaced = self.replace(write).or_exit(Exit::InputOutput);
        replaced.map_err(|failure| failure.context(format!("write {}", self.path.display())))
    }

    fn replace(&mut self, write: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>) -> io::Result<()> {
        self.begin()?;
        let mut out = BufWriter::new(&mut self.file);
        write(&mut out)?;
        out.flush()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.empty {
            // There was no job; somebody else may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
