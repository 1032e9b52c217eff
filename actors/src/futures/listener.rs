//! [`Listener`]: a program hears what people say to its job; [`Notes`]: it keeps what it has decided itself.

use std::cell::Cell;

use super::api::Futures;
use crate::words::{Listens, Word};

/// Hears words, as long as it is there.
///
/// That a word was said is logged (law 3), with a number of the program that says how far it was then: a program that is run again is told the same words at once, and with that
/// number it knows after which of its steps it was that it heard them. So a job whose host is lost behind the word knows it, and decides as it has before.
pub struct Listener {
    futures: Futures,
    /// Which of the program's listeners it is, from 0 in the order in which they were made.
    number: u64,
    listens: Listens,
    last: Cell<Option<Word>>,
}

impl Futures {
    /// Listens to what people say to the job from now on. A program makes its listeners in an order of its own.
    pub fn listen(&self) -> Listener {
        let (number, listens) = (self.next_listener(), self.words());
        Listener { futures: self.clone(), number, listens, last: Cell::new(None) }
    }

    /// Notes of the program for itself. A program makes them, and its listeners, in an order of its own.
    pub fn notes(&self) -> Notes {
        Notes { futures: self.clone(), number: self.next_listener() }
    }
}

/// Words that a program says to itself: what it has decided because of when something came, and how far it was then. A program that is run again reads them at once, before what it decided by has come again.
pub struct Notes {
    futures: Futures,
    number: u64,
}

impl Notes {
    /// Notes a word, with a number that says how far the program is.
    pub fn note(&self, word: Word, at: u64) {
        self.futures.log_word(self.number, (word, at));
    }

    /// The next word that an earlier run of the program has noted, if there is one.
    pub fn noted(&self) -> Option<(Word, u64)> {
        self.futures.replayed_word(self.number)
    }
}

impl Listener {
    /// Resolves when something is said that is another word than what was heard last; with what `at` says then: how far the program is. Whoever does not wait any longer misses nothing.
    pub async fn hears(&self, at: impl FnOnce() -> u64) -> (Word, u64) {
        let (word, at) = match self.futures.replayed_word(self.number) {
            Some(heard) => heard,
            None => {
                let word = self.listens.after(self.last.get()).await;
                let at = at();
                self.futures.log_word(self.number, (word, at));
                (word, at)
            }
        };
        self.last.set(Some(word));
        (word, at)
    }
}
