//! Memory of an executor process: how much it has, what of that the budget of the node's store counts, and when it is too much.
//!
//! | the process has | what is done |
//! |---|---|
//! | nothing declared: up to [`FREELY_BYTES`], or what it had when its task began | told to the store, which gives way; nobody is refused it |
//! | up to what its task declared, and what its function was granted since | it was granted before |
//! | more | the store is asked for the excess; the process gets no further task where something was declared |
//! | more, and the store has no room for it | killed, its task is tried again alone |
//! | half as much again as was declared | killed, its task is tried again alone |
//! | while nothing runs there: more than [`FREELY_BYTES`], and all such processes more than the store gives way for | ended |

use std::path::PathBuf;

use exobus_store::{Beside, Grant, Store, StoreError, Told};
use parking_lot::Mutex;
use tracing::debug;

use super::death::Verdict;
use crate::registry::BeyondDeclared;

/// So much a process may have, of tasks that declare nothing and while nothing runs there: code that was written to, stacks, what functions
/// keep.
pub(super) const FREELY_BYTES: u64 = 16 << 20;
/// The excess of a process is asked for in pieces of this size.
const PIECE_BYTES: u64 = 1 << 20;

/// What a process may have. Pure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    /// What is told to the store and not asked for, where nothing is declared: what it had when its task began is there already.
    pub(super) free_bytes: u64,
    /// What its task declares; 0: nothing.
    pub(super) declared_bytes: u64,
    /// What its function was granted besides.
    pub(super) granted_bytes: u64,
}

/// How what a process has is to be counted, and whether it is too much. Pure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counting {
    /// To be told to the store.
    pub(super) told_bytes: u64,
    /// To be asked for.
    pub(super) excess_bytes: u64,
    /// It has more than was declared.
    pub(super) beyond: bool,
    /// It has far more than was declared.
    pub(super) far_beyond: bool,
}

impl Allowance {
    pub(super) fn count(self, used_bytes: u64) -> Counting {
        let Self { free_bytes, declared_bytes, granted_bytes } = self;
        let own_bytes = used_bytes.saturating_sub(granted_bytes);
        if declared_bytes == 0 {
            let told_bytes = own_bytes.min(free_bytes);
            let excess_bytes = (own_bytes - told_bytes).next_multiple_of(PIECE_BYTES);
            return Counting { told_bytes, excess_bytes, ..Counting::default() };
        }
        let excess_bytes = own_bytes.saturating_sub(declared_bytes).next_multiple_of(PIECE_BYTES);
        let far_beyond = own_bytes >= declared_bytes.saturating_add(declared_bytes / 2);
        Counting { told_bytes: 0, excess_bytes, beyond: own_bytes > declared_bytes, far_beyond }
    }
}

/// Executor processes that this process has started and not taken leave of.
static EXECUTORS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// One of [`EXECUTORS`].
struct Executor(u32);

impl Executor {
    fn new(process: u32) -> Self {
        EXECUTORS.lock().push(process);
        Self(process)
    }

    fn others(&self) -> Vec<u32> {
        EXECUTORS.lock().iter().copied().filter(|other| *other != self.0).collect()
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let mut executors = EXECUTORS.lock();
        if let Some(position) = executors.iter().position(|process| *process == self.0) {
            executors.swap_remove(position);
        }
    }
}

/// What the store counts for one process.
pub(super) struct Footprint {
    process: Executor,
    store: Store,
    told: Told,
    excess: Grant,
    group: Option<ControlGroup>,
    /// Of the task that runs, the grant of what it declared.
    declared: Option<Grant>,
    declared_bytes: u64,
    /// Of the task that runs: [`Allowance::free_bytes`].
    free_bytes: u64,
    /// Of the task that runs: what is to be said of its process.
    pub(super) beyond: Option<BeyondDeclared>,
}

impl Footprint {
    pub(super) fn new(store: &Store, process: u32) -> Self {
        Self {
            process: Executor::new(process),
            store: store.clone(),
            told: store.told(Beside::Processes),
            excess: store.no_grant(),
            group: ControlGroup::of_this_process(),
            declared: None,
            declared_bytes: 0,
            free_bytes: FREELY_BYTES,
            beyond: None,
        }
    }

    /// A task begins, for which this much is declared (0: nothing), and granted.
    pub(super) fn begins(&mut self, declared_bytes: u64, granted: Option<Grant>) {
        (self.declared_bytes, self.declared, self.beyond) = (declared_bytes, granted, None);
        self.free_bytes = self.told.bytes().max(FREELY_BYTES);
    }

    /// Looks how much the process has, while a task runs whose function was granted so much besides. Why it must end, if it must.
    pub(super) fn look(&mut self, granted_bytes: u64) -> Option<Verdict> {
        let used_bytes = self.used_bytes()?;
        let (free_bytes, declared_bytes) = (self.free_bytes, self.declared_bytes);
        let counting = Allowance { free_bytes, declared_bytes, granted_bytes }.count(used_bytes);
        if counting.beyond {
            let (process, declared_bytes) = (self.process.0, declared_bytes + granted_bytes);
            if self.beyond.is_none() {
                debug!(process, used_bytes, declared_bytes, "executor process has more memory than was declared");
            }
            self.beyond = Some(BeyondDeclared { process, used_bytes, declared_bytes });
        }
        if counting.far_beyond {
            return Some(Verdict::Memory { used_bytes, max_bytes: declared_bytes });
        }
        self.told.set(counting.told_bytes);
        match self.excess.resize_to_used(counting.excess_bytes) {
            Ok(()) => None,
            Err(StoreError::Denied { free: free_bytes, .. } | StoreError::NeverGranted { most: free_bytes, .. }) => {
                Some(Verdict::NoRoom { used_bytes, declared_bytes, free_bytes })
            }
            Err(_) => None,
        }
    }

    /// No task runs there any more; whether the process may stay for the next one.
    pub(super) fn idle(&mut self) -> bool {
        let used_bytes = self.used_bytes().unwrap_or(0);
        // It is told before what was granted for it goes.
        self.told.set(used_bytes);
        let beyond = self.beyond.take().is_some();
        self.declared = None;
        // Less is never refused.
        let _ = self.excess.resize(0);
        !beyond
            && (used_bytes <= FREELY_BYTES || {
                let stats = self.store.stats();
                stats.processes_bytes <= stats.processes_max_bytes
            })
    }

    /// What the process has of its own: what it is seen to map, and where it is in a control group of its own, what that has with all
    /// that the process has started. Where other executor processes are in it, nobody can say whose the rest is, and each has what it maps.
    fn used_bytes(&self) -> Option<u64> {
        let own_bytes = super::watch::own_bytes(self.process.0)?;
        let group = self.group.as_ref().and_then(|here| here.left_for(ControlGroup::of(self.process.0)?));
        let group =
            group.filter(|group| !group.has_any(self.process.others().into_iter().filter_map(ControlGroup::of)));
        Some(own_bytes.max(group.and_then(|group| group.anonymous_bytes()).unwrap_or(0)))
    }
}

/// A memory control group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ControlGroup {
    folder: PathBuf,
    /// What its anonymous memory is called in `memory.stat`.
    key: &'static str,
}

impl ControlGroup {
    fn of_this_process() -> Option<Self> {
        group_in(&std::fs::read_to_string("/proc/self/cgroup").ok()?)
    }

    fn of(process: u32) -> Option<Self> {
        group_in(&std::fs::read_to_string(format!("/proc/{process}/cgroup")).ok()?)
    }

    /// That group, where a process that this one has started is in it without this one: a group around this one has many others, and
    /// processes that have ended are shown in that around all.
    fn left_for(&self, other: Self) -> Option<Self> {
        (!self.folder.starts_with(&other.folder)).then_some(other)
    }

    /// Whether one of these lies in it.
    fn has_any(&self, mut others: impl Iterator<Item = Self>) -> bool {
        others.any(|other| other.folder.starts_with(&self.folder))
    }

    fn anonymous_bytes(&self) -> Option<u64> {
        figure_in(&std::fs::read_to_string(self.folder.join("memory.stat")).ok()?, self.key)
    }
}

/// The memory control group that `/proc/PID/cgroup` names: that of the memory controller, else the only one there is.
fn group_in(text: &str) -> Option<ControlGroup> {
    let lines = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let of_memory = lines().find(|(controllers, _)| controllers.split(',').any(|controller| controller == "memory"));
    let (mount, key, path) = match of_memory {
        Some((_, path)) => ("/sys/fs/cgroup/memory", "total_rss", path),
        None => ("/sys/fs/cgroup", "anon", lines().find(|(controllers, _)| controllers.is_empty())?.1),
    };
    Some(ControlGroup { folder: PathBuf::from(format!("{mount}{path}")), key })
}

/// A figure of `memory.stat`.
fn figure_in(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::idle::{Idle, MIB, store_of};
    use super::*;

    #[test]
    fn what_a_process_has_is_told_granted_or_too_much() {
        let counts = |told: u64, excess: u64, beyond, far_beyond| Counting {
            told_bytes: told * MIB,
            excess_bytes: excess * MIB,
            beyond,
            far_beyond,
        };
        // Declared, granted since, used; MiB.
        for (declared, granted, used, is) in [
            (0, 0, 3, counts(3, 0, false, false)),
            (0, 0, 16, counts(16, 0, false, false)),
            (0, 0, 100, counts(16, 84, false, false)),
            (0, 30, 40, counts(10, 0, false, false)),
            (0, 30, 20, counts(0, 0, false, false)),
            (100, 0, 3, counts(0, 0, false, false)),
            (100, 0, 100, counts(0, 0, false, false)),
            (100, 0, 101, counts(0, 1, true, false)),
            (100, 0, 149, counts(0, 49, true, false)),
            (100, 0, 150, counts(0, 50, true, true)),
            (100, 60, 160, counts(0, 0, false, false)),
            (100, 60, 161, counts(0, 1, true, false)),
            (100, 60, 210, counts(0, 50, true, true)),
        ] {
            let (declared_bytes, granted_bytes) = (declared * MIB, granted * MIB);
            let allowance = Allowance { free_bytes: FREELY_BYTES, declared_bytes, granted_bytes };
            assert_eq!(allowance.count(used * MIB), is, "{declared} {granted} {used}");
        }
        let allowance = Allowance { free_bytes: FREELY_BYTES, declared_bytes: 100 * MIB, granted_bytes: 0 };
        let one_more = allowance.count(100 * MIB + 1);
        assert_eq!((one_more.excess_bytes, one_more.beyond), (MIB, true), "whole pieces are asked for");
    }

    #[test]
    fn what_a_process_had_when_its_task_began_is_not_asked_for_again() {
        let store = store_of(64 * MIB);
        let process = std::process::id();
        // More than anybody has freely.
        let has = std::hint::black_box(vec![1u8; 4 * FREELY_BYTES as usize]);
        let mut footprint = Footprint::new(&store, process);
        footprint.idle();
        let all = store.outside(store.stats().granted_max_bytes).unwrap();
        footprint.begins(0, None);
        // What goes on beside it in this process, which is looked at, is not its own.
        footprint.free_bytes += 2 * FREELY_BYTES;
        assert!(footprint.look(0).is_none(), "there is nothing that could be granted, and nothing is asked for");
        drop((has, all));
    }

    #[test]
    fn what_a_process_has_is_told_or_granted_while_a_task_runs_and_told_when_none_does() {
        let store = store_of(256 * MIB);
        let mut footprint = Footprint::new(&store, std::process::id());
        footprint.begins(0, None);
        let has = std::hint::black_box(vec![1u8; 80 * MIB as usize]);
        assert!(footprint.look(0).is_none());
        let running = store.stats();
        assert_eq!(running.processes_bytes, FREELY_BYTES);
        assert!(running.granted_bytes >= 64 * MIB, "{running:?}");
        assert!(!footprint.idle(), "it has more than may be left");
        let idle = store.stats();
        assert_eq!(idle.granted_bytes, 0);
        assert!(idle.processes_bytes >= 80 * MIB, "{idle:?}");
        drop(has);
    }

    #[test]
    fn a_process_that_has_half_as_much_again_as_was_declared_ends_though_there_is_room_for_it() {
        let store = store_of(256 * MIB);
        let mut footprint = Footprint::new(&store, std::process::id());
        let has = std::hint::black_box(vec![1u8; 32 * MIB as usize]);
        footprint.begins(20 * MIB, Some(store.outside(20 * MIB).unwrap()));
        let verdict = footprint.look(0);
        assert!(matches!(verdict, Some(Verdict::Memory { max_bytes, .. }) if max_bytes == 20 * MIB), "{verdict:?}");
        assert!(footprint.look(100 * MIB).is_none(), "what it was granted since is its own");
        assert!(!footprint.idle());
        footprint.begins(200 * MIB, None);
        assert!(
            footprint.look(0).is_none() && footprint.beyond.is_none(),
            "what was said of it was of the task before"
        );
        drop(has);
    }

    #[test]
    fn what_is_beyond_what_was_declared_is_said_with_all_that_it_may_have_and_the_process_ends_after_that_task() {
        let (store, idle) = (store_of(256 * MIB), Idle::new());
        let mut footprint = Footprint::new(&store, idle.id());
        // Of its own it has seven eighths, of which five are declared.
        let (used_bytes, declared_bytes) = (idle.used_bytes(), idle.used_bytes() / 8 * 5);
        let granted_bytes = used_bytes / 8;
        footprint.begins(declared_bytes, Some(store.outside(declared_bytes).unwrap()));
        assert!(footprint.look(granted_bytes).is_none(), "there is room for it");
        let declared_bytes = declared_bytes + granted_bytes;
        assert_eq!(footprint.beyond, Some(BeyondDeclared { process: idle.id(), used_bytes, declared_bytes }));
        assert!(!footprint.idle(), "it gets no further task");
        assert_eq!(store.stats().granted_bytes, 0, "what was declared was for the task");
        footprint.begins(2 * used_bytes, None);
        assert!(footprint.look(0).is_none() && footprint.idle());
    }

    #[test]
    fn a_process_for_whose_excess_there_is_no_room_ends_and_says_how_much_there_is() {
        let store = store_of(64 * MIB);
        let idle = Idle::new();
        let (used, declared) = (idle.used_bytes(), idle.used_bytes() / 8 * 7);
        let mut footprint = Footprint::new(&store, idle.id());
        let most = store.stats().granted_max_bytes;
        let others = store.outside(most).unwrap();
        footprint.begins(declared, None);
        let verdict = footprint.look(0);
        let no_room = Verdict::NoRoom { used_bytes: used, declared_bytes: declared, free_bytes: 0 };
        assert_eq!(verdict, Some(no_room), "others have it all");
        drop(others);
        assert!(footprint.look(0).is_none());
        // More than there will ever be.
        let large = Idle::with(most + 2 * FREELY_BYTES);
        let mut footprint = Footprint::new(&store, large.id());
        footprint.begins(0, None);
        let verdict = footprint.look(0);
        assert!(matches!(verdict, Some(Verdict::NoRoom { free_bytes, .. }) if free_bytes == most), "{verdict:?}");
    }

    #[test]
    fn a_small_process_stays_whatever_others_have_and_a_larger_one_while_there_is_room_for_all() {
        let store = store_of(2 << 30);
        let processes = [Idle::new(), Idle::with(2 * FREELY_BYTES)];
        let [mut small, mut large] = processes.each_ref().map(|idle| Footprint::new(&store, idle.id()));
        assert!(small.idle() && large.idle());
        let mut others = store.told(Beside::Processes);
        others.set(store.stats().processes_max_bytes);
        assert!(small.idle() && !large.idle());
    }

    #[test]
    fn executors_that_ended_are_no_others() {
        let (first, second) = (Executor::new(u32::MAX), Executor::new(u32::MAX - 1));
        assert!(first.others().contains(&(u32::MAX - 1)) && !first.others().contains(&u32::MAX));
        drop(second);
        assert!(!first.others().contains(&(u32::MAX - 1)));
    }

    proptest! {
        #[test]
        fn every_byte_that_a_process_has_is_counted(
            declared_bytes in prop_oneof![Just(0u64), 1u64..1 << 34],
            granted_bytes in 0u64..1 << 34,
            free_bytes in FREELY_BYTES..1 << 34,
            used in 0u64..1 << 36,
        ) {
            let counting = Allowance { free_bytes, declared_bytes, granted_bytes }.count(used);
            let counted = declared_bytes + granted_bytes + counting.told_bytes + counting.excess_bytes;
            prop_assert!(counted >= used);
            prop_assert!(counting.told_bytes <= free_bytes);
            prop_assert!(counting.beyond || !counting.far_beyond);
            prop_assert!(counting.excess_bytes == 0 || counted - used <= PIECE_BYTES);
            prop_assert_eq!(counting.beyond, declared_bytes > 0 && counting.excess_bytes > 0);
        }
    }

    #[test]
    fn a_control_group_is_found_in_both_forms() {
        let group = |folder: &str, key| Some(ControlGroup { folder: folder.into(), key });
        let old = "12:cpu,cpuacct:/a\n9:memory:/jobs/x\n0::/b\n";
        assert_eq!(group_in(old), group("/sys/fs/cgroup/memory/jobs/x", "total_rss"));
        assert_eq!(group_in("0::/user.slice/a\n"), group("/sys/fs/cgroup/user.slice/a", "anon"));
        assert_eq!(group_in("0::/\n"), group("/sys/fs/cgroup/", "anon"));
        assert_eq!(group_in("3:cpu:/a\n"), None);
        assert_eq!(group_in(""), None);
        let leaves = |from: &str, to: &str| {
            let of = |path: &str| group_in(&format!("0::{path}\n")).unwrap();
            of(from).left_for(of(to)).is_some()
        };
        assert!(leaves("/", "/a") && leaves("/a", "/b") && leaves("/a", "/a/b") && leaves("/a", "/ab"));
        assert!(!leaves("/a", "/a") && !leaves("/a/b", "/a") && !leaves("/a", "/") && !leaves("/", "/"));
        let has = |group: &str, others: &[&str]| {
            let of = |path: &str| group_in(&format!("0::{path}\n")).unwrap();
            of(group).has_any(others.iter().map(|other| of(other)))
        };
        assert!(has("/a", &["/b", "/a"]) && has("/a", &["/a/b"]), "others are counted there");
        assert!(!has("/a", &[]) && !has("/a", &["/b", "/ab", "/"]));
        assert_eq!(figure_in("anon_thp 5\nanon 4096\nfile 1\n", "anon"), Some(4096));
        assert_eq!(figure_in("total_rss_huge 1\ntotal_rss 7\n", "total_rss"), Some(7));
        assert_eq!(figure_in("file 1\n", "anon"), None);
    }
}
