//! What can be wrong with a condition.

/// Why a text is no condition, or none for rows of a schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}", self.place())]
pub struct ExpressionError {
    /// The whole text.
    pub text: String,
    /// Where in it, bytes from 0.
    pub at: usize,
    /// What is wrong there, and what to do.
    pub what: String,
}

/// Characters of the text that are shown, of all of it and from the place on.
const SHOWN_OF_ALL: usize = 120;
const SHOWN: usize = 40;

impl ExpressionError {
    pub(super) fn new(text: &str, at: usize, what: impl Into<String>) -> Self {
        Self { text: text.to_owned(), at, what: what.into() }
    }

    /// Which condition it is, and where in it.
    fn place(&self) -> String {
        let shown: String = self.text.chars().take(SHOWN_OF_ALL).collect();
        let more = if shown.len() < self.text.len() { "..." } else { "" };
        let condition = if shown.is_empty() { "the condition".to_owned() } else { format!("condition {shown}{more}") };
        format!("{condition}, character {}, at {:?}", self.character(), self.rest())
    }

    /// Which character it is, from 1.
    pub fn character(&self) -> usize {
        self.text.get(..self.at).map_or(0, |before| before.chars().count()) + 1
    }

    /// The text from there on, cut where it is long.
    pub fn rest(&self) -> String {
        self.text.get(self.at..).unwrap_or_default().chars().take(SHOWN).collect()
    }
}
