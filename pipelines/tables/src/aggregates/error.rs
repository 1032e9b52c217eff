//! What can be wrong with the text of aggregates.

/// Why a text is no aggregate, or no list of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", self.place())]
pub struct AggregateError {
    /// The whole text.
    pub text: String,
    /// Where in it, bytes from 0.
    pub at: usize,
    /// What is wrong there, and what to do.
    pub what: String,
}

/// Characters of the text that are shown.
const SHOWN: usize = 120;

impl AggregateError {
    pub(super) fn new(text: &str, at: usize, what: impl Into<String>) -> Self {
        Self { text: text.to_owned(), at, what: what.into() }
    }

    fn place(&self) -> String {
        let shown: String = self.text.chars().take(SHOWN).collect();
        let more = if shown.len() < self.text.len() { "..." } else { "" };
        match shown.trim().is_empty() {
            true => String::new(),
            false => format!("aggregates {shown}{more}, character {}: ", self.character()),
        }
    }

    /// Which character it is, from 1.
    pub fn character(&self) -> usize {
        self.text.get(..self.at).map_or(0, |before| before.chars().count()) + 1
    }
}
