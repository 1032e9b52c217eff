//! Conservation (law 1): what went into an exchange is what came out of it.

use crate::ids::RowHash;
use crate::task::{Exchange, Output, Parts};

/// The ledger of one exchange: what went in and what was read.
#[derive(Debug)]
pub(super) struct Ledger {
    exchange: Exchange,
    sealed: Output,
    consumed: Output,
    reads: u64,
    /// How many members there are whose parts are counted one by one: 0 unless it is shared.
    members: u64,
}

impl Ledger {
    pub(super) fn new(exchange: Exchange) -> Self {
        Self { exchange, sealed: Output::default(), consumed: Output::default(), reads: 0, members: 0 }
    }

    /// An accepted producer sealed `output`.
    pub(super) fn sealed(&mut self, output: Output) {
        self.members += u64::from(self.exchange.shared);
        self.sealed.add(output);
    }

    /// An accepted consumer read `parts` of every one of the `members` of a set.
    pub(super) fn consumed(&mut self, parts: Parts, members: usize, read: Output) {
        let each = if self.exchange.shared { members as u64 } else { 1 };
        self.reads += u64::from(self.count(parts)) * each;
        self.consumed.add(read);
    }

    /// Whether nobody else will read parts that one task has read.
    pub(super) fn read_once(&self) -> bool {
        self.exchange.readers == 1 && !self.exchange.keep
    }

    fn count(&self, parts: Parts) -> u32 {
        match parts {
            Parts::All => self.exchange.parts,
            Parts::Range(start, end) => end - start,
        }
    }

    /// Whether both are the same, at the end of the job.
    ///
    /// # Errors
    /// Name of the exchange and what differs.
    pub(super) fn close(&self) -> Result<(), (String, String)> {
        let refuse = |detail: String| Err((self.exchange.name.clone(), detail));
        let each = if self.exchange.shared { self.members } else { 1 };
        let expected_reads = u64::from(self.exchange.parts) * u64::from(self.exchange.readers) * each;
        if self.reads != expected_reads {
            return refuse(format!("{} part reads, expected {expected_reads}", self.reads));
        }
        let readers = self.exchange.readers;
        let expected = Output {
            bytes: self.sealed.bytes * u64::from(readers),
            rows: self.sealed.rows * u64::from(readers),
            row_hash: RowHash(self.sealed.row_hash.0.wrapping_mul(u128::from(readers))),
        };
        if self.consumed == expected {
            return Ok(());
        }
        let (sealed, read) = (expected, self.consumed);
        if sealed.rows != read.rows || sealed.bytes != read.bytes {
            return refuse(format!(
                "sealed {} rows in {} bytes, read {} rows in {} bytes",
                sealed.rows, sealed.bytes, read.rows, read.bytes
            ));
        }
        refuse(format!("row hashes differ: sealed {:032x}, read {:032x}", sealed.row_hash.0, read.row_hash.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(bytes: u64, rows: u64, hash: u128) -> Output {
        Output { bytes, rows, row_hash: RowHash(hash) }
    }

    fn ledger_of(readers: u32) -> Ledger {
        let mut ledger = Ledger::new(Exchange { name: "a -> b".into(), parts: 2, readers, keep: false, shared: false });
        ledger.sealed(output(10, 2, u128::MAX));
        ledger.sealed(output(20, 3, 5));
        ledger
    }

    #[test]
    fn a_ledger_whose_sides_are_equal_balances() {
        let mut ledger = ledger_of(1);
        ledger.consumed(Parts::Range(0, 1), 2, output(12, 2, 1));
        ledger.consumed(Parts::Range(1, 2), 2, output(18, 3, 3));
        assert_eq!(ledger.close(), Ok(()), "hashes wrap");
    }

    #[test]
    fn every_reader_counts() {
        let mut ledger = ledger_of(2);
        ledger.consumed(Parts::All, 2, output(30, 5, 4));
        assert!(ledger.close().is_err());
        ledger.consumed(Parts::All, 2, output(30, 5, 4));
        assert_eq!(ledger.close(), Ok(()));
    }

    #[test]
    fn sets_that_share_their_ledger_are_counted_member_by_member() {
        let exchange = Exchange { name: "a -> b".into(), parts: 2, readers: 1, keep: true, shared: true };
        let mut ledger = Ledger::new(exchange);
        ledger.sealed(output(10, 2, 3));
        ledger.sealed(output(20, 3, 5));
        // The first parts of both together, the second ones each for itself.
        ledger.consumed(Parts::Range(0, 1), 2, output(12, 2, 1));
        ledger.consumed(Parts::Range(1, 2), 1, output(8, 1, 4));
        assert!(ledger.close().unwrap_err().1.contains("3 part reads, expected 4"));
        ledger.consumed(Parts::Range(1, 2), 1, output(10, 2, 3));
        assert_eq!(ledger.close(), Ok(()));
    }

    #[test]
    fn a_lost_row_a_changed_row_and_a_skipped_part_are_named() {
        let cases = [(output(30, 4, 4), "sealed 5 rows"), (output(30, 5, 9), "row hashes differ")];
        for (read, text) in cases {
            let mut ledger = ledger_of(1);
            ledger.consumed(Parts::All, 2, read);
            let (edge, detail) = ledger.close().unwrap_err();
            assert_eq!(edge, "a -> b");
            assert!(detail.contains(text), "{detail}");
        }
        let mut ledger = ledger_of(1);
        ledger.consumed(Parts::Range(0, 1), 2, output(30, 5, 4));
        assert!(ledger.close().unwrap_err().1.contains("1 part reads, expected 2"));
    }
}
