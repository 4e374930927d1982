//! Tests of files that load, and the problems of files that do not.

use super::*;

/// Renders all problems of a file without its name, one per line.
fn problems(text: &str) -> String {
    let (list, prefix) = match compiled(text, &Options::default()) {
        Ok((_, warnings)) => (warnings, "warning "),
        Err(errors) => (errors, ""),
    };
    let line = |problem: &RuleProblem| {
        let text = problem.to_string();
        let text = text.strip_prefix("test.yaml").expect("the file is named first");
        format!("{prefix}{}\n", text.strip_prefix(':').unwrap_or(text))
    };
    list.iter().map(line).collect()
}

/// Splits the case file into claim, YAML and expected problems.
fn cases(text: &str) -> Vec<(&str, &str, &str)> {
    let blocks = text.split("\n==== ").skip(1);
    let case = |block| {
        let (claim, rest) = str::split_once(block, '\n').expect("a claim, then the file");
        let (yaml, expected) = rest.split_once("====\n").expect("a line that ends the file");
        (claim, yaml, expected)
    };
    blocks.map(case).collect()
}

#[test]
fn every_case_reports_its_problems() {
    let cases = cases(include_str!("../../../tests/data/rules/cases.txt"));
    assert!(cases.len() > 25, "the case file was read");
    for (claim, yaml, expected) in cases {
        assert_eq!(problems(yaml).trim_end(), expected.trim_end(), "{claim}");
    }
}

fn folder(below: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(below)
}

#[test]
fn envoy_ratelimit_files_load_unchanged() {
    let paths = [folder("tests/data/rules/envoy_ratelimit")];
    let (set, warnings) = load(&paths, &Options::default()).unwrap_or_else(|p| panic!("{p:#?}"));
    assert!(warnings.is_empty(), "{warnings:#?}");
    assert_eq!(set.domains(), ["anchors", "basic", "flags", "nothing-yet"]);
    assert_eq!(set.rlconfig(), include_str!("../../../tests/data/rules/envoy_ratelimit.dump"));
}

#[test]
fn every_example_loads_without_a_warning() {
    let paths = [folder("examples/rules")];
    let (set, warnings) = load(&paths, &Options::default()).unwrap_or_else(|p| panic!("{p:#?}"));
    assert!(warnings.is_empty(), "{warnings:#?}");
    let files = std::fs::read_dir(&paths[0]).expect("the examples are there").count();
    assert_eq!(set.files().len(), files, "one domain per example");
    let alice = [Entry { key: "user", value: "alice" }];
    let Found::Rule(rule) = set.find("demo", &alice) else { panic!("alice matches no rule") };
    assert_eq!(rule.display_name.as_ref(), "user");
    assert_eq!(set.denied_requests("shop"), DeniedRequests::Free);
    assert_eq!(set.denied_requests("demo"), DeniedRequests::Count);
}

#[test]
fn a_file_is_listed_with_its_domain_and_rules() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let text = format!(
        "domain: a\ndescriptors: [{{ key: x, {limit}, descriptors: [{{ key: y, {limit} }}] }}]\n\
         ---\ndomain: b\n"
    );
    let document = |domain: &str, rules| RuleDocument {
        path: "test.yaml".into(),
        domain: domain.into(),
        rules,
        version: None,
    };
    assert_eq!(rules(&text).files(), [document("a", 2), document("b", 0)]);
}

#[test]
fn files_of_one_domain_need_merge_domains() {
    let part = |key: &str, more: &str| {
        format!(
            "domain: d\n{more}descriptors:\n- key: {key}\n  rate_limit:\n    name: n-{key}\n    \
             unit: day\n    requests_per_unit: 1\n"
        )
    };
    let replaces = "    replaces: [{ name: n-b }]\n";
    let files = [
        file("a.yaml", &(part("a", "denied_requests: free\n") + replaces)),
        file("b.yaml", &part("b", "")),
    ];
    let merged = Options { merge_domains: true, ..Options::default() };
    let (set, warnings) = compile(&files, &merged).expect("they agree");
    assert!(warnings.is_empty());
    let names: Vec<&str> = set.rules().iter().map(|rule| &*rule.display_name).collect();
    assert_eq!(names, ["n-a", "n-b"]);
    assert_eq!(set.rules()[0].replaces()[..], [set.rules()[1].name_id.expect("it has a name")]);
    assert_eq!(set.denied_requests("d"), DeniedRequests::Free);

    let errors = compile(&files, &Options::default()).expect_err("merging is off");
    assert_eq!(errors.len(), 1, "{errors:#?}");
    let expected = "b.yaml:1:9: domain `d` is already defined at a.yaml:1:9; join the two, or \
                    allow it with `rules.merge_domains: true`";
    assert_eq!(errors[0].to_string(), expected);

    let files = [
        file("a.yaml", &part("a", "denied_requests: free\n")),
        file("b.yaml", &part("a", "denied_requests: count\n")),
    ];
    let errors = compile(&files, &merged).expect_err("they contradict each other");
    let texts: Vec<_> = errors.iter().map(|error| error.to_string()).collect();
    assert_eq!(
        texts,
        [
            "b.yaml:2:18: `denied_requests` differs from a.yaml:2:18; write the same in all files \
             of the domain, or in only one",
            "b.yaml:4:3: `a` is already defined at a.yaml:4:3; join the two",
        ]
    );
}

/// The level grows with each file, and still knows the descriptors of the files before.
#[test]
fn every_descriptor_of_a_large_level_is_known() {
    let limit = "rate_limit: { unit: day, requests_per_unit: 1 }";
    let part = |name: &str, numbers: std::ops::Range<u32>| {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        for number in numbers {
            text += &format!("- {{ key: k, value: '{number}', {limit} }}\n");
        }
        file(name, &text)
    };
    let merged = Options { merge_domains: true, ..Options::default() };
    let mut files = vec![part("a.yaml", 0..1_000), part("b.yaml", 1_000..5_000)];
    let (set, _) = compile(&files, &merged).expect("all are different");
    assert_eq!(set.rules().len(), 5_000);
    files.push(part("c.yaml", 0..5_000));
    let errors = compile(&files, &merged).expect_err("all are defined twice");
    let first = "`k` with value `0` is already defined at a.yaml:3:3; join the two";
    assert_eq!(errors[0].to_string(), format!("c.yaml:3:3: {first}"));
    assert!(errors.len() >= 100, "{} errors", errors.len());
}

#[test]
fn an_unknown_field_can_be_a_warning() {
    let text = "domain: d\nextra: 1\ndescriptors: [{ key: a, unit: day }]";
    let warn = Options { unknown_fields: UnknownFields::Warn, ..Options::default() };
    let (_, warnings) = compiled(text, &warn).expect("it loads");
    let errors = compiled(text, &Options::default()).expect_err("it is refused");
    assert_eq!(warnings, errors);
    assert_eq!(errors.len(), 2);
}

#[test]
fn hostile_files_are_rejected_in_bounded_work() {
    let mut laughs = "domain: d\na: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, inner) in ["b", "c", "d", "e", "f", "g", "h"].iter().zip("abcdefg".chars()) {
        let ten = vec![format!("*{inner}"); 10].join(", ");
        laughs += &format!("{name}: &{name} [{ten}]\n");
    }
    let deep = "domain: d\nx: ".to_owned() + &"[".repeat(100_000);
    let deeper = "domain: d\nx:\n  ".to_owned() + &"- ".repeat(5_000);
    let mut nested = "domain: d\n".to_owned();
    for depth in 0..40 {
        nested += &format!("{0}descriptors:\n{0}- key: a\n", "  ".repeat(depth));
    }
    for (text, expected) in [
        (laughs, "more than 2000000 values"),
        (deep, "recursion limit exceeded"),
        (deeper, "nested more than 128 levels"),
        (nested, "rules nested more than 32 levels"),
    ] {
        let errors = compiled(&text, &Options::default()).expect_err(expected);
        assert!(errors.iter().any(|error| error.what.contains(expected)), "{errors:#?}");
    }
    let many =
        "domain: d\n".to_owned() + &(0..3_000).map(|n| format!("x{n}: 1\n")).collect::<String>();
    let errors = compiled(&many, &Options::default()).expect_err("unknown fields");
    assert_eq!(errors.len(), 1_001);
    assert_eq!(errors[1_000].to_string(), "test.yaml: 2000 more errors are not listed");
}
