//! The grid of docs/operate/scaling.md: a row for each rate, deployment and mode.

use super::{MODES, RATES, count, plan};
use crate::testing::generated_page::compare_or_write;

const GRID: &str = "docs/operate/scaling/grid.csv";

const INSTANCES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const PRIMARIES: [u32; 6] = [1, 3, 6, 12, 24, 48];

const HEAD: &str = "calls_per_second,instances,primaries,mode,connections_per_primary,\
steps_per_second,credit_steps_per_second,script_calls_per_second,request_bytes_per_second,\
reply_bytes_per_second,hottest_slot_percent,hottest_primary_script_calls_per_second,\
hottest_primary_steps_per_script_call,hottest_primary_cores_low,hottest_primary_cores_high,\
redis_cores_low,redis_cores_high,redis_memory_bytes,instance_cores_low,instance_cores_high,\
instance_memory_bytes,instances_needed,primaries_needed,first_bound,first_bound_used_percent\n";

/// A number with three significant digits, without an exponent.
fn digits(number: f64) -> String {
    if number <= 0.0 {
        return "0".to_owned();
    }
    let decimals = 2.0 - number.log10().floor();
    let unit = 10_f64.powf(-decimals);
    let decimals = decimals.max(0.0) as usize;
    format!("{:.decimals$}", (number / unit).round() * unit)
}

fn grid() -> String {
    let mut grid = HEAD.to_owned();
    for calls in RATES {
        for instances in INSTANCES {
            for primaries in PRIMARIES {
                for mode in MODES {
                    grid += &line(mode, calls, instances, primaries);
                }
            }
        }
    }
    grid
}

fn line(mode: &str, calls: f64, instances: u32, primaries: u32) -> String {
    let (plan, _) = plan(mode, calls, Some(instances), Some(primaries));
    let (redis, hottest, cost) = (&plan.redis, &plan.hottest_primary, &plan.cost);
    let credits: f64 = plan.rules.iter().map(|rule| rule.credit_steps_per_second).sum();
    let numbers = [
        redis.connections_per_primary,
        redis.steps_per_second,
        credits,
        redis.script_calls_per_second,
        redis.request_bytes_per_second,
        redis.reply_bytes_per_second,
        100.0 * redis.hottest_slot_share,
        hottest.script_calls_per_second,
        hottest.steps_per_script_call,
        hottest.cores.low,
        hottest.cores.high,
        cost.redis_cores.low,
        cost.redis_cores.high,
        cost.redis_memory_bytes.expect("the memory of a fixed window"),
        cost.instance_cores.low,
        cost.instance_cores.high,
        cost.instance_memory_bytes,
    ];
    let numbers = numbers.map(digits).join(",");
    let (needed_instances, needed_primaries) =
        (count(plan.instances_needed), count(plan.primaries_needed));
    let bound = &plan.bounds[0];
    let used = digits(100.0 * bound.used);
    format!(
        "{calls},{instances},{primaries},{mode},{numbers},{needed_instances},{needed_primaries},\
         {},{used}\n",
        bound.what
    )
}

#[test]
fn generated_docs_match_the_grid() {
    compare_or_write(GRID, |_| grid());
}
