//! How much memory the streams of a task are granted, together with all else that it needs before it starts.
//!
//! A stream reads from disk into a window of its own, and the function puts rows together in another one. Both are granted
//! (law 5): a task that has started asks for neither, and tasks that wait for an executor hold no more than their share.

/// Read-ahead of all streams of a task together, bytes.
const AHEAD_BYTES: u64 = 4 << 20;
/// A stream reads in no smaller requests where memory allows: disks are slow below, bytes.
const AHEAD_WANTED_BYTES: u64 = 64 << 10;
/// What the function has for all streams together, bytes.
const ROWS_BYTES: u64 = 2 << 20;
/// More is of no use to one of them, bytes.
const ROWS_MAX_BYTES: u64 = 256 << 10;
/// Of what a stream has, the function has one part in so many where there is less than is wanted.
const ROWS_SHARE: u64 = 5;
const PAGE: u64 = 4096;

/// Bytes for each stream of a task: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    streams: usize,
    /// Of its reader.
    ahead: u64,
    /// Of the function.
    rows: u64,
}

impl Windows {
    /// For so many streams, which shall have no more than `share_bytes` together.
    pub(super) fn within(streams: usize, share_bytes: u64) -> Self {
        let count = streams.max(1) as u64;
        let pages = |bytes: u64| (bytes / PAGE * PAGE).max(PAGE);
        let ahead = pages((AHEAD_BYTES / count).max(AHEAD_WANTED_BYTES));
        let rows = pages((ROWS_BYTES / count).min(ROWS_MAX_BYTES));
        let each = share_bytes / count;
        if ahead + rows <= each {
            return Self { streams, ahead, rows };
        }
        let rows = pages(each / ROWS_SHARE);
        Self { streams, ahead: pages(each.saturating_sub(rows)), rows }
    }

    /// The least that works; `None`: this is it.
    pub(super) fn least(self) -> Option<Self> {
        let least = Self { ahead: PAGE, rows: PAGE, ..self };
        (self.streams > 0 && self != least).then_some(least)
    }

    pub(super) fn streams(self) -> usize {
        self.streams
    }

    pub(super) fn bytes(self) -> u64 {
        self.streams as u64 * (self.ahead + self.rows)
    }

    /// All of them: those of the readers, then those of the function.
    pub(super) fn sizes(self) -> impl Iterator<Item = u64> {
        let of = move |bytes| std::iter::repeat_n(bytes, self.streams);
        of(self.ahead).chain(of(self.rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_have_what_is_of_use_or_what_their_share_is() {
        const MIB: u64 = 1 << 20;
        let cases = [
            (1, 1024 * MIB, (4 * MIB, 256 << 10)),
            (16, 1024 * MIB, (256 << 10, 128 << 10)),
            (1000, 1024 * MIB, (64 << 10, 4096)),
            (140, 5 * MIB, (32768, 4096)),
            (1000, 5 * MIB, (4096, 4096)),
            (100_000, 5 * MIB, (4096, 4096)),
        ];
        for (streams, share, (ahead, rows)) in cases {
            let windows = Windows::within(streams, share);
            assert_eq!(windows, Windows { streams, ahead, rows });
            assert!(windows.bytes() <= share || windows.least().is_none(), "{windows:?}");
            assert_eq!(windows.sizes().sum::<u64>(), windows.bytes());
        }
    }

    #[test]
    fn the_least_is_a_page_for_each_and_there_is_no_less() {
        let least = Windows::within(7, 1 << 30).least().unwrap();
        assert_eq!(least.sizes().collect::<Vec<_>>(), [4096; 14]);
        assert_eq!(least.least(), None);
        assert_eq!(Windows::within(0, 1 << 30).least(), None);
        assert_eq!(Windows::within(0, 0).bytes(), 0);
    }
}
