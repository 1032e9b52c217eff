use std::ops::Range;

use arrow_array::{Int64Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};

use super::*;
use crate::sources::FixedBudget;

fn layout() -> Arc<Layout> {
    let fields = vec![Field::new("n", DataType::Int64, true), Field::new("place", DataType::UInt64, false)];
    Arc::new(Layout::new(&Schema::new(fields)).unwrap())
}

/// A batch of these numbers, each of which is its place and its hash, too.
fn batch(numbers: Range<u64>, budget: &Arc<dyn MemoryBudget>) -> Batch<'static> {
    let n = Int64Array::from_iter_values(numbers.clone().map(|n| n as i64));
    let place = UInt64Array::from_iter_values(numbers.clone());
    let rows = RecordBatch::try_new(layout().schema().clone(), vec![Arc::new(n), Arc::new(place)]).unwrap();
    let memory = Reservation::of(budget, READ_COLUMN_BYTES * 2).unwrap();
    Batch { rows, hashes: numbers.map(|n| RowHash(n.into())).collect(), read: None, memory }
}

#[test]
fn batches_of_one_row_become_few_and_each_row_keeps_its_place_and_its_hash() {
    let fixed = Arc::new(FixedBudget::new(8 << 20));
    let budget: Arc<dyn MemoryBudget> = fixed.clone();
    let (mut packer, mut packed) = (Packer::new(&layout(), &budget), Vec::new());
    let count = 50_000;
    for number in 0..count {
        packer.add(batch(number..number + 1, &budget), &mut packed).unwrap();
        let held: usize = packer.levels.iter().map(Vec::len).sum();
        assert!(held < 4 * TOGETHER_MAX, "{held} batches are held");
    }
    // One that is not small is not copied.
    let large = batch(count..count + 5_000, &budget);
    let column = large.rows.column(0).clone();
    packer.add(large, &mut packed).unwrap();
    assert!(packed.last().unwrap().rows.column(0).to_data().ptr_eq(&column.to_data()));
    packer.finish(&mut packed).unwrap();
    assert!(packed.len() < 30, "{} batches", packed.len());
    let mut seen = Vec::new();
    for batch in &packed {
        assert_eq!(batch.rows.num_rows(), batch.hashes.len());
        seen.extend((0..batch.rows.num_rows()).map(|row| {
            let place = batch.place(row);
            assert_eq!(batch.hashes[row], RowHash(place.into()));
            place
        }));
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..count + 5_000));
    drop((packed, column));
    assert_eq!(fixed.used_bytes(), 0);
}
