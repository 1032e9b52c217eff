//! Memory of a task beside the store, as decoders and writers ask for it, and how a task fails over tables.

use std::sync::Arc;

use exobus_actors::registry::{Outside, TaskContext, TaskError};
use exobus_store::StoreError;
use parking_lot::Mutex;

use crate::TableError;
use crate::sinks::SinkError;
use crate::sources::{MemoryBudget, MemoryDenied, SourceError};

/// A task asks for so many bytes more at least, and for a quarter of what it has: who is denied begins again, and not once for each few bytes.
const STEP: u64 = 4 << 20;

/// What a task was granted beside the store, handed out to what decodes and writes there. What was given back stays with the task until its end.
pub struct TaskBudget(Mutex<State>);

struct State {
    used: u64,
    granted: Outside,
    /// Why more was not granted, the last time.
    denied: Option<StoreError>,
}

impl TaskBudget {
    /// Of what the task was granted before it started.
    pub fn new(context: &mut TaskContext<'_>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { used: 0, granted: context.outside_granted(), denied: None })))
    }

    /// As what decoders and writers take.
    pub fn shared(self: &Arc<Self>) -> Arc<dyn MemoryBudget> {
        self.clone()
    }

    /// The failure of a task that was denied so much: it begins again with more.
    fn failure(&self, text: String) -> TaskError {
        match self.0.lock().denied.take() {
            // Who asked, and for what in which file, is more than the store knows.
            Some(StoreError::NeverGranted { most, .. }) => {
                TaskError::request(format!("{text} (beside its store this node has {} MiB: --memory)", most >> 20))
            }
            Some(error) => TaskError::Store(error),
            None => TaskError::Failed(text),
        }
    }

    /// How the task fails that could not read.
    pub fn of_source(&self, error: SourceError) -> TaskError {
        match error {
            SourceError::File(error) => error.into(),
            SourceError::Memory { .. } => self.failure(error.to_string()),
            error if error.is_of_the_request() => TaskError::request(error),
            error if error.is_of_the_input() => TaskError::data(error),
            error => TaskError::fatal(error),
        }
    }

    /// How the task fails that could not write. `file`: what went wrong with its file.
    pub(super) fn of_sink(&self, error: SinkError, file: Option<exobus_files::FileError>) -> TaskError {
        match (file, error) {
            (Some(file), _) => file.into(),
            (None, SinkError::Memory { what, denied }) => self.failure(SinkError::Memory { what, denied }.to_string()),
            (None, SinkError::Table(error)) => of_table(error),
            (None, error @ SinkError::NoSuchValue { .. }) => TaskError::data(error),
            (None, error) => TaskError::fatal(error),
        }
    }

    /// How the task fails that could not put rows in order.
    pub(super) fn of_order(&self, error: Unordered) -> TaskError {
        match error {
            Unordered::Memory(denied) => self.of_rows(denied),
            Unordered::Table(error) => of_table(error),
        }
    }

    /// How the task fails that has no room for what is known of the files of a table.
    pub(super) fn of_list(&self, denied: MemoryDenied) -> TaskError {
        self.failure(format!("what is known of the files of the table takes memory: {denied}"))
    }

    /// How the task fails that has no room for what is to be said of the files that it has written.
    pub(super) fn of_files(&self, denied: MemoryDenied) -> TaskError {
        self.failure(format!("what is known of the files in very many folders takes memory: {denied}"))
    }

    /// How the task fails that has no room for the values of folders, one for each row.
    pub(super) fn of_folders(&self, denied: MemoryDenied) -> TaskError {
        self.failure(format!("values of columns that are folders take memory: {denied}"))
    }

    /// How the task fails that has no room for what a function gave.
    pub(super) fn of_given(&self, denied: MemoryDenied) -> TaskError {
        self.failure(format!("what the function gave takes memory: {denied}"))
    }

    /// How the task fails that has no room for rows on their way to a file.
    pub(super) fn of_message(&self, denied: MemoryDenied) -> TaskError {
        self.failure(format!("rows that are written take memory: {denied}"))
    }

    /// How the task fails that could not put rows of groups together.
    pub(super) fn of_groups(&self, error: Unordered) -> TaskError {
        match error {
            Unordered::Memory(denied) => self.failure(format!("groups that are put together take memory: {denied}")),
            Unordered::Table(error) => of_table(error),
        }
    }

    /// How the task fails that has no room for what it puts in order.
    pub(super) fn of_rows(&self, denied: MemoryDenied) -> TaskError {
        self.failure(format!("rows that are put in order take memory: {denied}"))
    }
}

/// Why rows are not put in order.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unordered {
    #[error(transparent)]
    Memory(#[from] MemoryDenied),
    #[error(transparent)]
    Table(#[from] TableError),
}

/// How a task fails for this.
pub(super) fn of_table(error: TableError) -> TaskError {
    match error {
        TableError::Store(error) => TaskError::Store(error),
        TableError::NoColumn { .. }
        | TableError::NoKey
        | TableError::NoOrder { .. }
        | TableError::Unsupported { .. }
        | TableError::NotRecords { .. }
        | TableError::JoinedAlike { .. }
        | TableError::SelectedTwice { .. }
        | TableError::KeyNotSelected { .. }
        | TableError::NoComputation { .. }
        | TableError::Expression(_) => TaskError::request(error),
        error if error.is_of_the_input() => TaskError::data(error),
        error => TaskError::fatal(error),
    }
}

impl MemoryBudget for TaskBudget {
    fn take(&self, bytes: u64) -> Result<(), MemoryDenied> {
        let mut state = self.0.lock();
        let denied = MemoryDenied { wanted: bytes };
        let used = state.used.checked_add(bytes).ok_or(denied)?;
        if used > state.granted.bytes() {
            let more = used.saturating_add((used / 4).max(STEP));
            // What would do is asked for where there is not as much.
            let resized = state.granted.resize(more).or_else(|_| state.granted.resize(used));
            if let Err(error) = resized {
                state.denied = Some(error);
                return Err(denied);
            }
        }
        state.used = used;
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        let mut state = self.0.lock();
        assert!(state.used >= bytes, "{bytes} bytes were given back of {} that were taken", state.used);
        state.used -= bytes;
    }
}
