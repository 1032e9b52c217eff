//! Who gets a message: exact subjects by hash, patterns one by one (a process has a handful).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::backend::Sink;
use crate::subject::{Pattern, Subject};

/// One subscription.
pub(super) struct Entry {
    pub(super) pattern: Pattern,
    pub(super) queue: Option<String>,
    pub(super) sink: Arc<dyn Sink>,
}

/// All subscriptions. The lock is never held while a sink is called.
#[derive(Default)]
pub(super) struct Router {
    table: RwLock<Table>,
    /// Counts messages to queue groups; members are picked from it.
    turn: AtomicU64,
}

#[derive(Default)]
struct Table {
    next_id: u64,
    entries: BTreeMap<u64, Entry>,
    /// Ids of entries without wildcards, by subject.
    exact: HashMap<String, Vec<u64>>,
    /// Ids of entries with wildcards.
    wild: Vec<u64>,
}

impl Router {
    pub(super) fn insert(&self, entry: Entry) -> u64 {
        let mut table = self.table.write();
        let id = table.next_id;
        table.next_id += 1;
        if entry.pattern.is_wild() {
            table.wild.push(id);
        } else {
            table.exact.entry(entry.pattern.as_str().to_owned()).or_default().push(id);
        }
        table.entries.insert(id, entry);
        id
    }

    pub(super) fn remove(&self, id: u64) {
        let mut table = self.table.write();
        let Some(entry) = table.entries.remove(&id) else { return };
        table.wild.retain(|known| *known != id);
        if let Some(ids) = table.exact.get_mut(entry.pattern.as_str()) {
            ids.retain(|known| *known != id);
            if ids.is_empty() {
                table.exact.remove(entry.pattern.as_str());
            }
        }
        // Freed after the lock: dropping a sink may run code of its owner.
        drop(table);
    }

    /// The sinks that get a message on `subject`: every plain subscriber and one member of each queue group.
    pub(super) fn receivers(&self, subject: &Subject) -> Vec<Arc<dyn Sink>> {
        let table = self.table.read();
        let exact = table.exact.get(subject.as_str()).map(Vec::as_slice).unwrap_or_default();
        let mut receivers = Vec::with_capacity(exact.len());
        let mut groups: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
        let wild = table.wild.iter().filter(|id| table.entries[id].pattern.matches(subject));
        for id in exact.iter().chain(wild) {
            let entry = &table.entries[id];
            match &entry.queue {
                None => receivers.push(entry.sink.clone()),
                Some(queue) => groups.entry(queue).or_default().push(entry),
            }
        }
        for members in groups.values() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            receivers.push(members[(mix(turn) % members.len() as u64) as usize].sink.clone());
        }
        receivers
    }

    /// Ends all subscriptions.
    pub(super) fn close(&self) {
        let entries = std::mem::take(&mut *self.table.write()).entries;
        for entry in entries.values() {
            entry.sink.closed();
        }
    }
}

/// Spreads consecutive numbers evenly (splitmix64). Plain turns would favour members when subjects alternate, and
/// a random pick would not repeat from run to run.
fn mix(turn: u64) -> u64 {
    let mut z = turn.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
