//! The cost of a lookup of a rule, which must not grow with the number of rules.
//!
//! `exact` to `miss` are lookups in a domain of 10 and of 10,000 exact rules (at most 2 us). The
//! group `level` has 10, 1,000 and 10,000 patterns of one kind on one level, and looks up the last
//! one in the file, each in turn, and a value that none accepts.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use weir::descriptor::Entry;
use weir::key::KeySeed;
use weir::rules::{Found, Options, RuleSet, SourceFile, compile};

const LIMIT: &str = "rate_limit: { unit: second, requests_per_unit: 100 }";

/// A domain with `exact` rules on two levels, and a few of every other kind.
fn rules(exact: usize) -> RuleSet {
    let mut text =
        "domain: shop\ndescriptors:\n- key: method\n  value: GET\n  descriptors:\n".to_owned();
    for index in 0..exact {
        text += &format!("  - {{ key: path, value: /v1/product/{index}, {LIMIT} }}\n");
    }
    for index in 0..10 {
        text += &format!(
            "  - {{ key: path, value_template: '/v{index}/{{org}}/item/{{id}}', \
             count_by: [org], {LIMIT} }}\n"
        );
        text += &format!("  - {{ key: path, value: '/static/{index}/*', {LIMIT} }}\n");
    }
    text += &format!("  - {{ key: path, value_regex: '/img/[0-9]+[.]png', {LIMIT} }}\n");
    text +=
        &format!("- {{ key: ip, value_cidr: 10.0.0.0/8, {LIMIT} }}\n- {{ key: user, {LIMIT} }}\n");
    let file = SourceFile { name: "bench.yaml".into(), text };
    let (set, _) = compile(&[file], &Options::default()).unwrap_or_else(|p| panic!("{p:?}"));
    set
}

fn lookups(criterion: &mut Criterion) {
    let seed = KeySeed::random();
    let get = Entry { key: "method", value: "GET" };
    let path = |value| [get, Entry { key: "path", value }];
    let user = [Entry { key: "user", value: "alice" }];
    let address = [Entry { key: "ip", value: "10.1.2.3" }];
    let cases: [(&str, &[Entry<'_>]); 7] = [
        ("exact", &path("/v1/product/7")),
        ("template", &path("/v9/acme/item/5")),
        ("regex", &path("/img/0815.png")),
        ("wildcard", &path("/static/9/app.js")),
        ("cidr", &address),
        ("key", &user),
        ("miss", &path("/nothing/like/this")),
    ];
    for exact in [10, 10_000] {
        let set = rules(exact);
        for (name, entries) in cases {
            criterion.bench_function(&format!("{name}/{exact}"), |bencher| {
                bencher.iter(|| match set.find(black_box("shop"), black_box(entries)) {
                    Found::Rule(rule) => Some(rule.key(&seed, entries)),
                    _ => None,
                });
            });
        }
    }
}

/// A kind of pattern: its name, the pattern with a number, and a value that it accepts.
type PatternKind = (&'static str, fn(usize) -> String, fn(usize) -> String);

const KINDS: [PatternKind; 5] = [
    ("regex", |n| format!("value_regex: '/v1/[0-9]+/item-{n}'"), |n| format!("/v1/7/item-{n}")),
    // No required text distinguishes these: lazy DFAs search them in groups of up to 4096.
    (
        "regex without literal",
        |n| format!("value_regex: '(?i)/item-[0-9]+-{n:x}'"),
        |n| format!("/ITEM-7-{n:X}"),
    ),
    (
        "cidr",
        |n| format!("value_cidr: 10.{}.{}.0/24", n / 256, n % 256),
        |n| format!("10.{}.{}.7", n / 256, n % 256),
    ),
    (
        "template",
        |n| format!("value_template: '/v1/{{org}}/item-{n}/{{id}}'"),
        |n| format!("/v1/acme/item-{n}/5"),
    ),
    ("wildcard", |n| format!("value: '/static/{n}/*.js'"), |n| format!("/static/{n}/app.js")),
];

fn levels(criterion: &mut Criterion) {
    for (kind, pattern, value) in KINDS {
        let mut group = criterion.benchmark_group(format!("level/{kind}"));
        group.sample_size(10);
        group.warm_up_time(Duration::from_millis(200));
        group.measurement_time(Duration::from_millis(500));
        for count in [10, 1_000, 10_000] {
            let set = level(count, pattern);
            let find = |value: &str| {
                matches!(set.find("level", &[Entry { key: "k", value }]), Found::Rule(_))
            };
            let last = value(count - 1);
            assert!(find(&last) && !find("/nothing/like/this"), "{kind}");
            group.bench_function(format!("last/{count}"), |bencher| {
                bencher.iter(|| find(black_box(&last)));
            });
            let values: Vec<String> = (0..count).map(value).collect();
            let mut turn = values.iter().cycle();
            group.bench_function(format!("each/{count}"), |bencher| {
                bencher.iter(|| turn.next().is_some_and(|value| find(black_box(value))));
            });
            group.bench_function(format!("miss/{count}"), |bencher| {
                bencher.iter(|| find(black_box("/nothing/like/this")));
            });
        }
    }
}

/// A domain with `count` patterns of one kind on one level.
fn level(count: usize, pattern: fn(usize) -> String) -> RuleSet {
    let mut text = "domain: level\ndescriptors:\n".to_owned();
    for number in 0..count {
        text += &format!("- {{ key: k, {}, {LIMIT} }}\n", pattern(number));
    }
    let file = SourceFile { name: "bench.yaml".into(), text };
    let (set, _) = compile(&[file], &Options::default()).unwrap_or_else(|p| panic!("{p:?}"));
    set
}

fn compiling(criterion: &mut Criterion) {
    criterion.bench_function("compile/10000", |bencher| bencher.iter(|| rules(10_000)));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = lookups, levels, compiling
}
criterion_main!(benches);
