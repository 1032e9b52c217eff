//! The closing summary of a sort, for people and for programs.

use std::time::Duration;

use serde::Serialize;

use super::text;
use crate::config::units::size;

/// What a sort did. As JSON, the keys are these names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SortSummary {
    /// Records, as counted when they were written.
    pub rows: u64,
    /// Bytes of the output files.
    pub bytes: u64,
    /// From start to the last committed file, without making and validating data.
    pub seconds: f64,
    /// `bytes / seconds`, in powers of ten.
    pub gb_per_s: f64,
    /// The most anonymous and shared memory, summed over the nodes.
    pub peak_memory_bytes: u64,
    /// Bytes written to spill files.
    pub spilled_bytes: u64,
    /// Sum of the hashes of the records read, 32 hexadecimal digits.
    pub row_hash_in: String,
    /// Sum of the hashes of the records written; the same unless something is very wrong.
    pub row_hash_out: String,
    /// The strategy.
    pub strategy: String,
    /// Number of output files.
    pub partitions: u32,
    /// Control messages that nodes and Owner exchanged.
    pub control_messages: u64,
    /// Bytes of the Owner's tables at their largest.
    pub owner_bytes: u64,
}

impl SortSummary {
    /// `bytes / seconds` in GB/s; 0 when no time passed.
    pub fn rate(bytes: u64, seconds: f64) -> f64 {
        if seconds > 0.0 { bytes as f64 / 1e9 / seconds } else { 0.0 }
    }

    /// Three lines for people; `output` says where the files are.
    pub fn for_people(&self, output: &str) -> String {
        let time = Duration::try_from_secs_f64(self.seconds).unwrap_or_default();
        format!(
            "sorted {} records, {} in {} ({:.2} GB/s), {} file{} in {}\n\
             memory {} at most, {} spilled, {} control messages\n\
             every record exactly once: hash {} of what was read and of what was written",
            text::count(self.rows),
            text::bytes(self.bytes),
            text::duration(time),
            self.gb_per_s,
            text::count(u64::from(self.partitions)),
            if self.partitions == 1 { "" } else { "s" },
            output,
            size(self.peak_memory_bytes),
            text::bytes(self.spilled_bytes),
            text::count(self.control_messages),
            self.row_hash_out,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_the_promised_keys() {
        let summary = SortSummary {
            rows: 10,
            bytes: 1000,
            seconds: 0.5,
            gb_per_s: SortSummary::rate(1000, 0.5),
            peak_memory_bytes: 1 << 20,
            spilled_bytes: 0,
            row_hash_in: "0".repeat(32),
            row_hash_out: "0".repeat(32),
            strategy: "simple".into(),
            partitions: 1,
            control_messages: 4,
            owner_bytes: 100,
        };
        let json = serde_json::to_value(&summary).unwrap();
        let mut keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let mut promised: Vec<&str> =
            "rows bytes seconds gb_per_s peak_memory_bytes spilled_bytes row_hash_in row_hash_out \
             strategy partitions control_messages owner_bytes"
                .split_whitespace()
                .collect();
        promised.sort_unstable();
        assert_eq!(keys, promised);
        assert!(summary.for_people("out").contains("10 records, 1.00 kB in 0.50 s (0.00 GB/s), 1 file in out"));
    }
}
