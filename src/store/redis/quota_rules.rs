//! The commands that announce the rules whose quotas are divided, and that ask for them.
//!
//! The rules are a sorted set of rule ids. The score of a rule is the instant from which it is out of
//! date. So a command can ask for a bounded number of current rules, and remove the others.

use super::quota::{id, id_bytes};
use super::reply::{Reply, ReplyBound};
use super::script::MalformedReply;
use crate::key::RuleId;
use crate::time::Micros;

/// The most rules that are announced at once, and that a reply names. Each is an element of the reply.
pub const QUOTA_RULES_MAX: usize = ReplyBound::USUAL.elements;

/// Rules per command that announces them.
const RULES_PER_COMMAND: usize = 1_000;

/// How much longer Redis keeps the rules than the last one counts, for callers whose clocks are behind.
const SPARE: Micros = Micros::SECOND;

/// The words of one command.
type Words = Vec<Vec<u8>>;

/// The commands that announce `rules` until `until` under the key `name`, in their order. They also
/// remove the rules that are out of date at `now`.
pub(super) fn announcement(name: &str, rules: &[RuleId], now: Micros, until: Micros) -> Vec<Words> {
    let score = until.0.to_string().into_bytes();
    let addition = |rules: &[RuleId]| {
        // `GT`: an instance whose clock is behind does not shorten the time of another one.
        let mut all = words(["ZADD", name, "GT"]);
        for rule in rules {
            all.extend([score.clone(), id_bytes(rule.0).to_vec()]);
        }
        all
    };
    let rules = &rules[..rules.len().min(QUOTA_RULES_MAX)];
    let millis = until.saturating_sub(now).saturating_add(SPARE).0.div_ceil(1_000);
    let mut commands = vec![words(["ZREMRANGEBYSCORE", name, "-inf", &now.0.to_string()])];
    commands.extend(rules.chunks(RULES_PER_COMMAND).map(addition));
    commands.push(words(["PEXPIRE", name, &millis.to_string()]));
    commands
}

/// The command that asks for the rules under the key `name` that are current at `now`, those with the
/// longest time first.
pub(super) fn query(name: &str, now: Micros) -> Words {
    let (after, most) = (format!("({}", now.0), QUOTA_RULES_MAX.to_string());
    words(["ZRANGE", name, "+inf", &after, "BYSCORE", "REV", "LIMIT", "0", &most])
}

/// The rules in the reply to [`query`].
///
/// # Errors
/// [`MalformedReply`] when it is no list of ids.
pub(super) fn decode(reply: &Reply) -> Result<Vec<RuleId>, MalformedReply> {
    let Reply::Array(members) = reply else { return Err(MalformedReply) };
    let rule = |member: &Reply| match member {
        Reply::Text(bytes) => id(bytes).map(RuleId),
        _ => Err(MalformedReply),
    };
    members.iter().map(rule).collect()
}

fn words<const N: usize>(words: [&str; N]) -> Words {
    words.map(|word| word.as_bytes().to_vec()).into()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn shown(command: &Words) -> String {
        let words = command.iter().map(|word| String::from_utf8_lossy(word).into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_announcement_is_split_into_commands() {
        let rule = |number: u64| RuleId([0x2e2e_2e2e_2e2e_2e2e, 0x3030_3030_3030_3030 + number]);
        let of = |rules: &[RuleId]| -> Vec<Words> {
            announcement("k", rules, Micros(5_000_001), Micros(9_000_000))
        };
        let two = of(&[rule(0), rule(1)]);
        let expected = [
            "ZREMRANGEBYSCORE k -inf 5000001",
            "ZADD k GT 9000000 ........00000000 9000000 ........00000001",
            "PEXPIRE k 5000",
        ];
        assert_eq!(two.iter().map(shown).collect::<Vec<_>>(), expected);
        let many: Vec<RuleId> = (0..QUOTA_RULES_MAX as u64 + 5_000).map(rule).collect();
        let commands = of(&many);
        let added: usize = commands[1..commands.len() - 1].iter().map(|one| one.len() - 3).sum();
        assert_eq!(added, 2 * QUOTA_RULES_MAX);
        assert!(commands.iter().all(|one| one.len() <= 3 + 2 * RULES_PER_COMMAND));
    }

    #[test]
    fn the_query_asks_for_what_a_reply_may_have() {
        let expected = format!("ZRANGE k +inf (7 BYSCORE REV LIMIT 0 {QUOTA_RULES_MAX}");
        assert_eq!(shown(&query("k", Micros(7))), expected);
    }

    #[test]
    fn only_a_list_of_ids_names_rules() {
        let text = |text: &'static str| Reply::Text(Bytes::from_static(text.as_bytes()));
        let rule = RuleId([0x3031_3233_3435_3637, 0x3839_6162_6364_6566]);
        let good = Reply::Array(vec![text("0123456789abcdef")]);
        assert_eq!(decode(&good), Ok(vec![rule]));
        assert_eq!(decode(&Reply::Array(Vec::new())), Ok(Vec::new()));
        let bad = [
            Reply::Nil,
            text("0123456789abcdef"),
            Reply::Array(vec![text("0123456789abcde")]),
            Reply::Array(vec![text("0123456789abcdef"), text("0123456789abcdefg")]),
            Reply::Array(vec![Reply::Integer(1)]),
        ];
        for reply in bad {
            assert_eq!(decode(&reply), Err(MalformedReply), "{reply:?}");
        }
    }
}
