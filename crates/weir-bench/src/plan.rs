//! The plan of a run: the descriptors, the keys, the rate and the duration.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

/// Replaced by the number of the key in values of descriptors.
pub(crate) const PLACEHOLDER: &str = "{n}";

/// Default of the calls in flight per connection.
const STREAMS_CLOSED_LOOP: usize = 32;
const STREAMS_OPEN_LOOP: usize = 1000;

/// All options of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Namespace of the rules.
    pub domain: String,
    /// The descriptors of each call, as lists of key and value. `{n}` in a value is replaced by the
    /// number of the call's key, with leading zeros.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// Hits per call; `None` leaves the field out, which services count as 1.
    pub hits: Option<u64>,
    /// Distinct keys.
    pub keys: u64,
    /// How often each key is called.
    pub distribution: KeyDistribution,
    /// The instants at which calls are sent.
    pub pacing: Pacing,
    /// HTTP/2 connections.
    pub connections: usize,
    /// Most calls in flight on one connection. The default (`None`) is 32 in a closed loop and 1000
    /// in an open loop.
    pub streams: Option<usize>,
    /// Time before calls count; at most a day.
    pub warmup: Duration,
    /// Time in which calls count; at most a day.
    pub duration: Duration,
    /// Time after the end in which late answers still count; at most a day.
    pub timeout: Duration,
    /// Threads of the generator. The default (`None`) is half of the cores.
    pub threads: Option<usize>,
    /// Seed of the random order of keys.
    pub seed: u64,
}

/// How often each key is called.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyDistribution {
    /// All keys equally often.
    Uniform,
    /// Zipf's law: key number k (from 1) in proportion to k to the power of minus this exponent.
    Zipf(f64),
    /// One key after the other, separately in each thread.
    Sequential {
        /// The number of the first key.
        from: u64,
    },
}

/// The instants at which calls are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// Closed loop: as soon as the previous call on the same stream is answered.
    Closed,
    /// Open loop: this many per second, evenly, whether or not earlier calls were answered.
    Open(f64),
}

impl Plan {
    /// A closed loop on 8 connections for 10 s, with `keys` distinct keys.
    pub fn new(domain: &str, descriptors: Vec<Vec<(String, String)>>, keys: u64) -> Plan {
        Plan {
            domain: domain.to_owned(),
            descriptors,
            hits: None,
            keys,
            distribution: KeyDistribution::Uniform,
            pacing: Pacing::Closed,
            connections: 8,
            streams: None,
            warmup: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            threads: None,
            seed: 1,
        }
    }

    /// Whether some value contains the placeholder `{n}`.
    pub fn has_placeholder(descriptors: &[Vec<(String, String)>]) -> bool {
        descriptors.iter().flatten().any(|(_, value)| value.contains(PLACEHOLDER))
    }

    /// Threads of the generator; at most one per connection.
    pub fn threads(&self) -> usize {
        let half = || thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2);
        self.threads.unwrap_or_else(half).clamp(1, self.connections.max(1))
    }

    /// Most calls in flight on one connection.
    pub fn streams(&self) -> usize {
        self.streams.unwrap_or(match self.pacing {
            Pacing::Closed => STREAMS_CLOSED_LOOP,
            Pacing::Open(_) => STREAMS_OPEN_LOOP,
        })
    }

    /// Checks the plan.
    ///
    /// # Errors
    ///
    /// The option that is wrong, and its valid values.
    pub fn check(&self) -> Result<(), String> {
        let second = Duration::from_secs(1);
        let day = 86_400 * second;
        let invalid = |problem: &str| Err(problem.to_owned());
        if self.domain.is_empty() || self.descriptors.iter().all(Vec::is_empty) {
            return invalid("--domain and at least one descriptor are required");
        }
        if !(1..=1 << 40).contains(&self.keys) {
            return invalid("--keys must be from 1 to 2^40");
        }
        if self.keys > 1 && !Plan::has_placeholder(&self.descriptors) {
            return invalid(
                "--keys: no value contains {n}, so all calls have one key; write {n} where keys \
                 differ, or use --keys 1",
            );
        }
        if !(1..=65_536).contains(&self.connections) || self.threads == Some(0) {
            return invalid("--connections must be from 1 to 65536, and --threads at least 1");
        }
        if !(1..=1 << 20).contains(&self.streams()) {
            return invalid("--streams must be from 1 to 2^20");
        }
        if self.duration.is_zero() || self.duration.max(self.warmup).max(self.timeout) > day {
            return invalid(
                "--duration must be more than 0; it, --warmup and --timeout at most a day",
            );
        }
        match self.distribution {
            KeyDistribution::Zipf(power) if !(power > 0.0 && power <= 10.0) => {
                return invalid("--zipf must be more than 0 and at most 10");
            }
            _ => {}
        }
        match self.pacing {
            Pacing::Open(rate) if !(0.001..=1e7).contains(&rate) => {
                invalid("--rate must be from 0.001 to 10 million calls per second")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new("d", vec![vec![("user".into(), "u{n}".into())]], 10)
    }

    #[test]
    fn an_invalid_plan_names_its_option() {
        assert_eq!(plan().check(), Ok(()));
        let table: [(Plan, &str); 9] = [
            (Plan { domain: String::new(), ..plan() }, "domain"),
            (Plan { keys: 0, ..plan() }, "--keys"),
            (Plan { descriptors: vec![vec![("a".into(), "b".into())]], ..plan() }, "{n}"),
            (Plan { connections: 0, ..plan() }, "--connections"),
            (Plan { threads: Some(0), ..plan() }, "--threads"),
            (Plan { streams: Some(0), ..plan() }, "--streams"),
            (Plan { duration: Duration::ZERO, ..plan() }, "--duration"),
            (Plan { distribution: KeyDistribution::Zipf(f64::NAN), ..plan() }, "--zipf"),
            (Plan { pacing: Pacing::Open(0.0), ..plan() }, "--rate"),
        ];
        for (plan, word) in table {
            let problem = plan.check().unwrap_err();
            assert!(problem.contains(word), "{word}: {problem}");
        }
    }

    #[test]
    fn threads_are_at_most_connections() {
        assert_eq!(Plan { threads: Some(9), connections: 2, ..plan() }.threads(), 2);
    }
}
