//! What is known of a result before everything was read, for people: a table with bounds as bars, and how the error has become smaller.

use exobus_queries::snapshot::{ShownGroup, ShownKind, ShownValue, Snapshot};
use exobus_tables::look::Value;
use serde_json::Value as Json;

use super::bars::fitting;
use super::table::{DrawnColumn, DrawnTable};
use super::text::{count, counted};

/// Groups that are drawn where nothing else says how many fit, at most.
pub const GROUPS_DRAWN: usize = 50;
/// Cells of the bar that shows between which values one is.
const BAR_CELLS: usize = 24;
/// How the error of a look is drawn beside those of others: the lowest is a hundredth of the highest.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Looks at a result, one after the other.
#[derive(Debug, Default)]
pub(super) struct Estimates {
    /// The largest error of each look, as a part of its value.
    errors: Vec<f64>,
}

impl Estimates {
    /// A look in a line: `23 of 800 blocks (2.9 %) in 0.8 s, 4 groups, ± 3.1 % at most █▆▄▂`.
    pub(super) fn line(&mut self, snapshot: &Snapshot) -> String {
        let Snapshot { blocks_seen, blocks, groups_seen, seconds, .. } = snapshot;
        let read =
            if snapshot.is_final { "all".to_owned() } else { format!("{} of {}", count(*blocks_seen), count(*blocks)) };
        let percent = 100.0 * *blocks_seen as f64 / (*blocks).max(1) as f64;
        let largest = largest_error(snapshot);
        self.errors.extend(largest);
        let known = match largest {
            _ if snapshot.is_final => "exact".to_owned(),
            Some(error) => format!("± {:.2} % at most {}", 100.0 * error, self.drawn()),
            None => "no bounds yet".to_owned(),
        };
        format!("{read} blocks ({percent:.1} %) in {seconds:.1} s, {}, {known}", counted(*groups_seen, "group"))
    }

    /// How the error has become smaller, look by look.
    fn drawn(&self) -> String {
        let most = self.errors.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let step = |error: &f64| {
            let part = 1.0 + (error / most).max(0.01).log10() / 2.0;
            STEPS[((part * STEPS.len() as f64) as usize).min(STEPS.len() - 1)]
        };
        self.errors.iter().map(step).collect()
    }
}

/// The largest error of the groups that are shown, as a part of its value; `None`: there are no bounds. Values that are exact count where there are no others.
pub fn largest_error(snapshot: &Snapshot) -> Option<f64> {
    let values = || snapshot.groups.iter().flat_map(|group| &group.values);
    let mut estimated = values().filter(|value| value.kind != Some(ShownKind::Exact)).peekable();
    match estimated.peek() {
        None => values().next().map(|_| 0.0),
        Some(_) => estimated.filter_map(ShownValue::relative_error).reduce(f64::max),
    }
}

/// What is said below the groups before everything was read: whether others may be shown in the end, and where others may be that nobody has met.
pub(super) fn notes(snapshot: &Snapshot) -> Vec<String> {
    let Snapshot { is_final, blocks, unmet_blocks, chosen_by_estimates, .. } = snapshot;
    let chosen = chosen_by_estimates.then(|| "which groups are shown follows from estimates".to_owned());
    let unmet = unmet_blocks.filter(|unmet| *unmet > 0).map(|unmet| {
        format!("a group of which no row was read is in {} of {} blocks at most", count(unmet), count(*blocks))
    });
    chosen.into_iter().chain(unmet).filter(|_| !is_final).collect()
}

/// The groups as a table, the first `most` of them; within so many columns of a terminal.
pub fn snapshot_table(snapshot: &Snapshot, most: usize, width: Option<usize>) -> String {
    let groups = &snapshot.groups[..most.min(snapshot.groups.len())];
    let by = groups.first().map_or(0, |group| group.key.len());
    let bounds = |group: &ShownGroup| {
        group
            .values
            .iter()
            .position(|value| value.kind.is_some_and(|kind| kind != ShownKind::Exact) && value.low.is_some())
    };
    // Bars are of the first value that has bounds anywhere.
    let barred = groups.iter().filter_map(bounds).min();
    let of_group = |group: &ShownGroup| Some((group.values[barred?].low?, group.values[barred?].high?));
    let (least, most_of) = groups
        .iter()
        .filter_map(of_group)
        .fold((0.0_f64, 0.0_f64), |(least, most), (low, high)| (least.min(low), most.max(high)));
    let mut columns: Vec<DrawnColumn> = Vec::new();
    for (number, name) in snapshot.columns.iter().enumerate() {
        columns.push(DrawnColumn { name: name.clone(), kind: String::new(), is_right: number >= by });
        if barred.is_some_and(|barred| by + barred == number) {
            columns.push(DrawnColumn { name: format!("{name} is between"), kind: String::new(), is_right: false });
        }
    }
    let row = |group: &ShownGroup| {
        let mut cells: Vec<Value> = group.key.iter().map(cell).collect();
        for (number, value) in group.values.iter().enumerate() {
            cells.push(told(value));
            if barred == Some(number) {
                cells.push(Value::Exact(interval(value, (least, most_of))));
            }
        }
        cells
    };
    let mut lines = vec![DrawnTable::new(columns, groups.iter().map(row).collect()).drawn(width)];
    let more = snapshot.groups_seen.saturating_sub(groups.len() as u64);
    lines.extend((more > 0).then(|| format!("and {}", counted(more, "other group"))));
    lines.extend(notes(snapshot).iter().map(|note| fitting(note, width.unwrap_or(usize::MAX))));
    lines.join("\n")
}

/// A value, and how well it is known.
fn told(value: &ShownValue) -> Value {
    Value::Exact(match (&value.estimate, value.relative_error(), value.kind) {
        (Json::Null, ..) if value.reason.is_some() => "?".to_owned(),
        (Json::Null, ..) | (_, _, Some(ShownKind::Exact)) => return cell(&value.estimate),
        (estimate, Some(error), _) => format!("{} ± {:.2} %", rounded(estimate), 100.0 * error),
        (Json::String(text), None, _) => format!("about {text}"),
        (estimate, None, _) => format!("about {}", without_zeros(&rounded(estimate))),
    })
}

/// A value that is known, as tables are drawn.
fn cell(value: &Json) -> Value {
    match value {
        Json::Null => Value::Null,
        Json::String(text) => Value::Text(text.clone()),
        other => Value::Exact(other.to_string()),
    }
}

/// A number with six digits that count.
fn rounded(value: &Json) -> String {
    let Some(number) = value.as_f64() else { return value.to_string() };
    let digits = if number == 0.0 { 0 } else { 5 - number.abs().log10().floor() as i32 };
    match digits {
        ..=0 => format!("{:.0}", (number * 10_f64.powi(digits)).round() / 10_f64.powi(digits)),
        1..=15 => format!("{number:.*}", digits as usize),
        _ => format!("{number:e}"),
    }
}

/// A number without zeros behind its last digit, where nobody knows how many of its digits count.
fn without_zeros(number: &str) -> &str {
    match number.contains('.') && !number.contains('e') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// `    ├──┼──┤     `: where a value is, of all that there are.
fn interval(value: &ShownValue, (least, most): (f64, f64)) -> String {
    let (Some((low, high)), Some(estimate)) = (value.low.zip(value.high), value.estimate.as_f64()) else {
        return String::new();
    };
    let cell =
        |at: f64| ((at - least) / (most - least).max(f64::MIN_POSITIVE) * (BAR_CELLS - 1) as f64).round() as usize;
    let (low, at, high) = (cell(low), cell(estimate), cell(high));
    let of = |place: usize| match place {
        place if place == at => '●',
        place if place == low => '├',
        place if place == high => '┤',
        place if low < place && place < high => '─',
        _ => ' ',
    };
    (0..BAR_CELLS).map(of).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(estimate: Json, bounds: Option<(f64, f64)>, kind: Option<ShownKind>) -> ShownValue {
        let (low, high) = bounds.unzip();
        let reason = kind.is_none().then(|| "why".to_owned());
        ShownValue { estimate, low, high, kind, level: kind.map(|_| 0.99), reason }
    }

    fn snapshot(groups: Vec<(&str, Vec<ShownValue>)>) -> Snapshot {
        let groups: Vec<_> =
            groups.into_iter().map(|(key, values)| ShownGroup { key: vec![json!(key)], values }).collect();
        let columns = ["city", "n", "hours"].map(str::to_owned).to_vec();
        Snapshot {
            blocks_seen: 23,
            blocks: 800,
            columns,
            groups_seen: groups.len() as u64 + 5,
            groups,
            seconds: 0.8,
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_look_is_a_table_with_bounds_as_bars() {
        let approximate = Some(ShownKind::Approximate);
        let oslo = vec![
            value(json!(1_234_567.8), Some((1_200_000.0, 1_269_135.6)), approximate),
            value(json!(2.5), None, None),
        ];
        let rome =
            vec![value(json!(300_000.0), Some((200_000.0, 400_000.0)), approximate), value(Json::Null, None, None)];
        let drawn = snapshot_table(&snapshot(vec![("oslo", oslo), ("rome", rome)]), 10, None);
        let expected = "\
city │                n │ n is between             │     hours
─────┼──────────────────┼──────────────────────────┼──────────
oslo │ 1234570 ± 2.80 % │                      ●┤ │ about 2.5
rome │ 300000 ± 33.33 % │     ├●─┤                │         ?
and 5 other groups";
        assert_eq!(strip(&drawn), strip(expected), "\n{drawn}");
        let exact = snapshot(vec![(
            "oslo",
            vec![
                value(json!(7), Some((7.0, 7.0)), Some(ShownKind::Exact)),
                value(json!("0.10"), None, Some(ShownKind::Exact)),
            ],
        )]);
        assert!(snapshot_table(&exact, 10, None).contains("oslo │ 7 │  0.10"), "{}", snapshot_table(&exact, 10, None));
        let computed = snapshot(vec![("oslo", vec![value(json!(4.5), None, None), value(json!("many"), None, None)])]);
        let drawn = snapshot_table(&computed, 10, None);
        assert!(drawn.contains("│ about 4.5 │") && drawn.contains("about many"), "{drawn}");
    }

    /// Without what only places columns.
    fn strip(text: &str) -> Vec<Vec<String>> {
        text.lines()
            .filter(|line| !line.contains('┼'))
            .map(|line| line.split('│').map(|cell| cell.trim().to_owned()).collect())
            .collect()
    }

    #[test]
    fn the_error_becomes_smaller_from_look_to_look() {
        let mut estimates = Estimates::default();
        let look = |error: f64| {
            let bounds = Some((100.0 - error, 100.0 + error));
            snapshot(vec![("oslo", vec![value(json!(100.0), bounds, Some(ShownKind::Approximate))])])
        };
        assert_eq!(estimates.line(&snapshot(Vec::new())), "23 of 800 blocks (2.9 %) in 0.8 s, 5 groups, no bounds yet");
        assert_eq!(estimates.line(&look(10.0)), "23 of 800 blocks (2.9 %) in 0.8 s, 6 groups, ± 10.00 % at most █");
        assert_eq!(estimates.line(&look(1.0)), "23 of 800 blocks (2.9 %) in 0.8 s, 6 groups, ± 1.00 % at most █▅");
        let all = Snapshot { is_final: true, blocks_seen: 800, ..look(0.0) };
        assert_eq!(estimates.line(&all), "all blocks (100.0 %) in 0.8 s, 6 groups, exact");
        // An exact decimal is a text, which has no bounds.
        let decimal = snapshot(vec![("oslo", vec![value(json!("0.10"), None, Some(ShownKind::Exact))])]);
        let all = Snapshot { is_final: true, blocks_seen: 800, ..decimal };
        assert_eq!(estimates.line(&all), "all blocks (100.0 %) in 0.8 s, 6 groups, exact");
    }

    #[test]
    fn nothing_is_exact_before_everything_was_read_but_what_is_known() {
        let known = || value(json!(800), Some((800.0, 800.0)), Some(ShownKind::Exact));
        let line = |values: Vec<ShownValue>| {
            let snapshot = snapshot(vec![("oslo", values)]);
            (Estimates::default().line(&snapshot), snapshot_table(&snapshot, 10, None))
        };
        let (said, drawn) = line(vec![known(), value(json!(0.0), None, None)]);
        assert!(said.ends_with("no bounds yet") && drawn.contains("│ 800 │ about 0"), "{said}\n{drawn}");
        let bounds = |half: f64| value(json!(2.0), Some((2.0 - half, 2.0 + half)), Some(ShownKind::Guaranteed));
        let (said, _) = line(vec![known(), bounds(0.1)]);
        assert!(said.ends_with("± 5.00 % at most █"), "{said}");
        let (said, drawn) = line(vec![known(), bounds(0.0)]);
        assert!(said.contains("± 0.00 % at most") && drawn.contains("± 0.00 %"), "{said}\n{drawn}");
        assert_eq!(largest_error(&snapshot(vec![("oslo", vec![known()])])), Some(0.0));
        assert_eq!(largest_error(&snapshot(Vec::new())), None);
    }

    #[test]
    fn what_may_change_until_the_end_is_said_below_the_groups() {
        let bounded = value(json!(7.0), Some((6.0, 8.0)), Some(ShownKind::Approximate));
        let look = |unmet_blocks, chosen_by_estimates| Snapshot {
            unmet_blocks,
            chosen_by_estimates,
            ..snapshot(vec![("oslo", vec![bounded.clone(), value(Json::Null, None, None)])])
        };
        let both = look(Some(12), true);
        let chosen = "which groups are shown follows from estimates";
        assert_eq!(notes(&both), [chosen, "a group of which no row was read is in 12 of 800 blocks at most"]);
        let drawn = snapshot_table(&both, 10, Some(30));
        let below: Vec<&str> = drawn.lines().skip_while(|line| !line.starts_with("and 5 other groups")).collect();
        assert_eq!(below, ["and 5 other groups", "which groups are shown follow…", "a group of which no row was r…"]);
        assert!(notes(&look(Some(0), false)).is_empty() && notes(&look(None, false)).is_empty());
        assert!(notes(&Snapshot { is_final: true, ..both }).is_empty());
    }
}
