//! Tickets: what opens the data port of a node to somebody who is none, for the objects of one group and for a while.
//!
//! A ticket is shown in place of the cluster's token. It names the group and the time, and a MAC that only who knows that token can make; so
//! a node that gave none knows it, and nothing is kept of it. Its bearer reads objects of the group; whatever else is asked for is absent.

use exobus_bus::auth::verify;

/// How tickets begin; the number is the version of their form.
const FORM: &str = "ticket1";

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferTicket {
    /// The objects that it opens.
    pub group: u128,
    /// Until when, milliseconds since 1970 by the clock of the node that is shown it.
    pub until_unix_ms: u64,
}

impl TransferTicket {
    /// For what the key of its MAC is made.
    pub const PURPOSE: &'static str = "exobus 2026 ticket of the data plane";

    /// As it is shown; `mac` makes the MAC of a text under the cluster's token.
    pub fn signed(&self, mac: impl Fn(&str) -> String) -> String {
        let text = self.text();
        let mac = mac(&text);
        format!("{text}.{mac}")
    }

    fn text(&self) -> String {
        format!("{FORM}.{:032x}.{}", self.group, self.until_unix_ms)
    }

    /// The ticket in what somebody shows, if it is one of this cluster. Whether its time is over is another question.
    pub(super) fn genuine(shown: &[u8], token: &[u8]) -> Option<Self> {
        let (shown, token) = (std::str::from_utf8(shown).ok()?, std::str::from_utf8(token).ok()?);
        let (text, mac) = shown.rsplit_once('.')?;
        let mut fields = text.split('.');
        let (form, group, until) = (fields.next()?, fields.next()?, fields.next()?);
        let ticket = Self { group: u128::from_str_radix(group, 16).ok()?, until_unix_ms: until.parse().ok()? };
        // Written again it is the same text: nothing can be said in two ways.
        let genuine = form == FORM && ticket.text() == text && verify(token, Self::PURPOSE, text, mac);
        genuine.then_some(ticket)
    }

    /// Whether its time is over.
    pub(super) fn is_over(&self, now_unix_ms: u64) -> bool {
        self.until_unix_ms <= now_unix_ms
    }
}

#[cfg(test)]
mod tests {
    use exobus_bus::auth::sign;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    #[test]
    fn a_ticket_is_genuine_to_who_knows_the_token_and_unchanged_only() {
        let ticket = TransferTicket { group: 7 << 100, until_unix_ms: 1_795_566_000_000 };
        let shown = ticket.signed(|text| sign(TOKEN, TransferTicket::PURPOSE, text));
        assert!(shown.len() <= super::super::wire::HELLO_TEXT_MAX);
        assert_eq!(TransferTicket::genuine(shown.as_bytes(), TOKEN.as_bytes()), Some(ticket));
        assert_eq!(TransferTicket::genuine(shown.as_bytes(), b"another token 16"), None);
        for at in 0..shown.len() {
            let mut forged = shown.clone().into_bytes();
            forged[at] ^= 1;
            assert_eq!(TransferTicket::genuine(&forged, TOKEN.as_bytes()), None, "byte {at}");
        }
        for other in ["", "ticket1", "ticket1.7.8", "ticket1...", TOKEN] {
            assert_eq!(TransferTicket::genuine(other.as_bytes(), TOKEN.as_bytes()), None, "{other}");
        }
        assert!(ticket.is_over(1_795_566_000_000) && !ticket.is_over(1_795_565_999_999));
    }
}
