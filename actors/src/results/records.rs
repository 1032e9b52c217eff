//! The bucket of records: one for each result, under its tenant and its id.
//!
//! | key              | value                                                                |
//! |------------------|----------------------------------------------------------------------|
//! | `<tenant>.<id>`  | [`ResultRecord`], encoded; gone [`TOMBSTONE`] after its time is over   |
//!
//! Records begin with their version ([`RECORD_VERSION`]). One of another version, or one that cannot be read, is an error for who asks for that
//! result, and for nobody else: it is not written over, and what it names is not deleted, until the record is gone, [`TOMBSTONE`] after its time.
//!
//! A change is made to the record that there is, under its revision, and made again to the one that is there when somebody was faster. What
//! was read is believed for [`BELIEVED`], so that who reads a large file does not ask the bucket for each piece; what is not there is
//! asked for each time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use exobus_bus::codec::CodecError;
use exobus_bus::kv::{Change, Entry, Kv, KvConfig};
use exobus_bus::subject::check_token;
use exobus_bus::{Bus, BusError, Pattern, Subjects, codec};
use exobus_store::Clock;
use tokio::sync::Mutex;

use super::record::{RECORD_VERSION, ResultRecord};
use crate::durable::open_durable;
use crate::ids::JobId;

/// The bucket.
const BUCKET: &str = "results";
/// Records have some hundred bytes for each member.
const BUCKET_BYTES: u64 = 64 << 20;
/// How long an answer of the bucket may take.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);
/// How long it is tried to open it.
const OPEN_DEADLINE: Duration = Duration::from_secs(5);
/// How long what was read is believed.
const BELIEVED: Duration = Duration::from_secs(1);
/// How many records are believed at a time.
const BELIEVED_MAX: usize = 256;
/// How often a change is tried on a record that others change.
const CHANGES_MAX: usize = 32;
/// How long it is known of a result that its time is over.
pub(super) const TOMBSTONE: Duration = Duration::from_secs(24 * 3600);

/// Why a record cannot be had, or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordsError {
    /// The cluster keeps nothing.
    #[error("the cluster's servers keep no records: they have no JetStream for nodes")]
    NoBucket,
    /// The bucket does not do what is asked.
    #[error("the records of results")]
    Bus(#[from] BusError),
    /// It is too large, say.
    #[error("a record of a result cannot be written: {0}")]
    Encode(codec::CodecError),
    /// Another release wrote it.
    #[error(
        "the record of result {key} is of version {found}, this exobus reads version {known}: use the exobus that wrote it"
    )]
    Version {
        /// Whose, and which.
        key: String,
        /// The version found.
        found: u8,
        /// [`RECORD_VERSION`].
        known: u8,
    },
    /// Its bytes are not those that were written, say.
    #[error(
        "the record of result {key} cannot be read, and what it names is kept as long as the record: up to a day after its time is over"
    )]
    Decode {
        /// Whose, and which.
        key: String,
        /// Why.
        source: codec::CodecError,
    },
    /// Somebody has deleted it meanwhile.
    #[error("result {0} was deleted before its job had ended")]
    Deleted(JobId),
    /// Others change it all the time.
    #[error("others change the record of result {0}")]
    Contended(JobId),
}

impl RecordsError {
    /// Whether there is a record that is not read here: what it names is there, too.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Version { .. } | Self::Decode { .. })
    }
}

/// Whose result, and its record.
pub(crate) type Listed = (Arc<str>, JobId, Result<ResultRecord, RecordsError>);

/// Whose result.
type Key = (Arc<str>, JobId);

/// What is found when records are looked through, in order.
pub(super) enum Scanned {
    /// A record. It may have been found before, and then this one counts.
    Record(Listed),
    /// One that was found, perhaps, is gone.
    Gone(Arc<str>, JobId),
}

/// The records of a cluster, or of a node that is alone. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ResultRecords(Arc<Inner>);

struct Inner {
    bus: Bus,
    subjects: Subjects,
    clock: Arc<dyn Clock>,
    opened: Mutex<Option<Kv>>,
    believed: parking_lot::Mutex<BTreeMap<Key, (Duration, Arc<ResultRecord>)>>,
}

impl fmt::Debug for ResultRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResultRecords({})", self.0.subjects.cluster())
    }
}

impl ResultRecords {
    /// Those on this bus; the bucket is opened, or made, when somebody asks for one.
    pub(crate) fn new(bus: Bus, subjects: Subjects, clock: Arc<dyn Clock>) -> Self {
        let (opened, believed) = (Mutex::default(), parking_lot::Mutex::default());
        Self(Arc::new(Inner { bus, subjects, clock, opened, believed }))
    }

    async fn kv(&self) -> Result<Kv, RecordsError> {
        let mut opened = self.0.opened.lock().await;
        if let Some(kv) = &*opened {
            return Ok(kv.clone());
        }
        let config = KvConfig {
            bytes_max: BUCKET_BYTES,
            deletions_kept: Duration::from_secs(60),
            deadline: ANSWER_DEADLINE,
            ..KvConfig::new(&self.subject_name()?, self.0.subjects.kv(BUCKET).map_err(BusError::from)?)
        };
        let open = async || Kv::open(&self.0.bus, &config).await;
        let kv = open_durable(OPEN_DEADLINE, open).await?.map_err(|_| RecordsError::NoBucket)?;
        *opened = Some(kv.clone());
        Ok(kv)
    }

    fn subject_name(&self) -> Result<String, RecordsError> {
        Ok(self.0.subjects.durable_name("kv", BUCKET).map_err(BusError::from)?)
    }

    /// What is asked of the bucket; one that is gone, with a server that was emptied, is made anew.
    async fn ask<T>(&self, question: impl AsyncFn(&Kv) -> Result<T, BusError>) -> Result<T, RecordsError> {
        let kv = self.kv().await?;
        match question(&kv).await {
            Err(BusError::StreamMissing { .. }) => {
                *self.0.opened.lock().await = None;
                Ok(question(&self.kv().await?).await?)
            }
            other => Ok(other?),
        }
    }

    /// A record, perhaps as it was a moment ago; `None`: there is none of this tenant.
    pub(crate) async fn get(&self, tenant: &str, job: JobId) -> Result<Option<Arc<ResultRecord>>, RecordsError> {
        let Ok(()) = check_token(tenant) else { return Ok(None) };
        let (key, now): (Key, _) = ((tenant.into(), job), self.0.clock.now());
        if let Some((at, record)) = self.0.believed.lock().get(&key)
            && now.saturating_sub(*at) < BELIEVED
        {
            return Ok(Some(record.clone()));
        }
        self.now(tenant, job).await
    }

    /// A record as it is now.
    pub(crate) async fn now(&self, tenant: &str, job: JobId) -> Result<Option<Arc<ResultRecord>>, RecordsError> {
        let entry = self.ask(async |kv| kv.get(&name(tenant, job)).await).await?;
        let record = entry.map(|entry| decode(&entry)).transpose()?.map(Arc::new);
        self.believe((tenant.into(), job), record.clone());
        Ok(record)
    }

    fn believe(&self, key: Key, record: Option<Arc<ResultRecord>>) {
        let (mut believed, now) = (self.0.believed.lock(), self.0.clock.now());
        match record {
            Some(record) => drop(believed.insert(key, (now, record))),
            None => drop(believed.remove(&key)),
        }
        if believed.len() > BELIEVED_MAX {
            believed.retain(|_, (at, _)| now.saturating_sub(*at) < BELIEVED);
            while believed.len() > BELIEVED_MAX {
                believed.pop_first();
            }
        }
    }

    /// Changes a record, or makes it, and returns what it is then; where `change` returns `None` nothing is written. It may be called several times.
    pub(crate) async fn change(
        &self,
        tenant: &str,
        job: JobId,
        change: impl Fn(Option<ResultRecord>) -> Option<ResultRecord>,
    ) -> Result<Option<Arc<ResultRecord>>, RecordsError> {
        let key = name(tenant, job);
        for _ in 0..CHANGES_MAX {
            let entry = self.ask(async |kv| kv.get(&key).await).await?;
            let revision = entry.as_ref().map(|entry| entry.revision);
            let known = entry.map(|entry| decode(&entry)).transpose()?;
            let Some(record) = change(known.clone()) else { return Ok(known.map(Arc::new)) };
            let value = encode(&record)?;
            let left = record.until_unix_ms.saturating_sub(self.0.clock.unix_ms());
            let lasts = TOMBSTONE + Duration::from_secs(left.div_ceil(1000));
            let written = self
                .ask(async |kv| match revision {
                    None => kv.create_for(&key, value.clone(), lasts).await,
                    Some(revision) => kv.update_for(&key, value.clone(), revision, lasts).await,
                })
                .await;
            match written {
                Ok(_) => {
                    let record = Arc::new(record);
                    self.believe((tenant.into(), job), Some(record.clone()));
                    return Ok(Some(record));
                }
                Err(RecordsError::Bus(BusError::Conflict { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RecordsError::Contended(job))
    }

    /// Removes a record; what it was.
    pub(crate) async fn remove(&self, tenant: &str, job: JobId) -> Result<Option<Arc<ResultRecord>>, RecordsError> {
        let known = self.now(tenant, job).await?;
        if known.is_some() {
            self.ask(async |kv| kv.delete(&name(tenant, job), None).await).await?;
            self.believe((tenant.into(), job), None);
        }
        Ok(known)
    }

    /// What `keep` makes of the records of a tenant, or of all, in order; it is given an error in the place of one that cannot be read. One record
    /// is in memory at a time, and what is made of them.
    pub(crate) async fn each<T>(
        &self,
        tenant: Option<&str>,
        keep: impl Fn(Listed) -> Option<T>,
    ) -> Result<Vec<T>, RecordsError> {
        let take = |kept: &mut BTreeMap<Key, T>, scanned| match scanned {
            Scanned::Record(listed) => {
                let key = (listed.0.clone(), listed.1);
                match keep(listed) {
                    Some(value) => drop(kept.insert(key, value)),
                    None => drop(kept.remove(&key)),
                }
            }
            Scanned::Gone(tenant, job) => drop(kept.remove(&(tenant, job))),
        };
        Ok(self.fold(tenant, BTreeMap::new, take).await?.into_values().collect())
    }

    /// A record is these bytes from now on, whoever writes such.
    #[cfg(test)]
    pub(super) async fn put_bytes(&self, tenant: &str, job: JobId, value: bytes::Bytes) {
        self.ask(async |kv| kv.put(&name(tenant, job), value.clone()).await).await.unwrap();
        self.believe((tenant.into(), job), None);
    }

    /// Its time is over.
    #[cfg(test)]
    pub(super) async fn delete(&self, tenant: &str, job: JobId) {
        self.ask(async |kv| kv.delete(&name(tenant, job), None).await).await.unwrap();
    }

    /// What becomes of what is begun with, as the records of a tenant, or of all, are found. One record is in memory at a time.
    pub(super) async fn fold<T>(
        &self,
        tenant: Option<&str>,
        begin: impl Fn() -> T,
        take: impl Fn(&mut T, Scanned),
    ) -> Result<T, RecordsError> {
        let keys = tenant.map(|tenant| Pattern::parse(&format!("{tenant}.*"))).transpose().map_err(BusError::from)?;
        self.ask(async |kv| {
            let mut folded = begin();
            kv.each(keys.as_ref(), |change| {
                scanned(&change).into_iter().for_each(|scanned| take(&mut folded, scanned))
            })
            .await?;
            Ok(folded)
        })
        .await
    }
}

fn scanned(change: &Change) -> Option<Scanned> {
    let (Change::Put(Entry { key, .. }) | Change::Removed { key, .. }) = change;
    let (tenant, job) = key.split_once('.')?;
    let (tenant, job) = (tenant.into(), job.parse().ok()?);
    Some(match change {
        Change::Put(entry) => Scanned::Record((tenant, job, decode(entry))),
        Change::Removed { .. } => Scanned::Gone(tenant, job),
    })
}

fn name(tenant: &str, job: JobId) -> String {
    format!("{tenant}.{job}")
}

fn encode(record: &ResultRecord) -> Result<bytes::Bytes, RecordsError> {
    codec::encode_checked_as(RECORD_VERSION, record).map_err(RecordsError::Encode)
}

/// A record that cannot be read is no record that is missing: what it may name is kept, and nobody writes over it.
fn decode(entry: &Entry) -> Result<ResultRecord, RecordsError> {
    // The first version has no checksum, and says which it is all the same.
    let decoded = match entry.value.first() {
        Some(&found) if found != RECORD_VERSION => Err(CodecError::Version { found, known: RECORD_VERSION }),
        _ => codec::decode_checked_as(RECORD_VERSION, &entry.value),
    };
    decoded.map_err(|source| {
        let key = entry.key.clone();
        match source {
            CodecError::Version { found, known } => RecordsError::Version { key, found, known },
            source => RecordsError::Decode { key, source },
        }
    })
}

#[cfg(test)]
pub(super) mod tests {
    use exobus_store::SystemClock;

    use super::*;

    /// A clock that the test sets forward.
    pub(in crate::results) struct SetForward {
        clock: SystemClock,
        by: parking_lot::Mutex<Duration>,
    }

    impl SetForward {
        pub(in crate::results) fn new() -> Arc<Self> {
            Arc::new(Self { clock: SystemClock::new(), by: parking_lot::Mutex::default() })
        }

        pub(in crate::results) fn by(&self, time: Duration) {
            *self.by.lock() += time;
        }
    }

    impl Clock for SetForward {
        fn now(&self) -> Duration {
            self.clock.now() + *self.by.lock()
        }

        fn unix_ms(&self) -> u64 {
            self.clock.unix_ms()
        }
    }

    /// Records of which this one is what somebody else wrote.
    async fn with_bytes(job: JobId, value: bytes::Bytes) -> ResultRecords {
        let subjects = Subjects::new("records").unwrap();
        let records = ResultRecords::new(Bus::in_process(), subjects, Arc::new(SystemClock::new()));
        records.put_bytes("t", job, value).await;
        records
    }

    fn begin(_: Option<ResultRecord>) -> Option<ResultRecord> {
        Some(ResultRecord::new(1, 2))
    }

    #[tokio::test]
    async fn a_record_that_cannot_be_read_is_not_taken_for_one_that_is_missing() {
        let (job, other) = (JobId::new(), JobId::new());
        let mut broken = encode(&ResultRecord::new(1, 2)).unwrap().to_vec();
        *broken.last_mut().unwrap() ^= 1;
        let records = with_bytes(job, broken.into()).await;
        records.change("t", other, begin).await.unwrap();
        assert!(matches!(records.now("t", job).await, Err(RecordsError::Decode { .. })));
        assert!(matches!(records.change("t", job, begin).await, Err(RecordsError::Decode { .. })));
        assert!(matches!(records.remove("t", job).await, Err(RecordsError::Decode { .. })));
        let listed = records.each(None, |(_, job, record)| Some((job, record.is_ok()))).await.unwrap();
        assert_eq!(BTreeMap::from_iter(listed), BTreeMap::from([(job, false), (other, true)]));
        assert!(records.now("t", JobId::new()).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_record_of_another_version_is_refused_with_both_numbers_and_nothing_is_done_to_it() {
        for version in [1, RECORD_VERSION + 1] {
            let (job, other) = (JobId::new(), JobId::new());
            let value = match version {
                // As it was written before there were versions.
                1 => codec::encode(&ResultRecord::new(1, 2)).unwrap(),
                version => codec::encode_checked_as(version, &ResultRecord::new(1, 2)).unwrap(),
            };
            let records = with_bytes(job, value.clone()).await;
            let refused = [
                records.get("t", job).await.unwrap_err(),
                records.now("t", job).await.unwrap_err(),
                records.change("t", job, begin).await.unwrap_err(),
                records.remove("t", job).await.unwrap_err(),
            ];
            for error in refused {
                let both =
                    format!("is of version {version}, this exobus reads version 2: use the exobus that wrote it");
                let text = error.to_string();
                assert!(
                    matches!(error, RecordsError::Version { found, known: 2, .. } if found == version),
                    "{error:?}"
                );
                assert!(text.contains(&both) && text.contains(&job.to_string()), "{text}");
                assert!(error.is_unreadable());
            }
            let left = records.ask(async |kv| kv.get(&name("t", job)).await).await.unwrap().unwrap();
            assert_eq!(left.value, value, "as it was");
            records.change("t", other, begin).await.unwrap();
            assert!(records.now("t", other).await.unwrap().is_some(), "others go on");
        }
    }

    #[tokio::test]
    async fn what_was_read_is_believed_for_a_moment_and_what_is_not_there_is_asked_for() {
        let (bus, subjects, time) = (Bus::in_process(), Subjects::new("records").unwrap(), SetForward::new());
        let records = ResultRecords::new(bus.clone(), subjects.clone(), time.clone());
        let others = ResultRecords::new(bus, subjects, time.clone());
        let job = JobId::new();
        let made = async || records.get("t", job).await.unwrap().map(|record| record.made_unix_ms);
        assert_eq!(made().await, None);
        others.change("t", job, |_| Some(ResultRecord::new(1, 2))).await.unwrap();
        assert_eq!(made().await, Some(1), "what was not there is asked for");
        others.change("t", job, |_| Some(ResultRecord::new(3, 4))).await.unwrap();
        // However slow the machine is, it has not been read since.
        time.by(BELIEVED);
        assert_eq!(made().await, Some(3));
        let stopped = ResultRecords::new(Bus::in_process(), Subjects::new("records").unwrap(), Arc::new(Stopped));
        stopped.change("t", job, |_| Some(ResultRecord::new(1, 2))).await.unwrap();
        stopped.ask(async |kv| kv.delete(&name("t", job), None).await).await.unwrap();
        assert!(stopped.get("t", job).await.unwrap().is_some(), "it is believed");
        assert!(stopped.now("t", job).await.unwrap().is_none());
        assert!(stopped.get("t", job).await.unwrap().is_none(), "it is known to be gone");
        stopped.change("t", job, |_| Some(ResultRecord::new(1, 2))).await.unwrap();
        stopped.remove("t", job).await.unwrap();
        assert!(stopped.get("t", job).await.unwrap().is_none());
        for _ in 0..2 * BELIEVED_MAX {
            stopped.believe(("t".into(), JobId::new()), Some(Arc::new(ResultRecord::new(1, 2))));
        }
        assert_eq!(stopped.0.believed.lock().len(), BELIEVED_MAX);
    }

    /// Time does not pass.
    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn unix_ms(&self) -> u64 {
            0
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_change_is_made_again_to_what_somebody_faster_has_written() {
        let subjects = Subjects::new("records").unwrap();
        let records = ResultRecords::new(Bus::in_process(), subjects, Arc::new(SystemClock::new()));
        let job = JobId::new();
        let add = |record: Option<ResultRecord>| {
            let record = record.unwrap_or_else(|| ResultRecord::new(0, 2));
            Some(ResultRecord { made_unix_ms: record.made_unix_ms + 1, ..record })
        };
        let somebody_faster = || {
            let changed = records.change("t", job, add);
            tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(changed)).unwrap();
        };
        for (faster, expected) in [(0, 1), (1, 3), (5, 9)] {
            let left = std::cell::Cell::new(faster);
            let changed = records.change("t", job, |record| {
                if left.get() > 0 {
                    left.set(left.get() - 1);
                    somebody_faster();
                }
                add(record)
            });
            assert_eq!(changed.await.unwrap().unwrap().made_unix_ms, expected);
        }
        let always = records.change("t", job, |record| {
            somebody_faster();
            add(record)
        });
        assert!(matches!(always.await, Err(RecordsError::Contended(_))));
    }

    #[tokio::test]
    async fn a_tenant_is_listed_without_the_records_of_others() {
        let subjects = Subjects::new("records").unwrap();
        let records = ResultRecords::new(Bus::in_process(), subjects, Arc::new(SystemClock::new()));
        let (mine, gone) = (JobId::new(), JobId::new());
        for (tenant, job) in [("t", mine), ("t", gone), ("t2", JobId::new()), ("x", JobId::new())] {
            records.change(tenant, job, |_| Some(ResultRecord::new(1, 2))).await.unwrap();
        }
        records.remove("t", gone).await.unwrap();
        let looked_at = std::cell::Cell::new(0);
        let look = |(tenant, job, _): Listed| {
            looked_at.set(looked_at.get() + 1);
            Some((tenant.to_string(), job))
        };
        assert_eq!(records.each(Some("t"), look).await.unwrap(), [("t".to_owned(), mine)]);
        assert!(looked_at.get() <= 2, "{} records were read", looked_at.get());
        assert!(records.each(Some("nobody"), Some).await.unwrap().is_empty());
    }
}
