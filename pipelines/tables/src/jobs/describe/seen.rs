//! What was seen of some files, as it goes from task to task.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use exobus_actors::registry::TaskError;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::block::Layout;
use crate::jobs::budget::{TaskBudget, of_table};
use crate::sources::{Reservation, Source};

/// Schemas of files, in the order of these, until one was met with which something is wrong.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Those that differ, each as an encoded [`Layout`].
    pub(super) schemas: Vec<ByteBuf>,
    /// The name of each file that has another schema than the one before it, and the number of its schema.
    pub(super) files: Vec<(String, u32)>,
    /// What is wrong with the file behind them.
    pub(super) failed: Option<Failed>,
}

/// How a task is to fail, which no attempt can help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Failed {
    Request(String),
    Data(String),
    Files(String),
    Final(String),
}

impl Failed {
    /// Of what another attempt may do better the task fails itself.
    fn of(error: TaskError) -> Result<Self, TaskError> {
        Ok(match error {
            TaskError::Request(text) => Self::Request(text),
            TaskError::Data(text) => Self::Data(text),
            TaskError::Final(text) => Self::Final(text),
            TaskError::Files { message, retry: false } => Self::Files(message),
            other => return Err(other),
        })
    }

    pub(super) fn error(self) -> TaskError {
        match self {
            Self::Request(text) => TaskError::Request(text),
            Self::Data(text) => TaskError::Data(text),
            Self::Final(text) => TaskError::Final(text),
            Self::Files(message) => TaskError::Files { message, retry: false },
        }
    }
}

/// Gathers schemas.
pub(super) struct Schemas<'a> {
    seen: Seen,
    numbers: HashMap<ByteBuf, u32>,
    /// Of the last file.
    last: Option<SchemaRef>,
    memory: Reservation,
    budget: &'a Arc<TaskBudget>,
}

impl<'a> Schemas<'a> {
    pub(super) fn new(budget: &'a Arc<TaskBudget>) -> Self {
        let memory = Reservation::none(&budget.shared());
        Self { seen: Seen::default(), numbers: HashMap::new(), last: None, memory, budget }
    }

    /// Adds that of the next file.
    pub(super) fn add(&mut self, source: &Source) -> Result<(), TaskError> {
        let schema = source.schema();
        if self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, schema) || last == schema) {
            return Ok(());
        }
        let encoded = ByteBuf::from(Layout::new(schema).map_err(of_table)?.encode());
        let name = source.file().name().to_string();
        // Here, and as it is written.
        let bytes = 4 * encoded.len() + 4 * name.len() + size_of::<(String, u32)>();
        let more = self.memory.bytes() + bytes as u64;
        self.memory.resize(more).map_err(|denied| self.budget.of_list(denied))?;
        let next = self.seen.schemas.len() as u32;
        let number = *self.numbers.entry(encoded).or_insert_with_key(|encoded| {
            self.seen.schemas.push(encoded.clone());
            next
        });
        self.seen.files.push((name, number));
        self.last = Some(schema.clone());
        Ok(())
    }

    /// All of them, behind which nothing comes, or a file with which this is wrong.
    pub(super) fn finish(self, looked: Result<(), TaskError>) -> Result<Seen, TaskError> {
        let failed = looked.err().map(Failed::of).transpose()?;
        Ok(Seen { failed, ..self.seen })
    }
}
