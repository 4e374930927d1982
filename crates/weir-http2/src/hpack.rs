//! Header compression (RFC 7541): a decoder of requests and an encoder of responses.

mod decoder;
mod dynamic_table;
mod encoder;
mod field;
mod huffman;
mod integer;
mod static_table;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::ResponseEncoder;
pub(crate) use field::FieldKind;
use field::NameKind;
