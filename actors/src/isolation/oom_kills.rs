//! Whether the kernel has killed for want of memory while an attempt ran.

use std::time::Duration;

use super::death;

/// How old the kernel's number of kills may be when an attempt begins: asking takes longer than a short task.
const AGE_MAX: Duration = Duration::from_millis(100);

/// The kernel's number of kills for want of memory.
pub(super) struct OomKills {
    count: fn() -> u64,
    /// When it was asked for, and what it was.
    asked: Option<(Duration, u64)>,
}

impl Default for OomKills {
    fn default() -> Self {
        Self { count: of_this_machine, asked: None }
    }
}

impl OomKills {
    /// How many there were when an attempt begins, or a moment ago.
    pub(super) fn so_far(&mut self, now: Duration) -> u64 {
        let kills = match self.asked {
            Some((at, kills)) if now.saturating_sub(at) <= AGE_MAX => return kills,
            _ => (self.count)(),
        };
        self.asked = Some((now, kills));
        kills
    }

    /// Whether there were any since there were so many, when a process has died. What it died of is of no attempt after it.
    pub(super) fn any_since(&mut self, before: u64) -> bool {
        self.asked = None;
        (self.count)() > before
    }
}

/// How often the kernel of this machine has killed for want of memory.
fn of_this_machine() -> u64 {
    std::fs::read_to_string("/proc/vmstat").ok().and_then(|text| death::oom_kills(&text)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_kernel_is_asked_again_when_what_it_said_is_old() {
        static KILLS: AtomicU64 = AtomicU64::new(5);
        let mut kills = OomKills { count: || KILLS.load(Ordering::Relaxed), asked: None };
        assert_eq!(kills.so_far(SECOND), 5);
        KILLS.store(6, Ordering::Relaxed);
        assert_eq!(kills.so_far(SECOND + AGE_MAX), 5, "it is young");
        assert_eq!(kills.so_far(SECOND + AGE_MAX + Duration::from_nanos(1)), 6);
        assert_eq!(kills.so_far(SECOND + 2 * AGE_MAX), 6, "it was asked since");
    }

    #[test]
    fn a_kill_is_of_the_attempt_that_ran_and_of_none_that_begins_after_it() {
        static KILLS: AtomicU64 = AtomicU64::new(5);
        let mut kills = OomKills { count: || KILLS.load(Ordering::Relaxed), asked: None };
        let before = kills.so_far(SECOND);
        assert!(!kills.any_since(before), "its process died of something else");
        let before = kills.so_far(SECOND);
        KILLS.store(6, Ordering::Relaxed);
        assert!(kills.any_since(before));
        let before = kills.so_far(SECOND);
        assert!(!kills.any_since(before), "that was the one before");
    }
}
