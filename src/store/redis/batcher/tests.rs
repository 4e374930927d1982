//! Tests of a batcher whose runtime ends.

use std::pin::pin;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::*;
use crate::algorithm;
use crate::key::CounterKey;
use crate::limit::Limit;
use crate::store::redis::config::{NodeConfig, Target};
use crate::store::redis::function_use::FunctionUse;
use crate::time::{Micros, SystemClock};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime")
}

/// A flusher that ended with its runtime before it ran must not keep later steps waiting.
#[test]
fn steps_are_sent_after_a_runtime_has_ended() {
    let limit = Limit::fixed_window(10, Micros::SECOND);
    let step = EncodedStep::of(&algorithm::plan(&limit, 1, Micros::SECOND));
    let name = CounterName::of(&CounterKey([7, 7]));
    let (_open, closed) = watch::channel(false);
    let ended = runtime();
    let batcher = ended.block_on(async {
        let target = Target::Unix("/nonexistent".into());
        let config = NodeConfig { target, access: Arc::default() };
        let known = (Arc::default(), Arc::new(FunctionUse::new(false)));
        let connection = RedisConnection::open(&config, "a:1", closed, known, SystemClock::new());
        let batcher = Arc::new(Batcher::new(connection, 8));
        {
            let mut call = pin!(batcher.apply(0, name, step.clone()));
            assert!(futures_util::poll!(call.as_mut()).is_pending());
        }
        assert!(batcher.queue().flusher_scheduled);
        batcher
    });
    drop(ended);
    // The time is paused, so the timeout is reached only if nothing else can happen.
    let call =
        async { tokio::time::timeout(Duration::from_secs(60), batcher.apply(0, name, step)).await };
    let result = runtime().block_on(call).expect("a flusher takes the step");
    assert!(matches!(result, Ok(Err(BatchError::Redis(CallError::NotSent)))), "{result:?}");
}
