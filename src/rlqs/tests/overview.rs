//! What operators see of the quotas.

use super::*;

#[test]
fn the_share_of_a_lost_stream_is_shown_as_reserved() {
    let process = Process::new(config());
    let mut streams = vec![process.open(None), process.open(None)];
    for stream in &mut streams {
        stream.report(&report("d", &[("tenant=a", 1)])).expect("valid");
    }
    process.pass(1_000);
    let assert_shown = |assigned: f64, reserved: f64, in_use: f64| {
        let series = process.engine.rule_series();
        let quota = process.engine.shown(1).quotas.remove(0);
        let shown = [series[0].assigned_per_second, series[0].reserved_per_second];
        let [per_second, part] = [[assigned, reserved], [assigned / 100.0, reserved / 100.0]];
        let is_near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(shown.iter().zip(per_second).all(|(a, b)| is_near(*a, b)), "{series:?}");
        assert!(is_near(quota.assigned, part[0]) && is_near(quota.reserved, part[1]), "{quota:?}");
        assert!(is_near(series[0].share_in_use, in_use), "{series:?}");
    };
    assert_shown(100.0, 0.0, 1.0);
    drop(streams.pop());
    process.settle();
    assert_shown(50.0, 50.0, 1.0);
    for _ in 0..3 {
        process.pass(5_000);
        streams[0].report(&report("d", &[("tenant=a", 100)])).expect("valid");
    }
    process.pass(1_000);
    // A tenth is kept for new holders, because it is not wanted.
    assert_shown(90.0, 0.0, 0.9);
}
