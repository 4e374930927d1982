//! The wire format of protobuf, field by field, without a copy
//! (<https://protobuf.dev/programming-guides/encoding/>).

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'m> {
    /// A number of any size, a truth or a name from a list.
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'m [u8]),
    /// Something of a kind that no message of ours has.
    Other,
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// As the decoder says.
    #[error(transparent)]
    Field(#[from] DecodeError),
    /// A length exceeds the input.
    #[error("a field is longer than the message that it stands in")]
    Short,
}

/// Takes the next field off `message`: its number and what it holds. Nothing at the end.
pub(crate) fn next<'m>(message: &mut &'m [u8]) -> Result<Option<(u32, Value<'m>)>, Malformed> {
    if message.is_empty() {
        return Ok(None);
    }
    let (number, kind) = decode_key(message)?;
    let value = match kind {
        WireType::Varint => Value::Number(decode_varint(message)?),
        WireType::LengthDelimited => {
            let length = usize::try_from(decode_varint(message)?).unwrap_or(usize::MAX);
            let (content, rest) = message.split_at_checked(length).ok_or(Malformed::Short)?;
            *message = rest;
            Value::Bytes(content)
        }
        other => {
            skip_field(other, number, message, DecodeContext::default())?;
            Value::Other
        }
    };
    Ok(Some((number, value)))
}
