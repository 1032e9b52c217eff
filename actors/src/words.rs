//! [`Words`]: what people say to the program of a job while it runs.
//!
//! What was said last counts, and nothing is kept in a queue: a program that listens ([`Futures::listen`](crate::futures::Futures::listen)) hears what is another word than
//! the last one that it has heard. To a program that does not listen nothing can be said, so whoever says it hears that it is of no use.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What can be said to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Somebody has seen enough of what it shows before its end.
    Enough,
    /// It is to go on to its end.
    GoOn,
}

impl Word {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Enough, Self::GoOn];

    /// As it is written.
    pub fn token(self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::GoOn => "go_on",
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// A text is none of the words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no word that a job is told: `enough` and `go_on` are")]
pub struct NoWord(String);

impl FromStr for Word {
    type Err = NoWord;

    fn from_str(text: &str) -> Result<Self, NoWord> {
        Self::ALL.into_iter().find(|word| word.token() == text).ok_or_else(|| NoWord(text.to_owned()))
    }
}

/// What is said to a job; clones are of the same job.
#[derive(Clone, Debug, Default)]
pub struct Words(Arc<watch::Sender<Said>>);

#[derive(Clone, Copy, Debug, Default)]
struct Said {
    listeners: usize,
    last: Option<Word>,
}

impl Words {
    /// Says a word; whether the program listens, or was told the same when it did.
    pub fn say(&self, word: Word) -> bool {
        let mut heard = false;
        self.0.send_if_modified(|said| {
            heard = said.listeners > 0 || said.last == Some(word);
            let is_new = heard && said.last != Some(word);
            if is_new {
                said.last = Some(word);
            }
            is_new
        });
        heard
    }

    /// Whether this was said last.
    pub(crate) fn was_told(&self, word: Word) -> bool {
        self.0.borrow().last == Some(word)
    }

    /// Somebody listens until what this returns is dropped.
    pub(crate) fn listen(&self) -> Listens {
        self.0.send_modify(|said| said.listeners += 1);
        Listens(self.clone())
    }
}

/// See [`Words::listen`].
#[derive(Debug)]
pub(crate) struct Listens(Words);

impl Listens {
    /// Resolves when the last word is another one than this.
    pub(crate) async fn after(&self, heard: Option<Word>) -> Word {
        let mut said = self.0.0.subscribe();
        let other = said.wait_for(|said| said.last.is_some() && said.last != heard).await;
        match other.ok().and_then(|said| said.last) {
            Some(word) => word,
            None => unreachable!("the sender is held here"),
        }
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        self.0.0.send_modify(|said| said.listeners -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_written_as_they_travel() {
        for word in Word::ALL {
            assert_eq!(serde_json::to_value(word).unwrap(), word.token());
            assert_eq!(word.to_string().parse(), Ok(word));
        }
        let refused = "more".parse::<Word>().unwrap_err().to_string();
        assert_eq!(refused, "\"more\" is no word that a job is told: `enough` and `go_on` are");
    }

    #[tokio::test]
    async fn what_was_said_last_is_heard_once_by_who_listens() {
        let words = Words::default();
        assert!(!words.say(Word::Enough), "nobody listens");
        let listens = words.listen();
        let waits = tokio::time::timeout(std::time::Duration::from_millis(10), listens.after(None));
        assert!(waits.await.is_err(), "what nobody has heard was not said");
        assert!(words.say(Word::Enough) && words.say(Word::Enough));
        assert_eq!(listens.after(None).await, Word::Enough);
        assert!(words.say(Word::GoOn));
        assert_eq!(listens.after(Some(Word::Enough)).await, Word::GoOn);
        drop(listens);
        assert!(words.say(Word::GoOn), "the same again is answered the same");
        assert!(!words.say(Word::Enough) && words.was_told(Word::GoOn));
    }
}
