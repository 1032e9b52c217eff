//! How the two ends of a session prove to each other who they are.
//!
//! Both names and the cluster are in the key that seals a greeting, so nobody else's greeting can be passed off as one's
//! own. Each half has a *challenge*, random and never used again: a hello and a welcome tell it, a welcome and a refusal
//! are sealed over the one that they answer, and the keys of all that follows are made from both. So whatever was
//! recorded earlier fits no later half: of it only a hello can be repeated, and that costs a welcome.

use std::fmt;

use super::frame::{Challenge, Half};
use crate::auth::{Credentials, Key};

/// What one end knows of a pair of processes before it has met the other.
pub(crate) struct Opening {
    /// Seals what we say, and what they say, in greetings.
    sending: Key,
    receiving: Key,
    /// Our challenges are made from it, so that nobody can foresee one.
    secret: Key,
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opening(***)")
    }
}

/// The keys of a session: one for each direction.
#[derive(Debug, Clone)]
pub(crate) struct SessionKeys {
    pub(crate) sending: Key,
    pub(crate) receiving: Key,
}

impl Opening {
    /// Between process `me` and process `peer` of a cluster; `None` where they share no token.
    pub(crate) fn new(credentials: &Credentials, cluster: &str, me: &str, peer: &str, secret: Key) -> Option<Self> {
        let token = credentials.between(me, peer)?;
        let of = |from: &str, to: &str| token.derive(&[b"session", cluster.as_bytes(), from.as_bytes(), to.as_bytes()]);
        Some(Self { sending: of(me, peer), receiving: of(peer, me), secret })
    }

    /// The key that seals our greetings.
    pub(crate) fn sending(&self) -> &Key {
        &self.sending
    }

    /// The key that seals theirs.
    pub(crate) fn receiving(&self) -> &Key {
        &self.receiving
    }

    /// The challenge of a half of ours.
    pub(crate) fn challenge(&self, half: Half) -> Challenge {
        self.secret.mac(&[&bytes(half)])
    }

    /// The keys between a half of ours and one of theirs.
    pub(crate) fn keys(&self, me: (Half, &Challenge), peer: (Half, &Challenge)) -> SessionKeys {
        let of = |key: &Key, from: (Half, &Challenge), to: (Half, &Challenge)| {
            key.derive(&[b"keys", &bytes(from.0), from.1, &bytes(to.0), to.1])
        };
        SessionKeys { sending: of(&self.sending, me, peer), receiving: of(&self.receiving, peer, me) }
    }

    /// What the other end of this one has.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn mirrored(&self, secret: Key) -> Self {
        Self { sending: self.receiving.clone(), receiving: self.sending.clone(), secret }
    }
}

fn bytes(half: Half) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&half.incarnation.to_le_bytes());
    bytes[8..].copy_from_slice(&half.epoch.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half(incarnation: u64) -> Half {
        Half { incarnation, epoch: 1 }
    }

    fn opening(credentials: &Credentials, me: &str, peer: &str) -> Opening {
        Opening::new(credentials, "exo.v1.test", me, peer, Key::random()).unwrap()
    }

    #[test]
    fn both_ends_make_the_same_keys_one_for_each_direction() {
        let credentials = Credentials::node(Some("the nodes' token of a test"), None);
        let (a, b) = (opening(&credentials, "a", "b"), opening(&credentials, "b", "a"));
        let (of_a, of_b) = (a.challenge(half(1)), b.challenge(half(2)));
        let at_a = a.keys((half(1), &of_a), (half(2), &of_b));
        let at_b = b.keys((half(2), &of_b), (half(1), &of_a));
        let same = |one: &Key, other: &Key| one.verifies(&[b"x"], &other.mac(&[b"x"]));
        assert!(same(&at_a.sending, &at_b.receiving) && same(&at_b.sending, &at_a.receiving));
        assert!(!same(&at_a.sending, &at_a.receiving), "a frame could be sent back to who made it");
        // Another challenge, another half, another name: other keys.
        for other in [
            a.keys((half(1), &of_a), (half(2), &of_a)),
            a.keys((half(3), &of_a), (half(2), &of_b)),
            opening(&credentials, "a", "c").keys((half(1), &of_a), (half(2), &of_b)),
        ] {
            assert!(!same(&other.sending, &at_a.sending));
        }
        assert_ne!(of_a, opening(&credentials, "a", "b").challenge(half(1)), "challenges can be foreseen");
        assert_ne!(of_a, a.challenge(half(2)));
    }
}
