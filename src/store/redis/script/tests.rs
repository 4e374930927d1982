//! Tests of the encoding of steps and of the decoding of replies.

use super::*;
use crate::step::{EntriesTier, FixedWindowTier, GcraTier, LeaseId, SlidingWindowTier};
use crate::time::Micros;

fn step(hits: i64, lease: Option<Lease>, params: StepParams) -> Step {
    Step { now: Micros(0x0102_0304_0506_0708), hits, count_denied: true, lease, params }
}

fn fixed_window(hits: i64, lease: Option<Lease>) -> Step {
    let tier = FixedWindowTier::new(Micros(1), Micros(1), 3);
    step(hits, lease, StepParams::FixedWindow([tier].into_iter().collect()))
}

fn sliding_window() -> Step {
    let tier = SlidingWindowTier { start: Micros(1), window: Micros(2), rest: Micros(3), max: 4 };
    step(1, None, StepParams::SlidingWindow([tier; 2].into_iter().collect()))
}

fn body(step: &Step) -> Vec<u8> {
    EncodedStep::of(step).body.to_vec()
}

#[test]
fn a_step_is_encoded_as_the_scripts_read_it() {
    let id = LeaseId::from_bits(0x1122_3344_5566_7788);
    let mut step = fixed_window(-258, Some(Lease::Close(id)));
    step.now = Micros(0x0a_0b0c_0d0e_0f10);
    let expected = [
        &[3, 1][..],
        &[0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10],
        &[0, 0, 0, 0, 0, 1, 2],
        &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 3],
        &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],
        &[0; 7],
    ];
    let encoded = EncodedStep::of(&step);
    assert_eq!(encoded.body.to_vec(), expected.concat());
    assert_eq!((encoded.head, encoded.combinable, encoded.reply_len), ([b'c', 1], false, 15));
}

#[test]
fn plain_steps_take_hits_without_a_lease() {
    let close = Some(Lease::Close(LeaseId::from_bits(1)));
    let open = Some(Lease::Open { id: LeaseId::from_bits(1), until: Micros(9) });
    let tier = EntriesTier { after: Micros(1), window: Micros(1), max: 1 };
    let log = step(1, None, StepParams::Log([tier].into_iter().collect()));
    let plain =
        [fixed_window(1, None), sliding_window(), fixed_window(0, None), fixed_window(-1, None)];
    let others = [fixed_window(1, open), fixed_window(1, close), fixed_window(0, open), log];
    let are_plain = |steps: [Step; 4]| steps.map(|step| EncodedStep::of(&step).plain);
    assert_eq!(are_plain(plain), [true, true, false, false]);
    assert_eq!(are_plain(others), [false; 4]);
}

#[test]
fn only_taken_hits_open_a_lease() {
    let open = |id| Some(Lease::Open { id: LeaseId::from_bits(id), until: Micros(9) });
    let actions: Vec<u8> =
        [(5, None), (0, None), (-5, None), (5, open(1)), (0, open(1)), (-5, open(1))]
            .map(|(hits, lease)| body(&fixed_window(hits, lease))[0])
            .into();
    assert_eq!(actions, [0, 0, 1, 2, 0, 1]);
}

#[test]
fn a_refund_of_a_bucket_names_its_only_state() {
    let time = |micros| GcraTime { micros, part: 0 };
    let last = |hits, refund_only_at| {
        let tier = GcraTier {
            now: Micros(1),
            parts: 1,
            cost: time(2),
            emission_interval: time(2),
            latest_allowed: time(3),
            latest_denied: time(4),
            refund_only_at,
        };
        let params = StepParams::Gcra([tier].into_iter().collect());
        let body = body(&step(hits, None, params));
        body[body.len() - 14..].to_vec()
    };
    let encoded = |micros: u64| [&micros.to_be_bytes()[1..], &[0; 7]].concat();
    assert_eq!(last(1, Some(time(5))), encoded(4));
    assert_eq!(last(-1, Some(time(5))), encoded(5));
    assert_eq!(last(-1, None), encoded(INTEGER_END));
}

#[test]
fn a_number_too_large_for_a_double_is_clamped() {
    assert_eq!(body(&fixed_window(1, None))[2..9], INTEGER_END.to_be_bytes()[1..]);
}

fn reply(passes: &[u8], numbers: &[u64]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_be_bytes()[1..].to_vec());
    passes.iter().copied().chain(numbers).collect()
}

#[test]
fn a_reply_is_decoded_per_tier_and_all_must_allow() {
    let bytes = reply(&[1, 0], &[10, 20, 30, 11, 21, INTEGER_END - 1]);
    let outcome = decode(&sliding_window(), &bytes).expect("one byte and three numbers per tier");
    let result = |allowed, numbers| TierResult { allowed, numbers };
    let second = result(false, [11, 21, INTEGER_END - 1]);
    assert_eq!(outcome.tiers[..], [result(true, [10, 20, 30]), second]);
    assert!(!outcome.allowed);
    let outcome = decode(&fixed_window(1, None), &reply(&[1], &[7, 8]))
        .expect("two numbers for a fixed window");
    assert_eq!((outcome.allowed, outcome.tiers[0]), (true, result(true, [7, 8, 0])));
}

#[test]
fn unexpected_replies_are_malformed() {
    let replies = [
        vec![],
        reply(&[1], &[1]),
        reply(&[1], &[1, 2, 3]),
        reply(&[2], &[1, 1]),
        reply(&[255], &[1, 1]),
        reply(&[1], &[INTEGER_END, 1]),
        reply(&[1], &[1, u64::MAX]),
    ];
    for reply in replies {
        assert_eq!(decode(&fixed_window(1, None), &reply), Err(MalformedReply), "{reply:?}");
    }
    for counts in [[SLIDING_COUNT_END, 1], [1, SLIDING_COUNT_END]] {
        let reply = reply(&[1, 1], &[1, 1, 1, counts[0], counts[1], 1]);
        assert_eq!(decode(&sliding_window(), &reply), Err(MalformedReply), "{counts:?}");
    }
    let none = step(1, None, StepParams::Log([].into_iter().collect()));
    assert_eq!(decode(&none, &[]), Err(MalformedReply), "a step without tiers has no outcome");
    let tier = EntriesTier { after: Micros(1), window: Micros(1), max: 1 };
    let many = step(1, None, StepParams::Slots([tier; 17].into_iter().collect()));
    assert_eq!(EncodedStep::of(&many).head[1], 16);
    let short = reply(&[1; 16], &[1; 32]);
    assert_eq!(decode(&many, &short), Err(MalformedReply), "more tiers than a script takes");
}

#[test]
fn every_script_has_its_own_sha1() {
    for (index, script) in Script::ALL.into_iter().enumerate() {
        let end = script.source().trim_end().lines().last().expect("a line");
        assert!(end.starts_with("return "), "{script:?} is cut off: {end}");
        assert_eq!((script as usize, script.sha1().len()), (index, 40));
        let mut others = Script::ALL.into_iter().skip(index + 1);
        assert!(others.all(|other| other.sha1() != script.sha1()));
    }
}
