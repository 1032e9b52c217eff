//! A field of a kind: its name, what it takes, and its words for people. Checks, errors, schemas and documentation come from it.

/// A field of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name: that of the option of the command line, with `_`.
    pub name: &'static str,
    /// What values it takes.
    pub takes: Takes,
    /// Whether it has to be there.
    pub need: Need,
    /// The default as TOML; none: what the text says.
    pub default: Option<&'static str>,
    /// A value as TOML.
    pub example: &'static str,
    /// A sentence or two for people.
    pub doc: &'static str,
    /// Whether examples say it although it need not be there.
    pub is_shown: bool,
}

/// Whether a field has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Always.
    Always,
    /// Unless the job is only explained.
    ToRun,
    /// No.
    Never,
}

/// What values a field takes.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// A text, which the kind reads.
    Text,
    /// Texts, or one with commas between them.
    Texts,
    /// One of these words.
    Word(fn() -> Vec<&'static str>),
    /// Several of these words, or a text with commas between them.
    Words(fn() -> Vec<&'static str>),
    /// True or false.
    Flag,
    /// A whole number, the least and the greatest that is taken.
    Number(u64, u64),
    /// Bytes, as a text with a unit.
    Size,
    /// Files, folders or patterns that the job reads.
    Reads,
    /// A folder that the job writes.
    Writes,
}

impl Field {
    /// A field that need not be there.
    pub const fn new(name: &'static str, takes: Takes, example: &'static str, doc: &'static str) -> Self {
        Self { name, takes, need: Need::Never, default: None, example, doc, is_shown: false }
    }

    /// With this default, as TOML.
    #[must_use]
    pub const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// It has to be there.
    #[must_use]
    pub const fn needed(self, need: Need) -> Self {
        Self { need, ..self }
    }

    /// Examples say it.
    #[must_use]
    pub const fn shown(self) -> Self {
        Self { is_shown: true, ..self }
    }

    /// Its example as TOML, "key = value".
    pub fn example(&self) -> String {
        format!("{} = {}", self.name, self.example)
    }
}

impl Takes {
    /// For "expected ...".
    pub fn expected(self) -> String {
        match self {
            Self::Text => "a text in quotes".to_owned(),
            Self::Texts => "a list of texts in quotes, or one text with commas between them".to_owned(),
            Self::Word(words) => quoted(&words()),
            Self::Words(words) => format!("a list of {}", quoted(&words())),
            Self::Flag => "true or false".to_owned(),
            Self::Number(least, u64::MAX) => format!("a whole number from {least}"),
            Self::Number(least, most) => format!("a whole number from {least} to {most}"),
            Self::Size => "a size in quotes such as \"64MiB\"".to_owned(),
            Self::Reads => "a list of paths in quotes, or one path".to_owned(),
            Self::Writes => "a path in quotes".to_owned(),
        }
    }
}

fn quoted(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}
