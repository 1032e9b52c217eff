//! exobus: the object store of a node.
//!
//! Objects are immutable bytes in *parts*, named by 128 bits. All of them lie in one region of memory with a budget;
//! what does not fit spills to disk and comes back, each part against its checksum. The crate knows no bus and no
//! jobs: whoever builds on it decides what is written, read and deleted.
//!
//! ```
//! use std::sync::Arc;
//! use exobus_store::{Parts, RealDisk, RowHash, Store, StoreOptions, SystemClock, WriterOptions};
//!
//! let spill = std::env::temp_dir().join("exobus-doc");
//! let options = StoreOptions { memory_bytes: 64 << 20, spill_dirs: vec![spill], ..StoreOptions::default() };
//! let store = Store::open(options, Arc::new(RealDisk::new()), Arc::new(SystemClock::new()))?;
//!
//! let mut writer = store.writer(exobus_store::CopyId::new(7, 1), WriterOptions::default());
//! for row in [b"first", b"other"] {
//!     writer.begin_part(None)?;
//!     writer.write(row)?;
//!     writer.end_part(1, RowHash::of(row));
//! }
//! let meta = writer.seal()?;
//! let block = store.get(&meta.id, Parts::one(1)).wait()?;
//! assert_eq!(*block, *b"other");
//! store.delete_group(7);
//! # Ok::<(), exobus_store::StoreError>(())
//! ```
//!
//! # Life of an object
//!
//! ```text
//!                    no memory at all: a spill file, through a chunk of the executors' reserve
//!                  /                                                                      \
//!   writer (unsealed, invisible) --seal--> dirty --written early--> clean --memory taken--> on disk
//!      drop: freed                           |                        ^                       |
//!                                          get, stage: pinned        +---loaded, verified----+
//!   delete: gone from the table at once; its bytes when the last block, reader and disk request let go
//! ```
//!
//! Bytes are written into *extents*, runs of the region; parts never cross from one to the next, and what is pinned,
//! spilled, loaded and freed is an extent. An object written with a good `bytes_hint`, or put, has one extent, so any
//! run of its parts is one block without a copy. Parts in several extents are copied together for a block; one part of
//! a larger extent on disk is read alone, as a private copy.
//!
//! # The memory law
//!
//! - All memory comes from one region, and [`Store::stats`] accounts for it. The executors' reserve
//!   ([`StoreOptions::reserve_per_executor_bytes`]) is carved from it at open. The region gives way by as much as lies
//!   beside it: what is there already is told ([`Store::told`]; directories of objects are counted, too), what is not is asked
//!   for ([`Store::outside`]). What the budget does not see: 1 MiB for each disk thread.
//! - **Outputs** (writers, puts, scratch) never wait for a grant. They take what is free; then memory of clean extents;
//!   then they wait for the store's own disk requests as long as those are bound to set enough free, which takes no
//!   longer than writing to disk themselves; else writers go to disk and scratch is
//!   [`Denied`](StoreError::Denied). How many write to disk at a time is not bounded: who comes late gets a smaller chunk of
//!   the executors' reserve, and at last a page outside the region.
//! - **Memory beside the region** is granted to those who run as outputs are, and within some 100 ms; else it is
//!   [`Denied`](StoreError::Denied). What a task is known to need it is granted with its arguments ([`StageItem::Outside`]).
//! - **Arguments** ([`Store::stage`], [`Store::get`] of what is not in memory) are granted all or nothing, in order of
//!   arrival; the head of the queue makes others spill. More than the budget has is refused at once. What a stream reads
//!   from disk with ([`Store::reader`]) is scratch that was granted so: a stream that was opened asks for nothing.
//! - **Prefetch** gets only memory that is spare anyhow, and is revoked, until claimed, when an argument finds none.
//!   A claimed one is asked for by [`StoreEvent::MemoryTight`].
//! - So whoever has started can finish, whoever is granted can start, and the head of the queue waits only for those
//!   two. With nothing running and nothing left to spill to, it fails with [`DiskFull`](StoreError::DiskFull).
//! - Dirty extents are written, oldest first, once less than a quarter of the budget (at most 1 GiB) is free or clean;
//!   their memory is taken only when somebody needs it, oldest first.
//!
//! # Disks
//!
//! Spill files of 128 MiB and more, many blocks each, direct I/O by a few threads with requests of up to 8 MiB. A write
//! error retires the directory, its blocks go to the next one; one that was merely full is used again when something in it
//! was deleted, one that was removed is made again. Files are deleted with their last block; when the store has no object
//! left, none is there. A file of which a sync failed is never synced again. What comes back is verified; a corrupt or unreadable only
//! copy leaves the store with [`StoreEvent::ObjectLost`] and the error [`Corrupt`](StoreError::Corrupt) or
//! [`Disk`](StoreError::Disk), for the layers above to make it again. Streams ([`ObjectReader`]) show the bytes of a part
//! before its end is known: the error then comes before the part's last chunk. With
//! [`StoreOptions::keep_files`] closed files outlive the process, are found by their footers (an index in sled only
//! saves reading) and announced by [`Store::recovered`].
//!
//! # Map of the code
//!
//! Decisions, pure: `table/` (objects, extents, lists), `budget.rs` (who has and waits for how many bytes), `alloc/` (who
//! lies where), `files.rs` (what is in which file), `spill.rs` (when to write), put together in `state/`. Around them:
//! `shared.rs` (the lock and the effects), `io.rs` (disk threads), `dirs.rs`, `index.rs`, `recover.rs` (directories),
//! `region.rs`, `hold.rs` and `lent/span.rs` (all `unsafe`). What callers see: `store.rs`, `writer/`, `stage.rs`, `fill.rs`,
//! `reader/`, `range_read.rs`, `block.rs`, `scratch.rs`; the same in a process that maps the region: `lent/`.
//!
//! Deliberately absent: compression, encryption, moving pinned blocks, giving memory back before the store closes (but for
//! what is told), writing dirty objects out at shutdown.

mod alloc;
pub mod as_bytes;
mod block;
mod budget;
mod checksum;
mod clock;
mod directory;
mod dirs;
pub mod disk;
mod disk_tail;
mod error;
mod files;
mod fill;
mod footer;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hold;
mod ids;
mod index;
mod io;
mod job;
pub mod lent;
mod load_queue;
pub mod measure;
mod meta;
mod options;
mod outside;
mod range_read;
mod reader;
mod recover;
mod region;
mod reserve;
mod scratch;
mod shared;
mod spill;
mod stage;
mod state;
mod store;
mod table;
mod writer;

pub use block::{Block, BlockHeader};
pub use clock::{Clock, Hold, SystemClock};
pub use disk::{Disk, RealDisk};
pub use error::{DirState, StoreError};
pub use fill::Fill;
pub use ids::{CopyId, RowHash};
pub use job::JobId;
pub use meta::{ObjectMeta, PartMeta, Parts};
pub use options::{Align, Beside, Class, EventHook, StoreEvent, StoreOptions, StoreStats, WriterOptions};
pub use outside::{Grant, Told};
pub use range_read::{DiskRange, RangeRead};
pub use reader::ObjectReader;
pub use scratch::Scratch;
pub use spill::GROW_FREELY_BYTES;
pub use stage::{GetFuture, StageItem, StageRequest, StageTicket, Staged, StagedItem};
pub use store::{Pin, Store};
pub use writer::ObjectWriter;
