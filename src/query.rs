//! SQL over files as a library: what `exobus query` does, as calls.
//!
//! ```
//! use exobus::Query;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("sales.csv");
//! std::fs::write(&file, "city,price\noslo,3\nlima,1\noslo,4\n")?;
//! let answer = Query::new("SELECT city, sum(price) AS paid FROM sales GROUP BY city ORDER BY paid DESC")
//!     .table("sales", &file)
//! #   .memory(128 << 20).executors(2).spill(folder.path())
//!     .answer()?;
//! let rows: usize = answer.batches.iter().map(|batch| batch.num_rows()).sum();
//! assert_eq!((rows, answer.schema.field(1).name().as_str()), (2, "paid"));
//! # Ok(())
//! # }
//! ```

use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use exobus_actors::event::{Event, EventKind, EventSink};
use exobus_actors::futures::Futures;
use exobus_actors::ids::JobId;
use exobus_actors::protocol::host::JobSpec;
use exobus_actors::task::JobError;
use exobus_actors::words::{Word, Words};
use exobus_queries::estimators::Kind;
use exobus_queries::online::Online;
use exobus_queries::snapshot::Snapshot;
use exobus_queries::stopping::Until;
use exobus_sql::SqlError;
use exobus_sql::program::{Answered, SqlQuery, query};
use exobus_sql::text::{TableNames, parse};
use exobus_tables::arrow_array::RecordBatch;
use exobus_tables::arrow_schema::SchemaRef;
use futures::Stream;
use futures::channel::{mpsc, oneshot};

use crate::commands::{alone, alone_watched};
use crate::config::{MemoryBudget, NodeConfig, Overrides};
use crate::temporary::Temporary;
use crate::{machine, objects};

/// A query over files, answered in this process. Settings have the defaults of the command; configuration files and the environment are not looked at.
#[derive(Clone, Debug)]
pub struct Query {
    text: String,
    tables: Vec<(String, PathBuf)>,
    rows: u64,
    process: Overrides,
}

/// What a query has answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Names and types of the columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
    /// Whether these are all: as many are given as were asked for, and 4 MiB of them at most, some 200 KiB on a cluster.
    pub is_all: bool,
    /// What else is said of it.
    pub answered: Answered,
}

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It is none.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// The node of this process could not start: too little memory, no room to spill.
    #[error("{message}")]
    Node {
        /// Why.
        message: String,
    },
    /// The job failed; the message names the place in the query, or the file.
    #[error(transparent)]
    Job(#[from] JobError),
}

impl Query {
    /// A query, whose tables are files in quotes, or names of [`table`](Self::table).
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), tables: Vec::new(), rows: 1_000_000, process: Overrides::default() }
    }

    /// A name for a file, a folder or a pattern.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>, files: impl Into<PathBuf>) -> Self {
        self.tables.push((name.into(), files.into()));
        self
    }

    /// How many rows of the answer are given, at most. Default: a million.
    #[must_use]
    pub fn rows(mut self, rows: u64) -> Self {
        self.rows = rows;
        self
    }

    /// What the job may use in memory, bytes. Default: 60 % of what is available.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.process.memory = Some(MemoryBudget::Bytes(bytes));
        self
    }

    /// A folder for what does not fit, and for what steps of the query write. Default: `/var/tmp`.
    #[must_use]
    pub fn spill(mut self, folder: impl Into<PathBuf>) -> Self {
        self.process.spill_dirs.push(folder.into());
        self
    }

    /// How many tasks run side by side. Default: two for each cpu.
    #[must_use]
    pub fn executors(mut self, executors: u32) -> Self {
        self.process.executors = Some(executors);
        self
    }

    /// Answers it, and waits for that: async code calls it on a thread that may wait.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn answer(self) -> Result<Answer, QueryError> {
        let asked = Asked::of(self, None)?;
        let params = asked.params;
        let ran = alone(&asked.config.node, asked.spec, async move |futures: Futures| query(futures, params).await);
        answer(ran)
    }

    /// Answers it, and shows what is known of the answer while tables are read: with `until`, until it is known well enough. `seed` decides in which order they are read.
    ///
    /// # Errors
    /// [`QueryError::Sql`], [`QueryError::Node`].
    pub fn online(self, until: Option<Until>, seed: u64) -> Result<Snapshots, QueryError> {
        let bounds = until.map_or(Kind::Approximate, |until| until.bounds());
        let asked = Asked::of(self, Some(Online { seed, until, bounds, simultaneous: false, keep_for: None }))?;
        let (shows, shown) = mpsc::unbounded();
        let (cancel, cancelled) = oneshot::channel::<()>();
        let words = Words::default();
        let told = words.clone();
        let events = EventSink::new(move |event: Event| {
            if let EventKind::Estimated { snapshot } = event.kind
                && let Ok(snapshot) = serde_json::from_str(&snapshot)
            {
                // Who has seen enough does not look any more.
                let _ = shows.unbounded_send(snapshot);
            }
        });
        let thread = std::thread::Builder::new().name("exobus-query".to_owned()).spawn(move || {
            let Asked { config, spec, params, scratch } = asked;
            let program = async move |futures: Futures| query(futures, params).await;
            let interrupted = async {
                if cancelled.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let ran = alone_watched(&config.node, spec, program, (Some(events), told, interrupted));
            drop(scratch);
            answer(ran)
        });
        let thread = thread.map_err(|error| QueryError::Node { message: error.to_string() })?;
        Ok(Snapshots { shown, thread: Some(thread), cancel: Some(cancel), words })
    }
}

/// A query that is about to be answered.
struct Asked {
    config: NodeConfig,
    spec: JobSpec,
    params: SqlQuery,
    /// Where steps write; it goes with the answer.
    scratch: Temporary,
}

impl Asked {
    fn of(Query { text, tables, rows, process }: Query, online: Option<Online>) -> Result<Self, QueryError> {
        let node = |message: String| QueryError::Node { message };
        let config =
            NodeConfig::load_with(None, &process, std::iter::empty()).map_err(|error| node(error.to_string()))?;
        objects::register_by_itself();
        let parent = process.spill_dirs.first().cloned().unwrap_or_else(machine::big_temporary_folder);
        let scratch = Temporary::make(&parent, "exobus-query-").map_err(|error| node(error.to_string()))?;
        let directory = std::env::current_dir().map_err(|error| node(error.to_string()))?;
        let tables = TableNames { named: &tables, directory: Some(&directory) }.resolved(&parse(&text)?)?;
        let params = SqlQuery { online, rows_shown: rows, ..SqlQuery::new(text, tables, scratch.path().join("steps")) };
        let spec = JobSpec::of(JobId::new(), SqlQuery::NAME, &params)?;
        Ok(Self { config, spec, params, scratch })
    }
}

fn answer(ran: Result<Result<Answered, JobError>, crate::exit::Failure>) -> Result<Answer, QueryError> {
    let answered = ran.map_err(|failure| QueryError::Node { message: failure.to_string() })??;
    let (schema, batches) = answered.shown.batches().map_err(JobError::program)?;
    Ok(Answer { schema, batches, is_all: answered.shown.is_all, answered })
}

/// What is known of an answer, better and better: a stream, whose last item is of all rows, unless it ended before. Dropped, it ends the query.
#[derive(Debug)]
pub struct Snapshots {
    shown: mpsc::UnboundedReceiver<Snapshot>,
    thread: Option<JoinHandle<Result<Answer, QueryError>>>,
    cancel: Option<oneshot::Sender<()>>,
    words: Words,
}

impl Snapshots {
    /// Says that enough was seen: the query ends with what it has shown last. Whether it has heard that; it has not where nothing was begun yet, or everything was read.
    pub fn enough(&self) -> bool {
        self.words.say(Word::Enough)
    }

    /// The answer, waited for; of a query that ended before everything was read it has no rows, and says what was shown last.
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn answer(mut self) -> Result<Answer, QueryError> {
        let ended = self.thread.take().map(JoinHandle::join);
        let panicked = || QueryError::Node { message: "the thread of the query panicked".to_owned() };
        ended.and_then(Result::ok).ok_or_else(panicked)?
    }
}

impl Stream for Snapshots {
    type Item = Snapshot;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Snapshot>> {
        Pin::new(&mut self.shown).poll_next(context)
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if let Some(cancel) = self.cancel.take() {
            // It may have ended meanwhile.
            let _ = cancel.send(());
        }
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use exobus_queries::stopping::Ended;
    use futures::StreamExt as _;

    use super::*;

    fn sales(folder: &std::path::Path) -> PathBuf {
        let files = folder.join("sales");
        std::fs::create_dir(&files).unwrap();
        for file in 0..40 {
            let rows: String =
                (0..100).map(|row| format!("{},{}\n", ["oslo", "rome"][(file * row) % 2], row)).collect();
            std::fs::write(files.join(format!("{file:02}.csv")), format!("city,price\n{rows}")).unwrap();
        }
        files
    }

    #[test]
    fn snapshots_come_as_a_stream_and_the_answer_behind_them() {
        let folder = tempfile::tempdir().unwrap();
        let sales = sales(folder.path());
        let asked = || {
            let query = Query::new("SELECT city, count(*) AS n FROM sales GROUP BY city ORDER BY n DESC LIMIT 1");
            query.table("Sales", &sales).memory(96 << 20).executors(1).spill(folder.path())
        };
        let mut snapshots = asked().online(None, 7).unwrap();
        let shown: Vec<Snapshot> = futures::executor::block_on(async { snapshots.by_ref().collect().await });
        assert!(shown.len() > 5 && shown.last().unwrap().is_final, "{shown:?}");
        let answer = snapshots.answer().unwrap();
        assert_eq!((answer.batches[0].num_rows(), answer.is_all), (1, true));
        assert_eq!(answer.batches, asked().answer().unwrap().batches);
        // Who has seen enough goes.
        let mut snapshots = asked().online(None, 7).unwrap();
        assert!(futures::executor::block_on(snapshots.next()).is_some());
        drop(snapshots);
        // Who says so has the last look as an answer.
        let mut snapshots = asked().online(None, 7).unwrap();
        assert!(futures::executor::block_on(snapshots.next()).is_some());
        let heard = snapshots.enough();
        let answered = snapshots.answer().unwrap().answered.online.unwrap();
        let expected = if heard { Ended::Asked } else { Ended::Exact { missed: None } };
        assert_eq!((answered.ended, answered.written.is_none()), (expected, heard));
        let refused = asked().table("more", "x").answer().unwrap_err().to_string();
        assert!(refused.contains("the query names no table more"), "{refused}");
        let refused = Query::new("SELECT x FROM").answer().unwrap_err().to_string();
        assert!(refused.contains("Expected"), "{refused}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["sales"]);
    }
}
