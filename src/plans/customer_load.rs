//! Loads a file of customers into a table: threads parse and hash blocks of lines, and the caller adds
//! their customers to the table.
//!
//! A load reads the whole file at each change. To apply only the lines that changed, it would have to
//! keep the lines before the change: a table has neither the customers of a deleted line, nor the plan
//! that an earlier line gives to a customer. So a load takes time in proportion to the file, and its
//! result depends on nothing but the file.
//!
//! The blocks are added in the order of the file. So the last line of a customer counts, and the first
//! wrong line is the one that is reported, as if one thread did everything.

use std::io::{self, Read};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope};

use super::customer_table::{CustomerHasher, CustomerTableBuilder, HashedCustomer};
use super::customers_csv::{BLOCK_BYTES, CustomersError, line_ends, read_block, read_customers};
use super::line_blocks::LineBlocks;

/// Most threads that parse. Requests need the other cores, and one thread adds the customers of all.
const PARSERS_MAX: usize = 2;

/// Blocks in memory for each thread: one that it parses, and one that waits for it or for the table.
const BLOCKS_PER_PARSER: usize = 2;

/// Adds all customers of `file` to `table`. Keeps a few blocks of the file in memory, with 24 bytes for
/// each of their lines.
///
/// # Errors
///
/// The first line that is wrong or for which the table has no room, or an error of reading.
pub fn load_customers(
    file: impl Read,
    table: &mut CustomerTableBuilder<'_>,
) -> Result<(), CustomersError> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    load_blocks(file, table, cores.min(PARSERS_MAX), BLOCK_BYTES)
}

/// Like [`load_customers`], with this number of threads, and blocks of about `block_bytes`.
pub(super) fn load_blocks(
    file: impl Read,
    table: &mut CustomerTableBuilder<'_>,
    parsers: usize,
    block_bytes: usize,
) -> Result<(), CustomersError> {
    let hasher = table.hasher();
    thread::scope(|scope| {
        let start = |_| BlockParser::start(scope, hasher).ok();
        let parsers: Vec<BlockParser> = (0..parsers).map_while(start).collect();
        if parsers.is_empty() {
            // The system has no thread left.
            return read_customers(file, |customer, plan| table.add(customer, plan));
        }
        add_all(LineBlocks::new(file, block_bytes), &parsers, table)
    })
}

/// Reads all blocks, passes them to the threads in turn, and adds their customers in the same order.
fn add_all(
    mut blocks: LineBlocks<impl Read>,
    parsers: &[BlockParser],
    table: &mut CustomerTableBuilder<'_>,
) -> Result<(), CustomersError> {
    let most = parsers.len() * BLOCKS_PER_PARSER;
    let mut idle: Vec<CustomerBlock> = (0..most).map(|_| CustomerBlock::default()).collect();
    let (mut sent, mut added, mut line) = (0, 0, 1);
    // Whether there may be another block.
    let mut has_more: io::Result<bool> = Ok(true);
    loop {
        while matches!(has_more, Ok(true))
            && let Some(mut block) = idle.pop()
        {
            has_more = block.read(&mut blocks, &mut line);
            if matches!(has_more, Ok(true)) {
                // An error follows below: a thread that is gone sends no block.
                let _ = parsers[sent % parsers.len()].unparsed.send(block);
                sent += 1;
            }
        }
        if added == sent {
            // After the lines before it, which may be wrong.
            return has_more.map(|_| ()).map_err(CustomersError::from);
        }
        let Ok(mut block) = parsers[added % parsers.len()].parsed.recv() else {
            return Err(io::Error::other("a thread that parses customers has ended").into());
        };
        added += 1;
        block.add_to(table)?;
        idle.push(block);
    }
}

/// A thread that parses blocks, in their order. It ends when this value is dropped.
struct BlockParser {
    unparsed: Sender<CustomerBlock>,
    parsed: Receiver<CustomerBlock>,
}

impl BlockParser {
    fn start<'scope, 'env>(
        scope: &'scope Scope<'scope, 'env>,
        hasher: CustomerHasher<'env>,
    ) -> io::Result<BlockParser> {
        let (unparsed, blocks) = channel::<CustomerBlock>();
        let (done, parsed) = channel();
        let run = move || {
            for mut block in blocks {
                block.parse(hasher);
                if done.send(block).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("weir-customers".into()).spawn_scoped(scope, run)?;
        Ok(BlockParser { unparsed, parsed })
    }
}

/// Whole lines of the file, and their customers.
#[derive(Default)]
struct CustomerBlock {
    lines: Vec<u8>,
    /// The number of the first line.
    first_line: u64,
    customers: Vec<HashedCustomer>,
    /// The first plan that the book does not have.
    first_unknown: Option<String>,
    /// The first wrong line. It comes after the lines of all `customers`.
    error: Option<CustomersError>,
}

impl CustomerBlock {
    /// Reads the next lines, from number `line` on. Returns whether there were any.
    fn read(&mut self, blocks: &mut LineBlocks<impl Read>, line: &mut u64) -> io::Result<bool> {
        blocks.next_into(&mut self.lines)?;
        self.first_line = *line;
        *line += line_ends(&self.lines) as u64;
        Ok(!self.lines.is_empty())
    }

    /// Parses the lines up to the first wrong one.
    fn parse(&mut self, hasher: CustomerHasher<'_>) {
        let CustomerBlock { lines, first_line, customers, first_unknown, error } = self;
        customers.clear();
        *first_unknown = None;
        let read = read_block(lines, *first_line, |line, customer, plan| {
            let hashed = hasher.hash(customer, plan, line)?;
            if hashed.has_unknown_plan() && first_unknown.is_none() {
                *first_unknown = Some(plan.to_owned());
            }
            customers.push(hashed);
            Ok(())
        });
        *error = read.err();
    }

    /// Adds the customers to the table.
    ///
    /// # Errors
    ///
    /// The first line that is wrong or for which there is no room.
    fn add_to(&mut self, table: &mut CustomerTableBuilder<'_>) -> Result<(), CustomersError> {
        let added = table.add_hashed(&self.customers, self.first_unknown.take());
        added.map_err(|(line, what)| CustomersError::Line { line, what })?;
        self.error.take().map_or(Ok(()), Err)
    }
}
