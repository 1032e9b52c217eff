//! Keeps what a program wants kept, one object after the other, beside the program: one for each run of a job, on the arbiter of jobs.
//!
//! For each object that was appended: it is waited for until it exists, the node that has it is asked to keep it, and its record is written.
//! Where that node's disks do not take it, others are asked to fetch it; where its bytes are gone, it is made again. What a run that was
//! cut off has kept is found in the record, and kept. When the program has returned and nothing is lost, all files are complete.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{debug, info, warn};

use super::record::{FileRecord, MemberRecord, ResultRecord, kept_number};
use super::records::RecordsError;
use super::{ResultsParts, door, holder};
use crate::causes;
use crate::futures::{FoundCopy, Futures, KeepCall, ObjectRef};
use crate::ids::{CopyId, JobId, NodeId, ObjectId};
use crate::protocol::results::{JobKept, KeptMember, NotKept, ResultsMsg};

/// How often it is tried to keep an object whose bytes are gone where they were.
const TRIES: u32 = 4;
/// How often it is looked, in the end, whether what was kept is there still, and what is lost is kept anew.
const LOOKS: u32 = 4;
/// How long a node may take to answer at all.
const ANSWER_MIN: Duration = Duration::from_secs(10);

/// What a keeper is made of.
pub(crate) struct KeeperParts {
    pub(crate) results: ResultsParts,
    pub(crate) futures: Futures,
    pub(crate) tenant: Arc<str>,
}

/// See the module.
pub(crate) struct Keeper {
    parts: KeeperParts,
    job: JobId,
    /// What was appended, in order, by file.
    files: BTreeMap<u32, (Arc<str>, Vec<ObjectRef>)>,
    /// What was kept of each object.
    kept: BTreeMap<ObjectId, MemberRecord>,
    /// The record as it was last seen; what an earlier run has left of it at first.
    record: Option<Arc<ResultRecord>>,
    /// Whether this keeper has written a record: if it is gone after that, somebody has deleted it, or its server was emptied.
    written: bool,
}

impl Keeper {
    pub(crate) fn new(parts: KeeperParts) -> Self {
        let job = parts.futures.job();
        Self { parts, job, files: BTreeMap::new(), kept: BTreeMap::new(), record: None, written: false }
    }

    /// Keeps what the calls say, until there are no more; what became of it, `None` where there was none. It may be dropped at any time: what it
    /// has kept by then is found by the next run, or swept.
    pub(crate) async fn run(mut self, mut calls: UnboundedReceiver<KeepCall>) -> Option<JobKept> {
        let first = calls.recv().await?;
        let results = self.parts.results.clone();
        let (tenant, job) = (self.parts.tenant.clone(), self.job);
        let renewing = async {
            loop {
                tokio::time::sleep(results.kept_for / 2).await;
                let renewed =
                    |record: Option<ResultRecord>| Some(ResultRecord { until_unix_ms: until(&results), ..record? });
                if let Err(error) = results.records.change(&tenant, job, renewed).await {
                    debug!(job_id = %job, %error, "the time of a result is not renewed");
                }
            }
        };
        let keeping = async {
            let outcome = self.keep_all(first, &mut calls).await;
            match outcome {
                Ok(kept) => kept,
                Err(why) => {
                    warn!(job_id = %job, why, "the job has no result");
                    discard(&self.parts.results, &self.parts.tenant, job).await;
                    JobKept::Nothing { why }
                }
            }
        };
        tokio::select! {
            biased;
            kept = keeping => Some(kept),
            () = renewing => unreachable!("it renews for ever"),
        }
    }

    async fn keep_all(&mut self, first: KeepCall, calls: &mut UnboundedReceiver<KeepCall>) -> Result<JobKept, String> {
        let no_record = |error: RecordsError| format!("its record cannot be written: {}", causes(&error));
        self.record = self.parts.results.records.now(&self.parts.tenant, self.job).await.map_err(no_record)?;
        let mut next = Some(first);
        while let Some(call) = next {
            match call {
                KeepCall::Append { file, name, object } => {
                    let members = &mut self.files.entry(file).or_insert_with(|| (name.clone(), Vec::new())).1;
                    let member = members.len() as u32;
                    members.push(object.clone());
                    let record = self.keep(&object, kept_number(file, member)).await?;
                    self.note(|known| known.set_member((file, &name), member, record.clone()))
                        .await
                        .map_err(no_record)?;
                }
                KeepCall::Complete { file, name } => {
                    self.files.entry(file).or_insert_with(|| (name.clone(), Vec::new()));
                    self.note(|known| {
                        known.begin_file(file, &name);
                        known.files[file as usize].complete = true;
                        true
                    })
                    .await
                    .map_err(no_record)?;
                }
            }
            next = calls.recv().await;
        }
        for _ in 0..LOOKS {
            if !self.keep_anew().await? {
                break;
            }
        }
        self.finish().await.map_err(no_record)
    }

    /// Keeps what went with its node since; whether there was any.
    async fn keep_anew(&mut self) -> Result<bool, String> {
        let directory = &self.parts.results.directory;
        let lost = |record: &MemberRecord| record.bytes > 0 && directory.is_gone(&record.node);
        let gone: BTreeSet<ObjectId> =
            self.kept.iter().filter(|(_, record)| lost(record)).map(|(object, _)| *object).collect();
        if gone.is_empty() {
            return Ok(false);
        }
        info!(job_id = %self.job, objects = gone.len(), "members of the result went with their nodes, and are kept anew");
        self.kept.retain(|object, _| !gone.contains(object));
        // What the record has of them is of no use.
        self.record = None;
        let files = self.files.clone();
        for (file, (name, members)) in files {
            for (member, object) in members.iter().enumerate().filter(|(_, object)| gone.contains(&object.id())) {
                let record = self.keep(object, kept_number(file, member as u32)).await?;
                let noted = self.note(|known| known.set_member((file, &name), member as u32, record.clone())).await;
                noted.map_err(|error| format!("its record cannot be written: {}", causes(&error)))?;
            }
        }
        Ok(true)
    }

    /// All files are complete; what there is.
    async fn finish(&mut self) -> Result<JobKept, RecordsError> {
        let names: Vec<(u32, Arc<str>, usize)> =
            self.files.iter().map(|(file, (name, members))| (*file, name.clone(), members.len())).collect();
        self.note(|record| {
            for (file, name, members) in &names {
                record.begin_file(*file, name);
                let known: &mut FileRecord = &mut record.files[*file as usize];
                // An earlier run may have come further than one that was told otherwise.
                known.members.truncate(*members);
                known.complete = known.members.len() == *members;
            }
            names.iter().all(|(file, _, _)| record.files[*file as usize].complete)
        })
        .await?;
        let (results, tenant) = (&self.parts.results, &self.parts.tenant);
        let record = results.records.now(tenant, self.job).await?;
        record.map(|record| all_of(&record)).ok_or(RecordsError::Deleted(self.job))
    }

    /// Changes the record of the result, and renews its time. A record that is gone since it was written is not begun anew, and one of which
    /// `change` says that members are missing is not written: what was kept before is lost to it, and the rest alone is no result.
    async fn note(&mut self, change: impl Fn(&mut ResultRecord) -> bool) -> Result<(), RecordsError> {
        let (results, tenant) = (&self.parts.results, &self.parts.tenant);
        let lacks = Cell::new(false);
        let changed = |record: Option<ResultRecord>| {
            let (now, until) = (results.post.clock().unix_ms(), until(results));
            let known = record.filter(|record| !record.expired);
            let known = known.or_else(|| (!self.written).then(|| ResultRecord::new(now, until)));
            let record = known.map(|known| ResultRecord { until_unix_ms: until, ..known });
            let record = record.and_then(|mut record| change(&mut record).then_some(record));
            lacks.set(record.is_none());
            record
        };
        results.records.change(tenant, self.job, changed).await?;
        if lacks.get() {
            return Err(RecordsError::Deleted(self.job));
        }
        self.written = true;
        Ok(())
    }

    /// Has somebody keep an object, when it exists.
    async fn keep(&mut self, object: &ObjectRef, number: u64) -> Result<MemberRecord, String> {
        if let Some(record) = self.kept.get(&object.id()).cloned().or_else(|| self.kept_before(object.id())) {
            self.kept.insert(object.id(), record.clone());
            return Ok(record);
        }
        let (mut unreadable, mut why) = (None, String::new());
        for _ in 0..TRIES {
            let found = self.parts.futures.find(object, unreadable.take()).await;
            let found = found.map_err(|error| format!("an object of it was not made: {error}"))?;
            match self.keep_found(&found, number).await {
                Ok(record) => {
                    self.kept.insert(object.id(), record.clone());
                    return Ok(record);
                }
                Err(NotKept::NoRoom(text)) => return Err(format!("no node has room for it: {text}")),
                Err(NotKept::Gone(text)) => {
                    info!(job_id = %self.job, copy_id = %found.copy, text, "a member of the result is looked for anew");
                    (unreadable, why) = (Some(found.copy), text);
                }
            }
        }
        Err(format!("its bytes were lost {TRIES} times before they were kept: {why}"))
    }

    /// What an earlier run has kept of this object, where that is there still.
    fn kept_before(&self, object: ObjectId) -> Option<MemberRecord> {
        let record = self.record.as_ref().filter(|record| !record.expired)?;
        let members = record.files.iter().flat_map(|file| &file.members);
        let of_object = |member: &&MemberRecord| {
            member.bytes > 0 && ObjectId::of_copy(CopyId::new(self.job.group(), member.copy)).0 == object
        };
        let mut found = members.filter(of_object);
        found.find(|member| self.is_there(&member.node)).cloned()
    }

    fn is_there(&self, node: &NodeId) -> bool {
        let results = &self.parts.results;
        node == results.post.node() || results.others().contains(node)
    }

    /// Has the node keep a copy that has it, or another one that fetches it from there.
    async fn keep_found(&self, found: &FoundCopy, number: u64) -> Result<MemberRecord, NotKept> {
        let record = |node: &NodeId, KeptMember { bytes, hash }: KeptMember| MemberRecord {
            bytes,
            hash,
            node: node.clone(),
            kept: number,
            copy: found.copy.bits,
        };
        if found.output.bytes == 0 {
            let hash = twox_hash::XxHash3_128::oneshot(&[]);
            return Ok(record(&found.node, KeptMember { bytes: 0, hash }));
        }
        let mut why = match self.ask(&found.node, found, number).await {
            Ok(kept) => return Ok(record(&found.node, kept)),
            Err(NotKept::NoRoom(text)) => format!("{}: {text}", found.node),
            Err(gone) => return Err(gone),
        };
        for node in self.parts.results.others_than(&found.node) {
            match self.ask(&node, found, number).await {
                Ok(kept) => return Ok(record(&node, kept)),
                Err(NotKept::NoRoom(text) | NotKept::Gone(text)) => why = format!("{why}; {node}: {text}"),
            }
        }
        Err(NotKept::NoRoom(why))
    }

    async fn ask(&self, node: &NodeId, found: &FoundCopy, kept: u64) -> Result<KeptMember, NotKept> {
        let (results, tenant) = (&self.parts.results, self.parts.tenant.clone());
        let (job, copy, at) = (self.job, found.copy, found.node.clone());
        let question = |reply| ResultsMsg::Keep { tenant, job, kept, copy, at, reply };
        results.ask_to_keep(node, question, ANSWER_MIN + 2 * holder::put_away_within(found.output.bytes)).await
    }
}

/// Until when what is kept now is there.
fn until(results: &ResultsParts) -> u64 {
    results.post.clock().unix_ms() + results.kept_for.as_millis() as u64
}

/// A job that has no result, or has failed: nothing of what it kept is needed. Something may be kept that no record names yet, so all nodes are
/// told.
pub(crate) async fn discard(results: &ResultsParts, tenant: &str, job: JobId) {
    match results.records.remove(tenant, job).await {
        Ok(_) => {}
        // What it names is there for whoever can read it.
        Err(error) if error.is_unreadable() => return,
        Err(error) => debug!(job_id = %job, %error, "the record of a result is not removed"),
    }
    let nodes = results.others().into_iter().chain([results.post.node().clone()]);
    door::tell_to_drop(results, job, nodes);
}

/// A result whose files are complete.
fn all_of(record: &ResultRecord) -> JobKept {
    let (files, bytes) = (record.files.len() as u64, record.bytes());
    JobKept::Result { files, bytes, until_unix_ms: record.until_unix_ms }
}

/// What there is of a job that returned on a node that is gone: its record says, where it has one.
pub(crate) async fn kept_by(results: &ResultsParts, tenant: &str, job: JobId) -> Option<JobKept> {
    let record = match results.records.now(tenant, job).await {
        Ok(record) => record.filter(|record| !record.expired)?,
        Err(error) => {
            let why = format!("whether it has one is not known: {}", causes(&error));
            return Some(JobKept::Nothing { why });
        }
    };
    if record.files.iter().all(|file| file.complete) {
        return Some(all_of(&record));
    }
    discard(results, tenant, job).await;
    Some(JobKept::Nothing { why: "the node that hosted the job was gone before all of it was kept".to_owned() })
}
