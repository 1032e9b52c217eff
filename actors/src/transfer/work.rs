//! What a thread does with a job: connect where needed, ask, take in the answers.

use std::sync::Arc;

use exobus_store::{Block, Clock, CopyId};
use tracing::debug;

use super::client::Connection;
use super::copy::Target;
use super::error::TransferError;
use super::fetch::Progress;
use super::pool::{Counters, Job, Work};
use super::token::ClusterToken;
use super::wire::{AnswerHead, ITEMS_MAX, Item, Kind};
use super::{ClientOptions, DirectoryList, FetchItem};

/// What all threads share.
pub(super) struct Worker {
    pub(super) options: ClientOptions,
    pub(super) token: ClusterToken,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) counters: Counters,
}

impl Worker {
    /// Does a job over `connection`, or a new one; the connection, if it can be used again.
    pub(super) fn run(&self, job: Job, connection: Option<Connection>) -> Option<Connection> {
        let Job { progress, work } = job;
        progress.begin();
        // Whoever waits may act on the answer at once: nothing may be left to do after it is sent but to give the
        // connection back.
        match work {
            Work::Directories { kind, items, done } => {
                let mut connection = connection;
                let answer = self.directories(&progress, &mut connection, kind, &items);
                self.end(&progress, answer.as_ref().err());
                let connection = connection.filter(|_| progress.releases());
                let _ = done.send(answer);
                connection
            }
            Work::Fetch { items, done } => {
                let mut connection = connection;
                let results = self.fetch(&progress, &mut connection, items);
                self.end(&progress, results.iter().find_map(|result| result.as_ref().err()));
                let connection = connection.filter(|_| progress.releases());
                let _ = done.send(results);
                connection
            }
            Work::Copy { target, done } => {
                let mut connection = connection;
                let answer = self.copy(&progress, &mut connection, &target);
                self.end(&progress, answer.as_ref().err());
                let connection = connection.filter(|_| progress.releases());
                // Nobody wants it any more: it goes.
                if let Err(Ok(copy)) = done.send(answer) {
                    target.store.delete(&[copy]);
                }
                connection
            }
        }
    }

    fn end(&self, progress: &Progress, error: Option<&TransferError>) {
        self.counters.bytes.add(progress.bytes());
        if let Some(error) = error
            && !progress.is_cancelled()
        {
            debug!(node = progress.peer().node, %error, "fetch failed");
        }
    }

    fn directories(
        &self,
        progress: &Progress,
        connection: &mut Option<Connection>,
        kind: Kind,
        items: &[Item],
    ) -> Result<DirectoryList, TransferError> {
        let mut list = Vec::with_capacity(items.len());
        for items in items.chunks(ITEMS_MAX) {
            let (mut open, first) = self.ask(progress, connection.take(), kind, items)?;
            list.extend(open.directories(first, items)?);
            *connection = Some(open);
        }
        Ok(list)
    }

    fn fetch(
        &self,
        progress: &Progress,
        connection: &mut Option<Connection>,
        items: Vec<FetchItem>,
    ) -> Vec<Result<Block, TransferError>> {
        let mut results = Vec::with_capacity(items.len());
        let mut items = items.into_iter();
        let mut broken: Option<TransferError> = None;
        loop {
            let part: Vec<_> = items.by_ref().take(ITEMS_MAX).collect();
            if part.is_empty() {
                return results;
            }
            if let Some(error) = &broken {
                results.extend(part.iter().map(|_| Err(error.clone())));
                continue;
            }
            let asked: Vec<_> = part.iter().map(|item| Item { object: item.object, parts: item.parts }).collect();
            match self.ask(progress, connection.take(), Kind::Read, &asked) {
                Ok((mut open, first)) => {
                    let (part, usable) = open.fetch(first, part, progress, &self.counters);
                    match usable {
                        true => *connection = Some(open),
                        false => broken = part.last().and_then(|last| last.as_ref().err().cloned()),
                    }
                    results.extend(part);
                }
                Err(error) => {
                    self.counters.failed.add(part.len() as u64);
                    results.extend(part.iter().map(|_| Err(error.clone())));
                    broken = Some(error);
                }
            }
        }
    }

    fn copy(
        &self,
        progress: &Progress,
        connection: &mut Option<Connection>,
        target: &Target,
    ) -> Result<CopyId, TransferError> {
        let item = Item { object: target.object, parts: target.parts };
        let absent = || TransferError::Absent { peer: progress.peer().clone(), object: item.object };
        let parts =
            self.directories(progress, connection, Kind::Directory, &[item])?.pop().flatten().ok_or_else(absent)?;
        let (mut open, first) = self.ask(progress, connection.take(), Kind::Read, &[item])?;
        let first = first.ok_or_else(absent)?;
        let copy = open.copy(&first, &parts, target, progress);
        match &copy {
            Ok(_) => self.counters.items.add(1),
            Err(TransferError::Corrupt { .. }) => self.counters.corrupt.add(1),
            Err(_) => self.counters.failed.add(1),
        }
        // After an error in the middle of a body the connection is of no use.
        if copy.is_ok() {
            *connection = Some(open);
        }
        copy
    }

    /// Sends a request, over the given connection if the peer has not closed it meanwhile, else over a new one, and
    /// waits for the first answer.
    fn ask(
        &self,
        progress: &Progress,
        connection: Option<Connection>,
        kind: Kind,
        items: &[Item],
    ) -> Result<(Connection, Option<AnswerHead>), TransferError> {
        if let Some(mut connection) = connection.filter(|connection| !connection.is_stale()) {
            connection.held_by(progress)?;
            match connection.ask(kind, items) {
                Ok(first) => return Ok((connection, first)),
                // It may have been closed while the request was on its way: asking again repeats nothing.
                Err(TransferError::Interrupted { peer, cause, .. }) => debug!(%peer, cause, "connecting anew"),
                Err(error) => return Err(error),
            }
        }
        if progress.is_cancelled() {
            return Err(TransferError::Stopped);
        }
        let clock = Arc::clone(&self.clock);
        let mut connection = Connection::open(progress.peer(), &self.options, &self.token, clock, progress)?;
        self.counters.connected.add(1);
        let first = connection.ask(kind, items)?;
        Ok((connection, first))
    }
}
