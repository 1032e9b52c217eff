//! [`Pace`]: how often something is said that strangers can make happen as often as they like.

use std::time::Duration;

/// How long after a line of the log the next one may come.
const EVERY: Duration = Duration::from_secs(60);

/// Lets one of many through each minute, and counts the others. Without a clock: the time comes in.
#[derive(Debug, Default)]
pub struct Pace {
    last: Option<Duration>,
    untold: u64,
}

impl Pace {
    /// It has happened again. How often it has since it was last said, this time included, where it is to be said now.
    pub fn happened(&mut self, now: Duration) -> Option<u64> {
        self.untold += 1;
        if self.last.is_some_and(|last| now.saturating_sub(last) < EVERY) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_at_once_and_then_one_each_minute_with_how_many_there_were() {
        let mut pace = Pace::default();
        let said: Vec<_> =
            (0..150).filter_map(|second| Some((second, pace.happened(Duration::from_secs(second))?))).collect();
        assert_eq!(said, [(0, 1), (60, 60), (120, 60)]);
    }
}
