//! Word count: how often each word is in text files.
//!
//! A word is a longest run of bytes without white space, as Unicode defines it (`White_Space`). Bytes that are not valid
//! UTF-8 are part of the word that they stand in, and words are counted by their bytes: nothing is folded, replaced or
//! left out. A line of a part file is the word, a tab, and the count; words are spread over the part files by their hash
//! and are in ascending order of their bytes in each.

use exobus_actors::registry::TaskError;
use exobus_actors::task::Output;
use serde::{Deserialize, Serialize};

use crate::files::Schema;
use crate::keyed::{Emit, Input, KeyedJob, Split, Values};

/// See the module. Values are counts: 8 bytes, little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WordCount {}

crate::keyed_job!(WordCount, "wordcount", 1);

impl KeyedJob for WordCount {
    fn split(&self) -> Split {
        // At ASCII white space words end whatever stands before it: none of its bytes is inside a UTF-8 sequence.
        Split::Anywhere
    }

    fn map(&self, input: &mut Input<'_>, emit: Emit<'_>) -> Result<(), TaskError> {
        input.refuse_compressed()?;
        while let Some(token) = input.next_token(is_ascii_space)? {
            words(token, |word| emit(word, &1u64.to_le_bytes()))?;
        }
        Ok(())
    }

    fn combines(&self) -> bool {
        true
    }

    fn combine(&self, _key: &[u8], into: &mut Vec<u8>, value: &[u8]) -> Result<(), TaskError> {
        let sum = count(into) + count(value);
        into.copy_from_slice(&sum.to_le_bytes());
        Ok(())
    }

    fn reduce(&self, key: &[u8], values: Values<'_>, file: &mut dyn std::io::Write) -> Result<(), TaskError> {
        let mut sum = 0;
        values.for_each(|value| sum += count(value));
        file.write_all(key)?;
        Ok(writeln!(file, "\t{sum}")?)
    }

    fn schema(&self) -> Schema {
        Schema::columns("text", vec!["word".to_owned(), "count".to_owned()], '\t', false)
    }

    /// The words themselves: as many as the counts add up to.
    fn conserved(&self, _key: &[u8], value: &[u8]) -> Output {
        Output { rows: count(value), ..Output::default() }
    }
}

fn count(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().expect("a count has 8 bytes"))
}

/// The white space that is one byte long.
fn is_ascii_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

/// Calls `each` for the words of bytes that have no ASCII white space.
fn words(token: &[u8], mut each: impl FnMut(&[u8]) -> Result<(), TaskError>) -> Result<(), TaskError> {
    if token.is_ascii() {
        return each(token);
    }
    let (mut start, mut at) = (0, 0);
    for chunk in token.utf8_chunks() {
        for (offset, character) in chunk.valid().char_indices().filter(|(_, character)| character.is_whitespace()) {
            if at + offset > start {
                each(&token[start..at + offset])?;
            }
            start = at + offset + character.len_utf8();
        }
        at += chunk.valid().len() + chunk.invalid().len();
    }
    if at > start { each(&token[start..at]) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_at_unicode_white_space_and_keep_their_bytes() {
        let of = |text: &[u8]| {
            let mut found = Vec::new();
            words(text, |word| {
                found.push(word.to_vec());
                Ok(())
            })
            .unwrap();
            found
        };
        assert_eq!(of(b"plain"), [b"plain"]);
        let spaces = "\u{3000}één\u{00a0}two\u{2003}\u{2003}three\u{0085}";
        assert_eq!(of(spaces.as_bytes()), ["één".as_bytes(), b"two", b"three"]);
        // A zero-width space is no white space; a byte that is no UTF-8 is part of its word.
        assert_eq!(of("a\u{200b}b".as_bytes()), ["a\u{200b}b".as_bytes()]);
        assert_eq!(of(b"x\xff\xc3y\xe2\x80"), [b"x\xff\xc3y\xe2\x80"]);
        assert_eq!(of(b"x\xff\xc2\xa0\xfe"), [&b"x\xff"[..], b"\xfe"]);
    }

    #[test]
    fn ascii_spaces_are_those_of_unicode() {
        for byte in 0..=127u8 {
            assert_eq!(is_ascii_space(byte), char::from(byte).is_whitespace(), "{byte}");
        }
    }
}
