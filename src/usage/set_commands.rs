//! The commands that write and read sorted sets of names, and their replies.

use super::counter_texts::TEXTS_BYTES_MAX;
use super::name_set::{NameList, StoredName};
use crate::key::CounterKey;
use crate::store::RedisValue;
use crate::time::Micros;

/// How much longer Redis keeps a set than its last name counts, for callers whose clocks are behind.
const SPARE: Micros = Micros::SECOND;

/// No name is kept until this instant, in the year 2255: a score is a double, which represents instants
/// before it exactly.
pub(super) const INSTANTS_END: Micros = Micros(1 << 53);

/// Bytes of a counter's key in a member. In this form, keys sort as numbers.
const KEY_BYTES: usize = 16;

/// The words of one command.
type CommandWords = Vec<Vec<u8>>;

/// The commands that add `names` to the set `name`, drop what is out of date at `now`, and keep the
/// `most` names with the longest time.
pub(super) fn write(
    name: &str,
    names: &[StoredName],
    now: Micros,
    most: usize,
) -> [CommandWords; 5] {
    // `GT`: an instance whose clock is behind does not shorten the time of a name.
    let mut add = words(["ZADD", name, "GT"]);
    for one in names {
        add.extend([one.until.0.to_string().into_bytes(), member(one)]);
    }
    let last = names.iter().map(|one| one.until).max().unwrap_or_default();
    let millis = last.saturating_sub(now).saturating_add(SPARE).0.div_ceil(1_000).to_string();
    let over = format!("-{}", most.saturating_add(1));
    [
        add,
        words(["ZREMRANGEBYSCORE", name, "-inf", &now.0.to_string()]),
        words(["ZREMRANGEBYRANK", name, "0", &over]),
        // `GT` alone leaves a new set without an expiry, which counts as infinite.
        words(["PEXPIRE", name, &millis, "NX"]),
        words(["PEXPIRE", name, &millis, "GT"]),
    ]
}

/// The command that reads at most `most` names of the set `name` that are kept at least until `from`.
pub(super) fn read(name: &str, from: Micros, most: usize) -> CommandWords {
    let (from, most) = (from.0.to_string(), most.to_string());
    words(["ZRANGE", name, &from, "+inf", "BYSCORE", "LIMIT", "0", &most, "WITHSCORES"])
}

/// The members in the reply to [`read`]; `None` if it is no list of members with scores.
pub(super) fn decode(reply: &RedisValue) -> Option<NameList> {
    let items = reply.list()?;
    let pairs = items.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let mut list = NameList::default();
    for pair in pairs {
        let RedisValue::Bytes(member) = &pair[0] else { return None };
        let score: f64 = pair[1].text()?.parse().ok()?;
        match stored_name(member, score) {
            Some(name) => list.names.push(name),
            None => list.unreadable.push(Micros(score as u64)),
        }
    }
    Some(list)
}

/// `None` if no weir of this version writes such a member.
fn stored_name(member: &[u8], score: f64) -> Option<StoredName> {
    let (key, texts) = member.split_first_chunk::<KEY_BYTES>()?;
    let key = u128::from_be_bytes(*key);
    let is_instant = score >= 0.0 && score < INSTANTS_END.0 as f64 && score.fract() == 0.0;
    let is_name = is_instant && texts.len() <= TEXTS_BYTES_MAX;
    is_name.then(|| StoredName {
        key: CounterKey([(key >> 64) as u64, key as u64]),
        until: Micros(score as u64),
        texts: texts.into(),
    })
}

fn member(name: &StoredName) -> Vec<u8> {
    let [first, second] = name.key.0.map(u64::to_be_bytes);
    [&first[..], &second[..], &name.texts[..]].concat()
}

fn words<const N: usize>(words: [&str; N]) -> CommandWords {
    words.map(|word| word.as_bytes().to_vec()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64, until: u64, texts: &str) -> StoredName {
        let key = CounterKey([0x6b6b_6b6b_6b6b_6b6b, 0x3030_3030_3030_3030 + number]);
        StoredName { key, until: Micros(until), texts: texts.as_bytes().into() }
    }

    fn shown(command: &CommandWords) -> String {
        let words = command.iter().map(|word| String::from_utf8_lossy(word).into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_write_adds_and_removes_and_expires() {
        let names = [name(0, 9_000_001, "=a"), name(1, 8_000_000, "=b")];
        let commands = write("k", &names, Micros(5_000_000), 7_812);
        let expected = [
            "ZADD k GT 9000001 kkkkkkkk00000000=a 8000000 kkkkkkkk00000001=b",
            "ZREMRANGEBYSCORE k -inf 5000000",
            "ZREMRANGEBYRANK k 0 -7813",
            "PEXPIRE k 5001 NX",
            "PEXPIRE k 5001 GT",
        ];
        assert_eq!(commands.each_ref().map(shown), expected);
    }

    #[test]
    fn a_read_asks_for_names_by_instant() {
        let expected = "ZRANGE k 7 +inf BYSCORE LIMIT 0 500 WITHSCORES";
        assert_eq!(shown(&read("k", Micros(7), 500)), expected);
    }

    #[test]
    fn names_come_back() {
        let names = [name(0, 1_785_000_000_000_001, "=a"), name(9, (1 << 53) - 1, "\0\u{fc}")];
        let items = names.iter().flat_map(|one| {
            let score = one.until.0.to_string().into_bytes();
            [RedisValue::Bytes(member(one)), RedisValue::Bytes(score)]
        });
        let list = NameList { names: names.to_vec(), unreadable: Vec::new() };
        assert_eq!(decode(&RedisValue::List(items.collect())), Some(list));
        assert_eq!(decode(&RedisValue::List(Vec::new())), Some(NameList::default()));
    }

    fn text(text: &str) -> RedisValue {
        RedisValue::Bytes(text.as_bytes().to_vec())
    }

    fn some_member() -> RedisValue {
        text("0123456789abcdef=a")
    }

    /// Members of another program stand beside names, and do not hide them.
    #[test]
    fn other_members_are_unreadable() {
        let long = text(&"x".repeat(KEY_BYTES + TEXTS_BYTES_MAX + 1));
        for (other, score, instant) in [
            (text("0123456789abcde"), "1", 1),
            (text(""), "7", 7),
            (long, "1", 1),
            (some_member(), "-1", 0),
            (some_member(), "1.5", 1),
            (some_member(), "9007199254740992", 1 << 53),
            (some_member(), "inf", u64::MAX),
        ] {
            let items = vec![some_member(), text("5"), other, text(score)];
            let list = decode(&RedisValue::List(items)).expect("a list");
            assert_eq!(list.names.len(), 1, "{score}");
            assert_eq!(list.names[0].until, Micros(5));
            assert_eq!(list.unreadable, [Micros(instant)], "{score}");
        }
    }

    #[test]
    fn other_replies_are_no_lists() {
        for reply in [
            RedisValue::Nil,
            text("x"),
            RedisValue::List(vec![some_member()]),
            RedisValue::List(vec![some_member(), RedisValue::Nil]),
            RedisValue::List(vec![RedisValue::Integer(1), text("1")]),
            RedisValue::List(vec![some_member(), text("x")]),
        ] {
            assert_eq!(decode(&reply), None, "{reply:?}");
        }
    }
}
