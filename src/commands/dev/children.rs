//! Processes that belong together: their output is forwarded with a prefix, and when one ends all end.

use std::{
    ffi::OsStr,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    time::Duration,
};

use exobus_store::{Clock, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    exit::{Exit, Failure, OrExit},
    interrupt::Interrupt,
};

/// How often we look whether a process has ended or Ctrl-C was pressed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What ended a watch, if no process died.
#[derive(Debug, PartialEq, Eq)]
pub enum Happening {
    /// A line was what the watch was for.
    Found,
    /// Ctrl-C or SIGTERM.
    Interrupted,
    /// The deadline passed.
    TooLate,
}

/// The processes, in the order in which they were started.
pub struct Children {
    processes: Vec<(String, Child)>,
    lines: Receiver<(String, String)>,
    told: Sender<(String, String)>,
    clock: SystemClock,
    interrupt: Interrupt,
}

impl Children {
    /// None yet.
    pub fn new(interrupt: Interrupt) -> Self {
        let (told, lines) = mpsc::channel();
        Self { processes: Vec::new(), lines, told, clock: SystemClock::new(), interrupt }
    }

    /// Starts a program that the kernel ends should we die.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, name: &str, program: &Path, args: &[&OsStr]) -> Result<(), Failure> {
        let own = std::env::current_exe().or_exit(Exit::InputOutput)?;
        let mut process = Command::new(own)
            .args(["run-with-parent", "--parent", &std::process::id().to_string(), "--"])
            .arg(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::new(Exit::InputOutput, error).context(format!("start {}", program.display())))?;
        let outputs: [Option<Box<dyn Read + Send>>; 2] = [
            process.stdout.take().map(|pipe| Box::new(pipe) as _),
            process.stderr.take().map(|pipe| Box::new(pipe) as _),
        ];
        self.processes.push((name.to_owned(), process));
        for output in outputs.into_iter().flatten() {
            let (name, told) = (name.to_owned(), self.told.clone());
            std::thread::Builder::new()
                .name(format!("output of {name}"))
                .spawn(move || forward(&name, output, &told))
                .or_exit(Exit::InputOutput)?;
        }
        Ok(())
    }

    /// Waits until `found` says yes to a line (given who wrote it), for at most `within`.
    ///
    /// # Errors
    /// When a process ends meanwhile: who, and how.
    pub fn watch_until(
        &mut self,
        within: Option<Duration>,
        found: &mut dyn FnMut(&str, &str) -> bool,
    ) -> Result<Happening, Failure> {
        let deadline = within.map(|within| self.clock.now() + within);
        loop {
            match self.lines.recv_timeout(LOOK_EVERY) {
                Ok((who, line)) => {
                    if found(&who, &line) {
                        return Ok(Happening::Found);
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("we hold a sender ourselves"),
            }
            if self.interrupt.came() {
                return Ok(Happening::Interrupted);
            }
            for (name, process) in &mut self.processes {
                if let Some(status) = process.try_wait().or_exit(Exit::InputOutput)? {
                    // Ctrl-C reaches the whole group of the terminal, perhaps them before us.
                    if self.interrupt.came() {
                        return Ok(Happening::Interrupted);
                    }
                    return Err(Failure::text(
                        Exit::JobFailed,
                        format!("{name} ended unexpectedly ({status}); its last lines are above"),
                    ));
                }
            }
            if deadline.is_some_and(|deadline| self.clock.now() >= deadline) {
                return Ok(Happening::TooLate);
            }
        }
    }

    /// Stops them in reverse order of their start, the first one (the server of the others) last. What does not stop within
    /// this time is killed, and named.
    pub fn stop_all(&mut self, within: Duration) -> Option<String> {
        let mut killed = None;
        while self.processes.len() > 1 {
            let others = self.processes.split_off(1);
            killed = self.stop(others, within);
        }
        let last = std::mem::take(&mut self.processes);
        killed.or(self.stop(last, within))
    }

    fn stop(&self, mut processes: Vec<(String, Child)>, within: Duration) -> Option<String> {
        for (_, process) in &processes {
            if let Some(pid) = i32::try_from(process.id()).ok().and_then(Pid::from_raw) {
                // One that is gone already needs no signal.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = self.clock.now() + within;
        loop {
            processes.retain_mut(|(_, process)| !matches!(process.try_wait(), Ok(Some(_))));
            if processes.is_empty() {
                return None;
            }
            if self.clock.now() >= deadline {
                break;
            }
            // Their last lines are forwarded by the readers; here they only mark the time.
            let _ = self.lines.recv_timeout(LOOK_EVERY);
        }
        let names: Vec<&str> = processes.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(", ");
        for (_, process) in &mut processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        Some(names)
    }
}

/// An early return still leaves no process behind.
impl Drop for Children {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn forward(name: &str, output: impl Read, told: &Sender<(String, String)>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    // Bytes and not text: what a process writes need not be Unicode.
    while matches!(output.read_until(b'\n', &mut line), Ok(length) if length > 0) {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        line.clear();
        // Neither a closed stderr nor an end of the watching stops the process.
        let _ = writeln!(io::stderr().lock(), "{name:<5}| {text}");
        let _ = told.send((name.to_owned(), text));
    }
}
