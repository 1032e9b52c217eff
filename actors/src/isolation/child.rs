//! The executor process's side: maps the region, runs what it is told, asks for the rest.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use exobus_store::lent::{Lender, LentStore, Loan, Place, Room, WriterStep};
use exobus_store::{ObjectMeta, StoreError, SystemClock};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::last_path::LastPath;
use super::wire::{
    Answer, Done, Frames, FromChild, LentArgument, LentInPlace, Run, Said, ToChild, receive_descriptors,
};
use crate::printing::{Printer, Prints};
use crate::registry::{
    Argument, ContextParts, Finished, Function, Granted, InPlace, Objects, Roots, SetupState, TaskContext, TaskError,
    functions, state_of,
};
use crate::task::{FailureKind, Output, TaskFailure};

/// What an executor process is called.
pub(super) const NAME: &str = "exobus-executor";
/// In its environment: the process that started it.
pub(super) const PARENT: &str = "EXOBUS_EXECUTOR_OF";
/// Loans that are given back wait for the next message, but not more of them.
const GIVEN_BACK_MAX: usize = 256;

/// Whether a node has started this process as an executor.
pub fn is_executor() -> bool {
    // What an executor starts inherits its environment, and not its name.
    std::env::args_os().next().is_some_and(|name| name == NAME) && std::env::var_os(PARENT).is_some()
}

/// Makes this process an executor, where a node has started it as one, and then never returns; else does nothing.
///
/// A binary whose nodes run functions in processes ([`Isolation`](super::Isolation)) calls this first thing in `main`: nodes
/// start the binary again for each executor, with the same functions in it.
///
/// ```no_run
/// exobus_actors::isolation::enter();
/// // Everything else that main does.
/// ```
pub fn enter() {
    if !is_executor() {
        return;
    }
    let code = match serve() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: executor process: {error}");
            1
        }
    };
    std::process::exit(code);
}

fn serve() -> io::Result<()> {
    // Also when the node is killed. It may have been before this.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let parent = std::env::var(PARENT).ok().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    if parent.is_none() || getppid() != parent {
        return Err(io::Error::other("the node is gone"));
    }
    let stdin = io::stdin();
    let credentials = rustix::net::sockopt::socket_peercred(stdin.as_fd())?;
    if Some(credentials.pid) != parent || credentials.uid != rustix::process::getuid() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the socket is not the node's"));
    }
    // From here on stdin is at its end: functions that read from it find nothing.
    let [region, calls, control, last_path] = receive_descriptors(stdin.as_fd())?;
    // When memory is short, this process goes before the node; where the kernel does not let it, it is as any other.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let cancels = Arc::new(Cancels::default());
    let listening = cancels.clone();
    std::thread::Builder::new().name("exobus-control".into()).spawn(move || listening.listen(control.into()))?;

    let connection = Arc::new(Connection::new(calls.into())?);
    let ToChild::Start = connection.wait()? else { return Err(io::Error::other("no greeting")) };
    let store = LentStore::map(region, connection.clone(), Arc::new(SystemClock::new()))?;
    let mut executor = ChildExecutor {
        connection: connection.clone(),
        store,
        roots: BTreeMap::new(),
        last_path: last_path.into(),
        states: HashMap::new(),
    };
    connection.say(Said::Ready)?;
    loop {
        match connection.wait() {
            Ok(ToChild::Run(run)) => {
                let cancelled = cancels.begin(run.serial);
                let outcome = executor.run(*run, cancelled);
                connection.say(Said::Finished(outcome))?;
            }
            Ok(ToChild::Ping) => connection.say(Said::Ready)?,
            Ok(_) => return Err(io::Error::other("the node said something out of turn")),
            // The node needs it no more.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

struct ChildExecutor {
    connection: Arc<Connection>,
    store: LentStore,
    /// The folders that each tenant's tasks are kept to, opened once.
    roots: BTreeMap<Vec<PathBuf>, Roots>,
    last_path: LastPath,
    states: HashMap<&'static str, SetupState>,
}

impl ChildExecutor {
    fn run(&mut self, run: Run, cancelled: Arc<AtomicBool>) -> Result<Done, TaskFailure> {
        let key: Arc<str> = run.function.as_str().into();
        let Some(function) = functions().get(&key).copied() else {
            let message = format!("function {key} is not known to the executor process");
            return Err(TaskFailure::new(FailureKind::Rejected, message));
        };
        let outcome = match catch_unwind(AssertUnwindSafe(|| self.execute(function, run, cancelled))) {
            Ok(outcome) => outcome,
            Err(panic) => Err(TaskFailure::new(FailureKind::Panic, crate::panic_text(&*panic))),
        };
        // What was printed is this attempt's as long as it has not ended. Where stdout is closed, nobody reads it.
        let _ = io::stdout().flush();
        outcome
    }

    fn execute(&mut self, function: &Function, run: Run, cancelled: Arc<AtomicBool>) -> Result<Done, TaskFailure> {
        let failed = TaskError::into_failure;
        let roots = match self.roots.entry(run.roots) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => {
                let opened = Roots::open(new.key());
                let opened = opened.map_err(|error| TaskFailure::new(FailureKind::Error, crate::causes(&error)))?;
                new.insert(opened).clone()
            }
        };
        let state = state_of(function, &mut self.states).map_err(failed)?;
        let connection = &self.connection;
        let args = run.args.into_iter().map(|argument| borrowed(&self.store, connection, argument)).collect();
        let lent = |lent: Vec<(u32, Place)>| {
            let lent = lent.into_iter().map(|(loan, place)| self.store.lent_scratch(loan, place));
            lent.collect::<Result<_, StoreError>>().map_err(|error| failed(error.into()))
        };
        let parts = ContextParts {
            store: Objects::Lent(self.store.clone()),
            roots,
            job: run.job,
            task: run.task,
            attempt: run.attempt,
            args,
            memory: Granted {
                scratch: lent(run.scratch)?,
                windows: lent(run.windows)?,
                outside: (run.outside_bytes > 0).then(|| self.store.lent_outside(run.outside_bytes)),
                declared: None,
            },
            returns: run.returns,
            target_bytes: run.target_bytes,
            align: run.align,
            cancelled,
            printer: Printer::to(Arc::new(Stdout)),
            account: Arc::default(),
            clock: Arc::new(SystemClock::new()),
        };
        // A node that is gone ends this process.
        let mut announce = |index: u32, output: Output| drop(connection.say(Said::Yielded { index, output }));
        let note = |path: &Path| self.last_path.note(path);
        let mut context = TaskContext::new(parts, &mut announce, state);
        context.note_paths(&note);
        let Finished { outputs, consumed, figures, value } = context.call(function, &run.params)?;
        Ok(Done { outputs, consumed, figures, value })
    }
}

/// The node reads what this process prints, and knows which attempt runs.
struct Stdout;

impl Prints for Stdout {
    fn print(&self, bytes: &[u8]) {
        // A function may have closed it.
        let _ = io::stdout().write_all(bytes);
    }
}

fn borrowed(store: &LentStore, connection: &Arc<Connection>, argument: LentArgument) -> Argument {
    match argument {
        LentArgument::Whole(blocks) => Argument::Whole(blocks.into_iter().map(|block| store.block(block)).collect()),
        LentArgument::Stream(readers) => {
            Argument::Stream(readers.into_iter().map(|reader| store.reader(reader)).collect())
        }
        LentArgument::InPlace(objects) => {
            let in_place = |LentInPlace { number, meta, parts }: LentInPlace| {
                let connection = connection.clone();
                let read = move |offset, to: &mut [u8]| connection.read_in_place(number, offset, to);
                InPlace::lent(meta, parts.0 as usize..parts.1 as usize, Box::new(read))
            };
            Argument::InPlace(objects.into_iter().map(in_place).collect())
        }
    }
}

/// The attempt that runs, and those that were cancelled.
#[derive(Default)]
struct Cancels(Mutex<Cancelled>);

#[derive(Default)]
struct Cancelled {
    running: u64,
    /// The latest attempt that is cancelled; it may not have begun here.
    serial: u64,
    flag: Arc<AtomicBool>,
}

impl Cancels {
    /// An attempt begins: where it sees that it should end.
    fn begin(&self, serial: u64) -> Arc<AtomicBool> {
        let mut state = self.0.lock();
        state.running = serial;
        state.flag = Arc::new(AtomicBool::new(state.serial >= serial));
        state.flag.clone()
    }

    fn cancel(&self, serial: u64) {
        let mut state = self.0.lock();
        state.serial = state.serial.max(serial);
        if state.running == serial {
            state.flag.store(true, Ordering::Relaxed);
        }
    }

    /// Until the node closes its end: then the process ends, whatever it does.
    fn listen(&self, mut control: UnixStream) {
        use std::io::Read as _;
        let mut serial = [0; 8];
        while control.read_exact(&mut serial).is_ok() {
            self.cancel(u64::from_le_bytes(serial));
        }
        std::process::exit(0);
    }
}

/// The way to the node. Threads of functions may go on when their attempt is over: what they say then is said between what the executor
/// says, and never waits for the next attempt.
struct Connection {
    outgoing: Mutex<Frames>,
    incoming: Mutex<Incoming>,
    given_back: Mutex<Vec<Loan>>,
}

/// What the node says. Whoever waits for something has it locked, from before it asks.
struct Incoming {
    frames: Frames,
    /// What came while a thread waited for an answer, and is none.
    ahead: VecDeque<ToChild>,
}

impl Connection {
    fn new(calls: UnixStream) -> io::Result<Self> {
        let outgoing = Mutex::new(Frames::new(calls.try_clone()?));
        let incoming = Mutex::new(Incoming { frames: Frames::new(calls), ahead: VecDeque::new() });
        Ok(Self { outgoing, incoming, given_back: Mutex::default() })
    }

    fn wait(&self) -> io::Result<ToChild> {
        let mut incoming = self.incoming.lock();
        match incoming.ahead.pop_front() {
            Some(said) => Ok(said),
            None => incoming.frames.receive(&mut || true),
        }
    }

    fn say(&self, said: Said) -> io::Result<()> {
        let mut outgoing = self.outgoing.lock();
        let given_back = std::mem::take(&mut *self.given_back.lock());
        outgoing.send(&FromChild { given_back, said }, &mut || true)
    }

    /// Asks, one thread at a time. The function ends with its process when the node is gone, so that error is for the moment.
    fn ask(&self, said: Said) -> Result<Answer, StoreError> {
        let mut incoming = self.incoming.lock();
        match self.say(said).and_then(|()| self.answer(&mut incoming)) {
            Ok(Answer::Failed(error)) => Err(error.into_store_error()),
            Ok(answer) => Ok(answer),
            Err(error) => Err(StoreError::Lender(format!("the node: {error}"))),
        }
    }

    /// The answer to the last question. The node may have said something else before it heard that.
    fn answer(&self, incoming: &mut Incoming) -> io::Result<Answer> {
        loop {
            match incoming.frames.receive(&mut || true)? {
                ToChild::Answer(answer) => return Ok(answer),
                ToChild::Ping => self.say(Said::Ready)?,
                said => incoming.ahead.push_back(said),
            }
        }
    }

    fn read_in_place(&self, number: u32, offset: u64, to: &mut [u8]) -> Result<(), StoreError> {
        match self.ask(Said::ReadInPlace { number, offset, bytes: to.len() as u64 })? {
            Answer::Bytes(bytes) if bytes.len() == to.len() => {
                to.copy_from_slice(&bytes);
                Ok(())
            }
            _ => Err(unexpected()),
        }
    }
}

fn unexpected() -> StoreError {
    StoreError::Lender("the node answered something else".into())
}

impl Lender for Connection {
    fn room(&self, writer: u32, steps: &[WriterStep]) -> Result<Room, StoreError> {
        match self.ask(Said::Room { writer, steps: steps.to_vec() })? {
            Answer::Room(room) => Ok(room),
            _ => Err(unexpected()),
        }
    }

    fn seal(&self, writer: u32, steps: &[WriterStep]) -> Result<ObjectMeta, StoreError> {
        match self.ask(Said::Seal { writer, steps: steps.to_vec() })? {
            Answer::Sealed(meta) => Ok(meta),
            _ => Err(unexpected()),
        }
    }

    fn next_chunk(&self, reader: u32) -> Result<Option<Place>, StoreError> {
        match self.ask(Said::NextChunk { reader })? {
            Answer::Chunk(place) => Ok(place),
            _ => Err(unexpected()),
        }
    }

    fn scratch(&self, bytes: u64) -> Result<(u32, Place), StoreError> {
        match self.ask(Said::Scratch { bytes })? {
            Answer::Scratch(loan, place) => Ok((loan, place)),
            _ => Err(unexpected()),
        }
    }

    fn outside(&self, more_bytes: u64) -> Result<(), StoreError> {
        match self.ask(Said::Outside { more_bytes })? {
            Answer::Granted => Ok(()),
            _ => Err(unexpected()),
        }
    }

    fn given_back(&self, loan: Loan) {
        let many = {
            let mut given_back = self.given_back.lock();
            given_back.push(loan);
            given_back.len() >= GIVEN_BACK_MAX
        };
        if many {
            self.flush();
        }
    }

    fn flush(&self) {
        // The node takes back all of it when this process ends.
        let _ = self.say(Said::Nothing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_asks_between_two_attempts_has_its_answer_and_the_executor_its_own_messages() {
        let (here, node) = UnixStream::pair().unwrap();
        let (connection, mut node) = (Connection::new(here).unwrap(), Frames::new(node));
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| connection.outside(5));
            let heard = node.receive::<FromChild>(&mut || true).unwrap();
            assert!(matches!(heard.said, Said::Outside { more_bytes: 5 }));
            // As a node that has not looked what the process has said meanwhile.
            node.send(&ToChild::Ping, &mut || true).unwrap();
            assert!(matches!(node.receive::<FromChild>(&mut || true).unwrap().said, Said::Ready));
            node.send(&ToChild::Start, &mut || true).unwrap();
            node.send(&ToChild::Answer(Answer::Granted), &mut || true).unwrap();
            asks.join().unwrap().unwrap();
        });
        assert!(matches!(connection.wait().unwrap(), ToChild::Start));
    }

    #[test]
    fn what_is_given_back_while_nothing_runs_is_said_at_once() {
        let (here, node) = UnixStream::pair().unwrap();
        let (connection, mut node) = (Connection::new(here).unwrap(), Frames::new(node));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| connection.wait());
            connection.given_back(Loan::Outside(7));
            connection.flush();
            let heard = node.receive::<FromChild>(&mut || true).unwrap();
            assert_eq!(heard.given_back, [Loan::Outside(7)]);
            node.send(&ToChild::Ping, &mut || true).unwrap();
            assert!(matches!(waits.join().unwrap().unwrap(), ToChild::Ping));
        });
    }
}
