//! What is looked at while an attempt runs in a process: whether it should, whether it can, and what it takes.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use exobus_store::Clock;
use exobus_store::lent::LentError;

use super::GRACE;
use super::death::{self, Verdict};
use super::lending::{Lending, out_of_turn};
use super::memory::Footprint;
use super::wire::{Answer, Said, TICK};
use crate::registry::Account;
use crate::task::TaskSpec;

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

    /// The answer to what the process asks; the attempt is told what it was granted and denied beside the store.
    ///
    /// # Errors
    /// It did not ask.
    pub(super) fn answer(&mut self, lending: &mut Lending, spec: &TaskSpec, said: Said) -> io::Result<Answer> {
        let wanted = if let Said::Outside { more_bytes } = said { more_bytes } else { 0 };
        let answer = lending.answer(spec, said).ok_or_else(|| out_of_turn("that it is ready"))?;
        let before = self.granted_bytes;
        self.granted(lending.outside_bytes());
        if self.granted_bytes > before {
            self.account.granted();
        }
        if let (1.., Answer::Failed(LentError::Denied { .. })) = (wanted, &answer) {
            self.account.denied(wanted, self.clock.now());
        }
        Ok(answer)
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

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::sync::atomic::AtomicU64;

    use super::super::idle::{Idle, MIB, store_of};
    use super::*;
    use crate::ids::{JobId, TaskId};
    use crate::registry::Shortage;
    use crate::task::{FailureKind, TaskFailure};

    /// Time as the test sets it, milliseconds.
    #[derive(Default)]
    struct SetTime(AtomicU64);

    impl Clock for SetTime {
        fn now(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn unix_ms(&self) -> u64 {
            0
        }
    }

    impl SetTime {
        fn pass(&self, time: Duration) {
            self.0.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Has an idle process looked after that has kept so much of what earlier attempts were granted; the clock, what cancels, and the other
    /// end of the control socket.
    fn watching(kept_bytes: u64, test: impl FnOnce(&mut Watch<'_>, &Footing<'_>)) {
        let (store, idle, clock) = (store_of(64 * MIB), Idle::new(), SetTime::default());
        let (control, mut told) = UnixStream::pair().unwrap();
        told.set_nonblocking(true).unwrap();
        let (cancelled, account) = (AtomicBool::new(false), Account::default());
        let mut memory = Footprint::new(&store, idle.id());
        memory.begins(0, None);
        let mut watch = Watch {
            clock: &clock,
            process: idle.id(),
            serial: 7,
            control: &control,
            cancelled: &cancelled,
            memory: &mut memory,
            granted_bytes: 0,
            kept_bytes,
            account: &account,
            looked: clock.now(),
            told: None,
            stopped_looks: 0,
            verdict: None,
        };
        test(&mut watch, &Footing { clock: &clock, cancelled: &cancelled, account: &account, told: &told });
        // Nothing is told but what the test has looked for.
        assert!(told.read(&mut [0; 8]).is_err());
    }

    /// What a test moves, and looks at.
    struct Footing<'a> {
        clock: &'a SetTime,
        cancelled: &'a AtomicBool,
        account: &'a Account,
        told: &'a UnixStream,
    }

    impl Footing<'_> {
        /// What the process was told to cancel.
        fn told(&self) -> Option<u64> {
            let (mut told, mut serial) = (self.told, [0; 8]);
            told.read_exact(&mut serial).ok()?;
            Some(u64::from_le_bytes(serial))
        }
    }

    #[test]
    fn a_process_whose_attempt_is_cancelled_is_told_once_and_has_its_grace_before_it_is_killed() {
        watching(0, |watch, at| {
            assert!(watch.look());
            at.cancelled.store(true, Ordering::Relaxed);
            assert!(watch.look());
            assert_eq!(at.told(), Some(7));
            at.clock.pass(GRACE - Duration::from_millis(1));
            assert!(watch.look(), "it may go on until its grace is over");
            assert_eq!(at.told(), None);
            at.clock.pass(Duration::from_millis(1));
            assert!(!watch.look());
            assert_eq!(watch.verdict, Some(Verdict::Cancelled));
        });
    }

    #[test]
    fn one_that_talks_without_a_pause_is_looked_at_once_a_tick() {
        watching(0, |watch, at| {
            at.cancelled.store(true, Ordering::Relaxed);
            at.clock.pass(TICK - Duration::from_millis(1));
            assert!(watch.look_now_and_then());
            assert_eq!(at.told(), None, "the last look is not a tick ago");
            at.clock.pass(Duration::from_millis(1));
            assert!(watch.look_now_and_then());
            assert_eq!(at.told(), Some(7));
            at.clock.pass(GRACE);
            assert!(!watch.look_now_and_then(), "what is decided is said");
        });
    }

    #[test]
    fn what_functions_kept_of_earlier_grants_is_not_of_the_attempt_and_is_of_its_process() {
        watching(5 * MIB, |watch, at| {
            watch.granted(5 * MIB);
            at.account.denied(MIB, at.clock.now());
            let held = |expected: u64| match at.account.shortage(at.clock.now()) {
                Some(Shortage::Denied { held_bytes, .. }) => assert_eq!(held_bytes, expected),
                other => panic!("{other:?}"),
            };
            held(0);
            watch.granted(8 * MIB);
            held(3 * MIB);
            assert_eq!(watch.granted_bytes, 8 * MIB);
            // Less than there was before: functions have given it back.
            watch.granted(MIB);
            held(0);
        });
    }

    /// Whether an error now would be for want of memory.
    fn would_be_denied(at: &Footing<'_>) -> bool {
        let failure = at.account.failure(TaskFailure::new(FailureKind::Error, "why"), at.clock.now());
        failure.kind == FailureKind::Denied
    }

    #[test]
    fn an_attempt_that_is_denied_and_granted_less_after_it_has_what_it_needs_and_one_that_is_granted_nothing_has_not() {
        watching(0, |watch, at| {
            let store = store_of(64 * MIB);
            let others = store.outside(store.stats().granted_max_bytes - 8 * MIB).unwrap();
            let mut lending = Lending::new(store.clone());
            let spec = TaskSpec::plain(JobId::from_u128(1), TaskId::from_u128(2), "f@1");
            let mut asks = |watch: &mut Watch<'_>, said| watch.answer(&mut lending, &spec, said).unwrap();
            for _ in 0..2 {
                let answer = asks(watch, Said::Outside { more_bytes: 9 * MIB });
                assert!(matches!(answer, Answer::Failed(LentError::Denied { .. })), "{answer:?}");
            }
            assert!(would_be_denied(at));
            for nothing in [Said::Outside { more_bytes: 0 }, Said::Scratch { bytes: MIB }] {
                asks(watch, nothing);
                assert!(would_be_denied(at), "it has no more than before");
            }
            asks(watch, Said::Outside { more_bytes: 3 * MIB });
            assert!(!would_be_denied(at), "it went on with less");
            assert_eq!(watch.granted_bytes, 3 * MIB);
            let Some(Shortage::Denied { bytes, held_bytes, times, .. }) = at.account.shortage(at.clock.now()) else {
                panic!("it was denied")
            };
            assert_eq!((bytes, held_bytes, times), (9 * MIB, 3 * MIB, 2));
            drop(others);
        });
    }

    #[test]
    fn room_in_the_store_that_is_denied_is_no_memory_beside_it() {
        watching(0, |watch, at| {
            let mut lending = Lending::new(store_of(64 * MIB));
            let spec = TaskSpec::plain(JobId::from_u128(1), TaskId::from_u128(2), "f@1");
            let answer = watch.answer(&mut lending, &spec, Said::Scratch { bytes: 1 << 40 });
            assert!(matches!(answer, Ok(Answer::Failed(_))), "{answer:?}");
            assert_eq!(at.account.shortage(at.clock.now()), None);
            assert!(watch.answer(&mut lending, &spec, Said::Ready).is_err(), "nothing was asked");
        });
    }
}
