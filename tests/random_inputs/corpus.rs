//! Valid inputs of each language, and the fragments for mutations.

use super::good;
use super::mutate::Language;

fn owned(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Encoded requests, and fragments that are difficult for decoders: long varints, lengths over the
/// end, groups, wrong wire types, and text that is not UTF-8.
pub(crate) fn protobuf() -> Language {
    let words: [&[u8]; 16] = [
        &[0xff; 9],
        &[0xff; 11],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0x0a],
        &[0x12],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x0b],
        &[0x0c],
        &[0x13, 0x14],
        &[0x1a, 0x02, 0x08, 0x00],
        &[0x1a, 0x0b, 0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x20, 0x01],
        &[0x18, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0x12, 0x00],
        &[0x0a, 0x04, 0x0a, 0x00, 0x12, 0x00],
        &[0xc3, 0x28, 0xf0, 0x28, 0x8c, 0xbc],
    ];
    let words = words.iter().map(|word| word.to_vec()).collect();
    Language { good: good::protobuf, corpus: Vec::new(), words }
}

/// Requests as JSON.
pub(crate) fn json() -> Language {
    let corpus = owned(&[
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"z"}]}]}"#,
        r#"{"domain":"d","hitsAddend":3,"descriptors":[{"entries":[{"key":"a","value":"b"},
            {"key":"c","value":"d"}],"hitsAddend":"5","isNegativeHits":true}]}"#,
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"q"}],
            "limit":{"requestsPerUnit":10,"unit":"HOUR"}},{"entries":[{"key":"u","value":""}]}]}"#,
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"a","value":"axb"}],
            "hits_addend":9007199254740991},{}],"hits_addend":"1"}"#,
    ]);
    let words = owned(&[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\u0000",
        "\\ud800",
        "null",
        "true",
        "-1",
        "1e999",
        "9223372036854775808",
        "18446744073709551616",
        "0.5",
        "\"unit\":",
        "\"UNKNOWN\"",
        "7",
        "\"limit\":{}",
        "\"entries\":[",
        "{\"key\":\"a\"},",
        "\"hitsAddend\":",
        "\u{feff}",
    ]);
    Language { good: good::json, corpus, words }
}

/// Rule files, and the difficult parts of YAML: aliases, merges, tags, odd scalars, odd indents.
pub(crate) fn yaml() -> Language {
    let mut corpus = owned(YAML_FILES);
    corpus.push(bomb(3, 4));
    Language { good: good::yaml, corpus, words: owned(YAML_WORDS) }
}

const YAML_FILES: &[&str] = &[
    include_str!("../../fuzz/src/rules.yaml"),
    "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {unit: day, \
     requests_per_unit: 1}\n",
    "domain: d\ndescriptors:\n  - &a\n    key: a\n    rate_limit: &l {unit: hour, \
     requests_per_unit: 1}\n  - <<: *a\n    key: b\n  - {key: c, rate_limit: *l}\n",
    "domain: d\ndescriptors:\n  - key: path\n    value_template: /v1/{org}/product/{id}\n    \
     count_by: [org]\n    rate_limit: {requests: 5, window: 1h30m}\n",
    "domain: d\ndescriptors:\n  - {key: path, value_regex: '/a/(?P<x>[0-9]+)', \
     count_by: [x]}\n",
    "domain: d\ndescriptors:\n  - {key: ip, value_cidr: 10.0.0.0/8, rate_limit: {unit: minute, \
     requests_per_unit: 9}}\n",
    "--- # one\ndomain: a\n---\ndomain: b\ndescriptors: []\n...\n",
];

const YAML_WORDS: &[&str] = &[
    "domain: ",
    "descriptors:\n",
    "  - key: ",
    "- ",
    "    value: ",
    "rate_limit: ",
    "unit: ",
    "requests_per_unit: ",
    "unlimited: true\n",
    "shadow_mode: ",
    "metadata: ",
    "replaces: ",
    "name: ",
    "key: a\n",
    "&a ",
    "*a",
    "<<: *a\n",
    "{",
    "}",
    "[",
    "]",
    ", ",
    ": ",
    "? ",
    "\n",
    "  ",
    "\t",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "!!binary ",
    "!x ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "# ",
    "~",
    "null",
    ".inf",
    "0x10",
    "1e9",
    "-1",
    "18446744073709551616",
    "\u{feff}",
    "\u{2028}",
    "\\x00",
    "tiers: ",
    "window: ",
    "999999999999d",
    "value_regex: ",
    "(a{999}){999}",
    "(?P<x>",
    "value_template: ",
    "/{x}/{x}",
    "value_cidr: ",
    "::/0",
    "300.0.0.0/99",
    "burst: ",
    "algorithm: ",
    "concurrency",
    "count_by: [x]\n",
    "***",
    "* *",
];

/// Aliases of aliases, which expand to `width` to the power of `depth` values from a few lines.
pub(crate) fn bomb(depth: usize, width: usize) -> Vec<u8> {
    let mut text = "domain: d\nmetadata:\n  - &a0 [x]\n".to_owned();
    for level in 1..=depth {
        let inner = format!("*a{}", level - 1);
        text += &format!("  - &a{level} [{}]\n", vec![inner; width].join(", "));
    }
    text.into_bytes()
}
