//! Tests of books of plans, from YAML and JSON.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::limit::{HITS_END, TierNumbers};

/// The problems of a text, one per line.
fn problems(text: &str) -> String {
    let problems = PlanBook::parse_yaml(text, "p.yaml").expect_err(text);
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    texts.join("\n")
}

fn limits(book: &PlanBook, plan: &str) -> PlanNumbers {
    let id = book.id(plan).unwrap_or_else(|| panic!("{plan} is missing"));
    assert_eq!(book.name(id).map(|name| &**name), Some(plan));
    book.numbers(id).expect("it was found").clone()
}

#[test]
fn every_form_of_numbers_is_read() {
    let tier = |requests, burst| TierNumbers { requests, burst };
    for (text, expected) in [
        ("100", Some(vec![tier(100, None)])),
        ("1_000", Some(vec![tier(1000, None)])),
        ("0", Some(vec![tier(0, None)])),
        ("9007199254740991", Some(vec![tier(HITS_END - 1, None)])),
        ("{ requests: 10, burst: 20 }", Some(vec![tier(10, Some(20))])),
        ("[1000, { requests: 50000 }]", Some(vec![tier(1000, None), tier(50_000, None)])),
        ("unlimited", None),
        ("'unlimited'", None),
    ] {
        let book = book(&format!("plans: {{ a: {{ calls: {text} }} }}"));
        let expected = match expected {
            Some(tiers) => LimitNumbers::Tiers(tiers.into()),
            None => LimitNumbers::Unlimited,
        };
        assert_eq!(limits(&book, "a").limit("calls"), Some(&expected), "{text}");
    }
}

#[test]
fn a_book_has_all_plans_and_customers() {
    let text = "plans: { free: { calls: 1 }, none: }\ncustomers: { acme: free, 7: gone }\n";
    let (book, customers) = PlanBook::parse_yaml(text, "p.yaml").expect("valid");
    assert_eq!(book.plans().map(|(name, _)| name).collect::<Vec<_>>(), ["free", "none"]);
    assert!(limits(&book, "none").is_empty());
    let customers: Vec<(&str, &str)> =
        customers.iter().map(|(customer, plan)| (customer.as_str(), plan.as_str())).collect();
    assert_eq!(customers, [("acme", "free"), ("7", "gone")], "an unknown plan is no error");
    for empty in ["", "plans:", "plans:\ncustomers:", "{}", "# nothing"] {
        let (book, customers) = PlanBook::parse_yaml(empty, "p.yaml").expect(empty);
        assert!(book.is_empty() && customers.is_empty(), "{empty}");
    }
}

#[test]
fn all_problems_have_a_place_and_a_fix() {
    let text = "plan: {}
plans:
  a:
    x: -1
    b: 1.5
    c: \"5\"
    d: [1, []]
    e: {}
    f: { request: 1 }
    g: { requests: 1, window: 1m }
    h: 9007199254740992
    i: []
    \"\": 1
  b: 5
customers:
  acme: [free]
  \"\": free
  c: ''
";
    let number = "write a whole number without quotes, such as 1000";
    let tier = "write a number, `{ requests: 1000, burst: 2000 }`, or a list of these";
    let fields = "the fields are requests and burst; the window is that of the rule";
    let expected = [
        ("1:1: unknown field `plan`", "did you mean `plans`?"),
        ("4:8: plan `a`: limit `x`: `-1` is no whole number", number),
        ("5:8: plan `a`: limit `b`: `1.5` is no whole number", number),
        ("6:8: plan `a`: limit `c`: `5` is a text in quotes", number),
        ("7:8: plan `a`: limit `d`: a list inside a list", tier),
        ("8:8: plan `a`: limit `e`: `requests` is missing", tier),
        ("9:8: plan `a`: limit `f`: unknown field `request`", "did you mean `requests`?"),
        ("10:8: plan `a`: limit `g`: unknown field `window`", fields),
        (
            "11:8: plan `a`: limit `h`: `9007199254740992` is too large",
            "write at most 9007199254740991, or `unlimited`",
        ),
        (
            "12:8: plan `a`: limit `i`: a list of 0 tiers",
            "write 1 to 16 items, one per tier of the rule",
        ),
        ("13:9: plan `a`: a name of a plan or of a limit is empty", "write one"),
        (
            "14:6: plan `b` must be a map, not a single value",
            "write items like `free: { calls: 100 }`",
        ),
        ("16:9: the plan of a customer is a list", "write the name of a plan"),
        ("17:3: the name of a customer is empty", "write the value of its requests"),
        ("18:3: a name of a plan or of a limit is empty", "write one"),
    ];
    let expected: Vec<String> =
        expected.iter().map(|(what, fix)| format!("p.yaml:{what}; {fix}")).collect();
    assert_eq!(problems(text).lines().collect::<Vec<_>>(), expected);
}

#[test]
fn other_documents_are_refused() {
    for (text, problem) in [
        ("[]", "p.yaml:1:1: a file of plans must be a map, not a list"),
        ("plans: [a]", "p.yaml:1:8: `plans` must be a map, not a list"),
        ("plans: {}\n---\nplans: {}\n", "a file of plans has one document"),
        ("plans: { a: { x: 1, x: 2 } }", "`x` is written twice here"),
        ("plans: { a: {}, a: {} }", "`a` is written twice here"),
        ("plans: {", "p.yaml:"),
        ("customers: { acme: }", "the plan of a customer is nothing"),
    ] {
        let found = problems(text);
        assert!(found.contains(problem), "{text}: {found}");
    }
}

#[test]
fn the_bounds_accept_their_last_value() {
    let plan = |number: usize| (format!("p{number}"), PlanNumbers::default());
    assert_eq!(PlanBook::new((0..PLANS_MAX).map(plan)).map(|book| book.len()), Ok(PLANS_MAX));
    let error = PlanBook::new((0..=PLANS_MAX).map(plan)).expect_err("one more");
    assert!(error.contains("more than 10000 plans"), "{error}");
    let twice = PlanBook::new([plan(1), plan(1)]).expect_err("twice");
    assert!(twice.contains("plan `p1` is defined twice"), "{twice}");

    let limits = |count: usize| {
        let limits: String = (0..count).map(|number| format!("    l{number}: 1\n")).collect();
        format!("plans:\n  a:\n{limits}")
    };
    assert_eq!(super::book(&limits(LIMITS_PER_PLAN_MAX)).len(), 1);
    let found = problems(&limits(LIMITS_PER_PLAN_MAX + 1));
    assert!(found.contains("more than 1000 limits in one plan"), "{found}");

    let name = |bytes: usize| format!("plans: {{ {}: {{}} }}", "n".repeat(bytes));
    assert_eq!(super::book(&name(PLAN_NAME_BYTES_MAX)).len(), 1);
    assert!(problems(&name(PLAN_NAME_BYTES_MAX + 1)).contains("write at most 256"));
    let many: String = (0..3_000).map(|number| format!("x{number}: 1\n")).collect();
    assert_eq!(problems(&many).lines().count(), 1_000, "a hostile file");
}

#[test]
fn json_and_yaml_have_the_same_plans() {
    let text = r#"{
        "plans": {
            "free": { "calls": 100, "tokens": [1000, { "requests": 50000 }] },
            "pro": { "calls": { "requests": 10, "burst": 20 } },
            "house": { "calls": "unlimited" }
        },
        "customers": { "acme": "pro", "grün \"x\"": "gone" }
    }"#;
    let value = serde_json::from_str(text).expect("JSON");
    let expected = PlanBook::parse_yaml(text, "p.yaml").expect("JSON is YAML");
    for (book, customers) in [
        PlanBook::parse_json(&value).expect("a value"),
        PlanBook::parse_json_text(text).expect("a text"),
    ] {
        assert_eq!(customers, expected.1);
        for (plan, numbers) in expected.0.plans() {
            assert_eq!(&limits(&book, plan), numbers, "{plan}");
            assert_eq!(PlanNumbers::from_json(plan, &numbers.to_json()).as_ref(), Ok(numbers));
        }
    }
    for empty in ["{}", r#"{"plans": null, "customers": null}"#] {
        let (book, customers) = PlanBook::parse_json_text(empty).expect(empty);
        assert!(book.is_empty() && customers.is_empty(), "{empty}");
    }
}

#[test]
fn problems_of_json_are_in_one_line() {
    let many: serde_json::Map<_, _> =
        (0..20).map(|number| (format!("p{number:02}"), json!({ "a": -1 }))).collect();
    for (value, problem) in [
        (json!([]), "invalid type: sequence"),
        (json!({ "plan": {} }), "unknown field `plan`"),
        (json!({ "plans": { "a": 5 } }), "plan `a` must be a map; write {\"calls\": 100}"),
        (json!({ "plans": { "a": { "x": "5" } } }), "plan `a`: limit `x`: `5` is a text in quotes"),
        (json!({ "plans": { "a": { "x": true } } }), "`true` is no whole number"),
        (json!({ "plans": { "a": { "x": 1e300 } } }), "is no whole number"),
        (json!({ "plans": { "": {} } }), "a name of a plan or of a limit is empty"),
        (json!({ "customers": { "a": 5 } }), "invalid type: integer `5`, expected a string"),
        (json!({ "customers": { "": "a" } }), "the name of a customer is empty"),
        (json!({ "plans": many }), "; and 10 more"),
    ] {
        let text = value.to_string();
        for found in [PlanBook::parse_json(&value), PlanBook::parse_json_text(&text)] {
            let found = found.expect_err(problem);
            assert!(found.contains(problem), "{found}");
            assert!(!found.contains('\n'), "{found}");
        }
    }
    assert!(PlanBook::parse_json_text("{").is_err());
    for field in ["plans", "customers"] {
        let text = format!(r#"{{"{field}": {{}}, "{field}": {{}}}}"#);
        let found = PlanBook::parse_json_text(&text).expect_err(field);
        assert!(found.contains(&format!("duplicate field `{field}`")), "{found}");
    }
}

proptest! {
    /// No text causes a panic, and every problem has a place in the file.
    #[test]
    fn any_text_is_read_or_refused(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                "plans", "customers", ":", " ", "\n", "  ", "{", "}", "[", "]", ",", "a", "1", "-",
                "requests", "burst", "unlimited", "'", "\"", "~", "&x", "*x", "<<", "1_0", "é",
            ]),
            0..60,
        ),
    ) {
        if let Err(problems) = PlanBook::parse_yaml(&parts.concat(), "p.yaml") {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                prop_assert!(problem.to_string().starts_with("p.yaml"), "{problem}");
            }
        }
        let _ = PlanBook::parse_json_text(&parts.concat());
    }
}
