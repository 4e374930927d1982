//! Tests of files of customers.

use std::io::{BufReader, Cursor, Read};

use proptest::prelude::*;

use super::*;

/// The customers of a text with their plans, or the problem.
fn read(bytes: &[u8]) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let all = read_customers(Cursor::new(bytes), |customer, plan| {
        check_customer_name(customer)?;
        check_plan_name(plan)?;
        found.push((customer.to_owned(), plan.to_owned()));
        Ok(())
    });
    all.map_err(|error| error.to_string())?;
    Ok(found)
}

#[test]
fn fields_are_plain_or_quoted() {
    for (text, expected) in [
        ("acme,pro", &[("acme", "pro")][..]),
        ("", &[]),
        ("\n\r\n", &[]),
        ("customer,plan\nacme,pro\nbank,free\n", &[("acme", "pro"), ("bank", "free")]),
        ("\u{feff}customer,plan\r\nacme,pro\r\n", &[("acme", "pro")]),
        ("a,b\ncustomer,plan\n", &[("a", "b"), ("customer", "plan")]),
        ("# made at night\nacme,pro\n#x,y\n", &[("acme", "pro")]),
        ("\"#x\",y\n", &[("#x", "y")]),
        ("\"a,b\",\"p \"\"q\"\"\"\n", &[("a,b", "p \"q\"")]),
        ("\"\"\"\",p\n", &[("\"", "p")]),
        (" a b , p\n", &[(" a b ", " p")]),
        ("grün,\u{1f600}\n", &[("grün", "\u{1f600}")]),
    ] {
        let found = read(text.as_bytes()).unwrap_or_else(|problem| panic!("{text:?}: {problem}"));
        let found: Vec<(&str, &str)> =
            found.iter().map(|(customer, plan)| (customer.as_str(), plan.as_str())).collect();
        assert_eq!(found, expected, "{text:?}");
    }
}

#[test]
fn mistakes_have_their_line_and_a_fix() {
    let long = "x".repeat(20_000);
    for (text, problem) in [
        ("acme", "line 1: the plan is missing; write `customer,plan`"),
        ("a,b\n\nacme\n", "line 3: the plan is missing"),
        ("a,b,c", "line 1: text follows the plan"),
        ("\"a,b", "line 1: a quote is not closed"),
        ("\"a\nb\",c", "line 1: a quote is not closed"),
        ("\"a\"b,c", "line 1: text follows a closing quote"),
        ("a\"b,c", "line 1: a quote inside of a field"),
        (",free", "line 1: the name of a customer is empty"),
        ("a,", "line 1: a name of a plan or of a limit is empty"),
        ("a,b\nx\u{7},\n", "line 2: a name of a plan or of a limit is empty"),
        (&*format!("a,b\n{long},c\n"), "line 2: more than 16384 bytes"),
        (&*format!("a,b\n{long}"), "line 2: more than 16384 bytes"),
    ] {
        let found = read(text.as_bytes()).expect_err(problem);
        assert!(found.starts_with(problem), "{found}");
        assert!(!found.contains(|c: char| c.is_control()), "{found:?}");
        assert!(found.len() < 500, "{} bytes", found.len());
    }
    let binary = read(b"a,b\n\xff,c").expect_err("no text");
    assert!(binary.starts_with("line 2: it is not UTF-8 text; save it as UTF-8"), "{binary}");
}

/// A file without line breaks is not read as a whole.
#[test]
fn an_endless_line_is_refused() {
    let endless = BufReader::new(std::io::repeat(b'x'));
    let error = read_customers(endless, |_, _| Ok(())).expect_err("it has no end");
    assert!(error.to_string().contains("more than 16384 bytes"), "{error}");
}

#[test]
fn a_failed_read_is_no_end_of_the_file() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk failed"))
        }
    }
    let lines = || BufReader::new(Cursor::new("a,b\n").chain(Broken));
    let error = read_customers(lines(), |_, _| Ok(())).expect_err("a failure");
    assert_eq!(error.to_string(), "cannot be read: the disk failed");
    assert!(count_lines(lines()).is_err());
}

#[test]
fn a_reader_that_refuses_ends_the_file() {
    let mut seen = 0;
    let error = read_customers(Cursor::new("a,b\nc,d\ne,f\n"), |_, _| {
        seen += 1;
        if seen == 2 { Err("no room".to_owned()) } else { Ok(()) }
    });
    assert_eq!(error.expect_err("refused").to_string(), "line 2: no room");
    assert_eq!(seen, 2);
}

proptest! {
    /// Every pair of names can be written and read back, and the count of lines is enough room.
    #[test]
    fn written_customers_are_read_back(
        customers in proptest::collection::vec(("[a-z\",# é]{1,9}", "[a-z\",]{1,5}"), 0..20),
        ends in "(\n|\r\n)",
    ) {
        let quoted = |field: &str| format!("\"{}\"", field.replace('"', "\"\""));
        let lines: Vec<String> = customers
            .iter()
            .map(|(customer, plan)| format!("{},{}{ends}", quoted(customer), quoted(plan)))
            .collect();
        let text = lines.concat();
        let text = text.strip_suffix(ends.as_str()).unwrap_or(&text);
        prop_assert_eq!(read(text.as_bytes()), Ok(customers.clone()));
        let count = count_lines(BufReader::with_capacity(7, text.as_bytes())).expect("memory");
        prop_assert_eq!(count, customers.len());
    }

    /// No text causes a panic, and every refused one has a line.
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(prop_oneof![
            8 => proptest::sample::select(&b"a,\"\n\r#\xff"[..]),
            1 => any::<u8>(),
        ], 0..200),
    ) {
        match read(&bytes) {
            Ok(found) => {
                let lines = count_lines(Cursor::new(&bytes)).expect("memory");
                prop_assert!(found.len() <= lines, "{} of {lines}", found.len());
            }
            Err(problem) => prop_assert!(problem.starts_with("line "), "{problem}"),
        }
    }
}
