//! Commands of Redis in its protocol: an array of strings.

/// The bytes of one command.
pub(super) fn encode(words: &[&[u8]]) -> Vec<u8> {
    let length: usize = words.iter().map(|word| word.len() + 16).sum();
    let mut bytes = Vec::with_capacity(16 + length);
    push_number(&mut bytes, b'*', words.len());
    for word in words {
        push_number(&mut bytes, b'$', word.len());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Appends a line of `kind` and a number.
fn push_number(bytes: &mut Vec<u8>, kind: u8, mut number: usize) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    bytes.push(kind);
    bytes.extend_from_slice(&digits[first..]);
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_strings() {
        let long = "a".repeat(1_234);
        let words: [&[u8]; 4] = [b"SET", b"", b"a\r\nb", long.as_bytes()];
        let expected = format!("*4\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n$1234\r\n{long}\r\n");
        assert_eq!(encode(&words), expected.into_bytes());
    }
}
