//! Which attempt ran on which executor, and when.

use std::{collections::BTreeMap, time::Duration};

use super::{
    BLUE, FAINT, GREEN, GREY, INK, LEFT, ORANGE, PURPLE, SKY, VERMILLION, YELLOW,
    axis::Time,
    shortened,
    svg::{Svg, Text},
};
use crate::report::{
    text,
    timeline::{Slice, Timeline},
};

/// So many attempts have a bar each; see [`super`].
pub const BARS_MAX: usize = 5_000;
/// So many executors have a row each; see [`super`].
pub const ROWS_MAX: usize = 64;

/// Width of a column when attempts are summed up.
const COLUMN: f64 = 1.5;
/// Stages that every shuffle has look the same in all pictures.
const NAMED: [(&str, &str); 3] = [("map", BLUE), ("reduce", ORANGE), ("merge", GREEN)];
/// The others in the order in which they were heard of; the rest is grey.
const OTHERS: [&str; 4] = [SKY, PURPLE, YELLOW, VERMILLION];
/// So wide that it can be seen.
const WIDTH_MIN: f64 = 0.8;
const TITLE: f64 = 34.0;
/// Below the rows: the times.
const FOOT: f64 = 46.0;

/// Draws it below `y`; returns where the picture ends.
pub(super) fn draw(svg: &mut Svg, timeline: &Timeline, time: &Time, y: f64) -> f64 {
    let rows = Rows::new(timeline);
    let colours = colours(timeline);
    let mut title = "Attempts by executor".to_owned();
    if timeline.slices().len() > BARS_MAX {
        title.push_str(" (many: the height of a column is how busy the executor was, the colour what took most of it)");
    }
    svg.text((time.left(), y + TITLE - 8.0), Text { bold: true, ..Text::default() }, &title);
    let legend_y = svg.legend((time.left(), y + TITLE + 9.0), time.right(), &legend(timeline, &colours));
    let top = legend_y + 12.0;
    let height = rows.height();
    let bottom = top + rows.labels.len().max(1) as f64 * height;
    for (at_us, label) in time.ticks() {
        let x = time.x(at_us);
        svg.line((x, top), (x, bottom + 4.0), "#e3e3e3", "stroke-width=\"1\"");
        let look = Text { size: 11.0, fill: FAINT, anchor: "middle", ..Text::default() };
        svg.text((x, bottom + 17.0), look, &label);
    }
    for (index, label) in rows.labels.iter().enumerate() {
        let middle = top + (index as f64 + 0.5) * height;
        let look = Text { size: 10.5_f64.min(height), anchor: "end", ..Text::default() };
        svg.text((LEFT - 6.0, middle + 3.5), look, &shortened(label, 19));
    }
    let place = |row: usize| (top + row as f64 * height + 1.0, height - 2.0);
    if timeline.slices().len() <= BARS_MAX && !rows.shared {
        for slice in timeline.slices() {
            bar(svg, timeline, time, slice, place(rows.of(slice)), &colours);
        }
    } else {
        columns(svg, timeline, time, &rows, place, &colours);
    }
    svg.line((time.left(), bottom), (time.right(), bottom), GREY, "stroke-width=\"1\"");
    let end = Text { size: 11.0, fill: FAINT, anchor: "middle", ..Text::default() };
    svg.text(((time.left() + time.right()) / 2.0, bottom + 33.0), end, "since the job's start");
    bottom + FOOT
}

/// Which executors share a row.
struct Rows {
    labels: Vec<String>,
    /// The first row of each node, and executors or nodes in a row.
    first: Vec<usize>,
    executors_per_row: usize,
    nodes_per_row: usize,
    shared: bool,
    /// How many executors a row has.
    executors: Vec<u32>,
}

impl Rows {
    fn new(timeline: &Timeline) -> Self {
        let nodes = timeline.nodes();
        let executors: usize = nodes.iter().map(|node| node.executors() as usize).sum();
        let (mut labels, mut first, mut in_row) = (Vec::new(), Vec::new(), Vec::new());
        let by_executor = executors <= ROWS_MAX;
        let nodes_per_row = if by_executor { 1 } else { nodes.len().div_ceil(ROWS_MAX).max(1) };
        for (index, node) in nodes.iter().enumerate() {
            if by_executor {
                first.push(labels.len());
                for executor in 0..node.executors() {
                    labels.push(format!("{} / {executor}", shortened(&node.name, 14)));
                    in_row.push(1);
                }
            } else if index % nodes_per_row == 0 {
                first.push(labels.len());
                labels.push(node.name.clone());
                in_row.push(node.executors());
            } else {
                let row = labels.len() - 1;
                first.push(row);
                labels[row] = format!("{} ...", nodes[index - index % nodes_per_row].name);
                in_row[row] += node.executors();
            }
        }
        let executors_per_row = if by_executor { 1 } else { usize::MAX };
        Self { labels, first, executors_per_row, nodes_per_row, shared: !by_executor, executors: in_row }
    }

    fn of(&self, slice: &Slice) -> usize {
        let executor = if self.executors_per_row == 1 { slice.timing.executor as usize } else { 0 };
        self.first[slice.node] + executor
    }

    fn height(&self) -> f64 {
        match self.labels.len() {
            0..=8 => 24.0,
            9..=24 => 17.0,
            _ => 12.0,
        }
    }
}

/// By stage.
fn colours(timeline: &Timeline) -> Vec<&'static str> {
    let mut others = OTHERS.into_iter();
    let colour = |stage: &std::sync::Arc<str>| {
        let last = stage.rsplit('.').next().unwrap_or(stage);
        let named = NAMED.iter().find(|(name, _)| *name == last).map(|(_, colour)| *colour);
        named.or_else(|| others.next()).unwrap_or(GREY)
    };
    timeline.stages().iter().map(colour).collect()
}

fn legend(timeline: &Timeline, colours: &[&'static str]) -> Vec<(&'static str, String)> {
    let mut entries = Vec::new();
    for (stage, name) in timeline.stages().iter().enumerate() {
        let good = || timeline.slices().iter().filter(|slice| slice.stage == stage && slice.error.is_none());
        let (count, micros) = (good().count() as u64, good().map(|slice| slice.micros).sum::<u64>());
        if let Some(mean_micros) = micros.checked_div(count) {
            let mean = text::short_duration(Duration::from_micros(mean_micros));
            entries.push((colours[stage], format!("{name}: {} × {mean}", text::count(count))));
        }
    }
    let failed = timeline.slices().iter().filter(|slice| slice.error.is_some()).count();
    if failed > 0 {
        entries.push(("url(#failed)", format!("failed: {}", text::count(failed as u64))));
    }
    entries
}

fn bar(
    svg: &mut Svg,
    timeline: &Timeline,
    time: &Time,
    slice: &Slice,
    (y, height): (f64, f64),
    colours: &[&'static str],
) {
    let (start, end) = timeline.span_us(slice);
    let width = (time.x(end) - time.x(start)).max(WIDTH_MIN);
    let x = time.x(start).min(time.right() - width);
    let name = &timeline.stages()[slice.stage];
    let took = text::short_duration(Duration::from_micros(slice.micros));
    let mut title = format!("{name}, {took}: {} in, {} out", text::bytes(slice.bytes_in), text::bytes(slice.bytes_out));
    title.push_str(&format!("\ntask {}, attempt {}", slice.task, slice.attempt));
    for (reason, from, to) in timeline.waits_of(slice) {
        let waited = text::short_duration(Duration::from_micros(to - from));
        title.push_str(&format!("\nwaited {waited}: {}", crate::report::timeline::WAITS[reason]));
    }
    // A gap between neighbours, where there is room for one.
    let edge = if width > 4.0 { "class=\"task\" stroke=\"#fff\" stroke-width=\"0.8\"" } else { "class=\"task\"" };
    let fill = match &slice.error {
        None => colours[slice.stage],
        Some(error) => {
            title.push_str(&format!("\nfailed: {error}"));
            "url(#failed)"
        }
    };
    svg.rect((x, y), (width, height), fill, edge, &title);
}

fn columns(
    svg: &mut Svg,
    timeline: &Timeline,
    time: &Time,
    rows: &Rows,
    place: impl Fn(usize) -> (f64, f64),
    colours: &[&'static str],
) {
    let count = ((time.right() - time.left()) / COLUMN) as usize;
    let width_us = time.duration_us() as f64 / count as f64;
    // Microseconds of each stage in each column of each row.
    let mut busy: BTreeMap<(usize, usize), BTreeMap<usize, f64>> = BTreeMap::new();
    for slice in timeline.slices() {
        let (start, end) = timeline.span_us(slice);
        let first = (start as f64 / width_us) as usize;
        for column in first..count {
            let (from, to) = (column as f64 * width_us, (column + 1) as f64 * width_us);
            let share = to.min(end as f64) - from.max(start as f64);
            if share <= 0.0 {
                break;
            }
            *busy.entry((rows.of(slice), column)).or_default().entry(slice.stage).or_default() += share;
        }
    }
    for ((row, column), stages) in busy {
        let Some((stage, _)) = stages.iter().max_by(|one, other| one.1.total_cmp(other.1)) else { continue };
        let (y, height) = place(row);
        let room = width_us * f64::from(rows.executors[row].max(1));
        let share = (stages.values().sum::<f64>() / room).min(1.0);
        let (x, tall) = (time.left() + column as f64 * COLUMN, (share * height).max(1.0));
        svg.rect((x, y + height - tall), (COLUMN, tall), colours[*stage], "class=\"column\"", "");
    }
    if rows.nodes_per_row > 1 {
        let note = format!("{} nodes in a row", rows.nodes_per_row);
        let look = Text { size: 10.0, fill: INK, anchor: "end", ..Text::default() };
        svg.text((time.right(), place(0).0 - 4.0), look, &note);
    }
}
