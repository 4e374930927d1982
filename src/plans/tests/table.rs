//! Tests of the table of all customers.

use std::collections::HashMap;

use super::*;
use crate::plans::customer_table::AssignedPlan;
use crate::testing::Rng;

/// The plan of `customer` in a table of `plans`.
fn find(plans: &Plans, table: &CustomerTable, customer: &str) -> Option<AssignedPlan> {
    table.find(CustomerHash::of(&plans.seed, customer))
}

#[test]
fn every_customer_is_found_with_the_last_plan() {
    let plans = with_table(PlanBook::default(), &[]);
    let book = book(BOOK);
    let names = ["free", "pro", "house", "tokens", "gone"];
    let mut rng = Rng::new(1);
    for customers in [0, 1, 2, 3, 10, 1000, 20_000_u64] {
        let mut model: HashMap<String, &str> = HashMap::new();
        let mut table = plans.table(&book, customers as usize);
        // Some customers come several times.
        while model.len() < customers as usize {
            let (customer, plan) = (rng.below(2 * customers).to_string(), rng.pick(&names));
            table.add(&customer, plan).expect("there is room");
            model.insert(customer, plan);
        }
        let full = table.add("one more", "free");
        assert!(full.is_err_and(|error| error.contains("plans.max_customers")), "{customers}");
        let table = table.finish();
        assert_eq!((table.len(), table.is_empty()), (model.len(), customers == 0));
        for customer in (0..2 * customers + 1).map(|customer| customer.to_string()) {
            let expected = model
                .get(&customer)
                .map(|plan| book.id(plan).map_or(AssignedPlan::Unknown, AssignedPlan::Plan));
            assert_eq!(find(&plans, &table, &customer), expected, "{customer} of {customers}");
        }
        let unknown = model.values().filter(|plan| **plan == "gone").count();
        let start = format!("{unknown} customers have a plan that is not defined, such as `gone`;");
        let is_right = |warning: String| unknown > 0 && warning.starts_with(&start);
        assert!(table.warning().map_or(unknown == 0, is_right), "{unknown} of {customers}");
    }
}

/// A customer counts by its last line.
#[test]
fn customers_with_unknown_plans_are_counted_once() {
    let (plans, book) = (with_table(PlanBook::default(), &[]), book(BOOK));
    let cases: [(&[(&str, &str)], usize); 4] = [
        (&[("acme", "gone"), ("acme", "pro")], 0),
        (&[("acme", "pro"), ("acme", "gone")], 1),
        (&[("acme", "gone"), ("acme", "gone")], 1),
        (&[("acme", "gone"), ("bank", "gone"), ("acme", "free")], 1),
    ];
    for (lines, expected) in cases {
        let mut table = plans.table(&book, 10);
        for (customer, plan) in lines {
            table.add(customer, plan).expect("there is room");
        }
        let warning = table.finish().warning();
        let start = (expected > 0).then(|| format!("{expected} customers have a plan"));
        let found = warning.as_deref().map(|warning| &warning[..warning.len().min(23)]);
        assert_eq!(found, start.as_deref(), "{warning:?}");
    }
}

/// The memory that plans.max_customers stands for.
#[test]
fn a_customer_takes_less_than_11_bytes() {
    let plans = with_table(PlanBook::default(), &[]);
    for room in [1_000, 1_000_000, 10_000_000] {
        let table = plans.table(&PlanBook::default(), room).finish();
        assert!(table.bytes() < 11 * room, "{} bytes for {room}", table.bytes());
    }
}

#[test]
fn wrong_names_are_refused() {
    let plans = with_table(PlanBook::default(), &[]);
    let book = book(BOOK);
    let mut table = plans.table(&book, 10);
    let long = "x".repeat(CUSTOMER_BYTES_MAX);
    assert_eq!(table.add(&long, "free"), Ok(()));
    for (customer, plan, problem) in [
        ("", "free", "the name of a customer is empty"),
        (&*format!("{long}x"), "free", "has 4097 bytes; write at most 4096"),
        ("a", "", "a name of a plan or of a limit is empty"),
        ("a", &*"p".repeat(257), "has 257 bytes; write at most 256"),
        ("a", "p\n", "has a control character"),
    ] {
        let error = table.add(customer, plan).expect_err(problem);
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(table.finish().len(), 1);
}

/// Readers see a whole book with its table, whatever a source does meanwhile.
#[test]
fn a_lookup_has_one_book_and_its_customers() {
    let rules = rules("requests: 5, window: 1m", "{ customer: key }");
    // The numbers of the plans change places, so a mixed lookup would find 1 for b.
    let plan = ["a: { calls: 1 }", "b: { calls: 2 }"];
    let text = |first: usize| format!("plans: {{ {}, {} }}", plan[first], plan[1 - first]);
    let plans = with_table(book(&text(0)), &[("acme", "b")]);
    plans.use_rules(&rules);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        assert_eq!(limit_of(&plans, &rules, "acme"), "2");
                    }
                })
            })
            .collect();
        let mut version = 0;
        while readers.iter().any(|reader| !reader.is_finished()) {
            version += 1;
            let next = book(&text(version % 2));
            let mut table = plans.table(&next, 1);
            table.add("acme", "b").expect("there is room");
            let table = table.finish();
            plans.publish(next, table);
        }
        assert!(version > 1, "the plans never changed");
    });
}
