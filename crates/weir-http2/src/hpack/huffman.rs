//! The Huffman code of strings (RFC 7541, section 5.2 and appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of the symbols. So the
//! lengths alone define it. Codes of at most eight bits, which most text has, take one table lookup.

/// The length of each symbol's code in bits. The last symbol is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The symbol that ends the padding. A string must not contain it.
const EOS: u16 = 256;

const BITS_MAX: usize = 30;

/// The canonical code: symbols in the order of their codes, and per length the first code, the
/// number of codes, and the index of the first one's symbol.
struct Canonical {
    symbols: [u16; 257],
    first: [u32; BITS_MAX + 1],
    count: [u32; BITS_MAX + 1],
    index: [u32; BITS_MAX + 1],
}

static CANONICAL: Canonical = canonical();

/// For each byte: the symbol of the code with which it begins, and the length of that code; 0 if the
/// code has more than eight bits.
static SHORT: [(u8, u8); 256] = short(&canonical());

const fn canonical() -> Canonical {
    let mut all = Canonical {
        symbols: [0; 257],
        first: [0; BITS_MAX + 1],
        count: [0; BITS_MAX + 1],
        index: [0; BITS_MAX + 1],
    };
    let (mut bits, mut next, mut code) = (1, 0, 0_u32);
    while bits <= BITS_MAX {
        code <<= 1;
        all.first[bits] = code;
        all.index[bits] = next as u32;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == bits {
                all.symbols[next] = symbol as u16;
                next += 1;
                code += 1;
            }
            symbol += 1;
        }
        all.count[bits] = code - all.first[bits];
        bits += 1;
    }
    all
}

const fn short(all: &Canonical) -> [(u8, u8); 256] {
    let mut table = [(0, 0); 256];
    let mut bits = 1;
    while bits <= 8 {
        let mut code = 0;
        while code < all.count[bits] {
            let symbol = all.symbols[(all.index[bits] + code) as usize];
            let from = (all.first[bits] + code) << (8 - bits);
            let mut low = 0;
            while low < 1 << (8 - bits) {
                table[(from + low) as usize] = (symbol as u8, bits as u8);
                low += 1;
            }
            code += 1;
        }
        bits += 1;
    }
    table
}

/// Appends the decoded `input` to `out`; `None` if it has EOS, or if its padding is not the start of
/// EOS or is longer than seven bits. The output has at most 8/5 of the bytes of the input.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut bits, mut have, mut rest) = (0_u64, 0_u32, input);
    loop {
        while have <= 56
            && let Some((&byte, after)) = rest.split_first()
        {
            bits |= u64::from(byte) << (56 - have);
            have += 8;
            rest = after;
        }
        let (symbol, length) = SHORT[(bits >> 56) as usize];
        let length = u32::from(length);
        if length > 0 && length <= have {
            out.push(symbol);
            bits <<= length;
            have -= length;
            continue;
        }
        if have < 8 {
            let padding = !(u64::MAX >> have);
            return (bits == padding).then_some(());
        }
        let (symbol, length) = long(bits, have)?;
        out.push(symbol);
        bits <<= length;
        have -= length;
    }
}

/// The symbol of a code of more than eight bits at the top of `bits`, and its length.
fn long(bits: u64, have: u32) -> Option<(u8, u32)> {
    let lengths = 9..=BITS_MAX.min(have as usize);
    lengths.into_iter().find_map(|length| {
        let code = (bits >> (64 - length)) as u32;
        let offset = code.checked_sub(CANONICAL.first[length])?;
        if offset >= CANONICAL.count[length] {
            return None;
        }
        let symbol = CANONICAL.symbols[(CANONICAL.index[length] + offset) as usize];
        (symbol != EOS).then_some((symbol as u8, length as u32))
    })
}

/// Encodes `text`, for tests.
#[cfg(test)]
pub(super) fn encode(text: &[u8]) -> Vec<u8> {
    let (mut out, mut bits, mut have) = (Vec::new(), 0_u64, 0);
    for &byte in text {
        let length = usize::from(LENGTHS[usize::from(byte)]);
        let from = CANONICAL.index[length] as usize;
        let offset = CANONICAL.symbols[from..].iter().position(|&one| one == u16::from(byte));
        let code = CANONICAL.first[length] as usize + offset.expect("it has a code");
        bits = bits << length | code as u64;
        have += length;
        while have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    if have > 0 {
        out.push((bits << (8 - have)) as u8 | (0xff >> have));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn decoded(input: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    /// The examples of RFC 7541, appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_rfc_are_decoded() {
        let table: [(&[u8], &str); 5] = [
            (b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (b"\x64\x02", "302"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\
                  \x1b\xff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ];
        for (bytes, text) in table {
            assert_eq!(decoded(bytes).as_deref(), Some(text.as_bytes()));
            assert_eq!(encode(text.as_bytes()), bytes);
        }
        assert_eq!(decoded(b"").as_deref(), Some(&b""[..]));
    }

    #[test]
    fn the_code_is_that_of_the_rfc() {
        let code = |symbol: u16| {
            let at = CANONICAL.symbols.iter().position(|&one| one == symbol).unwrap();
            let length = usize::from(LENGTHS[usize::from(symbol)]);
            (CANONICAL.first[length] + at as u32 - CANONICAL.index[length], length)
        };
        for (symbol, expected) in [
            (0, (0x1ff8, 13)),
            (u16::from(b'0'), (0x0, 5)),
            (u16::from(b'~'), (0x1ffd, 13)),
            (249, (0xffffffe, 28)),
            (255, (0x3ffffee, 26)),
            (EOS, (0x3fffffff, 30)),
        ] {
            assert_eq!(code(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn wrong_padding_is_an_error() {
        for bytes in [
            &[0xff][..],
            &[0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xff],
            &[0x00, 0xff, 0xff],
            &[0b0000_0000],
            &[0b0001_1000],
        ] {
            assert_eq!(decoded(bytes), None, "{bytes:x?}");
        }
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Some(&b"0"[..]));
    }

    proptest! {
        #[test]
        fn text_is_decoded_as_it_was(text in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(decoded(&encode(&text)), Some(text));
        }

        #[test]
        fn output_is_in_proportion(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut out = Vec::new();
            let _ = decode(&input, &mut out);
            prop_assert!(out.len() * 5 <= input.len() * 8);
        }
    }
}
