//! The node's side of an executor process: starts it, has it run attempts, sees it end.

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use exobus_store::{Clock, Store};
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use tracing::{debug, info};

use super::death::{self, Verdict};
use super::last_path::LastPath;
use super::lending::{Lending, out_of_turn};
use super::memory::Footprint;
use super::oom_kills::OomKills;
use super::watch::{self, Watch};
use super::wire::{Done, Frames, FromChild, Said, ToChild, send_descriptors};
use super::{Isolation, child};
use crate::printing::{Filter, Output as Printout, Prints as _, Secrets};
use crate::registry::{Account, Argument, Finished, Granted, Roots};
use crate::task::{FailureKind, Output, TaskFailure, TaskSpec};

/// How long a new process may take to say that it is there.
const START_MAX: Duration = Duration::from_secs(20);
/// How long an idle process may take to end by itself when its node does, and what it wrote last to arrive.
const END_MAX: Duration = Duration::from_millis(500);
/// Of what a process writes, so much is kept for the error, bytes.
const WORDS_MAX: usize = 2048;
/// So much is read at a time, ...
const PIECE_BYTES: usize = 4096;
/// ... and so much fits into a pipe.
const PIPE_BYTES: usize = 64 << 10;
/// How long a process may take to answer whether it is there.
const PING_MAX: Duration = Duration::from_secs(1);
/// A process that has more than this share of what a task may take begins anew before that task.
const FRESH_SHARE: u64 = 4;

/// What an attempt needs of its executor.
pub(crate) struct Attempted<'a> {
    pub(crate) spec: &'a TaskSpec,
    pub(crate) args: Vec<Argument>,
    pub(crate) memory: Granted,
    /// Where it may read and write files.
    pub(crate) roots: &'a Roots,
    pub(crate) cancelled: &'a AtomicBool,
    pub(crate) account: &'a Account,
    pub(crate) announce: &'a mut dyn FnMut(u32, Output),
    /// Where what the process prints goes meanwhile.
    pub(crate) output: Arc<Printout>,
}

/// Runs attempts in a process, which it starts when there is something to run and none is there.
pub(crate) struct IsolatedExecutor {
    isolation: Arc<Isolation>,
    secrets: Secrets,
    store: Store,
    clock: Arc<dyn Clock>,
    process: Option<Process>,
    oom_kills: OomKills,
}

impl IsolatedExecutor {
    pub(crate) fn new((isolation, secrets): (Arc<Isolation>, Secrets), store: Store, clock: Arc<dyn Clock>) -> Self {
        Self { isolation, secrets, store, clock, process: None, oom_kills: OomKills::default() }
    }

    /// Runs an attempt. While this panics there is no process.
    pub(crate) fn run(&mut self, attempted: Attempted<'_>) -> Result<Finished, TaskFailure> {
        let spec = attempted.spec;
        let mut process = self.process(spec).map_err(|error| {
            TaskFailure::new(FailureKind::Error, format!("start a process for executor tasks: {error}"))
        })?;
        let oom_kills = self.oom_kills.so_far(self.clock.now());
        match process.run(attempted, &*self.clock) {
            Ok(result) => {
                // One that has had more than it may ends here, with what it has.
                self.process = process.memory.idle().then_some(process);
                result
            }
            Err(verdict) => {
                let (status, words) = process.end();
                let oom_kills = self.oom_kills.any_since(oom_kills);
                let kind = death::kind(verdict, status, oom_kills);
                let died = death::describe(verdict, status, oom_kills);
                info!(job_id = %spec.job, task_id = %spec.id, attempt = %spec.attempt, %died, "executor process lost");
                let mut message = format!("{died}; input: {}", death::input(spec));
                if let Some(path) = process.last_path.read() {
                    message.push_str(&format!("; the path that it used last: {path}"));
                }
                if !words.is_empty() {
                    message.push_str(&format!("; it last said: {words}"));
                }
                Err(TaskFailure::new(kind, message))
            }
        }
    }

    /// A process that can take this task.
    fn process(&mut self, spec: &TaskSpec) -> io::Result<Process> {
        if let Some(mut process) = self.process.take() {
            let limited = spec.memory_max_bytes > 0;
            let own_bytes = if limited { watch::own_bytes(process.child.id()).unwrap_or(u64::MAX) } else { 0 };
            let fresh = limited && own_bytes > spec.memory_max_bytes / FRESH_SHARE;
            if !fresh && process.is_there(&*self.clock) {
                return Ok(process);
            }
            debug!(process = process.child.id(), own_bytes, fresh, "executor process is replaced");
        }
        Process::start((&self.isolation, &self.secrets), &self.store, &*self.clock)
    }
}

/// An executor process. Dropped, it ends.
struct Process {
    child: Child,
    frames: Option<Frames>,
    control: Option<UnixStream>,
    lending: Lending,
    memory: Footprint,
    /// Of the attempt that runs.
    last_path: LastPath,
    words: Arc<Words>,
    attempts: u64,
    /// How it ended, once nothing is left of it: from then on its number may be another's.
    ended: Option<io::Result<ExitStatus>>,
}

impl Process {
    fn start((isolation, secrets): (&Isolation, &Secrets), store: &Store, clock: &dyn Clock) -> io::Result<Self> {
        let (handshake, inherited) = UnixStream::pair()?;
        let (calls, calls_there) = UnixStream::pair()?;
        let frames = Frames::with_ticks(calls)?;
        let (control, control_there) = UnixStream::pair()?;
        // A process that does not listen is killed, not waited for.
        control.set_nonblocking(true)?;
        let last_path = LastPath::new()?;
        let (said, says) = io::pipe()?;
        // Whoever reads it last does not wait for more.
        rustix::io::ioctl_fionbio(&said, true)?;
        let mut command = Command::new(&isolation.program);
        command.args(&isolation.arguments).envs(isolation.environment.iter().map(|(name, value)| (name, value)));
        command.arg0(child::NAME).env(child::PARENT, std::process::id().to_string());
        command.stdin(OwnedFd::from(inherited)).stdout(says.try_clone()?).stderr(says);
        // Ctrl-C is for the node: it ends its executors in order. And whatever they start ends with them.
        command.process_group(0);
        let child = command.spawn()?;
        // With its ends of the pipe and the sockets; the process has its own.
        drop(command);
        let words = Arc::new(Words::of(said.try_clone()?, secrets.clone()));
        let memory = Footprint::new(store, child.id());
        let mut process = Self {
            child,
            frames: Some(frames),
            control: Some(control),
            lending: Lending::new(store.clone()),
            memory,
            last_path,
            words: words.clone(),
            attempts: 0,
            ended: None,
        };
        // It ends when the process, and all that it started, has.
        std::thread::Builder::new().name("exobus-words".into()).spawn(move || words.listen(said))?;
        let descriptors = [store.region_fd(), calls_there.as_fd(), control_there.as_fd(), process.last_path.as_fd()];
        let greeted = send_descriptors(&handshake, descriptors);
        drop((handshake, calls_there, control_there));
        greeted.and_then(|()| process.greet(clock)).map_err(|error| {
            let (status, words) = process.end();
            let died = death::describe(None, status, false);
            io::Error::other(format!(
                "{} did not become an executor ({error}; {died}): does its main call exobus::isolation::enter() first? \
                 {words}",
                isolation.program.display()
            ))
        })?;
        process.memory.idle();
        debug!(process = process.child.id(), "executor process started");
        Ok(process)
    }

    /// Whether it is there and listens. Asked before each attempt: what died or was stopped while it had
    /// nothing to do costs no attempt.
    fn is_there(&mut self, clock: &dyn Clock) -> bool {
        let asked = clock.now();
        let Some(frames) = &mut self.frames else { return false };
        let mut go_on = || clock.now().saturating_sub(asked) < PING_MAX;
        if frames.send(&ToChild::Ping, &mut go_on).is_err() {
            return false;
        }
        // What threads of functions that are over say meanwhile is heard.
        while let Ok(FromChild { given_back, said }) = frames.receive(&mut go_on) {
            self.lending.given_back(given_back);
            match said {
                Said::Ready => return true,
                Said::Nothing => {}
                Said::Outside { more_bytes } => {
                    let answer = self.lending.more_outside(more_bytes);
                    if frames.send(&ToChild::Answer(answer), &mut go_on).is_err() {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        false
    }

    fn greet(&mut self, clock: &dyn Clock) -> io::Result<()> {
        let Some(frames) = &mut self.frames else { return Err(io::ErrorKind::NotConnected.into()) };
        let began = clock.now();
        let mut go_on = || clock.now().saturating_sub(began) < START_MAX;
        frames.send(&ToChild::Start, &mut go_on)?;
        match frames.receive::<FromChild>(&mut go_on)?.said {
            Said::Ready => Ok(()),
            _ => Err(out_of_turn("something")),
        }
    }

    /// Runs an attempt. The error says that the process is of no use any more, and why, where somebody decided that.
    fn run(
        &mut self,
        attempted: Attempted<'_>,
        clock: &dyn Clock,
    ) -> Result<Result<Finished, TaskFailure>, Option<Verdict>> {
        let (Some(frames), Some(control)) = (&mut self.frames, &self.control) else { return Err(None) };
        self.attempts += 1;
        let Attempted { spec, roots, args, mut memory, cancelled, account, announce, output } = attempted;
        self.memory.begins(spec.memory_max_bytes, memory.declared.take());
        let mut watch = Watch {
            clock,
            process: self.child.id(),
            serial: self.attempts,
            control,
            cancelled,
            memory: &mut self.memory,
            granted_bytes: 0,
            kept_bytes: self.lending.outside_bytes(),
            account,
            looked: clock.now(),
            told: None,
            stopped_looks: 0,
            verdict: None,
        };
        self.last_path.clear();
        self.words.go_to(Some(output));
        let run = self.lending.run(self.attempts, (spec, roots), args, memory);
        watch.granted(self.lending.outside_bytes());
        let exchange = (|| -> io::Result<_> {
            frames.send(&ToChild::Run(Box::new(run)), &mut || watch.look())?;
            loop {
                let FromChild { given_back, said } = frames.receive(&mut || watch.look())?;
                self.lending.given_back(given_back);
                watch.granted(self.lending.outside_bytes());
                match said {
                    Said::Finished(outcome) => return Ok(outcome),
                    Said::Yielded { index, output } => announce(index, output),
                    Said::Nothing => {}
                    said => {
                        let answer = watch.answer(&mut self.lending, spec, said)?;
                        frames.send(&ToChild::Answer(answer), &mut || watch.look())?;
                    }
                }
                // One that talks without a pause is looked after, too.
                if !watch.look_now_and_then() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        })();
        self.lending.finished();
        self.words.go_to(None);
        match exchange {
            Ok(outcome) => Ok(outcome.map(|Done { outputs, consumed, figures, value }| Finished {
                outputs,
                consumed,
                figures,
                value,
            })),
            Err(error) => {
                debug!(%error, process = self.child.id(), "executor process is of no use any more");
                let gone = matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::ConnectionReset
                        | io::ErrorKind::BrokenPipe
                        | io::ErrorKind::TimedOut
                );
                Err(watch.verdict.or((!gone).then_some(Verdict::Nonsense)))
            }
        }
    }

    /// Ends it now, with all that it started, and says how it ended and what it wrote last.
    fn end(&mut self) -> (Option<ExitStatus>, String) {
        (self.frames, self.control) = (None, None);
        let (child, words) = (&mut self.child, &self.words);
        let ended = self.ended.get_or_insert_with(|| {
            // What has died already keeps the status that it died with.
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // Nobody is left in the group: all the better.
                let _ = kill_process_group(pid, Signal::KILL);
            }
            child.wait()
        });
        (ended.as_ref().ok().copied(), words.last(END_MAX))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.frames.is_some() {
            // It sees that the sockets are closed, and what its functions have set up is put away in order.
            (self.frames, self.control) = (None, None);
            self.words.wait_for_end(END_MAX);
        }
        self.end();
    }
}

/// What a process writes to stdout and stderr: what the attempt that runs prints, and the end of it kept.
struct Words {
    state: Mutex<Heard>,
    ended: Condvar,
}

struct Heard {
    said: io::PipeReader,
    /// What the attempt prints that runs.
    output: Option<Arc<Printout>>,
    /// Of the last words, and of what is no attempt's.
    filter: Filter,
    last: Vec<u8>,
    ended: bool,
}

impl Words {
    /// What comes out of a pipe whose reads do not wait.
    fn of(said: io::PipeReader, secrets: Secrets) -> Self {
        let heard = Heard { said, output: None, filter: Filter::new(secrets), last: Vec::new(), ended: false };
        Self { state: Mutex::new(heard), ended: Condvar::new() }
    }

    fn listen(&self, said: io::PipeReader) {
        loop {
            let mut waits = [PollFd::new(&said, PollFlags::IN)];
            match poll(&mut waits, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
            let mut state = self.state.lock();
            state.hear();
            if state.ended {
                break;
            }
        }
        self.state.lock().ended = true;
        self.ended.notify_all();
    }

    /// From now on it is what this attempt prints. What the process has written before is not.
    fn go_to(&self, output: Option<Arc<Printout>>) {
        let mut state = self.state.lock();
        // What fits into the pipe: who goes on writing writes for the next one.
        for _ in 0..PIPE_BYTES / PIECE_BYTES {
            if !state.hear() {
                break;
            }
        }
        let before = std::mem::replace(&mut state.output, output);
        drop(state);
        if let Some(before) = before {
            before.flush();
        }
    }

    /// Waits until nothing more can come.
    fn wait_for_end(&self, at_most: Duration) {
        let mut state = self.state.lock();
        let _ = self.ended.wait_while_for(&mut state, |state| !state.ended, at_most);
    }

    /// The last of it, once all is there, on one line.
    fn last(&self, at_most: Duration) -> String {
        self.wait_for_end(at_most);
        let mut state = self.state.lock();
        let rest = state.filter.finish();
        state.last.extend(rest);
        let text = String::from_utf8_lossy(&state.last);
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join(" | ")
    }
}

impl Heard {
    /// Takes in what there is; false: nothing, for now or for ever.
    fn hear(&mut self) -> bool {
        let mut piece = [0; PIECE_BYTES];
        match self.said.read(&mut piece) {
            Ok(0) => self.ended = true,
            Ok(count) => {
                self.take(&piece[..count]);
                return true;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(_) => self.ended = true,
        }
        false
    }

    fn take(&mut self, heard: &[u8]) {
        let clear = self.filter.push(heard);
        match &self.output {
            Some(output) => output.print(heard),
            // A closed stderr is no reason to let a process wait for it.
            None => drop(io::stderr().write_all(&clear)),
        }
        self.last.extend(clear);
        let beyond = self.last.len().saturating_sub(WORDS_MAX);
        self.last.drain(..beyond);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_kept_and_no_more() {
        let (said, mut says) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&said, true).unwrap();
        let secrets = Secrets::default();
        // Of which the end alone would be left.
        secrets.add("line 997\n\nline 998");
        let words = Words::of(said.try_clone().unwrap(), secrets);
        std::thread::scope(|scope| {
            scope.spawn(|| words.listen(said));
            for line in 0..1000 {
                writeln!(says, "line {line}\n").unwrap();
            }
            drop(says);
        });
        let last = words.last(END_MAX);
        assert!(last.ends_with("line 996 | *** | line 999") && last.len() <= 2 * WORDS_MAX, "{last}");
        assert!(!last.contains("line 10 "), "{last}");
    }
}
