//! A zero-copy reader of protobuf's wire format, field by field
//! (<https://protobuf.dev/programming-guides/encoding/>).

use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'m> {
    /// A varint: an integer, a boolean or an enum value.
    Number(u64),
    /// A string, bytes or an embedded message.
    Bytes(&'m [u8]),
    /// A value of another wire type, which none of weir's messages uses.
    Other,
}

/// Why bytes are not a protobuf message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// An error of prost's decoder.
    #[error(transparent)]
    Field(#[from] DecodeError),
    /// A length that exceeds the input.
    #[error("a field is longer than its message")]
    Short,
}

/// Removes the next field from `message` and returns its number and value; `None` at the end.
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
