//! Tests of loading a file of customers by several threads: the result is that of one thread which adds
//! line by line.

use std::io::{Cursor, Read};

use proptest::prelude::*;

use super::*;
use crate::plans::customer_load::load_blocks;

/// Wrong lines.
const WRONG: &[&[u8]] = &[b"acme", b"a,b,c", b"\"a", b",free", b"a,", b"\xff,free"];

/// The table with room for `room` customers after `load`, or the problem.
fn loaded(
    plans: &Plans,
    book: &PlanBook,
    room: usize,
    load: impl FnOnce(&mut CustomerTableBuilder<'_>) -> Result<(), CustomersError>,
) -> Result<CustomerTable, String> {
    let mut table = plans.table(book, room);
    load(&mut table).map_err(|error| error.to_string())?;
    Ok(table.finish())
}

/// The table of one thread, line by line.
fn expected(
    plans: &Plans,
    book: &PlanBook,
    room: usize,
    bytes: &[u8],
) -> Result<CustomerTable, String> {
    loaded(plans, book, room, |table| {
        read_customers(bytes, |customer, plan| table.add(customer, plan))
    })
}

/// A line of a file, mostly a valid one. There are few names, so customers occur several times.
fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        60 => ("c[0-9]{1,2}", "(free|pro|house)")
            .prop_map(|(customer, plan)| format!("{customer},{plan}").into_bytes()),
        6 => "c[0-9],gone[0-2]".prop_map(String::into_bytes),
        6 => "\"c[0-9],\",\"pro\"".prop_map(String::into_bytes),
        6 => "(#[a-z,]{0,40})?".prop_map(String::into_bytes),
        3 => "(customer,plan|\u{feff}customer,plan|\u{feff}c1,pro)".prop_map(String::into_bytes),
        1 => proptest::sample::select(WRONG).prop_map(<[u8]>::to_vec),
    ]
}

/// A file of such lines, with both line ends and possibly none after the last line.
fn file() -> impl Strategy<Value = Vec<u8>> {
    let lines = proptest::collection::vec((line(), any::<bool>()), 0..60);
    (lines, any::<bool>()).prop_map(|(lines, has_last_end)| {
        let mut bytes: Vec<u8> = Vec::new();
        for (line, has_return) in &lines {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(if *has_return { &b"\r\n"[..] } else { &b"\n"[..] });
        }
        if !has_last_end {
            bytes.pop();
        }
        bytes
    })
}

proptest! {
    /// Equal tables have equal customers in equal places, and equal warnings.
    #[test]
    fn threads_load_what_one_thread_loads(
        bytes in file(),
        room in prop_oneof![1 => 0..20_usize, 3 => Just(100_usize)],
        parsers in 0..4_usize,
        block_bytes in prop_oneof![1..40_usize, Just(1_usize << 20)],
    ) {
        let (plans, book) = (with_table(PlanBook::default(), &[]), book(BOOK));
        let found = loaded(&plans, &book, room, |table| {
            load_blocks(&*bytes, table, parsers, block_bytes)
        });
        prop_assert_eq!(found, expected(&plans, &book, room, &bytes));
    }

    /// A change of a few lines gives the table of the changed file, and the same problem if it is wrong.
    #[test]
    fn a_changed_file_is_loaded_as_a_new_one(
        bytes in file(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..4, line()), 1..4),
        block_bytes in 1..200_usize,
    ) {
        let (plans, book) = (with_table(PlanBook::default(), &[]), book(BOOK));
        let mut lines: Vec<Vec<u8>> =
            bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        for (place, kind, mut line) in edits {
            line.push(b'\n');
            let at = place.index(lines.len() + 1);
            match (kind, lines.get(at).cloned()) {
                (0, Some(_)) => lines[at] = line,
                (1, Some(_)) => drop(lines.remove(at)),
                (2, Some(same)) => lines.push(same),
                _ => lines.insert(at, line),
            }
        }
        let changed = lines.concat();
        for bytes in [&bytes, &changed, &bytes] {
            let found = loaded(&plans, &book, 100, |table| {
                load_blocks(&**bytes, table, 2, block_bytes)
            });
            prop_assert_eq!(found, expected(&plans, &book, 100, bytes));
        }
    }
}

/// The first problem of the file is reported, also if a later block is parsed before.
#[test]
fn the_first_problem_in_the_file_counts() {
    let (plans, book) = (with_table(PlanBook::default(), &[]), book(BOOK));
    let many: String = (0..1000).map(|customer| format!("c{customer},free\n")).collect();
    for (text, room, problem) in [
        (format!("{many}a\nb,\n"), 2000, "line 1001: the plan is missing"),
        (format!("a\n{many}b,\n"), 2000, "line 1: the plan is missing"),
        (format!("{many}a\n"), 999, "line 1000: more than 999 customers"),
        (format!("#\n\n{many}"), 500, "line 503: more than 500 customers"),
    ] {
        for parsers in 1..4 {
            let found = loaded(&plans, &book, room, |table| {
                load_blocks(text.as_bytes(), table, parsers, 16)
            });
            let found = found.expect_err(problem);
            assert!(found.starts_with(problem), "{found}");
        }
    }
}

/// A file that cannot be read to its end is no shorter file. Lines before the failure are checked first.
#[test]
fn a_failed_read_comes_after_wrong_lines() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk failed"))
        }
    }
    let (plans, book) = (with_table(PlanBook::default(), &[]), book(BOOK));
    for (text, problem) in [
        ("a,pro\nb,pro\nc,pro\n", "cannot be read: the disk failed"),
        ("a,pro\nb\nc,pro\n", "line 2: the plan is missing; write `customer,plan`"),
    ] {
        let file = Cursor::new(text).chain(Broken);
        let found = loaded(&plans, &book, 10, |table| load_blocks(file, table, 2, 4));
        assert_eq!(found.expect_err(problem), problem);
    }
}

#[test]
fn many_blocks_are_loaded_in_their_order() {
    let (plans, book) = (with_table(PlanBook::default(), &[]), book(BOOK));
    let text: String = (0..100_000)
        .map(|line| format!("c{},{}\n", line % 30_000, ["free", "pro", "gone"][line % 7 % 3]))
        .collect();
    let found = loaded(&plans, &book, 30_000, |table| load_customers(text.as_bytes(), table));
    let found = found.expect("valid");
    assert_eq!(found.len(), 30_000);
    assert_eq!(Ok(found), expected(&plans, &book, 30_000, text.as_bytes()));
}
