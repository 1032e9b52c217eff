//! Processes that belong together: their output is forwarded with a prefix, and when one ends it is started again, or the
//! others go on, or all end.

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
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

/// How long after its end a process is started again.
const START_AGAIN: Duration = Duration::from_secs(1);

/// What becomes of the others when one ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OnLoss {
    /// They go on, and it is started again after a second.
    #[default]
    Restart,
    /// They go on.
    GoOn,
    /// They end.
    End,
}

/// How to start a process.
#[derive(Clone)]
struct Start {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    on_loss: OnLoss,
}

/// The processes, in the order in which they were started.
pub struct Children {
    processes: Vec<(Start, Child)>,
    /// What is to be started again, and when.
    waiting: Vec<(Start, Duration)>,
    lines: Receiver<(String, String)>,
    told: Sender<(String, String)>,
    clock: SystemClock,
    interrupt: Interrupt,
}

impl Children {
    /// None yet.
    pub fn new(interrupt: Interrupt) -> Self {
        let (told, lines) = mpsc::channel();
        Self { processes: Vec::new(), waiting: Vec::new(), lines, told, clock: SystemClock::new(), interrupt }
    }

    /// Starts a program that the kernel ends should we die.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, name: &str, program: &Path, args: &[&OsStr], on_loss: OnLoss) -> Result<(), Failure> {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        self.spawn(Start { name: name.to_owned(), program: program.to_owned(), args, on_loss })
    }

    /// From now on this becomes of the others when one of these ends by itself.
    pub fn on_loss_of(&mut self, names: &[String], on_loss: OnLoss) {
        for (start, _) in &mut self.processes {
            if names.contains(&start.name) {
                start.on_loss = on_loss;
            }
        }
    }

    fn spawn(&mut self, start: Start) -> Result<(), Failure> {
        let (name, program, args) = (start.name.clone(), &start.program, &start.args);
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
        self.processes.push((start, process));
        for output in outputs.into_iter().flatten() {
            let (name, told) = (name.clone(), self.told.clone());
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
            if let Some(interrupted) = self.look_after()? {
                return Ok(interrupted);
            }
            if deadline.is_some_and(|deadline| self.clock.now() >= deadline) {
                return Ok(Happening::TooLate);
            }
        }
    }

    /// Looks for processes that have ended, and does as was said with the others.
    fn look_after(&mut self) -> Result<Option<Happening>, Failure> {
        let mut ended = None;
        for (index, (start, process)) in self.processes.iter_mut().enumerate() {
            if let Some(status) = process.try_wait().or_exit(Exit::InputOutput)? {
                ended = Some((index, format!("{} ended unexpectedly ({status})", start.name)));
                break;
            }
        }
        let now = self.clock.now();
        if let Some((index, what)) = ended {
            // Ctrl-C reaches the whole group of the terminal, perhaps them before us.
            if self.interrupt.came() {
                return Ok(Some(Happening::Interrupted));
            }
            let on_loss = self.processes[index].0.on_loss;
            if on_loss == OnLoss::End {
                return Err(Failure::text(Exit::JobFailed, format!("{what}; its last lines are above")));
            }
            let (start, _) = self.processes.remove(index);
            let next = if on_loss == OnLoss::Restart { "it is started again" } else { "the others go on" };
            let _ = writeln!(io::stderr().lock(), "dev  | {what}: {next}");
            if on_loss == OnLoss::Restart {
                self.waiting.push((start, now + START_AGAIN));
            }
        }
        let due = |(_, at): &mut (Start, Duration)| *at <= now;
        for (start, _) in self.waiting.extract_if(.., due).collect::<Vec<_>>() {
            self.spawn(start)?;
        }
        Ok(None)
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

    fn stop(&self, mut processes: Vec<(Start, Child)>, within: Duration) -> Option<String> {
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
        let names: Vec<&str> = processes.iter().map(|(start, _)| start.name.as_str()).collect();
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
