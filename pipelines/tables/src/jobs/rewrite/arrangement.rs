//! In which order rows are put, and which of them stay.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_schema::Schema;
use exobus_actors::registry::TaskError;
use serde::{Deserialize, Serialize};
use twox_hash::{XxHash3_64, XxHash3_128};

use super::folders::Folders;
use crate::TableError;
use crate::jobs::budget::of_table;
use crate::jobs::dedupe::Keep;
use crate::semantics::{KEY_VERSION, KeyColumn, KeyEncoder, KeyRows, MeasuredKeys};

/// Bytes of the hash of a place.
const HASH_BYTES: usize = 16;

/// An arrangement, as parameters of jobs and tasks have it: what tasks make follows from the version of the bytes of keys, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::jobs) struct Arrangement {
    order: RowOrder,
    /// Of rows of one key one stays.
    distinct: Option<Distinct>,
    version: u32,
    /// Rows of one key are in one file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    together: bool,
    /// The first columns of the key are folders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folders: Option<Folders>,
}

/// What decides first; places decide behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum RowOrder {
    /// Columns.
    Key(Vec<KeyColumn>),
    /// A hash of the place under this seed.
    Random(u64),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Distinct {
    /// In which order rows of one key are.
    order_by: Vec<KeyColumn>,
    keep: Keep,
}

impl Arrangement {
    fn of(order: RowOrder) -> Self {
        Self { order, distinct: None, version: KEY_VERSION, together: false, folders: None }
    }

    /// In the order of a key.
    pub(in crate::jobs) fn by_key(key: Vec<KeyColumn>) -> Self {
        Self::of(RowOrder::Key(key))
    }

    /// In an order that follows from a seed.
    pub(in crate::jobs) fn at_random(seed: u64) -> Self {
        Self::of(RowOrder::Random(seed))
    }

    /// One row of each key, in the order of these.
    pub(in crate::jobs) fn distinct(key: Vec<KeyColumn>, order_by: Vec<KeyColumn>, keep: Keep) -> Self {
        Self { distinct: Some(Distinct { order_by, keep }), ..Self::by_key(key) }
    }

    /// In the order of folders and then of a key, of which all rows of a folder are in one file.
    pub(in crate::jobs) fn parts(folders: Option<Folders>, by: Vec<KeyColumn>) -> Self {
        let together = !by.is_empty();
        let columns = folders.iter().flat_map(|folders| &folders.columns).map(KeyColumn::rising);
        let key = columns.chain(by).collect();
        Self { together, folders, ..Self::by_key(key) }
    }

    /// The columns by whose values rows are put in order, all together.
    pub(in crate::jobs) fn key(&self) -> Option<&[KeyColumn]> {
        match &self.order {
            RowOrder::Key(key) => Some(key),
            RowOrder::Random(_) => None,
        }
    }

    /// The columns that it looks at.
    pub(super) fn columns(&self) -> Vec<KeyColumn> {
        let order_by = self.distinct.iter().flat_map(|distinct| &distinct.order_by);
        self.key().unwrap_or_default().iter().chain(order_by).cloned().collect()
    }

    /// Bytes that the key of a row takes beside its values, about: a number says where it ends, and each value has bytes in front of it and behind it. A random order has a hash instead.
    pub(in crate::jobs) fn key_bytes(&self) -> u64 {
        match self.seed() {
            Some(_) => (HASH_BYTES + size_of::<u32>()) as u64,
            None => 8 + 8 * self.columns().len() as u64,
        }
    }

    /// The seed of a random order.
    pub(super) fn seed(&self) -> Option<u64> {
        match self.order {
            RowOrder::Key(_) => None,
            RowOrder::Random(seed) => Some(seed),
        }
    }

    /// Whether rows of one key come together, since one of them stays or all are in one file; files end where keys do, then.
    pub(super) fn is_together(&self) -> bool {
        self.together || self.distinct.is_some()
    }

    /// The folders that rows go to.
    pub(super) fn folders(&self) -> Option<&Folders> {
        self.folders.as_ref()
    }

    /// By which of their columns the rows of a file are in order.
    pub(super) fn sorted_by(&self) -> Vec<KeyColumn> {
        let is_folder = |key: &&KeyColumn| self.folders.iter().any(|folders| folders.columns.contains(&key.column));
        self.key().unwrap_or_default().iter().filter(|key| !is_folder(key)).cloned().collect()
    }

    /// What puts rows of this schema in order.
    pub(in crate::jobs) fn arranger(&self, schema: &Schema) -> Result<Arranger, TaskError> {
        if self.version != KEY_VERSION {
            let version = self.version;
            return Err(TaskError::fatal(format!(
                "keys are of version {version}, this release makes version {KEY_VERSION}"
            )));
        }
        let keys = match &self.order {
            RowOrder::Key(key) => Keys::Columns(KeyEncoder::new(schema, key).map_err(of_table)?),
            RowOrder::Random(seed) => Keys::Random(MixedSeed::new(*seed)),
        };
        let order_by = self.distinct.as_ref().map(|distinct| &distinct.order_by).filter(|order| !order.is_empty());
        let ties = order_by.map(|order| KeyEncoder::new(schema, order)).transpose().map_err(of_table)?;
        Ok(Arranger { keys, ties, keep: self.distinct.as_ref().map(|distinct| distinct.keep) })
    }
}

/// Makes bytes of rows that compare as the rows do. Batches have the places of their rows as their last column.
#[derive(Clone, Debug)]
pub(in crate::jobs) struct Arranger {
    keys: Keys,
    /// What decides between rows of one key.
    ties: Option<KeyEncoder>,
    /// Which row of a key stays.
    pub(in crate::jobs) keep: Option<Keep>,
}

#[derive(Clone, Debug)]
enum Keys {
    Columns(KeyEncoder),
    Random(MixedSeed),
}

/// Bytes of the rows of a batch.
#[derive(Debug, Default)]
pub(super) struct Arranged {
    pub(super) keys: KeyRows,
    pub(super) ties: Option<KeyRows>,
}

impl Arranged {
    /// What decides where a row stands, before its place does.
    #[inline]
    pub(super) fn row(&self, row: usize) -> (&[u8], Option<&[u8]>) {
        (self.keys.get(row), self.ties.as_ref().map(|ties| ties.get(row)))
    }
}

/// Bytes of the rows of a batch before they take memory.
#[derive(Debug)]
pub(super) struct Measured<'a> {
    keys: MeasuredRows<'a>,
    ties: Option<MeasuredKeys<'a>>,
}

#[derive(Debug)]
enum MeasuredRows<'a> {
    Keys(MeasuredKeys<'a>),
    Random(MixedSeed, &'a [u64]),
}

impl Arranger {
    pub(super) fn measure<'a>(&'a self, batch: &'a RecordBatch) -> Result<Measured<'a>, TableError> {
        let keys = match &self.keys {
            Keys::Columns(encoder) => MeasuredRows::Keys(encoder.measure(batch)?),
            Keys::Random(seed) => MeasuredRows::Random(*seed, places(batch)),
        };
        Ok(Measured { keys, ties: self.ties.as_ref().map(|ties| ties.measure(batch)).transpose()? })
    }
}

impl Measured<'_> {
    /// How many bytes of memory [`arrange`](Self::arrange) takes.
    pub(super) fn bytes(&self) -> Result<u64, TableError> {
        let keys = match &self.keys {
            MeasuredRows::Keys(keys) => keys.bytes()?,
            MeasuredRows::Random(_, places) => ((HASH_BYTES + size_of::<u32>()) * places.len()) as u64,
        };
        Ok(keys + self.ties.as_ref().map_or(Ok(0), MeasuredKeys::bytes)?)
    }

    pub(super) fn arrange(&self) -> Result<Arranged, TableError> {
        let keys = match &self.keys {
            MeasuredRows::Keys(keys) => keys.encode()?,
            MeasuredRows::Random(seed, places) => {
                let mut keys = KeyRows::default();
                keys.reserve(places.len(), HASH_BYTES * places.len());
                places.iter().for_each(|place| keys.push(&place_hash(*seed, *place).to_be_bytes()));
                keys
            }
        };
        Ok(Arranged { keys, ties: self.ties.as_ref().map(MeasuredKeys::encode).transpose()? })
    }
}

/// The places of the rows of a batch.
pub(in crate::jobs) fn places(batch: &RecordBatch) -> &[u64] {
    batch.columns().last().expect("a column of places").as_primitive::<UInt64Type>().values()
}

/// Where a row of this place stands in the random order of a seed. The seed is mixed first, and hashed with the place: what the hash makes of two seeds that differ in a few bits alone is too much
/// alike.
#[inline]
pub(in crate::jobs) fn place_hash(mixed: MixedSeed, place: u64) -> u128 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&place.to_le_bytes());
    bytes[8..].copy_from_slice(&mixed.0.to_le_bytes());
    XxHash3_128::oneshot_with_seed(mixed.0, &bytes)
}

/// A seed, mixed.
#[derive(Clone, Copy, Debug)]
pub(in crate::jobs) struct MixedSeed(u64);

impl MixedSeed {
    pub(in crate::jobs) fn new(seed: u64) -> Self {
        Self(XxHash3_64::oneshot(&seed.to_le_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever kept a seed keeps an order: these must never change.
    #[test]
    fn random_orders_are_fixed() {
        let order = |seed| {
            let mut places: Vec<u64> = (0..10).collect();
            places.sort_by_key(|place| place_hash(MixedSeed::new(seed), *place));
            places
        };
        assert_eq!(order(0), [2, 6, 5, 3, 1, 9, 4, 0, 7, 8]);
        assert_eq!(order(1), [4, 5, 7, 9, 6, 3, 2, 0, 1, 8]);
    }

    #[test]
    fn orders_of_seeds_that_differ_in_one_bit_have_nothing_in_common() {
        let order = |seed| {
            let mut places: Vec<u64> =
                (0..4u64).flat_map(|split| (0..1000).map(move |row| split << 32 | row)).collect();
            places.sort_by_key(|place| place_hash(MixedSeed::new(seed), *place));
            places
        };
        let first = order(7);
        for seed in [6, 7 + (1 << 32), 7 + (1 << 63)] {
            let alike = first.iter().zip(order(seed)).filter(|(one, other)| **one as u32 == *other as u32).count();
            assert!(alike < 40, "{alike} of 4000 rows of the same number in their split, with seed {seed}");
        }
    }
}
