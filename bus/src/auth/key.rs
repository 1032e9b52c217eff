//! [`Key`]: keys that are made from keys by keyed BLAKE3, and MACs under them by SipHash-2-4 with 128 bits.
//!
//! Why two: frames over NATS have some 3 kB each, of which BLAKE3 makes hardly more than 0.3 GB/s (its speed comes from longer
//! inputs), HMAC-SHA-256 with the processor's help twice and SipHash-2-4 three times as much (`docs/benchmarks.md`). SipHash was
//! made to be a MAC for such lengths; for keys, of which few are made, there is the stronger one.

use std::fmt;
use std::hash::Hasher as _;
use std::hint::black_box;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

/// Bytes of a MAC.
pub(crate) const MAC_BYTES: usize = 16;

/// A secret of 256 bits, and the key of MACs that belongs to it.
#[derive(Clone)]
pub(crate) struct Key {
    secret: [u8; 32],
    macs: SipHasher24,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Key {
    fn of(secret: [u8; 32]) -> Self {
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::keyed_hash(&secret, b"the key of MACs").as_bytes()[..16]);
        Self { secret, macs: SipHasher24::new_with_key(&key) }
    }

    /// The key for one purpose, from a secret text; `purpose` is a constant of the program.
    pub(crate) fn from_text(purpose: &str, secret: &str) -> Self {
        Self::of(blake3::derive_key(purpose, secret.as_bytes()))
    }

    /// A key that nobody else has.
    pub(crate) fn random() -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(&random().to_le_bytes());
        key[16..].copy_from_slice(&random().to_le_bytes());
        Self::of(key)
    }

    /// The key that belongs to `parts` in this order; where one ends and the next begins makes a difference.
    pub(crate) fn derive(&self, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self::of(*hasher.finalize().as_bytes())
    }

    /// The MAC of `parts`, one after the other: of several, all but the last have lengths that both sides know.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut hasher = self.macs;
        for part in parts {
            hasher.write(part);
        }
        u128::from(hasher.finish128()).to_le_bytes()
    }

    /// Whether `mac` is that of `parts`, in a time that does not tell how much of it is.
    pub(crate) fn verifies(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        let Ok(mac) = <[u8; MAC_BYTES]>::try_from(mac) else { return false };
        black_box(u128::from_le_bytes(mac) ^ u128::from_le_bytes(self.mac(parts))) == 0
    }

    /// As a text, for where it is a token itself.
    pub(crate) fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.secret).to_hex().to_string()
    }
}

/// A MAC of `text` under a key that is made of `secret` for this purpose alone, 32 hexadecimal digits: for what is handed to a third party
/// and shown again, such as a ticket.
pub fn sign(secret: &str, purpose: &str, text: &str) -> String {
    hex_of(&Key::from_text(purpose, secret).mac(&[text.as_bytes()]))
}

/// Whether [`sign`] gives this MAC, in a time that does not tell where it differs.
pub fn verify(secret: &str, purpose: &str, text: &str, mac: &str) -> bool {
    let signed = sign(secret, purpose, text);
    let differing = signed.bytes().zip(mac.bytes()).fold(0, |sum, (a, b)| std::hint::black_box(sum | (a ^ b)));
    (signed.len() == mac.len()) & (differing == 0)
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 122 random bits of the operating system.
pub(crate) fn random() -> u128 {
    #[allow(clippy::disallowed_methods, reason = "a challenge that could be foreseen, or seeded, would be none")]
    uuid::Uuid::new_v4().as_u128()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_fits_its_bytes_and_its_key_only() {
        let (key, other) = (Key::from_text("test", "one"), Key::from_text("test", "two"));
        let mac = key.mac(&[b"head", b"body"]);
        assert!(key.verifies(&[b"headbody"], &mac));
        assert!(!other.verifies(&[b"headbody"], &mac));
        assert!(!key.verifies(&[b"headbodx"], &mac));
        assert!(!key.verifies(&[b"headbody"], &mac[..15]));
        for bit in 0..128 {
            let mut wrong = mac;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.verifies(&[b"headbody"], &wrong), "bit {bit}");
        }
    }

    #[test]
    fn parts_of_a_derived_key_do_not_run_into_each_other() {
        let key = Key::random();
        let of = |parts: &[&[u8]]| key.derive(parts).secret;
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"ab"]), of(&[b"ab", b""]));
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_eq!(format!("{key:?}"), "***");
    }
}
