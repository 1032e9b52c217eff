//! The claim: a file in a folder of output that says which job writes there, so that no other one does.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use exobus_store::{Clock, JobId, SystemClock};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::format::Format;
use super::{ClaimLock, Claimed, Verdict};
use crate::{FileError, Location};

/// Its name in the folder.
pub const CLAIM: &str = "_exobus.claim";

pub(crate) const FORMAT: Format = Format { name: "exobus_claim", version: 1, bytes_max: 64 << 10 };
/// The process of a job locks its claim soon after that was made. Until then a claim that nobody has locked is no sign of anything.
const LOCKED_WITHIN_MS: u64 = 10_000;

/// What a claim says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The version of the format; stands first.
    #[serde(rename = "exobus_claim")]
    version: u64,
    /// The job.
    pub job: JobId,
    /// Its program.
    pub program: String,
    /// The machine on which the claim was made.
    pub host: String,
    /// The cluster that the job runs on; `None`: a process of `host` runs it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The log of a job that runs alone, there as long as the job can be gone on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// When the folder was claimed, milliseconds since 1970.
    pub claimed_unix_ms: u64,
    /// Whether the folder was made for the job.
    #[serde(default)]
    pub made_folder: bool,
}

/// How it stands with the job of a claim, as far as it can be known from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It runs.
    Runs,
    /// Its process is gone; it can be gone on with.
    Stopped,
    /// It is over, or cannot be gone on with.
    Over,
    /// Its cluster knows.
    OnCluster,
    /// Only its machine knows.
    Elsewhere,
}

/// Who wants a folder, and where the job runs: what its claim will say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claimant<'a> {
    /// Its program.
    pub program: &'a str,
    /// The cluster that it runs on; `None`: this process runs it alone.
    pub cluster: Option<&'a str>,
    /// The file of its log, where it runs alone and is logged.
    pub log: Option<&'a Path>,
}

/// What is to be done about the claim of another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// It is over, and that was said: its files and its claim go.
    TakeOver,
    /// Something has to be found out or said first.
    Answer(Claimed),
    /// The folder is that job's.
    Refused(Standing),
}

/// How it stands with the lock of a claim.
#[derive(Debug)]
pub enum LockState {
    /// The caller has it.
    Ours(ClaimLock),
    /// Another process has it: the job's, or one that takes the folder over.
    Held,
    /// The file system has none.
    Unknown,
}

impl Claim {
    /// What a job claims a folder with. `made_folder`: whether that was made for it.
    pub fn new(job: JobId, claimant: &Claimant<'_>, made_folder: bool) -> Self {
        // A path that is no text cannot stand in the file.
        let log = claimant.log.filter(|path| path.to_str().is_some()).map(Path::to_owned);
        Self {
            version: FORMAT.version,
            job,
            program: claimant.program.to_owned(),
            host: this_host(),
            cluster: claimant.cluster.map(str::to_owned),
            log,
            claimed_unix_ms: SystemClock::new().unix_ms(),
            made_folder,
        }
    }

    /// The claim on `folder`, if there is one.
    ///
    /// # Errors
    /// It cannot be read, is damaged, or of another version.
    pub fn read(folder: impl Into<Location>) -> Result<Option<Self>, FileError> {
        FORMAT.read(&folder.into().join(CLAIM))
    }

    /// What `bytes` say.
    ///
    /// # Errors
    /// They are damaged, or of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, FileError> {
        FORMAT.decode(Path::new(CLAIM), bytes)
    }

    /// Writes it as it stands in a folder.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(serde_json::to_string(self)?.as_bytes())?;
        to.write_all(b"\n")
    }

    /// How it stands with the job that has claimed `folder` so.
    pub fn standing(&self, folder: impl Into<Location>) -> Standing {
        if self.cluster.is_some() {
            return Standing::OnCluster;
        }
        if self.host != this_host() {
            return Standing::Elsewhere;
        }
        let folder = folder.into();
        match folder.system().and_then(|system| system.lock_claim(&folder)) {
            Ok(LockState::Held) => return Standing::Runs,
            Ok(LockState::Ours(_)) => {}
            // Who holds its log is known here all the same. Where there is no such file, another machine may have this one's name.
            Ok(LockState::Unknown) => {
                let standing = self.log.as_deref().map(log_standing);
                return standing.filter(|standing| *standing != Standing::Over).unwrap_or(Standing::Elsewhere);
            }
            Err(_) => return Standing::Elsewhere,
        }
        match &self.log {
            Some(log) => log_standing(log),
            None if SystemClock::new().unix_ms().saturating_sub(self.claimed_unix_ms) < LOCKED_WITHIN_MS => {
                Standing::Runs
            }
            None => Standing::Over,
        }
    }

    /// What another job that wants the folder, of this cluster if any, does about it. `verdict`: what it has found out of the job of a claim.
    pub fn met(&self, cluster: Option<&str>, verdict: Verdict, standing: Standing) -> Met {
        match (verdict, standing) {
            (_, Standing::Runs) => Met::Refused(Standing::Runs),
            (Some((job, true)), _) if job == self.job => Met::TakeOver,
            (Some((job, false)), _) if job == self.job => Met::Refused(Standing::Runs),
            (_, Standing::Over) => Met::Answer(Claimed::Over(self.job)),
            (_, Standing::OnCluster) if self.cluster.as_deref() == cluster => Met::Answer(Claimed::Ask(self.job)),
            (_, standing) => Met::Refused(standing),
        }
    }

    /// Who writes there, for people.
    pub fn describe(&self) -> String {
        let place = match &self.cluster {
            Some(cluster) => format!("cluster {cluster}"),
            None if self.host == this_host() => "this machine".to_owned(),
            None => format!("machine {}", self.host),
        };
        format!("job {} ({} on {place})", self.job, self.program)
    }

    /// What to do about it, for people.
    pub(crate) fn advice(&self, folder: &Path, standing: Standing) -> String {
        let job = self.job;
        let drop = format!("`exobus resume --drop {job} --output {}`", folder.display());
        match standing {
            Standing::Runs => "which runs: wait for it, or choose another folder".to_owned(),
            Standing::Stopped => format!(
                "which was not finished: `exobus resume {job}` goes on with it, `exobus resume --drop {job}` gives it up"
            ),
            Standing::Over => format!("which is over: {drop} frees the folder"),
            Standing::OnCluster => {
                format!("where it may run, which only that cluster knows: if it does not, {drop} frees the folder")
            }
            Standing::Elsewhere => {
                format!("and whether it runs cannot be known here: if it does not, {drop} frees the folder")
            }
        }
    }
}

/// Who holds the log of a job runs it; who finds it unheld can go on with it.
fn log_standing(log: &Path) -> Standing {
    match File::open(log) {
        Ok(file) if flock(&file, FlockOperation::NonBlockingLockShared).is_err() => Standing::Runs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Standing::Over,
        // That of another user, say.
        Ok(_) | Err(_) => Standing::Stopped,
    }
}

fn this_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileSystem as _, LocalFiles};

    fn sample() -> Claim {
        Claim {
            version: 1,
            job: JobId::from_u128(0x1234),
            program: "sort".to_owned(),
            host: "m1".to_owned(),
            cluster: Some("lab".to_owned()),
            log: Some("/home/u/.local/state/exobus/jobs/1234.log".into()),
            claimed_unix_ms: 1_790_000_000_000,
            made_folder: true,
        }
    }

    /// Folders that were claimed before must be known for ever.
    #[test]
    fn the_stored_sample_is_what_is_written_and_read() {
        let stored = include_bytes!("../../tests/samples/claim-1.json");
        let mut written = Vec::new();
        sample().write(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), String::from_utf8_lossy(stored));
        assert_eq!(Claim::decode(stored).unwrap(), sample());
    }

    #[test]
    fn another_version_is_refused_with_both_numbers_and_what_to_do() {
        let error = Claim::decode(br#"{"exobus_claim":7,"whatever":0}"#).unwrap_err().to_string();
        assert!(
            error.contains("format 7") && error.contains("format 1") && error.contains("use the exobus"),
            "{error}"
        );
    }

    #[test]
    fn it_stands_with_a_job_as_its_lock_and_its_log_say() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let here = Claim { cluster: None, host: this_host(), log: Some(log.clone()), ..sample() };
        std::fs::write(folder.path().join(CLAIM), "").unwrap();
        assert_eq!(here.standing(folder.path()), Standing::Over, "there is no log");
        std::fs::write(&log, "").unwrap();
        assert_eq!(here.standing(folder.path()), Standing::Stopped);
        let held = File::open(&log).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        assert_eq!(here.standing(folder.path()), Standing::Runs, "its process has the log");
        drop(held);
        let LockState::Ours(locked) = LocalFiles.lock_claim(&folder.path().into()).unwrap() else {
            panic!("nobody else has it")
        };
        assert_eq!(here.standing(folder.path()), Standing::Runs, "its process has the claim");
        drop(locked);
        let unlogged = Claim { log: None, ..here.clone() };
        assert_eq!(unlogged.standing(folder.path()), Standing::Over);
        let fresh = Claim { claimed_unix_ms: SystemClock::new().unix_ms(), ..unlogged };
        assert_eq!(fresh.standing(folder.path()), Standing::Runs, "it may not have locked it yet");
        assert_eq!(Claim { host: "elsewhere".into(), ..here.clone() }.standing(folder.path()), Standing::Elsewhere);
        assert_eq!(Claim { cluster: Some("lab".into()), ..here }.standing(folder.path()), Standing::OnCluster);
    }
}
