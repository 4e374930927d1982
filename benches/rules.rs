//! Cost of a lookup: it must not grow with the number of exact rules, and stay below 2 us with
//! 10 000 rules in a domain.

use std::hint::black_box;

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
                    Found::Rule(rule) => Some((rule.key(&seed, entries), rule.stat_key(entries))),
                    _ => None,
                });
            });
        }
    }
}

fn compiling(criterion: &mut Criterion) {
    criterion.bench_function("compile/10000", |bencher| bencher.iter(|| rules(10_000)));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = lookups, compiling
}
criterion_main!(benches);
