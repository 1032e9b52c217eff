//! Functions and programs by name and version, collected from the whole binary.
//!
//! A task function is registered with `#[exobus::task]`, a coordinator program with `#[exobus::program]`; both end up in
//! an [`inventory`] that is read once. Nodes advertise the names ("sort.map@1"); what no node offers is refused when it
//! is submitted.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use futures::future::LocalBoxFuture;

mod context;
mod error;
mod in_place;
mod outside;
mod roots;

pub use context::{Argument, CancelSignal, Granted, TaskContext, Yield};
pub(crate) use context::{ContextParts, Finished, Objects, VALUE_MAX_BYTES};
pub use error::TaskError;
pub use in_place::InPlace;
pub use outside::Outside;
pub(crate) use outside::{Account, BeyondDeclared, Shortage};
pub use roots::{Roots, RootsError};

use crate::futures::Futures;
use crate::ids::JobId;
use crate::task::{FunctionName, JobError, Resources};
pub use crate::task::{JobProgram, Returned, TaskFunction};

/// How a function takes an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All of it in memory before the task starts.
    Whole,
    /// Read while the task runs, through a window of fixed size.
    Stream,
    /// Whole, unless it is larger than the memory of the node: then as a stream. For functions that do better with all of
    /// it at hand and must cope with any size; [`TaskContext::is_stream`] tells which it is.
    Either,
    /// Not at all: it stays where it lies, and the task sees the sizes of its parts and reads a few bytes of them
    /// ([`TaskContext::in_place`]). The task runs where all of it is, on that node and no other
    /// ([`Place::Node`](crate::task::Place), not soft).
    InPlace,
}

/// State that lives in an executor from the first task of a function to the end (a model, say).
pub type SetupState = Box<dyn Any + Send>;

/// The state of a function in an executor that keeps `states`, made when it is first needed.
pub(crate) fn state_of<'a>(
    function: &Function,
    states: &'a mut HashMap<&'static str, SetupState>,
) -> Result<Option<&'a mut SetupState>, TaskError> {
    let Some(setup) = function.setup else { return Ok(None) };
    if !states.contains_key(function.name) {
        states.insert(function.name, setup()?);
    }
    Ok(states.get_mut(function.name))
}

/// The crates of exobus: their functions are no code of users.
const BUILT_IN: [&str; 4] = ["exobus", "exobus_actors", "exobus_shuffle", "exobus_tables"];

/// A task function as the registry keeps it.
pub struct Function {
    /// Dotted name, "sort.map".
    pub name: &'static str,
    /// Changes whenever the results change.
    pub version: u32,
    /// How arguments are taken; the last mode holds for all further ones. Empty: all whole.
    pub modes: &'static [Mode],
    /// Makes the executor's state for this function.
    pub setup: Option<fn() -> Result<SetupState, TaskError>>,
    /// Whether any two attempts give outputs of the same rows and bytes (what is read besides the arguments does not change),
    /// and may run at the same time (what is written besides the outputs has a name of its attempt). Attempts of such a
    /// function are checked against each other (law 4), and one that takes too long is copied.
    pub deterministic: bool,
    /// The module that it is written in: `module_path!()`.
    pub module: &'static str,
    /// Runs it: decodes the parameters, calls the function, writes what it returns.
    pub call: fn(&mut TaskContext<'_>, &[u8]) -> Result<(), TaskError>,
}

inventory::collect!(Function);

impl Function {
    /// "name@version".
    pub fn key(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// Whether it is of exobus itself, and no code of a user.
    pub fn is_built_in(&self) -> bool {
        BUILT_IN.contains(&self.module.split("::").next().unwrap_or_default())
    }

    /// How argument `index` is taken.
    pub fn mode(&self, index: usize) -> Mode {
        self.modes.get(index).or(self.modes.last()).copied().unwrap_or(Mode::Whole)
    }
}

/// A program under way: what it returns, encoded.
pub type Running<'a> = LocalBoxFuture<'a, Result<Vec<u8>, JobError>>;

/// A program as the registry keeps it: decodes its parameters, runs, encodes its result.
pub struct Program {
    /// Dotted name, "sort".
    pub name: &'static str,
    /// Changes whenever a resumed run would choose differently.
    pub version: u32,
    /// Runs it.
    pub run: for<'a> fn(Futures, &'a [u8]) -> Running<'a>,
    /// Gives back what runs of a job with these parameters have taken outside, a claimed folder say. It is called when the job is
    /// over, where it ends, however far its program has come there: a job may be cancelled before it is run again. Doing it again
    /// changes nothing.
    pub give_back: Option<fn(JobId, &[u8])>,
    /// Looks at parameters before a job is made of them: whether they are some of this program, and which paths they name. Why they
    /// are none, else.
    pub check: fn(&[u8]) -> Result<Paths, String>,
    /// What the largest of its tasks needs of a node with these parameters, as far as it says so: without a node that has it the job is refused.
    pub needs: fn(&[u8]) -> Resources,
}

inventory::collect!(Program);

impl Program {
    /// "name@version".
    pub fn key(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// What a job reads and writes, as far as its program says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Files and folders, or patterns of such.
    pub reads: Vec<PathBuf>,
    /// Folders.
    pub writes: Vec<PathBuf>,
}

/// The functions of this binary by key.
pub fn functions() -> &'static BTreeMap<Arc<str>, &'static Function> {
    static FUNCTIONS: OnceLock<BTreeMap<Arc<str>, &'static Function>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let mut functions = BTreeMap::new();
        for function in inventory::iter::<Function> {
            let before = functions.insert(Arc::from(function.key()), function);
            assert!(before.is_none(), "two functions are registered as {}", function.key());
        }
        functions
    })
}

/// The function of this name, "name@version", or of the name alone: its latest version.
pub fn function_named(name: &str) -> Option<FunctionName> {
    let functions = functions();
    let latest = || functions.values().filter(|function| function.name == name).max_by_key(|function| function.version);
    let function = functions.get(name).or_else(latest)?;
    Some(FunctionName { key: function.key().into(), deterministic: function.deterministic })
}

/// The programs of this binary by "name@version".
pub fn programs() -> &'static BTreeMap<String, &'static Program> {
    static PROGRAMS: OnceLock<BTreeMap<String, &'static Program>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let mut programs = BTreeMap::new();
        for program in inventory::iter::<Program> {
            let before = programs.insert(program.key(), program);
            assert!(before.is_none(), "two programs are registered as {}", program.key());
        }
        programs
    })
}

/// The name in a key, "name@version".
pub fn name_of(key: &str) -> &str {
    key.split_once('@').map_or(key, |(name, _)| name)
}

/// The latest version of the program of a name.
pub fn latest(name: &str) -> Option<&'static Program> {
    programs().values().filter(|program| program.name == name).max_by_key(|program| program.version).copied()
}
