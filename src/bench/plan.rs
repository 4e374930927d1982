//! The plan of a run: what is asked, in which order, how fast and for how long.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

/// What stands in a descriptor's value for the number of the key.
pub(super) const PLACE: &str = "{n}";

/// Calls in flight per connection, when nobody says how many.
const STREAMS_CLOSED: usize = 32;
const STREAMS_OPEN: usize = 1000;

/// Everything that a run is told.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Namespace of the rules.
    pub domain: String,
    /// The descriptors of each call, as lists of key and value. `{n}` in a value becomes the number
    /// of the key that the call is about, with leading zeros.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// What each call costs; none: what the service takes it for, which is 1.
    pub hits: Option<u64>,
    /// Distinct keys.
    pub keys: u64,
    /// Which keys are asked for how often.
    pub spread: Spread,
    /// How fast.
    pub load: Load,
    /// HTTP/2 connections.
    pub connections: usize,
    /// Calls in flight on one connection at most; none: 32 in a closed loop, 1000 in an open one.
    pub streams: Option<usize>,
    /// Time before calls count.
    pub warmup: Duration,
    /// Time in which calls count.
    pub duration: Duration,
    /// How long after the end answers are waited for.
    pub timeout: Duration,
    /// Threads of the generator; none: half of the cores.
    pub threads: Option<usize>,
    /// What the order of keys is drawn from.
    pub seed: u64,
}

/// Which keys are asked for how often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Each as often as any other.
    Uniform,
    /// Key number k (from 1) in proportion to k to the power of minus this.
    Zipf(f64),
    /// One after the other, in each thread for itself.
    InTurn {
        /// The number of the first.
        from: u64,
    },
}

/// When calls are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// As soon as the call before it on the same stream is answered.
    Closed,
    /// So many per second, evenly, whatever becomes of them.
    Open(f64),
}

impl Plan {
    /// A closed loop of 8 connections for 10 s, about `keys` keys.
    pub fn new(domain: &str, descriptors: Vec<Vec<(String, String)>>, keys: u64) -> Plan {
        Plan {
            domain: domain.to_owned(),
            descriptors,
            hits: None,
            keys,
            spread: Spread::Uniform,
            load: Load::Closed,
            connections: 8,
            streams: None,
            warmup: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            threads: None,
            seed: 1,
        }
    }

    /// Whether some value has a place for the number of the key.
    pub fn has_place(descriptors: &[Vec<(String, String)>]) -> bool {
        descriptors.iter().flatten().any(|(_, value)| value.contains(PLACE))
    }

    /// Threads of the generator: never more than connections.
    pub fn threads(&self) -> usize {
        let half = || thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2);
        self.threads.unwrap_or_else(half).clamp(1, self.connections.max(1))
    }

    /// Calls in flight on one connection at most.
    pub fn streams(&self) -> usize {
        self.streams.unwrap_or(match self.load {
            Load::Closed => STREAMS_CLOSED,
            Load::Open(_) => STREAMS_OPEN,
        })
    }

    /// Whether the plan can be carried out.
    ///
    /// # Errors
    ///
    /// What is wrong and how to mend it.
    pub fn check(&self) -> Result<(), String> {
        let second = Duration::from_secs(1);
        let day = 86_400 * second;
        let wrong = |what: &str| Err(what.to_owned());
        if self.domain.is_empty() || self.descriptors.iter().all(Vec::is_empty) {
            return wrong("a call needs a domain and a descriptor");
        }
        if !(1..=1 << 40).contains(&self.keys) {
            return wrong("--keys must be from 1 to 2^40");
        }
        if self.keys > 1 && !Plan::has_place(&self.descriptors) {
            return wrong(
                "no value has {n}, so all calls would ask for one key: write {n} where keys \
                 differ, or --keys 1",
            );
        }
        if !(1..=65_536).contains(&self.connections) || self.threads == Some(0) {
            return wrong("--connections must be from 1 to 65536, and --threads at least 1");
        }
        if !(1..=1 << 20).contains(&self.streams()) {
            return wrong("--streams must be from 1 to 2^20");
        }
        if self.duration.is_zero() || self.duration.max(self.warmup).max(self.timeout) > day {
            return wrong(
                "--duration must be more than 0; --warmup, --timeout and it, at most a day each",
            );
        }
        match self.spread {
            Spread::Zipf(power) if !(power > 0.0 && power <= 10.0) => {
                return wrong("--zipf must be more than 0 and at most 10");
            }
            _ => {}
        }
        match self.load {
            Load::Open(rate) if !(0.001..=1e7).contains(&rate) => {
                wrong("--rate must be from 0.001 to 10 million calls per second")
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
    fn what_cannot_be_carried_out_is_refused_with_the_option_to_change() {
        assert_eq!(plan().check(), Ok(()));
        let table: [(Plan, &str); 9] = [
            (Plan { domain: String::new(), ..plan() }, "domain"),
            (Plan { keys: 0, ..plan() }, "--keys"),
            (Plan { descriptors: vec![vec![("a".into(), "b".into())]], ..plan() }, "{n}"),
            (Plan { connections: 0, ..plan() }, "--connections"),
            (Plan { threads: Some(0), ..plan() }, "--threads"),
            (Plan { streams: Some(0), ..plan() }, "--streams"),
            (Plan { duration: Duration::ZERO, ..plan() }, "--duration"),
            (Plan { spread: Spread::Zipf(f64::NAN), ..plan() }, "--zipf"),
            (Plan { load: Load::Open(0.0), ..plan() }, "--rate"),
        ];
        for (plan, word) in table {
            let problem = plan.check().unwrap_err();
            assert!(problem.contains(word), "{word}: {problem}");
        }
    }

    #[test]
    fn a_thread_without_a_connection_is_not_started() {
        assert_eq!(Plan { threads: Some(9), connections: 2, ..plan() }.threads(), 2);
    }
}
