//! Figures of nodes, summed over nodes and put into equal pieces of time.

use exobus_actors::event::NodeFigures;

use super::super::timeline::Timeline;

/// More points than this nobody can see.
pub const BINS_MAX: u64 = 240;
/// Figures come no oftener than this.
const BIN_MIN_US: u64 = 100_000;

/// Equal pieces of a job's time.
pub(super) struct Bins {
    count: usize,
    width_us: f64,
}

impl Bins {
    pub(super) fn new(duration_us: u64) -> Self {
        let count = (duration_us / BIN_MIN_US).clamp(1, BINS_MAX);
        Self { count: count as usize, width_us: duration_us as f64 / count as f64 }
    }

    /// Of a counter: how much it rose each second.
    pub(super) fn rate(&self, timeline: &Timeline, of: fn(&NodeFigures) -> u64) -> Vec<f64> {
        let mut amounts = vec![0.0; self.count];
        for (from, to, before, after) in timeline.nodes().iter().flat_map(|node| node.intervals()) {
            let rose = of(after).saturating_sub(of(before)) as f64;
            self.spread(from, to, |bin, share| amounts[bin] += rose * share / (to - from) as f64);
        }
        amounts.into_iter().map(|amount| amount * 1e6 / self.width_us).collect()
    }

    /// Of a figure: its largest value in each piece, the last known one where nothing was said. `since_start`: how much
    /// it rose since the job began.
    pub(super) fn gauge(&self, timeline: &Timeline, of: fn(&NodeFigures) -> u64, since_start: bool) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        for node in timeline.nodes() {
            let base = node.samples.first().filter(|_| since_start).map_or(0, |sample| of(&sample.figures));
            let mut largest = vec![None::<u64>; self.count];
            let mut last = vec![None::<u64>; self.count];
            for sample in &node.samples {
                let bin = ((node.job_time(sample.node_us) as f64 / self.width_us) as usize).min(self.count - 1);
                let value = of(&sample.figures).saturating_sub(base);
                largest[bin] = largest[bin].max(Some(value));
                last[bin] = Some(value);
            }
            let mut known = 0;
            for bin in 0..self.count {
                sums[bin] += largest[bin].unwrap_or(known) as f64;
                known = last[bin].unwrap_or(known);
            }
        }
        sums
    }

    /// How many of these spans (microseconds) there are at a time, on the average of each piece.
    pub(super) fn average_of_spans(&self, spans: impl Iterator<Item = (u64, u64)>) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        for (from, to) in spans {
            self.spread(from, to, |bin, share| sums[bin] += share);
        }
        sums.into_iter().map(|sum| sum / self.width_us).collect()
    }

    /// Calls `add` with each piece that a span touches and the microseconds that they share.
    fn spread(&self, from: u64, to: u64, mut add: impl FnMut(usize, f64)) {
        let first = (from as f64 / self.width_us) as usize;
        for bin in first..self.count {
            let (start, end) = (bin as f64 * self.width_us, (bin + 1) as f64 * self.width_us);
            let share = end.min(to as f64) - start.max(from as f64);
            if share <= 0.0 {
                break;
            }
            add(bin, share);
        }
    }
}

/// How much a counter rose while the job ran, all nodes together.
pub(super) fn total(timeline: &Timeline, of: fn(&NodeFigures) -> u64) -> u64 {
    let intervals = timeline.nodes().iter().flat_map(|node| node.intervals());
    intervals.map(|(_, _, before, after)| of(after).saturating_sub(of(before))).sum()
}

/// The larger of both, piece by piece.
pub(super) fn larger(mut one: Vec<f64>, other: &[f64]) -> Vec<f64> {
    one.iter_mut().zip(other).for_each(|(one, other)| *one = one.max(*other));
    one
}

/// The largest value.
pub(super) fn peak(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
