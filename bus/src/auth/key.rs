//! [`Key`]: keyed BLAKE3, for MACs and for keys made from keys.
//!
//! Why BLAKE3: one primitive derives keys and makes MACs, it is a PRF when keyed (no length extension, so no need for
//! HMAC's two passes), and it takes what a frame costs below what the frame costs to send (`docs/benchmarks.md`).

use std::fmt;
use std::hint::black_box;

/// Bytes of a MAC.
pub(crate) const MAC_BYTES: usize = 16;

/// A secret of 256 bits.
#[derive(Clone)]
pub(crate) struct Key([u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Key {
    /// The key for one purpose, from a secret text; `purpose` is a constant of the program.
    pub(crate) fn from_text(purpose: &str, secret: &str) -> Self {
        Self(blake3::derive_key(purpose, secret.as_bytes()))
    }

    /// A key that nobody else has.
    pub(crate) fn random() -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(&random().to_le_bytes());
        key[16..].copy_from_slice(&random().to_le_bytes());
        Self(key)
    }

    /// The key that belongs to `parts` in this order; where one ends and the next begins makes a difference.
    pub(crate) fn derive(&self, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The MAC of `parts`, one after the other: of several, all but the last have lengths that both sides know.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&hasher.finalize().as_bytes()[..MAC_BYTES]);
        mac
    }

    /// Whether `mac` is that of `parts`, in a time that does not tell how much of it is.
    pub(crate) fn verifies(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        let Ok(mac) = <[u8; MAC_BYTES]>::try_from(mac) else { return false };
        black_box(u128::from_le_bytes(mac) ^ u128::from_le_bytes(self.mac(parts))) == 0
    }

    /// As a text, for where it is a token itself.
    pub(crate) fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }
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
        let of = |parts: &[&[u8]]| key.derive(parts).0;
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"ab"]), of(&[b"ab", b""]));
        assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
        assert_eq!(format!("{key:?}"), "***");
    }
}
