//! [`Secrets`]: what nobody may print.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

/// What stands in the place of a secret.
const INSTEAD: &[u8] = b"***";
/// Shorter texts are no secrets: too much would be replaced.
const BYTES_MIN: usize = 4;

/// The secrets of a node: tokens and keys of its configuration, and what else is registered. In what its jobs print each is replaced by
/// `***`. They are found as they are: not in another encoding. Cheap to clone; clones are the same registry.
#[derive(Clone, Default)]
pub struct Secrets(Arc<RwLock<Vec<Vec<u8>>>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.read().len())
    }
}

impl Secrets {
    /// Replaces those that are in a text.
    pub(crate) fn hide(&self, text: &mut String) {
        if self.0.read().iter().any(|secret| contains(text.as_bytes(), secret)) {
            let mut filter = Filter::new(self.clone());
            let mut clear = filter.push(text.as_bytes());
            clear.extend(filter.finish());
            *text = String::from_utf8_lossy(&clear).into_owned();
        }
    }

    /// Registers a text; one of fewer than 4 bytes is none.
    pub fn add(&self, secret: impl AsRef<[u8]>) {
        let secret = secret.as_ref();
        let mut secrets = self.0.write();
        if secret.len() >= BYTES_MIN && secrets.iter().all(|known| known != secret) {
            secrets.push(secret.to_vec());
        }
    }
}

fn contains(text: &[u8], secret: &[u8]) -> bool {
    text.windows(secret.len()).any(|part| part == secret)
}

/// Replaces secrets in what comes piece by piece.
#[derive(Debug)]
pub(crate) struct Filter {
    secrets: Secrets,
    /// What may be the beginning of a secret.
    held: Vec<u8>,
}

impl Filter {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets, held: Vec::new() }
    }

    /// The next piece, and what is clear by now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        self.clear(false)
    }

    /// What was held, when nothing more comes.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.clear(true)
    }

    fn clear(&mut self, last: bool) -> Vec<u8> {
        let secrets = self.secrets.0.read();
        let (mut clear, mut at) = (Vec::with_capacity(self.held.len()), 0);
        while at < self.held.len() {
            let rest = &self.held[at..];
            if !last && secrets.iter().any(|secret| secret.len() > rest.len() && secret.starts_with(rest)) {
                break;
            }
            // The longest one: another may be its beginning.
            match secrets.iter().filter(|secret| rest.starts_with(secret)).map(Vec::len).max() {
                Some(bytes) => {
                    clear.extend_from_slice(INSTEAD);
                    at += bytes;
                }
                None => {
                    clear.push(rest[0]);
                    at += 1;
                }
            }
        }
        self.held.drain(..at);
        clear
    }
}
