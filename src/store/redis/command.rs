//! Commands of Redis in its protocol: an array of strings.

/// Commands that are sent together and have one result. They are no steps, so no batch has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlainCommands {
    /// The bytes to send.
    pub(super) bytes: Vec<u8>,
    /// The number of commands.
    pub(super) replies: usize,
}

impl PlainCommands {
    /// One command.
    pub(super) fn one(words: &[&[u8]]) -> PlainCommands {
        PlainCommands { bytes: encode(words), replies: 1 }
    }

    /// All of `commands` or none: they are between `MULTI` and `EXEC`.
    pub(super) fn transaction(commands: &[&[&[u8]]]) -> PlainCommands {
        let (begin, end): ([&[u8]; 1], [&[u8]; 1]) = ([b"MULTI"], [b"EXEC"]);
        let mut bytes = encode(&begin);
        commands.iter().for_each(|words| bytes.extend(encode(words)));
        bytes.extend(encode(&end));
        PlainCommands { bytes, replies: commands.len() + 2 }
    }

    /// Whether these are several commands.
    pub(super) fn is_transaction(&self) -> bool {
        self.replies > 1
    }

    /// These commands after `ASKING`, which a node that imports the hash slot requires.
    pub(super) fn after_asking(&self) -> PlainCommands {
        let asking: [&[u8]; 1] = [b"ASKING"];
        let bytes = [encode(&asking), self.bytes.clone()].concat();
        PlainCommands { bytes, replies: self.replies + 1 }
    }
}

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

    #[test]
    fn a_transaction_has_a_reply_per_command() {
        let (set, delete): ([&[u8]; 3], [&[u8]; 2]) = ([b"SET", b"k", b"1"], [b"DEL", b"l"]);
        let transaction = PlainCommands::transaction(&[&set, &delete]);
        let expected = "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\n1\r\n\
                        *2\r\n$3\r\nDEL\r\n$1\r\nl\r\n*1\r\n$4\r\nEXEC\r\n";
        assert_eq!(transaction, PlainCommands { bytes: expected.into(), replies: 4 });
        assert!(transaction.is_transaction() && !PlainCommands::one(&set).is_transaction());
        let asking = transaction.after_asking();
        let expected = format!("*1\r\n$6\r\nASKING\r\n{expected}");
        assert_eq!(asking, PlainCommands { bytes: expected.into(), replies: 5 });
    }
}
