//! [`Cut`]: that a log ends before its job.

use std::fmt;
use std::time::{Duration, SystemTime};

use humantime::format_rfc3339_seconds;
use serde::{Deserialize, Serialize};

/// From when on a log lacks what its job learned and did. The job goes on, and cannot be taken up again: what it learned since is not
/// known, and what was done since would be done again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// When, milliseconds since 1970, by the clock of the node that ran the job.
    pub at_ms: u64,
    /// Why, in words.
    pub reason: String,
}

impl Cut {
    /// Bytes that a log may have at most are used up.
    pub(super) fn at_quota(at_ms: u64, quota_bytes: u64) -> Self {
        Self { at_ms, reason: format!("its quota of {quota_bytes} bytes is used up") }
    }

    /// What is there of a log has no beginning: whoever ran the job had cut it, and removed that to have room to say so.
    pub(super) fn without_beginning() -> Self {
        Self { at_ms: 0, reason: "its beginning was removed to make room".to_owned() }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log of the job ends")?;
        if self.at_ms > 0 {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(self.at_ms);
            write!(f, " at {}", format_rfc3339_seconds(at))?;
        }
        write!(f, ", before the job did: {}", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_names_time_and_quota() {
        let cut = Cut::at_quota(1_800_000_000_123, 1 << 20);
        let text = "the log of the job ends at 2027-01-15T08:00:00Z, before the job did: its quota of 1048576 bytes is used up";
        assert_eq!(cut.to_string(), text);
        assert!(Cut::without_beginning().to_string().starts_with("the log of the job ends, before"));
    }
}
