//! Many rows at once: where the fields of rows that stand one behind the other begin, found 64 bytes at a time.
//!
//! A stretch has whole rows only, each of them with as many fields as the table has columns. It ends before the first row that is otherwise, or that has a quote where none may be: that row, which may be
//! wrong, is for [`find_row`](super::dialect::find_row), which says of it what is so. What a stretch says of its rows is what `find_row` says of them, one by one; a test holds it to that.

use std::cell::OnceCell;
use std::ops::Range;

use memchr::memchr;
use multiversion::multiversion;

use super::blocks::{BLOCK, BLOCKS, Bits, Marks, Quotes, look_at};
use super::columns::FieldRefused;
use super::dialect::Dialect;

/// Most fields of a stretch, unless a single row has more: so many as leave it in the caches nearest to the processor while its columns are read.
const FIELDS_MAX: usize = 8 << 10;

/// Rows that stand one behind the other at the beginning of a text.
pub(super) struct Stretch {
    /// Where fields begin: 0, and for each field of each row the place behind the byte that ends it. Room for a block of fields is behind them.
    begins: Vec<u32>,
    /// Fields of a row, which are one or more.
    width: usize,
    rows: usize,
    has_quotes: bool,
    is_part: bool,
}

impl Stretch {
    /// A stretch without rows, of a table with so many columns.
    pub(super) fn new(width: usize) -> Self {
        Self { begins: Vec::new(), width, rows: 0, has_quotes: false, is_part: false }
    }

    /// Finds the rows with which `text` begins, at most so many, and says how many these are. There may be more behind them.
    pub(super) fn find(&mut self, text: &[u8], dialect: &Dialect, rows_max: usize) -> usize {
        (self.rows, self.is_part) = (0, false);
        let Some(marks) = dialect.marks().filter(|_| self.width > 0) else { return 0 };
        let rows_max = rows_max.min((FIELDS_MAX / self.width).max(1));
        let fields_max = rows_max * self.width;
        self.begins.resize(1 + fields_max + BLOCK, 0);
        // Windows are shorter than two of the longest rows.
        let text = &text[..text.len().min(u32::MAX as usize - BLOCK)];
        let found = scan(text, marks, fields_max, &mut self.begins[1..]);
        self.has_quotes = found.has_quotes;
        self.is_part = found.is_all && found.lines == 0;
        let mut rows = found.fields / self.width;
        let lines = (1..=rows).filter(|row| self.ends_line(text, row * self.width)).count();
        // Where each row ends with its line, and no other line ends, all other fields end with delimiters.
        if lines != rows || found.lines != lines {
            let is_row = |row: &usize| {
                let mut fields = row * self.width + 1..=(row + 1) * self.width;
                fields.all(|field| self.ends_line(text, field) == (field == (row + 1) * self.width))
            };
            rows = (0..rows).take_while(is_row).count();
        }
        self.rows = rows.min(rows_max);
        self.rows
    }

    /// Whether what ends the field before that one is the end of a line.
    fn ends_line(&self, text: &[u8], field: usize) -> bool {
        text[self.begins[field] as usize - 1] == b'\n'
    }

    /// Whether the text ends within its first row, in which nothing is odd so far.
    pub(super) fn is_part(&self) -> bool {
        self.is_part
    }

    /// Bytes that the first so many rows have, with their line ends.
    pub(super) fn bytes_of(&self, rows: usize) -> usize {
        self.begins[rows * self.width] as usize
    }

    /// The fields of the first so many rows.
    pub(super) fn fields<'a>(&'a self, text: &'a [u8], dialect: &'a Dialect, rows: usize) -> Fields<'a> {
        assert!(rows <= self.rows, "{rows} rows of {}", self.rows);
        let quote = dialect.quote.filter(|_| self.has_quotes);
        let text = &text[..self.bytes_of(rows)];
        Fields { stretch: self, text, quote, null: dialect.null.as_bytes(), utf8: OnceCell::new() }
    }
}

/// The fields of some rows.
pub(in crate::sources) struct Fields<'a> {
    stretch: &'a Stretch,
    /// All bytes of the rows.
    text: &'a [u8],
    /// What fields may be within; none: none of them is.
    quote: Option<u8>,
    null: &'a [u8],
    utf8: OnceCell<Option<&'a str>>,
}

impl<'a> Fields<'a> {
    /// Those of a column, of the first so many rows.
    pub(super) fn column(&'a self, column: usize, rows: usize) -> ColumnFields<'a> {
        ColumnFields { fields: self, column, rows, is_last: column + 1 == self.stretch.width }
    }

    /// All bytes of the rows, where they are UTF-8. Fields end with ASCII, so each of them is, too.
    fn utf8(&self) -> Option<&'a str> {
        *self.utf8.get_or_init(|| std::str::from_utf8(self.text).ok())
    }
}

/// The fields that a column has in some rows.
pub(in crate::sources) struct ColumnFields<'a> {
    fields: &'a Fields<'a>,
    column: usize,
    rows: usize,
    is_last: bool,
}

/// The text of a field.
enum Cut<'a> {
    /// It is these bytes of the rows.
    There(Range<usize>),
    /// It was written with doubled quotes.
    Made(&'a [u8]),
}

impl ColumnFields<'_> {
    /// Gives each field to `push`, `None` for null, until it refuses one: which row that is in is in the error, from 0.
    #[inline(always)]
    pub(in crate::sources) fn try_each(
        &self,
        mut push: impl FnMut(Option<&[u8]>) -> Result<(), FieldRefused>,
    ) -> Result<(), (usize, FieldRefused)> {
        self.try_each_cut(|cut| match cut {
            None => push(None),
            Some(Cut::There(range)) => push(Some(&self.fields.text[range])),
            Some(Cut::Made(text)) => push(Some(text)),
        })
    }

    /// As [`try_each`](Self::try_each), for who needs UTF-8: what is none is refused.
    #[inline(always)]
    pub(in crate::sources) fn try_each_text(
        &self,
        mut push: impl FnMut(Option<&str>),
    ) -> Result<(), (usize, FieldRefused)> {
        fn checked(text: &[u8]) -> Result<&str, FieldRefused> {
            std::str::from_utf8(text).map_err(|_| FieldRefused::NotUtf8)
        }
        match self.fields.utf8() {
            Some(all) => self.try_each_cut(|cut| {
                match cut {
                    None => push(None),
                    Some(Cut::There(range)) => push(Some(&all[range])),
                    Some(Cut::Made(text)) => push(Some(checked(text)?)),
                }
                Ok(())
            }),
            None => self.try_each(|text| {
                push(text.map(checked).transpose()?);
                Ok(())
            }),
        }
    }

    #[inline(always)]
    fn try_each_cut(
        &self,
        mut push: impl FnMut(Option<Cut<'_>>) -> Result<(), FieldRefused>,
    ) -> Result<(), (usize, FieldRefused)> {
        let Fields { text, quote, null, .. } = *self.fields;
        let mut made = Vec::new();
        for (row, mut range) in self.ranges().enumerate() {
            // The `\r` before a `\n` is no part of the last field.
            if self.is_last && text[range.clone()].last() == Some(&b'\r') {
                range.end -= 1;
            }
            let field = &text[range.clone()];
            let cut = match quote.filter(|quote| field.first() == Some(quote)) {
                Some(quote) => {
                    let inside = range.start + 1..range.end - 1;
                    Some(match memchr(quote, &text[inside.clone()]) {
                        None => Cut::There(inside),
                        Some(_) => Cut::Made(without_doubled(&text[inside], quote, &mut made)),
                    })
                }
                None => (!(field.is_empty() || field == null)).then_some(Cut::There(range)),
            };
            push(cut).map_err(|refused| (row, refused))?;
        }
        Ok(())
    }

    /// Where fields are, with their quotes and what is between them and the byte that ends them.
    #[inline(always)]
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let Stretch { begins, width, .. } = self.fields.stretch;
        let of_column = |column: usize| begins[column..].iter().step_by(*width);
        let both = of_column(self.column).zip(of_column(self.column + 1)).take(self.rows);
        both.map(|(begin, next)| *begin as usize..*next as usize - 1)
    }

    /// The text of the field in that row.
    pub(super) fn text(&self, row: usize) -> Vec<u8> {
        let mut text = Vec::new();
        let one = ColumnFields { rows: row + 1, ..*self };
        let kept = one.try_each(|field| {
            text.clear();
            text.extend_from_slice(field.unwrap_or_default());
            Ok(())
        });
        debug_assert!(kept.is_ok(), "no field was refused");
        text
    }
}

/// Text within quotes, with those that are doubled in it made one in `made`.
pub(super) fn without_doubled<'a>(text: &[u8], quote: u8, made: &'a mut Vec<u8>) -> &'a [u8] {
    made.clear();
    let mut rest = text;
    while let Some(at) = memchr(quote, rest) {
        made.extend_from_slice(&rest[..=at]);
        rest = &rest[at + 2..];
    }
    made.extend_from_slice(rest);
    made
}

/// What was found of the fields of a text.
#[derive(Default)]
struct Found {
    fields: usize,
    /// How many of them end with their line.
    lines: usize,
    has_quotes: bool,
    /// Whether all of the text was looked at.
    is_all: bool,
}

/// Finds the ends of fields, up to a quote that is where none may be, and until there are so many or a block more. For each one, `begins` gets the place behind it, and anything behind the last.
#[multiversion(targets("x86_64+avx2+bmi1+bmi2+lzcnt+popcnt"))]
fn scan(text: &[u8], marks: Marks, fields_max: usize, begins: &mut [u32]) -> Found {
    let mut found = Found::default();
    let mut quotes = Quotes::outside(true);
    let mut bits = [Bits::default(); BLOCKS];
    let (blocks, rest) = text.as_chunks::<BLOCK>();
    for (number, blocks) in blocks.chunks(BLOCKS).enumerate() {
        look_at(blocks, marks, &mut bits);
        for (block, bits) in bits[..blocks.len()].iter().enumerate() {
            let at = (number * BLOCKS + block) * BLOCK;
            if !add(&mut found, &mut quotes, *bits, (text, at), begins) || found.fields >= fields_max {
                return found;
            }
        }
    }
    let mut block = [0; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    look_at(&[block], marks, &mut bits);
    let bits = bits[0].of_first(rest.len());
    found.is_all = add(&mut found, &mut quotes, bits, (text, text.len() - rest.len()), begins);
    found
}

/// Adds what a block has; whether the text may go on behind it.
#[inline(always)]
fn add(found: &mut Found, quotes: &mut Quotes, mut bits: Bits, (text, at): (&[u8], usize), begins: &mut [u32]) -> bool {
    let is_plain = quotes.pass_plain(&bits);
    found.has_quotes |= !is_plain;
    let goes_on = is_plain || quotes.pass(&mut bits, text, at);
    let count = bits.ends.count_ones() as usize;
    let room: &mut [u32; BLOCK] =
        (&mut begins[found.fields..found.fields + BLOCK]).try_into().expect("a block of them");
    let (mut left, behind) = (bits.ends, at as u32 + 1);
    // Without asking whether there are more: a processor guesses wrong how many there are.
    for eight in room.as_chunks_mut::<8>().0 {
        for begin in eight {
            *begin = behind.wrapping_add(left.trailing_zeros());
            left &= left.wrapping_sub(1);
        }
        if left == 0 {
            break;
        }
    }
    found.fields += count;
    found.lines += (bits.ends & bits.lines).count_ones() as usize;
    goes_on
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::dialect::{self, Field, find_row};
    use super::*;

    /// The rows of a stretch, as `find_row` has them: their fields without quotes, null where they are that.
    fn one_by_one(text: &[u8], dialect: &Dialect, width: usize) -> (Vec<Vec<Option<Vec<u8>>>>, usize) {
        let (mut rows, mut at, mut fields, mut made) = (Vec::new(), 0, Vec::new(), Vec::new());
        while at < text.len() {
            let dialect::Found::Row(len) = find_row(&text[at..], true, dialect, &mut fields) else { break };
            if fields.len() != width || text[at + len - 1] != b'\n' {
                break;
            }
            // A quote that is a character like others ends a stretch.
            let has_quote =
                |field: &&Field| text[at + field.begin..at + field.end].iter().any(|byte| dialect.quote == Some(*byte));
            if fields.iter().filter(|field| !field.quoted).any(|field| has_quote(&field)) {
                break;
            }
            let mut of = |field: &Field| {
                let text = &text[at + field.begin..at + field.end];
                let text = match dialect.quote.filter(|_| field.doubled) {
                    Some(quote) => without_doubled(text, quote, &mut made),
                    None => text,
                };
                (!dialect.is_null(text, field.quoted)).then(|| text.to_vec())
            };
            rows.push(fields.iter().map(&mut of).collect());
            at += len;
        }
        (rows, at)
    }

    fn at_once(stretch: &mut Stretch, text: &[u8], dialect: &Dialect) -> (Vec<Vec<Option<Vec<u8>>>>, usize) {
        let count = stretch.find(text, dialect, usize::MAX);
        let fields = stretch.fields(text, dialect, count);
        let mut rows = vec![Vec::new(); count];
        for column in 0..stretch.width {
            let mut rows = rows.iter_mut();
            let all = fields.column(column, count);
            let pushed = all.try_each(|field| {
                rows.next().expect("as many rows").push(field.map(<[u8]>::to_vec));
                Ok(())
            });
            assert_eq!((pushed, rows.len()), (Ok(()), 0));
        }
        for (number, row) in rows.iter().enumerate() {
            for (column, field) in row.iter().enumerate() {
                assert_eq!(fields.column(column, count).text(number), field.clone().unwrap_or_default());
            }
        }
        (rows, stretch.bytes_of(count))
    }

    /// Bytes of rows, most of them right.
    fn rows_of(field: &'static str, width: usize) -> impl Strategy<Value = String> {
        let row = proptest::collection::vec(field, width..=width);
        let row = (row, prop_oneof![8 => Just("\n"), 2 => Just("\r\n")]);
        proptest::collection::vec(row, 0..60)
            .prop_map(|rows| rows.iter().map(|(fields, end)| fields.join(",") + end).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

        #[test]
        fn rows_at_once_are_those_one_by_one(
            text in prop_oneof![
                rows_of("[a-z]{0,6}", 3),
                rows_of("[a-z]{0,2}|\"([a-z,\\n\\r]|\"\"){0,4}\"|NA", 3),
                rows_of("[a-z]{0,2}|\"([a-z,\\n\\r]|\"\"){0,40}\"|\"\"\"\"", 3),
            ],
            wrong in proptest::collection::vec((any::<proptest::sample::Index>(), "[a,\"\\r\\n\u{e4}]"), 0..3),
            width in prop_oneof![8 => Just(3_usize), 1 => Just(1), 1 => Just(2)],
            null in prop_oneof![Just(""), Just("NA")],
            quotes in prop_oneof![4 => Just(true), 1 => Just(false)],
        ) {
            let mut text = text;
            for (at, byte) in wrong {
                let at = at.index(text.len() + 1);
                if text.is_char_boundary(at) {
                    text.insert_str(at, &byte);
                }
            }
            let dialect = Dialect { null: null.to_owned(), quote: quotes.then_some(b'"'), ..Dialect::csv() };
            let mut stretch = Stretch::new(width);
            let expected = one_by_one(text.as_bytes(), &dialect, width);
            let found = at_once(&mut stretch, text.as_bytes(), &dialect);
            prop_assert_eq!(found, expected);
        }

    }

    #[test]
    fn a_stretch_ends_where_a_row_is_otherwise() {
        let mut stretch = Stretch::new(2);
        for (text, rows) in [
            ("a,b\nc,d\n", 2),
            ("a,b\nc\nd,e\n", 1),
            ("a,b\nc,d,e\n", 1),
            ("a,b\n\nc,d\n", 1),
            ("a,b\nc,d", 1),
            ("a,\"b\nc\"\nc,d\n", 2),
            ("a,\"b\"\r\nc,d\n", 2),
            ("a,b\nc,\"d\" \ne,f\n", 1),
            ("a,b\nc,d\"\ne,f\n", 1),
            ("a,b\nc,\"d\n", 1),
            ("a,b\nc,\"d\"", 1),
            ("a,b\nc,\"d\"\r", 1),
            ("", 0),
        ] {
            assert_eq!(stretch.find(text.as_bytes(), &Dialect::csv(), usize::MAX), rows, "{text:?}");
        }
        assert_eq!(stretch.find(b"a,b\nc,d\ne,f\n", &Dialect::csv(), 2), 2);
        for (text, is_part) in [("a,b", true), ("a,\"b\n", true), ("a\n", false), ("a,b\"", false), ("\nc,d\n", false)]
        {
            assert_eq!(
                (stretch.find(text.as_bytes(), &Dialect::csv(), 2), stretch.is_part()),
                (0, is_part),
                "{text:?}"
            );
        }
        let odd = Dialect { delimiter: b'"', ..Dialect::csv() };
        assert_eq!(stretch.find(b"a\"b\n", &odd, usize::MAX), 0);
        let many = "a,b\n".repeat(3 * FIELDS_MAX);
        assert_eq!(stretch.find(many.as_bytes(), &Dialect::csv(), usize::MAX), FIELDS_MAX / 2);
    }
}
