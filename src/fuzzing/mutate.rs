//! Inputs from inputs: the same for the same seed.

/// Numbers at which lengths and counts go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX - 4095,
    u64::MAX,
];
/// Inputs do not grow beyond this, bytes, unless what they are made from is longer.
const LENGTH_MAX: usize = 16 << 10;

/// Makes inputs.
pub struct Mutator(u64);

impl Mutator {
    /// Another seed makes others.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// One of the inputs with one to eight changes, some of them taken from others.
    pub fn input(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = inputs.get(self.below(inputs.len())).cloned().unwrap_or_default();
        let length_max = bytes.len().max(LENGTH_MAX);
        for _ in 0..=self.below(8) {
            self.change(&mut bytes, inputs);
        }
        bytes.truncate(length_max);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        let at = self.below(bytes.len());
        let random = self.next();
        match self.below(9) {
            _ if bytes.is_empty() => bytes.push(random as u8),
            0 => bytes[at] ^= 1 << (random % 8),
            1 => bytes[at] = random as u8,
            2 => bytes[at] = bytes[at].wrapping_add((random % 9) as u8).wrapping_sub(4),
            // A number of one to eight bytes, in either order.
            3 | 4 => {
                let edge = EDGES[self.below(EDGES.len())];
                let length = 1 << (random % 4);
                let number = if random & 16 == 0 { edge.to_le_bytes() } else { edge.swap_bytes().to_le_bytes() };
                let number = if random & 16 == 0 { &number[..length] } else { &number[8 - length..] };
                let end = bytes.len().min(at + length);
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            5 => bytes.truncate(at),
            6 => {
                let end = at + self.below((bytes.len() - at).min(32) + 1);
                drop(bytes.drain(at..end));
            }
            7 => {
                let end = at + self.below((bytes.len() - at).min(64) + 1);
                let copy = bytes[at..end].to_vec();
                let to = self.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => {
                if let Some(other) = inputs.get(self.below(inputs.len())) {
                    let from = self.below(other.len());
                    let end = from + self.below((other.len() - from).min(64) + 1);
                    bytes.splice(at..at, other[from..end].iter().copied());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_makes_the_same_inputs_and_many_different_ones() {
        let from = [b"a message of some length".to_vec(), b"another one, which is longer".to_vec()];
        let make = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..1000).map(|_| mutator.input(&from)).collect::<Vec<_>>()
        };
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        assert!(make(1).into_iter().collect::<BTreeSet<_>>().len() > 900);
        assert!(!Mutator::new(3).input(&[]).is_empty(), "something comes of nothing");
    }
}
