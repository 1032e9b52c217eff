//! A table drawn as text, as wide as a terminal.

use console::{Term, measure_text_width};
use exobus_tables::look::Value;

/// A column of it.
pub struct DrawnColumn {
    /// Its name.
    pub name: String,
    /// Its type, which stands below the name; empty: no column has one.
    pub kind: String,
    /// Whether its values stand at the right.
    pub is_right: bool,
}

/// Columns and the text of their cells.
pub struct DrawnTable {
    columns: Vec<DrawnColumn>,
    rows: Vec<Vec<String>>,
}

/// A column is not narrowed below this, unless it is narrower by itself.
const WIDTH_MIN: usize = 6;
/// A cell has no more than this where there is no terminal.
const WIDTH_MAX: usize = 80;
/// What stands between two columns.
const BETWEEN: &str = " │ ";

impl DrawnTable {
    /// Of these values, by row.
    pub fn new(columns: Vec<DrawnColumn>, rows: Vec<Vec<Value>>) -> Self {
        let text = |values: Vec<Value>| values.iter().map(Value::to_string).collect();
        Self { columns, rows: rows.into_iter().map(text).collect() }
    }

    /// The text, within so many columns of a terminal; `None`: within those of the terminal that stdout is, if it is one. Columns that have no room are named below.
    pub fn drawn(&self, width: Option<usize>) -> String {
        let terminal = || Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        let width = width.or_else(|| console::user_attended().then(terminal).flatten());
        let (widths, is_whole) = fitted(&self.widths(), width);
        let mut lines = vec![self.line(&widths, |column| (&self.columns[column].name, false))];
        if self.columns.iter().any(|column| !column.kind.is_empty()) {
            lines.push(self.line(&widths, |column| (&self.columns[column].kind, false)));
        }
        lines.push(widths.iter().map(|width| "─".repeat(*width)).collect::<Vec<_>>().join("─┼─"));
        for row in &self.rows {
            lines.push(self.line(&widths, |column| (&row[column], self.columns[column].is_right)));
        }
        if !is_whole {
            let more: Vec<&str> = self.columns[widths.len()..].iter().map(|column| column.name.as_str()).collect();
            let text = format!("{} more columns: {}", more.len(), more.join(", "));
            lines.push(cut(&text, width.unwrap_or(WIDTH_MAX).max(WIDTH_MIN)));
        }
        lines.join("\n")
    }

    /// How wide each column is where there is room.
    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let head = &self.columns[column];
            let cells = self.rows.iter().map(|row| measure_text_width(&row[column])).max().unwrap_or(0);
            cells.max(measure_text_width(&head.name)).max(measure_text_width(&head.kind)).min(1_000)
        };
        (0..self.columns.len()).map(width).collect()
    }

    fn line<'a>(&self, widths: &[usize], cell: impl Fn(usize) -> (&'a String, bool)) -> String {
        let cells = widths.iter().enumerate().map(|(column, width)| {
            let (text, is_right) = cell(column);
            let text = cut(text, *width);
            let space = " ".repeat(width.saturating_sub(measure_text_width(&text)));
            if is_right { format!("{space}{text}") } else { format!("{text}{space}") }
        });
        cells.collect::<Vec<_>>().join(BETWEEN).trim_end().to_owned()
    }
}

/// Widths of the columns that there is room for, the widest ones narrowed; whether these are all.
fn fitted(natural: &[usize], width: Option<usize>) -> (Vec<usize>, bool) {
    let Some(width) = width else { return (natural.iter().map(|width| (*width).min(WIDTH_MAX)).collect(), true) };
    let between = measure_text_width(BETWEEN);
    let taken = |widths: &[usize], most: usize| {
        widths.iter().map(|width| (*width).min(most)).sum::<usize>() + between * widths.len().saturating_sub(1)
    };
    let mut shown = natural.len();
    while shown > 1 && taken(&natural[..shown], WIDTH_MIN) > width {
        shown -= 1;
    }
    let natural_shown = &natural[..shown];
    // The largest width of all that fits.
    let most = (WIDTH_MIN..=width.max(WIDTH_MIN)).rev().find(|most| taken(natural_shown, *most) <= width);
    let most = most.unwrap_or(width.max(1));
    (natural_shown.iter().map(|width| (*width).min(most)).collect(), shown == natural.len())
}

/// The text, with `…` at its end where it is too wide.
fn cut(text: &str, width: usize) -> String {
    if measure_text_width(text) <= width {
        return text.to_owned();
    }
    let (mut kept, mut taken) = (String::new(), 0);
    for character in text.chars() {
        let of = measure_text_width(character.encode_utf8(&mut [0; 4]));
        if taken + of + 1 > width {
            break;
        }
        kept.push(character);
        taken += of;
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str], rows: &[&[&str]]) -> DrawnTable {
        let columns = names.iter().enumerate().map(|(at, name)| DrawnColumn {
            name: (*name).to_owned(),
            kind: if at == 0 { "int64".to_owned() } else { "text".to_owned() },
            is_right: at == 0,
        });
        let value = |text: &&str| if *text == "-" { Value::Null } else { Value::Text((*text).to_owned()) };
        DrawnTable::new(columns.collect(), rows.iter().map(|row| row.iter().map(value).collect()).collect())
    }

    #[test]
    fn what_there_is_room_for_is_drawn_as_it_is() {
        let drawn = table(&["n", "city"], &[&["1", "日本"], &["12345678", "-"], &["3", "null"]]).drawn(None);
        let expected = [
            "n        │ city",
            "int64    │ text",
            "─────────┼───────",
            "       1 │ 日本",
            "12345678 │ null",
            "       3 │ 'null'",
        ];
        assert_eq!(drawn.lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_table_is_no_wider_than_the_terminal() {
        let wide = "a text that has no end 日本語日本語日本語日本語".repeat(3);
        let names: Vec<String> = (0..12).map(|at| format!("column {at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let row: Vec<&str> = (0..12).map(|at| if at % 5 == 1 { wide.as_str() } else { "7" }).collect();
        let all = table(&names, &[&row]);
        for width in [20, 21, 40, 79, 80, 120, 200] {
            let drawn = all.drawn(Some(width));
            for line in drawn.lines() {
                assert!(measure_text_width(line) <= width, "{width}: {line}");
            }
            assert_eq!(drawn.contains("more columns: "), width < 120, "{drawn}");
            assert!(drawn.contains('…'));
        }
        // The widest ones are narrowed first.
        let two = table(&["n", "text"], &[&["1234567890", &wide]]).drawn(Some(40));
        assert!(two.contains("1234567890 │ a text that has no end"), "{two}");
    }
}
