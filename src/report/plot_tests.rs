//! Pictures of made-up jobs.

use exobus_actors::event::{Event, EventKind, NodeFigures};

use super::super::timeline::tests::{event, failed, finished};
use super::*;

fn of(events: impl IntoIterator<Item = Event>) -> Timeline {
    let mut timeline = Timeline::default();
    events.into_iter().for_each(|event| timeline.on(&event));
    timeline
}

/// Every element is closed in its turn, attributes are quoted, and no text has a bare `<` or `&`. Returns the elements.
fn elements(svg: &str) -> Vec<String> {
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    let mut rest = svg;
    while let Some(at) = rest.find('<') {
        let (text, tag) = rest.split_at(at);
        assert!(!text.contains('>'), "{text}");
        for entity in text.split('&').skip(1) {
            let name = entity.split(';').next().unwrap();
            assert!(["amp", "lt", "gt", "quot"].contains(&name), "{text}");
        }
        let end = tag.find('>').unwrap_or_else(|| panic!("not closed: {tag:.80}"));
        let inside = &tag[1..end];
        match inside.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop().as_deref(), Some(name)),
            None => {
                assert_eq!(inside.matches('"').count() % 2, 0, "{inside}");
                let name = inside.split([' ', '/']).next().unwrap().to_owned();
                if !inside.ends_with('/') {
                    open.push(name);
                }
                seen.push(inside.to_owned());
            }
        }
        rest = &tag[end + 1..];
    }
    assert_eq!(open, [""; 0], "all are closed");
    assert!(seen[0].starts_with("svg "));
    assert!(!svg.chars().any(|letter| (letter as u32) < 0x20 && letter != '\n'), "XML has no such characters");
    seen
}

fn count(elements: &[String], class: &str) -> usize {
    elements.iter().filter(|element| element.contains(&format!("class=\"{class}\""))).count()
}

fn many(tasks: u64, executors: u64, nodes: u64) -> Timeline {
    let one = |number: u64| {
        let lane = number % (executors * nodes);
        let start = number / (executors * nodes) * 1_000;
        let node = format!("n{}", lane / executors);
        let stage = if number < tasks / 2 { "sort.map" } else { "sort.reduce" };
        let kind = finished(u128::from(number), stage, (lane % executors) as u32, start, 900);
        event(start + 900, &node, kind)
    };
    of((0..tasks).map(one))
}

#[test]
fn every_attempt_has_a_bar_with_its_figures() {
    let mut timeline = many(40, 2, 2);
    timeline.on(&event(90_000, "n0", failed(99, "sort.map", 80_000, 1_000)));
    let svg = svg(&timeline);
    let elements = elements(&svg);
    assert_eq!(count(&elements, "task"), 41);
    assert_eq!(elements.iter().filter(|element| *element == "title").count(), 41);
    assert!(svg.contains("failed: disk &lt;gone&gt; &amp; &quot;lost&quot;?"), "what XML does not allow is a ?");
    for lane in ["n0 / 0", "n0 / 1", "n1 / 0", "n1 / 1"] {
        assert!(svg.contains(lane), "{lane}");
    }
    assert!(svg.contains("sort.reduce: 20 × 900 µs"));
}

#[test]
fn a_large_job_is_a_small_picture() {
    let bars = elements(&svg(&many(BARS_MAX as u64, 4, 1)));
    assert_eq!(count(&bars, "task"), BARS_MAX, "up to the limit each has its own");
    let columns = svg(&many(BARS_MAX as u64 * 20, 4, 1));
    let elements_of_columns = elements(&columns);
    assert_eq!(count(&elements_of_columns, "task"), 0);
    let drawn = count(&elements_of_columns, "column");
    assert!((1_000..4 * 750).contains(&drawn), "{drawn}");
    assert!(columns.contains("the height of a column is how busy the executor was"));
}

#[test]
fn many_executors_share_rows_of_nodes() {
    let svg_of = |nodes| svg(&many(20_000, 2, nodes));
    let rows = |svg: &str| (0..400).filter(|node| svg.contains(&format!(">n{node}<"))).count();
    let nodes = svg_of(40);
    elements(&nodes);
    assert_eq!(rows(&nodes), 40, "80 executors: a row a node");
    let several = svg_of(200);
    assert!(several.contains(">n0 ...<") && several.contains("4 nodes in a row"), "200 nodes: 50 rows");
    assert!(elements(&several).len() < 50 * 800);
}

#[test]
fn a_job_of_which_nothing_is_known_has_a_picture() {
    elements(&svg(&Timeline::default()));
    let error = Some("cancelled".to_owned());
    let timeline = of([event(0, "n1", EventKind::JobFinished { error })]);
    let svg = svg(&timeline);
    elements(&svg);
    assert!(svg.contains("cancelled in 0.00 s, 0 attempts on 0 nodes"), "{svg}");
}

#[test]
fn cores_data_and_command_are_in_the_subtitle() {
    let command = "exobus sort in --output out --plot p.svg";
    let figures = |node: &str, cpus, budget_bytes| {
        event(500, node, EventKind::NodeFigures(NodeFigures { cpus, budget_bytes, ..NodeFigures::default() }))
    };
    let told = |events: &[Event]| {
        let mut timeline = Timeline::of_command(command.to_owned());
        events.iter().for_each(|event| timeline.on(event));
        let svg = svg(&timeline);
        elements(&svg);
        svg.lines().find(|line| line.contains(command)).unwrap().to_owned()
    };
    let with_files = |number, stage: &str, read: u64, written: u64| {
        let mut event = event(1_000, "n0", finished(number, stage, 0, 0, 900));
        if let EventKind::TaskFinished { outside_in_bytes, outside_out_bytes, .. } = &mut event.kind {
            (*outside_in_bytes, *outside_out_bytes) = (read, written);
        }
        event
    };
    let work = [
        with_files(1, "sort.sample", 1_000, 0),
        with_files(2, "sort.map", 300_000_000, 0),
        with_files(3, "sort.map", 300_000_000, 0),
        with_files(4, "sort.reduce", 0, 600_000_000),
    ];
    let alone = [&[figures("n0", 2, 64 << 20)][..], &work].concat();
    let line = told(&alone);
    assert!(line.contains(&format!(">2 cores and 64.0 MiB · 600 MB read, 600 MB written · {command}<")), "{line}");
    let several = [&[figures("n0", 1, 64 << 20), figures("n1", 4, 64 << 20)][..], &work].concat();
    assert!(told(&several).contains(">1 to 4 cores and 64.0 MiB on each node · 600 MB read"));
    assert!(told(&[]).contains(&format!(">{command}<")), "of nothing else anything is known");
}

#[test]
fn rates_are_differences_of_counters_summed_over_nodes() {
    let figures = |node: &str, at_us: u64, spilled_bytes: u64| {
        let figures = NodeFigures { at_us, spilled_bytes, used_bytes: spilled_bytes / 2, ..NodeFigures::default() };
        event(at_us, node, EventKind::NodeFigures(figures))
    };
    // Earlier jobs had spilled 7 000 on n1. Both clocks are the job's.
    let timeline = of([
        figures("n1", 0, 7_000),
        figures("n2", 0, 0),
        figures("n2", 500_000, 1_000),
        figures("n1", 1_000_000, 9_000),
        figures("n2", 1_000_000, 1_000),
    ]);
    let bins = Bins::new(timeline.duration_us());
    let rate = bins.rate(&timeline, |figures| figures.spilled_bytes);
    let rounded: Vec<u64> = rate.iter().map(|rate| rate.round() as u64).collect();
    assert_eq!(rounded, [[4_000; 5], [2_000; 5]].concat());
    assert_eq!(series::total(&timeline, |figures| figures.spilled_bytes), 3_000);
    let risen = bins.gauge(&timeline, |figures| figures.spilled_bytes, true);
    assert_eq!(risen, [0., 0., 0., 0., 0., 1_000., 1_000., 1_000., 1_000., 3_000.]);
    let used = bins.gauge(&timeline, |figures| figures.used_bytes, false);
    assert_eq!((used[0], used[9]), (3_500., 5_000.));
}
