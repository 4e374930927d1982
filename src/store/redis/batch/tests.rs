//! Tests of batches: runs, calls, and the split of replies.

use super::*;
use crate::step::{
    EntriesTier, FixedWindow, FixedWindowTier, Lease, LeaseId, State, Step, StepParams, TierStates,
};
use crate::store::redis::script::decode;
use crate::time::Micros;

fn count(tiers: usize, lease: bool) -> EncodedStep {
    let tier = FixedWindowTier::new(Micros(1), Micros(1), 3);
    encoded(StepParams::FixedWindow((0..tiers).map(|_| tier).collect()), lease)
}

/// A step that takes hits of one window.
fn takes(hits: i64, now: Micros) -> EncodedStep {
    EncodedStep::of(&step(hits, now, false))
}

fn step(hits: i64, now: Micros, count_denied: bool) -> Step {
    let tier = FixedWindowTier::new(Micros(1), Micros(1), 3);
    let params = StepParams::FixedWindow([tier].into_iter().collect());
    Step { now, hits, count_denied, lease: None, params }
}

fn log() -> EncodedStep {
    let tier = EntriesTier { after: Micros(1), window: Micros(2), max: 3 };
    encoded(StepParams::Log([tier].into_iter().collect()), true)
}

fn encoded(params: StepParams, lease: bool) -> EncodedStep {
    let lease = lease.then_some(Lease::Close(LeaseId::from_bits(1)));
    EncodedStep::of(&Step { now: Micros(1), hits: 1, count_denied: false, lease, params })
}

/// The items of every run of every call, and the number of steps that must wait.
fn packed(max: usize, steps: &[(u16, &'static str, EncodedStep)]) -> (Vec<Vec<Vec<usize>>>, usize) {
    let mut batch = StepBatch::new(max);
    let added = steps
        .iter()
        .enumerate()
        .position(|(item, (group, key, encoded))| batch.add(*group, key, encoded, item).is_err());
    let runs = |call: ScriptCall<&str, usize>| {
        let items = |run: Run<_, usize>| run.steps.into_iter().map(|(item, _)| item).collect();
        call.runs.into_iter().map(items).collect()
    };
    let calls = batch.into_calls().into_iter().map(runs).collect();
    (calls, steps.len() - added.unwrap_or(steps.len()))
}

#[test]
fn steps_on_one_counter_form_a_run_in_order() {
    let [one, two] = [count(1, false), count(2, false)];
    let (a, b) = (|encoded: &EncodedStep| (0, "a", encoded.clone()), (0, "b", one.clone()));
    /// The runs of each call, as numbers of steps.
    type Runs = Vec<Vec<Vec<usize>>>;
    let table: [(usize, Vec<_>, Runs, usize); 8] = [
        (9, vec![], vec![], 0),
        (9, vec![a(&one), b.clone(), a(&one)], vec![vec![vec![0, 2], vec![1]]], 0),
        // Another number of tiers, or a lease: a separate run in the same call.
        (9, vec![a(&one), a(&two), a(&two)], vec![vec![vec![0], vec![1, 2]]], 0),
        (
            9,
            vec![a(&one), a(&count(1, true)), a(&count(1, true)), a(&one)],
            vec![vec![vec![0], vec![1], vec![2], vec![3]]],
            0,
        ),
        // Leases on entry lists join the run of the others.
        (9, vec![a(&log()), a(&log())], vec![vec![vec![0, 1]]], 0),
        // Another script must wait for the counter's earlier steps, and so must all later
        // steps.
        (9, vec![a(&one), b.clone(), a(&log()), b.clone()], vec![vec![vec![0], vec![1]]], 2),
        // A full call: other counters start another one, its own counters wait.
        (2, vec![a(&one), a(&one), b.clone()], vec![vec![vec![0, 1]], vec![vec![2]]], 0),
        (2, vec![a(&one), a(&one), a(&one), b.clone()], vec![vec![vec![0, 1]]], 2),
    ];
    for (max, steps, calls, later) in table {
        let shown = format!("{max} {steps:?}");
        assert_eq!(packed(max, &steps), (calls, later), "{shown}");
    }
}

#[test]
fn groups_and_scripts_need_separate_calls() {
    let steps = [
        (1, "a", count(1, false)),
        (2, "b", count(1, false)),
        (1, "c", count(1, false)),
        (1, "d", log()),
    ];
    let calls = vec![vec![vec![0], vec![2]], vec![vec![1]], vec![vec![3]]];
    assert_eq!(packed(9, &steps), (calls, 0));
}

#[test]
fn a_reply_is_split_by_length() {
    let call = || {
        let mut batch = StepBatch::new(9);
        for (item, (key, hits)) in [("a", 1), ("b", 1), ("a", 2), ("c", 1)].into_iter().enumerate()
        {
            batch.add(0, &key, &takes(hits, Micros(1)), item).expect("there is room");
        }
        batch.into_calls().remove(0)
    };
    assert_eq!((call().steps(), call().combined()), (4, 2));
    let split = |reply: &[u8]| {
        let mut parts = Vec::new();
        call().split_reply(reply, |item, part| {
            parts.push((
                item,
                match part {
                    StepReply::Outcome(bytes) => usize::from(bytes[14]),
                    StepReply::Unreadable => 100,
                    StepReply::Malformed => 200,
                },
            ));
        });
        parts
    };
    let one = |mark: u8| [&[1][..], &[0; 13], &[mark]].concat();
    let all = [one(1), one(2), one(3), one(4)].concat();
    assert_eq!(split(&all), [(0, 1), (2, 2), (1, 3), (3, 4)]);
    let unreadable = [&[UNREADABLE][..], &one(3), &[UNREADABLE]].concat();
    assert_eq!(split(&unreadable), [(0, 100), (2, 100), (1, 3), (3, 100)]);
    assert_eq!(split(&all[..50]), [(0, 1), (2, 2), (1, 3), (3, 200)]);
    assert_eq!(split(&[]), [(0, 200), (2, 200), (1, 200), (3, 200)]);
}

/// The steps of each run, and the bytes of its argument.
fn runs_of(steps: &[EncodedStep]) -> Vec<(usize, usize)> {
    let mut batch = StepBatch::new(99);
    for encoded in steps {
        batch.add(0, &"a", encoded, ()).expect("there is room");
    }
    let calls = batch.into_calls();
    let runs = calls.iter().flat_map(|call| &call.runs);
    runs.map(|run| (run.steps.len(), run.argument.len())).collect()
}

#[test]
fn equal_steps_are_sent_as_one_and_a_number() {
    let [one, later, far, two, peek, back] = [(1, 1), (1, 5), (1, 16_002), (2, 1), (0, 1), (-1, 1)]
        .map(|(hits, now)| takes(hits, Micros(now)));
    let denied = EncodedStep::of(&step(1, Micros(1), true));
    let [a, b] = [count(1, false), count(2, false)];
    assert_eq!(a, one);
    /// Steps, and the number of steps and bytes of each run.
    type Case<'a> = (&'a [&'a EncodedStep], &'a [(usize, usize)]);
    let table: [Case<'_>; 11] = [
        (&[&one], &[(1, 39)]),
        (&[&one, &later], &[(2, 46)]),
        (&[&one, &later, &one, &later], &[(4, 46)]),
        // Another step needs another run, and a run of unequal steps takes equal ones too.
        (&[&one, &later, &two, &two], &[(2, 46), (2, 46)]),
        (&[&one, &two, &two], &[(3, 113)]),
        (&[&one, &far], &[(2, 76)]),
        (&[&one, &later, &denied], &[(2, 46), (1, 39)]),
        (&[&back, &one], &[(2, 76)]),
        (&[&peek, &peek], &[(2, 76)]),
        (&[&b, &b], &[(2, 118)]),
        (&[&log(), &log()], &[(2, 106)]),
    ];
    for (steps, runs) in table {
        let steps: Vec<EncodedStep> = steps.iter().map(|&step| step.clone()).collect();
        assert_eq!(runs_of(&steps), runs, "{steps:?}");
    }
}

/// A value of fixed_window, as the scripts reply to a repeated step.
fn value(count: u64, start: u64) -> Vec<u8> {
    [b"c\x01", &count.to_be_bytes()[1..], &start.to_be_bytes()[1..], &[0; 7]].concat()
}

/// The outcomes are those of the steps one by one, for any state.
#[test]
fn a_repeated_step_has_the_outcomes_of_single_ones() {
    let table = [(0, 1, false), (2, 1, false), (2, 1, true), (3, 2, false), (0, 9, true)];
    for (count, hits, count_denied) in table {
        let steps: Vec<Step> =
            (0..4).map(|now| step(hits, Micros(1 + now), count_denied)).collect();
        let mut batch = StepBatch::new(9);
        for step in &steps {
            batch.add(0, &"a", &EncodedStep::of(step), step).expect("there is room");
        }
        let call = batch.into_calls().remove(0);
        let window = FixedWindow { start: Micros(1), count };
        let mut state = Some(State::FixedWindow(TierStates::One(window)));
        let reply = value(count, 1);
        let mut replies = 0;
        call.split_reply(&reply, |step, reply| {
            let StepReply::Outcome(bytes) = reply else { panic!("{reply:?}") };
            assert_eq!(decode(step, bytes), Ok(step.apply(&mut state)), "{count} {step:?}");
            replies += 1;
        });
        assert_eq!(replies, steps.len());
    }
}

#[test]
fn a_malformed_reply_to_a_repeated_step_is_refused() {
    let many = (1 << 56) - 1;
    let table = [
        (vec![2], StepReply::Unreadable),
        (value(0, 1)[..22].to_vec(), StepReply::Malformed),
        ([b"p\x01", &value(0, 1)[2..]].concat(), StepReply::Malformed),
        ([b"c\x02", &value(0, 1)[2..]].concat(), StepReply::Malformed),
        (value(many, 1), StepReply::Malformed),
        (value(0, many), StepReply::Malformed),
    ];
    for (reply, expected) in table {
        let mut batch = StepBatch::new(9);
        (0..2).for_each(|_| batch.add(0, &"a", &count(1, false), ()).expect("there is room"));
        let mut parts = 0;
        batch.into_calls().remove(0).split_reply(&reply, |(), part| {
            assert_eq!(part, expected, "{reply:?}");
            parts += 1;
        });
        assert_eq!(parts, 2);
    }
}

#[test]
fn mget_needs_small_counters_with_one_run_each() {
    let [one, two, lease] = [count(1, false), count(2, false), count(1, true)];
    let peek = EncodedStep { plain: false, ..count(1, false) };
    let table: [(&[(&str, &EncodedStep)], bool); 7] = [
        (&[("a", &one)], false),
        (&[("a", &one), ("a", &one)], false),
        (&[("a", &one), ("b", &two), ("a", &one)], true),
        (&[("a", &one), ("b", &one), ("a", &two)], false),
        (&[("a", &one), ("b", &lease)], false),
        (&[("a", &one), ("b", &one), ("b", &peek)], false),
        (&[("a", &log()), ("b", &log())], false),
    ];
    for (steps, mget) in table {
        let mut batch = StepBatch::new(9);
        for (key, encoded) in steps {
            batch.add(0, key, encoded, ()).expect("there is room");
        }
        let call = batch.into_calls().remove(0);
        let expected = call.keys().count() + usize::from(mget);
        assert_eq!(call.arguments().count(), expected, "{steps:?}");
    }
}

/// The counters of a call in their order, the bytes of each argument, and the last argument.
fn shape(steps: &[(&'static str, &EncodedStep)]) -> (String, Vec<usize>, Vec<u8>) {
    let mut batch = StepBatch::new(99);
    for (key, encoded) in steps {
        batch.add(0, key, encoded, ()).expect("there is room");
    }
    let call = batch.into_calls().remove(0);
    let arguments: Vec<&[u8]> = call.arguments().collect();
    let (last, runs) = arguments.split_last().expect("a run");
    (call.keys().copied().collect(), runs.iter().map(|run| run.len()).collect(), last.to_vec())
}

#[test]
fn counters_with_equal_runs_share_an_argument() {
    let [one, later, last, far, two] = [(1, 1), (1, 5), (1, 16_001), (1, 16_002), (2, 1)]
        .map(|(hits, now)| takes(hits, Micros(now)));
    let (denied, tiers) = (EncodedStep::of(&step(1, Micros(1), true)), count(2, false));
    /// Steps; the counters in their order, the bytes of the arguments but the last one, and that one.
    type Case<'a> = (&'a [(&'static str, &'a EncodedStep)], &'static str, &'a [usize], &'a [u8]);
    let table: [Case<'_>; 8] = [
        (&[("a", &one), ("b", &later), ("c", &last)], "abc", &[46], &[0, 3]),
        // Two arguments and the sizes would not be fewer than three arguments.
        (&[("a", &one), ("b", &two), ("c", &one)], "abc", &[39; 3], &[]),
        (
            &[("a", &one), ("b", &two), ("c", &one), ("d", &two), ("e", &two)],
            "acbde",
            &[46; 2],
            &[0, 2, 0, 3],
        ),
        // The number of equal steps must be the same.
        (
            &[("a", &one), ("b", &one), ("a", &one), ("c", &one), ("d", &one), ("d", &later)],
            "adbc",
            &[46; 2],
            &[0, 2, 0, 2],
        ),
        (
            &[("a", &one), ("b", &far), ("c", &denied), ("d", &one), ("e", &one)],
            "adebc",
            &[46; 3],
            &[0, 3, 0, 1, 0, 1],
        ),
        // Runs that repeat no step are groups by themselves.
        (
            &[("a", &one), ("b", &tiers), ("c", &one), ("d", &tiers), ("e", &one)],
            "acebd",
            &[46, 60, 60],
            &[0, 3, 0, 1, 0, 1],
        ),
        (
            &[("a", &one), ("a", &two), ("b", &one), ("c", &one), ("d", &one)],
            "abcd",
            &[76, 46],
            &[0, 1, 0, 3],
        ),
        (&[("a", &one), ("b", &one)], "ab", &[39; 2], &[]),
    ];
    for (steps, keys, runs, last) in table {
        assert_eq!(shape(steps), (keys.to_owned(), runs.to_vec(), last.to_vec()), "{steps:?}");
    }
    // Counters that are named twice, or whose values may be large, are read one by one.
    let lease = count(1, true);
    let one_by_one: [&[_]; 2] = [
        &[("a", &one), ("b", &one), ("c", &one), ("a", &tiers)],
        &[("a", &one), ("b", &one), ("c", &one), ("d", &lease)],
    ];
    for steps in one_by_one {
        assert_eq!(shape(steps).1.len() + 1, 4, "{steps:?}");
    }
}

#[test]
fn an_argument_is_compared_with_few_groups() {
    let steps: Vec<EncodedStep> = (1..=9).map(|hits| takes(hits, Micros(1))).collect();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"];
    let again = [&steps[0], &steps[1], &steps[8], &steps[8]];
    let all: Vec<_> = names.into_iter().zip(steps.iter().chain(again)).collect();
    let (keys, runs, sizes) = shape(&all);
    // When `j` comes, the group of its equal `a` is the ninth newest one.
    assert_eq!((keys.as_str(), runs.len()), ("abcdefghilmjk", 11), "{sizes:?}");
}

#[test]
fn the_reply_to_a_group_is_split_by_counter() {
    let steps: Vec<Step> = (0..3).map(|now| step(1, Micros(1 + now), false)).collect();
    let mut batch = StepBatch::new(9);
    for (key, step) in ["a", "b", "c"].into_iter().zip(&steps) {
        batch.add(0, &key, &EncodedStep::of(step), (key, step)).expect("there is room");
    }
    let reply = [&value(2, 1)[..], &[UNREADABLE], &value(3, 1)].concat();
    let mut parts = Vec::new();
    batch.into_calls().remove(0).split_reply(&reply, |(key, step), reply| {
        let outcome = match reply {
            StepReply::Outcome(bytes) => decode(step, bytes).ok().map(|it| it.tiers[0].allowed),
            _ => None,
        };
        parts.push((key, outcome));
    });
    // The limit is 3.
    assert_eq!(parts, [("a", Some(true)), ("b", None), ("c", Some(false))]);
}
