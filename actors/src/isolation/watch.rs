//! What is looked at while an attempt runs in a process: whether it should, whether it can, and what it takes.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use exobus_store::Clock;

use super::GRACE;
use super::death::{self, Verdict};
use super::memory::Footprint;
use super::wire::TICK;
use crate::registry::Account;

/// A process that was found stopped so often in a row stays so: a second. One look more or less is nobody's fault, since this
/// process may have been stopped with it.
const STOPPED_LOOKS: u32 = 50;

/// Looks after one attempt.
pub(super) struct Watch<'a> {
    pub(super) clock: &'a dyn Clock,
    pub(super) process: u32,
    /// What the attempt is called on the control socket.
    pub(super) serial: u64,
    pub(super) control: &'a UnixStream,
    pub(super) cancelled: &'a AtomicBool,
    pub(super) memory: &'a mut Footprint,
    /// Memory beside the store that the function was granted since it began, bytes.
    pub(super) granted_bytes: u64,
    /// What the process had been granted before this attempt: functions keep it from one to the next.
    pub(super) kept_bytes: u64,
    /// Who is told what is to be said of it.
    pub(super) account: &'a Account,
    /// When it last looked.
    pub(super) looked: Duration,
    /// When the process was told that the attempt is cancelled.
    pub(super) told: Option<Duration>,
    pub(super) stopped_looks: u32,
    /// Why it should not go on.
    pub(super) verdict: Option<Verdict>,
}

impl Watch<'_> {
    /// The functions of the process are granted so much in all.
    pub(super) fn granted(&mut self, bytes: u64) {
        self.granted_bytes = bytes;
        self.account.has(bytes.saturating_sub(self.kept_bytes));
    }

    /// Looks when the last look is a while ago.
    pub(super) fn look_now_and_then(&mut self) -> bool {
        if self.clock.now().saturating_sub(self.looked) >= TICK { self.look() } else { true }
    }

    /// Whether it may go on.
    pub(super) fn look(&mut self) -> bool {
        let now = self.clock.now();
        self.looked = now;
        if self.cancelled.load(Ordering::Relaxed) {
            match self.told {
                None => {
                    self.told = Some(now);
                    // A process that cannot be told is gone, or is killed when its time has come.
                    let _ = self.control.write_all(&self.serial.to_le_bytes());
                }
                Some(told) if now.saturating_sub(told) >= GRACE => self.verdict = Some(Verdict::Cancelled),
                Some(_) => {}
            }
        }
        let stopped = matches!(state_of(self.process), Some('T' | 't'));
        self.stopped_looks = if stopped { self.stopped_looks + 1 } else { 0 };
        if self.stopped_looks >= STOPPED_LOOKS {
            self.verdict = Some(Verdict::Stopped);
        }
        let too_much = self.memory.look(self.granted_bytes);
        self.verdict = self.verdict.or(too_much);
        if let Some(beyond) = self.memory.beyond {
            self.account.beyond(beyond);
        }
        self.verdict.is_none()
    }
}

fn state_of(process: u32) -> Option<char> {
    death::state_of(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Memory of a process that is its own.
pub(super) fn own_bytes(process: u32) -> Option<u64> {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    death::own_bytes(&statm, rustix::param::page_size() as u64)
}

/// How often the kernel of this machine has killed for want of memory.
pub(super) fn oom_kills() -> u64 {
    std::fs::read_to_string("/proc/vmstat").ok().and_then(|text| death::oom_kills(&text)).unwrap_or(0)
}
