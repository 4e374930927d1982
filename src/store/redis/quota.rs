//! The interface of `lua/quota.lua`: the argument of a settlement, and the holdings in its reply.
//!
//! `KEYS[1]` is the quota, `ARGV[1]` the settlement. The header of the file describes both.

use super::reply::ReplyBound;
use super::script::MalformedReply;
use crate::quota::{Change, HOLDERS_MAX, HolderId, Holding, LedgerSnapshot, Settlement};
use crate::step::INTEGER_END;
use crate::time::Micros;

/// Bytes of a number.
const NUMBER_BYTES: usize = 7;

/// Bytes of a holder's id.
const ID_BYTES: usize = 16;

/// Bytes of one holding in a reply: its holder, and five numbers.
const HOLDING_BYTES: usize = ID_BYTES + 5 * NUMBER_BYTES;

/// The bound of the reply to a settlement: one string with the holdings of all holders, or an error. It
/// has no elements.
pub(super) const SETTLED: ReplyBound =
    ReplyBound { bytes: HOLDERS_MAX * HOLDING_BYTES + 32, elements: 0 };

/// The argument of a settlement.
pub fn encode(settlement: &Settlement) -> Vec<u8> {
    let Settlement { now, requests, window, grace, changes } = settlement;
    let change_bytes = ID_BYTES + 4 * NUMBER_BYTES;
    let mut bytes = Vec::with_capacity(4 * NUMBER_BYTES + changes.len() * change_bytes);
    push_numbers(&mut bytes, [now.0, *requests, window.0, grace.0]);
    for Change { holder, share, held, want, expires } in changes {
        bytes.extend_from_slice(&id_bytes(holder.0));
        push_numbers(&mut bytes, [*share, *held, *want, expires.0]);
    }
    bytes
}

/// The holdings in the reply to a settlement.
///
/// # Errors
/// [`MalformedReply`] when the length, a number or a repeated holder cannot come from the script.
pub fn decode(reply: &[u8]) -> Result<LedgerSnapshot, MalformedReply> {
    let records = reply.chunks_exact(HOLDING_BYTES);
    if !records.remainder().is_empty() || records.len() > HOLDERS_MAX {
        return Err(MalformedReply);
    }
    let mut holdings = records.map(holding).collect::<Result<Vec<_>, _>>()?;
    holdings.sort_unstable_by_key(|(holder, _)| *holder);
    // Its readers search in it.
    if holdings.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(MalformedReply);
    }
    Ok(LedgerSnapshot { holdings })
}

fn holding(record: &[u8]) -> Result<(HolderId, Holding), MalformedReply> {
    let (holder, numbers) = record.split_at_checked(ID_BYTES).ok_or(MalformedReply)?;
    let mut numbers = numbers.chunks_exact(NUMBER_BYTES).map(number);
    let mut next = || numbers.next().unwrap_or(Err(MalformedReply));
    let holding = Holding {
        share: next()?,
        old_share: next()?,
        old_until: Micros(next()?),
        expires: Micros(next()?),
        want: next()?,
    };
    Ok((HolderId(id(holder)?), holding))
}

/// A number in seven bytes, below [`INTEGER_END`].
fn number(bytes: &[u8]) -> Result<u64, MalformedReply> {
    let number = bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
    if number < INTEGER_END { Ok(number) } else { Err(MalformedReply) }
}

/// Appends each number in seven bytes, big-endian: `I7` in the script.
fn push_numbers(bytes: &mut Vec<u8>, numbers: [u64; 4]) {
    for number in numbers {
        // Settlements have no larger numbers. The clamp keeps any other number exact in a double.
        bytes.extend_from_slice(&number.min(INTEGER_END - 1).to_be_bytes()[1..]);
    }
}

/// The bytes of an id of 128 bits, in the order of its bits, so that ids and their bytes have one order.
pub(super) fn id_bytes([high, low]: [u64; 2]) -> [u8; ID_BYTES] {
    ((u128::from(high) << u64::BITS) | u128::from(low)).to_be_bytes()
}

/// The id of these bytes.
pub(super) fn id(bytes: &[u8]) -> Result<[u64; 2], MalformedReply> {
    let bytes: [u8; ID_BYTES] = bytes.try_into().map_err(|_| MalformedReply)?;
    let bits = u128::from_be_bytes(bytes);
    Ok([(bits >> u64::BITS) as u64, bits as u64])
}

#[cfg(test)]
mod tests;
