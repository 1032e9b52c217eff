//! How rows are written as text, and the automaton that finds where they end.
//!
//! Rows end with `\n` or `\r\n`, fields with the delimiter. A field that begins with a quote goes to the next one that is not doubled, and has delimiters and line ends in it
//! as they are; a quote within another field is a character like others. Between a quote that closes and what ends its field there is nothing.

use memchr::memchr;
use serde::{Deserialize, Serialize};

use super::blocks::{BLOCK, BLOCKS, Bits, Marks, Quotes, look_at};

/// How text has rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// What ends a field: `,` in CSV, a tab in TSV.
    pub delimiter: u8,
    /// What fields with delimiters and line ends are within; none: no field has them.
    pub quote: Option<u8>,
    /// Whether the first row has the names of columns.
    pub header: bool,
    /// What a null is written as, where it is not within quotes. Empty text without quotes is null, too.
    pub null: String,
}

impl Dialect {
    /// Commas, double quotes, a header, and nothing for null.
    pub fn csv() -> Self {
        Self { delimiter: b',', quote: Some(b'"'), header: true, null: String::new() }
    }

    /// As CSV, with tabs.
    pub fn tsv() -> Self {
        Self { delimiter: b'\t', ..Self::csv() }
    }

    /// The bytes that rows are told by; `None`: one of them means two things, or is part of a character.
    pub(super) fn marks(&self) -> Option<Marks> {
        let Self { delimiter, quote, .. } = *self;
        let is_fine = |byte: u8| byte.is_ascii() && byte != b'\n' && byte != b'\r';
        let are_fine = is_fine(delimiter) && quote.is_none_or(|quote| is_fine(quote) && quote != delimiter);
        are_fine.then_some(Marks { delimiter, quote })
    }

    /// Whether a field is null.
    pub(super) fn is_null(&self, text: &[u8], quoted: bool) -> bool {
        !quoted && (text.is_empty() || (!self.null.is_empty() && text == self.null.as_bytes()))
    }
}

/// Where text stands between two bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TextState {
    /// Before a row.
    Row,
    /// Before a field that is not the first of its row.
    Field,
    /// In a field without quotes.
    Bare,
    /// Within quotes.
    Quoted,
    /// Behind a quote that closes, or is the first of two.
    Closed,
    /// Behind that and a `\r`.
    ClosedReturn,
}

const STATES: [TextState; 6] =
    [TextState::Row, TextState::Field, TextState::Bare, TextState::Quoted, TextState::Closed, TextState::ClosedReturn];

impl TextState {
    /// The state behind a byte.
    #[inline]
    pub(super) fn behind(self, byte: u8, dialect: &Dialect) -> Self {
        let is_quote = dialect.quote == Some(byte);
        match self {
            Self::Quoted if is_quote => Self::Closed,
            Self::Quoted => Self::Quoted,
            Self::Closed | Self::Row | Self::Field if is_quote => Self::Quoted,
            _ if byte == b'\n' => Self::Row,
            _ if byte == dialect.delimiter => Self::Field,
            Self::Closed if byte == b'\r' => Self::ClosedReturn,
            _ => Self::Bare,
        }
    }

    /// The state behind all these bytes.
    fn behind_all(self, text: &[u8], dialect: &Dialect) -> Self {
        let has_quotes = |marks: &Marks| marks.quote.is_some_and(|quote| memchr(quote, text).is_some());
        let Some(marks) = dialect.marks().filter(has_quotes) else { return self.behind_few(text, dialect) };
        let (mut state, mut bits) = (self, [Bits::default(); BLOCKS]);
        let (blocks, rest) = text.as_chunks::<BLOCK>();
        for (number, blocks) in blocks.chunks(BLOCKS).enumerate() {
            look_at(blocks, marks, &mut bits);
            for (at, bits) in (0..blocks.len()).zip(bits) {
                state = state.behind_block(bits, text, (number * BLOCKS + at) * BLOCK, dialect);
            }
        }
        state.behind_few(rest, dialect)
    }

    /// The state behind the block that is at that byte of a text.
    fn behind_block(self, mut bits: Bits, text: &[u8], at: usize, dialect: &Dialect) -> Self {
        let mut quotes = match self {
            Self::Row | Self::Field => Quotes::outside(true),
            Self::Bare | Self::ClosedReturn => Quotes::outside(false),
            Self::Quoted => Quotes::inside(),
            Self::Closed => Quotes::closed(),
        };
        let block = &text[at..at + BLOCK];
        if !quotes.pass_plain(&bits) && !quotes.pass(&mut bits, text, at) {
            return self.behind_few(block, dialect);
        }
        match (quotes.is_inside(), quotes.is_closed()) {
            (true, _) => Self::Quoted,
            (_, true) => Self::Closed,
            // The last byte alone says where text stands: behind a `\r` that is behind a quote, the end of the line is known to come.
            _ => Self::Bare.behind(block[BLOCK - 1], dialect),
        }
    }

    /// As [`behind_all`](Self::behind_all), one quote after the other.
    fn behind_few(self, text: &[u8], dialect: &Dialect) -> Self {
        let next_quote = |rest: &[u8]| dialect.quote.and_then(|quote| memchr(quote, rest));
        let (mut state, mut rest) = (self, text);
        while let Some((byte, behind)) = rest.split_first() {
            if state == Self::Quoted {
                let Some(quote) = next_quote(rest) else { return state };
                (state, rest) = (Self::Closed, &rest[quote + 1..]);
                continue;
            }
            (state, rest) = (state.behind(*byte, dialect), behind);
            if matches!(state, Self::Row | Self::Field | Self::Bare) {
                // Up to the next quote the last byte alone says where text stands.
                let plain = next_quote(rest).unwrap_or(rest.len());
                if let Some(last) = rest[..plain].last() {
                    state = Self::Bare.behind(*last, dialect);
                }
                rest = &rest[plain..];
            }
        }
        state
    }

    /// The state behind this byte of a text of which no more is known, if it is not within quotes.
    pub(super) fn outside(before: u8, dialect: &Dialect) -> Self {
        match before {
            b'\n' => Self::Row,
            byte if byte == dialect.delimiter => Self::Field,
            // A quote that is no part of a field's text closes one.
            byte if dialect.quote == Some(byte) => Self::Closed,
            _ => Self::Bare,
        }
    }
}

/// Where a piece of text ends, for each state that it could begin with: so pieces can be read before it is known with which they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends([TextState; STATES.len()]);

impl Ends {
    /// Of no text.
    pub fn of_nothing() -> Self {
        Self(STATES)
    }

    /// The state that it ends with if it begins with that one.
    pub fn of(&self, begin: TextState) -> TextState {
        self.0[begin as usize]
    }

    /// Puts more text behind it.
    pub(super) fn extend(&mut self, text: &[u8], dialect: &Dialect) {
        // States that became one stay one; soon there are two, within quotes and not.
        for piece in text.chunks(4096) {
            let mut ends: [Option<TextState>; STATES.len()] = [None; STATES.len()];
            for state in &mut self.0 {
                let begin = *state;
                let end = || begin.behind_all(piece, dialect);
                *state = *ends[begin as usize].get_or_insert_with(end);
            }
        }
    }
}

/// A field of a row: where it is in the bytes that were looked at, without its quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) begin: usize,
    pub(super) end: usize,
    pub(super) quoted: bool,
    /// Whether quotes in it are doubled.
    pub(super) doubled: bool,
}

/// What was found at the beginning of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A row, with so many bytes and its line end.
    Row(usize),
    /// The beginning of a row, which goes on behind the bytes.
    Part,
    /// Something behind a quote that closes, at that byte.
    BehindQuote(usize),
    /// The text ends within quotes, which open at that byte.
    Open(usize),
}

/// Finds the row that begins with `bytes`, which are not empty; `is_all`: the text ends with them.
pub(super) fn find_row(bytes: &[u8], is_all: bool, dialect: &Dialect, fields: &mut Vec<Field>) -> Found {
    fields.clear();
    let mut at = 0;
    loop {
        let opens = dialect.quote.filter(|quote| bytes.get(at) == Some(quote));
        let (field, end) = match opens {
            Some(quote) => match find_quoted(bytes, at + 1, is_all, quote, dialect.delimiter) {
                Ok(found) => found,
                Err(found) => return found,
            },
            None => {
                let rest = &bytes[at..];
                let len = rest.iter().position(|byte| *byte == dialect.delimiter || *byte == b'\n');
                if len.is_none() && !is_all {
                    return Found::Part;
                }
                let end = at + len.unwrap_or(rest.len());
                (Field { begin: at, end, quoted: false, doubled: false }, end)
            }
        };
        fields.push(field);
        match bytes.get(end) {
            Some(byte) if *byte == dialect.delimiter => at = end + 1,
            Some(_) => {
                strip_return(bytes, fields);
                return Found::Row(end + 1);
            }
            None => return Found::Row(end),
        }
    }
}

/// The `\r` before a `\n` is no part of the last field.
fn strip_return(bytes: &[u8], fields: &mut [Field]) {
    if let Some(last) = fields.last_mut().filter(|last| !last.quoted && last.end > last.begin) {
        last.end -= usize::from(bytes[last.end - 1] == b'\r');
    }
}

/// The field whose opening quote is before `begin`, and where what ends it is.
fn find_quoted(bytes: &[u8], begin: usize, is_all: bool, quote: u8, delimiter: u8) -> Result<(Field, usize), Found> {
    let (mut at, mut doubled) = (begin, false);
    loop {
        let Some(len) = bytes[at..].iter().position(|byte| *byte == quote) else {
            return Err(if is_all { Found::Open(begin - 1) } else { Found::Part });
        };
        let end = at + len;
        let field = Field { begin, end, quoted: true, doubled };
        match (bytes.get(end + 1), bytes.get(end + 2)) {
            (Some(byte), _) if *byte == quote => (at, doubled) = (end + 2, true),
            (Some(byte), _) if *byte == delimiter || *byte == b'\n' => return Ok((field, end + 1)),
            (Some(b'\r'), Some(b'\n')) => return Ok((field, end + 2)),
            (Some(b'\r'), None) | (None, _) if !is_all => return Err(Found::Part),
            (None, _) => return Ok((field, end + 1)),
            _ => return Err(Found::BehindQuote(end + 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(text: &str) -> (Found, Vec<(String, bool)>) {
        let mut fields = Vec::new();
        let found = find_row(text.as_bytes(), true, &Dialect::csv(), &mut fields);
        (found, fields.iter().map(|field| (text[field.begin..field.end].to_owned(), field.quoted)).collect())
    }

    #[test]
    fn fields_end_as_the_dialect_says() {
        let fields =
            |of: &[(&str, bool)]| of.iter().map(|(text, quoted)| ((*text).to_owned(), *quoted)).collect::<Vec<_>>();
        assert_eq!(row("a,b\nc"), (Found::Row(4), fields(&[("a", false), ("b", false)])));
        assert_eq!(row("a,,\"\"\r\nc"), (Found::Row(7), fields(&[("a", false), ("", false), ("", true)])));
        assert_eq!(row("a\rb,c\r\n"), (Found::Row(7), fields(&[("a\rb", false), ("c", false)])));
        assert_eq!(row("\"a\n,\"\"b\",c\"d"), (Found::Row(12), fields(&[("a\n,\"\"b", true), ("c\"d", false)])));
        assert_eq!(row("\n"), (Found::Row(1), fields(&[("", false)])));
        assert_eq!(row("a,"), (Found::Row(2), fields(&[("a", false), ("", false)])));
        assert_eq!(row("a,\"b\"c").0, Found::BehindQuote(5));
        assert_eq!(row("a,\"b\"\rc").0, Found::BehindQuote(5));
        assert_eq!(row("a,\"b\nc").0, Found::Open(2));
    }

    proptest! {
        #[test]
        fn the_automaton_ends_rows_where_the_parser_does(text in "[a,\"\\r\\n]{0,40}") {
            let dialect = Dialect::csv();
            let mut fields = Vec::new();
            let (mut at, bytes) = (0, text.as_bytes());
            while at < bytes.len() {
                let found = find_row(&bytes[at..], true, &dialect, &mut fields);
                let Found::Row(len) = found else { break };
                let mut state = TextState::Row;
                for (place, byte) in bytes[at..at + len].iter().enumerate() {
                    state = state.behind(*byte, &dialect);
                    prop_assert_eq!(state == TextState::Row, place + 1 == len && *byte == b'\n');
                }
                at += len;
            }
        }

        #[test]
        fn ends_of_long_pieces_are_those_byte_by_byte(
            fields in proptest::collection::vec(prop_oneof![
                4 => "\"([a-z,\\n\\r]|\"\"){0,9}\"",
                4 => "[a-z]{0,9}",
                1 => "[a,\"\\r\\n]{0,4}",
            ], 0..200),
            ends in proptest::collection::vec(prop_oneof![4 => Just(","), 2 => Just("\n"), 1 => Just("\r\n")], 200),
        ) {
            let dialect = Dialect::csv();
            let text: String = fields.iter().zip(ends).map(|(field, end)| format!("{field}{end}")).collect();
            let mut ends = Ends::of_nothing();
            ends.extend(text.as_bytes(), &dialect);
            for begin in STATES {
                let end = text.bytes().fold(begin, |state, byte| state.behind(byte, &dialect));
                prop_assert_eq!(ends.of(begin), end);
            }
        }

        #[test]
        fn ends_of_pieces_add_up(text in "[a,\"\\r\\n]{0,40}", cut in 0..40_usize, quotes in any::<bool>()) {
            let dialect = Dialect { quote: quotes.then_some(b'"'), ..Dialect::csv() };
            let cut = cut.min(text.len());
            let mut both = Ends::of_nothing();
            both.extend(&text.as_bytes()[..cut], &dialect);
            both.extend(&text.as_bytes()[cut..], &dialect);
            for begin in STATES {
                let end = text.bytes().fold(begin, |state, byte| state.behind(byte, &dialect));
                prop_assert_eq!(both.of(begin), end);
            }
        }
    }
}
