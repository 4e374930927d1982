//! The texts of a counter in the form in which they are kept: a byte that says whether they are cut,
//! then each text after its length.

use crate::descriptor::Entry;
use crate::rules::Rule;

/// The most bytes that the texts of one counter take. Longer ones are cut.
pub const TEXTS_BYTES_MAX: usize = 1024;

/// The first byte of whole texts, and of texts that were cut.
const WHOLE: u8 = b'=';
const CUT: u8 = b'~';

/// Bytes of a length: a number in network byte order.
const LENGTH_BYTES: usize = 2;

/// The texts by which a counter differs from the others of its rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterTexts {
    /// The texts, in the order of [`Rule::counted_labels`]. The last ones may be missing if they are
    /// cut.
    pub texts: Vec<String>,
    /// Whether they were longer than [`TEXTS_BYTES_MAX`].
    pub is_cut: bool,
}

/// The texts of the counter of a descriptor that matches `rule`.
pub(super) fn encode(rule: &Rule, entries: &[Entry<'_>]) -> Box<[u8]> {
    let mut bytes = vec![WHOLE];
    rule.counted_texts(entries, |text| add(&mut bytes, text));
    bytes.into()
}

fn add(bytes: &mut Vec<u8>, text: &str) {
    let Some(room) = TEXTS_BYTES_MAX.checked_sub(bytes.len() + LENGTH_BYTES) else {
        bytes[0] = CUT;
        return;
    };
    let mut end = text.len().min(room);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    if end < text.len() {
        bytes[0] = CUT;
    }
    bytes.extend_from_slice(&(end as u16).to_be_bytes());
    bytes.extend_from_slice(&text.as_bytes()[..end]);
}

impl CounterTexts {
    /// The texts in `bytes`; `None` if these are not what `encode` writes.
    pub(super) fn decode(bytes: &[u8]) -> Option<CounterTexts> {
        if bytes.len() > TEXTS_BYTES_MAX {
            return None;
        }
        let (first, mut rest) = bytes.split_first()?;
        let is_cut = match *first {
            WHOLE => false,
            CUT => true,
            _ => return None,
        };
        let mut texts = Vec::new();
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<LENGTH_BYTES>()?;
            let length = usize::from(u16::from_be_bytes(*length));
            let (text, after) = after.split_at_checked(length)?;
            texts.push(std::str::from_utf8(text).ok()?.to_owned());
            rest = after;
        }
        Some(CounterTexts { texts, is_cut })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn encoded(texts: &[&str]) -> Vec<u8> {
        let mut bytes = vec![WHOLE];
        texts.iter().for_each(|text| add(&mut bytes, text));
        bytes
    }

    fn decoded(texts: &[&str]) -> CounterTexts {
        CounterTexts::decode(&encoded(texts)).expect("what was encoded")
    }

    #[test]
    fn texts_of_any_content_come_back() {
        for texts in [
            &[""][..],
            &[],
            &["ann"],
            &["a", "", "b"],
            &["gr\u{fc}n\0\r\n\"=,~", "\u{1f600}"],
            &["=", "~"],
        ] {
            let back = decoded(texts);
            assert_eq!(back.texts, texts);
            assert!(!back.is_cut);
        }
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let room = TEXTS_BYTES_MAX - 1 - LENGTH_BYTES;
        let fits = "x".repeat(room);
        assert_eq!(decoded(&[&fits]), CounterTexts { texts: vec![fits.clone()], is_cut: false });
        let cut = decoded(&[&format!("{fits}y")]);
        assert_eq!(cut, CounterTexts { texts: vec![fits.clone()], is_cut: true });
        let wide = format!("{}\u{fc}", &fits[1..]);
        assert_eq!(wide.len(), room + 1);
        assert_eq!(decoded(&[&wide]).texts, [&fits[1..]]);
        let many = ["x"; 500];
        let cut = decoded(&many);
        assert!(cut.is_cut && cut.texts.len() < many.len(), "{}", cut.texts.len());
        assert!(encoded(&many).len() <= TEXTS_BYTES_MAX);
    }

    proptest! {
        /// Bytes that are texts are the only ones of these texts.
        #[test]
        fn bytes_and_texts_agree(
            is_cut in any::<bool>(),
            texts in vec(("[a\u{fc}\0=~]{0,4}", 0..9_u8), 0..5),
            tail in vec(any::<u8>(), 0..4),
        ) {
            let mut bytes = vec![if is_cut { CUT } else { WHOLE }];
            for (text, length) in &texts {
                // Some lengths are wrong.
                let right = text.len() as u8;
                bytes.extend([0, if *length < 7 { right } else { *length }]);
                bytes.extend(text.as_bytes());
            }
            bytes.extend(&tail);
            if let Some(read) = CounterTexts::decode(&bytes) {
                let mut again = vec![if read.is_cut { CUT } else { WHOLE }];
                read.texts.iter().for_each(|text| add(&mut again, text));
                prop_assert_eq!(again, bytes);
            } else {
                let is_right = texts.iter().all(|(_, length)| *length < 7) && tail.is_empty();
                prop_assert!(!is_right, "{:?}", bytes);
            }
        }
    }

    #[test]
    fn other_bytes_are_no_texts() {
        let too_long = vec![WHOLE; TEXTS_BYTES_MAX + 1];
        for bytes in [&b""[..], b"x", b"=\0", b"=\0\x02a", b"=\0\x01\xff", b"=\0\x01ab", &too_long]
        {
            assert_eq!(CounterTexts::decode(bytes), None, "{bytes:?}");
        }
    }
}
