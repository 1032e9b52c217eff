//! Groups in the order of their keys.

use exobus_shuffle::cuts::key_prefix;
use exobus_shuffle::kernels::order;

use super::groups::Groups;
use crate::jobs::rewrite::in_common;

/// Entries that the kernel is shown beforehand.
const SAMPLE: usize = 1024;
/// What a group takes while groups are put in order: an entry, what it was made from, and its number.
pub(super) const ORDER_BYTES: u64 = 2 * size_of::<u128>() as u64 + size_of::<u32>() as u64;

/// The numbers of all groups, in the order of their keys.
pub(super) fn in_order(groups: &Groups) -> Vec<u32> {
    let count = groups.len();
    let common = common_bytes(groups);
    let entry = |group: u32| u128::from(key_prefix(&groups.key(group)[common..])) << 64 | u128::from(group);
    let entries = || (0..count as u32).map(entry);
    let mut ordered = vec![0; count];
    let sample = entries().step_by(count.div_ceil(SAMPLE).max(1)).map(|entry| (entry >> 64) as u64);
    order(entries, sample, &mut ordered);
    for alike in ordered.chunk_by_mut(|one, other| one >> 64 == other >> 64) {
        if alike.len() > 1 {
            alike.sort_unstable_by_key(|entry| groups.key(*entry as u32));
        }
    }
    ordered.into_iter().map(|entry| entry as u32).collect()
}

/// How many bytes all keys begin with alike.
fn common_bytes(groups: &Groups) -> usize {
    if groups.len() == 0 {
        return 0;
    }
    let first = groups.key(0);
    (1..groups.len() as u32).fold(first.len(), |common, group| in_common(first, common, groups.key(group)))
}

#[cfg(test)]
mod tests {
    use arrow_array::BinaryArray;

    use super::*;

    #[test]
    fn groups_are_in_the_order_of_their_keys_also_where_these_begin_alike() {
        let keys = (0..5000_u64).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let keys: Vec<Vec<u8>> = keys
            .map(|key| format!("a beginning {}{}", ["", "long enough "][(key % 2) as usize], key % 977).into())
            .collect();
        for keys in [&keys[..], &keys[..1], &[]] {
            let (mut groups, mut numbers) = (Groups::default(), Vec::new());
            groups.intern(&BinaryArray::from_iter_values(keys), &mut numbers).unwrap();
            let ordered: Vec<Vec<u8>> = in_order(&groups).into_iter().map(|group| groups.key(group).to_vec()).collect();
            let mut expected = keys.to_vec();
            expected.sort();
            expected.dedup();
            assert_eq!(ordered, expected);
        }
    }
}
