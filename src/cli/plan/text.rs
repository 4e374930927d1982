//! The plan as text.

use std::io::{self, Write};

use crate::capacity::{CapacityPlan, Cores, INSTANCES_MAX, RuleTraffic, UTILIZATION_MAX};
use crate::escape::one_line;

/// Rules in the text, those with the most steps first. The JSON has all.
const RULES_SHOWN: usize = 10;

/// Prints the plan as text.
pub(super) fn write(out: &mut impl Write, plan: &CapacityPlan, workers: u32) -> io::Result<()> {
    let CapacityPlan { instance, redis, hottest_primary, cost, .. } = plan;
    writeln!(
        out,
        "instances    {}, with {workers} workers each; needed: {}",
        plan.instances,
        plan.instances_needed.map_or_else(|| format!("over {INSTANCES_MAX}"), |of| of.to_string())
    )?;
    writeln!(
        out,
        "             each {} calls/s, {} steps/s, {} cores, {} credit pools, {} replicas",
        two_digits(instance.calls_per_second),
        two_digits(instance.steps_per_second),
        cores(instance.cores),
        two_digits(instance.credit_pools),
        two_digits(instance.replicas)
    )?;
    writeln!(
        out,
        "primaries    {}; needed: {}; at most {} counters in all",
        plan.primaries,
        plan.primaries_needed.map_or("no number suffices".to_owned(), |of| of.to_string()),
        two_digits(redis.counters_max)
    )?;
    writeln!(
        out,
        "             all {} script calls/s, {} steps/s, {} B/s in, {} B/s out",
        two_digits(redis.script_calls_per_second),
        two_digits(redis.steps_per_second),
        two_digits(redis.request_bytes_per_second),
        two_digits(redis.reply_bytes_per_second)
    )?;
    writeln!(
        out,
        "             the hottest {} script calls/s of {} steps, {} % of all steps ({} % in one \
         slot), {} cores",
        two_digits(hottest_primary.script_calls_per_second),
        two_digits(hottest_primary.steps_per_script_call),
        two_digits(100.0 * hottest_primary.share),
        two_digits(100.0 * redis.hottest_slot_share),
        cores(hottest_primary.cores)
    )?;
    writeln!(
        out,
        "connections  {} to each primary, {} in all",
        redis.connections_per_primary, redis.connections
    )?;
    let memory = cost.redis_memory_bytes;
    writeln!(
        out,
        "cost         instances {} cores and {} B; Redis {} cores and {}",
        cores(cost.instance_cores),
        two_digits(cost.instance_memory_bytes),
        cores(cost.redis_cores),
        memory.map_or("unknown memory".to_owned(), |bytes| format!("{} B", two_digits(bytes)))
    )?;
    let mut rules: Vec<&RuleTraffic> = plan.rules.iter().collect();
    rules.sort_by(|a, b| b.steps_per_second.total_cmp(&a.steps_per_second));
    for rule in rules.into_iter().take(RULES_SHOWN) {
        let of_one = rule.hottest_counter_steps_per_second;
        writeln!(
            out,
            "rule         {} in domain {} ({}): {} steps/s, {} of them by one counter{}",
            one_line(&rule.rule),
            one_line(&rule.domain),
            rule.mode,
            two_digits(rule.steps_per_second),
            two_digits(of_one),
            if rule.has_known_cost { "" } else { "; a step costs more cores of Redis" }
        )?;
    }
    for (index, bound) in plan.bounds.iter().enumerate() {
        if index == 0 || bound.used >= UTILIZATION_MAX {
            let used = two_digits(100.0 * bound.used);
            let change = one_line(&bound.change);
            writeln!(out, "bound        {used} % of {}; change: {change}", bound.what)?;
        }
    }
    Ok(())
}

fn cores(cores: Cores) -> String {
    format!("{} to {}", two_digits(cores.low), two_digits(cores.high))
}

/// A number with two significant digits.
pub(super) fn two_digits(number: f64) -> String {
    if number <= 0.0 {
        return "0".to_owned();
    }
    let unit = 10_f64.powf(number.log10().floor() - 1.0);
    let rounded = (number / unit).round() * unit;
    let of = |number: f64| match number {
        9.95.. => format!("{number:.0}"),
        _ => format!("{number:.1}"),
    };
    match rounded {
        // A load of extreme numbers, such as a rule with a weight of 1e-300.
        1e15.. => format!("{number:.1e}"),
        999_500.0.. => format!("{} M", of(rounded / 1e6)),
        9_950.0.. => format!("{:.0} k", rounded / 1e3),
        9.95.. => format!("{rounded:.0}"),
        0.995.. => format!("{rounded:.1}"),
        ..1e-9 => format!("{number:.1e}"),
        _ => {
            let decimals = (1.0 - rounded.log10().floor()) as usize;
            format!("{rounded:.decimals$}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_significant_digits() {
        for (number, text) in [
            (0.0, "0"),
            (1.26e-300, "1.3e-300"),
            (1.26e-8, "0.000000013"),
            (0.001_234, "0.0012"),
            (0.0996, "0.10"),
            (0.5, "0.50"),
            (1.0, "1.0"),
            (9.96, "10"),
            (123.0, "120"),
            (9_940.0, "9900"),
            (12_345.0, "12 k"),
            (999_999.0, "1.0 M"),
            (12_345_678.0, "12 M"),
            (1.26e300, "1.3e300"),
        ] {
            assert_eq!(two_digits(number), text, "{number}");
        }
    }
}
