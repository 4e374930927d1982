//! Integers with a prefix (RFC 7541, section 5.1).

/// Reads the integer whose first byte has `bits` bits of it; `None` if it is incomplete or needs more
/// than 28 bits after the prefix.
pub(super) fn read(input: &mut &[u8], bits: u32) -> Option<usize> {
    let (&first, mut rest) = input.split_first()?;
    let max = (1_usize << bits) - 1;
    let mut value = usize::from(first) & max;
    if value == max {
        let mut shift = 0;
        loop {
            let (&byte, after) = rest.split_first()?;
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 21 {
                return None;
            }
        }
    }
    *input = rest;
    Some(value)
}

/// Appends `value` with a prefix of `bits` bits. `first` has the other bits of the first byte.
pub(super) fn write(out: &mut Vec<u8>, first: u8, bits: u32, mut value: usize) {
    let max = (1_usize << bits) - 1;
    if value < max {
        return out.push(first | value as u8);
    }
    out.push(first | max as u8);
    value -= max;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_read_and_written() {
        let table: [(u32, usize, &[u8]); 5] = [
            (5, 10, &[10]),
            (5, 1337, &[31, 154, 10]),
            (8, 42, &[42]),
            (7, 127, &[127, 0]),
            (4, 15 + (1 << 28) - 1, &[15, 0xff, 0xff, 0xff, 0x7f]),
        ];
        for (bits, value, bytes) in table {
            let mut out = Vec::new();
            write(&mut out, 0, bits, value);
            assert_eq!(out, bytes);
            let mut input = bytes;
            assert_eq!((read(&mut input, bits), input.len()), (Some(value), 0));
        }
    }

    #[test]
    fn long_and_incomplete_integers_are_errors() {
        for bytes in [&[][..], &[31], &[31, 0x80], &[31, 0x80, 0x80, 0x80, 0x80, 0]] {
            assert_eq!(read(&mut &bytes[..], 5), None, "{bytes:?}");
        }
    }
}
