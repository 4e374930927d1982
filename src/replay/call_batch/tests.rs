//! Tests of batches: their requests, their bounds, and calls that cannot be decided.

use super::*;

fn read(line: &str) -> RecordedRequest<'_> {
    RecordedRequest::from_line(line.as_bytes()).unwrap_or_else(|error| panic!("{error} {line}"))
}

/// A line with these descriptors.
fn line(domain: &str, descriptors: &str) -> String {
    format!(r#"{{"at":7,"domain":"{domain}","hits":3,"descriptors":[{descriptors}]}}"#)
}

#[test]
fn a_batch_has_the_requests_that_were_pushed() {
    let lines = [
        line("d", r#"{"entries":[["user","ann"],["a","\n"]]},{"entries":[],"hits":0}"#),
        line("d", r#"{"entries":[["",""]],"hits":5,"negative":true}"#),
        line("other", {
            r#"{"entries":[["lease","0a"]],"lease":"id",
                "limit":{"requests_per_unit":2,"unit":"day"}}"#
        }),
    ];
    let mut batch = CallBatch::default();
    // The second round uses the buffers of the first.
    for _ in 0..2 {
        batch.clear();
        for (index, line) in lines.iter().enumerate() {
            batch.push(&read(line), Micros(100 + index as u64));
        }
    }
    let calls = batch.calls();
    let domains: Vec<&str> = calls.iter().map(|call| batch.domain(call)).collect();
    assert_eq!(domains, ["d", "d", "other"]);
    batch.with_request(&calls[0], |request| {
        assert_eq!((request.domain, request.descriptors.len()), ("d", 2));
        let entries = request.descriptors[0].entries.iter();
        let pairs: Vec<_> = entries.map(|entry| (entry.key, entry.value)).collect();
        assert_eq!(pairs, [("user", "ann"), ("a", "\n")]);
        assert!(request.descriptors[1].entries.is_empty());
    });
    let hits = |call: &BatchCall| -> Vec<i64> {
        batch.with_request(call, |request| {
            request.descriptors.iter().map(|one| one.hits(request.hits_addend)).collect()
        })
    };
    assert_eq!((hits(&calls[0]), hits(&calls[1])), (vec![3, 0], vec![-5]));
    let limit = batch.with_request(&calls[2], |request| request.descriptors[0].limit);
    assert_eq!(limit.map(|limit| limit.requests_per_unit), Some(2));
    assert_eq!(calls.iter().map(|call| call.at.0).collect::<Vec<_>>(), [100, 101, 102]);
    assert_eq!(calls.iter().map(|call| call.names_lease).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!((batch.lease(&calls[0]), batch.lease(&calls[2])), (None, Some("id")));
    let taken: Vec<u64> = calls
        .iter()
        .flat_map(|call| call.descriptors().map(|at| batch.taken_hits(call, at)))
        .collect();
    assert_eq!(taken, [3, 0, 0, 3]);
    assert_eq!(batch.entries_of(3), [Entry { key: "lease", value: "0a" }]);
}

#[test]
fn a_batch_is_full_at_each_of_its_bounds() {
    let (short, long) = ("v".to_owned(), "v".repeat(TEXT_BYTES));
    for (value, calls) in [(short, CALLS_MAX), (long, 1)] {
        let line = line("d", &format!(r#"{{"entries":[["k","{value}"]]}}"#));
        let mut batch = CallBatch::default();
        let mut pushed = 0;
        while !batch.is_full() {
            batch.push(&read(&line), Micros(1));
            pushed += 1;
        }
        assert_eq!(pushed, calls);
        assert_eq!(batch.descriptor_count(), calls);
    }
}

#[test]
fn a_call_that_no_server_decides_is_a_problem() {
    let last = format!(r#"{{"entries":[["k","v"]],"hits":{}}}"#, HITS_END - 1);
    let many = |count: usize, item: &str| vec![item; count].join(",");
    let good = r#"{"entries":[["k","v"]]}"#;
    for descriptors in [
        good.to_owned(),
        last.clone(),
        r#"{"entries":[]}"#.to_owned(),
        many(DESCRIPTORS_MAX, r#"{"entries":[]}"#),
        format!(r#"{{"entries":[{}]}}"#, many(ENTRIES_MAX, r#"["k",""]"#)),
    ] {
        assert_eq!(problem(&read(&line("d", &descriptors))), None);
    }
    for (descriptors, part) in [
        (String::new(), "descriptors must not be empty"),
        (last.replace("991", "992"), "hits_addend 9007199254740992 is too large"),
        (r#"{"entries":[["","v"]]}"#.to_owned(), "descriptor 0 has an entry"),
        (format!(r#"{good},{{"entries":[["",""]]}}"#), "descriptor 1 has an entry"),
        (many(DESCRIPTORS_MAX + 1, r#"{"entries":[]}"#), "10001 descriptors"),
        (format!(r#"{{"entries":[{}]}}"#, many(ENTRIES_MAX + 1, r#"["k",""]"#)), "1001 entries"),
    ] {
        let line = line("d", &descriptors);
        let problem = problem(&read(&line)).expect("a problem");
        assert!(problem.contains(part), "{problem}");
    }
    let empty = line("", good);
    assert!(problem(&read(&empty)).is_some_and(|text| text.contains("domain")));
    let at = |at: u64| line("d", good).replace("\"at\":7", &format!("\"at\":{at}"));
    assert_eq!(problem(&read(&at(LAST_INSTANT))), None);
    let late = problem(&read(&at(LAST_INSTANT + 1))).expect("a problem");
    assert!(late.contains("after the year 2112"), "{late}");
}
