//! How much deltas unpack to, before the library unpacks them.
//!
//! Two encodings of texts write lengths as packed deltas, of which a few bytes can say that there are billions, and one of them lets each text repeat the beginning of the one before: a
//! page of 1 MB can stand for 100 GB. So lengths are added up first.

/// What the texts of a page take when they are unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// Bytes of all texts.
    pub(super) bytes: u64,
}

/// Adds up the lengths of `DELTA_LENGTH_BYTE_ARRAY`, of a page with so many values.
pub(super) fn lengths(values: &[u8], count_max: u64) -> Result<Unpacked, &'static str> {
    let (bytes, _) = sum(values, count_max)?;
    Ok(Unpacked { bytes })
}

/// Adds up the lengths of `DELTA_BYTE_ARRAY`: what is repeated from the text before, and what is new.
pub(super) fn prefixed(values: &[u8], count_max: u64) -> Result<Unpacked, &'static str> {
    let (repeated, end) = sum(values, count_max)?;
    let (new, _) = sum(&values[end..], count_max)?;
    Ok(Unpacked { bytes: repeated.checked_add(new).ok_or("lengths of texts that add up to no number")? })
}

const SHORT: &str = "lengths of texts that end too early";

/// The sum of numbers of `DELTA_BINARY_PACKED`, none of which is below zero, and where they end.
fn sum(bytes: &[u8], count_max: u64) -> Result<(u64, usize), &'static str> {
    let mut at = 0;
    let block = varint(bytes, &mut at)?;
    let mini_blocks = varint(bytes, &mut at)?;
    let count = varint(bytes, &mut at)?;
    let mut value = zigzag(varint(bytes, &mut at)?);
    if count > count_max {
        return Err("more lengths of texts than values");
    }
    let is_whole = mini_blocks > 0 && block > 0 && block % mini_blocks == 0 && block <= 1 << 31;
    let of_mini_block = if is_whole { block / mini_blocks } else { 1 };
    if of_mini_block % 32 != 0 {
        return Err("blocks of lengths that are no multiple of 32");
    }
    if count == 0 {
        return Ok((0, at));
    }
    let mut total = u64::try_from(value).map_err(|_| "a length below zero")?;
    let mut left = count - 1;
    while left > 0 {
        let least = zigzag(varint(bytes, &mut at)?);
        let end = usize::try_from(mini_blocks).ok().and_then(|count| at.checked_add(count)).ok_or(SHORT)?;
        let widths = bytes.get(at..end).ok_or(SHORT)?;
        at = end;
        for width in widths {
            if left == 0 {
                break;
            }
            let width = u64::from(*width);
            if width > 64 {
                return Err("a length of more than 64 bits");
            }
            let packed = usize::try_from(width * of_mini_block / 8).map_err(|_| SHORT)?;
            let packed = bytes.get(at..at.checked_add(packed).ok_or(SHORT)?).ok_or(SHORT)?;
            for place in 0..of_mini_block.min(left) {
                value = value.wrapping_add(least).wrapping_add(bits(packed, place * width, width) as i64);
                // As the library has them: numbers of 32 bits.
                value = i64::from(value as i32);
                total = u64::try_from(value)
                    .ok()
                    .and_then(|value| total.checked_add(value))
                    .ok_or("a length below zero")?;
            }
            left -= of_mini_block.min(left);
            at += packed.len();
        }
    }
    Ok((total, at))
}

fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, &'static str> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(SHORT)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err("a number of more than 64 bits")
}

fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// `width` bits, 64 at most, from bit `from` on, the lowest first; `packed` has them all.
fn bits(packed: &[u8], from: u64, width: u64) -> u64 {
    let (first, shift) = ((from / 8) as usize, from % 8);
    let last = ((from + width).div_ceil(8)) as usize;
    let mut wide = [0; 16];
    wide[..last - first].copy_from_slice(&packed[first..last]);
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    (u128::from_le_bytes(wide) >> shift) as u64 & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths 3, 3, 5: a first value, and one block of 128 in 4 parts of 32 of which one is written, with 2 bits a delta.
    const THREE: [u8; 18] = [0x80, 1, 4, 3, 6, 0, 2, 0, 0, 0, 0b1000, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn lengths_are_added_up() {
        assert_eq!(sum(&THREE, 3), Ok((11, 18)));
        assert_eq!(lengths(&THREE, 2), Err("more lengths of texts than values"));
        assert_eq!(lengths(&THREE[..17], 3), Err(SHORT));
        let mut twice = THREE.to_vec();
        twice.extend(THREE);
        assert_eq!(prefixed(&twice, 3), Ok(Unpacked { bytes: 22 }));
    }

    #[test]
    fn a_few_bytes_that_say_billions_are_refused() {
        // A block of 2^31 values without bits: 2 147 483 648 lengths of 5.
        let many = [0x80, 0x80, 0x80, 0x80, 8, 1, 0x80, 0x80, 0x80, 0x80, 8, 10, 0, 0];
        assert_eq!(lengths(&many, 1000), Err("more lengths of texts than values"));
    }
}
