//! The secret that all nodes of a cluster share.

use std::fmt;
use std::sync::Arc;

use super::wire::HELLO_TEXT_MAX;

/// The token of a cluster. Every connection of the data plane begins with it. Printed as `***`. Where it comes from (a
/// file of mode 0600), and that there is one, is the configuration's business.
#[derive(Clone)]
pub(super) struct ClusterToken(Arc<[u8]>);

/// Shortest token that a server takes, bytes.
pub const TOKEN_BYTES_MIN: usize = 16;

impl ClusterToken {
    pub(super) fn new(secret: &str) -> Self {
        Self(secret.as_bytes().into())
    }

    /// As it goes over the wire.
    pub(super) fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is long enough to be a secret, and short enough to be sent.
    pub(super) fn is_acceptable(&self) -> bool {
        (TOKEN_BYTES_MIN..=HELLO_TEXT_MAX).contains(&self.0.len())
    }

    /// Whether `other` is this token, in a time that depends on the lengths only.
    pub(super) fn matches(&self, other: &[u8]) -> bool {
        let differing = self.0.iter().zip(other).fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
        (self.0.len() == other.len()) & (differing == 0)
    }
}

impl fmt::Debug for ClusterToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_match() {
        let token = ClusterToken::new("0123456789abcdef");
        assert!(token.matches(b"0123456789abcdef"));
        for other in ["", "0123456789abcdeX", "X123456789abcdef", "0123456789abcde", "0123456789abcdef0"] {
            assert!(!token.matches(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn a_token_is_long_enough_and_never_printed() {
        for (length, acceptable) in [(0, false), (15, false), (16, true), (256, true), (257, false)] {
            assert_eq!(ClusterToken::new(&"x".repeat(length)).is_acceptable(), acceptable, "{length}");
        }
        assert_eq!(format!("{:?}", ClusterToken::new("0123456789abcdef")), "***");
    }
}
