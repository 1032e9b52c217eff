//! Patterns of `like`: `%` is any text, `_` any one character.

use std::ops::Bound;

use super::ranges::Ranges;

/// What stands in a pattern, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Byte(u8),
    /// Any one character.
    One,
    /// Any text.
    Any,
}

/// A pattern that texts are held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Vec<Part>);

impl Pattern {
    /// # Errors
    /// What is wrong: a character behind the one that takes the meaning from others that has none.
    pub(super) fn new(text: &str, escape: Option<char>) -> Result<Self, String> {
        let (mut parts, mut characters) = (Vec::with_capacity(text.len()), text.chars());
        let byte = |parts: &mut Vec<Part>, c: char| {
            parts.extend(c.encode_utf8(&mut [0; 4]).bytes().map(Part::Byte));
        };
        while let Some(character) = characters.next() {
            match character {
                _ if Some(character) == escape => match characters.next() {
                    Some(taken) if matches!(taken, '%' | '_') || Some(taken) == escape => byte(&mut parts, taken),
                    _ => return Err(format!("behind {character} in the pattern stands %, _ or {character}")),
                },
                '%' if parts.last() == Some(&Part::Any) => (),
                '%' => parts.push(Part::Any),
                '_' => parts.push(Part::One),
                other => byte(&mut parts, other),
            }
        }
        Ok(Self(parts))
    }

    /// What the text begins with, and whether all texts that do are like it, or that text alone is.
    fn beginning(&self) -> (Vec<u8>, &[Part]) {
        let byte = |part: &Part| match part {
            Part::Byte(byte) => Some(*byte),
            _ => None,
        };
        let beginning: Vec<u8> = self.0.iter().map_while(byte).collect();
        let rest = &self.0[beginning.len()..];
        (beginning, rest)
    }

    /// A set that all texts are in that are like it, and whether no others are.
    pub(super) fn ranges(&self) -> (Ranges<Vec<u8>>, bool) {
        let (beginning, rest) = self.beginning();
        match rest {
            [] => (Ranges::one(beginning), true),
            rest => {
                let end = behind(&beginning).map_or(Bound::Unbounded, Bound::Excluded);
                (Ranges::within(Bound::Included(beginning), end), matches!(rest, [Part::Any]))
            }
        }
    }

    /// Whether a text, which is UTF-8, is like it.
    pub(super) fn is_like(&self, text: &[u8]) -> bool {
        let parts = &self.0;
        let (mut at, mut part) = (0, 0);
        // Where the last `%` is, and up to where it reaches as it is tried.
        let mut tried: Option<(usize, usize)> = None;
        loop {
            let goes_on = match parts.get(part) {
                Some(Part::Any) => {
                    tried = Some((part, at));
                    part += 1;
                    continue;
                }
                Some(Part::One) => text.get(at).map(|first| width(*first)),
                Some(Part::Byte(byte)) => (text.get(at) == Some(byte)).then_some(1),
                None if at == text.len() => return true,
                None => None,
            };
            match (goes_on, tried) {
                (Some(bytes), _) => (at, part) = (at + bytes, part + 1),
                (None, Some((any, reaches))) if reaches < text.len() => {
                    let reaches = reaches + width(text[reaches]);
                    tried = Some((any, reaches));
                    (at, part) = (reaches, any + 1);
                }
                _ => return false,
            }
        }
    }
}

/// Bytes of the character that begins so.
fn width(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

/// The least bytes that are behind all that begin so; `None`: there are none.
fn behind(beginning: &[u8]) -> Option<Vec<u8>> {
    let kept = beginning.iter().rposition(|byte| *byte < 0xff)?;
    let mut behind = beginning[..=kept].to_vec();
    behind[kept] += 1;
    Some(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_like_patterns_as_sql_has_it() {
        for (pattern, like, unlike) in [
            ("", &[""][..], &["a"][..]),
            ("abc", &["abc"], &["ab", "abcd", "Abc"]),
            ("a%", &["a", "abc"], &["", "ba"]),
            ("%a", &["a", "bca", "aa"], &["", "ab"]),
            ("%", &["", "a"], &[]),
            ("_", &["a", "é", "€", "𝄞"], &["", "ab"]),
            ("_%_", &["ab", "aéb"], &["a", ""]),
            ("%ab%ab%", &["abab", "xabyabz"], &["ab", "aab"]),
            ("%aab", &["aaab", "aabaab"], &["aaba"]),
            ("a_c", &["abc", "aéc"], &["ac", "abbc"]),
            (r"10\%", &[r"10\", r"10\x"], &["10%"]),
        ] {
            let of = Pattern::new(pattern, None).unwrap();
            let (ranges, is_exact) = of.ranges();
            for (texts, expected) in [(like, true), (unlike, false)] {
                for text in texts {
                    assert_eq!(of.is_like(text.as_bytes()), expected, "{text} like {pattern}");
                    assert!(ranges.contains(text.as_bytes()) || !expected);
                    assert!(!is_exact || ranges.contains(text.as_bytes()) == expected, "{text} like {pattern}");
                }
            }
        }
        let of = Pattern::new("10!%!!%", Some('!')).unwrap();
        assert!(of.is_like(b"10%!x") && !of.is_like(b"100!"));
        assert!(Pattern::new("10!", Some('!')).unwrap_err().contains('!'));
        assert!(Pattern::new("1!0", Some('!')).is_err());
        // What begins with the highest byte has no end.
        assert_eq!((behind(b"a\xff\xff"), behind(b"\xff"), behind(b"")), (Some(b"b".to_vec()), None, None));
    }

    #[test]
    fn a_pattern_of_many_wildcards_takes_no_longer_than_its_product() {
        let of = Pattern::new(&"%a".repeat(2_000), None).unwrap();
        assert!(!of.is_like("a".repeat(1_999).as_bytes()));
        assert!(of.is_like("a".repeat(2_000).as_bytes()));
    }
}
