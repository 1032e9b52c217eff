//! Numbers that follow from their place alone.

/// See the module (Steele, Lea and Flood, SplitMix64).
pub struct Noise(pub u64);

impl Noise {
    /// Between 0 and 1, neither of both.
    pub fn even(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) >> 11) as f64 / (1_u64 << 53) as f64 + f64::EPSILON
    }
}
