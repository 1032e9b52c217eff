//! What is wrong with a spec.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Characters of a text of somebody else that errors show.
const SHOWN_CHARS: usize = 40;

/// What is wrong with a spec, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct SpecError {
    /// For programs.
    pub code: SpecCode,
    /// For people.
    pub message: String,
    /// Where in the spec: "inputs[2]", "line 3, column 5".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// What is wrong with a spec, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpecCode {
    /// It is neither TOML nor JSON.
    BadSpec,
    /// It has more bytes than are allowed.
    TooLarge,
    /// Lists and tables are nested deeper than is allowed.
    TooDeep,
    /// There is no such kind or program.
    UnknownKind,
    /// The kind has no such field.
    UnknownField,
    /// A value of another type is expected.
    WrongType,
    /// A field is needed that is not there.
    Missing,
    /// A value of the right type that cannot be used.
    Invalid,
}

impl SpecCode {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::BadSpec,
        Self::TooLarge,
        Self::TooDeep,
        Self::UnknownKind,
        Self::UnknownField,
        Self::WrongType,
        Self::Missing,
        Self::Invalid,
    ];

    /// Whether an answer with this code says what is wrong with a spec.
    pub fn is_one(code: &str) -> bool {
        Self::ALL.iter().any(|known| known.token() == code)
    }

    /// As it is written in answers.
    pub fn token(self) -> &'static str {
        match self {
            Self::BadSpec => "bad_spec",
            Self::TooLarge => "too_large",
            Self::TooDeep => "too_deep",
            Self::UnknownKind => "unknown_kind",
            Self::UnknownField => "unknown_field",
            Self::WrongType => "wrong_type",
            Self::Missing => "missing",
            Self::Invalid => "invalid",
        }
    }
}

impl SpecError {
    /// An error about the spec as a whole.
    pub fn new(code: SpecCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), at: None }
    }

    /// The same error with its place.
    #[must_use]
    pub fn at(self, at: impl Into<String>) -> Self {
        Self { at: Some(at.into()), ..self }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            Some(at) => write!(f, "{at}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Most characters of a message.
const MESSAGE_CHARS: usize = 1000;

/// A message of somebody who had `text` and may repeat it: nothing longer of it than errors show stays, and no control characters.
pub(crate) fn conceal(message: &str, text: &str) -> String {
    conceal_all(message, &[text])
}

/// The same for who had all these texts.
pub(crate) fn conceal_all(message: &str, texts: &[&str]) -> String {
    let mut chars: Vec<char> = message.chars().take(MESSAGE_CHARS).collect();
    let mut is_repeated: HashMap<&[char], bool> = chars.windows(SHOWN_CHARS + 1).map(|part| (part, false)).collect();
    // Messages quote texts as they are, and as they are written in code.
    for text in texts.iter().filter(|text| text.len() > SHOWN_CHARS) {
        for text in [text.chars().collect::<Vec<_>>(), text.escape_debug().collect()] {
            for part in text.windows(SHOWN_CHARS + 1) {
                if let Some(is_repeated) = is_repeated.get_mut::<[char]>(part) {
                    *is_repeated = true;
                }
            }
        }
    }
    let mut is_kept = vec![true; chars.len()];
    for (at, part) in chars.windows(SHOWN_CHARS + 1).enumerate() {
        if is_repeated[part] {
            // The first characters of what is repeated stay.
            is_kept[at + SHOWN_CHARS - 1..=at + SHOWN_CHARS].fill(false);
        }
    }
    drop(is_repeated);
    for (char, _) in chars.iter_mut().zip(&is_kept).filter(|(char, _)| char.is_control()) {
        *char = '\u{fffd}';
    }
    let kept = chars.iter().enumerate().filter_map(|(at, char)| match is_kept[at] {
        true => Some(*char),
        false => (at == 0 || is_kept[at - 1]).then_some('\u{2026}'),
    });
    kept.collect()
}

/// A text of somebody else as errors show it: the first 40 characters, without control characters.
pub fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let plain = |char: char| if char.is_control() { '\u{fffd}' } else { char };
    let mut shown: String = chars.by_ref().take(SHOWN_CHARS).map(plain).collect();
    if chars.next().is_some() {
        shown.pop();
        shown.push('\u{2026}');
    }
    shown
}
