//! Memory beside the store that a running task asks for, and what becomes of a task that is denied it.
//!
//! An attempt that was denied twice within [`AGAIN`], was granted nothing since, and then fails could not go on without: it counts as
//! [`Denied`](FailureKind::Denied), which is no fault of its own, and its task begins again when all is there that it would have had. One
//! that goes on, with less or on disk, is left alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use exobus_store::{Clock, Grant, StoreError};
use parking_lot::Mutex;

use crate::task::{FailureKind, TaskFailure};

/// Two denials within this time are more than bad luck.
const AGAIN: Duration = Duration::from_secs(10);

/// What an attempt was granted and denied. Pure.
#[derive(Debug, Default)]
struct Needs {
    held_bytes: u64,
    denied: Option<Denied>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Denied {
    at: Duration,
    /// What it asked for, beside what it had.
    bytes: u64,
    /// Both together.
    needs_bytes: u64,
    times: u64,
    /// It was denied before, not long ago.
    again: bool,
    /// It was granted something since: it went on with less.
    overcome: bool,
}

impl Needs {
    fn denied(&mut self, bytes: u64, now: Duration) {
        let before = self.denied;
        self.denied = Some(Denied {
            at: now,
            bytes,
            needs_bytes: self.held_bytes.saturating_add(bytes),
            times: before.map_or(0, |before| before.times) + 1,
            again: before.is_some_and(|before| now.saturating_sub(before.at) <= AGAIN),
            overcome: false,
        });
    }

    /// What an attempt that failed like this needs to go on, and whether that is why it failed.
    fn failure(&self, failure: TaskFailure, now: Duration) -> TaskFailure {
        let Some(denied) = self.denied.filter(|denied| now.saturating_sub(denied.at) <= AGAIN) else { return failure };
        let kind = match failure.kind {
            FailureKind::Denied => FailureKind::Denied,
            FailureKind::Error if denied.again && !denied.overcome => FailureKind::Denied,
            _ => return failure,
        };
        TaskFailure { kind, needs_bytes: denied.needs_bytes, ..failure }
    }
}

/// An executor process that has more memory than was declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BeyondDeclared {
    pub(crate) process: u32,
    pub(crate) used_bytes: u64,
    pub(crate) declared_bytes: u64,
}

/// What is to be said of the memory of an attempt that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Its process has more than was declared.
    BeyondDeclared(BeyondDeclared),
    /// It has so much beside the store, and was denied so much more, for the last time so long ago.
    Denied { bytes: u64, held_bytes: u64, times: u64, ago: Duration },
}

/// What an attempt has of memory beside the store; who runs it and who is asked what it does share it. Most attempts have none, and
/// one costs them no more than this.
#[derive(Debug, Default)]
pub(crate) struct Account(Mutex<Option<Box<Entries>>>);

#[derive(Debug, Default)]
struct Entries {
    needs: Needs,
    beyond: Option<BeyondDeclared>,
}

impl Account {
    fn change(&self, change: impl FnOnce(&mut Entries)) {
        change(self.0.lock().get_or_insert_default());
    }

    fn holds(&self, before: u64, now: u64) {
        if before != now {
            self.change(|entries| entries.needs.held_bytes = entries.needs.held_bytes - before + now);
        }
    }

    /// It was granted more.
    pub(crate) fn granted(&self) {
        if let Some(denied) = self.0.lock().as_mut().and_then(|entries| entries.needs.denied.as_mut()) {
            denied.overcome = true;
        }
    }

    /// It was granted so much before it began.
    pub(crate) fn begins_with(&self, bytes: u64) {
        self.holds(0, bytes);
    }

    /// It has so much, in a process that counts for itself.
    pub(crate) fn has(&self, bytes: u64) {
        self.change(|entries| entries.needs.held_bytes = bytes);
    }

    /// It was denied so much more than it has.
    pub(crate) fn denied(&self, bytes: u64, now: Duration) {
        self.change(|entries| entries.needs.denied(bytes, now));
    }

    /// Its process has more than was declared.
    pub(crate) fn beyond(&self, beyond: BeyondDeclared) {
        self.change(|entries| entries.beyond = Some(beyond));
    }

    /// How it failed.
    pub(crate) fn failure(&self, failure: TaskFailure, now: Duration) -> TaskFailure {
        match &*self.0.lock() {
            None => Needs::default().failure(failure, now),
            Some(entries) => entries.needs.failure(failure, now),
        }
    }

    /// What is to be said of its memory, while it runs; `None`: nothing.
    pub(crate) fn shortage(&self, now: Duration) -> Option<Shortage> {
        let entries = self.0.lock();
        let Entries { needs, beyond } = entries.as_deref()?;
        if let Some(beyond) = *beyond {
            return Some(Shortage::BeyondDeclared(beyond));
        }
        let Denied { at, bytes, times, .. } = needs.denied?;
        Some(Shortage::Denied { bytes, held_bytes: needs.held_bytes, times, ago: now.saturating_sub(at) })
    }
}

/// Memory beside the store that a task was granted ([`TaskContext::outside`](super::TaskContext::outside)): it may allocate as much. Nothing
/// any more when it is dropped, at the latest when the task ends.
pub struct Outside {
    grant: Grant,
    account: Arc<Account>,
    clock: Arc<dyn Clock>,
}

impl Outside {
    /// Of a grant that the account has counted.
    pub(super) fn counted(grant: Grant, account: &Arc<Account>, clock: &Arc<dyn Clock>) -> Self {
        Self { grant, account: account.clone(), clock: clock.clone() }
    }

    /// How much it is, bytes.
    pub fn bytes(&self) -> u64 {
        self.grant.bytes()
    }

    /// Makes it larger or smaller, to so many bytes. Smaller is always granted: have given the memory back before. Larger is granted or denied
    /// within some 100 ms.
    ///
    /// # Errors
    /// As [`TaskContext::outside`](super::TaskContext::outside); it is as large as it was then.
    pub fn resize(&mut self, bytes: u64) -> Result<(), StoreError> {
        let before = self.grant.bytes();
        let resized = self.grant.resize(bytes);
        match &resized {
            Err(StoreError::Denied { .. }) => self.account.denied(bytes.saturating_sub(before), self.clock.now()),
            Ok(()) if bytes > before => self.account.granted(),
            _ => {}
        }
        self.account.holds(before, self.grant.bytes());
        resized
    }

    /// Takes a part out of it, so many bytes; `None`: it has not so much.
    pub fn split(&mut self, bytes: u64) -> Option<Self> {
        let grant = self.grant.split(bytes)?;
        Some(Self::counted(grant, &self.account, &self.clock))
    }

    /// The grant, which the account counts still.
    pub(super) fn into_grant(mut self) -> Grant {
        let bytes = self.grant.bytes();
        self.grant.split(bytes).expect("all of it is there")
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.account.holds(self.grant.bytes(), 0);
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outside({} bytes)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn who_is_denied_twice_and_fails_is_told_from_who_fails_of_something_else() {
        let (error, denied, end) = (FailureKind::Error, FailureKind::Denied, FailureKind::Final);
        // When it was denied, how and when it failed, as what that counts, and what it needs.
        for (denials, (kind, failed_at), counts_as, needs_bytes) in [
            (&[][..], (error, 5), error, 0),
            (&[], (denied, 5), denied, 0),
            (&[3], (error, 5), error, 0),
            (&[3], (denied, 5), denied, 70),
            (&[3, 5], (error, 5), denied, 70),
            (&[3, 13], (error, 20), denied, 70),
            (&[3, 14], (error, 20), error, 0),
            (&[3, 14, 15], (error, 20), denied, 70),
            (&[3, 5], (error, 16), error, 0),
            (&[3, 5], (denied, 16), denied, 0),
            (&[3, 5], (end, 5), end, 0),
            (&[3, 5], (FailureKind::Cancelled, 5), FailureKind::Cancelled, 0),
        ] {
            let mut needs = Needs { held_bytes: 40, ..Needs::default() };
            denials.iter().for_each(|seconds| needs.denied(30, at(*seconds)));
            let failure = needs.failure(TaskFailure::new(kind, "why"), at(failed_at));
            assert_eq!(
                (failure.kind, failure.needs_bytes),
                (counts_as, needs_bytes),
                "{denials:?} {kind:?} {failed_at}"
            );
            assert_eq!(failure.message, "why");
        }
    }

    #[test]
    fn what_it_needs_is_what_it_had_and_was_denied_last() {
        let account = Account::default();
        account.begins_with(10);
        account.denied(1000, at(1));
        account.holds(0, 20);
        account.denied(5, at(2));
        let failure = account.failure(TaskFailure::new(FailureKind::Error, "why"), at(3));
        assert_eq!((failure.kind, failure.needs_bytes), (FailureKind::Denied, 35), "with less it could have gone on");
        let told = Shortage::Denied { bytes: 5, held_bytes: 30, times: 2, ago: at(3) };
        assert_eq!(account.shortage(at(5)), Some(told));
    }

    #[test]
    fn who_was_granted_less_after_it_was_denied_fails_of_something_else() {
        let account = Account::default();
        let fails = |kind| account.failure(TaskFailure::new(kind, "why"), at(4)).kind;
        account.denied(512, at(1));
        account.denied(256, at(2));
        assert_eq!(fails(FailureKind::Error), FailureKind::Denied);
        account.granted();
        assert_eq!(fails(FailureKind::Error), FailureKind::Error);
        assert_eq!(fails(FailureKind::Denied), FailureKind::Denied, "it says so itself");
        account.denied(64, at(3));
        assert_eq!(fails(FailureKind::Error), FailureKind::Denied, "that was not enough");
    }

    #[test]
    fn what_a_task_holds_asks_for_and_gives_back_is_in_its_account() {
        const MIB: u64 = 1 << 20;
        let clock: Arc<dyn Clock> = Arc::new(exobus_store::SystemClock::new());
        let options = exobus_store::StoreOptions { memory_bytes: 64 * MIB, executors: 1, ..Default::default() };
        let disk = Arc::new(exobus_store::RealDisk::default());
        let store = exobus_store::Store::open(options, disk, clock.clone()).unwrap();
        let all_but = |bytes| store.outside(store.stats().granted_max_bytes - bytes).unwrap();
        let others = all_but(10 * MIB);
        let account = Arc::new(Account::default());
        let held = || account.0.lock().as_ref().map_or(0, |entries| entries.needs.held_bytes);
        let denied = || {
            let denied = account.0.lock().as_ref().and_then(|entries| entries.needs.denied);
            denied.map(|denied| (denied.bytes, denied.needs_bytes, denied.overcome))
        };
        let mut first = Outside::counted(store.no_grant(), &account, &clock);
        first.resize(4 * MIB).unwrap();
        assert_eq!((held(), denied()), (4 * MIB, None));
        assert!(first.resize(20 * MIB).is_err());
        assert_eq!((held(), denied()), (4 * MIB, Some((16 * MIB, 20 * MIB, false))), "what it asked for beside that");
        first.resize(3 * MIB).unwrap();
        assert!(!denied().unwrap().2, "it was granted nothing");
        first.resize(5 * MIB).unwrap();
        assert_eq!((held(), denied().unwrap().2), (5 * MIB, true));
        let second = first.split(2 * MIB).unwrap();
        drop(first);
        assert_eq!((held(), second.bytes()), (2 * MIB, 2 * MIB));
        drop((second, others));
        assert_eq!((held(), store.stats().granted_bytes), (0, 0));
    }

    #[test]
    fn a_process_that_has_too_much_is_named_first() {
        let account = Account::default();
        assert_eq!(account.shortage(at(1)), None);
        account.denied(5, at(1));
        let beyond = BeyondDeclared { process: 7, used_bytes: 120, declared_bytes: 100 };
        account.beyond(beyond);
        assert_eq!(account.shortage(at(1)), Some(Shortage::BeyondDeclared(beyond)));
    }
}
