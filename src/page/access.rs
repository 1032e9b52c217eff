//! Who is let in: for which host a request is, and which token it has.

use std::hint::black_box;

use exobus_actors::random::{Random as _, SystemRandom};

/// What shows that somebody may see the page: 64 hexadecimal digits.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// One of 256 random bits.
    pub(super) fn random() -> Self {
        Self(format!("{:032x}{:032x}", SystemRandom.next_u128(), SystemRandom.next_u128()))
    }

    /// For the address that is printed, and for nothing else.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether the value of an `Authorization` header has it. How long that takes says nothing of where they differ.
    pub(super) fn is_in(&self, authorization: &[u8]) -> bool {
        let Some(given) = authorization.strip_prefix(b"Bearer ") else { return false };
        let differ =
            given.iter().zip(self.0.as_bytes()).fold(0, |differ, (one, other)| black_box(differ | (one ^ other)));
        given.len() == self.0.len() && differ == 0
    }
}

/// Whether the value of a `Host` header means this machine by itself. A page of another site whose name is made to lead here (DNS rebinding) says that name; ports may differ, as those of tunnels do.
pub(super) fn is_loopback(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name == "127.0.0.1" || name == "[::1]" || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_that_token_and_no_other() {
        let token = Token::random();
        assert_eq!(token.text().len(), 64);
        assert_ne!(token.text(), Token::random().text());
        let bearer = |text: &str| token.is_in(format!("Bearer {text}").as_bytes());
        assert!(bearer(token.text()));
        let mut other = token.text().to_owned().into_bytes();
        other[63] ^= 1;
        let other = String::from_utf8(other).unwrap();
        for wrong in ["", &token.text()[..63], &format!("{}0", token.text()), &other] {
            assert!(!bearer(wrong), "{wrong}");
        }
        assert!(!token.is_in(token.text().as_bytes()), "a token without its scheme");
    }

    #[test]
    fn a_host_is_this_machine_or_refused() {
        for host in ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:9"] {
            assert!(is_loopback(host.as_bytes()), "{host}");
        }
        for host in [
            "",
            "example.org",
            "example.org:80",
            "127.0.0.1.example.org",
            "localhost.example.org:80",
            "127.0.0.1:80@x",
            ":80",
            "10.0.0.1",
        ] {
            assert!(!is_loopback(host.as_bytes()), "{host}");
        }
    }
}
