//! Quantiles of the normal distribution and of Student's t.

/// Coefficients of rational functions, from the constant on: numerator and denominator.
type Rational = [[f64; 8]; 2];

/// Within 0.425 of the middle, by the square of how far it is away from that.
const MIDDLE: Rational = [
    [
        3.387_132_872_796_366_5,
        133.141_667_891_784_38,
        1_971.590_950_306_551_3,
        13_731.693_765_509_46,
        45_921.953_931_549_87,
        67_265.770_927_008_7,
        33_430.575_583_588_13,
        2_509.080_928_730_122_7,
    ],
    [
        1.0,
        42.313_330_701_600_91,
        687.187_007_492_057_9,
        5_394.196_021_424_751,
        21_213.794_301_586_597,
        39_307.895_800_092_71,
        28_729.085_735_721_943,
        5_226.495_278_852_854,
    ],
];
/// Further out, by √(-ln p) - 1.6.
const TAIL: Rational = [
    [
        1.423_437_110_749_683_5,
        4.630_337_846_156_546,
        5.769_497_221_460_691,
        3.647_848_324_763_204_5,
        1.270_458_252_452_368_4,
        0.241_780_725_177_450_6,
        0.022_723_844_989_269_184,
        7.745_450_142_783_414e-4,
    ],
    [
        1.0,
        2.053_191_626_637_759,
        1.676_384_830_183_803_8,
        0.689_767_334_985_1,
        0.148_103_976_427_480_08,
        0.015_198_666_563_616_457,
        5.475_938_084_995_345e-4,
        1.050_750_071_644_416_9e-9,
    ],
];
/// Where that is above 5, by √(-ln p) - 5.
const FAR: Rational = [
    [
        6.657_904_643_501_103,
        5.463_784_911_164_114,
        1.784_826_539_917_291_3,
        0.296_560_571_828_504_87,
        0.026_532_189_526_576_124,
        0.001_242_660_947_388_078_4,
        2.711_555_568_743_487_6e-5,
        2.010_334_399_292_288_1e-7,
    ],
    [
        1.0,
        0.599_832_206_555_888,
        0.136_929_880_922_735_8,
        0.014_875_361_290_850_615,
        7.868_691_311_456_133e-4,
        1.846_318_317_510_054_8e-5,
        1.421_511_758_316_446e-7,
        2.044_263_103_389_939_8e-15,
    ],
];

fn quotient(of: &Rational, at: f64) -> f64 {
    let [above, below] = of.map(|coefficients| coefficients.iter().rev().fold(0.0, |sum, by| sum * at + by));
    above / below
}

/// Above which value a normal one, with mean 0 and variance 1, is with this probability (algorithm AS 241: Wichura, "The percentage points of the normal distribution", 1988; to 16 digits).
pub(super) fn normal(above: f64) -> f64 {
    let from_middle = 0.5 - above;
    if from_middle.abs() <= 0.425 {
        return from_middle * quotient(&MIDDLE, 0.180_625 - from_middle * from_middle);
    }
    let out = (-above.min(1.0 - above).ln()).sqrt();
    let value = if out <= 5.0 { quotient(&TAIL, out - 1.6) } else { quotient(&FAR, out - 5.0) };
    value.copysign(from_middle)
}

/// Above which value one of Student's t is with this probability, from 29 degrees of freedom on (the expansion by 1 / degrees: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5; there
/// to four digits at a probability of 1e-5 and to six at 0.025).
pub(super) fn student(above: f64, degrees: f64) -> f64 {
    let z = normal(above);
    let z2 = z * z;
    let terms = [
        z * (z2 + 1.0) / 4.0,
        z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0,
        z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0,
        z * ((((79.0 * z2 + 776.0) * z2 + 1_482.0) * z2 - 1_920.0) * z2 - 945.0) / 92_160.0,
    ];
    z + terms.iter().rev().fold(0.0, |sum, term| (sum + term) / degrees)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        for (above, expected) in [
            (0.5, 0.0),
            (0.1, 1.281_551_565_544_600_4),
            (0.025, 1.959_963_984_540_054),
            (1e-5, 4.264_890_793_922_825),
            (1e-12, 7.034_483_825_301_132),
            (0.9, -1.281_551_565_544_600_4),
        ] {
            assert!((normal(above) - expected).abs() <= 4e-15 * expected.abs().max(1.0), "{above}: {}", normal(above));
        }
        for (above, degrees, expected, digits) in [
            (0.025, 29.0, 2.045_229_642_12, 1e-6),
            (0.005, 99.0, 2.626_405_457_27, 1e-6),
            (0.002_5, 29.0, 3.038_046_745, 1e-5),
            (1e-5, 29.0, 5.085_504_702, 2e-3),
            (0.025, 1e9, 1.959_963_986_9, 1e-8),
        ] {
            assert!(
                (student(above, degrees) - expected).abs() <= digits,
                "{above} {degrees}: {}",
                student(above, degrees)
            );
        }
    }
}
