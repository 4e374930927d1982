//! The driver: the thread that settles quotas, exchanges divided rules and removes what has expired.

use std::collections::HashSet;
use std::mem::{replace, take};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Interval, MissedTickBehavior, Sleep, interval, sleep};

use super::engine::{QuotaEngine, SHARDS};
use super::ledger_calls::LedgerCalls;
use super::reloading::QUOTAS_PER_LOCK;
use crate::key::RuleId;
use crate::time::Micros;

/// Time between two rounds of settlements without a new holder.
const TICK: Duration = Duration::from_millis(250);

/// The same without streams, quotas and local holders. New rules and what has expired can wait then, and an idle
/// process takes less CPU time.
const IDLE_TICK: Duration = Duration::from_secs(1);

/// Shortest time between two rounds, however many holders appear: those of one burst settle together.
const PAUSE: Duration = Duration::from_millis(2);

/// Ticks in which all local holders report once, as often as Envoys do. At idle ticks it takes 20 s: then only
/// holders of rules are left that are not divided any longer.
const LOCAL_TICKS: usize = 20;

/// Passes over the shards in one round. A pass settles a few quotas of each.
const PASSES_MAX: usize = 4;

/// Time between two reads of the announced rules.
const READ_PERIOD: Duration = Duration::from_secs(1);

/// Reads per announcement of own rules.
const READS_PER_ANNOUNCEMENT: u32 = 5;

/// How long an announcement is valid.
const ANNOUNCEMENT_TTL: Micros = Micros::from_secs(60);

/// Pause after a failure of the driver itself.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// The running thread. It stops when this value is dropped.
#[derive(Debug)]
pub struct RlqsDriver {
    stop: oneshot::Sender<()>,
    done: oneshot::Receiver<()>,
}

impl RlqsDriver {
    /// Stops the thread, and waits for it.
    pub async fn end(self) {
        drop(self.stop);
        let _ = self.done.await;
    }
}

/// Starts the thread `weir-rlqs`.
///
/// # Errors
///
/// The operating system gives no thread.
pub fn start(engine: Arc<QuotaEngine>) -> io::Result<RlqsDriver> {
    let (stop, stopped) = oneshot::channel::<()>();
    let (ended, done) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("weir-rlqs".into()).spawn(move || {
        runtime.block_on(async {
            if engine.ledger.is_some() {
                tokio::spawn(exchange_rules(engine.clone()));
            }
            tokio::select! {
                () = run_always(engine) => {}
                _ = stopped => {}
            }
        });
        let _ = ended.send(());
    })?;
    Ok(RlqsDriver { stop, done })
}

/// Runs rounds of settlements, also after a panic in one of them.
pub(super) async fn run_always(engine: Arc<QuotaEngine>) {
    loop {
        // The error is a panic, whose text was logged. Other streams need their assignments.
        let _ = tokio::spawn(run(engine.clone())).await;
        tracing::error!("RLQS thread failed; it starts again: report the panic above");
        sleep(RESTART_PAUSE).await;
    }
}

/// Settles quotas when they are due.
async fn run(engine: Arc<QuotaEngine>) {
    // Those of a run that ended by a panic.
    engine.fail_calls(engine.clock.now());
    let mut ticks = ticks(TICK);
    let (mut number, mut first, mut is_idle) = (0, 0, false);
    let mut calls = LedgerCalls::new(engine.clone());
    // The next round between two ticks. Replies are taken while it waits.
    let mut pause = pin!(sleep(PAUSE));
    let mut is_planned = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                tick(&engine, number).await;
                number += 1;
                is_idle = !engine.has_work();
                if is_idle {
                    ticks.reset_after(IDLE_TICK);
                }
            }
            () = &mut pause, if is_planned => is_planned = false,
            () = engine.wake_driver.notified() => {
                if take(&mut is_idle) {
                    ticks.reset_after(TICK);
                }
                plan(&mut is_planned, pause.as_mut());
                continue;
            }
            Some(reply) = calls.next() => {
                // Others wait for the place of this call, and need no pause.
                let had_room = calls.has_room();
                calls.finish(reply);
                while let Some(Some(reply)) = calls.next().now_or_never() {
                    calls.finish(reply);
                }
                if had_room {
                    // A quota that needs a second settlement gets it with the others.
                    plan(&mut is_planned, pause.as_mut());
                    continue;
                }
            }
        }
        let (next, is_over) = settle_round(&engine, &mut calls, first).await;
        first = next;
        if !is_over {
            plan(&mut is_planned, pause.as_mut());
        }
    }
}

/// Plans a round, unless one is planned.
fn plan(is_planned: &mut bool, mut pause: Pin<&mut Sleep>) {
    if !replace(is_planned, true) {
        pause.set(sleep(PAUSE));
    }
}

/// The work of one tick apart from settlements.
async fn tick(engine: &QuotaEngine, number: usize) {
    reload(engine).await;
    let now = engine.clock.now();
    engine.expire(now);
    // Each tick has its part of the shards, so that all have reported after the last one.
    let part = number % LOCAL_TICKS;
    for shard in part * SHARDS / LOCAL_TICKS..(part + 1) * SHARDS / LOCAL_TICKS {
        engine.report_local_uses(shard, now);
        yield_now().await;
    }
}

/// Applies new rules to all quotas.
async fn reload(engine: &QuotaEngine) {
    let Some(new) = engine.read_new_rules() else { return };
    for shard in 0..SHARDS {
        for keys in engine.keys_of(shard).chunks(QUOTAS_PER_LOCK) {
            engine.apply_rules(shard, keys, &new);
            yield_now().await;
        }
    }
    engine.announce_rules(&new);
}

/// Settles the quotas that are due, from the shard `first` on, while there is room for `calls`; the other quotas
/// stay due. Returns the shard to begin with the next time, and whether nothing is left to do before a reply, a
/// tick or a wake-up.
///
/// Reports may make quotas due faster than they are settled, so a round has an end: rules and expiries wait for it.
async fn settle_round(
    engine: &QuotaEngine,
    calls: &mut LedgerCalls,
    first: usize,
) -> (usize, bool) {
    let mut new = Vec::new();
    let mut waiting: Vec<usize> = (first..first + SHARDS).collect();
    for _ in 0..PASSES_MAX {
        // Each shard in turn: a stream that waits for a lock gets it before the next quotas of that shard.
        let mut left = Vec::new();
        for shard in waiting {
            if !calls.has_room() {
                return (shard % SHARDS, true);
            }
            if engine.settle_due(shard, engine.clock.now(), &mut new) {
                left.push(shard);
                yield_now().await;
            }
            new.drain(..).for_each(|call| calls.send(call));
        }
        waiting = left;
    }
    let next = waiting.first().map_or(first, |shard| shard % SHARDS);
    (next, waiting.is_empty())
}

/// Announces the divided rules of this process, and reads those of all instances. A failure changes
/// nothing: the store has its own log lines about it.
pub(super) async fn exchange_rules(engine: Arc<QuotaEngine>) {
    let Some(ledger) = engine.ledger.clone() else { return };
    let mut ticks = ticks(READ_PERIOD);
    let mut number = 0_u32;
    let mut announced = HashSet::new();
    loop {
        ticks.tick().await;
        let own = engine.divided.own();
        let now = engine.clock.now();
        // Until other instances know a rule, their callers use its counter: a second limit.
        if (has_new(&own, &mut announced) || number.is_multiple_of(READS_PER_ANNOUNCEMENT))
            && !own.is_empty()
            && ledger.announce(&own, now, ANNOUNCEMENT_TTL).await.is_ok()
        {
            announced = HashSet::from_iter(own);
        }
        if let Ok(rules) = ledger.announced(engine.clock.now()).await {
            engine.divided.set_announced(HashSet::from_iter(rules));
        }
        number = number.wrapping_add(1);
    }
}

/// Whether a rule of `own` is not `announced`. Forgets the rules that are not in `own`: the others forget them
/// too, and have to know when they are divided again.
fn has_new(own: &[RuleId], announced: &mut HashSet<RuleId>) -> bool {
    let own: HashSet<RuleId> = own.iter().copied().collect();
    announced.retain(|rule| own.contains(rule));
    announced.len() < own.len()
}

/// Ticks without bursts: after a late tick the next follows a full period later.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_is_divided_again_is_new_again() {
        let rule = |number: u64| RuleId([number, 0]);
        let mut announced = HashSet::new();
        assert!(has_new(&[rule(1)], &mut announced));
        announced = HashSet::from([rule(1)]);
        assert!(!has_new(&[rule(1)], &mut announced));
        assert!(has_new(&[rule(1), rule(2)], &mut announced));
        assert!(!has_new(&[], &mut announced));
        assert!(has_new(&[rule(1)], &mut announced));
    }
}
