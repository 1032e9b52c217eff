//! [`Watch`]: values, then changes.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use super::{Entry, entry, is_removal};
use crate::error::BusError;
use crate::streams::{Reader, Record};
use crate::subject::Subject;

/// Changes that are read ahead.
const READ_MAX: usize = 256;

/// One change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It has this value.
    Put(Entry),
    /// It has none (any more); it may never have been seen here.
    Removed {
        /// The key.
        key: String,
        /// Of the change that removed it.
        revision: u64,
    },
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// A value that was there, or a change.
    Changed(Change),
    /// All values that were there have been told; told once.
    CaughtUp,
}

/// Follows keys of a bucket. When the server was away it goes on with what changed meanwhile.
pub struct Watch {
    reader: Reader,
    prefix: Subject,
    ready: VecDeque<Record>,
    /// The records in `ready` are the last of those that were there.
    at_end: bool,
    caught_up: bool,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("prefix", &self.prefix).field("caught_up", &self.caught_up).finish()
    }
}

impl Watch {
    pub(super) fn new(reader: Reader, prefix: Subject) -> Self {
        Self { reader, prefix, ready: VecDeque::new(), at_end: false, caught_up: false }
    }

    /// The next event; `None` when there is none within `wait`. Cancel safe.
    ///
    /// # Errors
    /// Retryable ones: call again, nothing is lost. `StreamMissing`, `Storage`, `Closed` are final.
    pub async fn next(&mut self, wait: Duration) -> Result<Option<WatchEvent>, BusError> {
        let end = tokio::time::Instant::now() + wait;
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(WatchEvent::Changed(self.change(record))));
            }
            if self.at_end && !self.caught_up {
                self.caught_up = true;
                return Ok(Some(WatchEvent::CaughtUp));
            }
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            // Until it has caught up it only looks, since an empty bucket is news, too.
            let patience = if self.caught_up { left } else { Duration::ZERO };
            let batch = self.reader.next(READ_MAX, patience).await?;
            self.at_end |= batch.caught_up;
            if batch.records.is_empty() && (self.caught_up || !self.at_end) && left.is_zero() {
                return Ok(None);
            }
            self.ready.extend(batch.records);
        }
    }

    fn change(&self, record: Record) -> Change {
        let key = record.subject.as_str().get(self.prefix.as_str().len() + 1..).unwrap_or_default().to_owned();
        match is_removal(&record) {
            true => Change::Removed { key, revision: record.sequence },
            false => Change::Put(entry(key, record)),
        }
    }
}
