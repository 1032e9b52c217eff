//! A timeline as one picture (SVG): what disks, network, processors and memory did, what attempts waited for, and which
//! attempt ran where and when.
//!
//! Large jobs stay small pictures. Up to [`BARS_MAX`] attempts each has its bar, with its figures when the pointer is
//! over it; beyond, each executor's row is cut into columns as wide as a line is, coloured by the stage that took most
//! of the column, as high as the executor was busy. With more than [`ROWS_MAX`] executors a row is a whole node, and with
//! more nodes than that a row is several of them. Curves have at most [`BINS_MAX`](series::BINS_MAX) points whatever the job takes.
//!
//! Colours are those of Okabe and Ito, which people with any colour vision can tell apart.

mod axis;
mod gantt;
mod panel;
mod series;
mod svg;

use exobus_actors::event::NodeFigures;

use self::{
    axis::Unit,
    panel::{Curve, Panel},
    series::Bins,
    svg::Svg,
};
use super::{
    text,
    timeline::{NodeLine, Timeline, WAITS},
};

pub use self::gantt::{BARS_MAX, ROWS_MAX};

/// All lengths are in pixels of the picture.
const WIDTH: f64 = 1200.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = 28.0;
const HEADER: f64 = 76.0;

const BLUE: &str = "#0072B2";
const ORANGE: &str = "#E69F00";
const GREEN: &str = "#009E73";
const PURPLE: &str = "#CC79A7";
const SKY: &str = "#56B4E9";
const VERMILLION: &str = "#D55E00";
const YELLOW: &str = "#F0E442";
const GREY: &str = "#999999";
const INK: &str = "#222222";
const FAINT: &str = "#666666";

/// A subtitle that is longer is cut.
const SUBTITLE_CHARS: usize = 160;
/// Reasons with a smaller share of all that was waited are left out.
const NO_WAIT: f64 = 0.001;

/// The picture of all that is known, finished or not.
pub fn svg(timeline: &Timeline) -> String {
    let mut svg = Svg::new(WIDTH);
    header(&mut svg, timeline);
    let time = axis::Time::new(timeline.duration_us(), LEFT, WIDTH - RIGHT);
    let mut y = HEADER;
    for panel in panels(timeline) {
        y = panel.draw(&mut svg, &time, y);
    }
    y = gantt::draw(&mut svg, timeline, &time, y);
    svg.finish(y)
}

fn header(svg: &mut Svg, timeline: &Timeline) {
    let seconds = std::time::Duration::from_micros(timeline.duration_us());
    let program = if timeline.program().is_empty() { "job" } else { timeline.program() };
    svg.text((LEFT, 26.0), svg::Text { size: 18.0, bold: true, ..svg::Text::default() }, program);
    let nodes = match timeline.nodes().len() {
        1 => "1 node".to_owned(),
        nodes => format!("{} nodes", text::count(nodes as u64)),
    };
    let attempts = text::count(timeline.slices().len() as u64);
    let missing = match timeline.missing() {
        0 => String::new(),
        missing => format!("; {} events are missing, and what they told", text::count(missing)),
    };
    let about =
        format!("{} in {}, {attempts} attempts on {nodes}{missing}", timeline.outcome(), text::duration(seconds));
    let faint = svg::Text { fill: FAINT, ..svg::Text::default() };
    svg.text((LEFT, 46.0), faint, &shortened(&about, SUBTITLE_CHARS));
    svg.text((LEFT, 64.0), faint, &shortened(&setting(timeline), SUBTITLE_CHARS));
}

/// With what it was done: cores, data and command.
fn setting(timeline: &Timeline) -> String {
    let last = |node: &NodeLine| node.samples.last().map(|sample| sample.figures);
    let figures: Vec<NodeFigures> = timeline.nodes().iter().filter_map(last).collect();
    let each = |of: fn(&NodeFigures) -> u64, show: fn(u64) -> String| {
        let (least, most) = (figures.iter().map(of).min().unwrap_or(0), figures.iter().map(of).max().unwrap_or(0));
        if least == most { show(most) } else { format!("{} to {}", show(least), show(most)) }
    };
    let mut parts = Vec::new();
    if figures.iter().any(|node| node.cpus > 0) {
        let memory = each(|node| node.budget_bytes, |bytes| crate::config::units::size(bytes).to_string());
        let cores = each(|node| u64::from(node.cpus), text::count);
        let on_each = if figures.len() == 1 { "" } else { " on each node" };
        let plural = if cores == "1" { "" } else { "s" };
        parts.push(format!("{cores} core{plural} and {memory}{on_each}"));
    }
    let (read, written) = timeline.file_bytes();
    if read + written > 0 {
        parts.push(format!("{} read, {} written", text::bytes(read), text::bytes(written)));
    }
    if !timeline.command().is_empty() {
        parts.push(timeline.command().to_owned());
    }
    parts.join(" \u{b7} ")
}

/// A text that is too long ends in dots.
fn shortened(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars_max - 1).collect();
    short.push('…');
    short
}

/// The panels that have something to show, from top to bottom.
fn panels(timeline: &Timeline) -> Vec<Panel> {
    let bins = Bins::new(timeline.duration_us());
    let rate = |of: fn(&NodeFigures) -> u64| bins.rate(timeline, of);
    let total = |of: fn(&NodeFigures) -> u64| series::total(timeline, of);
    let (restored, spilled) = (rate(|f| f.restored_bytes), rate(|f| f.spilled_bytes));
    // Where the kernel does not tell what disks did, spilling is known all the same.
    let read = series::larger(rate(|f| f.disk_read_bytes), &restored);
    let written = series::larger(rate(|f| f.disk_written_bytes), &spilled);
    let received = rate(|f| f.received_bytes);
    let spills = series::peak(&spilled) > 0.0 || series::peak(&restored) > 0.0;
    let bytes_per_s = Unit::BytesPerSecond;

    let said = |total: u64| format!("{} in all", text::bytes(total));
    let read_total = total(|f| f.disk_read_bytes).max(total(|f| f.restored_bytes));
    let written_total = total(|f| f.disk_written_bytes).max(total(|f| f.spilled_bytes));
    let mut panels = vec![
        Panel::new("Disk reads", bytes_per_s, said(read_total))
            .with(Curve::area("all reads", BLUE, read))
            .with_if(spills, Curve::solid("of these: spilled data read back", VERMILLION, restored)),
        Panel::new("Disk writes", bytes_per_s, said(written_total))
            .with(Curve::area("all writes", BLUE, written))
            .with_if(spills, Curve::solid("of these: spilling", VERMILLION, spilled)),
    ];
    if series::peak(&received) > 0.0 {
        let moved = said(total(|f| f.received_bytes));
        panels.push(Panel::new("Network", bytes_per_s, moved).with(Curve::area("between nodes", GREEN, received)));
    }
    let cpu_seconds = std::time::Duration::from_micros(total(|f| f.cpu_us));
    let executors: u32 = timeline.nodes().iter().map(|node| node.executors()).sum();
    let cores = rate(|f| f.cpu_us).into_iter().map(|micros| micros / 1e6).collect();
    panels.push(
        Panel::new("Processors", Unit::Count, format!("{} of processor time", text::duration(cpu_seconds)))
            .with(Curve::area("cores busy", GREEN, cores))
            .limit("executors", f64::from(executors)),
    );
    panels.push(memory(timeline, &bins));
    if spills {
        let sum = |of: fn(&NodeFigures) -> u64| bins.gauge(timeline, of, true);
        let said = format!(
            "{} spilled, {} read back",
            text::bytes(total(|f| f.spilled_bytes)),
            text::bytes(total(|f| f.restored_bytes))
        );
        panels.push(
            Panel::new("Spill so far", Unit::Bytes, said)
                .with(Curve::line("written", VERMILLION, sum(|f| f.spilled_bytes)))
                .with(Curve::line("read back", BLUE, sum(|f| f.restored_bytes))),
        );
    }
    panels.extend(waits(timeline, &bins));
    panels
}

fn memory(timeline: &Timeline, bins: &Bins) -> Panel {
    let process = bins.gauge(timeline, |f| f.memory_bytes, false);
    let objects = bins.gauge(timeline, |f| f.used_bytes, false);
    let budget: u64 = timeline.nodes().iter().filter_map(|n| n.samples.last()).map(|s| s.figures.budget_bytes).sum();
    let peak = format!("{} at most", crate::config::units::size(series::peak(&process) as u64));
    Panel::new("Memory", Unit::Memory, peak)
        .with(Curve::area("processes", SKY, process))
        .with(Curve::line("objects and scratch", BLUE, objects))
        .limit("budget", budget as f64)
}

/// How many attempts waited at a time, and for what.
fn waits(timeline: &Timeline, bins: &Bins) -> Option<Panel> {
    let spans = |reason: usize| {
        let slices = timeline.slices().iter();
        slices.flat_map(move |slice| timeline.waits_of(slice).filter(move |wait| wait.0 == reason))
    };
    let waited: u64 = (0..WAITS.len()).flat_map(spans).map(|(_, from, to)| to - from).sum();
    if waited == 0 {
        return None;
    }
    let colours = [GREY, VERMILLION, ORANGE, PURPLE, SKY];
    let labels = ["their turn", "memory", "disk", "network", "an executor"];
    let said = format!("{} added up over attempts", text::duration(std::time::Duration::from_micros(waited)));
    let mut panel = Panel::new("Attempts that wait for ...", Unit::Count, said).stacked();
    for reason in [1, 2, 3, 4, 0] {
        let average = bins.average_of_spans(spans(reason).map(|(_, from, to)| (from, to)));
        let share = spans(reason).map(|(_, from, to)| to - from).sum::<u64>() as f64 / waited as f64;
        panel = panel.with_if(share > NO_WAIT, Curve::solid(labels[reason], colours[reason], average));
    }
    Some(panel)
}

#[cfg(test)]
#[path = "plot_tests.rs"]
mod tests;
