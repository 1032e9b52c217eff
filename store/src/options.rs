//! What a store and a writer are told when they are opened, and what the store tells back.

use std::{fmt, path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

/// How a store is set up. Two settings matter to most: `memory_bytes` and `spill_dirs`.
#[derive(Clone)]
pub struct StoreOptions {
    /// All memory for objects, scratch and the executors' reserve, in bytes; the region never grows beyond it.
    pub memory_bytes: u64,
    /// Directories for spill files, used in turn. Created when first needed; empty means that nothing can spill, so
    /// that a full store ends in [`DiskFull`](crate::StoreError::DiskFull).
    pub spill_dirs: Vec<PathBuf>,
    /// How many tasks run at the same time; each has its fixed reserve.
    pub executors: usize,
    /// Fixed reserve of each executor, in bytes, carved from `memory_bytes` at open: outputs that find no memory are
    /// written to disk with it. Default 2 MiB, the least (less is raised to that).
    pub reserve_per_executor_bytes: u64,
    /// Threads that do disk requests. Half of them may write: for one disk that is enough, as these requests are large. Reads
    /// may be small, and the more are under way, the better. Beside the budget each has a buffer of 1 MiB for what
    /// cannot be read into its place or written from there. At least 1.
    pub io_threads: usize,
    /// Name of this node, a file name: its files lie in `<spill_dir>/<node>/`. Empty: a random name, which a later
    /// process cannot find again, so use it only without `keep_files`.
    pub node: String,
    /// Whether spill files stay when the store is dropped, so that a restarted node can announce what it still has
    /// ([`Store::recovered`](crate::Store::recovered)). Default `false`: everything is deleted, and what a killed
    /// process without this flag left behind is deleted by the next store that opens in the same directory.
    pub keep_files: bool,
    /// Called for every [`StoreEvent`], on whatever thread it happens, without any lock held. It must not block.
    pub on_event: Option<EventHook>,
    /// Called, on whatever thread needs it, when memory that was granted beside the region is about to come back to it: gives the operating system what
    /// the allocator of the process keeps of what was freed since. Nothing is called where the allocator keeps nothing.
    pub release: Option<fn()>,
}

/// Who hears of [`StoreEvent`]s.
pub type EventHook = Arc<dyn Fn(StoreEvent) + Send + Sync>;

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            memory_bytes: 1 << 30,
            spill_dirs: Vec::new(),
            executors: 2,
            reserve_per_executor_bytes: 2 << 20,
            io_threads: 6,
            node: String::new(),
            keep_files: false,
            on_event: None,
            release: None,
        }
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("memory_bytes", &self.memory_bytes)
            .field("spill_dirs", &self.spill_dirs)
            .field("executors", &self.executors)
            .field("reserve_per_executor_bytes", &self.reserve_per_executor_bytes)
            .field("io_threads", &self.io_threads)
            .field("node", &self.node)
            .field("keep_files", &self.keep_files)
            .finish_non_exhaustive()
    }
}

/// How an object is written. The default: parts begin at any byte, of a size that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriterOptions {
    /// Where parts may begin.
    pub align: Align,
    /// About how many bytes the object will have, zero when that is not known. A good guess saves memory and copying;
    /// a wrong one costs nothing else.
    pub bytes_hint: u64,
    /// Number of the copy that an attempt made whose bytes these are; kept in block header and spill footer, not interpreted.
    pub maker: u32,
}

/// Where parts of an object may begin, in memory wherever they are: as they were written, read back from disk, fetched from another
/// node, alone or with others of their object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Align {
    /// At any byte: parts touch each other, so that a range of parts is one run of bytes without gaps.
    #[default]
    One,
    /// At multiples of 64 bytes, as Arrow wants its buffers. Up to 63 zeros lie before a part; they take memory and room on disk, and
    /// count nowhere else: not in the bytes of an object, in no checksum and in no stream.
    SixtyFour,
}

impl Align {
    /// Parts begin at multiples of this.
    pub const fn bytes(self) -> u64 {
        match self {
            Align::One => 1,
            Align::SixtyFour => 64,
        }
    }
}

/// In which queue a request for memory waits. Outputs of running tasks come before both and never wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Arguments of the next tasks: served in order of arrival, other objects are spilled to make room.
    Arguments,
    /// Arguments of tasks further behind: get only memory that is free anyhow, and can be revoked until claimed.
    Prefetch,
}

/// What takes memory beside the region that nobody has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Tables of jobs, lists, buffers. Half of the region gives way for all of them at most.
    Tables,
    /// Executor processes. A quarter of the region gives way for all of them at most.
    Processes,
}

/// What a store tells about itself while it works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// Spilling began after a time without.
    SpillStarted {
        /// Bytes of the first request.
        bytes: u64,
    },
    /// A write request of the spiller reached the disk.
    SpillFinished {
        /// Bytes of objects in it.
        bytes: u64,
        /// How long the request took, in milliseconds.
        millis: u64,
    },
    /// A directory takes no more files: for good, unless it was merely full.
    DirRetired {
        /// The directory.
        dir: PathBuf,
        /// What the disk said.
        error: String,
    },
    /// A directory that was full takes files again.
    DirRestored {
        /// The directory.
        dir: PathBuf,
    },
    /// The head of the queue for arguments does not find memory and nothing is left to spill: whoever holds memory for
    /// work that has not started (prefetched arguments, pushed copies) is asked to give it up.
    MemoryTight {
        /// Bytes that all requests in the queue wait for.
        waiting_bytes: u64,
        /// Bytes held through tickets of class [`Class::Prefetch`] that were claimed and not promoted.
        revocable_bytes: u64,
    },
    /// The only copy of an object is gone (corrupt or unreadable); it is no longer in the store.
    ObjectLost {
        /// The copy.
        object: crate::ids::CopyId,
        /// Why.
        reason: String,
    },
    /// A spill file of an earlier process of this node is of a version that this release does not read. It stays where it is.
    FileRefused {
        /// The file.
        path: PathBuf,
        /// Both versions, and what to do.
        reason: String,
    },
    /// The index of spill files was damaged and set aside; it was made anew from the files' footers.
    IndexRebuilt {
        /// The spill directory.
        dir: PathBuf,
        /// What was wrong with it.
        reason: String,
    },
}

/// Figures of a store at one moment. Sizes in bytes, as allocated (rounded up to the allocator's units) unless said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// What `memory_bytes` was.
    pub budget_bytes: u64,
    /// The executors' fixed reserve within it.
    pub reserve_bytes: u64,
    /// Memory for objects, fills and scratch handed out now, the reserve not counted.
    pub used_bytes: u64,
    /// Highest `used_bytes` so far.
    pub peak_bytes: u64,
    /// Memory beside the region that counts against the budget: what [`Store::told`](crate::Store::told) was told of tables,
    /// and directories of objects. Of what is beyond 2 MiB, whole MiB are in `used_bytes`.
    pub outside_bytes: u64,
    /// With more than that the process takes more than its budget.
    pub outside_max_bytes: u64,
    /// Memory of executor processes beside the region that nobody has asked for. In `used_bytes`, rounded up to whole MiB.
    pub processes_bytes: u64,
    /// With more than that the process and these take more than the budget.
    pub processes_max_bytes: u64,
    /// Memory beside the region that was asked for and granted ([`Store::outside`](crate::Store::outside)). In `used_bytes`, rounded up
    /// to whole MiB.
    pub granted_bytes: u64,
    /// More than that is never granted.
    pub granted_max_bytes: u64,
    /// Memory that the region has given up for what is beside it, and that nobody takes now: whoever asks next has it at once, and it is the
    /// region's again when that lacks room. Not in `used_bytes`.
    pub surplus_bytes: u64,
    /// How often such memory was denied, since the start; where it was asked for with the arguments of a task it is waited for instead.
    pub denied: u64,
    /// Bytes that were denied, all together.
    pub denied_bytes: u64,
    /// Memory that was ever touched and is backed by the operating system.
    pub backed_bytes: u64,
    /// Memory that cannot be spilled now: read, written or filled by somebody.
    pub pinned_bytes: u64,
    /// Memory whose content is also on disk, free to drop.
    pub clean_bytes: u64,
    /// Requests waiting for memory.
    pub waiting: u64,
    /// Bytes that they need.
    pub waiting_bytes: u64,
    /// The part of `waiting_bytes` that arguments of tasks need.
    pub arguments_waiting_bytes: u64,
    /// Sealed objects in the table.
    pub objects: u64,
    /// Bytes written by the spiller and by writers that found no memory, since the start.
    pub spilled_bytes: u64,
    /// The part of `spilled_bytes` that was written although the budget had room, since new memory is slower than the disk.
    pub early_bytes: u64,
    /// The part of `spilled_bytes` that writers put on disk directly.
    pub written_through_bytes: u64,
    /// Bytes of objects read back from disk since the start.
    pub restored_bytes: u64,
    /// Time that threads spent writing spill files since the start, added up over the threads, in microseconds.
    pub spill_us: u64,
    /// Time that threads spent reading them, as `spill_us`.
    pub restore_us: u64,
    /// Spill files now.
    pub spill_files: u64,
    /// Their sizes.
    pub spill_file_bytes: u64,
    /// Blocks whose checksum did not fit when they came back, since the start.
    pub corrupt_blocks: u64,
    /// Objects whose only copy was lost, since the start.
    pub lost_objects: u64,
    /// Directories out of use.
    pub retired_dirs: u64,
    /// Indexes that were damaged and rebuilt, since the start.
    pub indexes_rebuilt: u64,
    /// Whether a file system refused direct I/O, so that its files were written through the page cache.
    pub buffered_io: bool,
}
